/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/steps.h"

#define BLOCK_MIN 4096u
#define BLOCK_MAX 262144u
#define ARENA_MAX (16u << 20)

struct br_arena_block {
    struct br_arena_block *next;
    /* the pool's buffer that contains the block; NULL: the block was allocated from the system */
    struct br_buf *buf;
    size_t used, size;
    max_align_t data[];
};

void br_arena_init(struct br_arena *arena, size_t max_bytes)
{
    memset(arena, 0, sizeof *arena);
    arena->max = max_bytes;
}

static void arena_count(const struct br_arena *arena, int64_t bytes)
{
    if (arena->holder != BR_HOLDER_PROCESS)
        br_mem_hold(arena->holder, bytes);
}

void br_arena_release(struct br_arena *arena)
{
    while (arena->blocks) {
        struct br_arena_block *arena_block = arena->blocks;
        arena->blocks = arena_block->next;
        if (arena_block->buf) {
            br_buf_unref(arena_block->buf);
            continue;
        }
        arena_count(arena, -(int64_t)arena_block->size);
        br_free(arena_block);
    }
    arena->used = 0;
    arena->full = false;
}

/* Returns a large block from the arena's pool. The system hands out new memory page by page,
 * which is slow for an arena that is filled anew for each item. */
static struct br_arena_block *arena_block_of_pool(struct br_arena *arena, size_t size)
{
    const uintptr_t align = _Alignof(struct br_arena_block);
    struct br_buf *buf = br_buf_new(arena->pool, sizeof(struct br_arena_block) + size + align);
    if (!buf)
        return NULL;
    uint8_t *at = buf->data + (align - (uintptr_t)buf->data % align) % align;
    if (arena->holder != BR_HOLDER_PROCESS)
        br_buf_hold(buf, arena->holder);
    struct br_arena_block *arena_block = (struct br_arena_block *)(void *)at;
    arena_block->buf = buf;
    return arena_block;
}

static struct br_arena_block *arena_block_of_system(struct br_arena *arena, size_t size)
{
    struct br_arena_block *arena_block = br_malloc(sizeof *arena_block + size);
    if (!arena_block)
        return NULL;
    arena_block->buf = NULL;
    arena_count(arena, (int64_t)size);
    return arena_block;
}

static struct br_arena_block *arena_block_new(struct br_arena *arena, size_t size)
{
    size_t max = arena->max ? arena->max : ARENA_MAX;
    size_t want = arena->blocks ? arena->blocks->size * 2 : BLOCK_MIN;
    if (want > BLOCK_MAX)
        want = BLOCK_MAX;
    if (want < size)
        want = size;
    if (arena->used >= max || size > max - arena->used) {
        arena->full = true;
        return NULL;
    }
    if (want > max - arena->used)
        want = max - arena->used;
    struct br_arena_block *arena_block = arena->pool && want >= BLOCK_MAX
                                             ? arena_block_of_pool(arena, want)
                                             : arena_block_of_system(arena, want);
    if (!arena_block)
        return NULL;
    arena_block->next = arena->blocks;
    arena_block->used = 0;
    arena_block->size = want;
    arena->blocks = arena_block;
    arena->used += want;
    return arena_block;
}

void *br_arena_alloc(struct br_arena *arena, size_t size)
{
    size_t aligned;
    if (!br_size_add(size, _Alignof(max_align_t) - 1, &aligned))
        return NULL;
    aligned &= ~(_Alignof(max_align_t) - 1);
    struct br_arena_block *arena_block = arena->blocks;
    if (!arena_block || arena_block->size - arena_block->used < aligned)
        arena_block = arena_block_new(arena, aligned);
    if (!arena_block)
        return NULL;
    void *p = (char *)arena_block->data + arena_block->used;
    arena_block->used += aligned;
    return p;
}

bool br_arena_has(const struct br_arena *arena, const void *memory)
{
    uintptr_t at = (uintptr_t)memory;
    for (const struct br_arena_block *arena_block = arena->blocks; arena_block;
         arena_block = arena_block->next)
        if (at >= (uintptr_t)arena_block->data &&
            at < (uintptr_t)arena_block->data + arena_block->size)
            return true;
    return false;
}

#undef br_arena_why
int br_arena_why(const struct br_arena *arena)
{
    return arena->full ? BR_EFULL : BR_ENOMEM;
}

void *br_arena_calloc(struct br_arena *arena, size_t count, size_t size)
{
    size_t total;
    if (!br_size_mul(count, size, &total))
        return NULL;
    void *p = br_arena_alloc(arena, total);
    if (p)
        memset(p, 0, total);
    return p;
}

char *br_arena_strndup(struct br_arena *arena, const char *text, size_t len)
{
    size_t size;
    char *p = br_size_add(len, 1, &size) ? br_arena_alloc(arena, size) : NULL;
    if (!p)
        return NULL;
    br_steps_add(len);
    if (len)
        memcpy(p, text, len);
    p[len] = '\0';
    return p;
}

char *br_arena_printf(struct br_arena *arena, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : br_arena_alloc(arena, (size_t)n + 1);
    if (p)
        (void)vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

static void *arena_pb_alloc(void *left, size_t size)
{
    return br_arena_alloc(left, size);
}

static void arena_pb_free(void *left, void *memory)
{
    (void)left;
    (void)memory;
}

ProtobufCAllocator *br_arena_pb(struct br_arena *arena)
{
    arena->pb = (ProtobufCAllocator){arena_pb_alloc, arena_pb_free, arena};
    return &arena->pb;
}
