/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes and decodes the blobs of a partition: varints and raw bytes, compressed with zstd if that
 * makes them shorter. A failure stays recorded in the struct, so callers check it once at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_PACK_MAX (256u << 20) /* maximum number of bytes in one pack */

struct br_pack {
    uint8_t *data;
    size_t len, cap;
    bool failed; /* true: a value did not fit within BR_PACK_MAX, or memory ran out */
};

/* Frees the memory of a pack, which can be used again. Accepts a zeroed pack. */
void br_pack_release(struct br_pack *pack);

/* Empties a pack but keeps its memory, and resets `failed`. */
void br_pack_clear(struct br_pack *pack);

/* br_pack_bytes appends `len` bytes to a pack, and br_pack_varint appends a number as a varint.
 * Both functions set `failed` if the pack is full or memory runs out. */
void br_pack_bytes(struct br_pack *pack, const void *data, size_t len);
void br_pack_varint(struct br_pack *pack, uint64_t value);
/* Appends a signed number in zigzag encoding. Sets `failed` if the pack is full or memory runs
 * out. */
void br_pack_signed(struct br_pack *pack, int64_t value);

/* A cursor over packed bytes. A read from truncated or malformed input sets `failed` and returns
 * 0. */
struct br_unpack {
    const uint8_t *p, *end;
    bool failed;
};

/* br_unpack_varint reads a varint. br_unpack_signed reads a number that br_pack_signed wrote. Both
 * functions return 0 after a failure. */
uint64_t br_unpack_varint(struct br_unpack *unpack);
int64_t br_unpack_signed(struct br_unpack *unpack);

/* Returns a pointer to the next `len` bytes of the input, or NULL if fewer are left. */
const uint8_t *br_unpack_bytes(struct br_unpack *unpack, size_t len);

/* zstd contexts of one thread, each created at its first use. A zeroed struct is valid. */
struct br_pack_codec {
    void *compressor, *decompressor;
};
void br_pack_codec_release(struct br_pack_codec *codec);

/* Appends the compressed bytes of `from`, preceded by their length, to `into`. Returns false if
 * memory runs out or `into` is full. */
bool br_pack_compress(struct br_pack_codec *codec, int level, const struct br_pack *from,
                      struct br_pack *into);

/* Replaces the contents of `into` by the decompressed bytes. Returns 0, BR_ENOMEM, or BR_EIO if
 * the input is not an output of br_pack_compress. */
int br_pack_decompress(struct br_pack_codec *codec, const void *data, size_t len,
                       struct br_pack *into);
