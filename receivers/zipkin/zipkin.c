/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/zipkin/zipkin.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

#define V1_PATH "/api/v1/spans"
#define V2_PATH "/api/v2/spans"
/* Largest body, in bytes, that the worker converts without starting a thread. The conversion takes
 * one or two milliseconds. */
#define READ_NOW (512u << 10)

/* --- Bodies ----------------------------------------------------------------------------------- */

typedef int zipkin_read_fn(struct zipkin_reading *reading, const uint8_t *data, size_t len);

/* Converts the body to OTLP, which then replaces the body. */
static int zipkin_convert(struct br_reading *reading, zipkin_read_fn *read)
{
    const struct zipkin *zipkin = reading->arg;
    const struct br_buf *body = br_reading_bytes(reading);
    struct zipkin_reading state = {.reading = reading,
                                   .parse_string_tags = zipkin->parse_string_tags};
    struct br_buf *made = NULL;
    br_spans_init(&state.spans, reading->host->pool, BR_BUF_MAX);
    br_arena_init(&state.scratch, BR_BUF_MAX);
    int rc = read(&state, body->data, body->len);
    if (!rc)
        rc = br_spans_take(&state.spans, &made);
    br_spans_release(&state.spans);
    br_tags_release(&state.tags);
    br_tags_release(&state.resource);
    br_tags_release(&state.more);
    br_arena_release(&state.scratch);
    if (!rc)
        br_reading_replace(reading, made);
    return rc;
}

static int zipkin_walk(struct br_reading *reading, int rc)
{
    const struct zipkin *zipkin = reading->arg;
    return rc ? rc : br_otlp_walk(reading, &zipkin->otlp);
}

/* Reads a JSON text. Invalid UTF-8 is replaced first, as in OTLP's JSON. */
static int zipkin_read_json(struct br_reading *reading, zipkin_read_fn *read)
{
    int rc = br_reading_unpack(reading);
    if (rc)
        return rc;
    rc = br_otlp_repair_text(reading);
    if (rc && rc != BR_EINVAL)
        return rc;
    return zipkin_walk(reading, zipkin_convert(reading, read));
}

static int zipkin_read_v1(struct br_reading *reading)
{
    return zipkin_read_json(reading, zipkin_read_v1_json);
}

static int zipkin_read_v2(struct br_reading *reading)
{
    return zipkin_read_json(reading, zipkin_read_v2_json);
}

static int zipkin_read_proto(struct br_reading *reading)
{
    int rc = br_reading_unpack(reading);
    return zipkin_walk(reading, rc ? rc : zipkin_convert(reading, zipkin_read_v2_proto));
}

static int zipkin_read_thrift(struct br_reading *reading)
{
    int rc = br_reading_unpack(reading);
    return zipkin_walk(reading, rc ? rc : zipkin_convert(reading, zipkin_read_v1_thrift));
}

static void zipkin_on_read(struct br_upload *upload, const struct br_reading *reading)
{
    struct zipkin *zipkin = upload->arg;
    br_otlp_count_repaired(&zipkin->otlp, reading);
}

static const struct br_upload_kind thrift_kind = {zipkin_read_thrift, READ_NOW, zipkin_on_read,
                                                  br_upload_answer_accepted},
                                   v1_kind = {zipkin_read_v1, READ_NOW, zipkin_on_read,
                                              br_upload_answer_accepted},
                                   v2_kind = {zipkin_read_v2, READ_NOW, zipkin_on_read,
                                              br_upload_answer_accepted},
                                   proto_kind = {zipkin_read_proto, READ_NOW, zipkin_on_read,
                                                 br_upload_answer_accepted};

/* --- Requests --------------------------------------------------------------------------------- */

static bool zipkin_type_is(const struct br_request *request, const char *wanted)
{
    const char *type = br_request_header(request, "content-type");
    return type && br_bytes_are_nocase(type, strcspn(type, "; \t"), wanted);
}

/* Selects the format of a request. As in the Collector, a body is read as JSON unless its content
 * type is that of another format. Returns false if the path is unknown. */
static bool zipkin_choose(struct zipkin *zipkin, const struct br_request *request,
                          struct br_upload *how)
{
    if (strcmp(request->path, V2_PATH) == 0 && zipkin_type_is(request, "application/x-protobuf")) {
        how->kind = &proto_kind;
        how->meter = &zipkin->v2_proto;
    } else if (strcmp(request->path, V2_PATH) == 0) {
        how->kind = &v2_kind;
        how->meter = &zipkin->v2_json;
    } else if (strcmp(request->path, V1_PATH) == 0 &&
               zipkin_type_is(request, "application/x-thrift")) {
        how->kind = &thrift_kind;
        how->meter = &zipkin->v1_thrift;
    } else if (strcmp(request->path, V1_PATH) == 0) {
        how->kind = &v1_kind;
        how->meter = &zipkin->v1_json;
    }
    return how->kind;
}

static void zipkin_begin(struct br_handler *self, struct br_request *request)
{
    struct br_ingest_listener *listener =
        br_container_of(self, struct br_ingest_listener, service.handler);
    struct zipkin *zipkin = br_container_of(listener, struct zipkin, listener);
    struct br_upload how = {.arg = zipkin, .listener = listener, .format = BR_UPLOAD_OTHER};
    char why[BR_INGEST_UNKNOWN_MAX];
    if (br_grpc_is(request)) {
        br_grpc_refuse(request, BR_STATUS_UNIMPLEMENTED,
                       "this port accepts Zipkin over HTTP; send OTLP to the receiver otlp");
        return;
    }
    if (!zipkin_choose(zipkin, request, &how)) {
        br_ingest_log_unknown(listener->ingest, request, "spans go to " V2_PATH " or " V1_PATH,
                              why);
        br_ingest_refuse_text(listener, request, 404, why);
        return;
    }
    if (br_http_answer_page(listener->http, NULL, request))
        return;
    if (strcmp(request->method, "POST") != 0)
        br_ingest_refuse_text(listener, request, 405, "requests with spans must use POST");
    else if (!br_http_encoding(listener->http, request, &how.encoding))
        br_ingest_refuse_text(listener, request, 415,
                              "content-encoding must be gzip, zstd, deflate or snappy");
    else
        (void)br_upload_new(&how, request);
}

/* --- Component -------------------------------------------------------------------------------- */

const struct br_option zipkin_options[] = {
    BR_HTTP_ROWS_KEEPING("localhost:9411", false),
    BR_BOOL(struct zipkin_config, parse_string_tags, false,
            "convert tags whose text is an integer, a decimal fraction or a boolean to attributes "
            "of that type"),
    BR_OPT_END,
};

static int zipkin_check(void *config, const struct br_yaml *node, const char *path,
                        struct br_arena *arena, struct br_errs *errs)
{
    const struct zipkin_config *zipkin_config = config;
    size_t before = errs->n_errors;
    (void)arena;
    br_endpoint_check(zipkin_config->http.endpoint, zipkin_config->http.transport, node, path,
                      errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int zipkin_create(struct br_node *node, struct br_err *err)
{
    struct zipkin *zipkin = node->state;
    const struct zipkin_config *config = node->config;
    const struct {
        struct br_meter *meter;
        const char *transport;
    } meters[] = {{&zipkin->v1_json, "http_v1_json"},
                  {&zipkin->v1_thrift, "http_v1_thrift"},
                  {&zipkin->v2_json, "http_v2_json"},
                  {&zipkin->v2_proto, "http_v2_proto"}};
    int rc = br_ingest_init(&zipkin->ingest, node, err);
    if (rc)
        return rc;
    zipkin->otlp = (struct br_otlp_handler){.max_depth = BR_WALK_DEPTH, .utf8 = BR_UTF8_REPAIR};
    br_otlp_handler_init(&zipkin->otlp, node);
    zipkin->parse_string_tags = config->parse_string_tags;
    zipkin->listener.service.handler.begin = zipkin_begin;
    zipkin->listener.http = &config->http;
    zipkin->listener.drops_metadata = !config->http.include_metadata;
    zipkin->listener.max_body = br_http_max_body(&config->http);
    for (size_t i = 0; i < BR_COUNT(meters); i++)
        br_meter_init(meters[i].meter, node, meters[i].transport, BR_SIGNAL_BIT(BR_TRACES));
    return 0;
}

static int zipkin_start(struct br_node *node, struct br_err *err)
{
    struct zipkin *zipkin = node->state;
    struct br_server_config config = br_http_server(zipkin->listener.http);
    return br_ingest_listen(&zipkin->ingest, &zipkin->listener, "http", &config, err);
}

static bool zipkin_keeps_metadata(const void *config)
{
    return ((const struct zipkin_config *)config)->http.include_metadata;
}

static void zipkin_drain(struct br_node *node)
{
    struct zipkin *zipkin = node->state;
    br_ingest_drain(&zipkin->ingest);
}

static void zipkin_destroy(struct br_node *node)
{
    struct zipkin *zipkin = node->state;
    br_ingest_release(&zipkin->ingest);
}

extern const struct br_component br_zipkin_receiver;
const struct br_component br_zipkin_receiver = {
    .name = "zipkin",
    .kind = BR_RECEIVER,
    .signals = BR_SIGNAL_BIT(BR_TRACES),
    .stability = "alpha",
    .help = "receives spans in the formats of Zipkin: JSON, protobuf and Thrift",
    .options = zipkin_options,
    .config_size = sizeof(struct zipkin_config),
    .state_size = sizeof(struct zipkin),
    .keeps_metadata = zipkin_keeps_metadata,
    .check = zipkin_check,
    .create = zipkin_create,
    .start = zipkin_start,
    .drain = zipkin_drain,
    .destroy = zipkin_destroy,
};
