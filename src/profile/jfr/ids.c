/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "profile/jfr/jfr.h"

#define BITS_MIN 6
#define KEEP_BITS 16   /* slots that a cleared table keeps */
#define KEEP_SMALL 8   /* slots (as a power of two) that it keeps in any case */
#define KEEP_PER_ID 16 /* and that it may have for each entry: emptying it is not to cost more */

/* Multiplication by a secret: ids cannot be chosen to meet. */
static size_t home(const struct br_jfr_ids *t, uint64_t id)
{
    br_jfr_u128 m = (br_jfr_u128)(id ^ t->secret >> 7) * (t->secret | 1);
    return (size_t)(((uint64_t)(m >> 64) ^ (uint64_t)m) >> (64 - t->bits));
}

static struct br_jfr_entry *slot_of(const struct br_jfr_ids *t, uint64_t id)
{
    size_t mask = ((size_t)1 << t->bits) - 1, i = home(t, id);
    while (t->slots[i].at && t->slots[i].id != id)
        i = (i + 1) & mask;
    return &t->slots[i];
}

struct br_jfr_entry *br_jfr_ids_find(const struct br_jfr_ids *t, uint64_t id)
{
    if (!t->n)
        return NULL;
    struct br_jfr_entry *e = slot_of(t, id);
    return e->at ? e : NULL;
}

static int grow(struct br_jfr_ids *t)
{
    struct br_jfr_ids old = *t;
    unsigned bits = old.bits ? old.bits + 1 : BITS_MIN;
    struct br_jfr_entry *slots = br_calloc((size_t)1 << bits, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    if (!old.bits)
        br_random_bytes(&t->secret, sizeof t->secret);
    t->slots = slots;
    t->bits = bits;
    for (size_t i = 0; old.bits && i < (size_t)1 << old.bits; i++)
        if (old.slots[i].at)
            *slot_of(t, old.slots[i].id) = old.slots[i];
    br_free(old.slots);
    return 0;
}

int br_jfr_ids_put(struct br_jfr_ids *t, uint64_t id, uint32_t at)
{
    if (!t->bits || t->n >= ((size_t)1 << t->bits) / 4 * 3) {
        int rc = grow(t);
        if (rc)
            return rc;
    }
    struct br_jfr_entry *e = slot_of(t, id);
    if (!e->at)
        t->n++;
    *e = (struct br_jfr_entry){.id = id, .at = at};
    return 0;
}

void br_jfr_ids_clear(struct br_jfr_ids *t)
{
    if (!t->n)
        return;
    bool loose = (size_t)t->n * KEEP_PER_ID < (size_t)1 << t->bits;
    if (t->bits > KEEP_BITS || (t->bits > KEEP_SMALL && loose)) {
        br_jfr_ids_release(t);
        return;
    }
    memset(t->slots, 0, sizeof *t->slots << t->bits);
    br_steps_add((size_t)1 << t->bits);
    t->n = 0;
}

void br_jfr_ids_release(struct br_jfr_ids *t)
{
    br_free(t->slots);
    *t = (struct br_jfr_ids){0};
}
