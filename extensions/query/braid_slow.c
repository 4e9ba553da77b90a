/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares slow spans of one operation with typical spans: figures per span, and figures of local
 * subtrees. Slow spans are at or above the 95th percentile of duration; typical ones are between
 * the 40th and the 60th.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"

#define SPANS_MAX                                                                                  \
    (4u << 20) /* maximum number of spans of the operation whose durations are sorted */
/* maximum number of slow spans, and of typical spans, whose subtrees are read; these spans are
 * chosen at equal distances in the order of duration */
#define SIDE_MAX 50
#define EXAMPLES_MAX 5
#define FUNCTIONS_MAX 30
#define SPANS_MIN 5 /* minimum number of spans from which percentiles are computed */

/* Durations of chosen spans, in ascending order. A second pass over the store finds one span for
 * each duration. */
struct slow_list {
    uint64_t durations_ns[SIDE_MAX];
    struct br_stored_span spans[SIDE_MAX];
    bool found[SIDE_MAX];
    size_t count;
};

struct slow_side {
    const char *name;
    /* the side's part of report->durations_ns: index of the first span, and number of spans */
    size_t first, count;
    struct slow_list read, examples;
    size_t n_read; /* number of spans of this side whose samples are in the flame graph */
    int64_t cpu_ns;
    struct query_selection selection;
};

struct slow_report {
    struct query_job *job;
    uint64_t *durations_ns; /* durations of all spans of the operation, sorted */
    size_t count;
    uint32_t cap;
    /* sides[0] are the typical spans, sides[1] the slow spans */
    struct slow_side sides[BR_FLAME_SIDES];
    struct query_braid_types types;
    struct query_braid_figures sums;
    int rc;
};

static int slow_compare(const void *left, const void *right)
{
    uint64_t first = *(const uint64_t *)left, second = *(const uint64_t *)right;
    return (first > second) - (first < second);
}

/* Returns an index in sorted values by nearest rank: at least `percent` of the values are at or
 * before this index. */
static size_t slow_rank(size_t count, size_t percent)
{
    size_t rank = (count * percent + 99) / 100;
    return rank ? rank - 1 : 0;
}

static void slow_divide(struct slow_report *report)
{
    size_t count = report->count, slow = slow_rank(count, 95);
    size_t low = slow_rank(count, 40), high = slow_rank(count, 60);
    while (slow > 0 && report->durations_ns[slow - 1] == report->durations_ns[slow])
        slow--;
    if (high >= slow)
        high = slow ? slow - 1 : 0;
    if (low > high)
        low = high;
    report->sides[0].first = low;
    report->sides[0].count = slow ? high - low + 1 : 0;
    report->sides[1].first = slow;
    report->sides[1].count = count - slow;
}

/* --- Finding the spans ----------------------------------------------------------------------- */

static bool slow_on_duration(const struct br_stored_span *span, void *arg)
{
    struct slow_report *report = arg;
    if (report->count == SPANS_MAX) {
        report->job->store->note = "there are more spans of this operation than one query reads";
        return false;
    }
    report->rc = br_grow(&report->durations_ns, &report->cap, report->count + 1,
                         sizeof *report->durations_ns, SPANS_MAX);
    if (report->rc)
        return false;
    report->durations_ns[report->count++] = span->duration_ns;
    return query_job_may_continue(report->job);
}

static void slow_choose_spans(const struct slow_report *report, struct slow_side *side)
{
    const uint64_t *durations_ns =
        br_mem_end(report->durations_ns, side->first * sizeof *report->durations_ns);
    side->read.count = side->count < SIDE_MAX ? side->count : SIDE_MAX;
    for (size_t i = 0; i < side->read.count; i++)
        side->read.durations_ns[i] = durations_ns[i * side->count / side->read.count];
    side->examples.count = side->count < EXAMPLES_MAX ? side->count : EXAMPLES_MAX;
    for (size_t i = 0; i < side->examples.count; i++)
        side->examples.durations_ns[i] = durations_ns[side->count - side->examples.count + i];
}

static void slow_list_add(struct slow_list *list, const struct br_stored_span *span)
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
    struct slow_report *report = arg;
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++) {
        slow_list_add(&report->sides[i].read, span);
        slow_list_add(&report->sides[i].examples, span);
    }
    return query_job_may_continue(report->job);
}

/* Selects the samples of the spans in side->read, and of their local subtrees. */
static int slow_select_side(struct slow_report *report, struct slow_side *side, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < side->read.count && !rc && query_job_may_continue(report->job); i++) {
        const struct br_stored_span *span = &side->read.spans[i];
        struct query_braid_rows trace = {.job = report->job};
        if (!side->read.found[i])
            continue;
        rc = query_braid_read_trace(&trace, span->trace_id, err);
        const struct query_braid_row *row = rc ? NULL : query_braid_find(&trace, span->span_id);
        if (row)
            rc = query_braid_select_subtree(&trace, row, &side->selection);
        if (!rc)
            rc = query_selection_add_trace(report->job, &side->selection, span->trace_id);
        query_braid_rows_release(&trace);
        side->n_read += !rc;
    }
    return rc;
}

/* --- Sums ------------------------------------------------------------------------------------ */

struct slow_adder {
    struct slow_report *report;
    struct slow_side *side;
};

static bool slow_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct slow_adder *adder = arg;
    struct slow_report *report = adder->report;
    report->rc =
        query_braid_add(report->job, &report->sums,
                        query_braid_type(report->job, &report->types, samples->series->type),
                        samples->count, samples->value);
    if (query_braid_is_cpu(samples->series->type))
        adder->side->cpu_ns = br_sum(adder->side->cpu_ns, samples->value);
    return !report->rc && query_job_may_continue(report->job);
}

/* Adds up the samples of both sides by profile type. */
static int slow_sum(struct slow_report *report, struct br_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        struct slow_adder adder = {report, &report->sides[i]};
        if (report->sides[i].selection.n_span_ids)
            rc = query_selection_samples(report->job, &report->sides[i].selection, 0,
                                         slow_on_samples, &adder, err);
    }
    return rc ? rc : report->rc;
}

static int64_t slow_per_span(int64_t value, size_t n_spans)
{
    int64_t count = n_spans ? (int64_t)n_spans : 1;
    return value / count + (value % count * 2 >= count);
}

/* Makes a flame graph of both sides; the values of each side are divided by the number of spans
 * of that side. */
static int slow_flame(struct slow_report *report, const struct br_profile_type *type,
                      struct br_flame *flame, struct br_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        struct slow_side *side = &report->sides[i];
        side->selection.type = *type;
        flame->side = i;
        if (side->selection.n_span_ids)
            rc = query_selection_flame(report->job, &side->selection, flame, err);
        for (uint32_t j = 0; j < flame->n_nodes; j++)
            flame->nodes[j].self[i] = slow_per_span(flame->nodes[j].self[i], side->n_read);
    }
    br_flame_total(flame);
    return rc;
}

/* --- The response ---------------------------------------------------------------------------- */

static void slow_put_side(struct slow_report *report, char before, const struct slow_side *side)
{
    struct br_str *out = &report->job->out;
    const uint64_t *durations_ns =
        br_mem_end(report->durations_ns, side->first * sizeof *report->durations_ns);
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

static const char *slow_why_empty(const struct slow_report *report, size_t type)
{
    if (!report->count)
        return "this operation has no spans in this time range";
    if (report->count < SPANS_MIN)
        return "there are fewer than 5 spans of this operation: use a longer time range";
    if (!report->sides[0].count)
        return "all spans of this operation have the same duration";
    if (type == BRAID_TYPES_MAX)
        return "the spans of this operation have no samples";
    return NULL;
}

static size_t slow_type(struct slow_report *report)
{
    const char *text = query_job_param(report->job, "type");
    if (!text || !*text)
        return query_braid_main_type(&report->types, &report->sums);
    for (size_t i = 0; i < report->types.count; i++)
        if (!strcmp(report->types.ids[i], text))
            return i;
    return BRAID_TYPES_MAX;
}

static int slow_respond(struct slow_report *report, struct br_flame *flame, struct br_err *err)
{
    struct query_job *job = report->job;
    struct br_flamebearer flamebearer;
    struct br_profile_type type = {0};
    size_t chosen = slow_type(report);
    const char *id = chosen < BRAID_TYPES_MAX ? report->types.ids[chosen] : NULL;
    const char *why = slow_why_empty(report, chosen);
    int rc = id ? br_profile_type_parse(id, strlen(id), &job->arena, &type, err) : 0;
    if (!rc && id)
        rc = slow_flame(report, &type, flame, err);
    if (!rc)
        rc = br_flamebearer_make(flame, QUERY_BRAID_NODES_MAX, true, &job->arena, &flamebearer);
    if (rc)
        return rc;
    slow_put_side(report, '{', &report->sides[1]);
    slow_put_side(report, ',', &report->sides[0]);
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

static int slow_read_store(struct slow_report *report, struct br_span_filter *filter,
                           struct br_err *err)
{
    int rc = br_store_spans(report->job->store, filter, slow_on_duration, report, err);
    if (!rc)
        rc = report->rc;
    if (rc || report->count < SPANS_MIN)
        return rc;
    qsort(report->durations_ns, report->count, sizeof *report->durations_ns, slow_compare);
    slow_divide(report);
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        slow_choose_spans(report, &report->sides[i]);
    filter->min_duration_ns =
        report->durations_ns[report->sides[report->sides[0].count ? 0 : 1].first];
    rc = br_store_spans(report->job->store, filter, slow_on_span, report, err);
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++)
        rc = slow_select_side(report, &report->sides[i], err);
    return rc ? rc : slow_sum(report, err);
}

void query_braid_slow(struct query_job *job)
{
    struct br_span_filter filter = {.order = BR_SPANS_NEWEST};
    struct br_flame flame;
    struct br_err err = {0};
    filter.service = query_job_param(job, "service");
    filter.name = query_job_param(job, "name");
    if (!filter.service || !*filter.service || !filter.name || !*filter.name) {
        query_job_fail(job, 400, "missing parameter: set service and name (of the operation)");
        return;
    }
    if (!query_braid_range(job, &filter.from_ns, &filter.until_ns))
        return;
    struct slow_report *report = br_arena_calloc(&job->arena, 1, sizeof *report);
    if (!report) {
        query_braid_end(job, BR_ENOMEM, &err);
        return;
    }
    report->job = job;
    report->sides[0].name = "typical";
    report->sides[1].name = "slow";
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = slow_read_store(report, &filter, &err);
    if (!rc)
        rc = slow_respond(report, &flame, &err);
    br_flame_release(&flame);
    br_free(report->durations_ns);
    query_braid_end(job, rc, &err);
}
