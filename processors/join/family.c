/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Families: the spans of one trace and one service, found from any of them. They lie in all shards,
 * so each record names the one entered before it with the same hash, and `families` has the newest
 * for each hash: eight bytes that one exchange sets. Nothing is taken out when a record leaves its
 * ring: who follows the chain stops at the first place that is not in its ring any more, for what
 * lies behind is older. Other families of the same hash are passed over; steps are bounded.
 */
#include "processors/join/table_internal.h"

#define STEPS_MAX (4 * JOIN_FAMILY_MAX)

/* Goes back from the newest; one lock is held at a time. */
struct walk {
    struct join_table *t;
    struct shard *locked;
    uint64_t place; /* of the next */
};

static void begin(struct walk *w, struct join_table *t, const _Atomic uint64_t *newest)
{
    *w = (struct walk){.t = t, .place = atomic_load_explicit(newest, memory_order_acquire)};
}

/* The next record, under its lock until the next call; NULL behind the last. */
static const struct record *next(struct walk *w)
{
    struct shard *s = &w->t->shards[w->place & (n_shards(w->t) - 1)];
    if (w->locked && (!w->place || s != w->locked)) {
        unlock(w->t, w->locked);
        w->locked = NULL;
    }
    if (!w->place)
        return NULL;
    if (!w->locked)
        lock(w->t, s);
    w->locked = s;
    uint64_t position = whole(s, w->place >> w->t->shard_bits, 48 - w->t->shard_bits);
    return position >= s->tail ? at(s, position) : NULL;
}

static void end(struct walk *w)
{
    if (w->locked)
        unlock(w->t, w->locked);
}

static bool is_of(const struct record *r, const uint8_t *trace_id, const uint8_t *service,
                  size_t service_len)
{
    return !r->dead && r->has_trace && r->service_len == service_len &&
           memcmp(r->head.trace_id, trace_id, 16) == 0 &&
           memcmp((const uint8_t *)(r + 1) + r->name_len, service, service_len) == 0;
}

static struct join_relative relative(const struct record *r)
{
    return (struct join_relative){.span_id = r->head.span_id,
                                  .parent_id = r->head.parent_id,
                                  .start_ns = r->head.start_ns,
                                  .end_ns = r->head.end_ns,
                                  .thread = r->thread,
                                  .thread_name = r->thread_name,
                                  .kind = r->kind,
                                  .figures = r->figures != 0};
}

unsigned join_table_family(struct join_table *t, const uint8_t *trace_id, const uint8_t *service,
                           size_t service_len, uint64_t service_hash, struct join_relative *out,
                           struct join_looked *ret)
{
    uint64_t hash = family_hash(t, trace_id, service_hash & SERVICE_MASK);
    const struct record *r;
    struct walk w;
    unsigned n = 0, step = 0;
    begin(&w, t, &t->families[hash & t->families_mask]);
    for (; (r = next(&w)) && step < STEPS_MAX; step++) {
        bool ours = is_of(r, trace_id, service, service_len);
        if (ours && n == JOIN_FAMILY_MAX)
            break;
        if (ours)
            out[n++] = relative(r);
        w.place = r->before;
    }
    end(&w);
    *ret = (struct join_looked){r != NULL, step};
    return n;
}

static struct join_neighbour neighbour(const struct record *r, const struct whereabouts *a)
{
    struct join_neighbour n = {.span_id = r->head.span_id,
                               .parent_id = r->head.parent_id,
                               .start_ns = r->head.start_ns,
                               .end_ns = r->head.end_ns,
                               .host = a->host,
                               .container = a->container,
                               .service = a->service};
    memcpy(n.trace_id, r->head.trace_id, sizeof n.trace_id);
    return n;
}

unsigned join_table_neighbours(struct join_table *t, uint32_t thread, uint32_t process,
                               struct join_neighbour *out, struct join_looked *ret)
{
    uint64_t hash = thread_hash(t, thread, process);
    const struct record *r = NULL;
    struct walk w;
    unsigned n = 0, step = 0;
    begin(&w, t, &t->threads[hash & t->families_mask]);
    while (step < 2 * JOIN_NEIGHBOURS_MAX && n < JOIN_NEIGHBOURS_MAX && (r = next(&w))) {
        const struct whereabouts *a = whereabouts_of(r);
        if (!r->dead && r->has_trace && r->thread == thread && a->process == process)
            out[n++] = neighbour(r, a);
        w.place = a->before;
        step++;
    }
    end(&w);
    *ret = (struct join_looked){r != NULL, step};
    return n;
}
