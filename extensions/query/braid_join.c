/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET join, which returns how many samples and spans of each service are linked. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/braid.h"
#include "otlp/fields.h"
#include "profile/profile.h"

#define SPANS_MAX (4u << 20)
#define SERVICES_MAX 1000
#define SKEWS_MAX                                                                                  \
    100000 /* maximum number of pairs of client and server spans whose clocks are compared */
/* nanoseconds by which the time range is extended on both sides to find the spans of samples */
#define SLACK_NS (60 * BRAID_SECOND_NS)
#define SKEW_LARGE_NS 50000000u
/* five sampling intervals, in nanoseconds: a span that uses the CPU for this time has samples */
#define CHILD_LONG_NS 50000000u
/* a hint names a cause only if at least this number of child spans last CHILD_LONG_NS or longer */
#define CHILDREN_MIN 5u
#define HINT_MAX 320

struct join_tally {
    uint64_t samples, with_span, unknown, ambiguous;
};

struct join_service {
    const char *name;
    uint64_t n_spans, n_spans_with_samples;
    struct query_braid_types types;
    /* numbers and values of the service's samples, by profile type */
    struct query_braid_figures samples;
    /* counts of samples, by index of the profile type; BRAID_TYPES_MAX entries */
    struct join_tally *tallies;
    /* number of child spans of at least CHILD_LONG_NS, and number of those that have samples */
    uint64_t n_children, n_children_with_samples;
    bool has_skew; /* true: the clocks of at least one pair of spans were compared */
    uint64_t median_skew_ns;
};

struct join_span {
    uint64_t span_id, parent_id, start_ns, end_ns;
    uint32_t service;
    uint8_t kind;
    bool in_range, has_samples;
};

struct join_skew {
    uint32_t service;
    uint64_t ns;
};

struct join_report {
    struct query_job *job;
    uint64_t from_ns, until_ns;
    struct br_map *map; /* map from service name to an entry of `services` */
    struct join_service *services[SERVICES_MAX];
    size_t n_services;
    struct join_span *spans;
    struct join_skew *skews;
    uint32_t cap_spans, cap_skews;
    size_t n_spans, n_skews;
    int rc;
};

/* Finds or adds a service and returns its number. Returns SERVICES_MAX if there are too many
 * services. Sets report->rc and returns SERVICES_MAX if memory runs out. */
static uint32_t join_find_service(struct join_report *report, const char *name)
{
    struct br_arena *arena = &report->job->arena;
    size_t len = strlen(name);
    struct join_service **known = br_map_get(report->map, name, len);
    if (known)
        return (uint32_t)(known - report->services);
    if (report->n_services == SERVICES_MAX) {
        query_job_note(report->job, "there are more services than one response can list");
        return SERVICES_MAX;
    }
    struct join_service *service = br_arena_calloc(arena, 1, sizeof *service);
    if (service) {
        service->name = br_arena_strndup(arena, name, len);
        service->tallies = br_arena_calloc(arena, BRAID_TYPES_MAX, sizeof *service->tallies);
    }
    if (!service || !service->name || !service->tallies)
        report->rc = br_arena_why(arena);
    else
        report->rc =
            br_map_put(report->map, name, len, &report->services[report->n_services], NULL);
    if (report->rc)
        return SERVICES_MAX;
    report->services[report->n_services] = service;
    return (uint32_t)report->n_services++;
}

/* --- Spans ----------------------------------------------------------------------------------- */

static bool join_on_span(const struct br_stored_span *span, void *arg)
{
    struct join_report *report = arg;
    uint32_t service = join_find_service(report, span->service);
    if (service == SERVICES_MAX)
        return !report->rc;
    if (report->n_spans == SPANS_MAX) {
        report->job->store->note =
            "there are more spans than one query reads: only the newest are counted";
        return false;
    }
    report->rc = br_grow(&report->spans, &report->cap_spans, report->n_spans + 1,
                         sizeof *report->spans, SPANS_MAX);
    if (report->rc)
        return false;
    bool in_range = span->start_ns >= report->from_ns && span->start_ns < report->until_ns;
    report->services[service]->n_spans += in_range;
    report->spans[report->n_spans++] =
        (struct join_span){.span_id = span->span_id,
                           .parent_id = span->parent_id,
                           .kind = span->kind,
                           .start_ns = span->start_ns,
                           .end_ns = span->start_ns + span->duration_ns,
                           .service = service,
                           .in_range = in_range};
    return query_job_may_continue(report->job);
}

static int join_compare_spans(const void *left, const void *right)
{
    const struct join_span *a = left, *b = right;
    return a->span_id < b->span_id ? -1 : a->span_id > b->span_id;
}

static struct join_span *join_find_span(struct join_report *report, uint64_t span_id)
{
    const struct join_span key = {.span_id = span_id};
    return report->n_spans && span_id
               ? bsearch(&key, report->spans, report->n_spans, sizeof key, join_compare_spans)
               : NULL;
}

/* Compares the clocks of a server and its client. If the clocks agree, the span of the server
 * lies within the span of the client. */
static void join_compare_clocks(struct join_report *report, const struct join_span *server,
                                const struct join_span *client)
{
    uint64_t before_ns =
        server->start_ns < client->start_ns ? client->start_ns - server->start_ns : 0;
    uint64_t after_ns = server->end_ns > client->end_ns ? server->end_ns - client->end_ns : 0;
    if (report->n_skews == SKEWS_MAX)
        return;
    report->rc = br_grow(&report->skews, &report->cap_skews, report->n_skews + 1,
                         sizeof *report->skews, SKEWS_MAX);
    if (!report->rc)
        report->skews[report->n_skews++] =
            (struct join_skew){server->service, before_ns > after_ns ? before_ns : after_ns};
}

static void join_compare_with_parents(struct join_report *report)
{
    for (size_t i = 0; i < report->n_spans && !report->rc; i++) {
        const struct join_span *span = &report->spans[i];
        const struct join_span *parent =
            span->in_range ? join_find_span(report, span->parent_id) : NULL;
        if (!parent)
            continue;
        if (span->kind == BR_SPAN_KIND_SERVER && parent->kind == BR_SPAN_KIND_CLIENT)
            join_compare_clocks(report, span, parent);
        /* The thread of a client span is idle while the server works, so samples of CPU time do
         * not name the span, even if the profiler records span ids. */
        if (span->service != parent->service || br_span_kind_is_entry(span->kind) ||
            span->kind == BR_SPAN_KIND_CLIENT || span->end_ns - span->start_ns < CHILD_LONG_NS)
            continue;
        report->services[span->service]->n_children++;
        report->services[span->service]->n_children_with_samples += span->has_samples;
    }
}

/* --- Samples --------------------------------------------------------------------------------- */

static const char *join_label(const struct br_stored_series *series, const char *name)
{
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, name))
            return series->labels[i].value;
    return "";
}

static bool join_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct join_report *report = arg;
    uint32_t number = join_find_service(report, join_label(samples->series, "service_name"));
    if (number == SERVICES_MAX)
        return !report->rc;
    struct join_service *service = report->services[number];
    size_t type = query_braid_type(report->job, &service->types, samples->series->type);
    report->rc =
        query_braid_add(report->job, &service->samples, type, samples->count, samples->value);
    if (report->rc || type == BRAID_TYPES_MAX)
        return !report->rc;
    struct join_tally *tally = &service->tallies[type];
    tally->samples += samples->count;
    if (!samples->span_id) {
        if (!strcmp(join_label(samples->series, BR_SAMPLE_JOIN), "ambiguous"))
            tally->ambiguous += samples->count;
        return query_job_may_continue(report->job);
    }
    tally->with_span += samples->count;
    struct join_span *span = join_find_span(report, samples->span_id);
    if (!span) {
        tally->unknown += samples->count;
        return query_job_may_continue(report->job);
    }
    if (!span->has_samples && span->in_range)
        report->services[span->service]->n_spans_with_samples++;
    span->has_samples = true;
    return query_job_may_continue(report->job);
}

/* --- The response ---------------------------------------------------------------------------- */

static int join_compare_skews(const void *left, const void *right)
{
    const struct join_skew *a = left, *b = right;
    if (a->service != b->service)
        return a->service < b->service ? -1 : 1;
    return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static void join_find_medians(struct join_report *report)
{
    if (report->n_skews)
        qsort(report->skews, report->n_skews, sizeof *report->skews, join_compare_skews);
    for (size_t from = 0, until; from < report->n_skews; from = until) {
        for (until = from; until < report->n_skews &&
                           report->skews[until].service == report->skews[from].service;)
            until++;
        struct join_service *service = report->services[report->skews[from].service];
        service->has_skew = true;
        service->median_skew_ns = report->skews[from + (until - from - 1) / 2].ns;
    }
}

static const char *join_hint(const struct join_service *service, const struct join_tally *tally,
                             char hint[HINT_MAX])
{
    const char *name = service->name;
    if (!tally->samples)
        (void)snprintf(
            hint, HINT_MAX,
            "no profiles of this service arrived: is its profiler on, and does it use the "
            "service name \"%.60s\" as its traces do?",
            name);
    else if (!service->n_spans)
        (void)snprintf(hint, HINT_MAX,
                       "profiles arrived but no spans: are its traces sent here, under "
                       "the same service name?");
    else if (tally->ambiguous * 20 > tally->samples)
        (void)snprintf(hint, HINT_MAX,
                       "%.0f %% of the samples name several spans at once and are left unlinked: "
                       "its threads serve several requests (asyncio) and need a bridge that labels "
                       "each task",
                       100.0 * (double)tally->ambiguous / (double)tally->samples);
    else if (!tally->with_span)
        (void)snprintf(hint, HINT_MAX,
                       "profiles of this service have no span ids: make its profiler set the "
                       "labels span_id and trace_id, or enable `infer` of the processor join");
    else if (tally->unknown * 2 > tally->with_span)
        (void)snprintf(hint, HINT_MAX,
                       "most samples name spans that are not stored: are its traces sampled before "
                       "they arrive here, or have its spans not arrived yet?");
    else if (service->n_children >= CHILDREN_MIN && !service->n_children_with_samples &&
             service->n_spans_with_samples)
        (void)snprintf(hint, HINT_MAX,
                       "the first spans of requests have samples, but none of %" PRIu64
                       " long spans below them do: either these spans wait, or the profiler labels "
                       "only first spans (see docs/using/recipes.md)",
                       service->n_children);
    else if (tally->with_span * 5 < tally->samples)
        (void)snprintf(hint, HINT_MAX,
                       "%.0f %% of the samples name a span: the others are work outside requests, "
                       "or of processes that forked without the profiler's hook, or of threads and "
                       "tasks that need a bridge (see docs/using/recipes.md)",
                       100.0 * (double)tally->with_span / (double)tally->samples);
    else if (service->median_skew_ns > SKEW_LARGE_NS)
        (void)snprintf(
            hint, HINT_MAX,
            "its server spans are %.0f ms (median) outside the client spans that called "
            "them: the clocks differ, and samples that are joined by time may be linked to a "
            "neighbouring span",
            (double)service->median_skew_ns / 1e6);
    else
        return NULL;
    return hint;
}

static void join_put_service(struct query_job *job, const struct join_service *service)
{
    char text[HINT_MAX];
    size_t type = query_braid_main_type(&service->types, &service->samples);
    struct join_tally tally =
        type < BRAID_TYPES_MAX ? service->tallies[type] : (struct join_tally){0};
    const char *hint = join_hint(service, &tally, text);
    query_put_text(&job->out, '{', "name", service->name);
    br_str_printf(&job->out,
                  ",\"spans\":%" PRIu64 ",\"spans_with_samples\":%" PRIu64 ",\"samples\":%" PRIu64
                  ",\"samples_with_span\":%" PRIu64 ",\"samples_of_unknown_span\":%" PRIu64
                  ",\"samples_ambiguous\":%" PRIu64,
                  service->n_spans, service->n_spans_with_samples, tally.samples, tally.with_span,
                  tally.unknown, tally.ambiguous);
    if (service->has_skew)
        br_str_printf(&job->out, ",\"median_skew_ns\":%" PRIu64, service->median_skew_ns);
    else
        br_str_puts(&job->out, ",\"median_skew_ns\":null");
    if (hint)
        query_put_text(&job->out, ',', "hint", hint);
    else
        br_str_puts(&job->out, ",\"hint\":null");
    br_str_putc(&job->out, '}');
}

static int join_compare_services(const void *left, const void *right)
{
    const struct join_service *a = *(const struct join_service *const *)left;
    const struct join_service *b = *(const struct join_service *const *)right;
    return strcmp(a->name, b->name);
}

static void join_put(struct join_report *report)
{
    struct query_job *job = report->job;
    bool more = false;
    join_find_medians(report);
    if (report->n_services)
        qsort(report->services, report->n_services, sizeof *report->services,
              join_compare_services);
    br_str_puts(&job->out, "{\"services\":[");
    for (size_t i = 0; i < report->n_services; i++) {
        const struct join_service *service = report->services[i];
        if (!service->n_spans && !service->types.count)
            continue; /* the spans and samples of the service are outside the time range */
        if (more)
            br_str_putc(&job->out, ',');
        join_put_service(job, service);
        more = true;
    }
    br_str_putc(&job->out, ']');
}

void query_braid_join(struct query_job *job)
{
    struct join_report *report = br_arena_calloc(&job->arena, 1, sizeof *report);
    struct br_span_filter spans = {.order = BR_SPANS_NEWEST};
    struct query_selection selection = {0};
    struct br_err err = {0};
    if (!report) {
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
        return;
    }
    if (!query_braid_range(job, &report->from_ns, &report->until_ns))
        return;
    report->job = job;
    report->map = br_map_new(SERVICES_MAX);
    spans.from_ns = report->from_ns > SLACK_NS ? report->from_ns - SLACK_NS : 0;
    spans.until_ns = report->until_ns < UINT64_MAX - SLACK_NS ? report->until_ns + SLACK_NS : 0;
    selection.from_ns = report->from_ns;
    selection.until_ns = report->until_ns;
    int rc =
        report->map ? br_store_spans(job->store, &spans, join_on_span, report, &err) : BR_ENOMEM;
    if (!rc)
        rc = report->rc;
    if (!rc && report->n_spans)
        qsort(report->spans, report->n_spans, sizeof *report->spans, join_compare_spans);
    if (!rc)
        rc = query_selection_samples(job, &selection, 0, join_on_samples, report, &err);
    if (!rc && !report->rc)
        join_compare_with_parents(report);
    if (!rc)
        rc = report->rc;
    if (!rc)
        join_put(report);
    br_free(report->spans);
    br_free(report->skews);
    br_map_free(report->map, NULL);
    query_braid_end(job, rc, &err);
}
