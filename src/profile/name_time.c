/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <time.h>

#include "base/decimal.h"
#include "base/sum.h"
#include "profile/name.h"

#define NS_PER_S 1000000000ull
#define TEXT_MAX 64 /* largest number of characters of a time that are examined */
/* Largest time in seconds. The limit is later than the year 2554, and so small that the sum of
 * two times does not overflow. */
#define SECONDS_MAX 100000000000

/* Parses the number at `*p` and moves `*p` past its digits. Returns `max` if the number is
 * larger than `max`, and 0 if there are no digits. */
static uint64_t name_time_read_number(const char **p, const char *end, uint64_t max)
{
    const char *start = *p;
    uint64_t v = 0;
    return br_decimal_read(p, end, max, &v) || *p == start ? v : max;
}

static bool name_time_read_date(uint64_t yyyymmdd, uint64_t *ret_ns)
{
    int year = (int)(yyyymmdd / 10000), month = (int)(yyyymmdd / 100 % 100);
    int day = (int)(yyyymmdd % 100);
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    time_t t = timegm(&tm);
    if (year <= 1900 || month < 1 || tm.tm_mon != month - 1 || tm.tm_mday != day)
        return false;
    if (t < 0)
        *ret_ns = 0;
    else
        *ret_ns = (uint64_t)t > UINT64_MAX / NS_PER_S ? UINT64_MAX : (uint64_t)t * NS_PER_S;
    return true;
}

static uint64_t name_time_read_digits(const char *p, const char *end)
{
    uint64_t ns;
    ptrdiff_t len = end - p;
    uint64_t v = name_time_read_number(&p, end, UINT64_MAX);
    if (len == 8 && name_time_read_date(v, &ns))
        return ns;
    uint64_t unit = NS_PER_S;
    if (len == 13)
        unit = 1000000;
    else if (len == 16)
        unit = 1000;
    else if (len == 19)
        unit = 1;
    return v > UINT64_MAX / unit ? UINT64_MAX : v * unit;
}

static int64_t name_time_unit_seconds(const char *p, const char *end)
{
    static const struct {
        const char *prefix;
        int64_t seconds;
    } units[] = {
        {"s", 1},    {"mon", 30 * 86400}, {"M", 30 * 86400}, {"m", 60},
        {"h", 3600}, {"d", 86400},        {"w", 7 * 86400},  {"y", 365 * 86400},
    };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        size_t n = strlen(units[i].prefix);
        if ((size_t)(end - p) >= n && memcmp(p, units[i].prefix, n) == 0)
            return units[i].seconds;
    }
    return 0;
}

/* Parses an offset such as "1h30min". Returns seconds, at most SECONDS_MAX. */
static int64_t name_time_read_offset(const char *p, const char *end)
{
    int64_t sum = 0;
    while (p < end) {
        int64_t number = (int64_t)name_time_read_number(&p, end, SECONDS_MAX);
        const char *unit = p;
        while (p < end && !br_is_digit(*p))
            p++;
        int64_t seconds = name_time_unit_seconds(unit, p);
        if (seconds > 0 && number > SECONDS_MAX / seconds)
            return SECONDS_MAX;
        sum += number * seconds;
        if (sum > SECONDS_MAX)
            return SECONDS_MAX;
    }
    return sum;
}

static bool name_time_is_skipped(char letter)
{
    bool is_blank = letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r';
    return is_blank || letter == '_' || letter == ',';
}

uint64_t br_app_time(const char *text, size_t len, uint64_t now_ns)
{
    char plain[TEXT_MAX];
    size_t n = 0;
    bool digits = true;
    for (size_t i = 0; i < len && n < sizeof plain; i++) {
        if (name_time_is_skipped(text[i]))
            continue;
        digits = digits && br_is_digit(text[i]);
        plain[n++] = text[i];
    }
    const char *end = plain + n, *p = plain;
    if (digits && n > 0)
        return name_time_read_digits(p, end);
    /* Pyroscope looks for a plus in the whole text before it looks for a minus. */
    const char *sign = memchr(p, '+', n);
    if (!sign)
        sign = memchr(p, '-', n);
    if (!sign)
        return now_ns;
    uint64_t seconds = (uint64_t)name_time_read_offset(sign + 1, end);
    uint64_t ns = br_product_unsigned(seconds, NS_PER_S);
    if (*sign == '-')
        return ns > now_ns ? 0 : now_ns - ns;
    return br_sum_unsigned(now_ns, ns);
}
