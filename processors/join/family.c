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

static bool is_of(const struct record *r, const uint8_t *trace_id, const uint8_t *service,
                  size_t service_len)
{
    return !r->dead && r->has_trace && r->service_len == service_len &&
           memcmp(r->trace_id, trace_id, 16) == 0 &&
           memcmp((const uint8_t *)(r + 1) + r->name_len, service, service_len) == 0;
}

static struct join_relative relative(const struct record *r)
{
    return (struct join_relative){.span_id = r->span_id,
                                  .parent_id = r->parent_id,
                                  .start_ns = r->start_ns,
                                  .end_ns = r->end_ns,
                                  .thread = r->thread,
                                  .thread_name = r->thread_name,
                                  .kind = r->kind,
                                  .figures = r->figures != 0};
}

unsigned join_table_family(struct join_table *t, const uint8_t *trace_id, const uint8_t *service,
                           size_t service_len, uint64_t service_hash, struct join_relative *out)
{
    uint64_t hash = family_hash(t, trace_id, service_hash);
    uint64_t place =
        atomic_load_explicit(&t->families[hash & t->families_mask], memory_order_acquire);
    struct shard *locked = NULL;
    unsigned n = 0;
    for (unsigned step = 0; place && step < STEPS_MAX && n < JOIN_FAMILY_MAX; step++) {
        struct shard *s = &t->shards[place & (SHARDS - 1)];
        uint64_t position = (place >> 4) * 8;
        if (s != locked) {
            if (locked)
                pthread_mutex_unlock(&locked->lock);
            pthread_mutex_lock(&s->lock);
            locked = s;
        }
        if (position < s->tail)
            break;
        const struct record *r = at(s, position);
        if (is_of(r, trace_id, service, service_len))
            out[n++] = relative(r);
        place = 0;
        memcpy(&place, r->before, sizeof r->before);
    }
    if (locked)
        pthread_mutex_unlock(&locked->lock);
    return n;
}
