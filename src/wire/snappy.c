/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/compression.h"

#include <isa-l/crc.h>
#include <snappy-c.h>
#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "wire/protobuf.h"

/* number of bytes before a chunk's content: a type, and a length in three bytes */
#define CHUNK_HEAD 4u
#define CHUNK_SUM 4u /* number of bytes of the checksum before the data of a chunk */
/* maximum number of decoded bytes in a chunk (framing_format.txt section 4.2) */
#define CHUNK_PLAIN_MAX (64u << 10)
/* Largest ratio of decoded to compressed size. A three-byte copy yields at most 64 bytes, a
 * two-byte copy 11. The length at the start of the block takes at least one more byte. */
#define RATIO_MAX 32u

enum { CHUNK_COMPRESSED = 0, CHUNK_PLAIN = 1, CHUNK_SKIPPED_FROM = 0x80, CHUNK_STREAM = 0xff };

static const uint8_t stream_chunk[] = {CHUNK_STREAM, 6, 0, 0, 's', 'N', 'a', 'P', 'p', 'Y'};

struct snappy_chunk {
    uint8_t type;
    const uint8_t *data; /* content of the chunk after the checksum */
    /* `len`: number of bytes at `data`; `size`: number of bytes after decoding */
    size_t len, size;
    uint32_t sum;
};

static bool snappy_is_framed(const uint8_t *data, size_t len)
{
    return len >= sizeof stream_chunk && memcmp(data, stream_chunk, sizeof stream_chunk) == 0;
}

static bool snappy_block_size(const uint8_t *data, size_t len, size_t *ret)
{
    return snappy_uncompressed_length((const char *)data, len, ret) == SNAPPY_OK &&
           *ret / RATIO_MAX <= len;
}

/* Returns the masked CRC-32C of decoded bytes (framing_format.txt section 3). */
static uint32_t snappy_masked_sum(uint8_t *data, size_t len)
{
    uint32_t sum = ~crc32_iscsi(data, (int)len, UINT32_MAX);
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

/* Parses the head of a chunk. Returns a pointer to the byte after the chunk, or NULL if the
 * chunk is damaged. */
static const uint8_t *snappy_next(const uint8_t *at, const uint8_t *end, struct snappy_chunk *ret)
{
    if ((size_t)(end - at) < CHUNK_HEAD)
        return NULL;
    size_t len = at[1] | (size_t)at[2] << 8 | (size_t)at[3] << 16;
    *ret = (struct snappy_chunk){.type = at[0], .data = at + CHUNK_HEAD, .len = len};
    if ((size_t)(end - ret->data) < len)
        return NULL;
    const uint8_t *next = ret->data + len;
    if (ret->type == CHUNK_STREAM)
        return len == 6 && memcmp(ret->data, stream_chunk + CHUNK_HEAD, 6) == 0 ? next : NULL;
    if (ret->type >= CHUNK_SKIPPED_FROM)
        return next;
    if (ret->type > CHUNK_PLAIN || len < CHUNK_SUM)
        return NULL;
    ret->sum = br_load32(ret->data);
    ret->data += CHUNK_SUM;
    ret->len -= CHUNK_SUM;
    ret->size = ret->len;
    if (ret->type == CHUNK_COMPRESSED && !snappy_block_size(ret->data, ret->len, &ret->size))
        return NULL;
    return ret->size <= CHUNK_PLAIN_MAX ? next : NULL;
}

int br_snappy_size(const uint8_t *data, size_t len, size_t *ret)
{
    struct snappy_chunk chunk;
    size_t size = 0;
    if (!snappy_is_framed(data, len))
        return snappy_block_size(data, len, ret) ? 0 : BR_EINVAL;
    for (const uint8_t *at = data, *end = data + len; at < end; size += chunk.size)
        if (!(at = snappy_next(at, end, &chunk)))
            return BR_EINVAL;
    *ret = size;
    return 0;
}

static bool snappy_decode_block(const uint8_t *data, size_t len, uint8_t *out, size_t size)
{
    size_t made = size;
    return snappy_uncompress((const char *)data, len, (char *)out, &made) == SNAPPY_OK &&
           made == size;
}

/* Decodes a chunk to `out`. Skippable chunks decode to nothing, because their size is 0. */
static bool snappy_decode_chunk(const struct snappy_chunk *chunk, uint8_t *out)
{
    if (chunk->type >= CHUNK_SKIPPED_FROM)
        return true;
    if (chunk->type == CHUNK_PLAIN)
        br_put_bytes(out, chunk->data, chunk->size);
    else if (!snappy_decode_block(chunk->data, chunk->len, out, chunk->size))
        return false;
    return snappy_masked_sum(out, chunk->size) == chunk->sum;
}

int br_snappy_decode(const uint8_t *data, size_t len, uint8_t *out, size_t size)
{
    struct snappy_chunk chunk;
    size_t made = 0;
    if (!snappy_is_framed(data, len))
        return snappy_decode_block(data, len, out, size) ? 0 : BR_EINVAL;
    for (const uint8_t *at = data, *end = data + len; at < end; made += chunk.size) {
        at = snappy_next(at, end, &chunk);
        if (!at || chunk.size > size - made || !snappy_decode_chunk(&chunk, out + made))
            return BR_EINVAL;
    }
    return made == size ? 0 : BR_EINVAL;
}
