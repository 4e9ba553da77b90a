/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/otlp.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json.h"

void br_otlp_service_init(struct br_otlp_service *s, struct br_node *node)
{
    s->repaired = br_node_metric(node, BR_COUNTER, "braid_receiver_repaired_strings", NULL, NULL);
}

void br_otlp_service_release(struct br_otlp_service *s)
{
    br_walk_memo_release(&s->memo);
}

/* --- What is sent ----------------------------------------------------------------------------- */

/* JSON as protobuf, in `*buf`, which it replaces. */
static int from_json(struct br_intake *x, struct br_buf **buf, struct br_err *err)
{
    const struct br_otlp_service *s = x->arg;
    struct br_buf *plain = NULL;
    int rc = br_json_decode(br_otlp_request(x->signal), (const char *)(*buf)->data, (*buf)->len,
                            s->max_depth, x->door->max_body, x->door->ingest->node->host->pool,
                            &plain, err);
    if (rc)
        return rc;
    br_buf_unref(*buf);
    *buf = plain;
    return 0;
}

/* Walks the message and sends it down the pipeline. */
static void walk(struct br_intake *x, struct br_buf *buf)
{
    struct br_otlp_service *s = x->arg;
    struct br_node *node = x->door->ingest->node;
    struct br_err err = {0};
    uint32_t repaired = 0;
    const struct br_walk_options options = {
        .max_depth = s->max_depth, .utf8 = s->utf8, .spans = node->spans_wanted, .memo = &s->memo};
    struct br_item *item = br_item_new(node->host, x->signal);
    int rc = item ? br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        /* nesting is its fault, not its size's */
        br_intake_fail(x, rc == BR_ETOOBIG ? BR_EINVAL : rc, &err);
        return;
    }
    *s->repaired += repaired;
    br_intake_send(x, item);
}

static void take(struct br_intake *x, struct br_buf *body)
{
    struct br_err err = {0};
    struct br_buf *buf = br_buf_ref(body);
    int rc = br_intake_unpack(x, &buf, &err);
    if (!rc && x->format == BR_INTAKE_JSON)
        rc = from_json(x, &buf, &err);
    if (rc)
        br_intake_fail(x, rc, &err);
    else
        walk(x, buf);
    br_buf_unref(buf);
}

static void answer(const struct br_intake *x, struct br_request *r, const struct br_outcome *o)
{
    br_otlp_reply(r, x->signal, x->format, o, x->format == BR_INTAKE_GRPC ? NULL : x->door->http);
}

static const struct br_intake_kind kind = {take, answer};

/* --- What is asked ---------------------------------------------------------------------------- */

static const struct {
    const char *path;
    enum br_signal signal;
} methods[] = {
    {"/opentelemetry.proto.collector.trace.v1.TraceService/Export", BR_TRACES},
    {"/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", BR_PROFILES},
    /* Fluent Bit's exporter still posts there what has today's numbering. */
    {"/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export", BR_PROFILES},
};

/* Absent, or once and "1". */
static bool version_ok(const struct br_request *r)
{
    unsigned n = 0;
    for (size_t i = 0; i < r->n_headers; i++) {
        if (strcmp(r->headers[i].name, "otlp-profiles-development-version") != 0)
            continue;
        if (strcmp(r->headers[i].value, "1") != 0 || n++)
            return false;
    }
    return true;
}

static void begin(const struct br_intake *how, struct br_request *r)
{
    struct br_intake *x = br_intake_new(how, r);
    if (x && x->signal == BR_PROFILES && !version_ok(r))
        br_intake_reject(x, BR_STATUS_INVALID_ARGUMENT,
                         "otlp-profiles-development-version must be 1 (or absent), once");
}

bool br_otlp_begin_grpc(struct br_otlp_service *s, struct br_door *d, const struct br_meter *m,
                        struct br_request *r)
{
    struct br_intake how = {
        .kind = &kind, .arg = s, .door = d, .meter = m, .format = BR_INTAKE_GRPC};
    size_t i = 0;
    while (i < BR_COUNT(methods) && strcmp(methods[i].path, r->path) != 0)
        i++;
    if (i == BR_COUNT(methods) || !(s->signals & BR_SIGNAL_BIT(methods[i].signal)))
        return false;
    how.signal = methods[i].signal;
    if (br_grpc_begin(r, &how.encoding))
        begin(&how, r);
    return true;
}

/* By the content type, with or without parameters. */
static bool read_type(const struct br_request *r, bool more, enum br_intake_format *ret)
{
    static const struct {
        const char *type;
        enum br_intake_format format;
        bool more;
    } types[] = {{"application/x-protobuf", BR_INTAKE_PROTOBUF, false},
                 {"application/json", BR_INTAKE_JSON, false},
                 {"application/protobuf", BR_INTAKE_PROTOBUF, true}};
    const char *type = br_request_header(r, "content-type");
    size_t n = type ? strcspn(type, "; \t") : 0;
    for (size_t i = 0; i < BR_COUNT(types); i++) {
        if (strlen(types[i].type) != n || strncasecmp(types[i].type, type, n) != 0)
            continue;
        *ret = types[i].format;
        return more || !types[i].more;
    }
    return false;
}

bool br_otlp_begin_http(struct br_otlp_service *s, struct br_door *d, const struct br_meter *m,
                        struct br_request *r)
{
    const struct br_http_config *http = d->http;
    struct br_intake how = {.kind = &kind, .arg = s, .door = d, .meter = m};
    int signal = 0;
    while (signal < BR_SIGNALS && (!s->paths[signal] || strcmp(s->paths[signal], r->path) != 0))
        signal++;
    if (signal == BR_SIGNALS)
        return false;
    how.signal = (enum br_signal)signal;
    if (br_http_preflight(http, r))
        return true;
    if (strcmp(r->method, "POST") != 0)
        br_otlp_refuse(r, 405, "export requests are POSTs", http);
    else if (!read_type(r, s->more_types, &how.format))
        br_otlp_refuse(r, 415, "content-type must be application/x-protobuf or application/json",
                       http);
    else if (!br_http_encoding(http, r, &how.encoding))
        br_otlp_refuse(r, 415, "content-encoding must be gzip, zstd or deflate", http);
    else
        begin(&how, r);
    return true;
}
