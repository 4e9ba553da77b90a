/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET timeline, which returns the number of spans and errors, durations, and CPU time
 * for equal time steps. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"
#include "extensions/query/braid.h"

#define POINTS_DEFAULT 120
#define POINTS_MAX 2000
#define SPANS_MAX (4u << 20)

struct timeline_span {
    uint64_t duration_ns;
    uint32_t bucket;
    bool failed;
};

struct timeline {
    struct query_job *job;
    uint64_t from_ns, until_ns, step_ns;
    size_t n_buckets;
    int64_t *cpu_ns; /* CPU time in nanoseconds, by bucket (time step) */
    struct timeline_span *spans;
    uint32_t cap;
    size_t count;
    int rc;
};

static bool timeline_on_span(const struct br_stored_span *span, void *arg)
{
    struct timeline *timeline = arg;
    if (span->start_ns < timeline->from_ns)
        return true;
    uint64_t bucket = (span->start_ns - timeline->from_ns) / timeline->step_ns;
    if (bucket >= timeline->n_buckets)
        bucket = timeline->n_buckets - 1;
    if (timeline->count == SPANS_MAX) {
        timeline->job->store->note =
            "there are more spans than one query reads: only the newest are shown";
        return false;
    }
    timeline->rc = br_grow(&timeline->spans, &timeline->cap, timeline->count + 1,
                           sizeof *timeline->spans, SPANS_MAX);
    if (timeline->rc)
        return false;
    timeline->spans[timeline->count++] =
        (struct timeline_span){span->duration_ns, (uint32_t)bucket, span->status == 2};
    return query_job_may_continue(timeline->job);
}

static bool timeline_on_samples(const struct br_stored_samples *samples, void *arg)
{
    struct timeline *timeline = arg;
    if (query_braid_is_cpu(samples->series->type) && samples->time_ns >= timeline->from_ns) {
        uint64_t bucket = (samples->time_ns - timeline->from_ns) / timeline->step_ns;
        if (bucket < timeline->n_buckets)
            timeline->cpu_ns[bucket] = br_sum(timeline->cpu_ns[bucket], samples->value);
    }
    return query_job_may_continue(timeline->job);
}

static int timeline_compare(const void *left, const void *right)
{
    const struct timeline_span *a = left, *b = right;
    if (a->bucket != b->bucket)
        return a->bucket < b->bucket ? -1 : 1;
    return a->duration_ns < b->duration_ns ? -1 : a->duration_ns > b->duration_ns;
}

static void timeline_put(struct timeline *timeline)
{
    struct br_str *out = &timeline->job->out;
    size_t at = 0;
    br_str_printf(out, "{\"step_ns\":%" PRIu64 ",\"start_unix_ns\":\"%" PRIu64 "\",\"buckets\":[",
                  timeline->step_ns, timeline->from_ns);
    for (size_t i = 0; i < timeline->n_buckets; i++) {
        const struct timeline_span *spans =
            br_mem_end(timeline->spans, at * sizeof *timeline->spans);
        size_t count = 0, errors = 0;
        for (; at + count < timeline->count && spans[count].bucket == i; count++)
            errors += spans[count].failed;
        at += count;
        br_str_printf(out,
                      "%s{\"spans\":%zu,\"errors\":%zu,\"p50_ns\":%" PRIu64 ",\"p95_ns\":%" PRIu64
                      ",\"max_ns\":%" PRIu64 ",\"cpu_ns\":%" PRId64 "}",
                      i ? "," : "", count, errors,
                      count ? spans[(count * 50 + 99) / 100 - 1].duration_ns : 0,
                      count ? spans[(count * 95 + 99) / 100 - 1].duration_ns : 0,
                      count ? spans[count - 1].duration_ns : 0, timeline->cpu_ns[i]);
    }
    br_str_putc(out, ']');
}

static int timeline_read(struct timeline *timeline, const char *service, const char *name,
                         struct br_err *err)
{
    struct query_job *job = timeline->job;
    struct br_span_filter filter = {.from_ns = timeline->from_ns,
                                    .until_ns = timeline->until_ns,
                                    .service = service,
                                    .name = name};
    struct query_selection selection = {.from_ns = timeline->from_ns,
                                        .until_ns = timeline->until_ns};
    const struct br_matcher of_service = {"service_name", service, BR_MATCH_EQUAL};
    const struct br_matcher of_name = {"span_name", name, BR_MATCH_EQUAL};
    int rc = br_store_spans(job->store, &filter, timeline_on_span, timeline, err);
    if (!rc)
        rc = timeline->rc;
    if (!rc && service)
        rc = query_selection_add_matcher(job, &selection, &of_service, err);
    if (!rc && name)
        rc = query_selection_add_matcher(job, &selection, &of_name, err);
    if (!rc)
        rc = query_selection_samples(job, &selection, timeline->step_ns, timeline_on_samples,
                                     timeline, err);
    return rc;
}

void query_braid_timeline(struct query_job *job)
{
    struct timeline timeline = {.job = job};
    const char *service = query_job_param(job, "service"), *name = query_job_param(job, "name");
    struct br_err err = {0};
    uint64_t points;
    if (!query_braid_range(job, &timeline.from_ns, &timeline.until_ns) ||
        !query_job_number(job, "points", POINTS_DEFAULT, POINTS_MAX, &points))
        return;
    points = points ? points : POINTS_DEFAULT;
    uint64_t range_ns = timeline.until_ns - timeline.from_ns;
    range_ns -= range_ns > 1; /* the last step includes the end of the range */
    timeline.step_ns = range_ns / points + (range_ns % points != 0);
    timeline.n_buckets = (size_t)(range_ns / timeline.step_ns + (range_ns % timeline.step_ns != 0));
    timeline.cpu_ns = br_arena_calloc(&job->arena, timeline.n_buckets, sizeof *timeline.cpu_ns);
    if (service && !*service)
        service = NULL;
    if (name && !*name)
        name = NULL;
    int rc =
        timeline.cpu_ns ? timeline_read(&timeline, service, name, &err) : br_arena_why(&job->arena);
    if (!rc) {
        if (timeline.count)
            qsort(timeline.spans, timeline.count, sizeof *timeline.spans, timeline_compare);
        timeline_put(&timeline);
    }
    br_free(timeline.spans);
    query_braid_end(job, rc, &err);
}
