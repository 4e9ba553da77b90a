/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tempo's gRPC API, tempopb.StreamingQuerier (pkg/tempopb/tempo.proto), which Grafana's Tempo data
 * source uses if streaming is on. A stream of Tempo may contain any number of messages. A stream of
 * Braid contains one message, which is converted from the JSON response of the HTTP API.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/query/tempo.h"
#include "otlp/json/json.h"
#include "tempo/tempo.pb-c.h"

#define DEPTH_MAX 16
#define PARAMS_MAX 8
#define MESSAGE(name) Tempopb__##name

/* --- Parameters ------------------------------------------------------------------------------ */

/* The parameters of the HTTP request that corresponds to a gRPC request. The parameters are
 * allocated in job->head, because a handler may empty job->arena. */
struct tempo_params {
    struct query_job *job;
    struct query_param *list;
    bool failed;
};

static void tempo_params_text(struct tempo_params *params, const char *name, const char *text)
{
    struct query_job *job = params->job;
    const char *copy = *text ? br_arena_strndup(&job->head, text, strlen(text)) : NULL;
    params->failed = params->failed || (*text && !copy);
    if (copy)
        params->list[job->n_params++] = (struct query_param){name, copy, strlen(copy)};
}

/* Adds a parameter with a number. Adds nothing if the number is 0, because the client then did
 * not set the field. */
static void tempo_params_number(struct tempo_params *params, const char *name, uint64_t number,
                                const char *unit)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%" PRIu64 "%s", number, unit);
    tempo_params_text(params, name, number ? text : "");
}

static void tempo_params_search(struct tempo_params *params, const void *message)
{
    const MESSAGE(SearchRequest) *request = message;
    struct br_str tags = {0};
    for (size_t i = 0; i < request->n_tags; i++) {
        const MESSAGE(TagsEntry) *tag = request->tags[i];
        br_str_printf(&tags, "%s%s=", i ? " " : "", tag->key);
        br_str_json(&tags, tag->value, strlen(tag->value));
    }
    tempo_params_text(params, "q", request->query);
    if (tags.len && !*request->query)
        tempo_params_text(params, "tags", tags.data);
    params->failed = params->failed || tags.failed;
    br_str_release(&tags);
    tempo_params_number(params, "minDuration", request->mindurationms, "ms");
    tempo_params_number(params, "maxDuration", request->maxdurationms, "ms");
    tempo_params_number(params, "limit", request->limit, "");
    tempo_params_number(params, "spss", request->spansperspanset, "");
    tempo_params_number(params, "start", request->start, "");
    tempo_params_number(params, "end", request->end, "");
}

static void tempo_params_tags(struct tempo_params *params, const void *message)
{
    const MESSAGE(SearchTagsRequest) *request = message;
    tempo_params_text(params, "scope", request->scope);
    tempo_params_text(params, "q", request->query);
    tempo_params_number(params, "start", request->start, "");
    tempo_params_number(params, "end", request->end, "");
    tempo_params_number(params, "limit", request->maxtagsperscope, "");
}

static void tempo_params_values(struct tempo_params *params, const void *message)
{
    const MESSAGE(SearchTagValuesRequest) *request = message;
    struct query_job *job = params->job;
    job->parts[0] = br_arena_strndup(&job->head, request->tagname, strlen(request->tagname));
    params->failed = params->failed || !job->parts[0];
    tempo_params_text(params, "q", request->query);
    tempo_params_number(params, "start", request->start, "");
    tempo_params_number(params, "end", request->end, "");
    tempo_params_number(params, "limit", request->maxtagvalues, "");
}

static void tempo_params_range(struct tempo_params *params, const void *message)
{
    const MESSAGE(QueryRangeRequest) *request = message;
    tempo_params_text(params, "q", request->query);
    tempo_params_number(params, "start", request->start, "");
    tempo_params_number(params, "end", request->end, "");
    tempo_params_number(params, "step", request->step, "ns");
    tempo_params_number(params, "exemplars", request->exemplars, "");
}

static void tempo_params_instant(struct tempo_params *params, const void *message)
{
    const MESSAGE(QueryInstantRequest) *request = message;
    tempo_params_text(params, "q", request->query);
    tempo_params_number(params, "start", request->start, "");
    tempo_params_number(params, "end", request->end, "");
}

/* --- Calls ----------------------------------------------------------------------------------- */

static const struct tempo_call {
    const char *name;
    const ProtobufCMessageDescriptor *request, *response;
    void (*read)(struct tempo_params *params, const void *message);
    void (*handle)(struct query_job *job);
} tempo_calls[] = {
    {"Search", &tempopb__search_request__descriptor, &tempopb__search_response__descriptor,
     tempo_params_search, query_tempo_search},
    {"SearchTags", &tempopb__search_tags_request__descriptor,
     &tempopb__search_tags_response__descriptor, tempo_params_tags, query_tempo_tags_v1},
    {"SearchTagsV2", &tempopb__search_tags_request__descriptor,
     &tempopb__search_tags_v2_response__descriptor, tempo_params_tags, query_tempo_tags_v2},
    {"SearchTagValues", &tempopb__search_tag_values_request__descriptor,
     &tempopb__search_tag_values_response__descriptor, tempo_params_values, query_tempo_values_v1},
    {"SearchTagValuesV2", &tempopb__search_tag_values_request__descriptor,
     &tempopb__search_tag_values_v2_response__descriptor, tempo_params_values,
     query_tempo_values_v2},
    {"MetricsQueryRange", &tempopb__query_range_request__descriptor,
     &tempopb__query_range_response__descriptor, tempo_params_range, query_tempo_range},
    {"MetricsQueryInstant", &tempopb__query_instant_request__descriptor,
     &tempopb__query_instant_response__descriptor, tempo_params_instant, query_tempo_instant},
};

/* Reads the request message, and sets the job's parameters. After an error, calls query_job_fail
 * and returns false. */
static bool tempo_stream_read(struct query_job *job, const struct tempo_call *call)
{
    struct tempo_params params = {
        .job = job, .list = br_arena_calloc(&job->head, PARAMS_MAX, sizeof *params.list)};
    void *message = protobuf_c_message_unpack(call->request, br_arena_pb(&job->arena),
                                              job->body_len, job->body);
    if (!message && !job->arena.full) {
        query_job_fail(job, 400, "the message is not a valid %s", call->request->name);
        return false;
    }
    job->n_params = 0;
    job->params = params.list;
    if (message && params.list)
        call->read(&params, message);
    if (message && params.list && !params.failed)
        return true;
    query_job_fail_rc(job, BR_EFULL, NULL);
    return false;
}

/* Replaces the JSON response by the encoded gRPC message. */
static void tempo_stream_translate(struct query_job *job, const struct tempo_call *call)
{
    struct br_buf *made = NULL;
    struct br_err err = {0};
    int rc = job->out.failed
                 ? BR_EFULL
                 : br_json_decode(call->response, job->out.data, job->out.len, DEPTH_MAX,
                                  job->out.len, job->task.host.pool, &made, &err);
    if (rc) {
        query_job_fail_rc(job, rc == BR_EINVAL ? BR_EPROTO : rc, &err);
        return;
    }
    br_str_clear(&job->out);
    br_str_add(&job->out, made->data, made->len);
    br_buf_unref(made);
}

static void tempo_stream(struct query_job *job)
{
    const struct tempo_call *call = NULL;
    for (size_t i = 0; i < BR_COUNT(tempo_calls); i++)
        if (!strcmp(tempo_calls[i].name, job->parts[0]))
            call = &tempo_calls[i];
    if (!call) {
        query_job_fail(job, 501, "%.64s is not supported", job->parts[0]);
        return;
    }
    if (!tempo_stream_read(job, call))
        return;
    call->handle(job);
    if (job->status == 200)
        tempo_stream_translate(job, call);
}

const struct query_route query_tempo_stream_routes[] = {
    {.methods = QUERY_POST,
     .path = "/tempopb.StreamingQuerier/*",
     .handle = tempo_stream,
     .errors = QUERY_GRPC},
    {0},
};
