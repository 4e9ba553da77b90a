/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/credit.h"

#include <string.h>

#include "processors/join/join.h"
#include "wire/protobuf.h"

void join_found_copy(void *arg, const struct join_span *span)
{
    struct join_found *f = arg;
    f->has_trace = span->trace_id != NULL;
    if (span->trace_id)
        memcpy(f->trace, span->trace_id, sizeof f->trace);
    memcpy(f->span, span->span_id, sizeof f->span);
    f->start_ns = span->start_ns;
    f->end_ns = span->end_ns;
    f->status = span->status;
    f->name_len = span->name_len;
    br_put_bytes(f->name, span->name, span->name_len);
    f->service_len = span->service_len;
    br_put_bytes(f->service, span->service, span->service_len);
    f->attributes_len = span->attributes_len;
    br_put_bytes(f->attributes, span->attributes, span->attributes_len);
}

/* --- Reading ------------------------------------------------------------------------------------
 */

/* The number of the span in its local tree, whose root it is and in which there are others; or
 * JOIN_NO_SPAN. */
static uint32_t read_tree(struct join_credit *c, const struct join_found *named)
{
    c->local = join_locals_get(&c->locals, named->trace, named->service, named->service_len,
                               join_service_hash(named->service, named->service_len));
    c->n_cut += !c->local && c->locals.steps > JOIN_STEPS_MAX;
    uint32_t i = c->local && c->local->n > 1 ? join_local_find(c->local, named->span)
                                             : JOIN_NO_SPAN;
    return i != JOIN_NO_SPAN && !c->local->parents[i] ? i : JOIN_NO_SPAN;
}

static bool read_numbers(struct join_credit *c, const struct join_reading *s)
{
    uint64_t need = s->n_times > s->n_values ? s->n_times : s->n_values;
    if (need > c->cap) {
        uint64_t cap = join_numbers_cap(need);
        c->times = br_arena_alloc(c->arena, cap * sizeof *c->times);
        c->values = br_arena_alloc(c->arena, cap * sizeof *c->values);
        c->cap = c->times && c->values ? cap : 0;
        if (!c->cap)
            return false;
    }
    join_reading_times(s, c->times);
    join_reading_values(s, c->values);
    return true;
}

/* --- Adding -------------------------------------------------------------------------------------
 */

/* A run of timestamps that are one span's. */
struct share {
    uint32_t span;
    uint64_t value, n_times;
};

struct added {
    const struct join_credit *credit;
    const struct join_sample *sample;
};

static void on_added(void *arg, const struct join_span *span)
{
    const struct added *a = arg;
    if (a->credit->on_credited)
        a->credit->on_credited(a->credit->arg, span, a->sample);
}

static bool add(const struct join_credit *c, const struct join_sample *sample)
{
    struct added added = {c, sample};
    return join_table_add(c->locals.table, sample, on_added, &added);
}

static void add_share(struct join_credit *c, const struct join_meaning *m,
                      const struct share *share, bool has_value, const struct join_found *named,
                      const struct join_sample *sample)
{
    struct join_sample own = *sample;
    const uint64_t *id = &c->local->spans[share->span].span_id;
    join_meaning_apply(m, share->value, has_value, share->n_times, &own);
    own.trace_id = named->trace;
    if (br_load64(named->span) != *id) {
        own.span_id = (const uint8_t *)id;
        own.under = named->span;
        own.passed = add(c, &own);
        own.under = NULL;
    }
    own.span_id = named->span;
    (void)(own.passed ? join_table_add(c->locals.table, &own, NULL, NULL) : add(c, &own));
}

/* The span that all timestamps are of, or JOIN_NO_SPAN. Puts each timestamp's span in its place. */
static uint32_t spans_of_times(struct join_credit *c, const struct join_reading *s, uint32_t root)
{
    uint32_t all = JOIN_NO_SPAN;
    bool one = true;
    for (uint64_t i = 0; i < s->n_times; i++) {
        uint32_t span = join_local_open(c->local, root, c->times[i], s->where.v[JOIN_THREAD_ID],
                                        s->where.v[JOIN_THREAD_NAME]);
        one = one && (i == 0 || span == all);
        all = span;
        c->times[i] = span;
    }
    return one ? all : JOIN_NO_SPAN;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* Whether the steps that so many timestamps take are left. */
static bool may_take(struct join_credit *c, uint64_t n_times)
{
    uint64_t steps = n_times * (c->local->n + 1);
    if (c->locals.steps + steps > JOIN_STEPS_MAX) {
        c->n_cut++;
        return false;
    }
    c->locals.steps += steps;
    return true;
}

bool join_credit_below(struct join_credit *c, const struct join_meaning *m,
                       const struct join_reading *s, const struct join_found *named,
                       const struct join_sample *sample)
{
    if (!s->n_times || !named->has_trace || !named->service_len)
        return false;
    uint32_t root = read_tree(c, named);
    if (root == JOIN_NO_SPAN || !may_take(c, s->n_times) || !read_numbers(c, s))
        return false;
    uint32_t one = spans_of_times(c, s, root);
    if (one == root || (one == JOIN_NO_SPAN && s->n_values && s->n_values != s->n_times))
        return false; /* values that are of no timestamp cannot be shared out */
    struct share share = {.span = one, .value = s->value, .n_times = s->n_times};
    if (one == JOIN_NO_SPAN) {
        share = (struct share){.span = (uint32_t)c->times[0]};
        for (uint64_t i = 0; i < s->n_times; i++) {
            if (c->times[i] != share.span) {
                add_share(c, m, &share, s->n_values, named, sample);
                share = (struct share){.span = (uint32_t)c->times[i]};
            }
            share.n_times++;
            if (s->n_values && (int64_t)c->values[i] > 0)
                share.value = plus(share.value, c->values[i]);
        }
    }
    add_share(c, m, &share, s->n_values, named, sample);
    return true;
}
