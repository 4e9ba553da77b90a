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
#define RESIZE_MIN (256u << 10) /* smaller buffers grow by a copy, maybe into a pooled one */

struct idle {
    struct idle *next;
};

struct br_pool {
    size_t live, idle, max_idle;
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

void br_pool_trim(struct br_pool *pool)
{
    for (uint32_t c = 0; c < CLASSES; c++) {
        while (pool->free[c]) {
            struct idle *i = pool->free[c];
            pool->free[c] = i->next;
            br_free(i);
        }
    }
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

struct br_buf *br_buf_new(struct br_pool *pool, size_t cap)
{
    if (cap > BR_BUF_MAX)
        return NULL;
    uint32_t c = class_of(cap);
    size_t size = class_size(c);
    struct br_buf *buf;
    if (pool->free[c]) {
        struct idle *i = pool->free[c];
        pool->free[c] = i->next;
        pool->idle -= size;
        buf = (struct br_buf *)(void *)i;
    } else {
        buf = br_malloc(sizeof *buf + size + BR_BUF_SLACK);
        if (!buf)
            return NULL;
    }
    *buf = (struct br_buf){.pool = pool, .refs = 1, .cap = (uint32_t)size, .size_class = c};
    pool->live += size;
    return buf;
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
    struct br_pool *pool = buf->pool;
    size_t size = buf->cap;
    pool->live -= size;
    if (size > pool->max_idle - pool->idle) {
        br_free(buf);
        return NULL;
    }
    uint32_t c = buf->size_class;
    struct idle *i = (struct idle *)(void *)buf;
    i->next = pool->free[c];
    pool->free[c] = i;
    pool->idle += size;
    return NULL;
}

/* Large blocks are moved by the kernel, without a second copy of them at any time. */
static int resize(struct br_buf **buf, size_t cap)
{
    uint32_t c = class_of(cap);
    size_t size = class_size(c);
    struct br_buf *moved = br_realloc(*buf, sizeof *moved + size + BR_BUF_SLACK);
    if (!moved)
        return BR_ENOMEM;
    moved->pool->live += size - moved->cap;
    moved->cap = (uint32_t)size;
    moved->size_class = c;
    *buf = moved;
    return 0;
}

int br_buf_reserve(struct br_buf **buf, size_t cap)
{
    struct br_buf *old = *buf;
    if (cap <= old->cap)
        return 0;
    assert(old->refs == 1);
    if (old->cap >= RESIZE_MIN && cap <= BR_BUF_MAX)
        return resize(buf, cap);
    struct br_buf *grown = br_buf_new(old->pool, cap);
    if (!grown)
        return BR_ENOMEM;
    memcpy(grown->data, old->data, old->len);
    grown->len = old->len;
    br_buf_unref(old);
    *buf = grown;
    return 0;
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

struct br_buf *br_rope_flat(const struct br_rope *r, struct br_pool *pool, const uint8_t **ret_data)
{
    if (r->n == 1 && r->v[0].buf) {
        *ret_data = r->v[0].data;
        return br_buf_ref(r->v[0].buf);
    }
    struct br_buf *buf = br_buf_new(pool, r->len);
    if (!buf)
        return NULL;
    for (uint32_t i = 0; i < r->n; i++) {
        memcpy(buf->data + buf->len, r->v[i].data, r->v[i].len);
        buf->len += (uint32_t)r->v[i].len;
    }
    *ret_data = buf->data;
    return buf;
}
