/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena allocates memory that is freed as a whole. Each item (a request in the pipeline) has an
 * arena, and protobuf-c unpacks messages into arenas. The maximum given to br_arena_init limits how
 * much memory a hostile message can unpack to.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct br_arena_block;
struct br_pool;

struct br_arena {
    struct br_arena_block *blocks; /* list of the arena's blocks, newest first */
    size_t used;                   /* bytes allocated so far */
    /* largest number of bytes that the arena may allocate; 0: 16 MiB */
    size_t max;
    /* the last failed allocation failed because of `max`, not because memory ran out */
    bool full;
    /* memory category of the arena's blocks; set before the first allocation */
    enum br_holder holder;
    /* pool from which large blocks are allocated, as buffers; NULL: all blocks are allocated with
     * br_malloc */
    struct br_pool *pool;
    ProtobufCAllocator pb; /* the allocator that br_arena_pb returns */
};

/* Prepares `arena` without allocating. A `max_bytes` of 0 means 16 MiB. A zeroed arena is valid,
 * too. */
void br_arena_init(struct br_arena *arena, size_t max_bytes);

/* Frees all memory of the arena; the arena can be used again. Accepts a zeroed arena. */
void br_arena_release(struct br_arena *arena);

/* Returns `size` uninitialised bytes aligned for any type. Returns NULL if memory runs out or
 * the maximum is reached. The memory is valid until br_arena_release. */
void *br_arena_alloc(struct br_arena *arena, size_t size);

/* Returns zeroed memory for `count` elements of `size` bytes. Returns NULL if the product
 * overflows, memory runs out or the maximum is reached. */
void *br_arena_calloc(struct br_arena *arena, size_t count, size_t size);

/* Returns why the last allocation failed: BR_EFULL if the maximum was reached, so that a retry
 * would fail again, otherwise BR_ENOMEM. */
int br_arena_why(const struct br_arena *arena);
/* clang's static analyzer must know that the function does not return 0. */
#ifdef __clang_analyzer__
#define br_arena_why(arena) (br_arena_why(arena), BR_ENOMEM)
#endif

/* Returns true if `memory` points into the arena. Takes time in proportion to the number of
 * blocks. */
bool br_arena_has(const struct br_arena *arena, const void *memory);

/* Returns a NUL-terminated copy of `len` bytes, or NULL if memory runs out or the maximum is
 * reached. */
char *br_arena_strndup(struct br_arena *arena, const char *text, size_t len);

/* Returns a text formatted as by printf, or NULL if memory runs out or the maximum is reached. */
char *br_arena_printf(struct br_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns an allocator for protobuf-c that allocates from the arena. Unpacking fails cleanly at
 * the arena's maximum, and protobuf_c_message_free_unpacked need not be called. The allocator is
 * valid until `arena` is released or moved. */
ProtobufCAllocator *br_arena_pb(struct br_arena *arena);
