/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /push.v1.PusherService/Push as Connect's unary call (connectrpc.com/docs/protocol), gRPC,
 * and gRPC-Web (grpc/doc/PROTOCOL-WEB.md): three ways of packing the same message.
 */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json.h"
#include "push/v1/push.pb-c.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/grpc.h"

#define PATH "/push.v1.PusherService/Push"
#define JSON_DEPTH 32

/* --- The message ------------------------------------------------------------------------------ */

/* The message inside gRPC-Web's one frame. */
static int unframe(struct upload *u, struct br_buf **body)
{
    const struct br_buf *b = *body;
    if (b->len < BR_GRPC_PREFIX)
        return br_err_set(&u->err, BR_EINVAL, "one length-prefixed message is expected");
    size_t len =
        (size_t)b->data[1] << 24 | (size_t)b->data[2] << 16 | (size_t)b->data[3] << 8 | b->data[4];
    bool packed = b->data[0] == 1;
    if (b->data[0] > 1 || len != b->len - BR_GRPC_PREFIX)
        return br_err_set(&u->err, BR_EINVAL, "one length-prefixed message is expected");
    if (packed && u->x->encoding == BR_ENCODING_NONE)
        return br_err_set(&u->err, BR_EINVAL,
                          "a message is marked compressed without a grpc-encoding");
    struct br_pool *pool = u->p->ingest.node->host->pool;
    struct br_buf *plain = NULL;
    int rc = 0;
    if (packed) {
        rc = br_decompress(u->p->ingest.codec, u->x->encoding, b->data + BR_GRPC_PREFIX, len,
                           u->x->door->max_body, pool, &plain, &u->err);
    } else {
        plain = br_buf_new(pool, len);
        rc = plain ? br_buf_append(&plain, b->data + BR_GRPC_PREFIX, len, len) : BR_ENOMEM;
    }
    if (rc) {
        br_buf_unref(plain);
        return rc;
    }
    br_buf_unref(*body);
    *body = plain;
    return 0;
}

/* JSON as protobuf, in `*body`, which it replaces. */
static int from_json(struct upload *u, struct br_buf **body)
{
    struct br_buf *plain = NULL;
    int rc = br_json_decode(&push__v1__push_request__descriptor, (const char *)(*body)->data,
                            (*body)->len, JSON_DEPTH, u->x->door->max_body,
                            u->p->ingest.node->host->pool, &plain, &u->err);
    if (rc)
        return rc;
    br_buf_unref(*body);
    *body = plain;
    return 0;
}

static void take_message(struct br_intake *x, struct br_buf *body,
                         int (*unpack)(struct upload *u, struct br_buf **body))
{
    struct upload u;
    struct br_buf *own = br_buf_ref(body);
    int rc = upload_begin(&u, x);
    if (!rc)
        rc = unpack(&u, &own);
    if (!rc && x->format == BR_INTAKE_JSON)
        rc = from_json(&u, &own);
    upload_end(&u, rc ? rc : pyroscope_read_push(&u, own->data, own->len));
    br_buf_unref(own);
}

static int unpack_whole(struct upload *u, struct br_buf **body)
{
    return br_intake_unpack(u->x, body, &u->err);
}

static void take(struct br_intake *x, struct br_buf *body)
{
    take_message(x, body, unpack_whole);
}

static void take_web(struct br_intake *x, struct br_buf *body)
{
    take_message(x, body, unframe);
}

static void answer_connect(const struct br_intake *x, struct br_request *r,
                           const struct br_outcome *o)
{
    pyroscope_reply_connect(x->door->http, r, x->format == BR_INTAKE_JSON, o);
}

static void answer_grpc(const struct br_intake *x, struct br_request *r, const struct br_outcome *o)
{
    br_grpc_reply(r, o, "{}", x->format == BR_INTAKE_JSON ? 2 : 0);
}

static void answer_web(const struct br_intake *x, struct br_request *r, const struct br_outcome *o)
{
    pyroscope_reply_web(x->door->http, r, x->format == BR_INTAKE_JSON, o);
}

static const struct br_intake_kind connect_kind = {take, answer_connect},
                                   grpc_kind = {take, answer_grpc},
                                   web_kind = {take_web, answer_web};

/* --- What is asked ---------------------------------------------------------------------------- */

/* By the content type. */
static const struct {
    const char *type;
    const struct br_intake_kind *kind;
    enum br_intake_format format;
} types[] = {
    {"application/proto", &connect_kind, BR_INTAKE_PROTOBUF},
    {"application/json", &connect_kind, BR_INTAKE_JSON},
    {"application/grpc", &grpc_kind, BR_INTAKE_PROTOBUF},
    {"application/grpc+proto", &grpc_kind, BR_INTAKE_PROTOBUF},
    {"application/grpc+json", &grpc_kind, BR_INTAKE_JSON},
    {"application/grpc-web", &web_kind, BR_INTAKE_PROTOBUF},
    {"application/grpc-web+proto", &web_kind, BR_INTAKE_PROTOBUF},
    {"application/grpc-web+json", &web_kind, BR_INTAKE_JSON},
};

static bool read_type(const struct br_request *r, struct br_intake *how)
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
static bool read_encoding(struct br_request *r, struct br_intake *how)
{
    const struct br_http_config *http = how->door->http;
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
    struct br_intake how = {.arg = p, .door = &p->door, .meter = &p->http, .signal = BR_PROFILES};
    const struct br_http_config *http = p->door.http;
    if (strcmp(r->path, PATH) != 0)
        return false;
    if (br_http_preflight(http, r))
        return true;
    bool known = read_type(r, &how);
    if (known && how.kind == &grpc_kind) {
        how.meter = &p->grpc;
        if (br_grpc_begin(r, &how.encoding))
            (void)br_intake_new(&how, r);
    } else if (strcmp(r->method, "POST") != 0) {
        br_http_reply(http, r, &(struct br_http_answer){.status = 405});
    } else if (!known) {
        br_http_reply(http, r, &(struct br_http_answer){.status = 415});
    } else if (read_encoding(r, &how)) {
        (void)br_intake_new(&how, r);
    }
    return true;
}
