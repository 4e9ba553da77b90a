/* SPDX-License-Identifier: Apache-2.0 */
#include "receivers/otlp/otlp.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json.h"
#include "otlp/walk.h"

#define BODY_MAX (64u << 20)
#define SERVER_NAME_MAX 160

/* One of the two listeners. */
struct door {
    struct br_service service;
    struct otlp *otlp;
    struct br_server *server;
    const char *protocol; /* "grpc", "http" */
    size_t max_body;
    char name[SERVER_NAME_MAX];
    double *accepted[BR_SIGNALS], *refused[BR_SIGNALS], *failed[BR_SIGNALS];
};

struct otlp {
    struct br_node *node;
    const struct otlp_config *config;
    struct door grpc, http;
    struct br_codec *codec;
    struct br_walk_memo memo;
    struct br_list exchanges;
    unsigned n_stopping;
    double *repaired;
};

/* A request from its first header to the outcome of its item. */
struct exchange {
    struct br_list link;
    struct door *door;
    struct br_request *request; /* NULL once the client went away */
    struct br_item *item;       /* NULL until it is in the pipeline */
    enum br_signal signal;
    enum otlp_format format;
    enum br_encoding encoding;
};

/* --- What is asked --------------------------------------------------------------------------- */

static const struct {
    const char *path;
    enum br_signal signal;
} methods[] = {
    {"/opentelemetry.proto.collector.trace.v1.TraceService/Export", BR_TRACES},
    {"/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export", BR_PROFILES},
    /* Fluent Bit's exporter still posts there what has today's numbering. */
    {"/opentelemetry.proto.collector.profiles.v1experimental.ProfilesService/Export", BR_PROFILES},
};

static void finish_exchange(struct exchange *x)
{
    br_list_remove(&x->link);
    br_free(x);
}

/* Ends an exchange that never had an item. */
static void answer(struct exchange *x, const struct br_outcome *o)
{
    struct br_request *r = x->request;
    const struct otlp_http *http = x->door->otlp->config->protocols.http;
    enum br_signal signal = x->signal;
    enum otlp_format format = x->format;
    r->user = NULL;
    finish_exchange(x);
    otlp_reply(r, signal, format, o, format == OTLP_GRPC ? NULL : http);
}

static void reject(struct exchange *x, enum br_status status, const char *why)
{
    struct br_outcome o = br_outcome_reject(status, "%s", why);
    *x->door->failed[x->signal] += 1;
    answer(x, &o);
}

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

/* What a new exchange is refused for before its body is read; false when it was. */
static bool admit(struct exchange *x)
{
    struct br_node *node = x->door->otlp->node;
    if (x->signal == BR_PROFILES && !version_ok(x->request)) {
        reject(x, BR_STATUS_INVALID_ARGUMENT,
               "otlp-profiles-development-version must be 1 (or absent), once");
        return false;
    }
    if (!node->next[x->signal]) {
        struct br_outcome o =
            br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "receiver %s is in no %s pipeline", node->id,
                              br_signal_name(x->signal));
        *x->door->failed[x->signal] += 1;
        answer(x, &o);
        return false;
    }
    if (node->draining || br_host_over_limit(node->host)) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "%s",
                                               node->draining ? "shutting down"
                                                              : "memory limit reached");
        *x->door->refused[x->signal] += 1;
        answer(x, &o);
        return false;
    }
    return true;
}

static struct exchange *exchange_new(struct door *d, struct br_request *r, enum br_signal signal,
                                     enum otlp_format format, enum br_encoding encoding)
{
    struct exchange *x = br_calloc(1, sizeof *x);
    if (!x) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        otlp_reply(r, signal, format, &o, NULL);
        return NULL;
    }
    x->door = d;
    x->request = r;
    x->signal = signal;
    x->format = format;
    x->encoding = encoding;
    r->user = x;
    r->max_body = d->max_body;
    br_list_append(&d->otlp->exchanges, &x->link);
    return x;
}

static void refuse_grpc(struct br_request *r, enum br_status status, const char *why)
{
    static const struct br_header accept = {"grpc-accept-encoding", "identity,gzip,zstd"};
    br_request_reply(r, &(struct br_response){.grpc_status = status,
                                              .grpc_message = why,
                                              .headers = &accept,
                                              .n_headers = 1});
}

static void begin_grpc(struct br_service *self, struct br_request *r)
{
    struct door *d = br_container_of(self, struct door, service);
    const char *type = br_request_header(r, "content-type");
    enum br_encoding encoding = BR_ENCODING_NONE;
    if (!type || strncasecmp(type, "application/grpc", 16) != 0 || !r->http2) {
        br_request_reply_text(r, 415, "this is a gRPC endpoint: content-type application/grpc\n");
        return;
    }
    r->grpc = true;
    if (strcmp(r->method, "POST") != 0) {
        refuse_grpc(r, BR_STATUS_UNIMPLEMENTED, "gRPC requests are POSTs");
        return;
    }
    size_t i = 0;
    while (i < BR_COUNT(methods) && strcmp(methods[i].path, r->path) != 0)
        i++;
    if (i == BR_COUNT(methods)) {
        refuse_grpc(r, BR_STATUS_UNIMPLEMENTED, "unknown service or method");
        return;
    }
    const char *name = br_request_header(r, "grpc-encoding");
    if (name && (!br_encoding_parse(name, strlen(name), &encoding) ||
                 encoding == BR_ENCODING_DEFLATE)) {
        refuse_grpc(r, BR_STATUS_UNIMPLEMENTED, "grpc-encoding is not supported: gzip or zstd");
        return;
    }
    struct exchange *x = exchange_new(d, r, methods[i].signal, OTLP_GRPC, encoding);
    if (x)
        (void)admit(x);
}

/* application/x-protobuf or application/json, with or without parameters. */
static bool read_type(const char *type, enum otlp_format *ret)
{
    size_t n = type ? strcspn(type, "; \t") : 0;
    if (n == 22 && strncasecmp(type, "application/x-protobuf", n) == 0)
        *ret = OTLP_PROTOBUF;
    else if (n == 16 && strncasecmp(type, "application/json", n) == 0)
        *ret = OTLP_JSON;
    else
        return false;
    return true;
}

static bool encoding_allowed(const struct otlp_http *http, const char *name)
{
    for (size_t i = 0; i < http->compression_algorithms.n; i++)
        if (strcasecmp(http->compression_algorithms.v[i], name) == 0)
            return true;
    return http->compression_algorithms.n == 0;
}

static void begin_http(struct br_service *self, struct br_request *r)
{
    struct door *d = br_container_of(self, struct door, service);
    const struct otlp_http *http = d->otlp->config->protocols.http;
    enum otlp_format format = OTLP_PROTOBUF;
    enum br_encoding encoding = BR_ENCODING_NONE;
    enum br_signal signal = BR_TRACES;
    bool type_known = read_type(br_request_header(r, "content-type"), &format);
    if (strcmp(r->path, http->profiles_url_path) == 0) {
        signal = BR_PROFILES;
    } else if (strcmp(r->path, http->traces_url_path) != 0) {
        otlp_refuse(r, 404, format, "no such path", http);
        return;
    }
    if (otlp_preflight(r, http))
        return;
    if (strcmp(r->method, "POST") != 0) {
        otlp_refuse(r, 405, format, "export requests are POSTs", http);
        return;
    }
    if (!type_known) {
        otlp_refuse(r, 415, format,
                    "content-type must be application/x-protobuf or application/json", http);
        return;
    }
    const char *name = br_request_header(r, "content-encoding");
    if (name && (!br_encoding_parse(name, strlen(name), &encoding) ||
                 !encoding_allowed(http, name))) {
        otlp_refuse(r, 415, format, "content-encoding must be gzip, zstd or deflate", http);
        return;
    }
    struct exchange *x = exchange_new(d, r, signal, format, encoding);
    if (x)
        (void)admit(x);
}

/* --- What is sent ---------------------------------------------------------------------------- */

/* Keeps what batches are separated by: name\0value\0 pairs, ended by an empty name. */
static void keep_metadata(struct br_item *item, const struct br_node *node,
                          const struct br_request *r)
{
    struct br_str text = {.max = 16384};
    for (size_t i = 0; node->metadata_keys && i < node->metadata_keys->n; i++) {
        const char *key = node->metadata_keys->v[i];
        for (size_t k = 0; k < r->n_headers; k++) {
            if (strcasecmp(r->headers[k].name, key) != 0)
                continue;
            br_str_add(&text, key, strlen(key) + 1);
            br_str_add(&text, r->headers[k].value, strlen(r->headers[k].value) + 1);
        }
    }
    if (text.len && !text.failed)
        item->metadata = br_arena_strndup(&item->arena, text.data, text.len);
    br_str_release(&text);
}

static void on_done(struct br_item *item, void *arg)
{
    struct exchange *x = arg;
    struct door *d = x->door;
    const struct br_outcome *o = &item->outcome;
    double **by = o->verdict == BR_DONE ? d->accepted : o->verdict == BR_RETRY ? d->refused : d->failed;
    *by[x->signal] += x->item ? item->received_items : 0;
    x->item = NULL;
    if (x->request)
        answer(x, o);
    else
        finish_exchange(x);
}

/* The message as plain protobuf, in `*buf`, which it replaces. */
static int unpack(struct exchange *x, struct br_buf **buf, struct br_err *err)
{
    struct otlp *otlp = x->door->otlp;
    struct br_buf *plain = NULL;
    int rc = 0;
    bool packed = x->encoding != BR_ENCODING_NONE &&
                  (x->format != OTLP_GRPC || x->request->grpc_compressed);
    if (packed && *buf) {
        rc = br_decompress(otlp->codec, x->encoding, (*buf)->data, (*buf)->len, x->door->max_body,
                           otlp->node->host->pool, &plain, err);
        if (rc)
            return rc;
        br_buf_unref(*buf);
        *buf = plain;
    }
    if (x->format == OTLP_JSON) {
        const char *text = *buf ? (const char *)(*buf)->data : "";
        unsigned depth = (unsigned)otlp->config->max_depth;
        rc = br_json_decode(br_otlp_request(x->signal), text, *buf ? (*buf)->len : 0, depth,
                            x->door->max_body, otlp->node->host->pool, &plain, err);
        if (rc)
            return rc;
        br_buf_unref(*buf);
        *buf = plain;
    }
    return 0;
}

static void fail(struct exchange *x, int rc, const struct br_err *err)
{
    struct br_outcome o =
        rc == BR_ENOMEM    ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "%s", err->text)
        : rc == BR_ETOOBIG ? br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "%s", err->text)
                           : br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "%s", err->text);
    *x->door->failed[x->signal] += 1;
    answer(x, &o);
}

/* Walks the message and sends it down the pipeline. */
static void take(struct exchange *x, struct br_buf *buf)
{
    struct otlp *otlp = x->door->otlp;
    struct br_node *node = otlp->node;
    struct br_err err = {0};
    uint32_t repaired = 0;
    const struct br_walk_options options = {.max_depth = (unsigned)otlp->config->max_depth,
                                            .utf8 = (enum br_utf8_policy)otlp->config->invalid_utf8,
                                            .spans = node->spans_wanted,
                                            .memo = &otlp->memo};
    struct br_item *item = br_item_new(node->host, x->signal);
    int rc = item ? br_walk(item, buf, buf->data, buf->len, &options, &repaired, &err) : BR_ENOMEM;
    if (rc) {
        br_item_free(item);
        fail(x, rc == BR_ETOOBIG ? BR_EINVAL : rc, &err); /* nesting is its fault, not its size's */
        return;
    }
    *otlp->repaired += repaired;
    keep_metadata(item, node, x->request);
    br_item_received(item);
    item->done = on_done;
    item->done_arg = x;
    x->item = item;
    br_node_forward(node, item);
}

static void body(struct br_service *self, struct br_request *r)
{
    struct exchange *x = r->user;
    struct br_err err = {0};
    (void)self;
    if (r->body_error == BR_BODY_TOO_BIG) {
        struct br_outcome o = br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED,
                                                "the request is larger than %zu bytes", r->max_body);
        *x->door->failed[x->signal] += 1;
        answer(x, &o);
        return;
    }
    if (r->body_error == BR_BODY_MALFORMED) {
        reject(x, BR_STATUS_INVALID_ARGUMENT, "one length-prefixed message is expected");
        return;
    }
    if (r->body_error) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        *x->door->refused[x->signal] += 1;
        answer(x, &o);
        return;
    }
    if (r->grpc_compressed && x->encoding == BR_ENCODING_NONE) {
        reject(x, BR_STATUS_INTERNAL, "a message is marked compressed without a grpc-encoding");
        return;
    }
    struct br_buf *buf = r->body ? r->body : br_buf_new(r->pool, 1);
    r->body = NULL;
    int rc = buf ? unpack(x, &buf, &err) : BR_ENOMEM;
    if (rc)
        fail(x, rc, &err);
    else
        take(x, buf);
    br_buf_unref(buf);
}

static void gone(struct br_service *self, struct br_request *r)
{
    struct exchange *x = r->user;
    (void)self;
    r->user = NULL;
    if (!x)
        return;
    x->request = NULL;
    if (!x->item)
        finish_exchange(x);
}

/* --- The component --------------------------------------------------------------------------- */

static void make_metrics(struct otlp *otlp, struct door *d)
{
    static const char *const items[BR_SIGNALS] = {"spans", "profile_samples"};
    for (int s = 0; s < BR_SIGNALS; s++) {
        char name[96];
        (void)snprintf(name, sizeof name, "otelcol_receiver_accepted_%s", items[s]);
        d->accepted[s] = br_node_metric(otlp->node, BR_COUNTER, name, "transport", d->protocol);
        (void)snprintf(name, sizeof name, "otelcol_receiver_refused_%s", items[s]);
        d->refused[s] = br_node_metric(otlp->node, BR_COUNTER, name, "transport", d->protocol);
        (void)snprintf(name, sizeof name, "otelcol_receiver_failed_%s", items[s]);
        d->failed[s] = br_node_metric(otlp->node, BR_COUNTER, name, "transport", d->protocol);
    }
}

static int otlp_create(struct br_node *node, struct br_err *err)
{
    struct otlp *otlp = node->state;
    const struct otlp_config *c = node->config;
    otlp->node = node;
    otlp->config = c;
    br_list_init(&otlp->exchanges);
    otlp->codec = br_codec_new();
    if (!otlp->codec)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    otlp->repaired = br_node_metric(node, BR_COUNTER, "braid_receiver_repaired_strings", NULL, NULL);
    if (c->protocols.grpc) {
        size_t mib = (size_t)c->protocols.grpc->max_recv_msg_size_mib;
        otlp->grpc = (struct door){.service = {begin_grpc, body, gone},
                                   .otlp = otlp,
                                   .protocol = "grpc",
                                   .max_body = mib ? mib << 20 : BODY_MAX};
        make_metrics(otlp, &otlp->grpc);
    }
    if (c->protocols.http) {
        size_t max = (size_t)c->protocols.http->max_request_body_size;
        otlp->http = (struct door){.service = {begin_http, body, gone},
                                   .otlp = otlp,
                                   .protocol = "http",
                                   .max_body = max ? max : BODY_MAX};
        make_metrics(otlp, &otlp->http);
    }
    return 0;
}

static int open_door(struct otlp *otlp, struct door *d, struct br_server_config *config,
                     struct br_err *err)
{
    struct br_host *host = otlp->node->host;
    (void)snprintf(d->name, sizeof d->name, "receiver/%.120s %s", otlp->node->id, d->protocol);
    config->name = d->name;
    config->what = d->protocol;
    config->log = &otlp->node->log;
    return host->ops->serve(host, config, &d->service, &d->server, err);
}

static int otlp_start(struct br_node *node, struct br_err *err)
{
    struct otlp *otlp = node->state;
    const struct otlp_grpc *g = otlp->config->protocols.grpc;
    const struct otlp_http *h = otlp->config->protocols.http;
    int rc = 0;
    if (g) {
        const struct otlp_keepalive_parameters *k = &g->keepalive.server_parameters;
        struct br_server_config config = {
            .endpoint = g->endpoint,
            .transport = g->transport,
            .tls = g->tls,
            .limits.max_concurrent_streams = (uint32_t)g->max_concurrent_streams,
            .idle_timeout_ms = k->max_connection_idle / 1000000,
            .max_age_ms = k->max_connection_age / 1000000};
        rc = open_door(otlp, &otlp->grpc, &config, err);
    }
    if (h && !rc) {
        uint64_t timeout = h->read_timeout;
        if (h->read_header_timeout && (!timeout || h->read_header_timeout < timeout))
            timeout = h->read_header_timeout;
        struct br_server_config config = {.endpoint = h->endpoint,
                                          .transport = h->transport,
                                          .tls = h->tls,
                                          .idle_timeout_ms = h->idle_timeout / 1000000,
                                          .request_timeout_ms = timeout / 1000000};
        rc = open_door(otlp, &otlp->http, &config, err);
    }
    return rc;
}

static void on_stopped(void *arg)
{
    struct otlp *otlp = arg;
    if (--otlp->n_stopping == 0)
        br_node_drained(otlp->node);
}

static void otlp_drain(struct br_node *node)
{
    struct otlp *otlp = node->state;
    struct br_server *servers[] = {otlp->grpc.server, otlp->http.server};
    otlp->n_stopping = 1u + (servers[0] != NULL) + (servers[1] != NULL);
    for (int i = 0; i < 2; i++)
        if (servers[i])
            br_server_stop(servers[i], on_stopped, otlp);
    on_stopped(otlp);
}

static void otlp_destroy(struct br_node *node)
{
    struct otlp *otlp = node->state;
    br_server_free(otlp->grpc.server);
    br_server_free(otlp->http.server);
    while (!br_list_empty(&otlp->exchanges)) {
        struct exchange *x =
            br_container_of(otlp->exchanges.next, struct exchange, link);
        if (x->item)
            x->item->done = NULL; /* it is still in the pipeline; nobody waits any more */
        finish_exchange(x);
    }
    br_walk_memo_release(&otlp->memo);
    br_codec_free(otlp->codec);
}

extern const struct br_component br_otlp_receiver;
const struct br_component br_otlp_receiver = {
    .name = "otlp",
    .kind = BR_RECEIVER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "OTLP over gRPC and HTTP",
    .options = otlp_options,
    .config_size = sizeof(struct otlp_config),
    .state_size = sizeof(struct otlp),
    .check = otlp_check,
    .create = otlp_create,
    .start = otlp_start,
    .drain = otlp_drain,
    .destroy = otlp_destroy,
};
