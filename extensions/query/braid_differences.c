/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Implements GET differences: the attribute values that differ most in frequency between the
 * selected spans and all other spans of a filter.
 *
 * A first pass over the store counts the spans of both sides. A second pass reads the attributes of
 * at most READ_MAX spans of each side, at equal distances in the order of the store.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/braid.h"
#include "extensions/query/braid_filter.h"
#include "otlp/json/number.h"
#include "query/traceql_metric.h"

#define READ_MAX 500u
#define LIMIT_DEFAULT 40
#define LIMIT_MAX 500
/* Attributes that depend on other spans of the trace. These are left out, because traces are not
 * read. */
static const char *const trace_attributes[] = {"rootName", "rootServiceName", "span:childCount"};

struct differences_side {
    uint64_t spans;    /* number of spans of the side */
    uint64_t n_seen;   /* number of spans that the second pass has seen */
    uint64_t n_chosen; /* number of spans that were chosen for reading */
    uint64_t n_read;   /* number of spans whose attributes were counted */
};

struct differences {
    struct query_job *job;
    struct query_braid_filter of;
    struct query_braid_selection selection;
    struct differences_side sides[BR_TRACEQL_SIDES];
    struct br_traceql_comparison comparison;
    struct br_stored_span chosen[BR_TRACEQL_SIDES * READ_MAX]; /* the spans to read */
    size_t n_chosen;
    uint64_t limit;
    int rc;
    struct br_err *err;
};

/* The search for the row of a chosen span in its trace. */
struct differences_found {
    const struct br_stored_span *wanted;
    struct br_stored_span row;
    bool is_found;
};

/* How often one value of an attribute occurs. The index is a br_traceql_side. */
struct difference {
    const struct br_traceql_compared *entry;
    uint64_t counts[BR_TRACEQL_SIDES];
    double shares[BR_TRACEQL_SIDES];
};

/* --- Counting -------------------------------------------------------------------------------- */

static enum br_traceql_side differences_side_of(const struct differences *report,
                                                const struct br_stored_span *span)
{
    return query_braid_selection_has(&report->selection, span->start_ns, span->duration_ns)
               ? BR_TRACEQL_SELECTION
               : BR_TRACEQL_BASELINE;
}

static bool differences_on_count(const struct br_stored_span *span, void *arg)
{
    struct differences *report = arg;
    report->sides[differences_side_of(report, span)].spans++;
    return query_job_may_continue(report->job);
}

static void differences_read(struct differences *report, const struct br_stored_span *row)
{
    struct br_traceql_span span = {.row = row, .parent = BR_TRACEQL_NO_PARENT, .in = true};
    const struct br_traceql_trace alone = {.spans = &span, .n_spans = 1};
    enum br_traceql_side side = differences_side_of(report, row);
    struct br_span_bytes bytes;
    report->rc = br_store_span_bytes(report->job->store, row, &bytes, report->err);
    if (!report->rc)
        report->rc = br_traceql_comparison_add(&report->comparison, &alone, &span, &bytes, side);
    if (!report->rc)
        report->sides[side].n_read++;
}

static bool differences_on_span(const struct br_stored_span *span, void *arg)
{
    struct differences *report = arg;
    struct differences_side *side = &report->sides[differences_side_of(report, span)];
    uint64_t wanted = side->spans < READ_MAX ? side->spans : READ_MAX;
    /* A span that came after the first pass can make the numbers differ. */
    if (side->n_chosen < wanted && side->n_seen++ == side->n_chosen * side->spans / wanted) {
        side->n_chosen++;
        report->chosen[report->n_chosen++] = *span;
    }
    return query_job_may_continue(report->job);
}

static bool differences_on_found(const struct br_stored_span *span, void *arg)
{
    struct differences_found *found = arg;
    if (span->span_id == found->wanted->span_id && span->start_ns == found->wanted->start_ns &&
        span->duration_ns == found->wanted->duration_ns) {
        found->row = *span;
        found->is_found = true;
    }
    return !found->is_found;
}

/* Reads the chosen spans. With a query, the store's query was restarted after some of them were
 * found, so their rows are looked up again. */
static int differences_read_chosen(struct differences *report, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < report->n_chosen && !rc && !report->rc; i++) {
        struct differences_found found = {.wanted = &report->chosen[i]};
        if (!query_job_may_continue(report->job))
            break;
        if (report->of.has_query)
            rc = br_store_trace(report->job->store, found.wanted->trace_id, differences_on_found,
                                &found, err);
        if (!rc && (found.is_found || !report->of.has_query))
            differences_read(report, found.is_found ? &found.row : found.wanted);
    }
    return rc ? rc : report->rc;
}

static int differences_count(struct differences *report, struct br_err *err)
{
    int rc = query_braid_filter_parse(&report->of, report->job, err);
    if (!rc)
        rc = query_braid_filter_spans(&report->of, report->job, differences_on_count, report, err);
    if (!rc)
        rc = query_braid_filter_spans(&report->of, report->job, differences_on_span, report, err);
    return rc ? rc : differences_read_chosen(report, err);
}

/* --- Differences ----------------------------------------------------------------------------- */

static int differences_compare_text(const struct br_traceql_value *left,
                                    const struct br_traceql_value *right)
{
    size_t len = left->len < right->len ? left->len : right->len;
    int order = len ? memcmp(left->text, right->text, len) : 0;
    return order ? order : (left->len > right->len) - (left->len < right->len);
}

/* Orders entries by attribute and value. */
static int differences_compare_entries(const void *left, const void *right)
{
    const struct br_traceql_compared *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    if (order)
        return order;
    if (a->value.type != b->value.type)
        return a->value.type < b->value.type ? -1 : 1;
    if (a->value.type == BR_TRACEQL_STRING)
        return differences_compare_text(&a->value, &b->value);
    if (a->value.type == BR_TRACEQL_BOOL)
        return (int)a->value.boolean - (int)b->value.boolean;
    if (a->value.type == BR_TRACEQL_NIL)
        return 0;
    /* the order of the bits of a FLOAT, which shares its memory with `integer`, also works */
    return (a->value.integer > b->value.integer) - (a->value.integer < b->value.integer);
}

static double differences_distance(const struct difference *difference)
{
    return fabs(difference->shares[BR_TRACEQL_SELECTION] - difference->shares[BR_TRACEQL_BASELINE]);
}

static int differences_compare(const void *left, const void *right)
{
    const struct difference *a = left, *b = right;
    double first = differences_distance(a), second = differences_distance(b);
    if (first != second)
        return first > second ? -1 : 1;
    return differences_compare_entries(a->entry, b->entry);
}

static bool differences_is_shown(const struct br_traceql_compared *entry)
{
    for (size_t i = 0; i < BR_COUNT(trace_attributes); i++)
        if (!strcmp(entry->name, trace_attributes[i]))
            return false;
    return !entry->is_total && entry->value.type != BR_TRACEQL_NIL;
}

/* Joins the counts of both sides. A value that only one span has is left out, because it
 * shows nothing about the other spans. Returns BR_ENOMEM, or 0. */
static int differences_make(struct differences *report, struct difference **ret, size_t *ret_count)
{
    struct br_traceql_comparison *comparison = &report->comparison;
    struct difference *made =
        br_arena_calloc(comparison->arena, comparison->n_entries + 1, sizeof *made);
    size_t count = 0;
    if (!made)
        return BR_ENOMEM;
    if (comparison->n_entries)
        qsort(comparison->entries, comparison->n_entries, sizeof *comparison->entries,
              differences_compare_entries);
    for (uint32_t i = 0; i < comparison->n_entries; i++) {
        const struct br_traceql_compared *entry = &comparison->entries[i];
        if (!differences_is_shown(entry))
            continue;
        struct difference *last = count ? &made[count - 1] : NULL;
        if (!last || differences_compare_entries(last->entry, entry) != 0) {
            if (last && last->counts[0] + last->counts[1] < 2)
                count--;
            last = &made[count++];
            *last = (struct difference){.entry = entry};
        }
        last->counts[entry->side] += entry->count;
    }
    if (count && made[count - 1].counts[0] + made[count - 1].counts[1] < 2)
        count--;
    for (size_t i = 0; i < count; i++)
        for (unsigned side = 0; side < BR_TRACEQL_SIDES; side++)
            if (report->sides[side].n_read)
                made[i].shares[side] =
                    (double)made[i].counts[side] / (double)report->sides[side].n_read;
    if (count)
        qsort(made, count, sizeof *made, differences_compare);
    *ret = made;
    *ret_count = count;
    return 0;
}

/* --- The response ---------------------------------------------------------------------------- */

/* Appends a value as text; if `quoted`, a string as a string of TraceQL. */
static void differences_put_value(struct br_str *out, const struct br_traceql_value *value,
                                  bool quoted)
{
    switch (value->type) {
    case BR_TRACEQL_BOOL:
        br_str_puts(out, value->boolean ? "true" : "false");
        break;
    case BR_TRACEQL_FLOAT:
        br_number_print(out, value->real);
        break;
    case BR_TRACEQL_STATUS:
        br_str_puts(out, query_braid_status((uint8_t)value->integer));
        break;
    case BR_TRACEQL_KIND:
        br_str_puts(out, query_braid_kind((uint8_t)value->integer));
        break;
    case BR_TRACEQL_STRING:
        if (quoted)
            br_str_json(out, value->text, value->len);
        else
            br_str_add(out, value->text, value->len);
        break;
    default:
        br_str_printf(out, "%" PRId64, value->integer);
    }
}

static void differences_put(struct br_str *out, const struct difference *difference,
                            struct br_str *text)
{
    const struct br_traceql_compared *entry = difference->entry;
    query_put_text(out, '{', "attribute", entry->name);
    br_str_puts(out, ",\"value\":");
    text->len = 0;
    differences_put_value(text, &entry->value, false);
    br_str_json(out, text->data, text->len);
    br_str_puts(out, ",\"condition\":");
    text->len = 0;
    br_str_printf(text, "%s = ", entry->name);
    differences_put_value(text, &entry->value, true);
    br_str_json(out, text->data, text->len);
    br_str_printf(out,
                  ",\"selected\":%" PRIu64 ",\"rest\":%" PRIu64
                  ",\"selected_share\":%.6g,\"rest_share\":%.6g}",
                  difference->counts[BR_TRACEQL_SELECTION], difference->counts[BR_TRACEQL_BASELINE],
                  difference->shares[BR_TRACEQL_SELECTION],
                  difference->shares[BR_TRACEQL_BASELINE]);
}

static void differences_put_side(struct br_str *out, const char *before,
                                 const struct differences_side *side)
{
    br_str_printf(out, "%s{\"spans\":%" PRIu64 ",\"read\":%" PRIu64 "}", before, side->spans,
                  side->n_read);
}

static int differences_respond(struct differences *report)
{
    struct br_str *out = &report->job->out;
    struct br_str text = {.max = out->max};
    struct difference *made;
    size_t count;
    int rc = differences_make(report, &made, &count);
    if (rc)
        return rc;
    differences_put_side(out, "{\"selected\":", &report->sides[BR_TRACEQL_SELECTION]);
    differences_put_side(out, ",\"rest\":", &report->sides[BR_TRACEQL_BASELINE]);
    br_str_printf(out, ",\"values\":%zu,\"attributes\":[", count);
    for (size_t i = 0; i < count && i < report->limit; i++) {
        br_str_puts(out, i ? "," : "");
        differences_put(out, &made[i], &text);
    }
    br_str_putc(out, ']');
    br_str_release(&text);
    if (report->comparison.full)
        query_job_note(report->job, "there are more values than one query can count");
    return 0;
}

static bool differences_read_parameters(struct differences *report)
{
    struct query_job *job = report->job;
    bool any;
    if (!query_braid_filter_read(&report->of, job) ||
        !query_braid_selection_read(&report->selection, job, &any) ||
        !query_job_number(job, "limit", LIMIT_DEFAULT, LIMIT_MAX, &report->limit))
        return false;
    report->limit = report->limit ? report->limit : LIMIT_DEFAULT;
    if (!any)
        query_job_fail(job, 400,
                       "missing parameter: set selection_start, selection_end, "
                       "selection_min_duration or selection_max_duration");
    return any;
}

void query_braid_differences(struct query_job *job)
{
    struct br_arena arena;
    struct br_err err = {0};
    /* not in the arena of the job, which a query with TraceQL clears */
    struct differences *report = br_calloc(1, sizeof *report);
    if (!report) {
        query_braid_end(job, BR_ENOMEM, &err);
        return;
    }
    report->job = job;
    report->err = &err;
    if (!differences_read_parameters(report)) {
        br_free(report);
        return;
    }
    br_arena_init(&arena, (size_t)job->config->max_query_memory);
    report->comparison = (struct br_traceql_comparison){
        .start_ns = 0, .step_ns = UINT64_MAX, .n_steps = 1, .arena = &arena};
    br_traceql_comparison_init(&report->comparison);
    int rc = differences_count(report, &err);
    if (!rc)
        rc = differences_respond(report);
    br_traceql_comparison_release(&report->comparison);
    br_arena_release(&arena);
    query_braid_filter_release(&report->of);
    br_free(report);
    query_braid_end(job, rc, &err);
}
