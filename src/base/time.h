/* SPDX-License-Identifier: Apache-2.0 */
/* Times as text. */
#pragma once

#include <stdint.h>

/* size in bytes of the longest result of br_rfc3339, with its terminator */
#define BR_RFC3339_SIZE 32

/* Writes a time, in nanoseconds since 1970, as RFC 3339 in UTC: 2026-01-31T23:59:59.123Z. There are
 * `digits` digits (0 to 9) after the decimal point; further digits are cut off. Returns `out`. */
const char *br_rfc3339(uint64_t unix_ns, unsigned digits, char out[BR_RFC3339_SIZE]);
