/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes Snappy as the Collector does: a block (github.com/google/snappy, format_description.txt),
 * or, where it begins as one, a stream of chunks (framing_format.txt). Content-Encoding `snappy`
 * has meant both.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reads the decoded size that a body states into `*ret`: never more than 32 times `len`. Returns 0
 * or BR_EINVAL (damaged, cut off). Reads the heads of chunks only. */
int br_snappy_size(const uint8_t *data, size_t len, size_t *ret);

/* Decodes a body into `out`, which has room for `size` bytes, those of br_snappy_size. Returns 0,
 * or BR_EINVAL when it is damaged, cut off, of another size, or a checksum is wrong. */
int br_snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t size);
