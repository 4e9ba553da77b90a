/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/otlp/client.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json.h"
#include "wire/grpc.h"
#include "wire/protobuf.h"

struct otlp_sender {
    struct br_node *node;
    const struct otlp_target *target;
    struct br_codec *codec;
    struct br_list calls;
    struct br_header headers[1 + BR_HEADERS_MAX];
    size_t n_headers;
    char *names; /* lower-case header names, terminated, one after the other */
};

struct call {
    struct br_list link;
    struct otlp_sender *sender;
    struct br_item *item;
    struct br_client *client;
    struct br_exchange exchange;
    struct br_timer timer;
};

static void end(struct call *c, const struct br_outcome *o)
{
    struct br_item *item = c->item;
    br_host_timer_stop(c->sender->node->host, &c->timer);
    br_list_remove(&c->link);
    br_rope_release(&c->exchange.body);
    br_free(c);
    br_item_finish(item, o);
}

/* --- Reading the answer ---------------------------------------------------------------------- */

/* partial_success of an Export...ServiceResponse: field 1 { rejected = 1, error_message = 2 }. */
static void read_partial(const uint8_t *p, size_t len, struct br_outcome *o)
{
    const uint8_t *end = p + len;
    struct br_field f, g;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *q = f.data, *stop = f.data + f.value;
        while (q && q < stop && (q = br_field_next(q, stop, &g))) {
            if (g.number == 1 && g.wire == BR_WIRE_VARINT)
                o->n_rejected = g.value > UINT32_MAX ? UINT32_MAX : (uint32_t)g.value;
            else if (g.number == 2 && g.wire == BR_WIRE_LEN)
                (void)snprintf(o->text, sizeof o->text, "%.*s",
                               (int)(g.value < sizeof o->text ? g.value : sizeof o->text - 1),
                               (const char *)g.data);
        }
    }
}

static void read_partial_json(const uint8_t *text, size_t len, enum br_signal signal,
                              struct br_outcome *o)
{
    json_t *root = json_loadb((const char *)text, len, 0, NULL);
    const json_t *partial = json_object_get(root, "partialSuccess");
    const json_t *n = json_object_get(partial, signal == BR_TRACES ? "rejectedSpans"
                                                                   : "rejectedProfiles");
    const char *message = json_string_value(json_object_get(partial, "errorMessage"));
    long long rejected = json_integer_value(n);
    for (const char *c = json_string_value(n); c && *c >= '0' && *c <= '9' && rejected < UINT32_MAX;
         c++)
        rejected = rejected * 10 + (*c - '0');
    if (rejected > 0)
        o->n_rejected = rejected > UINT32_MAX ? UINT32_MAX : (uint32_t)rejected;
    if (message)
        (void)snprintf(o->text, sizeof o->text, "%s", message);
    json_decref(root);
}

static struct br_outcome success(const struct call *c)
{
    const struct br_exchange *x = &c->exchange;
    struct br_outcome o = BR_OUTCOME_DONE;
    if (!x->response)
        return o;
    if (!x->grpc && strncasecmp(x->response_type, "application/json", 16) == 0)
        read_partial_json(x->response->data, x->response->len, c->item->signal, &o);
    else if (!x->response_compressed)
        read_partial(x->response->data, x->response->len, &o);
    return o;
}

static uint32_t clamp_delay(int64_t delay_ms)
{
    return delay_ms <= 0 ? 0 : delay_ms < UINT32_MAX ? (uint32_t)delay_ms : UINT32_MAX;
}

static struct br_outcome read_grpc(const struct call *c)
{
    const struct br_exchange *x = &c->exchange;
    if (x->grpc_status == BR_STATUS_OK)
        return success(c);
    enum br_status status = (enum br_status)x->grpc_status;
    int64_t delay_ms = -1;
    if (x->grpc_status < 0) {
        /* Not a gRPC answer; grpc/doc/http-grpc-status-mapping.md. */
        unsigned http = x->http_status;
        status = http == 400   ? BR_STATUS_INTERNAL
                 : http == 401 ? BR_STATUS_UNAUTHENTICATED
                 : http == 403 ? BR_STATUS_PERMISSION_DENIED
                 : http == 404 ? BR_STATUS_UNIMPLEMENTED
                 : http == 429 || (http >= 502 && http <= 504) ? BR_STATUS_UNAVAILABLE
                                                               : BR_STATUS_UNKNOWN;
    }
    int code;
    if (x->details_len && !br_status_decode(x->details, x->details_len, &code, NULL, 0, &delay_ms))
        delay_ms = -1;
    const char *text = x->grpc_message[0] ? x->grpc_message : "no message";
    if (br_status_retryable(status, delay_ms >= 0))
        return br_outcome_retry(status, clamp_delay(delay_ms), "%s", text);
    return br_outcome_reject(status, "%s", text);
}

static struct br_outcome read_http(const struct call *c)
{
    const struct br_exchange *x = &c->exchange;
    char message[128] = "";
    int code = 0;
    int64_t ignored;
    if (x->http_status >= 200 && x->http_status < 300)
        return success(c);
    if (x->response && strncasecmp(x->response_type, "application/x-protobuf", 22) == 0)
        (void)br_status_decode(x->response->data, x->response->len, &code, message, sizeof message,
                               &ignored);
    else if (x->response)
        (void)snprintf(message, sizeof message, "%.*s", (int)(x->response->len < 120
                                                                  ? x->response->len
                                                                  : 120),
                       (const char *)x->response->data);
    switch (x->http_status) {
    case 429:
    case 502:
    case 503:
    case 504:
        return br_outcome_retry(
            BR_STATUS_UNAVAILABLE,
            clamp_delay(x->retry_after_s < INT64_MAX / 1000 ? x->retry_after_s * 1000 : INT64_MAX),
            "HTTP %u %s", x->http_status, message);
    case 413:
        return br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "HTTP 413 %s", message);
    case 401:
        return br_outcome_reject(BR_STATUS_UNAUTHENTICATED, "HTTP 401 %s", message);
    case 403:
        return br_outcome_reject(BR_STATUS_PERMISSION_DENIED, "HTTP 403 %s", message);
    case 404:
        return br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "HTTP 404 %s", message);
    case 400:
        return br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "HTTP 400 %s", message);
    default:
        return br_outcome_reject(BR_STATUS_UNKNOWN, "HTTP %u %s", x->http_status, message);
    }
}

static void on_done(struct br_exchange *x)
{
    struct call *c = x->user;
    struct br_outcome o = x->error  ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", x->error_text)
                          : x->grpc ? read_grpc(c)
                                    : read_http(c);
    end(c, &o);
}

static void on_timeout(struct br_timer *t)
{
    struct call *c = br_container_of(t, struct call, timer);
    br_client_cancel(c->client, &c->exchange);
    struct br_outcome o = br_outcome_retry(BR_STATUS_DEADLINE_EXCEEDED, 0, "no answer in %llu ms",
                                           (unsigned long long)c->sender->target->timeout_ms);
    end(c, &o);
}

/* --- Writing the request --------------------------------------------------------------------- */

static int to_json(struct otlp_sender *s, const struct br_rope *plain, enum br_signal signal,
                   struct br_rope *out)
{
    struct br_pool *pool = s->node->host->pool;
    struct br_str text = {.max = BR_BUF_MAX - 1};
    const uint8_t *data;
    struct br_buf *flat = br_rope_flat(plain, pool, &data);
    int rc = flat ? br_json_encode(br_otlp_request(signal), data, plain->len, &text) : BR_ENOMEM;
    struct br_buf *buf = rc ? NULL : br_buf_new(pool, text.len);
    if (!rc)
        rc = buf ? br_buf_append(&buf, text.data, text.len, BR_BUF_MAX) : BR_ENOMEM;
    if (!rc)
        rc = br_rope_add(out, buf, buf->data, buf->len);
    br_buf_unref(buf);
    br_buf_unref(flat);
    br_str_release(&text);
    return rc;
}

/* Replaces the rope by its compressed form. */
static int pack(struct otlp_sender *s, struct br_rope *body)
{
    struct br_buf *packed = NULL;
    int rc = br_compress(s->codec, s->target->compression, s->target->level, body, 0,
                         s->node->host->pool, &packed);
    if (rc)
        return rc;
    br_rope_release(body);
    rc = br_rope_add(body, packed, packed->data, packed->len);
    br_buf_unref(packed);
    return rc;
}

static int make_body(struct otlp_sender *s, const struct br_item *item, struct br_rope *body)
{
    int rc = br_item_write(item, body);
    if (!rc && s->target->encoding == OTLP_AS_JSON) {
        struct br_rope json = {0};
        rc = to_json(s, body, item->signal, &json);
        br_rope_release(body);
        *body = json;
    }
    if (!rc && s->target->compression != BR_ENCODING_NONE)
        rc = pack(s, body);
    return rc;
}

void otlp_sender_send(struct otlp_sender *s, struct br_item *item)
{
    const struct otlp_target *t = s->target;
    struct br_host *host = s->node->host;
    struct call *c = br_calloc(1, sizeof *c);
    if (!c) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    c->sender = s;
    c->item = item;
    c->client = t->client[item->signal];
    br_list_append(&s->calls, &c->link);
    struct br_exchange *x = &c->exchange;
    int rc = make_body(s, item, &x->body);
    if (rc) {
        struct br_outcome o =
            rc == BR_ENOMEM
                ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory")
                : br_outcome_reject(BR_STATUS_INTERNAL, "cannot be encoded: %s", br_strerror(rc));
        end(c, &o);
        return;
    }
    x->grpc = t->grpc;
    x->path = t->path[item->signal];
    x->authority = t->authority;
    x->content_type = t->grpc                         ? "application/grpc"
                      : t->encoding == OTLP_AS_JSON ? "application/json"
                                                      : "application/x-protobuf";
    if (t->compression != BR_ENCODING_NONE)
        x->content_encoding = br_encoding_name(t->compression);
    x->user_agent = t->user_agent;
    /* The first header is about profiles. */
    size_t skip = item->signal == BR_PROFILES ? 0 : 1;
    x->headers = s->headers + skip;
    x->n_headers = s->n_headers - skip;
    x->timeout_ms = t->timeout_ms;
    x->on_done = on_done;
    x->user = c;
    if (t->timeout_ms)
        (void)br_host_timer(host, &c->timer, t->timeout_ms, on_timeout);
    br_client_send(c->client, x);
}

/* HTTP/2 wants header names in lower case. */
static bool copy_headers(struct otlp_sender *s)
{
    const struct br_headers *h = s->target->headers;
    size_t bytes = 1, at = 0;
    for (size_t i = 0; i < h->n; i++)
        bytes += strlen(h->names[i]) + 1;
    s->names = br_malloc(bytes);
    if (!s->names)
        return false;
    s->headers[s->n_headers++] = (struct br_header){"otlp-profiles-development-version", "1"};
    for (size_t i = 0; i < h->n; i++) {
        s->headers[s->n_headers++] = (struct br_header){s->names + at, h->values[i].text};
        for (const char *c = h->names[i]; *c; c++)
            s->names[at++] = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
        s->names[at++] = '\0';
    }
    return true;
}

struct otlp_sender *otlp_sender_new(struct br_node *node, const struct otlp_target *target)
{
    struct otlp_sender *s = br_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->node = node;
    s->target = target;
    br_list_init(&s->calls);
    s->codec = br_codec_new();
    if (!s->codec || !copy_headers(s)) {
        otlp_sender_free(s);
        return NULL;
    }
    return s;
}

void otlp_sender_free(struct otlp_sender *s)
{
    if (!s)
        return;
    while (!br_list_empty(&s->calls)) {
        struct call *c = br_container_of(s->calls.next, struct call, link);
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        br_client_cancel(c->client, &c->exchange);
        end(c, &o);
    }
    br_codec_free(s->codec);
    br_free(s->names);
    br_free(s);
}

bool otlp_read_compression(const char *name, enum br_encoding *ret)
{
    return br_encoding_parse(name, strlen(name), ret);
}
