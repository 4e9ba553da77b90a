/* SPDX-License-Identifier: Apache-2.0 */
#include "base/time.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define NS_PER_S 1000000000u

const char *br_rfc3339(uint64_t unix_ns, unsigned digits, char out[BR_RFC3339_SIZE])
{
    time_t seconds = (time_t)(unix_ns / NS_PER_S);
    uint64_t fraction = unix_ns % NS_PER_S;
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t len = strftime(out, BR_RFC3339_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
    for (unsigned i = digits; i < 9; i++)
        fraction /= 10;
    if (digits)
        (void)snprintf(out + len, BR_RFC3339_SIZE - len, ".%0*" PRIu64 "Z", (int)digits, fraction);
    else
        (void)snprintf(out + len, BR_RFC3339_SIZE - len, "Z");
    return out;
}
