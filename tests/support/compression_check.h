/* SPDX-License-Identifier: Apache-2.0 */
/* Checks properties of decoding that hold for any input, for the unit test and the fuzz target. The
 * first byte of the input selects the coding, the second the size limit of the output. Decoded data
 * stays within the limit, and survives a round trip through encoder and decoder without a leak. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "wire/compression.h"

static inline void compression_round_trip(struct br_codec *codec, struct br_pool *pool,
                                          enum br_encoding encoding, struct br_buf *plain)
{
    struct br_rope rope = {0};
    struct br_buf *coded = NULL, *again = NULL;
    size_t half = plain->len / 2;
    if (br_rope_add(&rope, plain, plain->data, half) ||
        br_rope_add(&rope, NULL, plain->data + half, plain->len - half) ||
        br_compress(codec, encoding, 0, &rope, 3, pool, &coded) ||
        br_decompress(codec, encoding, coded->data + 3, coded->len - 3u, plain->len, pool, &again,
                      NULL))
        abort();
    if (again->len != plain->len || memcmp(again->data, plain->data, plain->len) != 0)
        abort();
    br_buf_unref(coded);
    br_buf_unref(again);
    br_rope_release(&rope);
}

static inline void compression_check(const uint8_t *data, size_t len)
{
    if (len < 2)
        return;
    enum br_encoding encoding = (enum br_encoding)(BR_ENCODING_GZIP + data[0] % 4);
    size_t max = (size_t)1 << (data[1] % 21);
    struct br_pool *pool = br_pool_new(0);
    struct br_codec *codec = br_codec_new();
    if (!pool || !codec)
        abort();
    struct br_buf *plain = NULL;
    int rc = br_decompress(codec, encoding, data + 2, len - 2, max, pool, &plain, NULL);
    if (rc ? rc != BR_EINVAL && rc != BR_ETOOBIG : plain->len > max)
        abort();
    if (!rc && encoding != BR_ENCODING_SNAPPY)
        compression_round_trip(codec, pool, encoding, plain);
    br_buf_unref(plain);
    br_codec_free(codec);
    br_pool_free(pool); /* fails if a buffer was not freed */
}
