/* SPDX-License-Identifier: Apache-2.0 */
/* The traces side of the join: what samples add up to, onto spans. */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/edit.h"
#include "processors/join/join.h"
#include "processors/join/local.h"
#include "wire/protobuf.h"

#define SPAN_ATTRIBUTES 9 /* field of Span */
#define ARENA_MAX (64u << 20)

enum mark {
    MARK_PYROSCOPE_ID, /* what Grafana's way from a span to its profile looks for */
    MARK_PROFILE_ID,
    MARK_TYPE,
    MARK_COUNT,
    MARK_DURATION,
    MARK_INCLUSIVE_COUNT,
    MARK_INCLUSIVE_DURATION,
    MARK_TOP,
    MARKS,
};

static const char *const keys[MARKS] = {
    "pyroscope.profile.id",          "profile.id",           "profile.type",
    "profile.sample_count",          "profile.duration_us",  "profile.inclusive_sample_count",
    "profile.inclusive_duration_us", "profile.top_functions"};

/* Bits of the keys that the span has already: whoever was first, an SDK's bridge or another join,
 * knows better. */
static unsigned marks_of(const struct br_span *span)
{
    const uint8_t *p = span->body, *end = p + span->body_len;
    struct br_field f, g;
    unsigned has = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        const uint8_t *q = f.data, *stop = f.data + f.value;
        while (f.number == SPAN_ATTRIBUTES && q < stop && (q = br_field_next(q, stop, &g)))
            for (unsigned i = 0; g.number == 1 && i < MARKS; i++)
                if (g.value == strlen(keys[i]) && memcmp(g.data, keys[i], g.value) == 0)
                    has |= 1u << i;
    }
    return has;
}

struct marking {
    struct join *j;
    struct br_arena arena;
    struct join_service service; /* of the part at hand */
    struct join_locals locals;
    uint64_t n_cut; /* spans that the steps were not enough for: without those below them */
    unsigned has;   /* bits, of the span at hand */
    int rc;
};

/* What samples add up to: of the span, and of it and the spans below it. */
struct sums {
    struct join_figures own, all;
    bool any_own, any;
    struct join_top top[JOIN_TOP_MAX]; /* of `all` */
};

static void add_text(struct marking *m, struct br_addition *a, enum mark mark, const char *text,
                     size_t len)
{
    if (!m->rc && len && !(m->has >> mark & 1))
        m->rc = br_add_string(&m->arena, a, SPAN_ATTRIBUTES, keys[mark], text, len);
}

static void add_int(struct marking *m, struct br_addition *a, enum mark mark, uint64_t value)
{
    if (!m->rc && !(m->has >> mark & 1))
        m->rc = br_add_int(&m->arena, a, SPAN_ATTRIBUTES, keys[mark], (int64_t)value);
}

static void add_hex(struct marking *m, struct br_addition *a, enum mark mark, const uint8_t *id,
                    size_t len)
{
    char hex[33];
    struct br_str s = {.data = hex, .cap = sizeof hex, .max = sizeof hex - 1, .fixed = true};
    br_str_hex(&s, id, len);
    add_text(m, a, mark, hex, s.len);
}

static const uint8_t *span_id_of(const struct br_span *span)
{
    return (const uint8_t *)&span->head.span_id;
}

static void add_below(struct marking *m, const struct br_span *span, struct sums *sums)
{
    if (!br_span_has_trace(&span->head) || !m->service.service)
        return;
    const struct join_local *l =
        join_locals_get(&m->locals, span->head.trace_id, m->service.name, m->service.name_len,
                        m->service.service);
    uint32_t top = l && l->figures ? join_local_find(l, span_id_of(span)) : JOIN_NO_SPAN;
    if (!l || (top != JOIN_NO_SPAN && m->locals.steps > JOIN_STEPS_MAX)) {
        m->n_cut += m->locals.steps > JOIN_STEPS_MAX;
        return;
    }
    m->locals.steps += top != JOIN_NO_SPAN ? l->n : 0;
    for (uint32_t i = 0; top != JOIN_NO_SPAN && i < l->n; i++) {
        struct join_figures f;
        struct join_top f_top[JOIN_TOP_MAX];
        if (i == top || !l->spans[i].figures || !join_local_below(l, i, top) ||
            !join_table_figures(m->j->table, span->head.trace_id,
                                (const uint8_t *)&l->spans[i].span_id, &f, f_top))
            continue;
        m->locals.steps += JOIN_STEPS_PER_LOOK + f.n_top * JOIN_TOP_MAX / 2;
        join_figures_add(&sums->all, &f);
        join_figures_add_top(&sums->all, sums->top, JOIN_TOP_MAX, &f, f_top);
        sums->any = true;
    }
}

static void add_up(struct marking *m, const struct br_span *span, struct sums *ret)
{
    memset(&ret->own, 0, sizeof ret->own);
    ret->any_own = ret->any =
        join_table_figures(m->j->table, br_span_has_trace(&span->head) ? span->head.trace_id : NULL,
                           span_id_of(span), &ret->own, ret->top);
    ret->all = ret->own;
    add_below(m, span, ret);
}

static bool is_before(const struct br_addition *a, const struct br_addition *b)
{
    int c = memcmp(a->data, b->data, a->len < b->len ? a->len : b->len);
    return c ? c < 0 : a->len < b->len;
}

/* The functions with the largest values, in order; equal ones by name. */
static void add_top(struct marking *m, struct sums *s, struct br_addition *a)
{
    struct br_addition names[JOIN_TOP_SHOWN_MAX];
    size_t n = 0, most = (size_t)m->j->config->top_functions;
    while (n < most && s->all.n_top) {
        unsigned best = 0;
        struct br_addition best_name = {0};
        for (unsigned i = 0; i < s->all.n_top; i++) {
            struct br_addition name;
            name.data = (const uint8_t *)join_table_function_name(m->j->table, s->top[i].function,
                                                                  &name.len);
            if (i == 0 || s->top[i].value > s->top[best].value ||
                (s->top[i].value == s->top[best].value && is_before(&name, &best_name))) {
                best = i;
                best_name = name;
            }
        }
        names[n++] = best_name;
        s->top[best] = s->top[--s->all.n_top];
    }
    if (n && !m->rc && !(m->has >> MARK_TOP & 1))
        m->rc = br_add_texts(&m->arena, a, SPAN_ATTRIBUTES, keys[MARK_TOP], names, n);
}

static void add_types(struct marking *m, const struct join_figures *f, struct br_addition *a)
{
    struct br_str types = {.max = 2048};
    for (unsigned i = 0; i < JOIN_SPAN_TYPES && f->types[i].used; i++)
        br_str_printf(&types, "%s%s", i ? "," : "",
                      join_table_type_name(m->j->table, f->types[i].type));
    if (types.failed)
        m->rc = BR_ENOMEM;
    add_text(m, a, MARK_TYPE, types.data, types.len);
    br_str_release(&types);
}

static void add_figures(struct marking *m, const struct br_span *span, struct sums *s,
                        struct br_addition *a)
{
    static const uint8_t none[16];
    enum join_measure measure = join_figures_measure(&s->all);
    if (memcmp(s->all.profile_id, none, sizeof none) != 0)
        add_hex(m, a, MARK_PROFILE_ID, s->all.profile_id, 16);
    else if (br_span_has_trace(&span->head))
        add_hex(m, a, MARK_PROFILE_ID, span->head.trace_id, 16);
    add_types(m, &s->all, a);
    add_int(m, a, MARK_COUNT, s->own.count[measure]);
    if (measure != JOIN_OTHER)
        add_int(m, a, MARK_DURATION, s->own.time_ns[measure] / 1000);
    add_int(m, a, MARK_INCLUSIVE_COUNT, s->all.count[measure]);
    if (measure != JOIN_OTHER)
        add_int(m, a, MARK_INCLUSIVE_DURATION, s->all.time_ns[measure] / 1000);
    add_top(m, s, a);
}

/* What is appended to one span; nothing when there is nothing to say, or no memory. */
static struct br_addition mark_span(struct marking *m, const struct br_span *span, bool figures,
                                    bool likely)
{
    struct br_addition a = {0};
    struct sums sums;
    sums.any = sums.any_own = false;
    if (!span->head.span_id)
        return a;
    if (figures)
        add_up(m, span, &sums);
    if (!sums.any && !likely)
        return a;
    m->has = marks_of(span);
    m->rc = 0;
    if (sums.any)
        add_figures(m, span, &sums, &a);
    /* A profile store has the samples under the span that they name. */
    if (sums.any_own || likely)
        add_hex(m, &a, MARK_PYROSCOPE_ID, sums.any_own ? sums.own.under : span_id_of(span), 8);
    return m->rc ? (struct br_addition){0} : a;
}

void join_mark_spans(struct join *j, struct br_item *item, bool figures)
{
    const struct br_span *spans = join_spans_of(item);
    uint64_t now_ms = br_host_mono_ms(j->node->host);
    struct marking m = {.j = j};
    br_arena_init(&m.arena, ARENA_MAX);
    uint32_t i = 0, n_items = item->n_items;
    m.locals = (struct join_locals){.table = j->table, .cut = j->families_cut};
    struct br_addition *additions =
        spans ? br_arena_calloc(&m.arena, n_items, sizeof *additions) : NULL;
    for (uint32_t p = 0; additions && p < item->n_parts && i < n_items; p++) {
        struct br_part *part = &item->parts[p];
        m.service = join_service_of(part, NULL);
        m.service.name_len = join_cut(m.service.name, m.service.name_len);
        bool likely =
            j->config->mark == JOIN_MARK_LIKELY && join_service_profiled(j, &m.service, now_ms);
        uint32_t first = i, n_marked = 0;
        for (; i < n_items && spans[i].part == p; i++) {
            additions[i] = mark_span(&m, &spans[i], figures, likely);
            n_marked += additions[i].len > 0;
        }
        if (n_marked && br_part_append(item, part, additions + first) == 0)
            *j->marked += n_marked;
    }
    *j->steps_cut += (double)m.n_cut;
    join_locals_release(&m.locals);
    br_arena_release(&m.arena);
}
