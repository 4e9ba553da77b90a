/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary heaps in arrays. The first entry of the array comes before all other entries. The
 * functions below are inlined. If their argument `kind` is a constant, the functions in it are
 * inlined, too.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BR_HEAP_ENTRY_MAX 128 /* largest size of an entry in bytes */
#define BR_HEAP_INLINE static inline __attribute__((always_inline))

/* Describes the entries of a heap. */
struct br_heap_kind {
    size_t size; /* size of an entry in bytes */
    /* Returns true if `one` must come before `other`. `arg` is the caller's argument of
     * br_heap_rise or br_heap_sink. */
    bool (*before)(const void *one, const void *other, const void *arg);
    /* called after an entry is stored at another index; may be NULL */
    void (*moved)(void *entry, size_t place);
};

BR_HEAP_INLINE void br_heap_put(struct br_heap_kind kind, char *entries, size_t at,
                                const void *entry)
{
    memcpy(entries + at * kind.size, entry, kind.size);
    if (kind.moved)
        kind.moved(entries + at * kind.size, at);
}

/* Moves the entry at index `at` towards the start until its parent does not come after it. */
BR_HEAP_INLINE void br_heap_rise(struct br_heap_kind kind, void *heap, size_t at, const void *arg)
{
    char entry[BR_HEAP_ENTRY_MAX], *entries = heap;
    assert(kind.size <= sizeof entry);
    memcpy(entry, entries + at * kind.size, kind.size);
    for (size_t parent; at; at = parent) {
        parent = (at - 1) / 2;
        if (!kind.before(entry, entries + parent * kind.size, arg))
            break;
        br_heap_put(kind, entries, at, entries + parent * kind.size);
    }
    br_heap_put(kind, entries, at, entry);
}

/* Moves the entry at index `at` of `count` towards the end until no child comes before it. */
BR_HEAP_INLINE void br_heap_sink(struct br_heap_kind kind, void *heap, size_t count, size_t at,
                                 const void *arg)
{
    char entry[BR_HEAP_ENTRY_MAX], *entries = heap;
    assert(kind.size <= sizeof entry);
    memcpy(entry, entries + at * kind.size, kind.size);
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        const char *first = entries + child * kind.size;
        if (child + 1 < count && kind.before(first + kind.size, first, arg))
            child++;
        if (!kind.before(entries + child * kind.size, entry, arg))
            break;
        br_heap_put(kind, entries, at, entries + child * kind.size);
    }
    br_heap_put(kind, entries, at, entry);
}

static inline bool br_heap_is_less(const void *one, const void *other, const void *arg)
{
    (void)arg;
    return *(const int64_t *)one < *(const int64_t *)other;
}

/* The kind of a heap of int64_t whose first entry is the smallest. */
static const struct br_heap_kind br_heap_least = {sizeof(int64_t), br_heap_is_less, NULL};
