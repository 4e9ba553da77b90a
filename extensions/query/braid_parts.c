/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/braid_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/sum.h"
#include "otlp/fields.h"

#define OPERATIONS_MAX 1000 /* maximum number of operations that are distinguished */
#define SHOWN_MAX 20        /* maximum number of operations in a response */
/* longest time that is computed with, in nanoseconds (115 days); the sum of QUERY_PARTS_SPANS_MAX
 * such times does not overflow */
#define TIME_MAX INT64_C(10000000000000000)
#define WAITS_MAX BRAID_TRACE_SPANS_MAX

/* Sums of samples. PARTS_BLOCKED is used instead of PARTS_OFF_CPU if no off-CPU time was
 * recorded. */
enum parts_kind { PARTS_CPU, PARTS_LOCK, PARTS_OFF_CPU, PARTS_BLOCKED, PARTS_KINDS };

/* Times in nanoseconds that the spans of both sides spent in an operation. */
struct parts_operation {
    const char *service, *name;
    int64_t sum_ns[BR_FLAME_SIDES], mean_ns[BR_FLAME_SIDES];
    double squares[BR_FLAME_SIDES];
    uint64_t calls[BR_FLAME_SIDES];
    int64_t now_ns; /* time of the span that is being added */
};

/* The part of one span's duration that no operation below it covers. */
struct parts_span {
    int64_t rest_ns;
    int64_t remote_ns; /* time for which the span waited for operations of other services */
    int64_t values[PARTS_KINDS];
};

/* A span id whose samples belong to the span number `span` of a side. */
struct parts_owner {
    uint64_t span_id;
    size_t span;
};

struct parts_side {
    struct parts_span spans[QUERY_PARTS_SPANS_MAX];
    size_t n_spans;
    int64_t duration_ns; /* sum of the durations */
    struct parts_owner *owners;
    size_t n_owners;
    uint32_t cap_owners;
    int64_t means_ns[PARTS_KINDS], unexplained_ns;
};

/* A span in the local subtree of a span, or directly below the subtree. */
struct parts_entry {
    uint32_t row;
    size_t above;            /* index of the parent's entry */
    int64_t from_ns, end_ns; /* relative to the start of the span, and within it */
    bool border;             /* this span is an operation below, of another service */
    bool crosses;            /* a descendant of this span is an operation of another service */
    bool own;                /* this span is a part of the span itself */
};

/* A time in which a span may wait for an operation below it. */
struct parts_wait {
    size_t operation; /* index in `operations` */
    int64_t from_ns, end_ns;
    bool border;
};

struct query_parts {
    struct query_job *job;
    struct parts_side sides[BR_FLAME_SIDES];
    /* operations[0] contains the operations beyond OPERATIONS_MAX */
    struct parts_operation *operations;
    size_t n_operations;
    struct br_map *by_name;
    struct br_str key;
    struct parts_entry *entries;
    struct parts_wait *waits;
    size_t n_entries, n_waits;
    uint32_t cap_entries, cap_waits;
    int64_t period_ns; /* longest sampling interval of CPU time; 0: unknown */
    bool has[PARTS_KINDS];
};

struct query_parts *query_parts_new(struct query_job *job)
{
    struct query_parts *parts = br_arena_calloc(&job->arena, 1, sizeof *parts);
    if (!parts)
        return NULL;
    parts->job = job;
    parts->operations = br_arena_calloc(&job->arena, OPERATIONS_MAX + 1, sizeof *parts->operations);
    parts->n_operations = 1;
    parts->by_name = parts->operations ? br_map_new(OPERATIONS_MAX) : NULL;
    return parts->by_name ? parts : NULL;
}

void query_parts_free(struct query_parts *parts)
{
    if (!parts)
        return;
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
        br_free(parts->sides[side].owners);
    br_free(parts->entries);
    br_free(parts->waits);
    br_str_release(&parts->key);
    br_map_free(parts->by_name, NULL);
}

/* --- Times ----------------------------------------------------------------------------------- */

/* Returns the time from `origin_ns` to `at_ns`, limited to TIME_MAX in both directions. */
static int64_t parts_time(uint64_t at_ns, uint64_t origin_ns)
{
    uint64_t distance = at_ns > origin_ns ? at_ns - origin_ns : origin_ns - at_ns;
    int64_t limited = distance < (uint64_t)TIME_MAX ? (int64_t)distance : TIME_MAX;
    return at_ns < origin_ns ? -limited : limited;
}

static int64_t parts_duration(const struct br_stored_span *span)
{
    return parts_time(span->duration_ns, 0);
}

static bool parts_is_called(const struct br_stored_span *child, const struct br_stored_span *parent)
{
    return br_span_kind_is_entry(child->kind) && parent->kind >= BR_SPAN_KIND_CLIENT &&
           !br_span_kind_is_entry(parent->kind);
}

/* Computes the time of a child relative to `origin_ns`. Moves a called span that is not within its
 * parent: the clocks of the two hosts differ. A call that lasted longer than its parent, because
 * the caller's time limit ended, begins with its parent. */
static void parts_place(const struct br_stored_span *child, const struct br_stored_span *parent,
                        uint64_t origin_ns, struct parts_entry *entry)
{
    int64_t from_ns = parts_time(child->start_ns, origin_ns), lasted_ns = parts_duration(child);
    int64_t first_ns = parts_time(parent->start_ns, origin_ns);
    int64_t available_ns = parts_duration(parent), last_ns = first_ns + available_ns;
    bool outside = from_ns < first_ns || from_ns + lasted_ns > last_ns;
    if (entry->border && child->kind == BR_SPAN_KIND_SERVER && outside) {
        if (lasted_ns <= available_ns)
            from_ns = first_ns + (available_ns - lasted_ns) / 2;
        else if (from_ns < first_ns || from_ns >= last_ns)
            from_ns = first_ns;
    }
    entry->from_ns = from_ns;
    entry->end_ns = from_ns + lasted_ns;
}

/* --- Operations below a span ----------------------------------------------------------------- */

static int parts_find_operation(struct query_parts *parts, const struct br_stored_span *span,
                                size_t *ret)
{
    struct br_arena *arena = &parts->job->arena;
    br_str_clear(&parts->key);
    br_str_add(&parts->key, span->service, strlen(span->service) + 1);
    br_str_puts(&parts->key, span->name);
    if (parts->key.failed)
        return BR_ENOMEM;
    struct parts_operation *known = br_map_get(parts->by_name, parts->key.data, parts->key.len);
    *ret = known ? (size_t)(known - parts->operations) : 0;
    if (known)
        return 0;
    if (parts->n_operations > OPERATIONS_MAX) {
        query_job_note(parts->job, "there are more operations than one comparison distinguishes");
        return 0;
    }
    struct parts_operation *operation = &parts->operations[parts->n_operations];
    operation->service = br_arena_strndup(arena, span->service, strlen(span->service));
    operation->name = br_arena_strndup(arena, span->name, strlen(span->name));
    if (!operation->service || !operation->name)
        return br_arena_why(arena);
    int rc = br_map_put(parts->by_name, parts->key.data, parts->key.len, operation, NULL);
    if (!rc)
        *ret = parts->n_operations++;
    return rc;
}

static int parts_push(struct query_parts *parts, const struct parts_entry *entry)
{
    int rc = br_grow(&parts->entries, &parts->cap_entries, parts->n_entries + 1,
                     sizeof *parts->entries, BRAID_TRACE_SPANS_MAX);
    if (!rc)
        parts->entries[parts->n_entries++] = *entry;
    return rc;
}

/* Lists the local subtree of a span, parents first, and the spans directly below the subtree. */
static int parts_list(struct query_parts *parts, const struct query_braid_rows *trace,
                      uint32_t root)
{
    uint64_t origin_ns = trace->rows[root].span.start_ns;
    struct parts_entry first = {
        .row = root, .own = true, .end_ns = parts_duration(&trace->rows[root].span)};
    parts->n_entries = 0;
    int rc = parts_push(parts, &first);
    for (size_t at = 0; at < parts->n_entries && !rc; at++) {
        const struct query_braid_row *parent = &trace->rows[parts->entries[at].row];
        if (parts->entries[at].border)
            continue;
        for (uint32_t i = parent->first_child; i != UINT32_MAX && !rc; i = trace->rows[i].next) {
            const struct br_stored_span *child = &trace->rows[i].span;
            struct parts_entry entry = {.row = i, .above = at};
            if (i == root) /* the span is its own ancestor */
                continue;
            entry.border = strcmp(child->service, parent->span.service) != 0 ||
                           parts_is_called(child, &parent->span);
            parts_place(child, &parent->span, origin_ns, &entry);
            rc = parts_push(parts, &entry);
        }
    }
    return rc;
}

static int parts_add_wait(struct query_parts *parts, const struct br_stored_span *span,
                          const struct parts_entry *entry)
{
    struct parts_wait wait = {
        .from_ns = entry->from_ns, .end_ns = entry->end_ns, .border = entry->border};
    int rc = parts_find_operation(parts, span, &wait.operation);
    if (!rc)
        rc = br_grow(&parts->waits, &parts->cap_waits, parts->n_waits + 1, sizeof *parts->waits,
                     WAITS_MAX);
    if (!rc)
        parts->waits[parts->n_waits++] = wait;
    return rc;
}

static int parts_add_owner(struct parts_side *side, uint64_t span_id)
{
    int rc = br_grow(&side->owners, &side->cap_owners, side->n_owners + 1, sizeof *side->owners,
                     QUERY_IDS_MAX);
    if (!rc)
        side->owners[side->n_owners++] = (struct parts_owner){span_id, side->n_spans};
    return rc;
}

/* Decides for each entry whether it is a part of the span itself or an operation below it. */
static int parts_divide(struct query_parts *parts, struct parts_side *side,
                        const struct query_braid_rows *trace)
{
    struct parts_entry *entries = parts->entries;
    int rc = 0;
    for (size_t i = parts->n_entries; i-- > 1;)
        if (entries[i].border || entries[i].crosses)
            entries[entries[i].above].crosses = true;
    parts->n_waits = 0;
    for (size_t i = 0; i < parts->n_entries && !rc; i++) {
        struct parts_entry *entry = &entries[i];
        const struct parts_entry *above = &entries[entry->above];
        const struct br_stored_span *span = &trace->rows[entry->row].span;
        if (!above->own)
            continue;
        entry->from_ns = entry->from_ns > above->from_ns ? entry->from_ns : above->from_ns;
        entry->end_ns = entry->end_ns < above->end_ns ? entry->end_ns : above->end_ns;
        entry->own = !i || (!entry->border && entry->crosses);
        rc = entry->own ? parts_add_owner(side, span->span_id) : parts_add_wait(parts, span, entry);
    }
    return rc;
}

static int parts_compare_waits(const void *left, const void *right)
{
    const struct parts_wait *a = left, *b = right;
    if (a->end_ns != b->end_ns)
        return a->end_ns > b->end_ns ? -1 : 1;
    if (a->from_ns != b->from_ns)
        return a->from_ns < b->from_ns ? -1 : 1;
    return (a->operation > b->operation) - (a->operation < b->operation);
}

/* Gives each moment of the span to the operation that ends last, from the span's end to its
 * start. The sum of the times is the length of the union of all waits. */
static int64_t parts_share(struct query_parts *parts, struct parts_span *span)
{
    int64_t covered_ns = 0, free_until_ns = INT64_MAX;
    if (parts->n_waits)
        qsort(parts->waits, parts->n_waits, sizeof *parts->waits, parts_compare_waits);
    for (size_t i = 0; i < parts->n_waits; i++) {
        const struct parts_wait *wait = &parts->waits[i];
        int64_t end_ns = wait->end_ns < free_until_ns ? wait->end_ns : free_until_ns;
        int64_t time_ns = end_ns > wait->from_ns ? end_ns - wait->from_ns : 0;
        if (time_ns)
            free_until_ns = wait->from_ns;
        parts->operations[wait->operation].now_ns += time_ns;
        span->remote_ns += wait->border ? time_ns : 0;
        covered_ns += time_ns;
    }
    return covered_ns;
}

static void parts_add_times(struct query_parts *parts, unsigned side)
{
    for (size_t i = 0; i < parts->n_waits; i++) {
        struct parts_operation *operation = &parts->operations[parts->waits[i].operation];
        operation->sum_ns[side] += operation->now_ns;
        operation->squares[side] += (double)operation->now_ns * (double)operation->now_ns;
        operation->calls[side]++;
        operation->now_ns = 0;
    }
}

int query_parts_add(struct query_parts *parts, unsigned number,
                    const struct query_braid_rows *trace, const struct query_braid_row *span)
{
    struct parts_side *side = &parts->sides[number];
    size_t n_owners = side->n_owners;
    if (side->n_spans == QUERY_PARTS_SPANS_MAX)
        return 0;
    int rc = parts_list(parts, trace, (uint32_t)(span - trace->rows));
    if (!rc)
        rc = parts_divide(parts, side, trace);
    if (rc) {
        side->n_owners = n_owners;
        return rc;
    }
    struct parts_span *added = &side->spans[side->n_spans++];
    int64_t duration_ns = parts_duration(&span->span);
    added->rest_ns = duration_ns - parts_share(parts, added);
    parts_add_times(parts, number);
    side->duration_ns += duration_ns;
    return 0;
}

/* --- Samples --------------------------------------------------------------------------------- */

static int parts_compare_owners(const void *left, const void *right)
{
    const struct parts_owner *a = left, *b = right;
    return (a->span_id > b->span_id) - (a->span_id < b->span_id);
}

void query_parts_end_spans(struct query_parts *parts)
{
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++)
        if (parts->sides[i].n_owners)
            qsort(parts->sides[i].owners, parts->sides[i].n_owners, sizeof *parts->sides[i].owners,
                  parts_compare_owners);
}

static enum parts_kind parts_kind_of(const char *type)
{
    const char *suffix = strchr(type, ':');
    const char *unit = suffix ? strchr(suffix + 1, ':') : NULL;
    if (query_braid_is_cpu(type))
        return PARTS_CPU;
    if (br_text_starts(type, "mutex:delay:nanoseconds:"))
        return PARTS_LOCK;
    if (br_text_starts(type, "block:delay:nanoseconds:"))
        return PARTS_BLOCKED;
    if (br_text_starts(type, "off_cpu:") && unit && br_text_starts(unit, ":nanoseconds:"))
        return PARTS_OFF_CPU;
    return PARTS_KINDS;
}

/* Returns the index of the first owner with this span id, or the index at which it would be. */
static size_t parts_find_owner(const struct parts_side *side, uint64_t span_id)
{
    size_t low = 0, high = side->n_owners;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (side->owners[middle].span_id < span_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void query_parts_add_samples(struct query_parts *parts, unsigned number,
                             const struct br_stored_samples *samples)
{
    struct parts_side *side = &parts->sides[number];
    enum parts_kind kind = parts_kind_of(samples->series->type);
    int64_t value = samples->value < TIME_MAX ? samples->value : TIME_MAX;
    if (kind == PARTS_KINDS || value <= 0)
        return;
    parts->has[kind] = true;
    if (kind == PARTS_CPU && samples->series->per_sample <= (uint64_t)TIME_MAX &&
        (int64_t)samples->series->per_sample > parts->period_ns)
        parts->period_ns = (int64_t)samples->series->per_sample;
    for (size_t i = parts_find_owner(side, samples->span_id);
         i < side->n_owners && side->owners[i].span_id == samples->span_id; i++) {
        int64_t *sum = &side->spans[side->owners[i].span].values[kind];
        *sum = br_sum(*sum, value) < TIME_MAX ? br_sum(*sum, value) : TIME_MAX;
    }
}

/* --- Means ----------------------------------------------------------------------------------- */

static int64_t parts_per_span(int64_t sum, size_t n_spans)
{
    int64_t count = n_spans ? (int64_t)n_spans : 1;
    return sum / count + (sum % count * 2 >= count);
}

int64_t query_parts_mean_ns(const struct query_parts *parts, unsigned side)
{
    return parts_per_span(parts->sides[side].duration_ns, parts->sides[side].n_spans);
}

/* Adds a value to a running sum, and returns the increase of the rounded mean. Means that are
 * computed this way add up to the rounded mean of all values. */
static int64_t parts_next_mean(int64_t *sum, int64_t value, size_t n_spans)
{
    int64_t before = parts_per_span(*sum, n_spans);
    *sum += value;
    return parts_per_span(*sum, n_spans) - before;
}

static int64_t parts_at_most(int64_t value, int64_t most)
{
    if (value < 0)
        return 0;
    return value < most ? value : most;
}

/* Divides the time that no operation below covers. Sums of samples are estimates, so they are
 * limited to this time only after they were added up over all spans. */
static void parts_divide_rest(struct query_parts *parts, struct parts_side *side, int64_t *sum)
{
    int64_t left_ns = 0, remote_ns = 0, totals[PARTS_KINDS] = {0};
    for (size_t i = 0; i < side->n_spans; i++) {
        left_ns += side->spans[i].rest_ns;
        remote_ns += side->spans[i].remote_ns;
        for (unsigned kind = 0; kind < PARTS_KINDS; kind++)
            totals[kind] = br_sum(totals[kind], side->spans[i].values[kind]);
    }
    if (!parts->has[PARTS_OFF_CPU])
        totals[PARTS_OFF_CPU] = totals[PARTS_BLOCKED];
    /* A thread that waits for another service is off the CPU as well. */
    totals[PARTS_OFF_CPU] -= remote_ns;
    totals[PARTS_BLOCKED] = 0;
    for (unsigned kind = 0; kind < PARTS_KINDS; kind++) {
        int64_t part_ns = parts_at_most(totals[kind], left_ns);
        left_ns -= part_ns;
        side->means_ns[kind] = parts_next_mean(sum, part_ns, side->n_spans);
    }
    side->unexplained_ns = parts_next_mean(sum, left_ns, side->n_spans);
}

static void parts_compute(struct query_parts *parts)
{
    for (unsigned i = 0; i < BR_FLAME_SIDES; i++) {
        struct parts_side *side = &parts->sides[i];
        int64_t sum = 0;
        for (size_t at = 0; at < parts->n_operations; at++)
            parts->operations[at].mean_ns[i] =
                parts_next_mean(&sum, parts->operations[at].sum_ns[i], side->n_spans);
        parts_divide_rest(parts, side, &sum);
    }
}

/* --- Noise ----------------------------------------------------------------------------------- */

/* The sum and the sum of squares of a value over the spans of each side. */
struct parts_spread {
    double sums[BR_FLAME_SIDES], squares[BR_FLAME_SIDES];
};

static void parts_spread_add(struct parts_spread *spread, unsigned side, double value)
{
    spread->sums[side] += value;
    spread->squares[side] += value * value;
}

/* Returns twice the standard error of the difference between the means of the two sides, and at
 * least `least_ns`. The variance of a side with a single span is taken from the other side. */
static int64_t parts_noise(const struct query_parts *parts, const struct parts_spread *spread,
                           int64_t least_ns)
{
    double variances[BR_FLAME_SIDES], error = 0;
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        double n_spans = (double)parts->sides[side].n_spans;
        double sum = spread->sums[side];
        variances[side] =
            n_spans >= 2 ? fmax(0, (spread->squares[side] - sum * sum / n_spans) / (n_spans - 1))
                         : -1;
    }
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        double variance = variances[side] >= 0 ? variances[side] : fmax(0, variances[!side]);
        if (parts->sides[side].n_spans)
            error += variance / (double)parts->sides[side].n_spans;
    }
    return (int64_t)fmax((double)least_ns, ceil(2 * sqrt(error)));
}

/* Returns the CPU time of a few samples, divided by the number of spans of the smaller side. */
static int64_t parts_few_samples(const struct query_parts *parts)
{
    size_t fewest = parts->sides[0].n_spans;
    if (!fewest || (parts->sides[1].n_spans && parts->sides[1].n_spans < fewest))
        fewest = parts->sides[1].n_spans;
    return parts_per_span(QUERY_PARTS_NOISE_SAMPLES * parts->period_ns, fewest);
}

static int64_t parts_noise_of_kind(const struct query_parts *parts, enum parts_kind kind)
{
    struct parts_spread spread = {0};
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
        for (size_t i = 0; i < parts->sides[side].n_spans; i++)
            parts_spread_add(&spread, side, (double)parts->sides[side].spans[i].values[kind]);
    return parts_noise(parts, &spread, kind == PARTS_CPU ? parts_few_samples(parts) : 0);
}

static int64_t parts_noise_of_rest(const struct query_parts *parts)
{
    struct parts_spread spread = {0};
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
        for (size_t i = 0; i < parts->sides[side].n_spans; i++) {
            const struct parts_span *span = &parts->sides[side].spans[i];
            parts_spread_add(&spread, side,
                             (double)span->rest_ns - (double)span->values[PARTS_CPU]);
        }
    return parts_noise(parts, &spread, parts_few_samples(parts));
}

static int64_t parts_noise_of_operation(const struct query_parts *parts,
                                        const struct parts_operation *operation)
{
    struct parts_spread spread;
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        spread.sums[side] = (double)operation->sum_ns[side];
        spread.squares[side] = operation->squares[side];
    }
    return parts_noise(parts, &spread, 0);
}

/* --- The response ---------------------------------------------------------------------------- */

static int parts_compare_operations(const void *left, const void *right)
{
    const struct parts_operation *a = left, *b = right;
    int64_t first = llabs(a->mean_ns[1] - a->mean_ns[0]);
    int64_t second = llabs(b->mean_ns[1] - b->mean_ns[0]);
    if (first != second)
        return first > second ? -1 : 1;
    if (a->mean_ns[0] != b->mean_ns[0])
        return a->mean_ns[0] > b->mean_ns[0] ? -1 : 1;
    int order = strcmp(a->service, b->service);
    return order ? order : strcmp(a->name, b->name);
}

static double parts_calls(const struct query_parts *parts, const struct parts_operation *operation,
                          unsigned side)
{
    size_t n_spans = parts->sides[side].n_spans;
    return n_spans ? (double)operation->calls[side] / (double)n_spans : 0;
}

static void parts_put_part(struct query_parts *parts, const char *kind,
                           const struct parts_operation *part, int64_t noise_ns)
{
    struct br_str *out = &parts->job->out;
    int64_t larger_ns = part->mean_ns[0] > part->mean_ns[1] ? part->mean_ns[0] : part->mean_ns[1];
    /* The spread of the values is unknown, so any difference may be chance. */
    if (parts->sides[0].n_spans < 2 && parts->sides[1].n_spans < 2 && noise_ns < larger_ns)
        noise_ns = larger_ns;
    query_put_text(out, '{', "kind", kind);
    query_put_text(out, ',', "service", part->service ? part->service : "");
    query_put_text(out, ',', "name", part->name ? part->name : "");
    br_str_printf(out,
                  ",\"typical_ns\":%" PRId64 ",\"slow_ns\":%" PRId64 ",\"delta_ns\":%" PRId64
                  ",\"noise_ns\":%" PRId64 ",\"typical_calls\":%.6g,\"slow_calls\":%.6g}",
                  part->mean_ns[0], part->mean_ns[1], part->mean_ns[1] - part->mean_ns[0], noise_ns,
                  parts_calls(parts, part, 0), parts_calls(parts, part, 1));
}

static void parts_put_kinds(struct query_parts *parts)
{
    static const char *const names[] = {"cpu", "lock", "off_cpu"};
    for (unsigned kind = 0; kind < BR_COUNT(names); kind++) {
        bool blocked = kind == PARTS_OFF_CPU && !parts->has[PARTS_OFF_CPU];
        enum parts_kind source = blocked ? PARTS_BLOCKED : (enum parts_kind)kind;
        struct parts_operation part = {
            .mean_ns = {parts->sides[0].means_ns[kind], parts->sides[1].means_ns[kind]}};
        if (kind != PARTS_CPU && !parts->has[source])
            continue;
        parts_put_part(parts, names[kind], &part, parts_noise_of_kind(parts, source));
        br_str_putc(&parts->job->out, ',');
    }
}

static void parts_add_operation(struct parts_operation *sum, const struct parts_operation *added)
{
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        sum->mean_ns[side] += added->mean_ns[side];
        sum->sum_ns[side] += added->sum_ns[side];
        sum->squares[side] += added->squares[side];
        sum->calls[side] += added->calls[side];
    }
}

void query_parts_put(struct query_parts *parts)
{
    struct br_str *out = &parts->job->out;
    struct parts_operation *other = &parts->operations[0];
    size_t n_named = parts->n_operations - 1;
    parts_compute(parts);
    if (n_named)
        qsort(&parts->operations[1], n_named, sizeof *parts->operations, parts_compare_operations);
    br_str_puts(out, ",\"parts\":[");
    for (size_t i = 1; i < parts->n_operations; i++) {
        struct parts_operation *operation = &parts->operations[i];
        if (i > SHOWN_MAX) {
            parts_add_operation(other, operation);
            continue;
        }
        parts_put_part(parts, "operation", operation, parts_noise_of_operation(parts, operation));
        br_str_putc(out, ',');
    }
    parts_put_kinds(parts);
    if (other->calls[0] || other->calls[1]) {
        parts_put_part(parts, "other", other, parts_noise_of_operation(parts, other));
        br_str_putc(out, ',');
    }
    struct parts_operation rest = {
        .mean_ns = {parts->sides[0].unexplained_ns, parts->sides[1].unexplained_ns}};
    parts_put_part(parts, "unexplained", &rest, parts_noise_of_rest(parts));
    br_str_putc(out, ']');
}
