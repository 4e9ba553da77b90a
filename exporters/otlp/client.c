/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/otlp/client.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "egress/call.h"
#include "otlp/fields.h"
#include "otlp/json/json.h"
#include "wire/grpc.h"
#include "wire/protobuf.h"

struct otlp_sender {
    struct br_node *node;
    const struct otlp_target *target;
    struct br_codec *codec;
    struct br_calls calls;
    struct br_call_headers named;
    struct br_header headers[1 + BR_HEADERS_MAX];
    size_t n_headers;
};

/* --- Reading the answer ---------------------------------------------------------------------- */

/* partial_success of an Export...ServiceResponse: field 1 { rejected = 1, error_message = 2 }. */
static void read_partial(const uint8_t *p, size_t len, struct br_outcome *o)
{
    const uint8_t *end = p + len;
    struct br_field f, g;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != BR_RESPONSE_PARTIAL_SUCCESS || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *q = f.data, *stop = f.data + f.value;
        while (q && q < stop && (q = br_field_next(q, stop, &g))) {
            if (g.number == BR_PARTIAL_SUCCESS_REJECTED && g.wire == BR_WIRE_VARINT)
                o->n_rejected = g.value > UINT32_MAX ? UINT32_MAX : (uint32_t)g.value;
            else if (g.number == BR_PARTIAL_SUCCESS_MESSAGE && g.wire == BR_WIRE_LEN)
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
    const json_t *n =
        json_object_get(partial, signal == BR_TRACES ? "rejectedSpans" : "rejectedProfiles");
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

static struct br_outcome success(const struct br_call *c)
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

/* Says it to a request that is too large. tonic has OUT_OF_RANGE for it; others have
 * RESOURCE_EXHAUSTED, which is what a server also says that asks for mercy. */
static bool is_too_large(const struct br_exchange *x, enum br_status status)
{
    if (status != BR_STATUS_RESOURCE_EXHAUSTED && status != BR_STATUS_OUT_OF_RANGE)
        return false;
    return x->http_status == 413 || br_call_says_too_large(x->grpc_message);
}

static struct br_outcome read_grpc(const struct br_call *c)
{
    const struct br_exchange *x = &c->exchange;
    if (x->grpc_status == BR_STATUS_OK)
        return success(c);
    enum br_status status = (enum br_status)x->grpc_status;
    int64_t delay_ms = -1;
    if (x->grpc_status < 0) {
        /* Not a gRPC answer; grpc/doc/http-grpc-status-mapping.md. */
        unsigned http = x->http_status;
        status = http == 400                                   ? BR_STATUS_INTERNAL
                 : http == 401                                 ? BR_STATUS_UNAUTHENTICATED
                 : http == 403                                 ? BR_STATUS_PERMISSION_DENIED
                 : http == 404                                 ? BR_STATUS_UNIMPLEMENTED
                 : http == 413                                 ? BR_STATUS_RESOURCE_EXHAUSTED
                 : http == 429 || (http >= 502 && http <= 504) ? BR_STATUS_UNAVAILABLE
                                                               : BR_STATUS_UNKNOWN;
    }
    int code;
    if (x->details_len && !br_status_decode(x->details, x->details_len, &code, NULL, 0, &delay_ms))
        delay_ms = -1;
    const char *text = x->grpc_message[0] ? x->grpc_message : "no message";
    if (delay_ms < 0 && is_too_large(x, status))
        return br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "%s", text);
    if (br_status_retryable(status, delay_ms >= 0) || status == BR_STATUS_RESOURCE_EXHAUSTED)
        return br_outcome_retry(status, br_call_delay(delay_ms), "%s", text);
    return br_outcome_reject(status, "%s", text);
}

static struct br_outcome read_http(const struct br_call *c)
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
        (void)snprintf(message, sizeof message, "%.*s",
                       (int)(x->response->len < 120 ? x->response->len : 120),
                       (const char *)x->response->data);
    return br_call_refusal(x, message);
}

static struct br_outcome read_answer(const struct br_call *c)
{
    return c->exchange.grpc ? read_grpc(c) : read_http(c);
}

/* --- Writing the request --------------------------------------------------------------------- */

static int to_json(const struct br_rope *plain, enum br_signal signal, struct br_pool *pool,
                   struct br_buf **ret)
{
    struct br_str text = {.max = BR_BUF_MAX - 1};
    struct br_buf *copy;
    const uint8_t *data = br_rope_bytes(plain, pool, &copy);
    int rc = data ? br_json_encode(br_otlp_request(signal), data, plain->len, &text) : BR_ENOMEM;
    struct br_buf *buf = rc ? NULL : br_buf_new(pool, text.len);
    if (!rc)
        rc = buf ? br_buf_append(&buf, text.data, text.len, BR_BUF_MAX) : BR_ENOMEM;
    br_buf_unref(copy);
    br_str_release(&text);
    if (rc)
        br_buf_unref(buf);
    else
        *ret = buf;
    return rc;
}

void otlp_sender_send(struct otlp_sender *s, struct br_item *item)
{
    const struct otlp_target *t = s->target;
    struct br_call *c = br_call_new(&s->calls, item, t->client[item->signal]);
    if (!c)
        return;
    struct br_exchange *x = &c->exchange;
    const struct br_packing packing = {.translate = t->encoding == OTLP_AS_JSON ? to_json : NULL,
                                       .encoding = t->compression,
                                       .level = t->level};
    int rc = br_item_write(item, &x->body);
    if (rc) {
        br_call_fail(c, rc);
        return;
    }
    x->grpc = t->grpc;
    x->path = t->path[item->signal];
    x->authority = t->authority;
    x->content_type = t->grpc                       ? "application/grpc"
                      : t->encoding == OTLP_AS_JSON ? "application/json"
                                                    : "application/x-protobuf";
    if (t->compression != BR_ENCODING_NONE)
        x->content_encoding = br_encoding_name(t->compression);
    x->user_agent = t->user_agent;
    /* The first header is about profiles. */
    size_t skip = item->signal == BR_PROFILES ? 0 : 1;
    x->headers = s->headers + skip;
    x->n_headers = s->n_headers - skip;
    br_call_pack(c, &packing, s->codec);
}

static bool make_headers(struct otlp_sender *s)
{
    if (!br_call_headers_init(&s->named, s->target->headers))
        return false;
    s->headers[s->n_headers++] = (struct br_header){"otlp-profiles-development-version", "1"};
    for (size_t i = 0; i < s->named.n; i++)
        s->headers[s->n_headers++] = s->named.v[i];
    return true;
}

struct otlp_sender *otlp_sender_new(struct br_node *node, const struct otlp_target *target)
{
    struct otlp_sender *s = br_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->node = node;
    s->target = target;
    br_calls_init(&s->calls, node, target->timeout_ms, read_answer);
    s->codec = br_codec_new();
    if (!s->codec || !make_headers(s)) {
        otlp_sender_free(s);
        return NULL;
    }
    return s;
}

void otlp_sender_free(struct otlp_sender *s)
{
    if (!s)
        return;
    br_calls_release(&s->calls);
    br_codec_free(s->codec);
    br_call_headers_release(&s->named);
    br_free(s);
}

bool otlp_read_compression(const char *name, enum br_encoding *ret)
{
    return br_encoding_parse(name, strlen(name), ret);
}
