/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compresses and decompresses bodies (HTTP content codings). Every decoder stops at the caller's
 * limit for the decoded size, and never writes more bytes.
 *
 * | coding | format |
 * |---|---|
 * | gzip | RFC 1952; several members |
 * | deflate | RFC 1950 (RFC 9110 section 8.4.1.2); raw RFC 1951, which some clients send |
 * | zstd | RFC 8878; several frames; window of at most 16 MiB if the size is not stated |
 * | snappy | see br_snappy_size; decoded only |
 *
 * The decoded size that a sender states is a hint. The first output buffer has the size that the
 * sender states, or the largest size to which the input can decode if that is less. A buffer that
 * is too small is doubled, up to the limit.
 *
 * Each gzip member, deflate stream and zstd frame is decoded in one call. libdeflate, three times
 * as fast as zlib, cannot continue after its buffer is full. zstd needs no window besides its
 * output if it decodes a frame in one call. When a buffer is full, only the last member or frame is
 * decoded again into a larger buffer. The sizes tried add up to less than twice the limit. Decoding
 * needs memory for the result and the decoder's tables. A buffer with less than BR_MEM_MAPPED bytes
 * of content is copied when it is enlarged.
 *
 * The default level is 1. Level 1 of gzip and deflate uses ISA-L, other levels libdeflate. The
 * table shows MB/s of payload, and the compressed size as a fraction of the payload. The figures in
 * the table were measured with export requests of 200 spans, ten per body, on one core of a 2-core
 * machine:
 *
 *     gzip 1  3469 MB/s  9.2 %  (libdeflate: 760 MB/s, 8.6 %)
 *     gzip 2   480 MB/s  8.5 %
 *     gzip 4   431 MB/s  8.3 %
 *     gzip 6   321 MB/s  8.2 %
 *     zstd 1  1932 MB/s  6.9 %
 *
 * zlib's default level 6 would cost ten times the CPU time for 11 % fewer bytes. For profiles, gzip
 * level 1 compresses to 22.0 % (libdeflate: 21.8 %) at 1363 MB/s, and gzip level 6 compresses to
 * 18.0 % at 173 MB/s.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Maximum memory, in bytes, that a decoder uses in addition to the result: its tables, and a
 * small buffer that grows. */
#define BR_DECODER_MAX (1u << 20)

enum br_encoding {
    BR_ENCODING_NONE,
    BR_ENCODING_GZIP,
    BR_ENCODING_DEFLATE,
    BR_ENCODING_ZSTD,
    BR_ENCODING_SNAPPY, /* Braid decodes this coding but never encodes it */
};

/* Parses "", "identity", "none", "gzip", "x-gzip", "deflate", "zlib", "zstd", "snappy" or
 * "x-snappy-framed", without regard to case. Returns false for any other name. */
bool br_encoding_parse(const char *name, size_t len, enum br_encoding *ret);

/* Returns the name of an encoding: "identity", "gzip", "deflate", "zstd" or "snappy". */
const char *br_encoding_name(enum br_encoding encoding);

/* A codec has decoders and encoders with their tables, which one worker reuses. */
struct br_codec;
/* Makes a codec. Returns NULL if memory is short. The tables of the codec are made when they are
 * first used. */
struct br_codec *br_codec_new(void);
void br_codec_free(struct br_codec *codec);

/* Decodes a whole body into a new buffer that the caller owns. `encoding` must not be
 * BR_ENCODING_NONE. Returns 0 or an error with a message in `err`:
 * - BR_ETOOBIG: the decoded body is above `max` bytes, or above BR_BUF_MAX
 * - BR_EINVAL: the body is damaged, truncated, followed by other bytes, or needs too large a window
 * - BR_ENOMEM: memory is short
 *
 * BR_ETOOBIG may also be returned for a gzip or deflate body that is truncated within a few
 * bytes of `max`. BR_ETOOBIG may also be returned for a gzip body whose stated size is damaged. */
int br_decompress(struct br_codec *codec, enum br_encoding encoding, const uint8_t *data,
                  size_t len, size_t max, struct br_pool *pool, struct br_buf **ret,
                  struct br_err *err);

/* Encodes a whole payload into a new buffer that the caller owns. `encoding` must not be
 * BR_ENCODING_NONE or BR_ENCODING_SNAPPY. A `level` of 0 or less selects the default, 1. Levels
 * above the maximum (12 for gzip and deflate, 22 for zstd) select the maximum. `reserve` bytes
 * at the start of the buffer are left for a frame header and count in its `len`. The function
 * reads only the bytes of the payload, so any thread with its own codec and pool may call it.
 * Returns 0, or BR_ENOMEM, also if the result exceeds BR_BUF_MAX. */
int br_compress(struct br_codec *codec, enum br_encoding encoding, int level,
                const struct br_rope *payload, size_t reserve, struct br_pool *pool,
                struct br_buf **ret);

/* --- Snappy (snappy.c) ------------------------------------------------------------------------ */

/*
 * The functions below decode Snappy like the Collector. A body that begins with the stream
 * identifier is a stream of chunks (framing_format.txt). A body that does not begin with the stream
 * identifier is a block (format_description.txt). The documents framing_format.txt and
 * format_description.txt are in github.com/google/snappy. Clients use Content-Encoding `snappy` for
 * streams and for blocks.
 */

/* Stores the decoded size that a body states in `*ret`; this size is at most 32 times `len`.
 * Returns 0, or BR_EINVAL if the body is damaged or truncated. For a stream of chunks, only the
 * heads of the chunks are read. */
int br_snappy_size(const uint8_t *data, size_t len, size_t *ret);

/* Decodes a body into `out`, which has `size` bytes, the result of br_snappy_size. Returns 0, or
 * BR_EINVAL if the body is damaged or truncated, decodes to another size, or has a wrong
 * checksum. */
int br_snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t size);
