/* SPDX-License-Identifier: Apache-2.0 */
/* GET join: how well the samples and the spans of each service meet. */
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
#define SKEWS_MAX 100000 /* calls whose spans' clocks are compared */
#define SLACK_NS                                                                                   \
    (60 * BRAID_SECOND_NS) /* before and after the range, where a sample's span may be */
#define SKEW_LARGE_NS 50000000u
#define CHILD_LONG_NS 50000000u /* five sampling intervals: one that computes has samples */
#define CHILDREN_MIN 5u         /* of them, before a hint names a cause */
#define HINT_MAX 320

struct join_tally {
    uint64_t samples, with_span, unknown, ambiguous;
};

struct join_service {
    const char *name;
    uint64_t n_spans, n_spans_with_samples;
    struct query_braid_types types;
    struct query_braid_figures samples;           /* by type; of these: */
    struct join_tally *tallies;                   /* by type, BRAID_TYPES_MAX of them */
    uint64_t n_children, n_children_with_samples; /* child spans of CHILD_LONG_NS and more */
    bool has_skew;                                /* clocks were compared */
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

struct join_ask {
    struct query_job *job;
    uint64_t from_ns, until_ns;
    struct br_map *map; /* of struct join_service */
    struct join_service *services[SERVICES_MAX];
    size_t n_services;
    struct join_span *spans;
    struct join_skew *skews;
    uint32_t cap_spans, cap_skews;
    size_t n_spans, n_skews;
    int rc;
};

/* The number of a service; SERVICES_MAX where there are too many, or without memory (ask->rc). */
static uint32_t join_find_service(struct join_ask *ask, const char *name)
{
    struct br_arena *arena = &ask->job->arena;
    size_t len = strlen(name);
    struct join_service **known = br_map_get(ask->map, name, len);
    if (known)
        return (uint32_t)(known - ask->services);
    if (ask->n_services == SERVICES_MAX) {
        ask->job->store->note = "there are more services than one answer lists";
        return SERVICES_MAX;
    }
    struct join_service *service = br_arena_calloc(arena, 1, sizeof *service);
    if (service) {
        service->name = br_arena_strndup(arena, name, len);
        service->tallies = br_arena_calloc(arena, BRAID_TYPES_MAX, sizeof *service->tallies);
    }
    if (!service || !service->name || !service->tallies)
        ask->rc = br_arena_why(arena);
    else
        ask->rc = br_map_put(ask->map, name, len, &ask->services[ask->n_services], NULL);
    if (ask->rc)
        return SERVICES_MAX;
    ask->services[ask->n_services] = service;
    return (uint32_t)ask->n_services++;
}

/* --- Spans ------------------------------------------------------------------------------------ */

static bool join_on_span(const struct br_stored_span *span, void *arg)
{
    struct join_ask *ask = arg;
    uint32_t service = join_find_service(ask, span->service);
    if (service == SERVICES_MAX)
        return !ask->rc;
    if (ask->n_spans == SPANS_MAX) {
        ask->job->store->note = "there are more spans than are looked at: the newest are counted";
        return false;
    }
    ask->rc =
        br_grow(&ask->spans, &ask->cap_spans, ask->n_spans + 1, sizeof *ask->spans, SPANS_MAX);
    if (ask->rc)
        return false;
    bool in_range = span->start_ns >= ask->from_ns && span->start_ns < ask->until_ns;
    ask->services[service]->n_spans += in_range;
    ask->spans[ask->n_spans++] = (struct join_span){.span_id = span->span_id,
                                                    .parent_id = span->parent_id,
                                                    .kind = span->kind,
                                                    .start_ns = span->start_ns,
                                                    .end_ns = span->start_ns + span->duration_ns,
                                                    .service = service,
                                                    .in_range = in_range};
    return query_pick_goes_on(ask->job);
}

static int join_compare_spans(const void *left, const void *right)
{
    const struct join_span *a = left, *b = right;
    return a->span_id < b->span_id ? -1 : a->span_id > b->span_id;
}

static struct join_span *join_find_span(struct join_ask *ask, uint64_t span_id)
{
    const struct join_span key = {.span_id = span_id};
    return ask->n_spans && span_id
               ? bsearch(&key, ask->spans, ask->n_spans, sizeof key, join_compare_spans)
               : NULL;
}

/* A server's span lies within the client's where their clocks agree. */
static void join_compare_clocks(struct join_ask *ask, const struct join_span *server,
                                const struct join_span *client)
{
    uint64_t before_ns =
        server->start_ns < client->start_ns ? client->start_ns - server->start_ns : 0;
    uint64_t after_ns = server->end_ns > client->end_ns ? server->end_ns - client->end_ns : 0;
    if (ask->n_skews == SKEWS_MAX)
        return;
    ask->rc =
        br_grow(&ask->skews, &ask->cap_skews, ask->n_skews + 1, sizeof *ask->skews, SKEWS_MAX);
    if (!ask->rc)
        ask->skews[ask->n_skews++] =
            (struct join_skew){server->service, before_ns > after_ns ? before_ns : after_ns};
}

static void join_look_at_parents(struct join_ask *ask)
{
    for (size_t i = 0; i < ask->n_spans && !ask->rc; i++) {
        const struct join_span *span = &ask->spans[i];
        const struct join_span *parent =
            span->in_range ? join_find_span(ask, span->parent_id) : NULL;
        if (!parent)
            continue;
        if (span->kind == BR_SPAN_KIND_SERVER && parent->kind == BR_SPAN_KIND_CLIENT)
            join_compare_clocks(ask, span, parent);
        /* Client spans wait: they have no samples even with a bridge. */
        if (span->service != parent->service || br_span_kind_is_entry(span->kind) ||
            span->kind == BR_SPAN_KIND_CLIENT || span->end_ns - span->start_ns < CHILD_LONG_NS)
            continue;
        ask->services[span->service]->n_children++;
        ask->services[span->service]->n_children_with_samples += span->has_samples;
    }
}

/* --- Samples ---------------------------------------------------------------------------------- */

static const char *join_label(const struct br_stored_series *series, const char *name)
{
    for (size_t i = 0; i < series->n_labels; i++)
        if (!strcmp(series->labels[i].name, name))
            return series->labels[i].value;
    return "";
}

static bool join_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct join_ask *ask = arg;
    uint32_t number = join_find_service(ask, join_label(samples->series, "service_name"));
    if (number == SERVICES_MAX)
        return !ask->rc;
    struct join_service *service = ask->services[number];
    size_t type = query_braid_type(ask->job, &service->types, samples->series->type);
    ask->rc = query_braid_add(ask->job, &service->samples, type, samples->count, samples->value);
    if (ask->rc || type == BRAID_TYPES_MAX)
        return !ask->rc;
    struct join_tally *tally = &service->tallies[type];
    tally->samples += samples->count;
    if (!samples->span_id) {
        if (!strcmp(join_label(samples->series, BR_SAMPLE_JOIN), "ambiguous"))
            tally->ambiguous += samples->count;
        return query_pick_goes_on(ask->job);
    }
    tally->with_span += samples->count;
    struct join_span *span = join_find_span(ask, samples->span_id);
    if (!span) {
        tally->unknown += samples->count;
        return query_pick_goes_on(ask->job);
    }
    if (!span->has_samples && span->in_range)
        ask->services[span->service]->n_spans_with_samples++;
    span->has_samples = true;
    return query_pick_goes_on(ask->job);
}

/* --- The answer ------------------------------------------------------------------------------- */

static int join_compare_skews(const void *left, const void *right)
{
    const struct join_skew *a = left, *b = right;
    if (a->service != b->service)
        return a->service < b->service ? -1 : 1;
    return a->ns < b->ns ? -1 : a->ns > b->ns;
}

static void join_find_medians(struct join_ask *ask)
{
    if (ask->n_skews)
        qsort(ask->skews, ask->n_skews, sizeof *ask->skews, join_compare_skews);
    for (size_t from = 0, until; from < ask->n_skews; from = until) {
        for (until = from;
             until < ask->n_skews && ask->skews[until].service == ask->skews[from].service;)
            until++;
        struct join_service *service = ask->services[ask->skews[from].service];
        service->has_skew = true;
        service->median_skew_ns = ask->skews[from + (until - from - 1) / 2].ns;
    }
}

static const char *join_hint(const struct join_service *service, const struct join_tally *tally,
                             char hint[HINT_MAX])
{
    const char *name = service->name;
    if (!tally->samples)
        (void)snprintf(hint, HINT_MAX,
                       "no profiles of this service came: is its profiler on, and does it name the "
                       "service \"%.60s\" as its traces do?",
                       name);
    else if (!service->n_spans)
        (void)snprintf(hint, HINT_MAX,
                       "profiles came, and no spans: are its traces sent here, under "
                       "the same service name?");
    else if (tally->ambiguous * 20 > tally->samples)
        (void)snprintf(hint, HINT_MAX,
                       "%.0f %% of the samples name several spans at once and are left unlinked: "
                       "its threads serve several requests (asyncio) and need a bridge that labels "
                       "each task",
                       100.0 * (double)tally->ambiguous / (double)tally->samples);
    else if (!tally->with_span)
        (void)snprintf(hint, HINT_MAX,
                       "profiles of this service come without span ids: let its profiler set the "
                       "labels span_id and trace_id, or turn `infer` of the processor join on");
    else if (tally->unknown * 2 > tally->with_span)
        (void)snprintf(hint, HINT_MAX,
                       "most samples name spans that are not stored: are its traces sampled before "
                       "they come here, or are its spans still to come?");
    else if (service->n_children >= CHILDREN_MIN && !service->n_children_with_samples &&
             service->n_spans_with_samples)
        (void)snprintf(hint, HINT_MAX,
                       "first spans of a request have samples, and none of %" PRIu64
                       " longer spans below them: either all of these wait, or the profiler labels "
                       "first spans only (see docs/using/recipes.md)",
                       service->n_children);
    else if (tally->with_span * 5 < tally->samples)
        (void)snprintf(hint, HINT_MAX,
                       "%.0f %% of the samples name a span: the rest is work outside of requests, "
                       "or of processes that forked without the profiler's hook, or of threads and "
                       "tasks that need a bridge (see docs/using/recipes.md)",
                       100.0 * (double)tally->with_span / (double)tally->samples);
    else if (service->median_skew_ns > SKEW_LARGE_NS)
        (void)snprintf(
            hint, HINT_MAX,
            "its server spans lie %.0f ms (median) outside of the client spans that called "
            "them: two clocks differ, and samples that are joined by time may go to a "
            "neighbour",
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

static void join_put(struct join_ask *ask)
{
    struct query_job *job = ask->job;
    bool more = false;
    join_find_medians(ask);
    if (ask->n_services)
        qsort(ask->services, ask->n_services, sizeof *ask->services, join_compare_services);
    br_str_puts(&job->out, "{\"services\":[");
    for (size_t i = 0; i < ask->n_services; i++) {
        const struct join_service *service = ask->services[i];
        if (!service->n_spans && !service->types.count)
            continue; /* its spans are outside of the range */
        if (more)
            br_str_putc(&job->out, ',');
        join_put_service(job, service);
        more = true;
    }
    br_str_putc(&job->out, ']');
}

void query_braid_join(struct query_job *job)
{
    struct join_ask *ask = br_arena_calloc(&job->arena, 1, sizeof *ask);
    struct br_span_filter spans = {.order = BR_SPANS_NEWEST};
    struct query_pick pick = {0};
    struct br_err err = {0};
    if (!ask) {
        query_job_fail_rc(job, br_arena_why(&job->arena), NULL);
        return;
    }
    if (!query_braid_range(job, &ask->from_ns, &ask->until_ns))
        return;
    ask->job = job;
    ask->map = br_map_new(SERVICES_MAX);
    spans.from_ns = ask->from_ns > SLACK_NS ? ask->from_ns - SLACK_NS : 0;
    spans.until_ns = ask->until_ns < UINT64_MAX - SLACK_NS ? ask->until_ns + SLACK_NS : 0;
    pick.from_ns = ask->from_ns;
    pick.until_ns = ask->until_ns;
    int rc = ask->map ? br_store_spans(job->store, &spans, join_on_span, ask, &err) : BR_ENOMEM;
    if (!rc)
        rc = ask->rc;
    if (!rc && ask->n_spans)
        qsort(ask->spans, ask->n_spans, sizeof *ask->spans, join_compare_spans);
    if (!rc)
        rc = query_pick_samples(job, &pick, 0, join_on_samples, ask, &err);
    if (!rc && !ask->rc)
        join_look_at_parents(ask);
    if (!rc)
        rc = ask->rc;
    if (!rc)
        join_put(ask);
    br_free(ask->spans);
    br_free(ask->skews);
    br_map_free(ask->map, NULL);
    query_braid_end(job, rc, &err);
}
