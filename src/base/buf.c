/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"

/* Four size classes per power of two, from 256 bytes up: at most a fifth of a buffer is unused. */
#define CLASS_MIN_LOG2 8u
#define CLASSES 84u
#define CLASS_NONE CLASSES /* size class of buffers of an exact size, which are never reused */
#define ROPE_MAX (1u << 24)
/* divisor: unused buffers of all pools take at most 1/IDLE_SHARE of the memory limit */
#define IDLE_SHARE 16u
/* one call of br_pool_release_some frees at least this number of bytes */
#define RELEASE_SLICE (512u << 10)
/* one call of br_pool_release_some frees at least 1/RELEASE_TURNS of the bytes that wait to be
 * freed */
#define RELEASE_TURNS 256u
/* alignment of released memory: a multiple of the page size of every system */
#define RELEASE_ALIGN ((uintptr_t)64 << 10)
/* buffers of more than this number of bytes are freed gradually */
#define RELEASE_FROM (1u << 20)
/* A buffer whose memory was allocated in another thread, and that has at least this many bytes,
 * returns its pages to the system when it is freed. */
#define FOREIGN_FROM (8u << 10)
/* a growing buffer with more than this number of bytes is moved with mremap, not copied */
#define COPIED_MAX (2u << 20)

struct idle {
    struct idle *next;
};

#define BLOCK_STEP 32u  /* difference between successive block sizes, in bytes */
#define BLOCK_SIZES 32u /* number of block sizes that are reused */
/* largest number of bytes in the unused blocks of a pool */
#define BLOCKS_IDLE_MAX ((size_t)256 << 10)

/* Header that precedes each block. */
struct block {
    /* size of the block in bytes: a multiple of BLOCK_STEP up to BLOCK_SIZES * BLOCK_STEP, above
     * that the exact size */
    _Alignas(16) size_t size;
};

/* State of a large buffer that is being freed, slice by slice from its end. The struct
 * overwrites the beginning of the buffer. */
struct leaving {
    struct leaving *next;
    size_t size; /* capacity of the buffer in bytes */
    size_t left; /* number of bytes of the buffer whose pages have not been released yet */
};

struct br_pool {
    size_t live, idle, max_idle;
    bool lingers;
    struct leaving *leaving;
    size_t leaving_bytes;
    struct br_memory *memory;
    uint64_t taken;
    struct idle *free[CLASSES];
    size_t idle_blocks; /* total size of the unused blocks, in bytes */
    struct idle *blocks[BLOCK_SIZES];
    /* pool that receives each buffer after its last reference is dropped, set by br_pool_watch;
     * NULL: no watch */
    struct br_pool *heir;
    void (*on_last)(const struct br_buf *buf, void *arg);
    void *on_last_arg;
};

static uint32_t buf_class_of(size_t cap)
{
    if (cap <= (1u << CLASS_MIN_LOG2))
        return 0;
    unsigned log2 = 63u - (unsigned)__builtin_clzll((unsigned long long)(cap - 1));
    uint32_t quarter = (uint32_t)((cap - 1) >> (log2 - 2)) & 3u;
    return (log2 - CLASS_MIN_LOG2) * 4u + quarter + 1u;
}

static size_t buf_class_size(uint32_t size_class)
{
    if (size_class == 0)
        return 1u << CLASS_MIN_LOG2;
    unsigned log2 = CLASS_MIN_LOG2 + (size_class - 1) / 4;
    return ((size_t)1 << log2) + (((size_t)1 << (log2 - 2)) * ((size_class - 1) % 4 + 1));
}

/* Returns the bytes to allocate for a buffer of capacity `size`. */
static size_t buf_block_size(size_t size)
{
    return sizeof(struct br_buf) + size + BR_BUF_SLACK;
}

/* Allocates the memory of a buffer. A large buffer in the C library's heap would be copied when
 * it grows, which takes a millisecond per MiB. Large buffers are therefore mapped with mmap. */
static void *buf_block_new(size_t size)
{
    size_t all = buf_block_size(size);
    return size >= BR_MEM_MAPPED ? br_map(all) : br_malloc(all);
}

static void buf_block_free(void *block, size_t size)
{
    if (size >= BR_MEM_MAPPED)
        br_unmap(block, buf_block_size(size));
    else
        br_free(block);
}

struct br_pool *br_pool_new(size_t max_idle)
{
    struct br_pool *pool = br_calloc(1, sizeof *pool);
    if (pool)
        pool->max_idle = max_idle;
    return pool;
}

/* Counts the pools that keep unused buffers. These pools divide the permitted bytes among them. */
static void buf_pool_count_in(const struct br_pool *pool, int count)
{
    if (pool->memory && pool->max_idle)
        (void)atomic_fetch_add_explicit(&pool->memory->n_pools, (unsigned)count,
                                        memory_order_relaxed);
}

void br_pool_set_memory(struct br_pool *pool, struct br_memory *memory)
{
    buf_pool_count_in(pool, -1);
    pool->memory = memory;
    buf_pool_count_in(pool, 1);
}

bool br_pool_fits(struct br_pool *pool, size_t more)
{
    if (!pool->memory || br_memory_fits(pool->memory, more))
        return true;
    if (!pool->idle && !pool->leaving && !pool->idle_blocks)
        return false;
    br_pool_trim(pool);
    return br_memory_fits(pool->memory, more);
}

bool br_pool_is_over(struct br_pool *pool)
{
    if (!pool->memory || !br_memory_is_over(pool->memory))
        return false;
    br_pool_trim(pool);
    return br_memory_is_over(pool->memory);
}

void br_pool_linger(struct br_pool *pool)
{
    pool->lingers = true;
}

/* Frees the first buffer that waits to be freed, or only the last `most` of its remaining bytes.
 * Returns the number of bytes that were freed. */
static size_t buf_pool_release(struct br_pool *pool, size_t most)
{
    struct leaving *leaving = pool->leaving;
    uintptr_t begin = (uintptr_t)leaving, end = begin + leaving->left;
    size_t size = leaving->left;
    if (size > RELEASE_ALIGN && most < size - RELEASE_ALIGN) {
        uintptr_t slice = (end - most) & ~(RELEASE_ALIGN - 1);
        (void)madvise((void *)slice, (end - slice) & ~(RELEASE_ALIGN - 1), MADV_DONTNEED);
        pool->leaving_bytes -= end - slice;
        leaving->left = slice - begin;
        return end - slice;
    }
    pool->leaving = leaving->next;
    pool->leaving_bytes -= size;
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)leaving->size);
    buf_block_free(leaving, leaving->size);
    return size;
}

bool br_pool_release_some(struct br_pool *pool)
{
    size_t share = pool->leaving_bytes / RELEASE_TURNS;
    if (share < RELEASE_SLICE)
        share = RELEASE_SLICE;
    for (size_t done = 0; pool->leaving && done < share;)
        done += buf_pool_release(pool, share - done);
    return pool->leaving;
}

static void buf_pool_trim_blocks(struct br_pool *pool)
{
    for (unsigned place = 0; place < BLOCK_SIZES; place++) {
        while (pool->blocks[place]) {
            struct idle *i = pool->blocks[place];
            pool->blocks[place] = i->next;
            br_free(i);
        }
    }
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)pool->idle_blocks);
    pool->idle_blocks = 0;
}

void br_pool_trim(struct br_pool *pool)
{
    while (pool->leaving)
        (void)buf_pool_release(pool, SIZE_MAX);
    for (uint32_t c = 0; c < CLASSES; c++) {
        while (pool->free[c]) {
            struct idle *i = pool->free[c];
            pool->free[c] = i->next;
            buf_block_free(i, buf_class_size(c));
        }
    }
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)pool->idle);
    pool->idle = 0;
    buf_pool_trim_blocks(pool);
}

void br_pool_free(struct br_pool *pool)
{
    if (!pool)
        return;
    assert(pool->live == 0);
    br_pool_trim(pool);
    buf_pool_count_in(pool, -1);
    br_free(pool);
}

void br_pool_watch(struct br_pool *pool, struct br_pool *heir,
                   void (*fn)(const struct br_buf *buf, void *arg), void *arg)
{
    pool->heir = heir;
    pool->on_last = fn;
    pool->on_last_arg = arg;
}

size_t br_pool_live(const struct br_pool *pool)
{
    return pool->live;
}

/* Adds `size` bytes, which may be negative, to the count of bytes in use by the pool's buffers. */
static void buf_pool_count(struct br_pool *pool, uint8_t holder, int64_t size)
{
    pool->live += (size_t)size;
    br_mem_hold((enum br_holder)holder, size);
}

static struct br_buf *buf_pool_take(struct br_pool *pool, uint32_t size_class, size_t size)
{
    if (!br_mem_scope_take(size))
        return NULL;
    struct idle *i = pool->free[size_class];
    pool->free[size_class] = i->next;
    pool->idle -= size;
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)size);
    return (struct br_buf *)(void *)i;
}

/* Returns the largest number of bytes of unused buffers that the pool may keep: its share of the
 * bytes that all pools together may keep. */
static size_t buf_pool_idle_max(const struct br_pool *pool)
{
    if (!pool->memory || !pool->max_idle)
        return pool->max_idle;
    unsigned n = atomic_load_explicit(&pool->memory->n_pools, memory_order_relaxed);
    size_t share = br_memory_hard(pool->memory) / IDLE_SHARE / (n ? n : 1);
    return share < pool->max_idle ? share : pool->max_idle;
}

static size_t buf_blocks_idle_max(const struct br_pool *pool)
{
    size_t max = buf_pool_idle_max(pool);
    return max < BLOCKS_IDLE_MAX ? max : BLOCKS_IDLE_MAX;
}

static bool buf_pool_keep(struct br_pool *pool, struct br_buf *buf)
{
    size_t size = buf->cap, max = buf_pool_idle_max(pool);
    if (buf->size_class == CLASS_NONE || pool->idle > max || size > max - pool->idle)
        return false;
    uint32_t c = buf->size_class;
    struct idle *i = (struct idle *)(void *)buf;
    i->next = pool->free[c];
    pool->free[c] = i;
    pool->idle += size;
    br_mem_hold(BR_HOLDER_POOL, (int64_t)size);
    br_mem_scope_give(size);
    return true;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* Returns the index in pool->blocks of the unused blocks of this size. */
static unsigned buf_block_place(size_t size)
{
    return (unsigned)((size - 1) / BLOCK_STEP);
}

static void *buf_block_take(struct br_pool *pool, enum br_holder holder, size_t size)
{
    struct idle *i = pool->blocks[buf_block_place(size)];
    if (!i || !br_mem_scope_take(sizeof(struct block) + size))
        return NULL;
    pool->blocks[buf_block_place(size)] = i->next;
    pool->idle_blocks -= sizeof(struct block) + size;
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)(sizeof(struct block) + size));
    br_mem_hold(holder, (int64_t)(sizeof(struct block) + size));
    struct block *block = (struct block *)(void *)i;
    block->size = size;
    return block + 1;
}

void *br_block_new(struct br_pool *pool, enum br_holder holder, size_t size)
{
    void *kept = NULL;
    if (size <= BLOCK_SIZES * BLOCK_STEP) {
        size = size ? (size + BLOCK_STEP - 1) & ~(size_t)(BLOCK_STEP - 1) : BLOCK_STEP;
        kept = buf_block_take(pool, holder, size);
    }
    if (kept)
        return kept;
    struct block *block = size <= SIZE_MAX - sizeof *block ? br_malloc(sizeof *block + size) : NULL;
    if (!block)
        return NULL;
    br_mem_hold(holder, (int64_t)(sizeof *block + size));
    block->size = size;
    return block + 1;
}

void *br_block_resize(struct br_pool *pool, enum br_holder holder, void *block, size_t size)
{
    size_t before = block ? ((struct block *)block - 1)->size : 0;
    if (block && size <= before)
        return block;
    void *moved = br_block_new(pool, holder, size);
    if (!moved || !block)
        return moved;
    memcpy(moved, block, before);
    br_block_free(pool, holder, block);
    return moved;
}

void br_block_free(struct br_pool *pool, enum br_holder holder, void *block)
{
    if (!block)
        return;
    struct block *head = (struct block *)block - 1;
    size_t size = head->size, all = sizeof *head + size;
    br_mem_hold(holder, -(int64_t)all);
    if (size > BLOCK_SIZES * BLOCK_STEP || !pool->max_idle ||
        pool->idle_blocks + all > buf_blocks_idle_max(pool)) {
        br_free(head);
        return;
    }
    struct idle *i = (struct idle *)(void *)head;
    i->next = pool->blocks[buf_block_place(size)];
    pool->blocks[buf_block_place(size)] = i;
    pool->idle_blocks += all;
    br_mem_hold(BR_HOLDER_POOL, (int64_t)all);
    br_mem_scope_give(all);
}

/* --- Buffers ---------------------------------------------------------------------------------- */

size_t br_pool_idle(const struct br_pool *pool)
{
    return pool->idle;
}

bool br_pool_has(const struct br_pool *pool, size_t cap)
{
    return cap <= BR_BUF_MAX && pool->free[buf_class_of(cap)];
}

uint64_t br_pool_taken(const struct br_pool *pool)
{
    return pool->taken;
}

size_t br_buf_room(size_t cap)
{
    return buf_class_size(buf_class_of(cap));
}

/* Initialises a buffer of capacity `size` in the memory at `buf`, which may be NULL. */
static struct br_buf *buf_begin(struct br_buf *buf, struct br_pool *pool, uint32_t size_class,
                                size_t size)
{
    if (!buf)
        return NULL;
    *buf = (struct br_buf){.pool = pool,
                           .refs = 1,
                           .cap = (uint32_t)size,
                           .size_class = (uint16_t)size_class,
                           .holder = BR_HOLDER_REQUESTS};
    buf_pool_count(pool, buf->holder, (int64_t)size);
    pool->taken += size;
    return buf;
}

struct br_buf *br_buf_new(struct br_pool *pool, size_t cap)
{
    if (cap > BR_BUF_MAX)
        return NULL;
    uint32_t c = buf_class_of(cap);
    size_t size = buf_class_size(c);
    return buf_begin(pool->free[c] ? buf_pool_take(pool, c, size) : buf_block_new(size), pool, c,
                     size);
}

struct br_buf *br_buf_new_exact(struct br_pool *pool, size_t cap)
{
    if (cap < BR_MEM_MAPPED || cap > BR_BUF_MAX)
        return br_buf_new(pool, cap);
    return buf_begin(buf_block_new(cap), pool, CLASS_NONE, cap);
}

void br_buf_adopt(struct br_buf *buf, struct br_pool *pool)
{
    buf->pool->live -= buf->cap;
    buf->pool = pool;
    buf->foreign = true;
    pool->live += buf->cap;
}

void br_buf_hold(struct br_buf *buf, enum br_holder holder)
{
    if (buf->holder == holder)
        return;
    br_mem_hold((enum br_holder)buf->holder, -(int64_t)buf->cap);
    br_mem_hold(holder, buf->cap);
    buf->holder = (uint8_t)holder;
}

struct br_buf *br_buf_ref(struct br_buf *buf)
{
    buf->refs++;
    return buf;
}

/* Returns the buffer's pages to the system. glibc keeps the pages of a thread's heap until all
 * of the heap is free. glibc would then return 64 MiB in one call, which takes ten milliseconds. */
static void buf_release_pages(const struct br_buf *buf)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)buf->data,
              begin = (at + page - 1) & ~(page - 1), end = (at + buf->cap) & ~(page - 1);
    if (end > begin)
        (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* Frees a buffer, gradually if it is large: the system needs a millisecond to free two to twelve
 * megabytes. */
static void buf_free(struct br_buf *buf)
{
    struct br_pool *pool = buf->pool;
    size_t size = buf->cap;
    if (!pool->lingers || size <= RELEASE_FROM) {
        if (buf->foreign && size >= FOREIGN_FROM && size < BR_MEM_MAPPED)
            buf_release_pages(buf);
        buf_block_free(buf, size);
        return;
    }
    struct leaving *leaving = (struct leaving *)(void *)buf;
    *leaving = (struct leaving){.next = pool->leaving, .size = size, .left = buf_block_size(size)};
    pool->leaving = leaving;
    pool->leaving_bytes += leaving->left;
    br_mem_hold(BR_HOLDER_POOL, (int64_t)size);
}

static void buf_end(struct br_buf *buf)
{
    struct br_pool *pool = buf->pool;
    buf_pool_count(pool, buf->holder, -(int64_t)buf->cap);
    if (!pool->heir)
        return;
    pool->on_last(buf, pool->on_last_arg);
    buf->pool = pool->heir;
}

struct br_buf *br_buf_unref(struct br_buf *buf)
{
    if (!buf || --buf->refs > 0)
        return NULL;
    buf_end(buf);
    if (!buf_pool_keep(buf->pool, buf))
        buf_free(buf);
    return NULL;
}

struct br_buf *br_buf_discard(struct br_buf *buf)
{
    if (!buf)
        return NULL;
    assert(buf->refs == 1);
    buf_end(buf);
    buf_block_free(buf, buf->cap);
    return NULL;
}

/* Resizes a large buffer in place, or by mapping its pages elsewhere. The content is not copied. */
static int buf_resize(struct br_buf **buf, uint32_t size_class)
{
    size_t size = buf_class_size(size_class), before = (*buf)->cap;
    struct br_buf *moved = br_remap(*buf, buf_block_size(before), buf_block_size(size));
    if (!moved)
        return BR_ENOMEM;
    moved->cap = (uint32_t)size;
    moved->size_class = (uint16_t)size_class;
    buf_pool_count(moved->pool, moved->holder, (int64_t)size - (int64_t)before);
    *buf = moved;
    return 0;
}

/* Returns true if a growing buffer should be copied into an unused one, which already has its
 * pages. If growing buffers never reused unused ones, the pool would fill with the sizes that
 * buffers grow to. */
static bool buf_is_worth_copying(const struct br_buf *buf, size_t cap)
{
    return buf->len <= COPIED_MAX && br_pool_has(buf->pool, cap);
}

int br_buf_reserve(struct br_buf **buf, size_t cap)
{
    struct br_buf *old = *buf;
    if (cap <= old->cap)
        return 0;
    assert(old->refs == 1);
    if (cap > BR_BUF_MAX)
        return BR_ENOMEM;
    if (old->cap >= BR_MEM_MAPPED && old->len && !buf_is_worth_copying(old, cap))
        return buf_resize(buf, buf_class_of(cap));
    struct br_buf *grown = br_buf_new(old->pool, cap);
    if (!grown)
        return BR_ENOMEM;
    memcpy(grown->data, old->data, old->len);
    grown->len = old->len;
    br_buf_hold(grown, (enum br_holder)old->holder);
    br_buf_unref(old);
    *buf = grown;
    return 0;
}

int br_buf_prepare(struct br_buf **buf, struct br_pool *pool, size_t cap)
{
    if (!*buf)
        *buf = br_buf_new(pool, cap);
    if (!*buf)
        return BR_ENOMEM;
    (*buf)->len = 0;
    return br_buf_reserve(buf, cap);
}

void br_buf_shrink(struct br_buf **buf)
{
    struct br_buf *old = *buf;
    uint32_t c = buf_class_of(old->len);
    assert(old->refs == 1);
    if (buf_class_size(c) > old->cap / 2)
        return;
    if (old->cap >= BR_MEM_MAPPED && buf_class_size(c) >= BR_MEM_MAPPED) {
        (void)buf_resize(buf, c);
        return;
    }
    struct br_buf *small = br_buf_new(old->pool, old->len);
    if (!small)
        return;
    memcpy(small->data, old->data, old->len);
    small->len = old->len;
    br_buf_hold(small, (enum br_holder)old->holder);
    br_buf_unref(old);
    *buf = small;
}

int br_buf_append(struct br_buf **buf, const void *data, size_t len, size_t max)
{
    size_t need = (*buf)->len + len;
    if (need > max)
        return BR_EFULL;
    if (need > (*buf)->cap) {
        size_t want = (size_t)(*buf)->cap * 2;
        if (want > max)
            want = max;
        int rc = br_buf_reserve(buf, want > need ? want : need);
        if (rc)
            return rc;
    }
    if (len)
        memcpy((*buf)->data + (*buf)->len, data, len);
    (*buf)->len += (uint32_t)len;
    return 0;
}

int br_rope_add(struct br_rope *rope, struct br_buf *buf, const void *data, size_t len)
{
    if (len == 0)
        return 0;
    if (rope->count && buf) {
        struct br_slice *last = &rope->slices[rope->count - 1];
        if (last->buf == buf && last->data + last->len == data) {
            last->len += len;
            rope->len += len;
            return 0;
        }
    }
    if (br_grow(&rope->slices, &rope->cap, (size_t)rope->count + 1, sizeof *rope->slices, ROPE_MAX))
        return BR_ENOMEM;
    rope->slices[rope->count++] = (struct br_slice){buf ? br_buf_ref(buf) : NULL, data, len};
    rope->len += len;
    return 0;
}

int br_rope_cat(struct br_rope *rope, const struct br_rope *from)
{
    for (uint32_t i = 0; i < from->count; i++) {
        int rc = br_rope_add(rope, from->slices[i].buf, from->slices[i].data, from->slices[i].len);
        if (rc)
            return rc;
    }
    return 0;
}

void br_rope_drop(struct br_rope *rope, size_t len)
{
    uint32_t gone = 0;
    rope->len -= len < rope->len ? len : rope->len;
    while (gone < rope->count && len >= rope->slices[gone].len) {
        len -= rope->slices[gone].len;
        br_buf_unref(rope->slices[gone++].buf);
    }
    if (gone < rope->count) {
        rope->slices[gone].data += len;
        rope->slices[gone].len -= len;
    }
    rope->count -= gone;
    if (gone && rope->count)
        memmove(rope->slices, rope->slices + gone, rope->count * sizeof *rope->slices);
}

void br_rope_release(struct br_rope *rope)
{
    for (uint32_t i = 0; i < rope->count; i++)
        br_buf_unref(rope->slices[i].buf);
    br_free(rope->slices);
    *rope = (struct br_rope){0};
}

static struct br_buf *buf_rope_copy(const struct br_rope *rope, struct br_pool *pool)
{
    struct br_buf *buf = br_buf_new(pool, rope->len);
    if (!buf)
        return NULL;
    for (uint32_t i = 0; i < rope->count; i++) {
        memcpy(buf->data + buf->len, rope->slices[i].data, rope->slices[i].len);
        buf->len += (uint32_t)rope->slices[i].len;
    }
    return buf;
}

struct br_buf *br_rope_flat(const struct br_rope *rope, struct br_pool *pool,
                            const uint8_t **ret_data)
{
    if (rope->count == 1 && rope->slices[0].buf) {
        *ret_data = rope->slices[0].data;
        return br_buf_ref(rope->slices[0].buf);
    }
    struct br_buf *buf = buf_rope_copy(rope, pool);
    if (buf)
        *ret_data = buf->data;
    return buf;
}

const uint8_t *br_rope_bytes(const struct br_rope *rope, struct br_pool *pool,
                             struct br_buf **ret_copy)
{
    *ret_copy = NULL;
    if (rope->count == 1)
        return rope->slices[0].data;
    *ret_copy = buf_rope_copy(rope, pool);
    return *ret_copy ? (*ret_copy)->data : NULL;
}
