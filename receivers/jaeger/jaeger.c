/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/jaeger/jaeger.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

#define GRPC_PATH "/jaeger.api_v2.CollectorService/PostSpans"
#define HTTP_PATH "/api/traces"
/* Largest body, in bytes, that the worker converts without starting a thread. The conversion takes
 * one or two milliseconds. */
#define READ_NOW (512u << 10)

/* --- Bodies ----------------------------------------------------------------------------------- */

/* Reads the bytes of a request into the state. */
typedef int jaeger_read_fn(struct jaeger_reading *state, const uint8_t *data, size_t len);

static int jaeger_receiver_read_batch(struct jaeger_reading *state, const uint8_t *data, size_t len)
{
    struct br_thrift thrift;
    br_thrift_init(&thrift, BR_THRIFT_BINARY, data, len, &state->reading->err);
    return jaeger_read_batch(state, &thrift);
}

static int jaeger_receiver_read_compact(struct jaeger_reading *state, const uint8_t *data,
                                        size_t len)
{
    struct br_thrift thrift;
    br_thrift_init(&thrift, BR_THRIFT_COMPACT, data, len, &state->reading->err);
    return jaeger_read_call(state, &thrift);
}

static int jaeger_receiver_read_binary(struct jaeger_reading *state, const uint8_t *data,
                                       size_t len)
{
    struct br_thrift thrift;
    br_thrift_init(&thrift, BR_THRIFT_BINARY, data, len, &state->reading->err);
    return jaeger_read_call(state, &thrift);
}

/* Converts the body to OTLP, which then replaces the body, and makes an item from it. Spans without
 * valid ids are left out. */
static int jaeger_receiver_convert(struct br_reading *reading, jaeger_read_fn *read)
{
    const struct jaeger *jaeger = reading->arg;
    int rc = br_reading_unpack(reading);
    if (rc)
        return rc;
    const struct br_buf *body = br_reading_bytes(reading);
    struct jaeger_reading state = {.reading = reading, .takes_scope = read == jaeger_read_proto};
    struct br_buf *made = NULL;
    br_spans_init(&state.spans, reading->host->pool, BR_BUF_MAX);
    br_arena_init(&state.scratch, BR_BUF_MAX);
    rc = read(&state, body->data, body->len);
    if (!rc)
        rc = br_spans_take(&state.spans, &made);
    br_spans_release(&state.spans);
    br_tags_release(&state.tags);
    br_tags_release(&state.fields);
    br_tags_release(&state.process);
    br_free(state.references);
    br_arena_release(&state.scratch);
    if (rc)
        return rc;
    br_reading_replace(reading, made);
    reading->n_left_out = state.n_invalid;
    if (state.n_invalid)
        (void)snprintf(reading->left_out, sizeof reading->left_out,
                       "%u of %u spans were rejected, the others accepted: the trace id or span id "
                       "is missing or zero",
                       state.n_invalid, state.n_read);
    return br_otlp_walk(reading, &jaeger->otlp);
}

static int jaeger_receiver_on_grpc(struct br_reading *reading)
{
    return jaeger_receiver_convert(reading, jaeger_read_proto);
}

static int jaeger_receiver_on_http(struct br_reading *reading)
{
    return jaeger_receiver_convert(reading, jaeger_receiver_read_batch);
}

static int jaeger_receiver_on_compact(struct br_reading *reading)
{
    return jaeger_receiver_convert(reading, jaeger_receiver_read_compact);
}

static int jaeger_receiver_on_binary(struct br_reading *reading)
{
    return jaeger_receiver_convert(reading, jaeger_receiver_read_binary);
}

static void jaeger_receiver_on_read(struct br_upload *upload, const struct br_reading *reading)
{
    struct jaeger *jaeger = upload->arg;
    br_otlp_count_repaired(&jaeger->otlp, reading);
}

static void jaeger_receiver_answer_grpc(const struct br_upload *upload, struct br_request *request,
                                        const struct br_outcome *outcome)
{
    (void)upload;
    br_grpc_reply(request, outcome, "", 0);
}

static const struct br_upload_kind http_kind = {jaeger_receiver_on_http, READ_NOW,
                                                jaeger_receiver_on_read, br_upload_answer_accepted},
                                   grpc_kind = {jaeger_receiver_on_grpc, READ_NOW,
                                                jaeger_receiver_on_read,
                                                jaeger_receiver_answer_grpc};

/* --- Requests --------------------------------------------------------------------------------- */

static bool jaeger_receiver_is_thrift(const struct br_request *request)
{
    const char *type = br_request_header(request, "content-type");
    size_t len = type ? strcspn(type, "; \t") : 0;
    return br_bytes_are_nocase(type, len, "application/x-thrift") ||
           br_bytes_are_nocase(type, len, "application/vnd.apache.thrift.binary");
}

static void jaeger_receiver_begin_http(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct jaeger *jaeger = br_container_of(listener, struct jaeger, http);
    struct br_upload how = {.kind = &http_kind,
                            .arg = jaeger,
                            .listener = listener,
                            .meter = &jaeger->http_meter,
                            .format = BR_UPLOAD_OTHER};
    char why[BR_INGEST_UNKNOWN_MAX];
    if (br_grpc_is(request)) {
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED,
                       "this port accepts Thrift over HTTP; the protocol grpc has another port");
    } else if (strcmp(request->path, HTTP_PATH) != 0) {
        br_ingest_log_unknown(listener->ingest, request, "batches of spans go to " HTTP_PATH, why);
        br_ingest_refuse_text(listener, request, 404, why);
    } else if (br_http_answer_page(listener->http, NULL, request)) {
        return;
    } else if (strcmp(request->method, "POST") != 0) {
        br_ingest_refuse_text(listener, request, 405, "requests with spans must use POST");
    } else if (!jaeger_receiver_is_thrift(request)) {
        br_ingest_refuse_text(listener, request, 415,
                              "content-type must be application/x-thrift or "
                              "application/vnd.apache.thrift.binary");
    } else if (!br_http_encoding(listener->http, request, &how.encoding)) {
        br_ingest_refuse_text(listener, request, 415,
                              "content-encoding must be gzip, zstd, deflate or snappy");
    } else {
        (void)br_upload_new(&how, request);
    }
}

static void jaeger_receiver_begin_grpc(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct jaeger *jaeger = br_container_of(listener, struct jaeger, grpc);
    struct br_upload how = {.kind = &grpc_kind,
                            .arg = jaeger,
                            .listener = listener,
                            .meter = &jaeger->grpc_meter,
                            .format = BR_UPLOAD_GRPC};
    char why[BR_INGEST_UNKNOWN_MAX];
    if (!br_grpc_is(request)) {
        br_ingest_log_refused(listener->ingest, request, BR_STATUS_UNIMPLEMENTED,
                              "this port accepts gRPC");
        br_request_reply_text(request, 415, "this port accepts gRPC");
    } else if (strcmp(request->path, GRPC_PATH) != 0) {
        br_ingest_log_unknown(listener->ingest, request, "batches of spans go to " GRPC_PATH, why);
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED, why);
    } else if (br_grpc_begin(request, &how.encoding)) {
        (void)br_upload_new(&how, request);
    }
}

/* --- Component -------------------------------------------------------------------------------- */

static int jaeger_receiver_create(struct br_node *node, struct br_err *err)
{
    struct jaeger *jaeger = node->state;
    const struct jaeger_protocols *protocols =
        &((const struct jaeger_config *)node->config)->protocols;
    int rc = br_ingest_init(&jaeger->ingest, node, err);
    if (rc)
        return rc;
    jaeger->otlp = (struct br_otlp_handler){.max_depth = BR_WALK_DEPTH, .utf8 = BR_UTF8_REPAIR};
    br_otlp_handler_init(&jaeger->otlp, node);
    jaeger_udp_init(&jaeger->compact, jaeger, protocols->thrift_compact, "udp_thrift_compact",
                    jaeger_receiver_on_compact);
    jaeger_udp_init(&jaeger->binary, jaeger, protocols->thrift_binary, "udp_thrift_binary",
                    jaeger_receiver_on_binary);
    if (protocols->grpc) {
        jaeger->grpc.service.handler.begin = jaeger_receiver_begin_grpc;
        jaeger->grpc.drops_metadata = !protocols->grpc->include_metadata;
        jaeger->grpc.max_body = br_grpc_max_message(protocols->grpc);
        br_meter_init(&jaeger->grpc_meter, node, "grpc", BR_SIGNAL_BIT(BR_TRACES));
    }
    if (protocols->thrift_http) {
        jaeger->http.service.handler.begin = jaeger_receiver_begin_http;
        jaeger->http.http = protocols->thrift_http;
        jaeger->http.drops_metadata = !protocols->thrift_http->include_metadata;
        jaeger->http.max_body = br_http_max_body(protocols->thrift_http);
        br_meter_init(&jaeger->http_meter, node, "collector_http", BR_SIGNAL_BIT(BR_TRACES));
    }
    return 0;
}

static int jaeger_receiver_start(struct br_node *node, struct br_err *err)
{
    struct jaeger *jaeger = node->state;
    const struct jaeger_protocols *protocols =
        &((const struct jaeger_config *)node->config)->protocols;
    int rc = jaeger_udp_start(&jaeger->compact, "thrift_compact", err);
    if (!rc)
        rc = jaeger_udp_start(&jaeger->binary, "thrift_binary", err);
    if (!rc && protocols->grpc) {
        struct br_server_config config = br_grpc_server(protocols->grpc);
        rc = br_ingest_listen(&jaeger->ingest, &jaeger->grpc, "grpc", &config, err);
    }
    if (!rc && protocols->thrift_http) {
        struct br_server_config config = br_http_server(protocols->thrift_http);
        rc = br_ingest_listen(&jaeger->ingest, &jaeger->http, "thrift_http", &config, err);
    }
    return rc;
}

/* Spans that arrive as UDP packets have no metadata, so only the HTTP and gRPC protocols can keep
 * metadata. */
static bool jaeger_receiver_keeps_metadata(const void *config)
{
    const struct jaeger_protocols *protocols = &((const struct jaeger_config *)config)->protocols;
    bool loses = protocols->thrift_compact || protocols->thrift_binary;
    if (protocols->grpc)
        loses = loses || !protocols->grpc->include_metadata;
    if (protocols->thrift_http)
        loses = loses || !protocols->thrift_http->include_metadata;
    return !loses;
}

static void jaeger_receiver_drain(struct br_node *node)
{
    struct jaeger *jaeger = node->state;
    jaeger_udp_stop(&jaeger->compact);
    jaeger_udp_stop(&jaeger->binary);
    br_ingest_drain(&jaeger->ingest);
}

static void jaeger_receiver_destroy(struct br_node *node)
{
    struct jaeger *jaeger = node->state;
    jaeger_udp_release(&jaeger->compact);
    jaeger_udp_release(&jaeger->binary);
    br_ingest_release(&jaeger->ingest);
}

extern const struct br_component br_jaeger_receiver;
const struct br_component br_jaeger_receiver = {
    .name = "jaeger",
    .kind = BR_RECEIVER,
    .signals = BR_SIGNAL_BIT(BR_TRACES),
    .stability = "alpha",
    .help = "receives spans of Jaeger's clients and agents, over gRPC, HTTP and UDP",
    .options = jaeger_options,
    .config_size = sizeof(struct jaeger_config),
    .state_size = sizeof(struct jaeger),
    .keeps_metadata = jaeger_receiver_keeps_metadata,
    .check = jaeger_check,
    .create = jaeger_receiver_create,
    .start = jaeger_receiver_start,
    .drain = jaeger_receiver_drain,
    .destroy = jaeger_receiver_destroy,
};
