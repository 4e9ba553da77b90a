/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles POST /push.v1.PusherService/Push. The same message can be sent in three protocols, which
 * are Connect's unary call (connectrpc.com/docs/protocol), gRPC, and gRPC-Web
 * (grpc/doc/PROTOCOL-WEB.md).
 */
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "otlp/json/json.h"
#include "push/v1/push.pb-c.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/grpc.h"

#define PATH "/push.v1.PusherService/Push"
#define JSON_DEPTH 32

/* --- Message ---------------------------------------------------------------------------------- */

/* Extracts the message from the single frame of gRPC-Web. */
static int pyroscope_push_unframe(struct br_reading *reading)
{
    const struct br_buf *body = reading->body;
    if (body->len < BR_GRPC_PREFIX)
        return br_err_set(&reading->err, BR_EINVAL, "one length-prefixed message is expected");
    size_t len = (size_t)body->data[1] << 24 | (size_t)body->data[2] << 16 |
                 (size_t)body->data[3] << 8 | body->data[4];
    bool packed = body->data[0] == 1;
    if (body->data[0] > 1 || len != body->len - BR_GRPC_PREFIX)
        return br_err_set(&reading->err, BR_EINVAL, "one length-prefixed message is expected");
    if (packed && reading->encoding == BR_ENCODING_NONE)
        return br_err_set(
            &reading->err, BR_EINVAL,
            "a message is marked as compressed, but there is no grpc-encoding header");
    struct br_buf *plain = NULL;
    int rc = 0;
    if (packed) {
        rc = br_reading_decompress(reading, reading->encoding, body->data + BR_GRPC_PREFIX, len,
                                   &plain);
    } else {
        plain = br_buf_new(reading->host->pool, len);
        rc = plain ? br_buf_append(&plain, body->data + BR_GRPC_PREFIX, len, len) : BR_ENOMEM;
    }
    if (rc)
        br_buf_unref(plain);
    else
        br_reading_replace(reading, plain);
    return rc;
}

static int pyroscope_push_from_json(struct br_reading *reading)
{
    const struct br_buf *text = br_reading_bytes(reading);
    struct br_buf *plain = NULL;
    int rc =
        br_json_decode(&push__v1__push_request__descriptor, (const char *)text->data, text->len,
                       JSON_DEPTH, reading->max_body, reading->host->pool, &plain, &reading->err);
    if (rc == 0)
        br_reading_replace(reading, plain);
    return rc;
}

static int pyroscope_push_read_message(struct br_reading *reading,
                                       int (*unpack)(struct br_reading *reading))
{
    struct pyroscope_upload upload;
    int rc = pyroscope_upload_begin(&upload, reading);
    if (!rc)
        rc = unpack(reading);
    if (!rc && reading->format == BR_UPLOAD_JSON)
        rc = pyroscope_push_from_json(reading);
    if (!rc) {
        const struct br_buf *message = br_reading_bytes(reading);
        rc = pyroscope_read_push(&upload, message->data, message->len);
    }
    return pyroscope_upload_end(&upload, rc);
}

static int pyroscope_push_read_request(struct br_reading *reading)
{
    return pyroscope_push_read_message(reading, br_reading_unpack);
}

static int pyroscope_push_read_web(struct br_reading *reading)
{
    return pyroscope_push_read_message(reading, pyroscope_push_unframe);
}

static void pyroscope_push_answer_connect(const struct br_upload *upload,
                                          struct br_request *request,
                                          const struct br_outcome *outcome)
{
    pyroscope_reply_connect(upload->listener->http, request, upload->format == BR_UPLOAD_JSON,
                            outcome);
}

static void pyroscope_push_answer_grpc(const struct br_upload *upload, struct br_request *request,
                                       const struct br_outcome *outcome)
{
    br_grpc_reply(request, outcome, "{}", upload->format == BR_UPLOAD_JSON ? 2 : 0);
}

static void pyroscope_push_answer_web(const struct br_upload *upload, struct br_request *request,
                                      const struct br_outcome *outcome)
{
    pyroscope_reply_web(upload->listener->http, request, upload->format == BR_UPLOAD_JSON, outcome);
}

static const struct br_upload_kind connect_kind = {pyroscope_push_read_request, PYROSCOPE_READ_NOW,
                                                   pyroscope_upload_on_read,
                                                   pyroscope_push_answer_connect},
                                   grpc_kind = {pyroscope_push_read_request, PYROSCOPE_READ_NOW,
                                                pyroscope_upload_on_read,
                                                pyroscope_push_answer_grpc},
                                   web_kind = {pyroscope_push_read_web, PYROSCOPE_READ_NOW,
                                               pyroscope_upload_on_read, pyroscope_push_answer_web};

/* --- Request ---------------------------------------------------------------------------------- */

/* Content types of the supported protocols. */
static const struct {
    const char *type;
    const struct br_upload_kind *kind;
    enum br_upload_format format;
} types[] = {
    {"application/proto", &connect_kind, BR_UPLOAD_PROTOBUF},
    {"application/json", &connect_kind, BR_UPLOAD_JSON},
    {"application/grpc", &grpc_kind, BR_UPLOAD_PROTOBUF},
    {"application/grpc+proto", &grpc_kind, BR_UPLOAD_PROTOBUF},
    {"application/grpc+json", &grpc_kind, BR_UPLOAD_JSON},
    {"application/grpc-web", &web_kind, BR_UPLOAD_PROTOBUF},
    {"application/grpc-web+proto", &web_kind, BR_UPLOAD_PROTOBUF},
    {"application/grpc-web+json", &web_kind, BR_UPLOAD_JSON},
};

static bool pyroscope_push_read_type(const struct br_request *request, struct br_upload *settings)
{
    const char *type = br_request_header(request, "content-type");
    size_t len = type ? strcspn(type, "; \t") : 0;
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (!br_bytes_are_nocase(type, len, types[i].type))
            continue;
        settings->kind = types[i].kind;
        settings->format = types[i].format;
        return settings->kind != &grpc_kind || request->http2;
    }
    return false;
}

/* Determines the encoding of the body (Connect) or of the message in the body (gRPC-Web).
 * Returns false if the encoding is not supported; the request was then rejected. */
static bool pyroscope_push_read_encoding(struct br_request *request, struct br_upload *settings)
{
    const struct br_http_config *http = settings->listener->http;
    const char *version = br_request_header(request, "connect-protocol-version");
    if (settings->kind == &web_kind) {
        const char *name = br_request_header(request, "grpc-encoding");
        if (!name || br_encoding_parse(name, strlen(name), &settings->encoding))
            return true;
        struct br_outcome outcome = br_outcome_reject(
            BR_STATUS_UNIMPLEMENTED, "supported encodings are gzip, zstd, deflate and snappy");
        pyroscope_push_answer_web(settings, request, &outcome);
        return false;
    }
    if (version && strcmp(version, "1") != 0) {
        pyroscope_refuse(http, request, 400, "invalid_argument",
                         "connect-protocol-version must be \"1\"");
        return false;
    }
    if (!br_http_encoding(http, request, &settings->encoding)) {
        pyroscope_refuse(http, request, 501, "unimplemented",
                         "supported encodings are gzip, zstd, deflate and snappy");
        return false;
    }
    return true;
}

bool pyroscope_begin_push(struct pyroscope *pyroscope, struct br_request *request)
{
    struct br_upload settings = {.arg = pyroscope,
                                 .listener = &pyroscope->listener,
                                 .meter = &pyroscope->http,
                                 .signal = BR_PROFILES};
    const struct br_http_config *http = pyroscope->listener.http;
    if (strcmp(request->path, PATH) != 0)
        return false;
    if (br_http_answer_page(http, NULL, request))
        return true;
    bool known = pyroscope_push_read_type(request, &settings);
    if (known && settings.kind == &grpc_kind) {
        settings.meter = &pyroscope->grpc;
        if (br_grpc_begin(request, &settings.encoding))
            (void)br_upload_new(&settings, request);
    } else if (strcmp(request->method, "POST") != 0) {
        br_http_reply(http, request, &(struct br_http_answer){.status = 405});
    } else if (!known) {
        br_http_reply(http, request, &(struct br_http_answer){.status = 415});
    } else if (pyroscope_push_read_encoding(request, &settings)) {
        (void)br_upload_new(&settings, request);
    }
    return true;
}
