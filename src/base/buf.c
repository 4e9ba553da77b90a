/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Four classes to a power of two, from 256 bytes up: at most a fifth of a buffer is slack. */
#define CLASS_MIN_LOG2 8u
#define CLASSES 84u
#define ROPE_MAX (1u << 24)
#define IDLE_SHARE 16u /* of the memory limit is the most that unused buffers may hold */

struct idle {
    struct idle *next;
};

struct br_pool {
    size_t live, idle, max_idle;
    struct br_memory *memory;
    uint64_t taken;
    struct idle *free[CLASSES];
};

static uint32_t class_of(size_t cap)
{
    if (cap <= (1u << CLASS_MIN_LOG2))
        return 0;
    unsigned log2 = 63u - (unsigned)__builtin_clzll((unsigned long long)(cap - 1));
    uint32_t quarter = (uint32_t)((cap - 1) >> (log2 - 2)) & 3u;
    return (log2 - CLASS_MIN_LOG2) * 4u + quarter + 1u;
}

static size_t class_size(uint32_t c)
{
    if (c == 0)
        return 1u << CLASS_MIN_LOG2;
    unsigned log2 = CLASS_MIN_LOG2 + (c - 1) / 4;
    return ((size_t)1 << log2) + (((size_t)1 << (log2 - 2)) * ((c - 1) % 4 + 1));
}

struct br_pool *br_pool_new(size_t max_idle)
{
    struct br_pool *pool = br_calloc(1, sizeof *pool);
    if (pool)
        pool->max_idle = max_idle;
    return pool;
}

void br_pool_set_memory(struct br_pool *pool, struct br_memory *memory)
{
    pool->memory = memory;
}

bool br_pool_fits(struct br_pool *pool, size_t more)
{
    if (!pool->memory || br_memory_fits(pool->memory, more))
        return true;
    if (!pool->idle)
        return false;
    br_pool_trim(pool);
    return br_memory_fits(pool->memory, more);
}

void br_pool_trim(struct br_pool *pool)
{
    for (uint32_t c = 0; c < CLASSES; c++) {
        while (pool->free[c]) {
            struct idle *i = pool->free[c];
            pool->free[c] = i->next;
            br_free(i);
        }
    }
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)pool->idle);
    pool->idle = 0;
}

void br_pool_free(struct br_pool *pool)
{
    if (!pool)
        return;
    assert(pool->live == 0);
    br_pool_trim(pool);
    br_free(pool);
}

size_t br_pool_live(const struct br_pool *pool)
{
    return pool->live;
}

/* Counts `size` bytes more (or less) as held by a pool's buffers. */
static void pool_count(struct br_pool *pool, uint16_t holder, int64_t size)
{
    pool->live += (size_t)size;
    br_mem_hold((enum br_holder)holder, size);
}

static struct br_buf *pool_take(struct br_pool *pool, uint32_t c, size_t size)
{
    if (!br_mem_scope_take(size))
        return NULL;
    struct idle *i = pool->free[c];
    pool->free[c] = i->next;
    pool->idle -= size;
    br_mem_hold(BR_HOLDER_POOL, -(int64_t)size);
    return (struct br_buf *)(void *)i;
}

static bool pool_keep(struct br_pool *pool, struct br_buf *buf)
{
    size_t size = buf->cap, max = pool->max_idle;
    if (pool->memory && br_memory_hard(pool->memory) / IDLE_SHARE < max)
        max = br_memory_hard(pool->memory) / IDLE_SHARE;
    if (pool->idle > max || size > max - pool->idle)
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

static size_t block_size(size_t size)
{
    return sizeof(struct br_buf) + size + BR_BUF_SLACK;
}

size_t br_pool_idle(const struct br_pool *pool)
{
    return pool->idle;
}

uint64_t br_pool_taken(const struct br_pool *pool)
{
    return pool->taken;
}

struct br_buf *br_buf_new(struct br_pool *pool, size_t cap)
{
    if (cap > BR_BUF_MAX)
        return NULL;
    uint32_t c = class_of(cap);
    size_t size = class_size(c);
    struct br_buf *buf = pool->free[c] ? pool_take(pool, c, size) : br_malloc(block_size(size));
    if (!buf)
        return NULL;
    *buf = (struct br_buf){.pool = pool,
                           .refs = 1,
                           .cap = (uint32_t)size,
                           .size_class = (uint16_t)c,
                           .holder = BR_HOLDER_REQUESTS};
    pool_count(pool, buf->holder, (int64_t)size);
    pool->taken += size;
    return buf;
}

void br_buf_adopt(struct br_buf *buf, struct br_pool *pool)
{
    buf->pool->live -= buf->cap;
    buf->pool = pool;
    pool->live += buf->cap;
}

void br_buf_hold(struct br_buf *buf, enum br_holder holder)
{
    if (buf->holder == holder)
        return;
    br_mem_hold((enum br_holder)buf->holder, -(int64_t)buf->cap);
    br_mem_hold(holder, buf->cap);
    buf->holder = (uint16_t)holder;
}

struct br_buf *br_buf_ref(struct br_buf *buf)
{
    buf->refs++;
    return buf;
}

struct br_buf *br_buf_unref(struct br_buf *buf)
{
    if (!buf || --buf->refs > 0)
        return NULL;
    pool_count(buf->pool, buf->holder, -(int64_t)buf->cap);
    if (!pool_keep(buf->pool, buf))
        br_free(buf);
    return NULL;
}

struct br_buf *br_buf_discard(struct br_buf *buf)
{
    if (!buf)
        return NULL;
    assert(buf->refs == 1);
    pool_count(buf->pool, buf->holder, -(int64_t)buf->cap);
    br_free(buf);
    return NULL;
}

/* Gives a large buffer another size where it is, or where the system maps it to: nothing is copied. */
static int buf_resize(struct br_buf **buf, uint32_t c)
{
    size_t size = class_size(c), before = (*buf)->cap;
    struct br_buf *moved = br_realloc(*buf, block_size(size));
    if (!moved)
        return BR_ENOMEM;
    moved->cap = (uint32_t)size;
    moved->size_class = (uint16_t)c;
    pool_count(moved->pool, moved->holder, (int64_t)size - (int64_t)before);
    *buf = moved;
    return 0;
}

int br_buf_reserve(struct br_buf **buf, size_t cap)
{
    struct br_buf *old = *buf;
    if (cap <= old->cap)
        return 0;
    assert(old->refs == 1);
    if (cap > BR_BUF_MAX)
        return BR_ENOMEM;
    if (old->cap >= BR_MEM_MAPPED && old->len)
        return buf_resize(buf, class_of(cap));
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

void br_buf_shrink(struct br_buf **buf)
{
    struct br_buf *old = *buf;
    uint32_t c = class_of(old->len);
    assert(old->refs == 1);
    if (class_size(c) > old->cap / 2)
        return;
    if (old->cap >= BR_MEM_MAPPED && class_size(c) >= BR_MEM_MAPPED) {
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

int br_rope_add(struct br_rope *r, struct br_buf *buf, const void *data, size_t len)
{
    if (len == 0)
        return 0;
    struct br_slice *last = r->n ? &r->v[r->n - 1] : NULL;
    if (last && buf && last->buf == buf && last->data + last->len == data) {
        last->len += len;
        r->len += len;
        return 0;
    }
    if (br_grow(&r->v, &r->cap, (size_t)r->n + 1, sizeof *r->v, ROPE_MAX))
        return BR_ENOMEM;
    r->v[r->n++] = (struct br_slice){buf ? br_buf_ref(buf) : NULL, data, len};
    r->len += len;
    return 0;
}

int br_rope_cat(struct br_rope *r, const struct br_rope *from)
{
    for (uint32_t i = 0; i < from->n; i++) {
        int rc = br_rope_add(r, from->v[i].buf, from->v[i].data, from->v[i].len);
        if (rc)
            return rc;
    }
    return 0;
}

void br_rope_drop(struct br_rope *r, size_t len)
{
    uint32_t gone = 0;
    r->len -= len < r->len ? len : r->len;
    while (gone < r->n && len >= r->v[gone].len) {
        len -= r->v[gone].len;
        br_buf_unref(r->v[gone++].buf);
    }
    if (gone < r->n) {
        r->v[gone].data += len;
        r->v[gone].len -= len;
    }
    r->n -= gone;
    if (gone && r->n)
        memmove(r->v, r->v + gone, r->n * sizeof *r->v);
}

void br_rope_release(struct br_rope *r)
{
    for (uint32_t i = 0; i < r->n; i++)
        br_buf_unref(r->v[i].buf);
    br_free(r->v);
    *r = (struct br_rope){0};
}

static struct br_buf *rope_copy(const struct br_rope *r, struct br_pool *pool)
{
    struct br_buf *buf = br_buf_new(pool, r->len);
    if (!buf)
        return NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(buf->data + buf->len, r->v[i].data, r->v[i].len);
        buf->len += (uint32_t)r->v[i].len;
    }
    return buf;
}

struct br_buf *br_rope_flat(const struct br_rope *r, struct br_pool *pool, const uint8_t **ret_data)
{
    if (r->n == 1 && r->v[0].buf) {
        *ret_data = r->v[0].data;
        return br_buf_ref(r->v[0].buf);
    }
    struct br_buf *buf = rope_copy(r, pool);
    if (buf)
        *ret_data = buf->data;
    return buf;
}

const uint8_t *br_rope_bytes(const struct br_rope *r, struct br_pool *pool, struct br_buf **ret_copy)
{
    *ret_copy = NULL;
    if (r->n == 1)
        return r->v[0].data;
    *ret_copy = rope_copy(r, pool);
    return *ret_copy ? (*ret_copy)->data : NULL;
}
