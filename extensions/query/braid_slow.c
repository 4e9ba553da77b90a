/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow against typical of one operation: its spans at or over the 95th percentile of duration
 * against those from the 40th to the 60th, each with its local subtree, per span.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/braid.h"

#define SPANS_MAX 20000 /* of the operation, the newest */
#define SIDE_MAX 50     /* spans of a side whose subtrees are read, evenly over it */
#define EXAMPLES_MAX 5
#define FUNCTIONS_MAX 30
#define SPANS_MIN 5 /* fewer have no percentiles */

struct slow_side {
    const char *name;
    size_t first, count; /* rows, by duration */
    size_t n_read;       /* spans whose samples are in the flame */
    int64_t cpu_ns;
    struct query_pick pick;
};

struct slow_ask {
    struct query_job *job;
    struct query_braid_rows rows;
    struct slow_side sides[BR_FLAME_SIDES]; /* typical, slow */
    struct query_braid_types types;
    struct query_braid_figures sums;
    int rc;
};

static int slow_compare(const void *left, const void *right)
{
    const struct query_braid_row *a = left, *b = right;
    return a->span.duration_ns < b->span.duration_ns ? -1
                                                     : a->span.duration_ns > b->span.duration_ns;
}

/* Nearest rank: the first row of which at least `percent` are at or below. */
static size_t slow_rank(size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100;
    return rank ? rank - 1 : 0;
}

static void slow_divide(struct slow_ask *ask)
{
    size_t count = ask->rows.count, slow = slow_rank(count, 95);
    size_t low = slow_rank(count, 40), high = slow_rank(count, 60);
    while (slow > 0 &&
           ask->rows.rows[slow - 1].span.duration_ns == ask->rows.rows[slow].span.duration_ns)
        slow--;
    if (high >= slow)
        high = slow ? slow - 1 : 0;
    if (low > high)
        low = high;
    ask->sides[0] = (struct slow_side){.name = "typical", .first = low, .count = high - low + 1};
    ask->sides[1] = (struct slow_side){.name = "slow", .first = slow, .count = count - slow};
    if (!slow)
        ask->sides[0].count = 0;
}

/* Ids of spans that `pick` is about: of up to SIDE_MAX of them, evenly chosen. */
static int slow_pick_side(struct slow_ask *ask, struct slow_side *side, struct br_err *err)
{
    size_t n_read = side->count < SIDE_MAX ? side->count : SIDE_MAX;
    int rc = 0;
    for (size_t i = 0; i < n_read && !rc && query_pick_goes_on(ask->job); i++) {
        const struct br_stored_span *span =
            &ask->rows.rows[side->first + i * side->count / n_read].span;
        struct query_braid_rows trace = {.job = ask->job};
        rc = query_braid_read_trace(&trace, span->trace_id, err);
        const struct query_braid_row *row = rc ? NULL : query_braid_find(&trace, span->span_id);
        if (row)
            rc = query_braid_pick_subtree(&trace, row, &side->pick);
        if (!rc)
            rc = query_pick_add_trace(ask->job, &side->pick, span->trace_id);
        query_braid_rows_release(&trace);
        side->n_read += !rc;
    }
    return rc;
}

struct slow_adder {
    struct slow_ask *ask;
    struct slow_side *side;
};

static bool slow_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct slow_adder *adder = arg;
    struct slow_ask *ask = adder->ask;
    ask->rc = query_braid_add(ask->job, &ask->sums,
                              query_braid_type(ask->job, &ask->types, samples->series->type),
                              samples->count, samples->value);
    if (query_braid_is_cpu(samples->series->type) &&
        __builtin_add_overflow(adder->side->cpu_ns, samples->value, &adder->side->cpu_ns))
        adder->side->cpu_ns = INT64_MAX;
    return !ask->rc && query_pick_goes_on(ask->job);
}

/* Adds up what the spans of both sides took, by type. */
static int slow_sum(struct slow_ask *ask, struct br_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        struct slow_adder adder = {ask, &ask->sides[i]};
        if (ask->sides[i].pick.n_span_ids)
            rc = query_pick_samples(ask->job, &ask->sides[i].pick, 0, slow_on_samples, &adder, err);
    }
    return rc ? rc : ask->rc;
}

static int64_t slow_per_span(int64_t value, size_t n_spans)
{
    int64_t count = n_spans ? (int64_t)n_spans : 1;
    return value / count + (value % count * 2 >= count);
}

/* Each side's values become those of one of its spans. */
static int slow_flame(struct slow_ask *ask, const struct br_profile_type *type,
                      struct br_flame *flame, struct br_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        struct slow_side *side = &ask->sides[i];
        side->pick.type = *type;
        flame->side = i;
        if (side->pick.n_span_ids)
            rc = query_pick_flame(ask->job, &side->pick, flame, err);
        for (uint32_t j = 0; j < flame->n_nodes; j++)
            flame->nodes[j].self[i] = slow_per_span(flame->nodes[j].self[i], side->n_read);
    }
    br_flame_total(flame);
    return rc;
}

/* --- The answer ------------------------------------------------------------------------------- */

static void slow_put_side(struct slow_ask *ask, char before, const struct slow_side *side)
{
    struct br_str *out = &ask->job->out;
    const struct query_braid_row *rows = ask->rows.rows + side->first;
    br_str_putc(out, before);
    br_str_json(out, side->name, strlen(side->name));
    br_str_printf(out,
                  ":{\"spans\":%zu,\"min_duration_ns\":%" PRIu64 ",\"median_duration_ns\":%" PRIu64
                  ",\"cpu_ns_per_span\":%" PRId64 ",\"examples\":[",
                  side->count, side->count ? rows[0].span.duration_ns : 0,
                  side->count ? rows[(side->count - 1) / 2].span.duration_ns : 0,
                  slow_per_span(side->cpu_ns, side->n_read));
    for (size_t i = 0; i < side->count && i < EXAMPLES_MAX; i++) {
        const struct br_stored_span *span = &rows[side->count - 1 - i].span;
        if (i)
            br_str_putc(out, ',');
        query_braid_put_trace(out, '{', "trace_id", span->trace_id);
        query_braid_put_span(out, ',', "span_id", span->span_id);
        br_str_printf(out, ",\"duration_ns\":%" PRIu64 "}", span->duration_ns);
    }
    br_str_puts(out, "]}");
}

static int slow_put_functions(struct query_job *job, const struct br_flame *flame)
{
    struct br_function *functions;
    uint32_t count;
    int rc = br_functions_make(flame, BR_FUNCTIONS_BY_DELTA, &job->arena, &functions, &count);
    if (rc)
        return rc;
    br_str_puts(&job->out, ",\"functions\":[");
    for (uint32_t i = 0; i < count && i < FUNCTIONS_MAX; i++) {
        const int64_t *self = functions[i].self;
        if (i)
            br_str_putc(&job->out, ',');
        query_put_text(&job->out, '{', "name", flame->names[functions[i].name]);
        br_str_printf(&job->out,
                      ",\"typical_per_span\":%" PRId64 ",\"slow_per_span\":%" PRId64
                      ",\"delta\":%" PRId64 "}",
                      self[0], self[1], self[1] - self[0]);
    }
    br_str_putc(&job->out, ']');
    return 0;
}

static const char *slow_why_empty(const struct slow_ask *ask, size_t type)
{
    if (!ask->rows.count)
        return "there are no spans of this operation in this range of time";
    if (ask->rows.count < SPANS_MIN)
        return "there are fewer than 5 spans of this operation: ask for a longer time";
    if (!ask->sides[0].count)
        return "all spans of this operation take equally long";
    if (type == BRAID_TYPES_MAX)
        return "no samples lie under the spans of this operation";
    return NULL;
}

static size_t slow_type(struct slow_ask *ask)
{
    const char *text = query_job_param(ask->job, "type");
    if (!text || !*text)
        return query_braid_main_type(&ask->types, &ask->sums);
    for (size_t i = 0; i < ask->types.count; i++)
        if (!strcmp(ask->types.ids[i], text))
            return i;
    return BRAID_TYPES_MAX;
}

static int slow_answer(struct slow_ask *ask, struct br_flame *flame, struct br_err *err)
{
    struct query_job *job = ask->job;
    struct br_flamebearer flamebearer;
    struct br_profile_type type = {0};
    size_t chosen = slow_type(ask);
    const char *id = chosen < BRAID_TYPES_MAX ? ask->types.ids[chosen] : NULL;
    const char *why = slow_why_empty(ask, chosen);
    int rc = id ? br_profile_type_parse(id, strlen(id), &job->arena, &type, err) : 0;
    if (!rc && id)
        rc = slow_flame(ask, &type, flame, err);
    if (!rc)
        rc = br_flamebearer_make(flame, QUERY_BRAID_NODES_MAX, true, &job->arena, &flamebearer);
    if (rc)
        return rc;
    slow_put_side(ask, '{', &ask->sides[1]);
    slow_put_side(ask, ',', &ask->sides[0]);
    query_put_text(&job->out, ',', "type", id ? id : "");
    query_put_text(&job->out, ',', "unit", id ? type.unit : "");
    br_str_puts(&job->out, ",\"flamebearer\":");
    br_flamebearer_json(&job->out, &flamebearer, true);
    rc = slow_put_functions(job, flame);
    if (why)
        query_put_text(&job->out, ',', "why_empty", why);
    else
        br_str_puts(&job->out, ",\"why_empty\":null");
    return rc;
}

static int slow_ask_store(struct slow_ask *ask, const struct br_span_filter *filter,
                          struct br_err *err)
{
    int rc = br_store_spans(ask->job->store, filter, query_braid_rows_add, &ask->rows, err);
    if (!rc)
        rc = ask->rows.rc;
    if (rc || ask->rows.count < SPANS_MIN)
        return rc;
    qsort(ask->rows.rows, ask->rows.count, sizeof *ask->rows.rows, slow_compare);
    slow_divide(ask);
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++)
        rc = slow_pick_side(ask, &ask->sides[i], err);
    return rc ? rc : slow_sum(ask, err);
}

void query_braid_slow(struct query_job *job)
{
    struct slow_ask ask = {.job = job,
                           .rows = {.job = job, .max = SPANS_MAX},
                           .sides = {{.name = "typical"}, {.name = "slow"}}};
    struct br_span_filter filter = {.order = BR_SPANS_NEWEST};
    struct br_flame flame;
    struct br_err err = {0};
    filter.service = query_job_param(job, "service");
    filter.name = query_job_param(job, "name");
    if (!filter.service || !*filter.service || !filter.name || !*filter.name) {
        query_job_fail(job, 400, "service and name (of the operation) must be there");
        return;
    }
    if (!query_braid_range(job, &filter.from_ns, &filter.until_ns))
        return;
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = slow_ask_store(&ask, &filter, &err);
    if (!rc)
        rc = slow_answer(&ask, &flame, &err);
    br_flame_release(&flame);
    query_braid_rows_release(&ask.rows);
    query_braid_end(job, rc, &err);
}
