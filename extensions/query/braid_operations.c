/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements GET operations, which returns for each service and operation the number of spans and
 * errors, percentiles of the durations, and the CPU time, in a time range and in the equally long
 * range before it.
 *
 * The own CPU time of an operation is that of the samples taken in its spans. Samples are assigned
 * to spans by span id. If there are too many spans or samples for this, the label span_name or
 * span.name, which the join processor adds to samples, names the operation of a sample. The store
 * then adds up the samples by label, and only samples without a label are assigned by span id.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/index.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/sum.h"
#include "extensions/query/braid.h"
#include "extensions/query/durations.h"
#include "extensions/query/steps.h"
#include "otlp/fields.h"

#define LIMIT_DEFAULT 1000
#define LIMIT_MAX 10000
/* size of the response, in bytes, above which further rows are left out */
#define RESPONSE_BYTES (16u << 20)
#define POINTS_DEFAULT 30
#define POINTS_MAX 200
#define ROWS_MAX 10000
/* maximum number of spans that are kept to assign samples to them by span id */
#define SPANS_MAX (1u << 19)
/* bytes of the memory of a query for each of these spans; a query with less memory keeps fewer */
#define SPAN_SHARE 256
/* maximum number of samples that are assigned to spans one by one */
#define SAMPLES_MAX (2u << 20)
/* nanoseconds by which the time range of spans begins earlier than that of their samples */
#define SLACK_NS (60 * BRAID_SECOND_NS)
/* maximum number of spans above a span to which its CPU time is added */
#define DEPTH_MAX 256
/* number of spans with samples between two checks whether the query may continue */
#define WALKS_BETWEEN_LOOKS 1024
#define FILTER_MAX 256 /* longest filter, in bytes */
/* the value with which the join processor replaces the name of a span if there are too many */
#define OTHER_NAME "_other"

enum operations_kind {
    KIND_OPERATION,
    KIND_OUTSIDE, /* samples of a service that name no span */
    KIND_UNKNOWN, /* samples of a service whose span was not found */
    KIND_REST,    /* everything that exceeds ROWS_MAX */
};

static const char *const kind_names[] = {"operation", "outside", "unknown", "rest"};

enum { NOW, BEFORE, PERIODS };

struct operations_period {
    uint64_t errors, samples;
    int64_t cpu_ns;     /* CPU time of the row's spans, without the spans below them */
    int64_t subtree_ns; /* CPU time including the spans below them in the same service */
    struct query_durations durations;
};

struct operations_row {
    enum operations_kind kind;
    const char *service, *name;
    struct operations_period periods[PERIODS];
    uint64_t *steps; /* number of spans by time step; NULL: the row has no spans in the range */
    uint32_t visit;  /* number of the last walk to the root that added CPU time to the row */
};

/* A span to which samples are assigned. */
struct operations_span {
    uint64_t span_id, parent_id;
    uint64_t samples[PERIODS];
    int64_t cpu_ns[PERIODS];
    struct operations_row *row;
    const char *service; /* only if report->exact */
};

struct operations_report {
    struct query_job *job;
    uint64_t from_ns, until_ns;
    uint64_t before_ns; /* start of the range before; `from_ns` if there is no such range */
    uint64_t limit;
    struct query_steps steps;
    struct br_map *map; /* rows by kind, service and name */
    struct br_str key;  /* key of the row that is looked up in `map` */
    struct operations_row *rest;
    /* rows by operation of the partition that is being read; NULL: not looked up yet */
    struct operations_row **rows;
    uint32_t cap_rows, partition;
    struct operations_span *spans;
    uint32_t n_spans, cap_spans, max_spans;
    struct br_index index; /* index of `spans` by span id */
    /* true: `spans` contains all spans, and samples are assigned to them one by one */
    bool exact;
    /* The series whose samples were passed last: consecutive samples are usually of one series.
     * `outside` is the row of its samples without a span id, and `unknown` the row of its samples
     * whose span was not found. If a label names the operation, both are the operation's row. */
    const struct br_stored_series *series;
    struct operations_row *outside, *unknown;
    uint64_t n_samples; /* number of samples that were read one by one */
    uint32_t n_visits;
    int rc;
};

/* --- Rows ------------------------------------------------------------------------------------ */

static struct operations_row *operations_new_row(struct operations_report *report,
                                                 enum operations_kind kind, const char *service,
                                                 const char *name)
{
    struct br_arena *arena = &report->job->arena;
    struct operations_row *row = br_arena_calloc(arena, 1, sizeof *row);
    if (!row)
        report->rc = br_arena_why(arena);
    else
        *row = (struct operations_row){.kind = kind, .service = service, .name = name};
    return row;
}

/* Finds or adds a row. `service` and `name` must be in the arena. Returns the row for everything
 * else if there are too many rows. Sets report->rc and returns NULL if memory runs out. */
static struct operations_row *operations_row(struct operations_report *report,
                                             enum operations_kind kind, const char *service,
                                             const char *name)
{
    struct br_str *key = &report->key;
    br_str_clear(key);
    br_str_printf(key, "%d %zu %s%s", (int)kind, strlen(service), service, name);
    if (key->failed) {
        report->rc = BR_ENOMEM;
        return NULL;
    }
    struct operations_row *row = br_map_get(report->map, key->data, key->len);
    if (row)
        return row;
    if (br_map_count(report->map) == ROWS_MAX) {
        query_job_note(report->job,
                       "there are more operations than one query reads: a row contains the rest");
        return report->rest;
    }
    row = operations_new_row(report, kind, service, name);
    if (row)
        report->rc = br_map_put(report->map, key->data, key->len, row, NULL);
    return report->rc ? NULL : row;
}

static const char *operations_label(const struct br_stored_series *series, const char *name)
{
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, name))
            return series->labels[i].value;
    return NULL;
}

static const char *operations_service(const struct br_stored_series *series)
{
    const char *service = operations_label(series, "service_name");
    return service && *service ? service : "unknown_service";
}

/* Returns the name of the span in which the samples of a series were taken. Returns NULL if the
 * series does not contain this name. */
static const char *operations_span_name(const struct br_stored_series *series)
{
    const char *name = operations_label(series, "span_name");
    if (!name || !*name)
        name = operations_label(series, "span.name");
    return name && *name && strcmp(name, OTHER_NAME) != 0 ? name : NULL;
}

/* --- Spans by id ------------------------------------------------------------------------------ */

static bool operations_span_is(const void *entries, uint32_t place, const void *key)
{
    const struct operations_span *spans = entries;
    return spans[place].span_id == *(const uint64_t *)key;
}

static uint64_t operations_span_hash(const void *entries, uint32_t place)
{
    const struct operations_report *report = entries;
    return br_index_hash(&report->index, &report->spans[place].span_id, sizeof(uint64_t));
}

/* Returns the position of a span in report->spans, or BR_INDEX_NONE. */
static uint32_t operations_place(const struct operations_report *report, uint64_t span_id)
{
    uint64_t hash = br_index_hash(&report->index, &span_id, sizeof span_id);
    return br_index_find(&report->index, hash, operations_span_is, report->spans, &span_id);
}

/* Returns the entry of a span, or NULL. */
static struct operations_span *operations_find(const struct operations_report *report,
                                               uint64_t span_id)
{
    uint32_t place = operations_place(report, span_id);
    return place == BR_INDEX_NONE ? NULL : &report->spans[place];
}

/* Adds an entry; report->n_spans must be less than report->max_spans. Returns NULL and sets
 * report->rc if memory runs out. */
static struct operations_span *operations_add_span(struct operations_report *report,
                                                   uint64_t span_id, struct operations_row *row)
{
    report->rc = br_grow(&report->spans, &report->cap_spans, (size_t)report->n_spans + 1,
                         sizeof *report->spans, report->max_spans);
    if (report->rc || !report->spans)
        return NULL;
    report->spans[report->n_spans] = (struct operations_span){.span_id = span_id, .row = row};
    report->rc = br_index_add(&report->index, operations_span_hash(report, report->n_spans),
                              report->n_spans, operations_span_hash, report);
    return report->rc ? NULL : &report->spans[report->n_spans++];
}

static void operations_forget_spans(struct operations_report *report)
{
    br_free(report->spans);
    br_index_release(&report->index);
    report->spans = NULL;
    report->n_spans = report->cap_spans = 0;
    br_random_bytes(report->index.secret, sizeof report->index.secret);
}

/* --- Reading spans --------------------------------------------------------------------------- */

static unsigned operations_period_of(const struct operations_report *report, uint64_t time_ns)
{
    return time_ns >= report->from_ns ? NOW : BEFORE;
}

/* Makes report->rows those of the partition of `facts`. */
static int operations_enter_partition(struct operations_report *report,
                                      const struct br_span_facts *facts)
{
    uint32_t last = 0, before = report->cap_rows;
    if (facts->partition != report->partition)
        before = 0;
    report->partition = facts->partition;
    for (uint32_t i = 0; i < facts->count; i++)
        last = facts->operation[i] > last ? facts->operation[i] : last;
    int rc = br_grow(&report->rows, &report->cap_rows, (size_t)last + 1,
                     sizeof(struct operations_row *), UINT32_MAX);
    for (uint32_t i = before; !rc && i < report->cap_rows; i++)
        report->rows[i] = NULL;
    return rc;
}

/* Returns the row of a span's operation. Returns NULL if the names of the operation cannot be read,
 * or memory runs out (report->rc). */
static struct operations_row *operations_row_of(struct operations_report *report,
                                                const struct br_span_facts *facts, uint32_t index)
{
    struct operations_row **row = &report->rows[facts->operation[index]];
    const char *service, *name;
    if (!*row &&
        br_store_operation(report->job->store, facts, facts->operation[index], &service, &name))
        *row = operations_row(report, KIND_OPERATION, service, name);
    return *row;
}

/* Keeps a span for the samples. Gives up if there are more spans than the store counted. */
static void operations_keep_span(struct operations_report *report,
                                 const struct br_span_facts *facts, uint32_t index,
                                 struct operations_row *row)
{
    if (!report->exact || operations_place(report, facts->span_id[index]) != BR_INDEX_NONE)
        return;
    if (report->n_spans == report->max_spans) {
        report->exact = false;
        operations_forget_spans(report);
        return;
    }
    const char *service, *name;
    if (!br_store_operation(report->job->store, facts, facts->operation[index], &service, &name))
        return;
    struct operations_span *kept = operations_add_span(report, facts->span_id[index], row);
    if (kept) {
        kept->parent_id = facts->parent_id[index];
        kept->service = service;
    }
}

static int operations_add_step(struct operations_report *report, struct operations_row *row,
                               uint64_t start_ns)
{
    struct br_arena *arena = &report->job->arena;
    if (!row->steps)
        row->steps = br_arena_calloc(arena, report->steps.count, sizeof *row->steps);
    if (!row->steps)
        return br_arena_why(arena);
    row->steps[query_steps_find(&report->steps, start_ns)]++;
    return 0;
}

static bool operations_on_facts(const struct br_span_facts *facts, void *arg)
{
    struct operations_report *report = arg;
    report->rc = operations_enter_partition(report, facts);
    for (uint32_t i = 0; i < facts->count && !report->rc; i++) {
        struct operations_row *row = operations_row_of(report, facts, i);
        uint64_t start_ns = facts->start_ns[i];
        if (row && facts->span_id)
            operations_keep_span(report, facts, i, row);
        if (!row || report->rc || start_ns < report->before_ns)
            continue;
        struct operations_period *period = &row->periods[operations_period_of(report, start_ns)];
        if (facts->status[i] == BR_SPAN_STATUS_ERROR)
            period->errors++;
        report->rc =
            query_durations_add(&period->durations, &report->job->arena, facts->duration_ns[i]);
        if (!report->rc && start_ns >= report->from_ns)
            report->rc = operations_add_step(report, row, start_ns);
    }
    return !report->rc && query_job_may_continue(report->job);
}

/* Returns the start of the range of spans that samples can belong to. */
static uint64_t operations_spans_from(const struct operations_report *report)
{
    return report->before_ns > SLACK_NS ? report->before_ns - SLACK_NS : 0;
}

static int operations_read_spans(struct operations_report *report, bool with_ids,
                                 br_span_facts_fn *fn, struct br_err *err)
{
    report->partition = UINT32_MAX;
    int rc = br_store_span_facts(report->job->store, operations_spans_from(report),
                                 report->until_ns, with_ids, fn, report, err);
    return rc ? rc : report->rc;
}

/* --- Samples one by one ---------------------------------------------------------------------- */

static void operations_add_cpu(struct operations_period *period, int64_t cpu_ns, uint64_t samples)
{
    period->cpu_ns = br_sum(period->cpu_ns, cpu_ns);
    period->subtree_ns = br_sum(period->subtree_ns, cpu_ns);
    period->samples += samples;
}

/* Finds the rows of the samples of a series. Returns false if memory runs out (report->rc). */
static bool operations_enter_series(struct operations_report *report,
                                    const struct br_stored_series *series)
{
    const char *service = operations_service(series), *name = operations_span_name(series);
    if (report->series == series)
        return true;
    report->series = series;
    if (name) {
        report->outside = report->unknown = operations_row(report, KIND_OPERATION, service, name);
        return !report->rc;
    }
    report->outside = operations_row(report, KIND_OUTSIDE, service, "");
    if (!report->rc)
        report->unknown = operations_row(report, KIND_UNKNOWN, service, "");
    return !report->rc;
}

static bool operations_is_cpu(const struct br_stored_series *series, void *arg)
{
    (void)arg;
    return query_braid_is_cpu(series->type);
}

/* Adds a sample to its span, or else to the row of its label. */
static bool operations_on_sample(const struct br_stored_samples *sample, void *arg)
{
    struct operations_report *report = arg;
    unsigned period = operations_period_of(report, sample->time_ns);
    if (report->n_samples++ == SAMPLES_MAX)
        report->exact = false;
    if (!report->exact || !operations_enter_series(report, sample->series))
        return false;
    struct operations_span *span =
        sample->span_id ? operations_find(report, sample->span_id) : NULL;
    if (span) {
        span->cpu_ns[period] = br_sum(span->cpu_ns[period], sample->value);
        span->samples[period] += sample->count;
        return true;
    }
    struct operations_row *row = sample->span_id ? report->unknown : report->outside;
    operations_add_cpu(&row->periods[period], sample->value, sample->count);
    return true;
}

/* Adds the CPU time of a span to the rows of the spans above it in the same service. */
static void operations_add_to_ancestors(struct operations_report *report,
                                        const struct operations_span *span)
{
    const struct operations_span *above = span;
    unsigned depth = 0;
    span->row->visit = ++report->n_visits;
    for (; depth < DEPTH_MAX && above->parent_id; depth++) {
        above = operations_find(report, above->parent_id);
        if (!above || above == span || strcmp(above->service, span->service) != 0)
            return;
        if (above->row->visit == report->n_visits)
            continue;
        above->row->visit = report->n_visits;
        for (unsigned i = 0; i < PERIODS; i++) {
            int64_t *sum = &above->row->periods[i].subtree_ns;
            *sum = br_sum(*sum, span->cpu_ns[i]);
        }
    }
    if (depth == DEPTH_MAX && above->parent_id)
        query_job_note(report->job, "the CPU time of deeply nested spans was added only to the 256 "
                                    "spans above them");
}

static void operations_add_spans(struct operations_report *report)
{
    for (uint32_t i = 0; i < report->n_spans; i++) {
        const struct operations_span *span = &report->spans[i];
        if (i % WALKS_BETWEEN_LOOKS == 0 && !query_job_may_continue(report->job))
            return;
        if (!span->samples[NOW] && !span->samples[BEFORE])
            continue;
        for (unsigned k = 0; k < PERIODS; k++)
            operations_add_cpu(&span->row->periods[k], span->cpu_ns[k], span->samples[k]);
        if (report->exact)
            operations_add_to_ancestors(report, span);
    }
}

static void operations_clear_cpu(struct operations_report *report)
{
    const void *key;
    size_t len;
    for (size_t i = 0; i <= br_map_count(report->map); i++) {
        struct operations_row *row =
            i < br_map_count(report->map) ? br_map_at(report->map, i, &key, &len) : report->rest;
        for (unsigned k = 0; k < PERIODS; k++) {
            struct operations_period *period = &row->periods[k];
            period->cpu_ns = period->subtree_ns = 0;
            period->samples = 0;
        }
    }
}

/* Assigns the samples to the spans that were kept. If there are too many samples, sets
 * report->exact to false and assigns none. */
static int operations_read_each(struct operations_report *report, struct br_err *err)
{
    const struct br_sample_filter filter = {.from_ns = report->before_ns,
                                            .until_ns = report->until_ns,
                                            .each = true,
                                            .select_series = operations_is_cpu};
    int rc = br_store_samples(report->job->store, &filter, 0, operations_on_sample, report, err);
    rc = rc ? rc : report->rc;
    if (rc || report->exact) {
        operations_add_spans(report);
        return rc;
    }
    operations_clear_cpu(report);
    operations_forget_spans(report);
    return 0;
}

/* --- Samples by label ------------------------------------------------------------------------ */

static bool operations_is_named(const struct br_stored_series *series, void *arg)
{
    return operations_is_cpu(series, arg) && operations_span_name(series);
}

static bool operations_is_unnamed(const struct br_stored_series *series, void *arg)
{
    return operations_is_cpu(series, arg) && !operations_span_name(series);
}

static bool operations_on_named(const struct br_stored_samples *samples, void *arg)
{
    struct operations_report *report = arg;
    if (!operations_enter_series(report, samples->series))
        return false;
    operations_add_cpu(&report->unknown->periods[operations_period_of(report, samples->time_ns)],
                       samples->value, samples->count);
    return query_job_may_continue(report->job);
}

/* Returns the entry of a span, which is added if needed. Returns NULL if there are too many spans,
 * or memory runs out (report->rc). */
static struct operations_span *operations_wanted(struct operations_report *report, uint64_t span_id)
{
    struct operations_span *span = operations_find(report, span_id);
    if (span || report->n_spans < report->max_spans)
        return span ? span : operations_add_span(report, span_id, report->unknown);
    query_job_note(report->job, "there are too many samples without the label span.name: some are "
                                "counted as samples of unknown spans");
    return NULL;
}

static bool operations_on_unnamed(const struct br_stored_samples *samples, void *arg)
{
    struct operations_report *report = arg;
    unsigned period = operations_period_of(report, samples->time_ns);
    if (!operations_enter_series(report, samples->series))
        return false;
    struct operations_span *span =
        samples->span_id ? operations_wanted(report, samples->span_id) : NULL;
    struct operations_row *row = samples->span_id ? report->unknown : report->outside;
    if (span) {
        span->cpu_ns[period] = br_sum(span->cpu_ns[period], samples->value);
        span->samples[period] += samples->count;
    } else {
        operations_add_cpu(&row->periods[period], samples->value, samples->count);
    }
    return !report->rc;
}

static bool operations_on_wanted(const struct br_span_facts *facts, void *arg)
{
    struct operations_report *report = arg;
    report->rc = operations_enter_partition(report, facts);
    for (uint32_t i = 0; i < facts->count && !report->rc; i++) {
        struct operations_span *span = operations_find(report, facts->span_id[i]);
        struct operations_row *row = span ? operations_row_of(report, facts, i) : NULL;
        if (row)
            span->row = row;
    }
    return !report->rc && query_job_may_continue(report->job);
}

static int operations_read_sums(struct operations_report *report, struct br_err *err)
{
    struct br_sample_filter filter = {.from_ns = report->before_ns,
                                      .until_ns = report->until_ns,
                                      .spans_together = true,
                                      .select_series = operations_is_named};
    struct br_store_query *store = report->job->store;
    uint64_t step_ns = report->before_ns < report->from_ns ? report->until_ns - report->from_ns : 0;
    report->series = NULL;
    int rc = br_store_samples(store, &filter, step_ns, operations_on_named, report, err);
    filter.spans_together = false;
    filter.each = true;
    filter.select_series = operations_is_unnamed;
    report->series = NULL;
    if (!rc && !report->rc)
        rc = br_store_samples(store, &filter, 0, operations_on_unnamed, report, err);
    if (!rc && !report->rc && report->n_spans)
        rc = operations_read_spans(report, true, operations_on_wanted, err);
    operations_add_spans(report);
    return rc ? rc : report->rc;
}

/* --- The response ---------------------------------------------------------------------------- */

/* Returns true if the text contains the word of `len` bytes; upper and lower case of ASCII letters
 * are equal. */
static bool operations_has_word(const char *text, const char *word, size_t len)
{
    for (size_t n_text = strlen(text); n_text >= len; text++, n_text--)
        if (!strncasecmp(text, word, len))
            return true;
    return false;
}

/* Returns true if the service or the name of the row contains each word of the filter. */
static bool operations_passes(const struct operations_row *row, const char *filter)
{
    while (filter && *filter) {
        filter += strspn(filter, " ");
        size_t len = strcspn(filter, " ");
        if (len && !operations_has_word(row->service, filter, len) &&
            !operations_has_word(row->name, filter, len))
            return false;
        filter += len;
    }
    return true;
}

static bool operations_is_empty(const struct operations_row *row)
{
    for (unsigned i = 0; i < PERIODS; i++)
        if (row->periods[i].durations.count || row->periods[i].samples || row->periods[i].cpu_ns)
            return false;
    return true;
}

/* Compares rows by CPU time and number of spans. The row of a span above another one, which has the
 * same CPU time with less CPU time of its own, comes first. */
static int operations_compare(const void *left, const void *right)
{
    const struct operations_row *a = *(const struct operations_row *const *)left;
    const struct operations_row *b = *(const struct operations_row *const *)right;
    const struct operations_period *first = &a->periods[NOW], *second = &b->periods[NOW];
    if (first->subtree_ns != second->subtree_ns)
        return first->subtree_ns > second->subtree_ns ? -1 : 1;
    if (first->cpu_ns != second->cpu_ns)
        return first->cpu_ns < second->cpu_ns ? -1 : 1;
    if (first->durations.count != second->durations.count)
        return first->durations.count > second->durations.count ? -1 : 1;
    int order = strcmp(a->service, b->service);
    order = order ? order : strcmp(a->name, b->name);
    return order ? order : (int)a->kind - (int)b->kind;
}

static void operations_put_sums(struct br_str *out, const struct operations_period *period)
{
    br_str_printf(out,
                  "\"spans\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"samples\":%" PRIu64
                  ",\"cpu_ns\":%" PRId64,
                  period->durations.count, period->errors, period->samples, period->cpu_ns);
}

static void operations_put_period(const struct operations_report *report,
                                  const struct operations_period *period)
{
    struct br_str *out = &report->job->out;
    operations_put_sums(out, period);
    br_str_puts(out, ",\"subtree_cpu_ns\":");
    if (report->exact)
        br_str_printf(out, "%" PRId64, period->subtree_ns);
    else
        br_str_puts(out, "null");
    br_str_printf(out,
                  ",\"p50_ns\":%" PRIu64 ",\"p95_ns\":%" PRIu64 ",\"p99_ns\":%" PRIu64
                  ",\"max_ns\":%" PRIu64,
                  query_durations_percentile(&period->durations, 50),
                  query_durations_percentile(&period->durations, 95),
                  query_durations_percentile(&period->durations, 99), period->durations.max_ns);
}

static void operations_put_row(const struct operations_report *report,
                               const struct operations_row *row)
{
    struct br_str *out = &report->job->out;
    query_put_text(out, '{', "kind", kind_names[row->kind]);
    query_put_text(out, ',', "service", row->service);
    query_put_text(out, ',', "name", row->name);
    br_str_putc(out, ',');
    operations_put_period(report, &row->periods[NOW]);
    br_str_puts(out, ",\"steps\":[");
    for (uint64_t i = 0; row->steps && i < report->steps.count; i++)
        br_str_printf(out, "%s%" PRIu64, i ? "," : "", row->steps[i]);
    br_str_puts(out, "],\"before\":{");
    operations_put_period(report, &row->periods[BEFORE]);
    br_str_puts(out, "}}");
}

static void operations_put_total(struct br_str *out, const char *name,
                                 struct operations_row *const *rows, size_t count, unsigned index)
{
    struct operations_period total = {0};
    for (size_t i = 0; i < count; i++) {
        const struct operations_period *period = &rows[i]->periods[index];
        total.durations.count += period->durations.count;
        total.errors += period->errors;
        operations_add_cpu(&total, period->cpu_ns, period->samples);
    }
    br_str_printf(out, ",\"%s\":{", name);
    operations_put_sums(out, &total);
    br_str_putc(out, '}');
}

/* Returns true if the store contains the whole range before the requested range. */
static bool operations_has_before(const struct operations_report *report)
{
    struct br_store_usage usage = {0};
    br_store_usage(report->job->query->store, &usage);
    uint64_t oldest_ns = usage.spans.oldest_ns ? usage.spans.oldest_ns : usage.samples.oldest_ns;
    if (usage.samples.oldest_ns > report->before_ns)
        return false;
    return report->before_ns < report->from_ns && oldest_ns && oldest_ns <= report->before_ns;
}

static int operations_list(struct operations_report *report, struct operations_row ***ret,
                           size_t *ret_count)
{
    size_t n_rows = br_map_count(report->map), len, count = 0;
    const void *key;
    struct operations_row **rows =
        br_arena_calloc(&report->job->arena, n_rows + 1, sizeof(struct operations_row *));
    if (!rows)
        return br_arena_why(&report->job->arena);
    for (size_t i = 0; i <= n_rows; i++) {
        rows[count] = i < n_rows ? br_map_at(report->map, i, &key, &len) : report->rest;
        count += !operations_is_empty(rows[count]);
    }
    if (count)
        qsort(rows, count, sizeof(struct operations_row *), operations_compare);
    *ret = rows;
    *ret_count = count;
    return 0;
}

static int operations_respond(struct operations_report *report)
{
    struct br_str *out = &report->job->out;
    const char *filter = query_job_param(report->job, "filter");
    struct operations_row **rows = NULL;
    size_t count = 0, n_out = 0, n_left_out = 0;
    int rc = operations_list(report, &rows, &count);
    if (rc)
        return rc;
    br_str_printf(out,
                  "{\"start_unix_ns\":\"%" PRIu64 "\",\"end_unix_ns\":\"%" PRIu64
                  "\",\"step_ns\":%" PRIu64 ",\"before_unix_ns\":\"%" PRIu64
                  "\",\"before_complete\":%s,\"percentile_error\":%g",
                  report->from_ns, report->until_ns, report->steps.step_ns, report->before_ns,
                  operations_has_before(report) ? "true" : "false", QUERY_DURATIONS_ERROR);
    operations_put_total(out, "total", rows, count, NOW);
    operations_put_total(out, "total_before", rows, count, BEFORE);
    br_str_puts(out, ",\"operations\":[");
    for (size_t i = 0; i < count; i++) {
        if (!query_job_may_continue(report->job))
            break;
        if (!operations_passes(rows[i], filter))
            continue;
        /* rows with huge names must not use up the memory of the response */
        if (n_out == report->limit || out->len > RESPONSE_BYTES) {
            n_left_out++;
            continue;
        }
        if (n_out++)
            br_str_putc(out, ',');
        operations_put_row(report, rows[i]);
    }
    br_str_printf(out, "],\"left_out\":%zu", n_left_out);
    return 0;
}

/* --- The handler ----------------------------------------------------------------------------- */

static int operations_read(struct operations_report *report, struct br_err *err)
{
    report->map = br_map_new(ROWS_MAX);
    if (!report->map)
        return BR_ENOMEM;
    report->rest = operations_new_row(report, KIND_REST, "", "");
    if (!report->rest)
        return report->rc;
    uint64_t n_spans;
    int rc = br_store_count_spans(report->job->store, operations_spans_from(report),
                                  report->until_ns, &n_spans, err);
    report->exact = n_spans <= report->max_spans;
    if (!rc)
        rc = operations_read_spans(report, report->exact, operations_on_facts, err);
    if (!rc && report->exact)
        rc = operations_read_each(report, err);
    if (!rc && !report->exact)
        rc = operations_read_sums(report, err);
    return rc ? rc : operations_respond(report);
}

static void operations_release(struct operations_report *report)
{
    br_free(report->rows);
    operations_forget_spans(report);
    br_str_release(&report->key);
    br_map_free(report->map, NULL);
}

void query_braid_operations(struct query_job *job)
{
    struct operations_report report = {.job = job};
    uint64_t points, max_spans = (uint64_t)job->config->max_query_memory / SPAN_SHARE;
    struct br_err err = {0};
    if (!query_braid_range(job, &report.from_ns, &report.until_ns) ||
        !query_job_number(job, "points", POINTS_DEFAULT, POINTS_MAX, &points) ||
        !query_job_number(job, "limit", LIMIT_DEFAULT, LIMIT_MAX, &report.limit))
        return;
    const char *filter = query_job_param(job, "filter");
    if (filter && strlen(filter) > FILTER_MAX) {
        query_job_fail(job, 400, "invalid filter: longer than %d bytes", FILTER_MAX);
        return;
    }
    uint64_t range_ns = report.until_ns - report.from_ns;
    points = points ? points : POINTS_DEFAULT;
    report.limit = report.limit ? report.limit : LIMIT_DEFAULT;
    report.before_ns = report.from_ns > range_ns ? report.from_ns - range_ns : report.from_ns;
    query_steps_init(&report.steps, report.from_ns, report.until_ns, points);
    report.max_spans = max_spans < SPANS_MAX ? (uint32_t)max_spans : SPANS_MAX;
    br_index_init(&report.index, report.max_spans, BR_HOLDER_STORE);
    br_random_bytes(report.index.secret, sizeof report.index.secret);
    int rc = operations_read(&report, &err);
    operations_release(&report);
    query_braid_end(job, rc, &err);
}
