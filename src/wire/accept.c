/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/request.h"

#include <stddef.h>
#include <string.h>

#include "base/bytes.h"

static const char *accept_skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

/* Parses a weight such as "0.5" with at most three decimals. A malformed weight counts as 0. */
static double accept_read_weight(const char *p, const char *end)
{
    double value = 0, unit = 1;
    if (p < end && (*p == '0' || *p == '1'))
        value = *p++ - '0';
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9' && unit > 0.0005; p++) {
            unit /= 10;
            value += unit * (*p - '0');
        }
    return value > 1 ? 1 : value;
}

/* Returns the weight among the parameters of an element, or 1 if the element has no weight. */
static double accept_weight(const char *p, const char *end)
{
    while (p < end) {
        const char *next = memchr(p, ';', (size_t)(end - p));
        const char *stop = next ? next : end, *at = accept_skip_space(p, stop);
        if (stop - at >= 2 && (at[0] == 'q' || at[0] == 'Q') && at[1] == '=')
            return accept_read_weight(at + 2, stop);
        p = next ? next + 1 : end;
    }
    return 1;
}

double br_accept_quality(const char *header, const char *name)
{
    double best = -1;
    while (header && *header) {
        const char *end = header + strcspn(header, ","), *at = accept_skip_space(header, end);
        const char *stop = memchr(at, ';', (size_t)(end - at));
        const char *last = stop ? stop : end;
        while (last > at && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        if (br_bytes_are_nocase(at, (size_t)(last - at), name)) {
            double weight = stop ? accept_weight(stop + 1, end) : 1;
            best = weight > best ? weight : best;
        }
        header = *end ? end + 1 : end;
    }
    return best;
}
