/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/pyroscope.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/call.h"
#include "wire/protobuf.h"

#define PUSH_PATH "/push.v1.PusherService/Push"
/* number of headers that are not from the config: authorization, tenant and protocol version */
#define OWN_HEADERS 3

struct pyroscope_push {
    struct br_node *node;
    struct pyroscope_push_config config;
    char *path;
    struct br_client *client;
    /* repeats the attempts to send a request until the request is finished */
    struct br_retry *retry;
    struct br_consumer sender; /* makes one attempt to send a request; called by `retry` */
    struct br_calls calls;
    struct br_call_headers headers;
    struct br_codec *codec;
    struct br_log_limit refused_limit;
};

/* --- Parts ----------------------------------------------------------------------------------- */

int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_records, struct br_part *ret)
{
    uint8_t id[PYROSCOPE_ID_LEN / 2];
    size_t sample = br_len_size(PYROSCOPE_SAMPLE_PROFILE, pprof->len) +
                    br_len_size(PYROSCOPE_SAMPLE_ID, PYROSCOPE_ID_LEN);
    size_t body = labels_len + br_len_size(PYROSCOPE_SERIES_SAMPLES, sample),
           total = br_len_size(PYROSCOPE_REQUEST_SERIES, body);
    struct br_buf *buf = total <= UINT32_MAX ? br_buf_new(pool, total) : NULL;
    if (!buf)
        return BR_ENOMEM;
    br_random_bytes(id, sizeof id);
    uint8_t *o = br_put_varint(buf->data, BR_TAG(PYROSCOPE_REQUEST_SERIES, BR_WIRE_LEN));
    o = br_put_varint(o, body);
    uint32_t body_at = (uint32_t)(o - buf->data);
    o = br_put_bytes(o, labels, labels_len);
    o = br_put_varint(o, BR_TAG(PYROSCOPE_SERIES_SAMPLES, BR_WIRE_LEN));
    o = br_put_varint(o, sample);
    o = br_put_len(o, PYROSCOPE_SAMPLE_PROFILE, pprof->data, pprof->len);
    o = br_put_varint(o, BR_TAG(PYROSCOPE_SAMPLE_ID, BR_WIRE_LEN));
    o = br_put_varint(o, PYROSCOPE_ID_LEN);
    o = br_hex_encode(id, sizeof id, o);
    buf->len = (uint32_t)(o - buf->data);
    *ret = (struct br_part){.kind = BR_PART_OTHER,
                            .n_records = n_records,
                            .buf = buf,
                            .raw = buf->data,
                            .raw_len = buf->len,
                            .body_at = body_at};
    return 0;
}

/* --- Responses ------------------------------------------------------------------------------- */

/* Drops a profile that the server will never accept. */
static struct br_outcome push_drop(struct pyroscope_push *push, struct br_item *item,
                                   const char *text)
{
    struct br_outcome outcome = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "%s", text);
    br_node_drop(push->node, item, "profile_rejected", &outcome, &push->refused_limit);
    return outcome;
}

static struct br_outcome push_read_answer(const struct br_call *call)
{
    struct pyroscope_push *p = br_container_of(call->calls, struct pyroscope_push, calls);
    const struct br_exchange *exchange = &call->exchange;
    char text[128] = "", why[192];
    if (exchange->http_status >= 200 && exchange->http_status < 300)
        return BR_OUTCOME_DONE;
    struct br_buf *message = br_call_message(call, p->codec);
    if (message) {
        size_t len = message->len < sizeof text ? message->len : sizeof text - 1;
        (void)snprintf(text, sizeof text, "%.*s", (int)br_utf8_valid(message->data, len),
                       (const char *)message->data);
    }
    br_buf_unref(message);
    switch (exchange->http_status) {
    case 400:
    case 413:
    case 422:
        br_exchange_refusal_text(exchange, text, why, sizeof why);
        return push_drop(p, call->item, why);
    case 408:
    case 500:
        br_exchange_refusal_text(exchange, text, why, sizeof why);
        return br_outcome_retry(BR_STATUS_UNAVAILABLE,
                                br_call_delay(br_call_retry_after_ms(exchange)), "%s", why);
    default:
        return br_call_refusal(exchange, text);
    }
}

/* --- Sending --------------------------------------------------------------------------------- */

/* Sets the headers of a request. The headers are allocated in the memory of the request's item. */
static int push_set_headers(struct pyroscope_push *push, struct br_call *call)
{
    const struct pyroscope_push_config *config = &push->config;
    struct br_header *header =
        br_arena_calloc(&call->item->arena, push->headers.count + OWN_HEADERS, sizeof *header);
    const char *tenant =
        config->tenant_metadata ? br_item_metadata(call->item, config->tenant_metadata) : NULL;
    size_t n = 0;
    if (!header)
        return BR_ENOMEM;
    if (!tenant || !*tenant)
        tenant = config->tenant;
    if (!br_call_headers_have(&push->headers, "connect-protocol-version"))
        header[n++] = (struct br_header){"connect-protocol-version", "1"};
    if (tenant && *tenant && !br_call_headers_have(&push->headers, "x-scope-orgid"))
        header[n++] = (struct br_header){"x-scope-orgid", tenant};
    if (config->authorization.text && !br_call_headers_have(&push->headers, "authorization"))
        header[n++] = (struct br_header){"authorization", config->authorization.text};
    memcpy(header + n, push->headers.headers, push->headers.count * sizeof *header);
    call->exchange.headers = header;
    call->exchange.n_headers = n + push->headers.count;
    return 0;
}

static void push_on_send(struct br_consumer *self, struct br_item *item)
{
    struct pyroscope_push *p = br_container_of(self, struct pyroscope_push, sender);
    struct br_call *call = br_call_new(&p->calls, item, p->client);
    if (!call)
        return;
    struct br_exchange *exchange = &call->exchange;
    const struct br_packing packing = {.encoding =
                                           p->config.gzip ? BR_ENCODING_GZIP : BR_ENCODING_NONE};
    int rc = br_item_write(item, &exchange->body);
    if (!rc)
        rc = push_set_headers(p, call);
    if (rc) {
        br_call_fail(call, rc);
        return;
    }
    exchange->path = p->path;
    exchange->content_type = "application/proto";
    exchange->content_encoding = p->config.gzip ? "gzip" : NULL;
    exchange->user_agent = "Braid/" BR_VERSION;
    br_call_pack(call, &packing, p->codec);
}

/* --- Life ------------------------------------------------------------------------------------ */

static bool push_make_path(struct pyroscope_push *push)
{
    struct br_endpoint endpoint;
    char path[sizeof endpoint.path + sizeof PUSH_PATH];
    if (br_endpoint_read(push->config.endpoint, false, &endpoint, NULL))
        return false;
    (void)snprintf(path, sizeof path, "%s%s", endpoint.path, PUSH_PATH);
    push->path = br_strdup(path);
    return push->path != NULL;
}

struct pyroscope_push *pyroscope_push_new(struct br_node *node,
                                          const struct pyroscope_push_config *config)
{
    struct pyroscope_push *p = br_calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->node = node;
    p->config = *config;
    p->sender.consume = push_on_send;
    br_calls_init(&p->calls, node, config->timeout_ms, push_read_answer);
    p->retry = br_retry_new(node, config->retry, &p->sender);
    p->codec = br_codec_new();
    if (!p->retry || !p->codec || !push_make_path(p) ||
        !br_call_headers_init(&p->headers, config->headers)) {
        pyroscope_push_free(p);
        return NULL;
    }
    return p;
}

int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err)
{
    const struct pyroscope_push_config *push_config = &push->config;
    struct br_client_config config = {.endpoint = push_config->endpoint,
                                      .tls = push_config->tls,
                                      .proxy_url = push_config->proxy_url,
                                      .authenticator = push_config->authenticator,
                                      .max_connections = push_config->max_connections,
                                      .log = &push->node->log,
                                      .on_reachable = br_retry_reachable,
                                      .on_reachable_arg = push->node};
    br_client_keepalive_apply(&push_config->keepalive, &config);
    return push->node->host->ops->connect(push->node->host, &config, &push->client, err);
}

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push)
{
    return br_retry_input(push->retry);
}

/* Frees the calls, then the retries, then the client. One loop iteration runs after each of the
 * first two steps, so that the owners of the requests can process the results. */
void pyroscope_push_free(struct pyroscope_push *push)
{
    if (!push)
        return;
    struct br_host *host = push->node->host;
    br_calls_release(&push->calls);
    (void)br_host_iterate(host);
    br_retry_free(push->retry);
    (void)br_host_iterate(host);
    br_client_free(push->client);
    br_codec_free(push->codec);
    br_call_headers_release(&push->headers);
    br_free(push->path);
    br_free(push);
}
