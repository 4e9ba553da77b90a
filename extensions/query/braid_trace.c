/* SPDX-License-Identifier: Apache-2.0 */
/* Implements GET traces/{trace}, which returns all spans of a trace with their figures
 * (braid.h). */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "attribute/value.h"
#include "base/mem.h"
#include "extensions/query/braid.h"
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "query/id.h"

typedef Opentelemetry__Proto__Common__V1__AnyValue AnyValue;
typedef Opentelemetry__Proto__Common__V1__KeyValue KeyValue;
typedef Opentelemetry__Proto__Trace__V1__Span OtlpSpan;

/* --- Attributes ------------------------------------------------------------------------------ */

static void trace_put_value(struct br_str *out, const AnyValue *value, unsigned depth);

/* Appends an integer, or its text in quotes if JavaScript would round the integer. */
static void trace_put_int(struct br_str *out, int64_t value)
{
    const int64_t exact = INT64_C(1) << 53;
    const char *quote = value > exact || value < -exact ? "\"" : "";
    br_str_printf(out, "%s%" PRId64 "%s", quote, value, quote);
}

static void trace_put_double(struct br_str *out, double value)
{
    if (isfinite(value))
        br_value_text_double(out, value);
    else
        br_str_puts(out, "null");
}

static void trace_put_map(struct br_str *out, KeyValue *const *pairs, size_t count, unsigned depth)
{
    br_str_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        if (i)
            br_str_putc(out, ',');
        br_str_json(out, pairs[i]->key, strlen(pairs[i]->key));
        br_str_putc(out, ':');
        trace_put_value(out, pairs[i]->value, depth);
    }
    br_str_putc(out, '}');
}

static void trace_put_list(struct br_str *out, AnyValue *const *values, size_t count,
                           unsigned depth)
{
    br_str_putc(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i)
            br_str_putc(out, ',');
        trace_put_value(out, values[i], depth);
    }
    br_str_putc(out, ']');
}

static void trace_put_value(struct br_str *out, const AnyValue *value, unsigned depth)
{
    switch (value && depth < BRAID_VALUE_DEPTH_MAX ? (int)value->value_case : -1) {
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_STRING_VALUE:
        br_str_json(out, value->string_value, strlen(value->string_value));
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BOOL_VALUE:
        br_str_puts(out, value->bool_value ? "true" : "false");
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_INT_VALUE:
        trace_put_int(out, value->int_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_DOUBLE_VALUE:
        trace_put_double(out, value->double_value);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_ARRAY_VALUE:
        trace_put_list(out, value->array_value->values, value->array_value->n_values, depth + 1);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_KVLIST_VALUE:
        trace_put_map(out, value->kvlist_value->values, value->kvlist_value->n_values, depth + 1);
        break;
    case OPENTELEMETRY__PROTO__COMMON__V1__ANY_VALUE__VALUE_BYTES_VALUE:
        br_str_putc(out, '"');
        br_str_base64(out, value->bytes_value.data, value->bytes_value.len);
        br_str_putc(out, '"');
        break;
    default:
        br_str_puts(out, "null");
    }
}

static void trace_put_attributes(struct br_str *out, KeyValue *const *pairs, size_t count)
{
    br_str_puts(out, ",\"attributes\":[");
    for (size_t i = 0; i < count; i++) {
        if (i)
            br_str_putc(out, ',');
        query_put_text(out, '{', "key", pairs[i]->key);
        br_str_puts(out, ",\"value\":");
        trace_put_value(out, pairs[i]->value, 0);
        br_str_putc(out, '}');
    }
    br_str_putc(out, ']');
}

/* --- Resources ------------------------------------------------------------------------------- */

struct trace_response {
    struct query_job *job;
    struct query_braid_rows rows;
    struct br_map *resources; /* map from the bytes of a resource to its number in the response */
    struct br_str resources_out;
    const uint32_t **resource_of; /* for each row, a pointer to the number of its resource */
    struct br_span_bytes *bytes;  /* OTLP bytes of the span of each row */
};

static void *trace_unpack(struct br_arena *arena, const ProtobufCMessageDescriptor *desc,
                          const uint8_t *data, size_t len)
{
    return data ? protobuf_c_message_unpack(desc, br_arena_pb(arena), len, data) : NULL;
}

static void trace_put_resource(struct trace_response *response, const struct br_stored_span *span,
                               const struct br_span_bytes *bytes)
{
    struct br_str *out = &response->resources_out;
    const Opentelemetry__Proto__Resource__V1__Resource *resource = trace_unpack(
        &response->job->arena, &opentelemetry__proto__resource__v1__resource__descriptor,
        bytes->resource, bytes->resource_len);
    if (out->len)
        br_str_putc(out, ',');
    query_put_text(out, '{', "service", span->service);
    trace_put_attributes(out, resource ? resource->attributes : NULL,
                         resource ? resource->n_attributes : 0);
    br_str_putc(out, '}');
}

/* Sets the number of the resource of a row. Appends a resource to the response when it occurs
 * for the first time. */
static int trace_number(struct trace_response *response, size_t row)
{
    const struct br_span_bytes *bytes = &response->bytes[row];
    const uint32_t *known = br_map_get(response->resources, bytes->resource, bytes->resource_len);
    if (!known) {
        uint32_t *number = br_arena_calloc(&response->job->arena, 1, sizeof *number);
        if (!number)
            return br_arena_why(&response->job->arena);
        *number = (uint32_t)br_map_count(response->resources);
        int rc =
            br_map_put(response->resources, bytes->resource, bytes->resource_len, number, NULL);
        if (rc)
            return rc;
        trace_put_resource(response, &response->rows.rows[row].span, bytes);
        known = number;
    }
    response->resource_of[row] = known;
    return 0;
}

/* Reads the OTLP bytes of each row's span. */
static int trace_gather(struct trace_response *response, struct br_err *err)
{
    struct br_arena *arena = &response->job->arena;
    size_t count = response->rows.count;
    int rc = 0;
    response->resource_of = br_arena_calloc(arena, count + 1, sizeof *response->resource_of);
    response->bytes = br_arena_calloc(arena, count + 1, sizeof *response->bytes);
    if (!response->resource_of || !response->bytes)
        return br_arena_why(arena);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = br_store_span_bytes(response->job->store, &response->rows.rows[i].span,
                                 &response->bytes[i], err);
        if (!rc && !response->bytes[i].resource)
            response->bytes[i].resource = (const uint8_t *)"";
        if (!rc)
            rc = trace_number(response, i);
    }
    return rc;
}

/* --- Spans ----------------------------------------------------------------------------------- */

static void trace_put_id(struct br_str *out, char before, const char *name, ProtobufCBinaryData id)
{
    br_str_putc(out, before);
    br_str_json(out, name, strlen(name));
    br_str_puts(out, ":\"");
    br_str_hex(out, id.data, id.len);
    br_str_putc(out, '"');
}

static void trace_put_events(struct br_str *out, const OtlpSpan *span)
{
    br_str_puts(out, ",\"events\":[");
    for (size_t i = 0; i < span->n_events; i++) {
        br_str_printf(out, "%s{\"time_unix_ns\":\"%" PRIu64 "\"", i ? "," : "",
                      span->events[i]->time_unix_nano);
        query_put_text(out, ',', "name", span->events[i]->name);
        trace_put_attributes(out, span->events[i]->attributes, span->events[i]->n_attributes);
        br_str_putc(out, '}');
    }
    br_str_puts(out, "],\"links\":[");
    for (size_t i = 0; i < span->n_links; i++) {
        if (i)
            br_str_putc(out, ',');
        trace_put_id(out, '{', "trace_id", span->links[i]->trace_id);
        trace_put_id(out, ',', "span_id", span->links[i]->span_id);
        trace_put_attributes(out, span->links[i]->attributes, span->links[i]->n_attributes);
        br_str_putc(out, '}');
    }
    br_str_putc(out, ']');
}

/* Appends the fields of a span that are not in its row. If the bytes of the span cannot be read,
 * the details are empty. */
static void trace_put_details(struct query_job *job, const struct br_span_bytes *bytes)
{
    struct br_str *out = &job->out;
    struct br_arena arena;
    br_arena_init(&arena, (size_t)job->config->max_query_memory);
    const Opentelemetry__Proto__Common__V1__InstrumentationScope *scope =
        trace_unpack(&arena, &opentelemetry__proto__common__v1__instrumentation_scope__descriptor,
                     bytes->scope, bytes->scope_len);
    const OtlpSpan *span = trace_unpack(&arena, &opentelemetry__proto__trace__v1__span__descriptor,
                                        bytes->span, bytes->span_len);
    query_put_text(out, ',', "status_message", span && span->status ? span->status->message : "");
    query_put_text(out, ',', "scope", scope ? scope->name : "");
    trace_put_attributes(out, span ? span->attributes : NULL, span ? span->n_attributes : 0);
    if (span)
        trace_put_events(out, span);
    else
        br_str_puts(out, ",\"events\":[],\"links\":[]");
    br_arena_release(&arena);
}

static void trace_put_span(struct trace_response *response, size_t at)
{
    struct br_str *out = &response->job->out;
    const struct query_braid_row *row = &response->rows.rows[at];
    const struct br_stored_span *span = &row->span;
    query_braid_put_span(out, '{', "span_id", span->span_id);
    query_braid_put_span(out, ',', "parent_id", span->parent_id);
    br_str_printf(out, ",\"resource\":%" PRIu32, *response->resource_of[at]);
    query_put_text(out, ',', "service", span->service);
    query_put_text(out, ',', "name", span->name);
    query_put_text(out, ',', "kind", query_braid_kind(span->kind));
    query_put_text(out, ',', "status", query_braid_status(span->status));
    br_str_printf(out, ",\"start_unix_ns\":\"%" PRIu64 "\",\"duration_ns\":%" PRIu64,
                  span->start_ns, span->duration_ns);
    trace_put_details(response->job, &response->bytes[at]);
    br_str_puts(out, ",\"profile\":");
    query_braid_put_figures(out, &response->rows.types, &row->self);
    br_str_puts(out, ",\"subtree\":");
    query_braid_put_figures(out, &response->rows.types, &row->subtree);
    br_str_puts(out, "}}}");
}

static int trace_read(struct trace_response *response, const uint8_t trace_id[16],
                      struct br_err *err)
{
    struct query_braid_rows *rows = &response->rows;
    int rc = query_braid_read_trace(rows, trace_id, err);
    if (!rc && !rows->count)
        rc = br_err_set(err, BR_ENOTFOUND, "this trace has no spans");
    if (!rc)
        rc = query_braid_sum_rows(rows, err);
    if (!rc)
        rc = query_braid_sum_subtrees(rows);
    if (!rc)
        rc = trace_gather(response, err);
    return rc;
}

void query_braid_trace(struct query_job *job)
{
    struct trace_response response = {.job = job, .rows = {.job = job}};
    struct br_err err = {0};
    uint8_t trace_id[16];
    if (!br_id_parse(job->parts[0], strlen(job->parts[0]), trace_id, sizeof trace_id)) {
        query_job_fail(job, 400, "invalid trace id: must be 32 hex digits or base64");
        return;
    }
    response.resources_out.max = job->out.max;
    response.resources = br_map_new(BRAID_TRACE_SPANS_MAX);
    int rc = response.resources ? trace_read(&response, trace_id, &err) : BR_ENOMEM;
    if (!rc) {
        query_braid_put_trace(&job->out, '{', "trace_id", trace_id);
        br_str_puts(&job->out, ",\"resources\":[");
        br_str_add(&job->out, response.resources_out.data, response.resources_out.len);
        br_str_puts(&job->out, "],\"spans\":[");
        for (size_t i = 0; i < response.rows.count; i++) {
            if (i)
                br_str_putc(&job->out, ',');
            trace_put_span(&response, i);
        }
        br_str_putc(&job->out, ']');
    }
    if (!rc && response.resources_out.failed)
        rc = BR_ENOMEM;
    br_str_release(&response.resources_out);
    br_map_free(response.resources, NULL);
    query_braid_rows_release(&response.rows);
    query_braid_end(job, rc, &err);
}
