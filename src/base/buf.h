/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference-counted buffers of bytes, slices and ropes of them, and the pool that recycles them.
 *
 * A buffer is a block of bytes with a reference count. Whoever fills it is its only holder; once it
 * is shared it is never written again. A slice is a range of a buffer; a rope is a list of slices
 * that together are one payload. Counts are not atomic: buffers belong to the worker whose pool
 * made them, and never cross to another thread.
 *
 * The pool recycles buffers by size class. A buffer says what it is held for, so that the memory of
 * payloads can be told apart as they move on; what was sent by peers is taken from the pool's
 * budget.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/memory.h"

#define BR_BUF_MAX (256u << 20) /* the largest buffer a pool gives out */
#define BR_BUF_SLACK 16         /* bytes after `cap` that may be read (and mean nothing) */

struct br_pool;

struct br_buf {
    struct br_pool *pool;
    uint32_t refs;
    uint32_t len; /* bytes filled */
    uint32_t cap; /* bytes there are */
    uint16_t size_class;
    uint8_t holder; /* enum br_holder */
    bool foreign;   /* allocated in another thread */
    uint8_t data[];
};

/* Makes a pool, which keeps at most `max_idle` bytes of unused buffers for reuse. NULL when there
 * is no memory. Free it after the last of its buffers. */
struct br_pool *br_pool_new(size_t max_idle);

/* Gives it the budget that br_pool_fits asks, which outlives the pool; NULL (at first): none. */
void br_pool_set_memory(struct br_pool *pool, struct br_memory *memory);

/* Returns true when the budget has room for `more` bytes of what a peer sends; gives the pool's
 * unused buffers back to the system where that makes room. */
bool br_pool_fits(struct br_pool *pool, size_t more);

/* Returns true when the process holds more than the budget's hard mark, also without the pool's
 * unused buffers, which it then gives back. */
bool br_pool_is_over(struct br_pool *pool);
void br_pool_free(struct br_pool *pool);

/* Returns the bytes (capacities) in buffers that somebody holds; for tests. */
size_t br_pool_live(const struct br_pool *pool);

/* Returns the bytes in unused buffers; for tests. */
size_t br_pool_idle(const struct br_pool *pool);

/* Returns true when the pool has an unused buffer of the size that `cap` bytes get: br_buf_new
 * takes it. */
bool br_pool_has(const struct br_pool *pool, size_t cap);

/* Returns the bytes in all buffers that were ever taken, together. */
uint64_t br_pool_taken(const struct br_pool *pool);

/* Makes a buffer of more than 1 MiB that nobody holds any more go back to the system in slices,
 * for as long as somebody calls br_pool_release_some: what a worker frees must not hold it up.
 * Until it has gone it counts as an unused buffer (BR_HOLDER_POOL), which makes room when room is
 * asked for. */
void br_pool_linger(struct br_pool *pool);

/* Frees the next 512 KiB of it, or a 256th of all that leaves. Returns true when there is more. */
bool br_pool_release_some(struct br_pool *pool);

/* Gives all unused buffers and blocks back to the system. */
void br_pool_trim(struct br_pool *pool);

/* Calls `fn` in place of freeing with each buffer of the pool whose last reference has gone: it
 * counts as the pool's no more, and its memory goes to `heir` when `fn` returns. `fn` looks at
 * nothing but its address. */
void br_pool_watch(struct br_pool *pool, struct br_pool *heir,
                   void (*fn)(const struct br_buf *buf, void *arg), void *arg);

/* Returns memory for what is made and freed with each request, aligned as malloc's. What is freed
 * is kept for the next block of its size, 256 KiB together, where the pool keeps anything; it
 * counts for `holder`, the same in all calls for it. Both return NULL when there is no memory; of
 * a block that cannot be made larger nothing changes. br_block_new of size 0 returns a block. */
void *br_block_new(struct br_pool *pool, enum br_holder holder, size_t size);
void *br_block_resize(struct br_pool *pool, enum br_holder holder, void *block, size_t size);
void br_block_free(struct br_pool *pool, enum br_holder holder, void *block); /* accepts NULL */

/* Returns a buffer with room for at least `cap` bytes, len 0, one reference that the caller owns.
 * NULL when there is no memory or cap > BR_BUF_MAX. */
struct br_buf *br_buf_new(struct br_pool *pool, size_t cap);

/* Returns a buffer as br_buf_new does; a large one (BR_MEM_MAPPED) has room for `cap` bytes and no
 * more, and is not kept when it is freed. For what is known to the byte and lives once. */
struct br_buf *br_buf_new_exact(struct br_pool *pool, size_t cap);

/* Returns the room that a buffer made for `cap` bytes has: up to a fourth more. */
size_t br_buf_room(size_t cap);

/* Moves `buf`, which belongs to another pool, and what it counts for, to `pool`. */
void br_buf_adopt(struct br_buf *buf, struct br_pool *pool);

/* Says what `buf` is held for from now on; BR_HOLDER_REQUESTS at first. */
void br_buf_hold(struct br_buf *buf, enum br_holder holder);

/* Adds a reference; returns `buf`. */
struct br_buf *br_buf_ref(struct br_buf *buf);

/* Gives a reference back; `buf` may be NULL. Returns NULL. */
struct br_buf *br_buf_unref(struct br_buf *buf);

/* Gives up a reference as br_buf_unref does, by the last holder: the memory goes back to the
 * system instead of to the pool. */
struct br_buf *br_buf_discard(struct br_buf *buf);

/* Makes room for `cap` bytes, moving the content when needed; large buffers grow without a second
 * one beside them. Only for the single holder of a buffer that is still being filled. Returns 0 or
 * BR_ENOMEM; on failure `*buf` is as it was. */
int br_buf_reserve(struct br_buf **buf, size_t cap);

/* Gives back what `buf` has beyond its content, where that is much. Only for its single holder. */
void br_buf_shrink(struct br_buf **buf);

/* Appends, growing by br_buf_reserve up to `max` bytes. Returns 0, BR_EFULL or BR_ENOMEM; on
 * failure nothing was appended. */
int br_buf_append(struct br_buf **buf, const void *data, size_t len, size_t max);

struct br_slice {
    struct br_buf *buf; /* what keeps the bytes alive; NULL: they are constants */
    const uint8_t *data;
    size_t len;
};

struct br_rope {
    struct br_slice *slices; /* each with a reference of its own */
    uint32_t count, cap;
    size_t len; /* sum of the lengths */
};

/* Appends a slice and takes a reference of its own on `buf` (NULL: constant bytes that outlive the
 * rope). Joins it to the last slice where they are neighbours. Returns 0 or BR_ENOMEM. */
int br_rope_add(struct br_rope *rope, struct br_buf *buf, const void *data, size_t len);

/* Appends all slices of `from`, which keeps its own. Returns 0 or BR_ENOMEM; on failure a part of
 * them may have been appended. */
int br_rope_cat(struct br_rope *rope, const struct br_rope *from);

/* Drops the first `len` bytes (at most all), keeping the memory for slices. */
void br_rope_drop(struct br_rope *rope, size_t len);

/* Drops every slice; the rope is empty and usable. Accepts a zeroed rope. */
void br_rope_release(struct br_rope *rope);

/* Returns all bytes in one buffer, which the caller owns: the rope's own where it is a single
 * whole one, else a copy. `*ret_data` points at the first byte. NULL when there is no memory. */
struct br_buf *br_rope_flat(const struct br_rope *rope, struct br_pool *pool,
                            const uint8_t **ret_data);

/* Returns all bytes in one place: where they are when the rope is a single slice (`*ret_copy`
 * NULL), else in a copy, which the caller owns. No reference is touched, so that another thread
 * may call it with a pool of its own while the rope's worker keeps the rope as it is. NULL when
 * there is no memory. */
const uint8_t *br_rope_bytes(const struct br_rope *rope, struct br_pool *pool,
                             struct br_buf **ret_copy);
