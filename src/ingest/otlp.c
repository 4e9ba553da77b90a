/* SPDX-License-Identifier: Apache-2.0 */
#include "ingest/otlp.h"

#include "ingest/pieces.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json/json.h"

/* What takes about two milliseconds: protobuf is walked, JSON is translated first. */
#define READ_NOW (512u << 10)
#define JSON_NOW (512u << 10)

void br_otlp_handler_init(struct br_otlp_handler *s, struct br_node *node)
{
    s->node = node;
    s->repaired = br_node_metric(node, BR_COUNTER, "braid_receiver_repaired_strings", NULL, NULL);
}

/* --- What is sent ----------------------------------------------------------------------------- */

static int from_json(struct br_reading *r)
{
    const struct br_otlp_handler *s = r->arg;
    const struct br_buf *text = br_reading_bytes(r);
    struct br_buf *plain = NULL;
    if (text->len > JSON_NOW && r->max_now != SIZE_MAX)
        return BR_EAGAIN;
    int rc = br_json_decode(br_otlp_request(r->signal), (const char *)text->data, text->len,
                            s->max_depth, r->max_body, r->host->pool, &plain, &r->err);
    if (rc == 0)
        br_reading_replace(r, plain);
    return rc;
}

static int walk_whole(struct br_reading *r, const struct br_walk_options *options)
{
    struct br_buf *buf = br_reading_bytes(r);
    br_item_free(r->item);
    r->item = br_item_new(r->host, r->signal);
    if (!r->item)
        return BR_ENOMEM;
    return br_walk(r->item, buf, buf->data, buf->len, options, &r->n_repaired, &r->err);
}

/* The list of the spans is made of what leaves, pieces or the whole: two lists would be much. */
static int walk(struct br_reading *r)
{
    const struct br_otlp_handler *s = r->arg;
    struct br_walk_options options = {
        .max_depth = s->max_depth, .utf8 = s->utf8, .memo = &r->bench->memo};
    bool spans = s->node->spans_wanted, large = br_reading_bytes(r)->len > BR_PIECES_FROM_BYTES;
    options.spans = spans && !large;
    int rc = walk_whole(r, &options);
    options.spans = spans;
    if (rc == 0 && large)
        rc = br_pieces_cut(r, &options);
    if (rc == 0 && large && spans && br_list_empty(&r->pieces))
        rc = walk_whole(r, &options);
    return rc == BR_ETOOBIG ? BR_EINVAL : rc; /* nesting is its fault, not its size's */
}

static int read_request(struct br_reading *r)
{
    int rc = br_reading_unpack(r);
    if (rc == 0 && r->format == BR_UPLOAD_JSON)
        rc = from_json(r);
    return rc ? rc : walk(r);
}

static void on_read(struct br_upload *x, const struct br_reading *r)
{
    const struct br_otlp_handler *s = x->arg;
    *s->repaired += r->n_repaired;
}

static void answer(const struct br_upload *x, struct br_request *r, const struct br_outcome *o)
{
    br_otlp_reply(r, x->signal, x->format, o, x->format == BR_UPLOAD_GRPC ? NULL : x->listener->http);
}

static const struct br_upload_kind kind = {read_request, READ_NOW, on_read, answer};

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

static void begin(const struct br_upload *how, struct br_request *r)
{
    struct br_upload *x = br_upload_new(how, r);
    if (x && x->signal == BR_PROFILES && !version_ok(r))
        br_upload_reject(x, BR_STATUS_INVALID_ARGUMENT,
                         "otlp-profiles-development-version must be 1 (or absent), once");
}

bool br_otlp_begin_grpc(struct br_otlp_handler *s, struct br_ingest_listener *d, const struct br_meter *m,
                        struct br_request *r)
{
    struct br_upload how = {
        .kind = &kind, .arg = s, .listener = d, .meter = m, .format = BR_UPLOAD_GRPC};
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
static bool read_type(const struct br_request *r, bool more, enum br_upload_format *ret)
{
    static const struct {
        const char *type;
        enum br_upload_format format;
        bool more;
    } types[] = {{"application/x-protobuf", BR_UPLOAD_PROTOBUF, false},
                 {"application/json", BR_UPLOAD_JSON, false},
                 {"application/protobuf", BR_UPLOAD_PROTOBUF, true}};
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

bool br_otlp_begin_http(struct br_otlp_handler *s, struct br_ingest_listener *d, const struct br_meter *m,
                        struct br_request *r)
{
    const struct br_http_config *http = d->http;
    struct br_upload how = {.kind = &kind, .arg = s, .listener = d, .meter = m};
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
