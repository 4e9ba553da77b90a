/* SPDX-License-Identifier: Apache-2.0 */
/* Parses sizes in bytes, such as 2GiB. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define STORE_SIZE_MIN (1u << 20)

/* Parses a whole number, optionally with a unit: B, KB, MB, GB, TB (powers of 1000) or KiB, MiB,
 * GiB, TiB (powers of 1024), in upper or lower case. Examples: "2GiB", "500 MB", "1073741824".
 * Returns false if the text is invalid, less than STORE_SIZE_MIN, or more than 2^63. */
bool store_size_parse(const char *text, uint64_t *ret);
