/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compresses and decompresses bodies (HTTP's content codings). gzip is RFC 1952 (members may follow
 * one another), deflate is RFC 1950 as RFC 9110 section 8.4.1.2 says (raw RFC 1951, which some
 * clients send, is accepted), zstd is RFC 8878 (frames may follow one another; of one that does not
 * state its size, a window of 16 MiB at the most), snappy is wire/snappy.h's. Every decoder stops
 * at the caller's limit without having produced more than it.
 *
 * A size that the sender states is a hint. It decides how large the first buffer is, within what
 * the input can possibly decode to; when it was wrong, the buffer doubles up to the limit. Each
 * gzip member, deflate stream and zstd frame is decoded in one go: libdeflate, three times as fast
 * as zlib, has no way to go on after a full buffer, and zstd needs no window beside what it has
 * decoded. What finds its buffer full is decoded again (the last member or frame only); the sizes
 * tried add up to less than twice the limit, however the sender lies. Memory on the way: the
 * result, and the decoder's tables; a buffer with content below BR_MEM_MAPPED is moved to the next
 * one.
 *
 * The default level is 1 for all of them. Gzip and deflate of level 1 are ISA-L's, of others
 * libdeflate's. Export requests of 200 spans, ten to a body, one core of a 2-core machine, MB/s of
 * payload and compressed size:
 *
 *     gzip 1  3469 MB/s  9.2 %  (libdeflate's: 760 MB/s, 8.6 %)
 *     gzip 2   480 MB/s  8.5 %
 *     gzip 4   431 MB/s  8.3 %
 *     gzip 6   321 MB/s  8.2 %
 *     zstd 1  1932 MB/s  6.9 %
 *
 * zlib's default 6 would pay ten times the CPU for a ninth of the bytes. On profiles level 1 takes
 * 22.0 % (libdeflate's: 21.8) at 1363 MB/s, gzip 6 18.0 at 173.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The most that decoding takes beside the result: the decoder's tables, and a small buffer that
 * grows. */
#define BR_DECODER_MAX (1u << 20)

enum br_encoding {
    BR_ENCODING_NONE,
    BR_ENCODING_GZIP,
    BR_ENCODING_DEFLATE,
    BR_ENCODING_ZSTD,
    BR_ENCODING_SNAPPY, /* is only decoded */
};

/* Reads "", "identity", "none", "gzip", "x-gzip", "deflate", "zlib", "zstd", "snappy",
 * "x-snappy-framed" (any case). Returns false for any other name. */
bool br_encoding_parse(const char *name, size_t len, enum br_encoding *ret);

/* Returns "identity", "gzip", "deflate", "zstd", "snappy". */
const char *br_encoding_name(enum br_encoding encoding);

/* Decoders and encoders with their tables, kept for reuse by one worker. */
struct br_codec;
struct br_codec *br_codec_new(void); /* NULL when there is no memory; tables are made when needed */
void br_codec_free(struct br_codec *codec);

/* Decodes a whole body (not BR_ENCODING_NONE) into a new buffer that the caller owns. Returns 0,
 * BR_ETOOBIG when it would be over `max` bytes (or BR_BUF_MAX), BR_EINVAL when it is damaged, cut
 * off, followed by anything else or needs a larger window than we give, or BR_ENOMEM. A cut-off
 * gzip or deflate body within a few bytes of `max` may be called too big instead, and so may a gzip
 * body that is damaged where it states its size. */
int br_decompress(struct br_codec *codec, enum br_encoding encoding, const uint8_t *data,
                  size_t len, size_t max, struct br_pool *pool, struct br_buf **ret,
                  struct br_err *err);

/* Encodes a whole payload (not BR_ENCODING_NONE) into a new buffer that the caller owns. `level` 0
 * or less means the default, 1; gzip and deflate go up to 12, zstd to 22, and what is above counts
 * as that. `reserve` bytes are left free at the front of the buffer for a frame header, and count
 * in its `len`. Of the payload only bytes are read, so that a thread may do it with a private codec
 * and pool. Returns 0 or BR_ENOMEM (also when it would not fit into BR_BUF_MAX). Not for
 * BR_ENCODING_SNAPPY, which is only decoded. */
int br_compress(struct br_codec *codec, enum br_encoding encoding, int level,
                const struct br_rope *payload, size_t reserve, struct br_pool *pool,
                struct br_buf **ret);
