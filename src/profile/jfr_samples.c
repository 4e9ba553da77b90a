/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "profile/jfr_convert.h"

int br_jfr_samples_init(struct br_jfr_samples *s, bool fold)
{
    s->fold = fold;
    br_random_bytes(&s->secret, sizeof s->secret);
    int rc = br_grow(&s->tags, &s->tags_cap, 1, sizeof *s->tags, UINT32_MAX);
    if (!rc)
        rc = br_grow(&s->threads, &s->threads_cap, 1, sizeof *s->threads, UINT32_MAX);
    if (rc)
        return rc;
    s->tags[s->n_tags++] = (struct br_jfr_tags){0};
    s->threads[s->n_threads++] = (struct br_jfr_thread){0};
    return 0;
}

void br_jfr_samples_release(struct br_jfr_samples *s)
{
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++) {
        br_free(s->tables[i].v);
        br_free(s->tables[i].slots);
    }
    br_free(s->tags);
    br_free(s->tag_slots);
    br_free(s->threads);
    *s = (struct br_jfr_samples){0};
}

/* One step of a keyed multiplicative hash: what is mixed cannot be chosen to meet. */
static uint64_t mix(const struct br_jfr_samples *s, uint64_t h, uint64_t v)
{
    br_jfr_u128 m = (br_jfr_u128)(h ^ v ^ s->secret) * (s->secret << 1 | 1);
    return (uint64_t)(m >> 64) ^ (uint64_t)m;
}

static uint64_t hash_tags(const struct br_jfr_samples *s, const struct br_jfr_tags *t)
{
    uint64_t h = mix(s, t->context, t->span_id);
    h = mix(s, h, t->span_name);
    h = mix(s, h, t->trace_hi);
    return mix(s, h, t->trace_lo);
}

static uint64_t hash_key(const struct br_jfr_samples *s, const struct br_jfr_key *k)
{
    return mix(s, k->thread, (uint64_t)k->stack << 32 | k->tags);
}

static bool tags_equal(const struct br_jfr_tags *a, const struct br_jfr_tags *b)
{
    return a->span_id == b->span_id && a->span_name == b->span_name && a->context == b->context &&
           a->trace_hi == b->trace_hi && a->trace_lo == b->trace_lo;
}

/* Twice the slots; `*ret` is zeroed. */
static int more_slots(size_t n_slots, uint32_t **ret, size_t *ret_n)
{
    size_t n = n_slots ? n_slots * 2 : 64;
    uint32_t *slots = br_calloc(n, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    *ret = slots;
    *ret_n = n;
    return 0;
}

static uint32_t *free_slot(uint32_t *slots, size_t n, uint64_t hash)
{
    size_t i = hash & (n - 1);
    while (slots[i])
        i = (i + 1) & (n - 1);
    return &slots[i];
}

static int rehash_tags(struct br_jfr_samples *s)
{
    uint32_t *slots;
    size_t n;
    int rc = more_slots(s->n_tag_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 1; i < s->n_tags; i++)
        *free_slot(slots, n, hash_tags(s, &s->tags[i])) = i + 1;
    br_free(s->tag_slots);
    s->tag_slots = slots;
    s->n_tag_slots = n;
    return 0;
}

int br_jfr_tags_add(struct br_jfr_samples *s, const struct br_jfr_tags *tags, uint32_t *ret)
{
    if (tags_equal(tags, &s->tags[0])) {
        *ret = 0;
        return 0;
    }
    if (s->n_tags >= s->n_tag_slots / 2) {
        int rc = rehash_tags(s);
        if (rc)
            return rc;
    }
    size_t mask = s->n_tag_slots - 1, i = hash_tags(s, tags) & mask;
    for (; s->tag_slots[i]; i = (i + 1) & mask)
        if (tags_equal(&s->tags[s->tag_slots[i] - 1], tags)) {
            *ret = s->tag_slots[i] - 1;
            return 0;
        }
    int rc = br_grow(&s->tags, &s->tags_cap, (size_t)s->n_tags + 1, sizeof *s->tags, UINT32_MAX);
    if (rc)
        return rc;
    s->tags[s->n_tags] = *tags;
    *ret = s->n_tags++;
    s->tag_slots[i] = *ret + 1;
    return 0;
}

static int rehash(const struct br_jfr_samples *s, struct br_jfr_table *t)
{
    uint32_t *slots;
    size_t n;
    int rc = more_slots(t->n_slots, &slots, &n);
    if (rc)
        return rc;
    for (uint32_t i = 0; i < t->n; i++)
        *free_slot(slots, n, hash_key(s, &t->v[i].key)) = i + 1;
    br_free(t->slots);
    t->slots = slots;
    t->n_slots = n;
    return 0;
}

static bool key_equal(const struct br_jfr_key *a, const struct br_jfr_key *b)
{
    return a->stack == b->stack && a->tags == b->tags && a->thread == b->thread;
}

static int append(struct br_jfr_table *t, const struct br_jfr_sample *sample)
{
    int rc = br_grow(&t->v, &t->cap, (size_t)t->n + 1, sizeof *t->v, UINT32_MAX);
    if (!rc)
        t->v[t->n++] = *sample;
    return rc;
}

int br_jfr_sample_add(struct br_jfr_samples *s, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample)
{
    struct br_jfr_table *t = &s->tables[kind];
    if (!s->fold)
        return append(t, sample);
    if (t->n >= t->n_slots / 2) {
        int rc = rehash(s, t);
        if (rc)
            return rc;
    }
    size_t mask = t->n_slots - 1, i = hash_key(s, &sample->key) & mask;
    for (; t->slots[i]; i = (i + 1) & mask) {
        struct br_jfr_sample *same = &t->v[t->slots[i] - 1];
        if (!key_equal(&same->key, &sample->key))
            continue;
        for (int k = 0; k < 2; k++) /* wraps where jfr-parser's wraps */
            same->values[k] = (int64_t)((uint64_t)same->values[k] + (uint64_t)sample->values[k]);
        return 0;
    }
    int rc = append(t, sample);
    if (!rc)
        t->slots[i] = t->n;
    return rc;
}
