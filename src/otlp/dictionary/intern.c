/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/intern.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"

#define SLOTS_MIN 64u
#define BYTES_MIN 256u
/* a table with less than one entry per SPARSE slots is cleared entry by entry */
#define SPARSE 16u
/* Size in bytes up to which an array doubles when it grows; a larger array grows by half. */
#define DOUBLED_MAX (64u << 10)

int br_budget_grow(struct br_budget *budget, void *items, uint32_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    size_t had = *cap * size;
    size_t most = br_budget_resized(budget, had) / size;
    if (most > UINT32_MAX)
        most = UINT32_MAX;
    if (need > most)
        return BR_EFULL;
    size_t more = had < DOUBLED_MAX ? *cap : *cap / 2, want = *cap + more;
    if (want < need)
        want = need;
    if (want > most)
        want = most;
    void *old;
    memcpy(&old, items, sizeof old);
    void *p = br_realloc(old, want * size);
    if (!p)
        return BR_ENOMEM;
    memcpy(items, &p, sizeof p);
    budget->used += want * size - had;
    *cap = (uint32_t)want;
    return 0;
}

void br_budget_free(struct br_budget *budget, void *items, uint32_t *cap, size_t size)
{
    void *p;
    memcpy(&p, items, sizeof p);
    br_free(p);
    p = NULL;
    memcpy(items, &p, sizeof p);
    budget->used -= *cap * size;
    *cap = 0;
}

/* Returns the slot of the entry that equals `body`, or the empty slot where the entry would be
 * inserted. */
static inline struct br_intern_slot *intern_slot(const struct br_intern *intern,
                                                 const uint8_t *body, size_t len, uint32_t hash)
{
    uint32_t mask = intern->n_slots - 1, at = hash & mask;
    struct br_intern_slot *slot = &intern->slots[at];
    while (slot->index &&
           (slot->hash != hash || !br_intern_is(intern, slot->index - 1, body, len))) {
        at = (at + 1) & mask;
        slot = &intern->slots[at];
    }
    return slot;
}

static inline uint32_t intern_find_hashed(const struct br_intern *intern, const uint8_t *body,
                                          size_t len, uint32_t hash)
{
    uint32_t index = intern_slot(intern, body, len, hash)->index;
    return index ? index - 1 : BR_INTERN_NONE;
}

uint32_t br_intern_find(const struct br_intern *intern, const uint8_t *body, size_t len,
                        uint32_t guess, uint32_t *ret_hash)
{
    br_steps_add(len);
    if (br_intern_is(intern, guess, body, len))
        return guess;
    *ret_hash = (uint32_t)br_hash_keyed(intern->secret, body, len);
    return intern_find_hashed(intern, body, len, *ret_hash);
}

/* Returns the index + 1 of the first entry with the hash, or 0 if no entry has the hash. */
static inline uint32_t intern_first(const struct br_intern *intern, uint32_t hash)
{
    uint32_t mask = intern->n_slots - 1, at = hash & mask;
    while (intern->slots[at].index && intern->slots[at].hash != hash)
        at = (at + 1) & mask;
    return intern->slots[at].index;
}

void br_intern_find_many(const struct br_intern *intern, const struct br_intern_text *texts,
                         uint32_t count, uint32_t *ret)
{
    uint32_t hashes[BR_INTERN_MANY], firsts[BR_INTERN_MANY];
    for (uint32_t i = 0; i < count; i++) {
        br_steps_add(texts[i].len);
        hashes[i] = (uint32_t)br_hash_keyed(intern->secret, texts[i].data, texts[i].len);
        __builtin_prefetch(&intern->slots[hashes[i] & (intern->n_slots - 1)]);
    }
    for (uint32_t i = 0; i < count; i++) {
        firsts[i] = intern_first(intern, hashes[i]);
        __builtin_prefetch(&intern->entries[firsts[i] ? firsts[i] - 1 : 0]);
    }
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(intern->bytes + intern->entries[firsts[i] ? firsts[i] - 1 : 0].at);
    for (uint32_t i = 0; i < count; i++) {
        ret[i] = firsts[i] ? firsts[i] - 1 : BR_INTERN_NONE;
        if (firsts[i] && !br_intern_is(intern, ret[i], texts[i].data, texts[i].len))
            ret[i] = intern_find_hashed(intern, texts[i].data, texts[i].len, hashes[i]);
    }
}

/* Returns the first empty slot in which an entry with the hash may be stored. */
static inline struct br_intern_slot *intern_empty(const struct br_intern *intern, uint32_t hash)
{
    uint32_t mask = intern->n_slots - 1, at = hash & mask;
    while (intern->slots[at].index)
        at = (at + 1) & mask;
    return &intern->slots[at];
}

static inline uint32_t intern_append_at(struct br_intern *intern, size_t len, uint32_t hash,
                                        struct br_intern_slot *slot)
{
    uint8_t *start = intern->bytes + intern->len;
    uint32_t index = intern->count++, head = BR_INTERN_HEAD;
    *start = intern->tag;
    if (__builtin_expect(len < 0x80, 1)) {
        start[1] = (uint8_t)len;
    } else {
        head = 1 + (uint32_t)br_varint_size(len);
        memmove(start + head, start + BR_INTERN_HEAD, len);
        br_put_varint(start + 1, len);
    }
    intern->entries[index] =
        (struct br_interned){intern->len + head, (uint32_t)len, hash, BR_INTERN_NONE};
    *slot = (struct br_intern_slot){hash, index + 1};
    intern->len += head + (uint32_t)len;
    return index;
}

uint32_t br_intern_append(struct br_intern *intern, size_t len, uint32_t hash)
{
    return intern_append_at(intern, len, hash, intern_empty(intern, hash));
}

uint32_t br_intern_enter(struct br_intern *intern, size_t len, uint32_t guess)
{
    const uint8_t *body = br_intern_body(intern);
    br_steps_add(len);
    if (br_intern_is(intern, guess, body, len))
        return guess;
    uint32_t hash = (uint32_t)br_hash_keyed(intern->secret, body, len);
    struct br_intern_slot *slot = intern_slot(intern, body, len, hash);
    return slot->index ? slot->index - 1 : intern_append_at(intern, len, hash, slot);
}

static int intern_grow_slots(struct br_intern *intern, struct br_budget *budget)
{
    uint32_t n = intern->n_slots ? intern->n_slots * 2 : SLOTS_MIN;
    size_t had = intern->n_slots * sizeof *intern->slots, want = (size_t)n * sizeof *intern->slots;
    if (n > UINT32_MAX / 2 || want > br_budget_most(budget, had))
        return BR_EFULL;
    struct br_intern_slot *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    br_free(intern->slots);
    intern->slots = slots;
    intern->n_slots = n;
    for (uint32_t i = 0; i < intern->count; i++)
        *intern_empty(intern, intern->entries[i].hash) =
            (struct br_intern_slot){intern->entries[i].hash, i + 1};
    budget->used += want - had;
    return 0;
}

/* Returns the number of entries for which the hash table has enough slots. */
static uint32_t intern_slots_most(const struct br_intern *intern)
{
    return intern->n_slots / 4 * 3;
}

int br_intern_reserve_slow(struct br_intern *intern, struct br_budget *budget, size_t body_max)
{
    size_t need;
    if (!br_size_add((size_t)intern->len + 2 * BR_VARINT_MAX, body_max, &need))
        return BR_EFULL;
    if (need < BYTES_MIN)
        need = BYTES_MIN;
    int rc = br_budget_grow(budget, &intern->bytes, &intern->cap, need, 1);
    if (!rc)
        rc = br_budget_grow(budget, &intern->entries, &intern->cap_entries,
                            (size_t)intern->count + 1, sizeof *intern->entries);
    if (!rc && intern->count >= intern_slots_most(intern))
        rc = intern_grow_slots(intern, budget);
    uint32_t most = intern_slots_most(intern);
    intern->most = most < intern->cap_entries ? most : intern->cap_entries;
    return rc;
}

void br_intern_clear(struct br_intern *intern)
{
    /* Few entries of a large table are removed one by one, so that the time depends on the number
     * of entries. */
    if (intern->count && intern->count < intern->n_slots / SPARSE) {
        br_intern_truncate(intern, 1, intern->entries[0].at + intern->entries[0].len);
        return;
    }
    memset(intern->slots, 0, intern->n_slots * sizeof *intern->slots);
    intern->count = intern->len = 0;
    br_intern_append(intern, 0, (uint32_t)br_hash_keyed(intern->secret, intern->bytes, 0));
}

int br_intern_init(struct br_intern *intern, struct br_budget *budget, uint32_t field)
{
    br_random_bytes(intern->secret, sizeof intern->secret);
    intern->tag = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    int rc = br_intern_reserve(intern, budget, 0);
    if (!rc)
        br_intern_clear(intern);
    return rc;
}

void br_intern_release(struct br_intern *intern, struct br_budget *budget)
{
    br_budget_free(budget, &intern->bytes, &intern->cap, 1);
    br_intern_strip(intern, budget);
    memset(intern, 0, sizeof *intern);
}

void br_intern_strip(struct br_intern *intern, struct br_budget *budget)
{
    br_budget_free(budget, &intern->entries, &intern->cap_entries, sizeof *intern->entries);
    br_budget_free(budget, &intern->slots, &intern->n_slots, sizeof *intern->slots);
    intern->most = 0;
}

/* Slots are always filled in the order of the entries, also when the slots are enlarged. The
 * slot of the last entry can therefore be cleared without moving other entries. Removing entries
 * costs as much as adding them did. */
void br_intern_truncate(struct br_intern *intern, uint32_t count, uint32_t len)
{
    uint32_t mask = intern->n_slots - 1;
    while (intern->count > count) {
        intern->count--;
        uint32_t at = intern->entries[intern->count].hash & mask;
        while (intern->slots[at].index != intern->count + 1)
            at = (at + 1) & mask;
        intern->slots[at].index = 0;
    }
    intern->len = len;
}
