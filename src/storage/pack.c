/* SPDX-License-Identifier: Apache-2.0 */
#define ZSTD_STATIC_LINKING_ONLY /* declares ZSTD_customMem */
#include "storage/pack.h"

#include <zstd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/steps.h"
#include "wire/protobuf.h"

#define PACK_FIRST 4096u

/* --- Writing --------------------------------------------------------------------------------- */

void br_pack_release(struct br_pack *pack)
{
    br_free(pack->data);
    *pack = (struct br_pack){0};
}

void br_pack_clear(struct br_pack *pack)
{
    pack->len = 0;
    pack->failed = false;
}

static bool pack_grow(struct br_pack *pack, size_t more)
{
    size_t cap = pack->cap ? pack->cap : PACK_FIRST;
    if (more > BR_PACK_MAX - pack->len)
        return false;
    while (cap < pack->len + more)
        cap *= 2;
    uint8_t *data = br_realloc(pack->data, cap);
    if (!data)
        return false;
    pack->data = data;
    pack->cap = cap;
    return true;
}

/* Makes room for `count` bytes and returns a pointer to it. If the pack is full, or memory runs
 * out, sets `failed` and returns NULL. */
static uint8_t *pack_room(struct br_pack *pack, size_t count)
{
    if (__builtin_expect(pack->cap - pack->len < count, 0) &&
        (pack->failed || !pack_grow(pack, count)))
        pack->failed = true;
    return pack->failed ? NULL : pack->data + pack->len;
}

void br_pack_bytes(struct br_pack *pack, const void *data, size_t len)
{
    uint8_t *out = len ? pack_room(pack, len) : NULL;
    if (!out)
        return;
    br_steps_add(len);
    memcpy(out, data, len);
    pack->len += len;
}

void br_pack_varint(struct br_pack *pack, uint64_t value)
{
    uint8_t *out = pack_room(pack, BR_VARINT_MAX);
    if (out)
        pack->len = (size_t)(br_put_varint(out, value) - pack->data);
}

void br_pack_signed(struct br_pack *pack, int64_t value)
{
    br_pack_varint(pack, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* --- Reading --------------------------------------------------------------------------------- */

uint64_t br_unpack_varint(struct br_unpack *unpack)
{
    uint64_t value;
    const uint8_t *p = unpack->failed ? NULL : br_varint(unpack->p, unpack->end, &value);
    if (!p) {
        unpack->failed = true;
        return 0;
    }
    unpack->p = p;
    return value;
}

int64_t br_unpack_signed(struct br_unpack *unpack)
{
    uint64_t value = br_unpack_varint(unpack);
    return (int64_t)(value >> 1 ^ (0 - (value & 1)));
}

const uint8_t *br_unpack_bytes(struct br_unpack *unpack, size_t len)
{
    const uint8_t *data = unpack->p;
    if (unpack->failed || len > (size_t)(unpack->end - data)) {
        unpack->failed = true;
        return NULL;
    }
    unpack->p += len;
    return data;
}

/* --- Compression ----------------------------------------------------------------------------- */

static void *pack_zstd_alloc(void *opaque, size_t size)
{
    (void)opaque;
    return br_malloc(size);
}

static void pack_zstd_free(void *opaque, void *memory)
{
    (void)opaque;
    br_free(memory);
}

void br_pack_codec_release(struct br_pack_codec *codec)
{
    ZSTD_freeCCtx(codec->compressor);
    ZSTD_freeDCtx(codec->decompressor);
    *codec = (struct br_pack_codec){0};
}

/* The lowest bit of the length is 1 if a zstd frame follows, and 0 if uncompressed bytes follow. */
bool br_pack_compress(struct br_pack_codec *codec, int level, const struct br_pack *from,
                      struct br_pack *into)
{
    ZSTD_customMem allocator = {pack_zstd_alloc, pack_zstd_free, NULL};
    if (!codec->compressor)
        codec->compressor = ZSTD_createCCtx_advanced(allocator);
    size_t before = into->len, bound = ZSTD_compressBound(from->len);
    if (!codec->compressor || from->failed || !pack_room(into, bound + BR_VARINT_MAX))
        return false;
    br_pack_varint(into, (uint64_t)from->len << 1 | 1);
    (void)ZSTD_CCtx_setParameter(codec->compressor, ZSTD_c_compressionLevel, level);
    (void)ZSTD_CCtx_setParameter(codec->compressor, ZSTD_c_checksumFlag, 1);
    size_t made =
        ZSTD_compress2(codec->compressor, into->data + into->len, bound, from->data, from->len);
    if (!ZSTD_isError(made) && made < from->len) {
        into->len += made;
        return true;
    }
    into->len = before;
    br_pack_varint(into, (uint64_t)from->len << 1);
    br_pack_bytes(into, from->data, from->len);
    return !into->failed;
}

/* Returns the decompressed size, or SIZE_MAX if the data is not an output of br_pack_compress. */
static size_t pack_plain_size(const void *data, size_t len)
{
    struct br_unpack unpack = {.p = data, .end = (const uint8_t *)data + len};
    uint64_t head = len ? br_unpack_varint(&unpack) : UINT64_MAX;
    return unpack.failed || head >> 1 > BR_PACK_MAX ? SIZE_MAX : (size_t)(head >> 1);
}

int br_pack_decompress(struct br_pack_codec *codec, const void *data, size_t len,
                       struct br_pack *into)
{
    ZSTD_customMem allocator = {pack_zstd_alloc, pack_zstd_free, NULL};
    struct br_unpack unpack = {.p = data, .end = (const uint8_t *)data + len};
    size_t size = pack_plain_size(data, len);
    if (size == SIZE_MAX)
        return BR_EIO;
    uint64_t head = br_unpack_varint(&unpack);
    size_t left = (size_t)(unpack.end - unpack.p);
    br_pack_clear(into);
    if (!size)
        return 0;
    if (!codec->decompressor)
        codec->decompressor = ZSTD_createDCtx_advanced(allocator);
    if (!codec->decompressor || !pack_room(into, size))
        return BR_ENOMEM;
    if (head & 1) {
        size_t made = ZSTD_decompressDCtx(codec->decompressor, into->data, size, unpack.p, left);
        if (ZSTD_isError(made) || made != size)
            return BR_EIO;
    } else if (left == size) {
        memcpy(into->data, unpack.p, size);
    } else {
        return BR_EIO;
    }
    into->len = size;
    return 0;
}
