/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/store/size.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/decimal.h"
#include "base/mem.h"

bool store_size_parse(const char *text, uint64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", 1000000000000},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30},
                 {"TiB", UINT64_C(1) << 40}};
    uint64_t size;
    const char *p = text;
    if (!p || !br_decimal_read(&p, p + strlen(p), UINT64_MAX, &size))
        return false;
    while (*p == ' ')
        p++;
    for (size_t i = 0; i < BR_COUNT(units); i++) {
        if (strcasecmp(p, units[i].name) != 0)
            continue;
        if (__builtin_mul_overflow(size, units[i].bytes, &size) || size < STORE_SIZE_MIN ||
            size > INT64_MAX)
            return false;
        *ret = size;
        return true;
    }
    return false;
}
