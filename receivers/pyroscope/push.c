/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /push.v1.PusherService/Push as Connect's unary call (connectrpc.com/docs/protocol), gRPC,
 * and gRPC-Web (grpc/doc/PROTOCOL-WEB.md): three ways of packing the same message.
 */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json/json.h"
#include "push/v1/push.pb-c.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/grpc.h"

#define PATH "/push.v1.PusherService/Push"
#define JSON_DEPTH 32

/* --- The message ------------------------------------------------------------------------------ */

/* The message inside gRPC-Web's one frame. */
static int unframe(struct br_reading *r)
{
    const struct br_buf *b = r->body;
    if (b->len < BR_GRPC_PREFIX)
        return br_err_set(&r->err, BR_EINVAL, "one length-prefixed message is expected");
    size_t len =
        (size_t)b->data[1] << 24 | (size_t)b->data[2] << 16 | (size_t)b->data[3] << 8 | b->data[4];
    bool packed = b->data[0] == 1;
    if (b->data[0] > 1 || len != b->len - BR_GRPC_PREFIX)
        return br_err_set(&r->err, BR_EINVAL, "one length-prefixed message is expected");
    if (packed && r->encoding == BR_ENCODING_NONE)
        return br_err_set(&r->err, BR_EINVAL,
                          "a message is marked compressed without a grpc-encoding");
    struct br_buf *plain = NULL;
    int rc = 0;
    if (packed) {
        rc = br_reading_decompress(r, r->encoding, b->data + BR_GRPC_PREFIX, len, &plain);
    } else {
        plain = br_buf_new(r->host->pool, len);
        rc = plain ? br_buf_append(&plain, b->data + BR_GRPC_PREFIX, len, len) : BR_ENOMEM;
    }
    if (rc)
        br_buf_unref(plain);
    else
        br_reading_replace(r, plain);
    return rc;
}

static int from_json(struct br_reading *r)
{
    const struct br_buf *text = br_reading_bytes(r);
    struct br_buf *plain = NULL;
    int rc = br_json_decode(&push__v1__push_request__descriptor, (const char *)text->data, text->len,
                            JSON_DEPTH, r->max_body, r->host->pool, &plain, &r->err);
    if (rc == 0)
        br_reading_replace(r, plain);
    return rc;
}

static int read_message(struct br_reading *r, int (*unpack)(struct br_reading *r))
{
    struct upload u;
    int rc = upload_begin(&u, r);
    if (!rc)
        rc = unpack(r);
    if (!rc && r->format == BR_UPLOAD_JSON)
        rc = from_json(r);
    if (!rc) {
        const struct br_buf *message = br_reading_bytes(r);
        rc = pyroscope_read_push(&u, message->data, message->len);
    }
    return upload_end(&u, rc);
}

static int read_request(struct br_reading *r)
{
    return read_message(r, br_reading_unpack);
}

static int read_web(struct br_reading *r)
{
    return read_message(r, unframe);
}

static void answer_connect(const struct br_upload *x, struct br_request *r,
                           const struct br_outcome *o)
{
    pyroscope_reply_connect(x->listener->http, r, x->format == BR_UPLOAD_JSON, o);
}

static void answer_grpc(const struct br_upload *x, struct br_request *r, const struct br_outcome *o)
{
    br_grpc_reply(r, o, "{}", x->format == BR_UPLOAD_JSON ? 2 : 0);
}

static void answer_web(const struct br_upload *x, struct br_request *r, const struct br_outcome *o)
{
    pyroscope_reply_web(x->listener->http, r, x->format == BR_UPLOAD_JSON, o);
}

static const struct br_upload_kind connect_kind = {read_request, PYROSCOPE_READ_NOW,
                                                   upload_on_read, answer_connect},
                                   grpc_kind = {read_request, PYROSCOPE_READ_NOW, upload_on_read,
                                                answer_grpc},
                                   web_kind = {read_web, PYROSCOPE_READ_NOW, upload_on_read,
                                               answer_web};

/* --- What is asked ---------------------------------------------------------------------------- */

/* By the content type. */
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

static bool read_type(const struct br_request *r, struct br_upload *how)
{
    const char *type = br_request_header(r, "content-type");
    size_t len = type ? strcspn(type, "; \t") : 0;
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (strlen(types[i].type) != len || strncasecmp(types[i].type, type, len) != 0)
            continue;
        how->kind = types[i].kind;
        how->format = types[i].format;
        return how->kind != &grpc_kind || r->http2;
    }
    return false;
}

/* Finds the encoding of a body (Connect) or of the message in it (gRPC-Web); false when the request
 * was refused for it. */
static bool read_encoding(struct br_request *r, struct br_upload *how)
{
    const struct br_http_config *http = how->listener->http;
    const char *version = br_request_header(r, "connect-protocol-version");
    if (how->kind == &web_kind) {
        const char *name = br_request_header(r, "grpc-encoding");
        if (!name || br_encoding_parse(name, strlen(name), &how->encoding))
            return true;
        struct br_outcome o = br_outcome_reject(BR_STATUS_UNIMPLEMENTED,
                                                "supported encodings are gzip, zstd and deflate");
        answer_web(how, r, &o);
        return false;
    }
    if (version && strcmp(version, "1") != 0) {
        pyroscope_refuse(http, r, 400, "invalid_argument",
                         "connect-protocol-version must be \"1\"");
        return false;
    }
    if (!br_http_encoding(http, r, &how->encoding)) {
        pyroscope_refuse(http, r, 501, "unimplemented",
                         "supported encodings are gzip, zstd and deflate");
        return false;
    }
    return true;
}

bool pyroscope_begin_push(struct pyroscope *p, struct br_request *r)
{
    struct br_upload how = {.arg = p, .listener = &p->listener, .meter = &p->http, .signal = BR_PROFILES};
    const struct br_http_config *http = p->listener.http;
    if (strcmp(r->path, PATH) != 0)
        return false;
    if (br_http_preflight(http, r))
        return true;
    bool known = read_type(r, &how);
    if (known && how.kind == &grpc_kind) {
        how.meter = &p->grpc;
        if (br_grpc_begin(r, &how.encoding))
            (void)br_upload_new(&how, r);
    } else if (strcmp(r->method, "POST") != 0) {
        br_http_reply(http, r, &(struct br_http_answer){.status = 405});
    } else if (!known) {
        br_http_reply(http, r, &(struct br_http_answer){.status = 415});
    } else if (read_encoding(r, &how)) {
        (void)br_upload_new(&how, r);
    }
    return true;
}
