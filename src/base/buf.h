/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reference-counted buffers of bytes, slices and ropes of them, and the pool that recycles them.
 *
 * A buffer is a block of bytes with a reference count. A buffer is filled while it has a single
 * reference and never written once it is shared. A slice is a range of a buffer. A rope is a list
 * of slices that together are one payload. Reference counts are not atomic: a buffer belongs to the
 * worker whose pool made it and is not used in another thread.
 *
 * The pool recycles buffers by size class. Each buffer has a memory category, which changes as a
 * payload moves through the pipeline. Memory for bytes that clients send is limited by the pool's
 * budget.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/memory.h"

#define BR_BUF_MAX (256u << 20) /* largest capacity of a buffer in bytes */
#define BR_BUF_SLACK 16         /* bytes after `cap` that may be read; their values are undefined */

struct br_pool;

struct br_buf {
    struct br_pool *pool;
    uint32_t refs;
    uint32_t len; /* number of bytes that are filled */
    uint32_t cap; /* number of bytes that can be filled */
    uint16_t size_class;
    uint8_t holder; /* memory category of the buffer, of enum br_holder */
    bool foreign;   /* the buffer's memory was allocated in another thread */
    uint8_t data[];
};

/* Returns a new pool, or NULL if memory runs out. The pool keeps at most `max_idle` bytes of
 * unused buffers for reuse. The pool must be freed after the last of its buffers. */
struct br_pool *br_pool_new(size_t max_idle);

/* Sets the budget that br_pool_fits checks. The budget must outlive the pool. NULL, the initial
 * value, means no limit. */
void br_pool_set_memory(struct br_pool *pool, struct br_memory *memory);

/* Returns true if the budget has room for `more` bytes from a client. Returns the pool's unused
 * buffers to the system if that is necessary to make room. */
bool br_pool_fits(struct br_pool *pool, size_t more);

/* Returns true if the process holds more than the budget's hard limit even after the pool has
 * returned its unused buffers to the system. */
bool br_pool_is_over(struct br_pool *pool);
void br_pool_free(struct br_pool *pool);

/* Returns the total capacity, in bytes, of the buffers that are in use. For tests. */
size_t br_pool_live(const struct br_pool *pool);

/* Returns the total capacity, in bytes, of the unused buffers. For tests. */
size_t br_pool_idle(const struct br_pool *pool);

/* Returns true if br_buf_new would reuse a buffer for `cap` bytes instead of allocating one. */
bool br_pool_has(const struct br_pool *pool, size_t cap);

/* Returns the total capacity, in bytes, of all buffers that were ever requested from the pool. */
uint64_t br_pool_taken(const struct br_pool *pool);

/* Makes the pool free buffers of more than 1 MiB gradually, in calls of br_pool_release_some.
 * Freeing such a buffer in one step would block the worker. Until they are freed, these buffers
 * count as unused buffers (BR_HOLDER_POOL) and are freed early if memory is needed. */
void br_pool_linger(struct br_pool *pool);

/* Frees the next bytes of the buffers whose release br_pool_linger delays: 512 KiB, or 1/256 of the
 * bytes of these buffers if that is more. Returns true if some of these buffers remain. */
bool br_pool_release_some(struct br_pool *pool);

/* Returns all unused buffers and blocks to the system. */
void br_pool_trim(struct br_pool *pool);

/* When a buffer of the pool loses its last reference, the pool does not free the buffer but calls
 * `fn`. The buffer then belongs to the pool `heir`, which frees it when `fn` returns. `fn` may use
 * only the buffer's address. */
void br_pool_watch(struct br_pool *pool, struct br_pool *heir,
                   void (*fn)(const struct br_buf *buf, void *arg), void *arg);

/* br_block_new and br_block_resize return a block of memory for objects that are allocated and
 * freed with each request, aligned as by malloc. Freed blocks, up to 256 KiB in total, are
 * reused for blocks of the same size if the pool keeps unused buffers. Pass the same memory
 * category `holder` in all calls for a block. Both functions return NULL if memory runs out;
 * br_block_resize then leaves the block unchanged. br_block_new of size 0 returns a block. */
void *br_block_new(struct br_pool *pool, enum br_holder holder, size_t size);
void *br_block_resize(struct br_pool *pool, enum br_holder holder, void *block, size_t size);
/* Frees a block that br_block_new returned. Accepts NULL. */
void br_block_free(struct br_pool *pool, enum br_holder holder, void *block);

/* Returns an empty buffer with room for at least `cap` bytes and one reference, which the caller
 * owns. Returns NULL if memory runs out or `cap` is greater than BR_BUF_MAX. */
struct br_buf *br_buf_new(struct br_pool *pool, size_t cap);

/* Returns a buffer as br_buf_new does. A large buffer (BR_MEM_MAPPED) has room for exactly `cap`
 * bytes and is not reused. Use this function when the size is known in advance. */
struct br_buf *br_buf_new_exact(struct br_pool *pool, size_t cap);

/* Returns the capacity of a buffer made for `cap` bytes. The capacity is up to a quarter larger
 * than `cap`. */
size_t br_buf_room(size_t cap);

/* Moves `buf` from its pool to `pool`. From then on, the buffer counts as memory of `pool`. */
void br_buf_adopt(struct br_buf *buf, struct br_pool *pool);

/* Changes the memory category of `buf`, which is BR_HOLDER_REQUESTS at first. */
void br_buf_hold(struct br_buf *buf, enum br_holder holder);

/* Adds a reference; returns `buf`. */
struct br_buf *br_buf_ref(struct br_buf *buf);

/* Drops a reference; `buf` may be NULL. Returns NULL. */
struct br_buf *br_buf_unref(struct br_buf *buf);

/* Drops the last reference of `buf` and returns its memory to the system instead of to the pool.
 * `buf` may be NULL. Returns NULL. */
struct br_buf *br_buf_discard(struct br_buf *buf);

/* Grows `*buf` to a capacity of at least `cap` bytes, moving the content if necessary. Large
 * buffers grow without a second copy in memory. The buffer must have a single reference. Returns
 * 0 or BR_ENOMEM; on failure `*buf` is unchanged. */
int br_buf_reserve(struct br_buf **buf, size_t cap);

/* Empties `*buf`, and grows it to a capacity of at least `cap` bytes. Creates the buffer if `*buf`
 * is NULL. The buffer must have a single reference. Returns 0 or BR_ENOMEM. */
int br_buf_prepare(struct br_buf **buf, struct br_pool *pool, size_t cap);

/* Reduces the capacity of `buf` to the length of its content if this at least halves the
 * capacity. `buf` must have a single reference. */
void br_buf_shrink(struct br_buf **buf);

/* Appends `len` bytes, growing the buffer to at most `max` bytes. Returns 0, BR_EFULL or
 * BR_ENOMEM; on failure nothing is appended. */
int br_buf_append(struct br_buf **buf, const void *data, size_t len, size_t max);

struct br_slice {
    /* buffer that contains the bytes and keeps them alive; NULL: the bytes are constants */
    struct br_buf *buf;
    const uint8_t *data;
    size_t len;
};

struct br_rope {
    struct br_slice *slices; /* array of slices, each with a reference to its buffer */
    uint32_t count, cap;
    size_t len; /* sum of the slices' lengths in bytes */
};

/* Appends a slice and takes a reference to `buf` (NULL: constant bytes that outlive the rope).
 * If the bytes follow those of the last slice, extends that slice instead. Returns 0 or
 * BR_ENOMEM. */
int br_rope_add(struct br_rope *rope, struct br_buf *buf, const void *data, size_t len);

/* Appends all slices of `from`, which keeps its references. Returns 0 or BR_ENOMEM; on failure
 * some of the slices may have been appended. */
int br_rope_cat(struct br_rope *rope, const struct br_rope *from);

/* Drops the first `len` bytes, or all bytes if there are fewer. Keeps the memory of the array of
 * slices. */
void br_rope_drop(struct br_rope *rope, size_t len);

/* Drops every slice. The rope is then empty and can be used again. Accepts a zeroed rope. */
void br_rope_release(struct br_rope *rope);

/* Returns all bytes in one buffer, to which the caller owns a reference. The buffer is the
 * rope's buffer if the rope is a single slice, otherwise a copy. `*ret_data` points at the first
 * byte. Returns NULL if memory runs out. */
struct br_buf *br_rope_flat(const struct br_rope *rope, struct br_pool *pool,
                            const uint8_t **ret_data);

/* Returns all bytes of the rope in contiguous memory. If the rope has one slice, the result points
 * to the bytes of that slice, and `*ret_copy` is NULL. Otherwise the result is a copy in the buffer
 * `*ret_copy`, which the caller owns. No reference count is changed, so another thread may call
 * this function with its own pool, as long as the rope's worker leaves the rope unchanged. Returns
 * NULL if memory runs out. */
const uint8_t *br_rope_bytes(const struct br_rope *rope, struct br_pool *pool,
                             struct br_buf **ret_copy);
