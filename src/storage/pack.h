/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs and reads the bytes of a partition's blobs: varints and raw bytes,
 * compressed as a whole with zstd where that makes them shorter. Failure is sticky: it is asked for
 * once, at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BR_PACK_MAX (256u << 20) /* bytes of one */

struct br_pack {
    uint8_t *data;
    size_t len, cap;
    bool failed; /* it passed BR_PACK_MAX, or there was no memory */
};

/* Frees what it holds; usable again. Accepts a zeroed one. */
void br_pack_release(struct br_pack *pack);

/* Empties it, keeping the memory, and forgets `failed`. */
void br_pack_clear(struct br_pack *pack);

void br_pack_bytes(struct br_pack *pack, const void *data, size_t len);
void br_pack_varint(struct br_pack *pack, uint64_t value);
void br_pack_signed(struct br_pack *pack, int64_t value); /* zigzag */

/* A cursor over bytes that were packed; what is cut off or malformed sets `failed` and reads as
 * zeros. */
struct br_unpack {
    const uint8_t *p, *end;
    bool failed;
};

uint64_t br_unpack_varint(struct br_unpack *unpack);
int64_t br_unpack_signed(struct br_unpack *unpack);

/* Returns the next `len` bytes, or NULL. */
const uint8_t *br_unpack_bytes(struct br_unpack *unpack, size_t len);

/* zstd's state of one thread. Zeroed at first. */
struct br_squeezer {
    void *press, *release;
};
void br_squeezer_release(struct br_squeezer *squeezer);

/* Appends the compressed bytes of `from`, with their length before. False when there is no memory
 * or `into` is full. */
bool br_squeeze(struct br_squeezer *squeezer, int level, const struct br_pack *from,
                struct br_pack *into);

/* Replaces what is in `into`. Returns 0, BR_EIO when the bytes are not what br_squeeze made, or
 * BR_ENOMEM. */
int br_unsqueeze(struct br_squeezer *squeezer, const void *data, size_t len, struct br_pack *into);
