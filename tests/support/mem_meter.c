/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mem_meter.h"

#include <stdlib.h>
#include <string.h>

struct mem_meter mem_meter;

static void *take(size_t size)
{
    if (mem_meter.fail_at && --mem_meter.fail_at == 0)
        return NULL;
    size_t *p = malloc(size + 16);
    if (!p)
        return NULL;
    *p = size;
    mem_meter.live += size;
    mem_meter.peak = mem_meter.live > mem_meter.peak ? mem_meter.live : mem_meter.peak;
    return p + 2;
}

static void release(void *p)
{
    size_t *block = (size_t *)p - 2;
    mem_meter.live -= *block;
    free(block);
}

/* Large blocks are mapped separately: the system moves them without a copy (mremap). */
static void *remap(void *p, size_t old, size_t size)
{
    if (mem_meter.fail_at && --mem_meter.fail_at == 0)
        return NULL;
    size_t *moved = realloc((size_t *)p - 2, size + 16);
    if (!moved)
        return NULL;
    *moved = size;
    mem_meter.live += size - old;
    mem_meter.peak = mem_meter.live > mem_meter.peak ? mem_meter.live : mem_meter.peak;
    return moved + 2;
}

static void *resize(void *p, size_t size)
{
    size_t had = p ? ((size_t *)p)[-2] : 0;
    if (had >= BR_MEM_MAPPED && size >= BR_MEM_MAPPED)
        return remap(p, had, size);
    void *fresh = take(size);
    if (!fresh || !p)
        return fresh;
    memcpy(fresh, p, had < size ? had : size);
    release(p);
    return fresh;
}

static size_t size(const void *p)
{
    return ((const size_t *)p)[-2];
}

const struct br_mem_hooks mem_meter_hooks = {take, resize, release, size};
