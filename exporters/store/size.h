/* SPDX-License-Identifier: Apache-2.0 */
/* Reads sizes as people write them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STORE_SIZE_MIN (1u << 20)

/* Reads "2GiB", "500 MB", "1073741824": a whole number with or without one of B, KB, MB, GB, TB
 * (powers of 1000) or KiB, MiB, GiB, TiB (of 1024), in any case. False when it is none, less than
 * STORE_SIZE_MIN, or more than 2^63. */
bool store_size_parse(const char *text, uint64_t *ret);
