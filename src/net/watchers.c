/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libuv aborts the process if it cannot enlarge its table of watched descriptors. To turn this
 * abort into an error, the memory for the larger table is allocated beforehand, as `spare`. If
 * libuv then fails to allocate the table, its allocator returns `spare`.
 */
#include <stdalign.h>
#include <string.h>

#include "base/mem.h"
#include "net/net_internal.h"

/* the numbers of the descriptors that a new loop opens are assumed to be less than this number */
#define LOOP_DESCRIPTORS 1000

/* Header of a block that libuv allocated. The size is stored so that `spare` can replace a
 * smaller block. */
struct watchers_block {
    alignas(max_align_t) size_t size;
    unsigned char bytes[];
};

static _Thread_local struct watchers_block *spare;

static struct watchers_block *watchers_block(void *bytes)
{
    return bytes ? br_container_of(bytes, struct watchers_block, bytes) : NULL;
}

static void *watchers_bytes(struct watchers_block *block, size_t size)
{
    if (!block)
        return NULL;
    block->size = size;
    return block->bytes;
}

static void *watchers_alloc(size_t size)
{
    size_t total;
    return br_size_add(size, sizeof(struct watchers_block), &total)
               ? watchers_bytes(br_malloc(total), size)
               : NULL;
}

static void *watchers_calloc(size_t count, size_t size)
{
    size_t total;
    void *bytes = br_size_mul(count, size, &total) ? watchers_alloc(total) : NULL;
    return bytes ? memset(bytes, 0, total) : NULL;
}

static void *watchers_take_spare(struct watchers_block *old, size_t size)
{
    struct watchers_block *block = spare;
    if (!block || block->size < size)
        return NULL;
    spare = NULL;
    if (old)
        memcpy(block->bytes, old->bytes, old->size < size ? old->size : size);
    br_free(old);
    return watchers_bytes(block, size);
}

static void *watchers_resize(void *bytes, size_t size)
{
    struct watchers_block *old = watchers_block(bytes);
    size_t total;
    if (!br_size_add(size, sizeof *old, &total))
        return NULL;
    struct watchers_block *block = br_realloc(old, total);
    return block ? watchers_bytes(block, size) : watchers_take_spare(old, size);
}

static void watchers_free(void *bytes)
{
    br_free(watchers_block(bytes));
}

void br_watchers_init(void)
{
    (void)uv_replace_allocator(watchers_alloc, watchers_resize, watchers_calloc, watchers_free);
}

/* Computes the table size as libuv does: the next power of two. libuv itself uses two entries. */
static size_t watchers_count(int fd)
{
    size_t n = 16;
    while (n < (size_t)fd + 3)
        n *= 2;
    return n;
}

static bool watchers_put_aside(size_t count)
{
    void *bytes = watchers_alloc(count * sizeof(void *));
    spare = watchers_block(bytes);
    return bytes;
}

static void watchers_drop_spare(void)
{
    br_free(spare);
    spare = NULL;
}

int br_watchers_start(struct br_loop *loop)
{
    if (!watchers_put_aside(watchers_count(LOOP_DESCRIPTORS)))
        return BR_ENOMEM;
    int rc = uv_loop_init(&loop->uv);
    watchers_drop_spare();
    return rc ? BR_EIO : 0;
}

int br_watchers_poll(struct br_loop *loop, uv_poll_t *poll, int fd, int events, uv_poll_cb fn)
{
    bool grows = fd >= loop->watchable;
    if (grows && !watchers_put_aside(watchers_count(fd)))
        return BR_ENOMEM;
    int rc = uv_poll_init(&loop->uv, poll, fd);
    if (!rc)
        /* uv_poll_start can only fail while the handle is being closed */
        (void)uv_poll_start(poll, events, fn);
    watchers_drop_spare();
    if (!rc && grows)
        loop->watchable = (int)watchers_count(fd) - 2;
    return rc ? BR_EIO : 0;
}
