/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"

#define BLOCK_MIN 4096u
#define BLOCK_MAX 262144u
#define ARENA_MAX (16u << 20)

struct br_arena_block {
    struct br_arena_block *next;
    size_t used, size;
    max_align_t data[];
};

void br_arena_init(struct br_arena *a, size_t max_bytes)
{
    memset(a, 0, sizeof *a);
    a->max = max_bytes;
}

void br_arena_release(struct br_arena *a)
{
    while (a->blocks) {
        struct br_arena_block *b = a->blocks;
        a->blocks = b->next;
        br_free(b);
    }
    a->used = 0;
    a->full = false;
}

static struct br_arena_block *block_new(struct br_arena *a, size_t size)
{
    size_t max = a->max ? a->max : ARENA_MAX;
    size_t want = a->blocks ? a->blocks->size * 2 : BLOCK_MIN;
    if (want > BLOCK_MAX)
        want = BLOCK_MAX;
    if (want < size)
        want = size;
    if (a->used >= max || size > max - a->used) {
        a->full = true;
        return NULL;
    }
    if (want > max - a->used)
        want = max - a->used;
    struct br_arena_block *b = br_malloc(sizeof *b + want);
    if (!b)
        return NULL;
    b->next = a->blocks;
    b->used = 0;
    b->size = want;
    a->blocks = b;
    a->used += want;
    return b;
}

void *br_arena_alloc(struct br_arena *a, size_t size)
{
    size_t aligned;
    if (!br_size_add(size, _Alignof(max_align_t) - 1, &aligned))
        return NULL;
    aligned &= ~(_Alignof(max_align_t) - 1);
    struct br_arena_block *b = a->blocks;
    if (!b || b->size - b->used < aligned)
        b = block_new(a, aligned);
    if (!b)
        return NULL;
    void *p = (char *)b->data + b->used;
    b->used += aligned;
    return p;
}

void *br_arena_calloc(struct br_arena *a, size_t n, size_t size)
{
    size_t total;
    if (!br_size_mul(n, size, &total))
        return NULL;
    void *p = br_arena_alloc(a, total);
    if (p)
        memset(p, 0, total);
    return p;
}

char *br_arena_strndup(struct br_arena *a, const char *s, size_t len)
{
    size_t size;
    char *p = br_size_add(len, 1, &size) ? br_arena_alloc(a, size) : NULL;
    if (!p)
        return NULL;
    br_steps_add(len);
    if (len)
        memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *br_arena_printf(struct br_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : br_arena_alloc(a, (size_t)n + 1);
    if (p)
        (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

static void *pb_alloc(void *a, size_t size)
{
    return br_arena_alloc(a, size);
}

static void pb_free(void *a, void *p)
{
    (void)a;
    (void)p;
}

ProtobufCAllocator *br_arena_pb(struct br_arena *a)
{
    a->pb = (ProtobufCAllocator){pb_alloc, pb_free, a};
    return &a->pb;
}
