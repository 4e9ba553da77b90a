/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator every module uses. The hooks exist for one purpose: tests make the n-th allocation
 * fail. Which other mutable file-scope variables there are, law 10 of docs/laws.md says.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_mem_hooks {
    void *(*alloc)(size_t size);
    void *(*resize)(void *p, size_t size);
    void (*release)(void *p);
};

/* Replaces the allocator; NULL brings the C library's back. Only while a single thread runs and
 * nothing allocated through other hooks is alive. Borrows `hooks` for the life of the process. */
void br_mem_set_hooks(const struct br_mem_hooks *hooks);

/* As malloc, calloc, realloc, free, strdup, strndup: NULL when there is no memory (size 0 gives a
 * unique pointer). The caller owns the result and gives it back with br_free. */
void *br_malloc(size_t size);
void *br_calloc(size_t n, size_t size);
void *br_realloc(void *p, size_t size);
void br_free(void *p);
char *br_strdup(const char *s);
char *br_strndup(const char *s, size_t len);

/* Sets `*ret` to a + b, or a * b; false (and `*ret` untouched) when that overflows. */
bool br_size_add(size_t a, size_t b, size_t *ret);
bool br_size_mul(size_t a, size_t b, size_t *ret);

/* Grows the array `*items` of `*cap` elements of `size` bytes so that it holds at least `need`,
 * but never more than `max`. Returns 0, BR_EFULL (need > max) or BR_ENOMEM; on failure nothing
 * changed. */
int br_grow(void *items, uint32_t *cap, size_t need, size_t size, size_t max);

#define br_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define BR_COUNT(array) (sizeof(array) / sizeof((array)[0]))
