/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes Snappy like the Collector. A body that begins with the stream identifier is a stream of
 * chunks (framing_format.txt). Any other body is a block (format_description.txt). Both documents
 * are in github.com/google/snappy. Clients use Content-Encoding `snappy` for both.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Stores the decoded size that a body states in `*ret`; the size is at most 32 times `len`.
 * Returns 0, or BR_EINVAL if the body is damaged or truncated. For a stream of chunks, only the
 * heads of chunks are read. */
int br_snappy_size(const uint8_t *data, size_t len, size_t *ret);

/* Decodes a body into `out`, which has `size` bytes, the result of br_snappy_size. Returns 0, or
 * BR_EINVAL if the body is damaged or truncated, has another size, or a checksum is wrong. */
int br_snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t size);
