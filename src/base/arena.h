/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An arena allocates memory that is freed as a whole. Each item has one; protobuf-c unpacks into
 * one. Its maximum is given when it is made: this bounds what a hostile message may unpack to.
 */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

struct br_arena_block;
struct br_pool;

struct br_arena {
    struct br_arena_block *blocks; /* newest first */
    size_t used;                   /* bytes taken from the system so far */
    size_t max;                    /* and the most it may take; 0: 16 MiB */
    bool full;             /* something was refused for the maximum, not for want of memory */
    enum br_holder holder; /* whom its blocks are counted for; set before the first is taken */
    struct br_pool *pool;  /* large blocks are buffers of it, which it keeps; NULL: of the system */
    ProtobufCAllocator pb; /* br_arena_pb's result points here */
};

/* Prepares `arena`; allocates nothing. `max_bytes` 0 means 16 MiB. A zeroed arena is a valid one
 * too. */
void br_arena_init(struct br_arena *arena, size_t max_bytes);

/* Frees everything; the arena can be used again. Accepts a zeroed arena. */
void br_arena_release(struct br_arena *arena);

/* Returns `size` bytes aligned for any type, uninitialised; NULL when there is no memory or the
 * maximum is reached. The memory lives until br_arena_release. */
void *br_arena_alloc(struct br_arena *arena, size_t size);

/* Returns zeroed memory for `count` elements, as br_arena_alloc does; NULL on overflow too. */
void *br_arena_calloc(struct br_arena *arena, size_t count, size_t size);

/* Returns why the last allocation failed: BR_EFULL for the maximum, which trying again cannot
 * help, or BR_ENOMEM. */
int br_arena_why(const struct br_arena *arena);

/* Returns whether `memory` points into memory of the arena. Takes a step for each of its blocks. */
bool br_arena_has(const struct br_arena *arena, const void *memory);

/* Returns a terminated copy of `len` bytes; NULL as br_arena_alloc. */
char *br_arena_strndup(struct br_arena *arena, const char *text, size_t len);

/* Formats a text as printf does, into the arena. Returns NULL as br_arena_alloc does. */
char *br_arena_printf(struct br_arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The arena as protobuf-c's allocator: unpacking fails cleanly at the arena's maximum and
 * protobuf_c_message_free_unpacked need not be called. Lives as long as `arena` stays where it is.
 */
ProtobufCAllocator *br_arena_pb(struct br_arena *arena);
