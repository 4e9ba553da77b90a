/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <time.h>

#include "wire/conn.h"

int64_t br_http_retry_after(const char *value)
{
    char *end;
    if (*value >= '0' && *value <= '9') {
        long s = strtol(value, &end, 10);
        return *end == '\0' && s < 1000000000 ? s : -1;
    }
    /* The date formats of RFC 9110 section 5.6.7: IMF-fixdate, and two obsolete formats that
     * must be accepted. */
    static const char *const dates[] = {"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT",
                                        "%a %b %d %H:%M:%S %Y"};
    for (size_t i = 0; i < sizeof dates / sizeof dates[0]; i++) {
        struct tm tm = {0};
        end = strptime(value, dates[i], &tm);
        if (!end || *end)
            continue;
        int64_t left = (int64_t)timegm(&tm) - (int64_t)time(NULL);
        return left > 0 ? left : 0;
    }
    return -1;
}
