/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content codings. gzip is RFC 1952 (members may follow one another), deflate is RFC 1950 as RFC 9110
 * section 8.4.1.2 says (raw RFC 1951, which some clients send, is accepted), zstd is RFC 8878. Every
 * decoder stops at the caller's limit without having produced more than it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

enum br_encoding { BR_ENCODING_NONE, BR_ENCODING_GZIP, BR_ENCODING_DEFLATE, BR_ENCODING_ZSTD };

/* Reads "", "identity", "none", "gzip", "x-gzip", "deflate", "zlib", "zstd" (any case); false when it
 * is none of them. */
bool br_encoding_parse(const char *name, size_t len, enum br_encoding *ret);

/* "identity", "gzip", "deflate", "zstd". */
const char *br_encoding_name(enum br_encoding encoding);

/* Decoders and encoders with their tables, kept for reuse by one worker. */
struct br_codec;
struct br_codec *br_codec_new(void); /* NULL when there is no memory; tables are made when needed */
void br_codec_free(struct br_codec *c);

/* Decodes a whole body (not BR_ENCODING_NONE) into a new buffer that the caller owns. Returns 0,
 * BR_ETOOBIG when it would be over `max` bytes, BR_EINVAL when it is damaged or cut off, or
 * BR_ENOMEM. */
int br_decompress(struct br_codec *c, enum br_encoding encoding, const uint8_t *data, size_t len,
                  size_t max, struct br_pool *pool, struct br_buf **ret, struct br_err *err);

/* Encodes a whole payload (not BR_ENCODING_NONE) into a new buffer that the caller owns. `level` 0
 * means the default: gzip and deflate 6 as zlib's, zstd 3. `reserve` bytes are left free at the
 * front of the buffer for a frame header. Returns 0 or BR_ENOMEM. */
int br_compress(struct br_codec *c, enum br_encoding encoding, int level,
                const struct br_rope *payload, size_t reserve, struct br_pool *pool,
                struct br_buf **ret);
