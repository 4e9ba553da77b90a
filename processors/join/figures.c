/* SPDX-License-Identifier: Apache-2.0 */
/* What samples add up to. */
#include "processors/join/table_internal.h"

struct join_figures *figures_of(const struct join_table *t, struct shard *s, struct record *r,
                                bool make)
{
    if (r->figures)
        return figures_at(t, s, r->figures);
    if (!make || !any_figures(s))
        return NULL;
    r->figures = s->free_figures ? s->free_figures : ++s->used_figures;
    struct join_figures *f = figures_at(t, s, r->figures);
    if (r->figures == s->free_figures)
        s->free_figures = f->types[0].waiting;
    memset(f, 0, sizeof *f);
    return f;
}

void free_figures(const struct join_table *t, struct shard *s, struct record *r)
{
    if (!r->figures)
        return;
    figures_at(t, s, r->figures)->types[0].waiting = s->free_figures;
    s->free_figures = r->figures;
    r->figures = 0;
}

void tally_figures(uint64_t *by_type, struct join_figures *f, struct join_tally *out)
{
    out->any = true;
    for (unsigned i = 0; i < JOIN_SPAN_TYPES; i++) {
        by_type[f->types[i].type] += f->types[i].waiting;
        f->types[i].waiting = 0;
    }
}

static void add_type(struct join_figures *f, uint16_t type, bool waits)
{
    unsigned i = 0;
    while (i < JOIN_SPAN_TYPES && f->types[i].used && f->types[i].type != type)
        i++;
    if (i == JOIN_SPAN_TYPES) {
        i--;
        type = JOIN_TYPES - 1;
    }
    f->types[i].type = type;
    f->types[i].used = true;
    f->types[i].waiting += waits;
}

static void add_count(uint32_t *sum, uint32_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = UINT32_MAX;
}

static void add_amount(uint64_t *sum, uint64_t n)
{
    if (__builtin_add_overflow(*sum, n, sum))
        *sum = UINT64_MAX;
}

/* --- Functions ----------------------------------------------------------------------------------
 */

/* Whether values of that measure and type are what the counters count: those of the better measure
 * push out what was counted before, for seconds and bytes do not add up. */
static bool counts_towards(struct join_figures *f, enum join_measure measure, uint16_t type)
{
    if (f->n_top && measure == f->top_measure)
        return type == f->top_type;
    if (f->n_top && measure > f->top_measure)
        return false;
    f->n_top = 0;
    f->top_measure = (uint8_t)measure;
    f->top_type = type;
    return true;
}

/* Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in data
 * streams": where no counter is free, the newcomer takes the smallest over with what it has. */
void join_top_add(struct join_top *top, unsigned max, uint8_t *n, uint32_t function, uint64_t value)
{
    unsigned least = 0;
    for (unsigned i = 0; i < *n; i++) {
        if (top[i].function == function) {
            add_amount(&top[i].value, value);
            return;
        }
        if (top[i].value < top[least].value)
            least = i;
    }
    if (*n < max) {
        top[(*n)++] = (struct join_top){.value = value, .function = function};
        return;
    }
    top[least].function = function;
    add_amount(&top[least].value, value);
}

/* --- Samples ------------------------------------------------------------------------------------
 */

/* Whether samples that name the span itself were added before. */
static bool is_own(const struct join_figures *f, const struct join_sample *s)
{
    return memcmp(f->under, s->span_id, sizeof f->under) == 0;
}

void add_to_figures(const struct join_table *t, struct join_figures *f, const struct join_sample *s,
                    bool waits)
{
    memcpy(f->under, s->under && !is_own(f, s) ? s->under : s->span_id, sizeof f->under);
    add_type(f, s->type, waits);
    if (s->profile_id)
        memcpy(f->profile_id, s->profile_id, 16);
    if (s->passed) {
        if (s->measure < JOIN_WALL_TIME)
            add_amount(&f->passed_ns[s->measure], s->time_ns);
        return;
    }
    add_count(&f->count[s->measure], s->count);
    if (s->measure < JOIN_OTHER)
        add_amount(&f->time_ns[s->measure], s->time_ns);
    if (s->allocated_bytes)
        add_amount(&f->allocated_bytes, s->allocated_bytes);
    if (t->n_top && s->function && counts_towards(f, s->measure, s->type))
        join_top_add(top_of(f), t->n_top, &f->n_top, s->function, s->value);
}

uint64_t join_figures_cpu_ns(const struct join_figures *f)
{
    uint64_t ns[JOIN_WALL_TIME];
    for (unsigned m = 0; m < JOIN_WALL_TIME; m++) {
        ns[m] = f->time_ns[m];
        add_amount(&ns[m], f->passed_ns[m]);
    }
    return ns[JOIN_CPU_TIME] ? ns[JOIN_CPU_TIME] : ns[JOIN_CPU_COUNT];
}

enum join_measure join_figures_measure(const struct join_figures *f)
{
    return f->count[JOIN_CPU_TIME]    ? JOIN_CPU_TIME
           : f->count[JOIN_CPU_COUNT] ? JOIN_CPU_COUNT
           : f->count[JOIN_WALL_TIME] ? JOIN_WALL_TIME
                                      : JOIN_OTHER;
}

void join_figures_add(struct join_figures *into, const struct join_figures *from)
{
    static const uint8_t none[16];
    for (unsigned m = 0; m < JOIN_MEASURES; m++)
        add_count(&into->count[m], from->count[m]);
    for (unsigned m = 0; m < JOIN_OTHER; m++)
        add_amount(&into->time_ns[m], from->time_ns[m]);
    add_amount(&into->allocated_bytes, from->allocated_bytes);
    for (unsigned i = 0; i < JOIN_SPAN_TYPES && from->types[i].used; i++)
        add_type(into, from->types[i].type, false);
    if (memcmp(into->profile_id, none, sizeof none) == 0)
        memcpy(into->profile_id, from->profile_id, sizeof into->profile_id);
}

void join_figures_add_top(struct join_figures *into, struct join_top *into_top, unsigned max,
                          const struct join_figures *from, const struct join_top *from_top)
{
    if (!from->n_top || !counts_towards(into, (enum join_measure)from->top_measure, from->top_type))
        return;
    for (unsigned i = 0; i < from->n_top; i++)
        join_top_add(into_top, max, &into->n_top, from_top[i].function, from_top[i].value);
}
