/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assembles whole traces from their spans. The response contains one ResourceSpans for each pair of
 * a resource and a scope, as most senders do. Clients that read only `scopeSpans[0]` need one
 * ResourceSpans per scope.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "extensions/query/tempo.h"
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "otlp/fields.h"
#include "otlp/json/json.h"
#include "query/id.h"
#include "wire/protobuf.h"

#define GROUPS_MAX 65536u
#define HEAD_MAX 64 /* maximum number of bytes of tags and lengths that precede a message */

/* Field numbers and values of TraceByIDResponse. */
enum { RESPONSE_TRACE = 1, RESPONSE_STATUS = 3, RESPONSE_MESSAGE = 4 };
enum { STATUS_PARTIAL = 1 };
enum { TRACE_RESOURCES = 1 };

struct member {
    const uint8_t *data;
    size_t len;
    struct member *next;
};

struct group {
    const uint8_t *resource, *scope;
    size_t resource_len, scope_len;
    struct member *first, **last;
    size_t spans_len; /* bytes of the group's spans, encoded as fields of a ScopeSpans */
    struct group *next;
};

struct assembly {
    struct query_job *job;
    struct br_map *by_head; /* map to struct group, by the bytes of its resource and scope */
    struct group *first, **last;
    struct br_err err;
    int rc;
};

/* --- Grouping -------------------------------------------------------------------------------- */

static struct group *tempo_trace_new_group(struct assembly *assembly, const struct br_str *key,
                                           const struct br_span_bytes *bytes)
{
    struct group *group = br_arena_calloc(&assembly->job->arena, 1, sizeof *group);
    if (!group)
        return NULL;
    *group = (struct group){.resource = bytes->resource,
                            .resource_len = bytes->resource_len,
                            .scope = bytes->scope,
                            .scope_len = bytes->scope_len,
                            .last = &group->first};
    if (br_map_put(assembly->by_head, key->data, key->len, group, NULL))
        return NULL;
    *assembly->last = group;
    assembly->last = &group->next;
    return group;
}

static struct group *tempo_trace_group(struct assembly *assembly, const struct br_span_bytes *bytes)
{
    struct br_str key = {.max = SIZE_MAX / 2};
    br_str_add(&key, &bytes->resource_len, sizeof bytes->resource_len);
    br_str_add(&key, bytes->resource, bytes->resource_len);
    br_str_add(&key, bytes->scope, bytes->scope_len);
    struct group *group = key.failed ? NULL : br_map_get(assembly->by_head, key.data, key.len);
    if (!group && !key.failed)
        group = tempo_trace_new_group(assembly, &key, bytes);
    br_str_release(&key);
    return group;
}

static bool tempo_trace_on_span(const struct br_stored_span *span, void *arg)
{
    struct assembly *assembly = arg;
    struct br_span_bytes bytes;
    assembly->rc = br_store_span_bytes(assembly->job->store, span, &bytes, &assembly->err);
    if (assembly->rc)
        return false;
    struct group *group = tempo_trace_group(assembly, &bytes);
    struct member *member = br_arena_calloc(&assembly->job->arena, 1, sizeof *member);
    if (!group || !member) {
        assembly->rc = BR_ENOMEM;
        return false;
    }
    *member = (struct member){.data = bytes.span, .len = bytes.span_len};
    *group->last = member;
    group->last = &member->next;
    group->spans_len += br_len_size(BR_SCOPES_RECORDS, bytes.span_len);
    return true;
}

/* --- Encoding -------------------------------------------------------------------------------- */

static void tempo_trace_put_head(struct br_str *out, uint32_t field, size_t len)
{
    uint8_t head[HEAD_MAX], *p = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, len);
    br_str_add(out, head, (size_t)(p - head));
}

static void tempo_trace_put_field(struct br_str *out, uint32_t field, const void *data, size_t len)
{
    tempo_trace_put_head(out, field, len);
    br_str_add(out, data, len);
}

static size_t tempo_trace_scope_spans_len(const struct group *group)
{
    return br_len_size(BR_SCOPES_SCOPE, group->scope_len) + group->spans_len;
}

static size_t tempo_trace_resource_spans_len(const struct group *group)
{
    return br_len_size(BR_RESOURCES_RESOURCE, group->resource_len) +
           br_len_size(BR_RESOURCES_SCOPES, tempo_trace_scope_spans_len(group));
}

/* Appends a ResourceSpans message without its tag. */
static void tempo_trace_put_group(struct br_str *out, const struct group *group)
{
    tempo_trace_put_field(out, BR_RESOURCES_RESOURCE, group->resource, group->resource_len);
    tempo_trace_put_head(out, BR_RESOURCES_SCOPES, tempo_trace_scope_spans_len(group));
    tempo_trace_put_field(out, BR_SCOPES_SCOPE, group->scope, group->scope_len);
    for (const struct member *member = group->first; member; member = member->next)
        tempo_trace_put_field(out, BR_SCOPES_RECORDS, member->data, member->len);
}

typedef int tempo_trace_encode_fn(const ProtobufCMessageDescriptor *desc, const uint8_t *data,
                                  size_t len, struct br_str *out);

static void tempo_trace_put_json(struct assembly *assembly, const char *key,
                                 tempo_trace_encode_fn *encode)
{
    struct br_str *out = &assembly->job->out, bytes = {.max = SIZE_MAX / 2};
    br_str_printf(out, "{\"%s\":[", key);
    for (const struct group *group = assembly->first; group && !assembly->rc; group = group->next) {
        br_str_clear(&bytes);
        tempo_trace_put_group(&bytes, group);
        if (group != assembly->first)
            br_str_putc(out, ',');
        assembly->rc = bytes.failed
                           ? BR_ENOMEM
                           : encode(&opentelemetry__proto__trace__v1__resource_spans__descriptor,
                                    (const uint8_t *)bytes.data, bytes.len, out);
    }
    br_str_puts(out, "]}");
    br_str_release(&bytes);
}

static size_t tempo_trace_len(const struct assembly *assembly)
{
    size_t len = 0;
    for (const struct group *group = assembly->first; group; group = group->next)
        len += br_len_size(TRACE_RESOURCES, tempo_trace_resource_spans_len(group));
    return len;
}

static void tempo_trace_put_protobuf(const struct assembly *assembly)
{
    struct br_str *out = &assembly->job->out;
    for (const struct group *group = assembly->first; group; group = group->next) {
        tempo_trace_put_head(out, TRACE_RESOURCES, tempo_trace_resource_spans_len(group));
        tempo_trace_put_group(out, group);
    }
}

/* --- Responses ------------------------------------------------------------------------------- */

static bool tempo_trace_accepts_protobuf(const struct query_job *job)
{
    return strstr(job->accept, "application/protobuf") ||
           strstr(job->accept, "application/x-protobuf");
}

static void tempo_trace_respond_v1(struct assembly *assembly)
{
    struct query_job *job = assembly->job;
    if (!assembly->first) {
        query_job_fail(job, 404, "trace not found");
    } else if (tempo_trace_accepts_protobuf(job)) {
        job->type = "application/protobuf";
        tempo_trace_put_protobuf(assembly);
    } else {
        tempo_trace_put_json(assembly, "batches", br_json_encode_standard);
    }
}

/* Responds with a TraceByIDResponse. The field `trace` is present even if the trace is empty,
 * because Grafana's data source fails if the field is absent. */
static void tempo_trace_respond_v2(struct assembly *assembly)
{
    struct query_job *job = assembly->job;
    const char *cut = br_store_query_remark(job->store);
    if (tempo_trace_accepts_protobuf(job)) {
        job->type = "application/protobuf";
        tempo_trace_put_head(&job->out, RESPONSE_TRACE, tempo_trace_len(assembly));
        tempo_trace_put_protobuf(assembly);
        if (cut) {
            const uint8_t status[] = {BR_TAG(RESPONSE_STATUS, BR_WIRE_VARINT), STATUS_PARTIAL};
            br_str_add(&job->out, status, sizeof status);
            tempo_trace_put_field(&job->out, RESPONSE_MESSAGE, cut, strlen(cut));
        }
        return;
    }
    br_str_puts(&job->out, "{\"trace\":");
    if (assembly->first)
        tempo_trace_put_json(assembly, "resourceSpans", br_json_encode_standard);
    else
        br_str_puts(&job->out, "{}");
    br_str_puts(&job->out, ",\"metrics\":{}");
    if (cut) {
        br_str_puts(&job->out, ",\"status\":\"PARTIAL\",\"message\":");
        br_str_json(&job->out, cut, strlen(cut));
    }
    br_str_putc(&job->out, '}');
}

/* Responds with a file of OTLP/JSON. OTLP has no field that marks a trace as incomplete, so the
 * name of a file with an incomplete trace contains "-partial". */
static void tempo_trace_respond_otlp(struct assembly *assembly)
{
    struct query_job *job = assembly->job;
    char value[128];
    if (!assembly->first) {
        query_job_fail(job, 404, "this trace has no spans");
        return;
    }
    (void)snprintf(value, sizeof value, "attachment; filename=\"%.64s%s.json\"", job->parts[0],
                   br_store_query_remark(job->store) ? "-partial" : "");
    for (char *p = value + sizeof "attachment; filename=\"" - 1; p[1]; p++)
        if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
            *p = '_';
    query_job_header(job, "content-disposition", value);
    tempo_trace_put_json(assembly, "resourceSpans", br_json_encode);
}

static void tempo_trace(struct query_job *job, void (*respond)(struct assembly *assembly))
{
    struct assembly assembly = {.job = job, .last = &assembly.first};
    uint8_t trace_id[16];
    if (!br_id_parse(job->parts[0], strlen(job->parts[0]), trace_id, sizeof trace_id)) {
        query_job_fail(job, 400,
                       "invalid trace id: must be up to 32 hex digits, or base64, got \"%.40s\"",
                       job->parts[0]);
        return;
    }
    assembly.by_head = br_map_new(GROUPS_MAX);
    int rc = assembly.by_head ? br_store_trace(job->store, trace_id, tempo_trace_on_span, &assembly,
                                               &assembly.err)
                              : BR_ENOMEM;
    if (!rc)
        rc = assembly.rc;
    if (!rc) {
        respond(&assembly);
        rc = assembly.rc;
    }
    if (rc)
        query_job_fail_rc(job, rc, &assembly.err);
    br_map_free(assembly.by_head, NULL);
}

void query_tempo_trace_v1(struct query_job *job)
{
    tempo_trace(job, tempo_trace_respond_v1);
}

void query_tempo_trace_v2(struct query_job *job)
{
    tempo_trace(job, tempo_trace_respond_v2);
}

void query_trace_otlp(struct query_job *job)
{
    tempo_trace(job, tempo_trace_respond_otlp);
}
