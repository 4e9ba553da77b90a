/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the parameters of a query's URL. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "extensions/query/query.h"

#define SHOWN_MAX                                                                                  \
    64 /* maximum number of bytes of an invalid value that are repeated in an error message */

const char *query_job_param(const struct query_job *job, const char *name)
{
    for (size_t i = 0; i < job->n_params; i++)
        if (strcmp(job->params[i].name, name) == 0)
            return job->params[i].value;
    return NULL;
}

bool query_job_number(struct query_job *job, const char *name, uint64_t fallback, uint64_t max,
                      uint64_t *ret)
{
    const char *text = query_job_param(job, name);
    *ret = fallback;
    if (!text || !*text || br_decimal_parse(text, strlen(text), max, ret))
        return true;
    query_job_fail(job, 400,
                   "invalid %s: must be a whole number from 0 to %" PRIu64 ", got \"%.*s\"", name,
                   max, SHOWN_MAX, text);
    return false;
}

/* Reads a Unix time. The unit of a time follows from its size: seconds below 10^11 (the year
 * 5138), milliseconds below 10^14, microseconds below 10^17, and nanoseconds otherwise. */
static bool params_read_number(const char *text, uint64_t *ret)
{
    uint64_t whole, fraction = 0;
    const char *p = text, *end = text + strlen(text);
    if (!br_decimal_read(&p, end, UINT64_MAX, &whole))
        return false;
    uint64_t unit = 1;
    if (whole < 100000000000ull)
        unit = 1000000000;
    else if (whole < 100000000000000ull)
        unit = 1000000;
    else if (whole < 100000000000000000ull)
        unit = 1000;
    if (*p == '.' && unit == 1000000000) {
        p++;
        fraction = br_decimal_fraction(&p, end, unit);
    }
    if (*p || whole > UINT64_MAX / unit - 1)
        return false;
    *ret = whole * unit + fraction;
    return true;
}

static uint64_t params_unit_ns(char unit)
{
    switch (unit) {
    case 's':
        return 1000000000ull;
    case 'm':
        return 60 * 1000000000ull;
    case 'h':
        return 3600 * 1000000000ull;
    case 'd':
        return 86400 * 1000000000ull;
    case 'w':
        return 7 * 86400 * 1000000000ull;
    default:
        return 0;
    }
}

/* Reads "now" or a time such as "now-1h30m". */
static bool params_read_now(const char *text, uint64_t now_ns, uint64_t *ret)
{
    if (!br_text_starts(text, "now"))
        return false;
    const char *p = text + 3, *end = p + strlen(p);
    uint64_t back = 0;
    if (*p && *p++ != '-')
        return false;
    while (*p) {
        uint64_t count, unit;
        if (!br_decimal_read(&p, end, UINT32_MAX, &count) || !(unit = params_unit_ns(*p)) ||
            count > now_ns / unit)
            return false;
        back += count * unit;
        p++;
    }
    *ret = back < now_ns ? now_ns - back : 0;
    return text[3] != '-' || text[4];
}

/* Reads a time of RFC 3339, in UTC or with an offset. */
static bool params_read_rfc3339(const char *text, uint64_t *ret)
{
    struct tm tm = {0};
    uint64_t fraction = 0;
    const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!p)
        return false;
    if (*p == '.') {
        p++;
        fraction = br_decimal_fraction(&p, p + strlen(p), 1000000000);
    }
    int64_t seconds = timegm(&tm);
    if (*p == '+' || *p == '-') {
        struct tm offset = {0};
        int64_t sign = *p == '+' ? -1 : 1;
        p = strptime(p + 1, "%H:%M", &offset);
        seconds += sign * (offset.tm_hour * 3600 + offset.tm_min * 60);
    } else if (*p == 'Z' || *p == 'z') {
        p++;
    } else {
        return false;
    }
    if (!p || *p || seconds < 0 || seconds > 9000000000ll)
        return false;
    *ret = (uint64_t)seconds * 1000000000 + fraction;
    return true;
}

bool query_job_time(struct query_job *job, const char *name, uint64_t fallback, uint64_t *ret)
{
    const char *text = query_job_param(job, name);
    *ret = fallback;
    if (!text || !*text || params_read_number(text, ret) ||
        params_read_now(text, job->now_ns, ret) || params_read_rfc3339(text, ret))
        return true;
    query_job_fail(job, 400,
                   "invalid %s: must be Unix time in s, ms, us or ns, RFC 3339, or now-1h, got "
                   "\"%.*s\"",
                   name, SHOWN_MAX, text);
    return false;
}
