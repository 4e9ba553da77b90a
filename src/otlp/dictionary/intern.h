/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of a dictionary under construction: entries by content, each once. For src/otlp/ and
 * src/profile/ only.
 *
 * Entries are kept as they go on the wire (tag, length, body, one after the other), so that a
 * finished table is one copy. A new entry's body is written right behind the last one and becomes
 * an entry only if no equal one is there. The hash is seeded at random, so that input cannot be
 * chosen to collide. Entry 0 is the empty one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

/* Memory that several arrays share. */
struct br_budget {
    size_t used, max;
    bool moves; /* the old place of an array that is being moved counts, too */
};

/* Returns the most bytes that an array may have that has `had` bytes now. */
static inline size_t br_budget_most(const struct br_budget *budget, size_t had)
{
    return budget->max - budget->used + (budget->moves ? 0 : had);
}

/* The same for one that br_realloc resizes: what is mapped on its own is not copied. */
static inline size_t br_budget_resized(const struct br_budget *budget, size_t had)
{
    return had >= BR_MEM_MAPPED ? budget->max - budget->used + had : br_budget_most(budget, had);
}

/* As br_grow, within the budget. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_budget_grow(struct br_budget *budget, void *items, uint32_t *cap, size_t need, size_t size);

/* Frees an array of br_budget_grow and gives its bytes back. */
void br_budget_free(struct br_budget *budget, void *items, uint32_t *cap, size_t size);

struct br_interned {
    uint32_t at;  /* where the body starts in `bytes` */
    uint32_t len; /* of the body */
    uint32_t hash;
    uint32_t
        user; /* an entry of another table that refers to this one: a guess, whoever keeps it */
};

struct br_intern_slot {
    uint32_t hash;
    uint32_t index; /* + 1; 0: empty */
};

struct br_intern {
    uint8_t *bytes;
    uint32_t len, cap;
    struct br_interned *entries;
    uint32_t count, cap_entries;
    struct br_intern_slot *slots; /* a power of two, at most three quarters full */
    uint32_t n_slots;
    uint32_t most; /* entries that the two arrays have room for */
    uint8_t tag;
    uint64_t secret[2];
};

#define BR_INTERN_HEAD 2 /* bytes of tag and length before a body that is being written */
#define BR_INTERN_NONE UINT32_MAX

/* Prepares a zeroed table (field number below 16) with its entry 0. Returns 0, BR_EFULL or
 * BR_ENOMEM, after which the table is still to be released. */
int br_intern_init(struct br_intern *intern, struct br_budget *budget, uint32_t field);
void br_intern_release(struct br_intern *intern, struct br_budget *budget);

/* Back to entry 0 alone; keeps the memory. */
void br_intern_clear(struct br_intern *intern);

/* Keeps nothing but the bytes, for their last copy: then the table is good for br_intern_release
 * only. */
void br_intern_strip(struct br_intern *intern, struct br_budget *budget);

/* Returns the bytes that br_intern_strip gives back. */
static inline size_t br_intern_strippable(const struct br_intern *intern)
{
    return intern->cap_entries * sizeof *intern->entries + intern->n_slots * sizeof *intern->slots;
}

/* Forgets entries from number `count` (at least 1) on, the first of which starts at byte `len`. */
void br_intern_truncate(struct br_intern *intern, uint32_t count, uint32_t len);

/* Makes room for one more entry with a body of at most `body_max` bytes. Returns 0, BR_EFULL or
 * BR_ENOMEM. */
int br_intern_reserve_slow(struct br_intern *intern, struct br_budget *budget, size_t body_max);

static inline int br_intern_reserve(struct br_intern *intern, struct br_budget *budget,
                                    size_t body_max)
{
    if (__builtin_expect(intern->count < intern->most &&
                             (size_t)intern->cap - intern->len >= body_max + 2 * BR_VARINT_MAX,
                         1))
        return 0;
    return br_intern_reserve_slow(intern, budget, body_max);
}

/* After br_intern_reserve: where to write the next body. */
static inline uint8_t *br_intern_body(struct br_intern *intern)
{
    return intern->bytes + intern->len + BR_INTERN_HEAD;
}

static inline bool br_intern_equal(const uint8_t *left, const uint8_t *right, size_t len)
{
    if (len > 16) {
        const uint8_t *last = left + len - 16;
        for (; left < last; left += 16, right += 16) {
            if ((br_load64(left) ^ br_load64(right)) | (br_load64(left + 8) ^ br_load64(right + 8)))
                return false;
        }
        right -= left - last;
        left = last;
        return ((br_load64(left) ^ br_load64(right)) |
                (br_load64(left + 8) ^ br_load64(right + 8))) == 0;
    }
    if (len >= 8)
        return br_load64(left) == br_load64(right) &&
               br_load64(left + len - 8) == br_load64(right + len - 8);
    if (len >= 4)
        return br_load32(left) == br_load32(right) &&
               br_load32(left + len - 4) == br_load32(right + len - 4);
    return len == 0 || (left[0] == right[0] && left[len >> 1] == right[len >> 1] &&
                        left[len - 1] == right[len - 1]);
}

/* Returns true when entry `index`, which may be out of range, is equal to `len` bytes. */
static inline bool br_intern_is(const struct br_intern *intern, uint32_t index, const uint8_t *body,
                                size_t len)
{
    if (index >= intern->count)
        return false;
    const struct br_interned *interned = &intern->entries[index];
    return interned->len == len && br_intern_equal(intern->bytes + interned->at, body, len);
}

/* Returns the entry equal to `len` bytes, or BR_INTERN_NONE; `*ret_hash` is then their hash.
 * `guess` is compared first, without hashing (it may be out of range). */
uint32_t br_intern_find(const struct br_intern *intern, const uint8_t *body, size_t len,
                        uint32_t guess, uint32_t *ret_hash);

#define BR_INTERN_MANY 8u

struct br_intern_text {
    const uint8_t *data;
    size_t len;
};

/* As br_intern_find without guesses, of up to BR_INTERN_MANY texts: what one look-up waits for from
 * memory is on its way while the others are at work. Sets `ret[i]` of each. */
void br_intern_find_many(const struct br_intern *intern, const struct br_intern_text *texts,
                         uint32_t count, uint32_t *ret);

/* After br_intern_reserve: makes the `len` bytes at br_intern_body, which no entry is equal to, an
 * entry. Returns its index. */
uint32_t br_intern_append(struct br_intern *intern, size_t len, uint32_t hash);

/* After br_intern_reserve: the same unless an entry is equal to them, which is returned then.
 * `guess`: as above. */
uint32_t br_intern_enter(struct br_intern *intern, size_t len, uint32_t guess);
