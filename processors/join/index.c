/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/index.h"

#include "processors/join/slots.h"

/* --- One record --------------------------------------------------------------------------------
 */

/* Takes the figures of a span's earlier record: of samples that came first, or of the same span
 * that is sent again. */
static uint32_t take_over(struct join_table *t, struct shard *s, struct record *old,
                          const struct record *r, uint32_t now, struct join_tally *out)
{
    uint32_t figures = old->figures;
    if (old->pending && expired(t, old, now)) {
        join_record_leave(t, s, old, now, out);
        return 0;
    }
    if (old->pending) {
        struct join_figures *f = figures_at(t, s, figures);
        tally_figures(out->late, f, out);
        if (out->on_adopted) {
            const struct join_span span = span_of(r);
            out->on_adopted(out->arg, &span, f);
        }
        out->adopted++;
        s->n_pending--;
    } else {
        s->n_spans--;
    }
    old->figures = 0;
    old->dead = true;
    return figures;
}

static inline struct home home_at(const struct join_coming *c)
{
    return (struct home){.bucket = c->bucket, .tag = c->tag};
}

/* Puts it in the place of an earlier record of the same span; false when there is none. */
__attribute__((noinline)) static bool replace(struct join_table *t, struct shard *s,
                                              const struct join_coming *c, uint32_t now,
                                              struct join_tally *out)
{
    struct record *r = c->record;
    struct home home = home_at(c);
    struct place place =
        join_slots_find(s, home, r->head.span_id, r->has_trace ? r->head.trace_id : NULL);
    struct record *old = record_at(s, &place);
    if (!old)
        return false;
    r->figures = take_over(t, s, old, r, now, out);
    set_slot(place.bucket, (unsigned)place.slot, home.tag, c->position);
    if (place.bucket != home.bucket)
        set_spilled(home.bucket, c->position);
    return true;
}

static inline void enter(struct join_table *t, struct shard *s, const struct join_coming *c,
                         uint32_t now, struct join_tally *out)
{
    struct home home = home_at(c);
    if (!is_new(s, home) && replace(t, s, c, now, out))
        return;
    struct place place = spare(s, home);
    if (live(s, place.bucket, (unsigned)place.slot))
        join_record_leave(t, s, record_at(s, &place), now, out);
    fill(home, &place, c->position);
}

/* Makes it the newest of its trace and service, and of its thread. */
static inline void chain(struct join_table *t, struct shard *s, const struct join_coming *c)
{
    struct record *r = c->record;
    uint32_t shard = (uint32_t)(s - t->shards);
    uint64_t before = 0;
    if (c->in_family)
        before = join_chain_enter(t, &t->families[c->family], shard, c->position);
    r->before = before & PLACE_MASK;
    if (!r->located)
        return;
    struct whereabouts *a = whereabouts_of(r);
    uint64_t hash = thread_hash(t, r->thread, a->process);
    a->before = join_chain_enter(t, &t->threads[hash & t->families_mask], shard, c->position);
}

/* --- Many ---------------------------------------------------------------------------------------
 */

static inline struct join_coming *coming_at(struct join_indexing *ix, uint64_t n)
{
    return &ix->coming[n % (4 * JOIN_INDEX_AHEAD)];
}

/* Chains come several at a time: in a shared table their exchanges wait for everything written
 * before them, and so only the first one has to. */
static void chain_all(struct join_table *t, struct shard *s, struct join_indexing *ix)
{
    while (ix->n_chained < ix->n_entered)
        chain(t, s, coming_at(ix, ix->n_chained++));
}

static inline void enter_next(struct join_table *t, struct shard *s, struct join_indexing *ix,
                              uint32_t now, struct join_tally *out)
{
    enter(t, s, coming_at(ix, ix->n_entered++), now, out);
    if (ix->n_entered - ix->n_chained >= s->ahead)
        chain_all(t, s, ix);
}

/* The next record that is not the rest of a ring, or NULL. */
static inline struct join_coming *see(const struct shard *s, struct join_indexing *ix)
{
    struct record *r;
    uint64_t position;
    do {
        if (ix->seen == s->head)
            return NULL;
        r = (struct record *)(void *)(s->ring + ix->seen_at);
        position = ix->seen;
        forward(s, &ix->seen, &ix->seen_at, size_of(r));
    } while (r->dead);
    struct join_coming *c = coming_at(ix, ix->n_seen++);
    c->record = r;
    c->position = position;
    return c;
}

/* `last`: the record before it, most likely of the same trace; or NULL. */
static inline void find_family(const struct join_table *t, const struct join_coming *last,
                               struct join_coming *c)
{
    const struct record *r = c->record;
    c->in_family = r->before && r->has_trace;
    if (last && memcmp(last->record->head.trace_id, r->head.trace_id, 16) == 0 &&
        last->record->before == r->before)
        c->family = last->family;
    else
        c->family = (uint32_t)(family_hash(t, r->head.trace_id, r->before) & t->families_mask);
    __builtin_prefetch(&t->families[c->family], 1);
}

/* Lines that will be touched are brought on the way, those of slots at once: an address that must
 * be looked up in page tables holds up what comes behind it, and so do several no longer. */
void join_index_next(struct join_table *t, struct shard *s, struct join_indexing *ix, uint32_t now,
                     struct join_tally *out)
{
    uint64_t first = ix->n_seen;
    struct join_coming *c;
    for (unsigned n = join_index_group(s); n && (c = see(s, ix)); n--) {
        struct home home = home_of(s, mix(t, c->record->head.span_id));
        __builtin_prefetch(home.bucket, 1);
        c->bucket = home.bucket;
        c->tag = home.tag;
    }
    for (uint64_t n = first; n < ix->n_seen; n++)
        find_family(t, n ? coming_at(ix, n - 1) : NULL, coming_at(ix, n));
    while (ix->n_seen - ix->n_entered > s->ahead)
        enter_next(t, s, ix, now, out);
}

void join_index_finish(struct join_table *t, struct shard *s, struct join_indexing *ix,
                       uint32_t now, struct join_tally *out)
{
    while (ix->n_entered < ix->n_seen)
        enter_next(t, s, ix, now, out);
    chain_all(t, s, ix);
}

void join_index_begin(const struct shard *s, struct join_indexing *ix)
{
    ix->n_seen = ix->n_entered = ix->n_chained = 0;
    ix->seen = s->head;
    ix->seen_at = s->head_at;
}
