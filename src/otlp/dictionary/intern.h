/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of a dictionary under construction: a set of entries, indexed by content. This header
 * is private to src/otlp and src/profile.
 *
 * Entries are stored as on the wire (tag, length, body, one after the other), so that a finished
 * table is copied as a whole. The body of a new entry is written directly after the last entry, and
 * is added only if it differs from all existing entries. The hash has a random seed, so that a
 * client cannot choose entries whose hashes collide. Entry 0 of each table is the empty entry.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

/* A memory limit shared by several arrays, in bytes. */
struct br_budget {
    size_t used, max;
    /* if true, the old and the new block both count while an array is moved to a larger block */
    bool moves;
};

/* Returns the size in bytes to which an array that has `had` bytes may grow within the budget. */
static inline size_t br_budget_most(const struct br_budget *budget, size_t had)
{
    return budget->max - budget->used + (budget->moves ? 0 : had);
}

/* Returns the size in bytes to which an array that has `had` bytes may grow within the budget with
 * br_realloc. That function remaps a large array instead of copying it. */
static inline size_t br_budget_resized(const struct br_budget *budget, size_t had)
{
    return had >= BR_MEM_MAPPED ? budget->max - budget->used + had : br_budget_most(budget, had);
}

/* Grows an array like br_grow, within the budget. Returns 0, BR_EFULL or BR_ENOMEM. */
int br_budget_grow(struct br_budget *budget, void *items, uint32_t *cap, size_t need, size_t size);

/* Frees an array that br_budget_grow allocated, and returns its bytes to the budget. */
void br_budget_free(struct br_budget *budget, void *items, uint32_t *cap, size_t size);

struct br_interned {
    uint32_t at;  /* offset of the entry's body in `bytes` of the table */
    uint32_t len; /* length of the entry's body in bytes */
    uint32_t hash;
    uint32_t
        /* index of an entry of another table that referred to this entry; a hint that may be
         * outdated */
        user;
};

struct br_intern_slot {
    uint32_t hash;
    uint32_t index; /* index, plus 1, of the entry; 0: the slot is empty */
};

struct br_intern {
    uint8_t *bytes;
    uint32_t len, cap;
    struct br_interned *entries;
    uint32_t count, cap_entries;
    /* hash table; `n_slots` is a power of two, and at most three quarters of the slots are used */
    struct br_intern_slot *slots;
    uint32_t n_slots;
    uint32_t most; /* number of entries for which `entries` and `slots` are large enough */
    uint8_t tag;
    uint64_t secret[2];
};

#define BR_INTERN_HEAD                                                                             \
    2 /* bytes reserved for tag and length before a body that is being written                     \
       */
#define BR_INTERN_NONE UINT32_MAX

/* Initialises a zeroed table, which then contains only entry 0. `field` is the field number of the
 * table and is less than 16. Returns 0, BR_EFULL or BR_ENOMEM; the table must be released even
 * after a failure. */
int br_intern_init(struct br_intern *intern, struct br_budget *budget, uint32_t field);
void br_intern_release(struct br_intern *intern, struct br_budget *budget);

/* Removes all entries of a table except entry 0. Keeps the memory for reuse. */
void br_intern_clear(struct br_intern *intern);

/* Frees the memory of a table except the bytes of its entries, which can still be copied. After
 * br_intern_strip, only br_intern_release may be called. */
void br_intern_strip(struct br_intern *intern, struct br_budget *budget);

/* Returns the number of bytes that br_intern_strip frees. */
static inline size_t br_intern_strippable(const struct br_intern *intern)
{
    return intern->cap_entries * sizeof *intern->entries + intern->n_slots * sizeof *intern->slots;
}

/* Removes entry `count` (at least 1) and all later entries. Entry `count` starts at byte `len`
 * of the table. */
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

/* Returns the position where the caller writes the body of the next entry. Requires
 * br_intern_reserve. */
static inline uint8_t *br_intern_body(struct br_intern *intern)
{
    return intern->bytes + intern->len + BR_INTERN_HEAD;
}

/* Returns true if `entry` and `body`, of `len` bytes each, are equal. */
static inline bool br_intern_equal(const uint8_t *entry, const uint8_t *body, size_t len)
{
    if (len > 16) {
        const uint8_t *last = entry + len - 16;
        for (; entry < last; entry += 16, body += 16) {
            if ((br_load64(entry) ^ br_load64(body)) | (br_load64(entry + 8) ^ br_load64(body + 8)))
                return false;
        }
        body -= entry - last;
        entry = last;
        return ((br_load64(entry) ^ br_load64(body)) |
                (br_load64(entry + 8) ^ br_load64(body + 8))) == 0;
    }
    if (len >= 8)
        return br_load64(entry) == br_load64(body) &&
               br_load64(entry + len - 8) == br_load64(body + len - 8);
    if (len >= 4)
        return br_load32(entry) == br_load32(body) &&
               br_load32(entry + len - 4) == br_load32(body + len - 4);
    return len == 0 || (entry[0] == body[0] && entry[len >> 1] == body[len >> 1] &&
                        entry[len - 1] == body[len - 1]);
}

/* Returns true if entry `index`, which may be out of range, equals `body`. */
static inline bool br_intern_is(const struct br_intern *intern, uint32_t index, const uint8_t *body,
                                size_t len)
{
    if (index >= intern->count)
        return false;
    const struct br_interned *interned = &intern->entries[index];
    return interned->len == len && br_intern_equal(intern->bytes + interned->at, body, len);
}

/* Returns the index of the entry that equals `body`. If no entry is equal, returns
 * BR_INTERN_NONE and stores the hash in `*ret_hash`. Entry `guess`, which may be out of range,
 * is compared first, without hashing. */
uint32_t br_intern_find(const struct br_intern *intern, const uint8_t *body, size_t len,
                        uint32_t guess, uint32_t *ret_hash);

#define BR_INTERN_MANY 8u

struct br_intern_text {
    const uint8_t *data;
    size_t len;
};

/* Looks up at most BR_INTERN_MANY texts, like br_intern_find without guesses, and stores their
 * indices in `ret`. The memory that the lookups need is prefetched, so that their cache misses
 * overlap. */
void br_intern_find_many(const struct br_intern *intern, const struct br_intern_text *texts,
                         uint32_t count, uint32_t *ret);

/* Adds the `len` bytes at br_intern_body as a new entry and returns its index. Requires
 * br_intern_reserve. The table must not contain an equal entry. */
uint32_t br_intern_append(struct br_intern *intern, size_t len, uint32_t hash);

/* Returns the index of the entry that equals the `len` bytes at br_intern_body. Adds the bytes at
 * br_intern_body as a new entry if no entry is equal. Requires br_intern_reserve. Entry `guess`,
 * which may be out of range, is compared first. */
uint32_t br_intern_enter(struct br_intern *intern, size_t len, uint32_t guess);
