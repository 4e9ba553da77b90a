/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/dictionary/intern.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"

#define SLOTS_MIN 64u
#define BYTES_MIN 256u
#define DOUBLED_MAX (64u << 10) /* bytes of an array that still doubles */

void br_budget_widen(struct br_budget *b)
{
    size_t made = b->made ? b->made(b) : 0;
    made = made > b->made_before ? made - b->made_before : 0;
    size_t grant = (made < BR_BUDGET_MADE_MAX ? made : BR_BUDGET_MADE_MAX) * BR_BUDGET_MADE_GROWTH;
    if (grant <= b->granted)
        return;
    br_mem_scope_widen(grant - b->granted);
    b->max += grant - b->granted;
    b->granted = grant;
}

int br_budget_grow(struct br_budget *b, void *items, uint32_t *cap, size_t need, size_t size)
{
    if (need <= *cap)
        return 0;
    size_t had = *cap * size;
    br_budget_widen(b);
    size_t most = br_budget_resized(b, had) / size;
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
    b->used += want * size - had;
    *cap = (uint32_t)want;
    return 0;
}

void br_budget_free(struct br_budget *b, void *items, uint32_t *cap, size_t size)
{
    void *p;
    memcpy(&p, items, sizeof p);
    br_free(p);
    p = NULL;
    memcpy(items, &p, sizeof p);
    b->used -= *cap * size;
    *cap = 0;
}

static inline bool equal(const uint8_t *a, const uint8_t *b, size_t len)
{
    if (len > 16) {
        const uint8_t *last = a + len - 16;
        for (; a < last; a += 16, b += 16) {
            if ((br_load64(a) ^ br_load64(b)) | (br_load64(a + 8) ^ br_load64(b + 8)))
                return false;
        }
        b -= a - last;
        a = last;
        return ((br_load64(a) ^ br_load64(b)) | (br_load64(a + 8) ^ br_load64(b + 8))) == 0;
    }
    if (len >= 8)
        return br_load64(a) == br_load64(b) && br_load64(a + len - 8) == br_load64(b + len - 8);
    if (len >= 4)
        return br_load32(a) == br_load32(b) && br_load32(a + len - 4) == br_load32(b + len - 4);
    return len == 0 || (a[0] == b[0] && a[len >> 1] == b[len >> 1] && a[len - 1] == b[len - 1]);
}

static inline bool is_entry(const struct br_intern *t, uint32_t i, const uint8_t *body, size_t len)
{
    const struct br_interned *e = &t->entries[i];
    return e->len == len && equal(t->bytes + e->at, body, len);
}

uint32_t br_intern_find(const struct br_intern *t, const uint8_t *body, size_t len, uint32_t guess,
                        uint32_t *ret_hash)
{
    br_steps_add(len);
    if (guess < t->n && is_entry(t, guess, body, len))
        return guess;
    uint32_t hash = (uint32_t)br_hash_keyed(t->secret, body, len);
    uint32_t mask = t->n_slots - 1;
    for (uint32_t at = hash & mask; t->slots[at].index; at = (at + 1) & mask) {
        const struct br_intern_slot *s = &t->slots[at];
        if (s->hash == hash && is_entry(t, s->index - 1, body, len))
            return s->index - 1;
    }
    *ret_hash = hash;
    return BR_INTERN_NONE;
}

static void enter(struct br_intern_slot *slots, uint32_t n_slots, uint32_t hash, uint32_t index)
{
    uint32_t at = hash & (n_slots - 1);
    while (slots[at].index)
        at = (at + 1) & (n_slots - 1);
    slots[at] = (struct br_intern_slot){hash, index + 1};
}

uint32_t br_intern_append(struct br_intern *t, size_t len, uint32_t hash)
{
    uint8_t *start = t->bytes + t->len;
    size_t head = 1 + br_varint_size(len);
    if (head != BR_INTERN_HEAD)
        memmove(start + head, start + BR_INTERN_HEAD, len);
    *start = t->tag;
    br_put_varint(start + 1, len);
    t->entries[t->n] = (struct br_interned){t->len + (uint32_t)head, (uint32_t)len, hash};
    enter(t->slots, t->n_slots, hash, t->n);
    t->len += (uint32_t)(head + len);
    return t->n++;
}

static int grow_slots(struct br_intern *t, struct br_budget *b)
{
    uint32_t n = t->n_slots ? t->n_slots * 2 : SLOTS_MIN;
    size_t had = t->n_slots * sizeof *t->slots, want = (size_t)n * sizeof *t->slots;
    br_budget_widen(b);
    if (n > UINT32_MAX / 2 || want > br_budget_most(b, had))
        return BR_EFULL;
    struct br_intern_slot *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < t->n; i++)
        enter(slots, n, t->entries[i].hash, i);
    br_free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    b->used += want - had;
    return 0;
}

int br_intern_reserve_slow(struct br_intern *t, struct br_budget *b, size_t body_max)
{
    size_t need;
    if (!br_size_add((size_t)t->len + 2 * BR_VARINT_MAX, body_max, &need))
        return BR_EFULL;
    if (need < BYTES_MIN)
        need = BYTES_MIN;
    int rc = br_budget_grow(b, &t->bytes, &t->cap, need, 1);
    if (!rc)
        rc = br_budget_grow(b, &t->entries, &t->cap_entries, (size_t)t->n + 1, sizeof *t->entries);
    if (!rc && t->n >= br_intern_most(t))
        rc = grow_slots(t, b);
    return rc;
}

void br_intern_clear(struct br_intern *t)
{
    memset(t->slots, 0, t->n_slots * sizeof *t->slots);
    t->n = t->len = 0;
    br_intern_append(t, 0, (uint32_t)br_hash_keyed(t->secret, t->bytes, 0));
}

int br_intern_init(struct br_intern *t, struct br_budget *b, uint32_t field)
{
    br_random_bytes(t->secret, sizeof t->secret);
    t->tag = (uint8_t)BR_TAG(field, BR_WIRE_LEN);
    int rc = br_intern_reserve(t, b, 0);
    if (!rc)
        br_intern_clear(t);
    return rc;
}

void br_intern_release(struct br_intern *t, struct br_budget *b)
{
    br_budget_free(b, &t->bytes, &t->cap, 1);
    br_intern_strip(t, b);
    memset(t, 0, sizeof *t);
}

void br_intern_strip(struct br_intern *t, struct br_budget *b)
{
    br_budget_free(b, &t->entries, &t->cap_entries, sizeof *t->entries);
    br_budget_free(b, &t->slots, &t->n_slots, sizeof *t->slots);
}

/* Slots are taken in the entries' order, also when they are made anew: so the last one can go without
 * anything having to move, and the work is that of adding what is forgotten. */
void br_intern_truncate(struct br_intern *t, uint32_t n, uint32_t len)
{
    uint32_t mask = t->n_slots - 1;
    while (t->n > n) {
        t->n--;
        uint32_t at = t->entries[t->n].hash & mask;
        while (t->slots[at].index != t->n + 1)
            at = (at + 1) & mask;
        t->slots[at].index = 0;
    }
    t->len = len;
}
