/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses durations in the same way as Go's time.ParseDuration, and endpoints in the same way as
 * net.SplitHostPort.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "config/option.h"

#define NS_LIMIT ((uint64_t)1 << 63)

static bool format_unit_ns(const char *text, size_t len, uint64_t *ret)
{
    static const struct {
        const char *name;
        uint64_t ns;
    } units[] = {
        {"ns", 1},           {"us", 1000},      {"\xc2\xb5s", 1000}, /* U+00B5 */
        {"\xce\xbcs", 1000},                                         /* U+03BC */
        {"ms", 1000000},     {"s", 1000000000}, {"m", 60000000000},  {"h", 3600000000000},
    };
    for (size_t i = 0; i < BR_COUNT(units); i++) {
        if (br_bytes_are(text, len, units[i].name)) {
            *ret = units[i].ns;
            return true;
        }
    }
    return false;
}

/* Parses one number of a duration with its unit. */
static bool format_read_term(const char **text, uint64_t *ret)
{
    uint64_t whole = 0, unit;
    const char *start = *text, *end = start + strlen(start);
    if (br_is_digit(*start) && !br_decimal_read(text, end, NS_LIMIT, &whole))
        return false;
    size_t n_digits = (size_t)(*text - start);
    const char *fraction = **text == '.' ? ++*text : NULL;
    if (fraction) {
        *text += strspn(*text, "0123456789");
        n_digits += (size_t)(*text - fraction);
    }
    size_t len = strcspn(*text, "0123456789.");
    if (n_digits == 0 || !format_unit_ns(*text, len, &unit) || whole > NS_LIMIT / unit)
        return false;
    *text += len;
    *ret = whole * unit + (fraction ? br_decimal_fraction(&fraction, end, unit) : 0);
    return *ret <= NS_LIMIT;
}

bool br_duration_parse(const char *text, uint64_t *ret_ns)
{
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    if (!*text)
        return false;
    uint64_t sum = 0;
    if (strcmp(text, "0") != 0) {
        while (*text) {
            uint64_t term;
            if (!format_read_term(&text, &term))
                return false;
            sum += term;
            if (sum >= NS_LIMIT)
                return false;
        }
    }
    if (negative && sum)
        return false;
    *ret_ns = sum;
    return true;
}

static bool format_port_parse(const char *text, unsigned *ret)
{
    size_t len = strlen(text);
    uint64_t port;
    if (len > 5 || !br_decimal_parse(text, len, 65535, &port))
        return false;
    *ret = (unsigned)port;
    return true;
}

bool br_endpoint_parse(const char *text, char *host, unsigned *ret_port)
{
    const char *start = text, *end = strrchr(text, ':');
    if (!end)
        return false;
    const char *colon = end;
    if (*text == '[') {
        if (end == text || end[-1] != ']')
            return false;
        start++;
        end--;
    }
    size_t len = (size_t)(end - start);
    if (len > 255 || (*text == '[' && len == 0))
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)start[i];
        if (c <= ' ' || c == 0x7f || strchr("[]/", c) || (c == ':' && *text != '['))
            return false;
    }
    unsigned port;
    if (!format_port_parse(colon + 1, &port))
        return false;
    memcpy(host, start, len);
    host[len] = '\0';
    *ret_port = port;
    return true;
}

/* Writes a duration of less than a minute: in seconds with a fraction, or in a smaller unit if
 * it is less than one second. */
static void format_seconds(uint64_t ns, char *out, size_t size)
{
    uint64_t fraction = ns % 1000000000;
    int digits = 9;
    if (ns < 1000000000 && ns % 1000 != 0)
        (void)snprintf(out, size, "%" PRIu64 "ns", ns);
    else if (ns < 1000000000 && ns % 1000000 != 0)
        (void)snprintf(out, size, "%" PRIu64 "us", ns / 1000);
    else if (ns < 1000000000)
        (void)snprintf(out, size, "%" PRIu64 "ms", ns / 1000000);
    else if (!fraction)
        (void)snprintf(out, size, "%" PRIu64 "s", ns / 1000000000);
    else {
        for (; fraction % 10 == 0; digits--)
            fraction /= 10;
        (void)snprintf(out, size, "%" PRIu64 ".%0*" PRIu64 "s", ns / 1000000000, digits, fraction);
    }
}

const char *br_duration_format(uint64_t ns, char out[BR_DURATION_SIZE])
{
    const uint64_t second = 1000000000, minute = 60 * second, hour = 60 * minute;
    size_t len = 0;
    out[0] = '\0';
    if (ns / hour)
        len += (size_t)snprintf(out, BR_DURATION_SIZE, "%" PRIu64 "h", ns / hour);
    if (ns % hour / minute)
        len +=
            (size_t)snprintf(out + len, BR_DURATION_SIZE - len, "%" PRIu64 "m", ns % hour / minute);
    if (ns % minute)
        format_seconds(ns % minute, out + len, BR_DURATION_SIZE - len);
    else if (!ns)
        (void)snprintf(out, BR_DURATION_SIZE, "0s");
    return out;
}
