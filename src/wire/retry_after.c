/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "base/decimal.h"
#include "wire/conn.h"
#include "wire/exchange.h"

int64_t br_http_retry_after(const char *value)
{
    uint64_t seconds;
    if (br_is_digit(*value))
        return br_decimal_parse(value, strlen(value), 999999999, &seconds) ? (int64_t)seconds : -1;
    /* The date formats of RFC 9110 section 5.6.7: IMF-fixdate, and two obsolete formats that
     * must be accepted. */
    static const char *const dates[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %d %H:%M:%S %Y"};
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        struct tm tm = {0};
        const char *end = strptime(value, dates[i], &tm);
        if (!end || *end)
            continue;
        int64_t left = (int64_t)timegm(&tm) - (int64_t)time(NULL);
        return left > 0 ? left : 0;
    }
    return -1;
}
