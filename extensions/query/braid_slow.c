/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares slow spans of one operation with typical spans: the parts of their durations, and the
 * samples of their local subtrees. Slow spans are at or above the 95th percentile of duration;
 * typical ones are between the 40th and the 60th. If a request names two operations, the spans of
 * one of them (`of`) are divided into slow and typical ones, and the spans of the other operation
 * below these spans are compared. With a selection, the selected spans take the place of the slow
 * ones, and all other spans of the filter that of the typical ones.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"
#include "extensions/query/braid_filter.h"
#include "extensions/query/braid_parts.h"

#define SPANS_MAX                                                                                  \
    (4u << 20) /* maximum number of spans of the operation whose durations are sorted */
/* maximum number of slow spans, and of typical spans, whose subtrees are read; these spans are
 * chosen at equal distances in the order of duration */
#define SIDE_MAX 50
/* maximum number of compared spans below one of these spans; if there are more, spans at equal
 * distances in the trace are chosen */
#define BELOW_MAX 10
#define EXAMPLES_MAX 5
#define FUNCTIONS_MAX 30
#define SPANS_MIN 5 /* minimum number of spans from which percentiles are computed */

_Static_assert(SIDE_MAX *BELOW_MAX <= QUERY_PARTS_SPANS_MAX, "all compared spans fit");

/* A span that the filter selects. Without a query, it has a location (br_store_span_at). */
struct slow_span {
    uint64_t duration_ns;
    uint32_t block;
    uint16_t partition, index;
};

/* Spans that the filter selects. They are sorted by duration after all of them are read. */
struct slow_spans {
    struct slow_span *list;
    size_t count;
    uint32_t cap;
};

/* Chosen spans, in ascending order of duration. With a query, their locations are unknown, and a
 * second pass over the store finds one span for each duration. */
struct slow_list {
    struct slow_span chosen[SIDE_MAX];
    struct br_stored_span spans[SIDE_MAX];
    bool found[SIDE_MAX];
    size_t count;
};

struct slow_side {
    const char *name;
    const struct slow_span *spans; /* the side's spans, sorted by duration */
    size_t count;                  /* number of these spans */
    struct slow_list read, examples;
    /* the compared spans, whose parts and samples are in the response; sorted by duration after
     * all of them are read */
    struct br_stored_span compared[QUERY_PARTS_SPANS_MAX];
    size_t n_compared;
    int64_t cpu_ns;
    struct query_selection selection;
};

struct slow_report {
    struct query_job *job;
    uint64_t max_nodes; /* maximum number of bars in the response */
    struct query_braid_filter of;
    /* the selection, if `has_selection`. Without a selection, the spans are divided by duration. */
    struct query_braid_selection selection;
    bool has_selection;
    /* The spans of each side. Without a selection, all spans are in the second list, and both
     * sides are parts of this list. */
    struct slow_spans spans[BR_FLAME_SIDES];
    /* sides[0] are the typical spans, sides[1] the slow spans */
    struct slow_side sides[BR_FLAME_SIDES];
    /* the operation below these spans that is compared; NULL: the spans themselves are compared */
    const char *below_service, *below_name;
    struct query_parts *parts;
    struct query_braid_types types;
    struct query_braid_figures sums;
    /* value of one sample, by index of the profile type; 0: unknown */
    uint64_t per_sample[BRAID_TYPES_MAX];
    int rc;
};

static int slow_compare(const void *left, const void *right)
{
    const struct slow_span *first = left, *second = right;
    return (first->duration_ns > second->duration_ns) - (first->duration_ns < second->duration_ns);
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
    const struct slow_span *spans = report->spans[1].list;
    size_t count = report->spans[1].count, slow = slow_rank(count, 95);
    size_t low = slow_rank(count, 40), high = slow_rank(count, 60);
    while (slow > 0 && spans[slow - 1].duration_ns == spans[slow].duration_ns)
        slow--;
    if (high >= slow)
        high = slow ? slow - 1 : 0;
    if (low > high)
        low = high;
    report->sides[0].spans = spans + low;
    report->sides[0].count = slow ? high - low + 1 : 0;
    report->sides[1].spans = spans + slow;
    report->sides[1].count = count - slow;
}

/* --- Finding the spans ----------------------------------------------------------------------- */

/* Returns the side of a selection to which a span belongs. */
static unsigned slow_side_of(const struct slow_report *report, uint64_t start_ns,
                             uint64_t duration_ns)
{
    return !report->has_selection ||
           query_braid_selection_has(&report->selection, start_ns, duration_ns);
}

static bool slow_add(struct slow_report *report, uint64_t start_ns, const struct slow_span *span)
{
    struct slow_spans *spans = &report->spans[slow_side_of(report, start_ns, span->duration_ns)];
    if (spans->count == SPANS_MAX) {
        query_job_note(report->job, "there are more spans than one query reads");
        return false;
    }
    report->rc =
        br_grow(&spans->list, &spans->cap, spans->count + 1, sizeof *spans->list, SPANS_MAX);
    if (report->rc)
        return false;
    spans->list[spans->count++] = *span;
    return true;
}

static bool slow_on_facts(const struct br_span_facts *facts, uint32_t index, void *arg)
{
    struct slow_report *report = arg;
    const struct slow_span span = {.duration_ns = facts->duration_ns[index],
                                   .block = (uint32_t)facts->block,
                                   .partition = (uint16_t)facts->partition,
                                   .index = (uint16_t)facts->index[index]};
    if (facts->partition > UINT16_MAX) {
        query_job_note(report->job, "there are more partitions than one query reads");
        return false;
    }
    return slow_add(report, facts->start_ns[index], &span);
}

static bool slow_on_duration(const struct br_stored_span *span, void *arg)
{
    struct slow_report *report = arg;
    const struct slow_span added = {.duration_ns = span->duration_ns};
    return slow_add(report, span->start_ns, &added) && query_job_may_continue(report->job);
}

static void slow_choose_spans(struct slow_side *side)
{
    side->read.count = side->count < SIDE_MAX ? side->count : SIDE_MAX;
    for (size_t i = 0; i < side->read.count; i++)
        side->read.chosen[i] = side->spans[i * side->count / side->read.count];
    side->examples.count = side->count < EXAMPLES_MAX ? side->count : EXAMPLES_MAX;
    for (size_t i = 0; i < side->examples.count; i++)
        side->examples.chosen[i] = side->spans[side->count - side->examples.count + i];
}

/* Reads the chosen spans from their locations. */
static int slow_list_read(struct slow_list *list, struct br_store_query *store, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < list->count && !rc; i++)
        rc = br_store_span_at(store, list->chosen[i].partition, list->chosen[i].block,
                              list->chosen[i].index, &list->spans[i], &list->found[i], err);
    return rc;
}

static void slow_list_add(struct slow_list *list, const struct br_stored_span *span)
{
    for (size_t i = 0; i < list->count && list->chosen[i].duration_ns <= span->duration_ns; i++)
        if (list->chosen[i].duration_ns == span->duration_ns && !list->found[i]) {
            list->spans[i] = *span;
            list->found[i] = true;
            return;
        }
}

static bool slow_on_span(const struct br_stored_span *span, void *arg)
{
    struct slow_report *report = arg;
    unsigned of = slow_side_of(report, span->start_ns, span->duration_ns);
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++) {
        if (report->has_selection && i != of)
            continue;
        slow_list_add(&report->sides[i].read, span);
        slow_list_add(&report->sides[i].examples, span);
    }
    return query_job_may_continue(report->job);
}

static bool slow_is_below(const struct slow_report *report, const struct query_braid_row *row)
{
    return !strcmp(row->span.name, report->below_name) &&
           !strcmp(row->span.service, report->below_service);
}

/* Adds a span to the compared spans of a side, and selects the samples of its local subtree. A span
 * whose subtree has too many spans is left out. */
static int slow_add_compared(struct slow_report *report, struct slow_side *side,
                             const struct query_braid_rows *trace,
                             const struct query_braid_row *row)
{
    size_t n_span_ids = side->selection.n_span_ids;
    unsigned number = (unsigned)(side - report->sides);
    if (side->n_compared == QUERY_PARTS_SPANS_MAX)
        return 0;
    int rc = query_braid_select_subtree(trace, row, &side->selection);
    if (!rc)
        rc = query_parts_add(report->parts, number, trace, row);
    if (!rc)
        side->compared[side->n_compared++] = row->span;
    else
        side->selection.n_span_ids = n_span_ids;
    if (rc == BR_EINVAL) { /* more than QUERY_IDS_MAX span ids */
        query_job_note(report->job,
                       "the compared spans have more child spans than one query reads");
        return 0;
    }
    return rc;
}

/* Adds the spans of the compared operation below `root`. */
static int slow_add_below(struct slow_report *report, struct slow_side *side,
                          const struct query_braid_rows *trace, const struct query_braid_row *root)
{
    const struct query_braid_row *row;
    size_t count = 0, at = 0, n_added = 0;
    int rc = 0;
    for (row = root; row; row = query_braid_next(trace, root, row, false))
        count += slow_is_below(report, row);
    size_t wanted = count < BELOW_MAX ? count : BELOW_MAX;
    if (count > BELOW_MAX)
        query_job_note(report->job, "only 10 child spans of each request are compared");
    for (row = root; row && !rc; row = query_braid_next(trace, root, row, false)) {
        if (!slow_is_below(report, row) || n_added == wanted)
            continue;
        if (at++ != n_added * count / wanted)
            continue;
        rc = slow_add_compared(report, side, trace, row);
        n_added++;
    }
    return rc;
}

static int slow_add_span(struct slow_report *report, struct slow_side *side,
                         struct query_braid_rows *trace, uint64_t span_id)
{
    const struct query_braid_row *row = query_braid_find(trace, span_id);
    if (!row)
        return 0;
    return report->below_name ? slow_add_below(report, side, trace, row)
                              : slow_add_compared(report, side, trace, row);
}

/* Reads a trace, and adds the compared spans of all spans in side->read that belong to it, from
 * the span at `first` on. Marks these spans in `done`. */
static int slow_read_trace(struct slow_report *report, struct slow_side *side, size_t first,
                           bool done[SIDE_MAX], struct br_err *err)
{
    struct query_braid_rows trace = {.job = report->job};
    const uint8_t *id = side->read.spans[first].trace_id;
    size_t n_compared = side->n_compared;
    int rc = query_braid_read_trace(&trace, id, err);
    for (size_t i = first; i < side->read.count && !rc; i++) {
        const struct br_stored_span *span = &side->read.spans[i];
        if (!side->read.found[i] || memcmp(span->trace_id, id, sizeof span->trace_id) != 0)
            continue;
        done[i] = true;
        rc = slow_add_span(report, side, &trace, span->span_id);
    }
    if (!rc && side->n_compared > n_compared)
        rc = query_selection_add_trace(report->job, &side->selection, id);
    query_braid_rows_release(&trace);
    return rc;
}

/* Reads the traces of the spans in side->read, and adds the compared spans. */
static int slow_read_side(struct slow_report *report, struct slow_side *side, struct br_err *err)
{
    bool done[SIDE_MAX] = {false};
    int rc = 0;
    for (size_t i = 0; i < side->read.count && !rc && query_job_may_continue(report->job); i++)
        if (side->read.found[i] && !done[i])
            rc = slow_read_trace(report, side, i, done, err);
    return rc;
}

static int slow_compare_spans(const void *left, const void *right)
{
    const struct br_stored_span *a = left, *b = right;
    return (a->duration_ns > b->duration_ns) - (a->duration_ns < b->duration_ns);
}

static int slow_read_sides(struct slow_report *report, struct br_err *err)
{
    int rc = 0;
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        struct slow_side *side = &report->sides[i];
        rc = slow_read_side(report, side, err);
        if (side->n_compared)
            qsort(side->compared, side->n_compared, sizeof *side->compared, slow_compare_spans);
    }
    query_parts_end_spans(report->parts);
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
    size_t type = query_braid_type(report->job, &report->types, samples->series->type);
    report->rc = query_braid_add(report->job, &report->sums, type, samples->count, samples->value);
    if (type < BRAID_TYPES_MAX && samples->series->per_sample > report->per_sample[type])
        report->per_sample[type] = samples->series->per_sample;
    query_parts_add_samples(report->parts, (unsigned)(adder->side - report->sides), samples);
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
            flame->nodes[j].self[i] = slow_per_span(flame->nodes[j].self[i], side->n_compared);
    }
    br_flame_total(flame);
    return rc;
}

/* --- The response ---------------------------------------------------------------------------- */

static void slow_put_example(struct br_str *out, const struct br_stored_span *span, bool more)
{
    if (more)
        br_str_putc(out, ',');
    query_braid_put_trace(out, '{', "trace_id", span->trace_id);
    query_braid_put_span(out, ',', "span_id", span->span_id);
    br_str_printf(out, ",\"duration_ns\":%" PRIu64 "}", span->duration_ns);
}

static void slow_put_examples(struct slow_report *report, const struct slow_side *side)
{
    struct br_str *out = &report->job->out;
    size_t n_put = 0;
    br_str_puts(out, ",\"examples\":[");
    if (report->below_name)
        for (size_t i = side->n_compared; i-- > 0 && n_put < EXAMPLES_MAX; n_put++)
            slow_put_example(out, &side->compared[i], n_put > 0);
    else
        for (size_t i = side->examples.count; i-- > 0;)
            if (side->examples.found[i])
                slow_put_example(out, &side->examples.spans[i], n_put++ > 0);
    br_str_putc(out, ']');
}

static void slow_put_side(struct slow_report *report, char before, const struct slow_side *side)
{
    struct br_str *out = &report->job->out;
    size_t count = report->below_name ? side->n_compared : side->count;
    uint64_t shortest_ns = 0, median_ns = 0;
    if (count && report->below_name) {
        shortest_ns = side->compared[0].duration_ns;
        median_ns = side->compared[(count - 1) / 2].duration_ns;
    } else if (count) {
        shortest_ns = side->spans[0].duration_ns;
        median_ns = side->spans[(count - 1) / 2].duration_ns;
    }
    br_str_putc(out, before);
    br_str_json(out, side->name, strlen(side->name));
    br_str_printf(out,
                  ":{\"spans\":%zu,\"min_duration_ns\":%" PRIu64 ",\"median_duration_ns\":%" PRIu64
                  ",\"compared\":%zu,\"mean_duration_ns\":%" PRId64 ",\"cpu_ns_per_span\":%" PRId64,
                  count, shortest_ns, median_ns, side->n_compared,
                  query_parts_mean_ns(report->parts, (unsigned)(side - report->sides)),
                  slow_per_span(side->cpu_ns, side->n_compared));
    slow_put_examples(report, side);
    br_str_putc(out, '}');
}

/* Value of one sample of a profile type, divided by the numbers of typical and slow spans. */
struct slow_sample {
    double typical, slow;
};

static struct slow_sample slow_sample_of(const struct slow_report *report, size_t type)
{
    double value = type < BRAID_TYPES_MAX ? (double)report->per_sample[type] : 0;
    size_t typical = report->sides[0].n_compared, slow = report->sides[1].n_compared;
    return (struct slow_sample){typical ? value / (double)typical : 0,
                                slow ? value / (double)slow : 0};
}

/* Returns the smallest difference between the values of a function that is not noise: a few
 * samples, and twice the standard error of two counts of samples (Poisson distribution). */
static int64_t slow_noise(const struct slow_sample *sample, const int64_t self[BR_FLAME_SIDES])
{
    double few = QUERY_PARTS_NOISE_SAMPLES * fmax(sample->typical, sample->slow);
    double variance = (double)self[0] * sample->typical + (double)self[1] * sample->slow;
    return (int64_t)ceil(fmin(fmax(few, 2 * sqrt(fmax(0, variance))), 1e18));
}

static int slow_put_functions(struct query_job *job, const struct br_flame *flame,
                              const struct slow_sample *sample)
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
                      ",\"delta\":%" PRId64 ",\"noise\":%" PRId64 "}",
                      self[0], self[1], self[1] - self[0], slow_noise(sample, self));
    }
    br_str_putc(&job->out, ']');
    return 0;
}

static const char *slow_why_no_sides(const struct slow_report *report)
{
    if (report->has_selection && !report->sides[1].count)
        return "there are no spans in the selection";
    if (report->has_selection && !report->sides[0].count)
        return "all spans are in the selection";
    if (!report->has_selection && !report->spans[1].count)
        return "this operation has no spans in this time range";
    if (!report->has_selection && report->spans[1].count < SPANS_MIN)
        return "there are fewer than 5 spans of this operation: use a longer time range";
    return NULL;
}

static const char *slow_why_empty(const struct slow_report *report, size_t type)
{
    const char *why = slow_why_no_sides(report);
    if (why)
        return why;
    if (report->below_name && !report->sides[0].n_compared && !report->sides[1].n_compared)
        return "neither the slow nor the typical requests have spans of this operation";
    if (!report->sides[0].count)
        return "all spans of this operation have the same duration";
    if (type == BRAID_TYPES_MAX)
        return "the compared spans have no samples";
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
    struct slow_sample sample = slow_sample_of(report, chosen);
    int rc = id ? br_profile_type_parse(id, strlen(id), &job->arena, &type, err) : 0;
    if (!rc && id)
        rc = slow_flame(report, &type, flame, err);
    if (!rc)
        rc = br_flamebearer_make(flame, (uint32_t)report->max_nodes, true, &job->arena,
                                 &flamebearer);
    if (rc)
        return rc;
    slow_put_side(report, '{', &report->sides[1]);
    slow_put_side(report, ',', &report->sides[0]);
    query_parts_put(report->parts);
    query_put_text(&job->out, ',', "type", id ? id : "");
    query_put_text(&job->out, ',', "unit", id ? type.unit : "");
    br_str_printf(&job->out, ",\"sample\":{\"typical\":%.6g,\"slow\":%.6g}", sample.typical,
                  sample.slow);
    br_str_puts(&job->out, ",\"flamebearer\":");
    br_flamebearer_json(&job->out, &flamebearer, true);
    rc = slow_put_functions(job, flame, &sample);
    if (why)
        query_put_text(&job->out, ',', "why_empty", why);
    else
        br_str_puts(&job->out, ",\"why_empty\":null");
    return rc;
}

/* Reads the durations, and divides the spans into the two sides. */
static int slow_read_durations(struct slow_report *report, struct br_err *err)
{
    int rc = report->of.has_query
                 ? query_braid_filter_spans(&report->of, report->job, slow_on_duration, report, err)
                 : query_braid_filter_facts(&report->of, report->job, slow_on_facts, report, err);
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        if (report->spans[i].count)
            qsort(report->spans[i].list, report->spans[i].count, sizeof *report->spans[i].list,
                  slow_compare);
    if (rc || report->rc)
        return rc ? rc : report->rc;
    if (report->has_selection)
        for (unsigned i = 0; i < BR_FLAME_SIDES; i++) {
            report->sides[i].spans = report->spans[i].list;
            report->sides[i].count = report->spans[i].count;
        }
    else if (report->spans[1].count >= SPANS_MIN)
        slow_divide(report);
    return 0;
}

static int slow_read_chosen(struct slow_report *report, struct br_err *err)
{
    int rc = 0;
    if (report->of.has_query) {
        if (!report->has_selection)
            report->of.filter.min_duration_ns =
                report->sides[report->sides[0].count ? 0 : 1].spans[0].duration_ns;
        return query_braid_filter_spans(&report->of, report->job, slow_on_span, report, err);
    }
    for (unsigned i = 0; i < BR_FLAME_SIDES && !rc; i++) {
        rc = slow_list_read(&report->sides[i].read, report->job->store, err);
        if (!rc)
            rc = slow_list_read(&report->sides[i].examples, report->job->store, err);
    }
    return rc;
}

static int slow_read_spans(struct slow_report *report, struct br_err *err)
{
    int rc = query_braid_filter_parse(&report->of, report->job, err);
    if (!rc)
        rc = slow_read_durations(report, err);
    if (rc || !(report->sides[0].count + report->sides[1].count))
        return rc;
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        slow_choose_spans(&report->sides[i]);
    return slow_read_chosen(report, err);
}

static int slow_read_store(struct slow_report *report, struct br_err *err)
{
    int rc = slow_read_spans(report, err);
    /* after reading the spans, because a query with TraceQL clears the arena of the job */
    report->parts = rc ? NULL : query_parts_new(report->job);
    if (!rc && !report->parts)
        rc = BR_ENOMEM;
    if (!rc)
        rc = slow_read_sides(report, err);
    return rc ? rc : slow_sum(report, err);
}

/* Reads the names of the operations. The spans of the operation in the filter are divided into slow
 * and typical ones. */
static bool slow_read_names(struct query_job *job, struct slow_report *report)
{
    struct br_span_filter *filter = &report->of.filter;
    const char *of_service = query_braid_param(job, "of_service");
    const char *of_name = query_braid_param(job, "of_name");
    if (!report->has_selection && !(filter->service && filter->name)) {
        query_job_fail(
            job, 400, "missing parameter: set service and name (of the operation), or a selection");
        return false;
    }
    if (!of_service != !of_name) {
        query_job_fail(job, 400, "missing parameter: set both of_service and of_name, or neither");
        return false;
    }
    if (of_name && !(filter->service && filter->name)) {
        query_job_fail(job, 400,
                       "missing parameter: of_service and of_name also need service and name");
        return false;
    }
    if (of_name) {
        report->below_service = filter->service;
        report->below_name = filter->name;
        filter->service = of_service;
        filter->name = of_name;
    }
    return true;
}

void query_braid_slow(struct query_job *job)
{
    struct br_flame flame;
    struct br_err err = {0};
    /* not in the arena of the job, which a query with TraceQL clears */
    struct slow_report *report = br_calloc(1, sizeof *report);
    if (!report) {
        query_braid_end(job, BR_ENOMEM, &err);
        return;
    }
    if (!query_braid_filter_read(&report->of, job) ||
        !query_braid_selection_read(&report->selection, job, &report->has_selection) ||
        !query_job_number(job, "max_nodes", QUERY_BRAID_NODES_MAX, QUERY_FLAMEBEARER_NODES_TOP,
                          &report->max_nodes) ||
        !slow_read_names(job, report)) {
        br_free(report);
        return;
    }
    report->job = job;
    report->sides[0].name = "typical";
    report->sides[1].name = "slow";
    int rc = br_flame_init(&flame, QUERY_FLAME_NODES_MAX);
    if (!rc)
        rc = slow_read_store(report, &err);
    if (!rc)
        rc = slow_respond(report, &flame, &err);
    br_flame_release(&flame);
    query_parts_free(report->parts);
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        br_free(report->spans[i].list);
    query_braid_filter_release(&report->of);
    br_free(report);
    query_braid_end(job, rc, &err);
}
