/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/steps.h"

static const struct br_mem_hooks libc_hooks = {malloc, realloc, free};
static const struct br_mem_hooks *hooks = &libc_hooks;

void br_mem_set_hooks(const struct br_mem_hooks *h)
{
    hooks = h ? h : &libc_hooks;
}

void *br_malloc(size_t size)
{
    return hooks->alloc(size ? size : 1);
}

void *br_calloc(size_t n, size_t size)
{
    size_t total;
    if (!br_size_mul(n, size, &total))
        return NULL;
    void *p = br_malloc(total);
    if (p)
        memset(p, 0, total ? total : 1);
    return p;
}

void *br_realloc(void *p, size_t size)
{
    return hooks->resize(p, size ? size : 1);
}

void br_free(void *p)
{
    if (p)
        hooks->release(p);
}

char *br_strndup(const char *s, size_t len)
{
    char *copy = br_malloc(len + 1);
    if (!copy)
        return NULL;
    br_steps_add(len);
    if (len)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *br_strdup(const char *s)
{
    return br_strndup(s, strlen(s));
}

bool br_size_add(size_t a, size_t b, size_t *ret)
{
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum))
        return false;
    *ret = sum;
    return true;
}

bool br_size_mul(size_t a, size_t b, size_t *ret)
{
    size_t product;
    if (__builtin_mul_overflow(a, b, &product))
        return false;
    *ret = product;
    return true;
}

int br_grow(void *items, uint32_t *cap, size_t need, size_t size, size_t max)
{
    if (need <= *cap)
        return 0;
    if (need > max || need > UINT32_MAX)
        return BR_EFULL;
    size_t want = *cap ? (size_t)*cap + *cap / 2 : 8;
    if (want < need)
        want = need;
    if (want > max)
        want = max;
    size_t bytes;
    if (want > UINT32_MAX || !br_size_mul(want, size, &bytes))
        return BR_ENOMEM;
    void *old;
    memcpy(&old, items, sizeof old);
    void *p = br_realloc(old, bytes);
    if (!p)
        return BR_ENOMEM;
    memcpy(items, &p, sizeof p);
    *cap = (uint32_t)want;
    return 0;
}
