/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slow against typical of one operation: its spans at or over the 95th percentile of duration
 * against those from the 40th to the 60th, each with its local subtree, per span.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"

#define SPANS_MAX (4u << 20) /* of the operation: their durations are sorted */
#define SIDE_MAX 50          /* spans of a side whose subtrees are read, evenly over it */
#define EXAMPLES_MAX 5
#define FUNCTIONS_MAX 30
#define SPANS_MIN 5 /* fewer have no percentiles */

/* Spans with these durations, which are sorted, one for each; found by a second pass. */
struct slow_list {
    uint64_t durations_ns[SIDE_MAX];
    struct br_stored_span spans[SIDE_MAX];
    bool found[SIDE_MAX];
    size_t count;
};

struct slow_side {
    const char *name;
    size_t first, count; /* of the durations */
    struct slow_list read, examples;
    size_t n_read; /* spans whose samples are in the flame */
    int64_t cpu_ns;
    struct query_pick pick;
};

struct slow_ask {
    struct query_job *job;
    uint64_t *durations_ns; /* of all spans, sorted */
    size_t count;
    uint32_t cap;
    struct slow_side sides[BR_FLAME_SIDES]; /* typical, slow */
    struct query_braid_types types;
    struct query_braid_figures sums;
    int rc;
};

static int slow_compare(const void *left, const void *right)
{
    uint64_t first = *(const uint64_t *)left, second = *(const uint64_t *)right;
    return (first > second) - (first < second);
}

/* Nearest rank: the first place up to which at least `percent` are. */
static size_t slow_rank(size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100;
    return rank ? rank - 1 : 0;
}

static void slow_divide(struct slow_ask *ask)
{
    size_t count = ask->count, slow = slow_rank(count, 95);
    size_t low = slow_rank(count, 40), high = slow_rank(count, 60);
    while (slow > 0 && ask->durations_ns[slow - 1] == ask->durations_ns[slow])
        slow--;
    if (high >= slow)
        high = slow ? slow - 1 : 0;
    if (low > high)
        low = high;
    ask->sides[0].first = low;
    ask->sides[0].count = slow ? high - low + 1 : 0;
    ask->sides[1].first = slow;
    ask->sides[1].count = count - slow;
}

/* --- Finding the spans ------------------------------------------------------------------------ */

static bool slow_on_duration(const struct br_stored_span *span, void *arg)
{
    struct slow_ask *ask = arg;
    if (ask->count == SPANS_MAX) {
        ask->job->store->note = "there are more spans of this operation than are looked at";
        return false;
    }
    ask->rc = br_grow(&ask->durations_ns, &ask->cap, ask->count + 1, sizeof *ask->durations_ns,
                      SPANS_MAX);
    if (ask->rc)
        return false;
    ask->durations_ns[ask->count++] = span->duration_ns;
    return query_pick_goes_on(ask->job);
}

static void slow_choose(const struct slow_ask *ask, struct slow_side *side)
{
    const uint64_t *durations_ns =
        br_mem_end(ask->durations_ns, side->first * sizeof *ask->durations_ns);
    side->read.count = side->count < SIDE_MAX ? side->count : SIDE_MAX;
    for (size_t i = 0; i < side->read.count; i++)
        side->read.durations_ns[i] = durations_ns[i * side->count / side->read.count];
    side->examples.count = side->count < EXAMPLES_MAX ? side->count : EXAMPLES_MAX;
    for (size_t i = 0; i < side->examples.count; i++)
        side->examples.durations_ns[i] = durations_ns[side->count - side->examples.count + i];
}

static void slow_take(struct slow_list *list, const struct br_stored_span *span)
{
    for (size_t i = 0; i < list->count && list->durations_ns[i] <= span->duration_ns; i++)
        if (list->durations_ns[i] == span->duration_ns && !list->found[i]) {
            list->spans[i] = *span;
            list->found[i] = true;
            return;
        }
}

static bool slow_on_span(const struct br_stored_span *span, void *arg)
{
    struct slow_ask *ask = arg;
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++) {
        slow_take(&ask->sides[i].read, span);
        slow_take(&ask->sides[i].examples, span);
    }
    return query_pick_goes_on(ask->job);
}

/* Ids of spans that `pick` is about: the local subtrees of those that are read. */
static int slow_pick_side(struct slow_ask *ask, struct slow_side *side, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < side->read.count && !rc && query_pick_goes_on(ask->job); i++) {
        const struct br_stored_span *span = &side->read.spans[i];
        struct query_braid_rows trace = {.job = ask->job};
        if (!side->read.found[i])
            continue;
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

/* --- Sums ------------------------------------------------------------------------------------- */

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
    if (query_braid_is_cpu(samples->series->type))
        adder->side->cpu_ns = br_sum(adder->side->cpu_ns, samples->value);
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
    const uint64_t *durations_ns =
        br_mem_end(ask->durations_ns, side->first * sizeof *ask->durations_ns);
    bool more = false;
    br_str_putc(out, before);
    br_str_json(out, side->name, strlen(side->name));
    br_str_printf(out,
                  ":{\"spans\":%zu,\"min_duration_ns\":%" PRIu64 ",\"median_duration_ns\":%" PRIu64
                  ",\"cpu_ns_per_span\":%" PRId64 ",\"examples\":[",
                  side->count, side->count ? durations_ns[0] : 0,
                  side->count ? durations_ns[(side->count - 1) / 2] : 0,
                  slow_per_span(side->cpu_ns, side->n_read));
    for (size_t i = side->examples.count; i-- > 0;) {
        const struct br_stored_span *span = &side->examples.spans[i];
        if (!side->examples.found[i])
            continue;
        if (more)
            br_str_putc(out, ',');
        query_braid_put_trace(out, '{', "trace_id", span->trace_id);
        query_braid_put_span(out, ',', "span_id", span->span_id);
        br_str_printf(out, ",\"duration_ns\":%" PRIu64 "}", span->duration_ns);
        more = true;
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
    if (!ask->count)
        return "there are no spans of this operation in this range of time";
    if (ask->count < SPANS_MIN)
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

static int slow_ask_store(struct slow_ask *ask, struct br_span_filter *filter, struct br_err *err)
{
    int rc = br_store_spans(ask->job->store, filter, slow_on_duration, ask, err);
    if (!rc)
        rc = ask->rc;
    if (rc || ask->count < SPANS_MIN)
        return rc;
    qsort(ask->durations_ns, ask->count, sizeof *ask->durations_ns, slow_compare);
    slow_divide(ask);
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        slow_choose(ask, &ask->sides[i]);
    filter->min_duration_ns = ask->durations_ns[ask->sides[ask->sides[0].count ? 0 : 1].first];
    rc = br_store_spans(ask->job->store, filter, slow_on_span, ask, err);
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++)
        rc = slow_pick_side(ask, &ask->sides[i], err);
    return rc ? rc : slow_sum(ask, err);
}

void query_braid_slow(struct query_job *job)
{
    struct slow_ask ask = {.job = job, .sides = {{.name = "typical"}, {.name = "slow"}}};
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
    br_free(ask.durations_ns);
    query_braid_end(job, rc, &err);
}
