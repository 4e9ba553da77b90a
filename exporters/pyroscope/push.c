/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/pyroscope/push.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/call.h"
#include "exporters/pyroscope/push_fields.h"
#include "pipeline/redelivery.h"
#include "wire/protobuf.h"

#define PUSH_PATH "/push.v1.PusherService/Push"
#define LOG_EVERY_MS 60000
/* The words of grafana/pyroscope's distributor, for a profile that it names and for one that it
 * does not. */
#define NAMED_ERROR "push series with index"
#define UNNAMED_ERROR "uncompressed profile payload size exceeds limit"
#define OWN_HEADERS 3 /* authorization, tenant, protocol version */

struct pyroscope_push {
    struct br_node *node;
    struct pyroscope_push_config config;
    char *path;
    struct br_client *client;
    struct br_retry *retry;    /* sends each request until it is settled ... */
    struct br_divider divider; /* ... divided where it is refused ... */
    struct br_consumer sender; /* ... by this */
    struct br_calls calls;
    struct br_call_headers headers;
    struct br_codec *codec;
    struct br_log_limit refused_limit;
};

/* --- Parts ----------------------------------------------------------------------------------- */

int pyroscope_part_make(struct br_pool *pool, const uint8_t *labels, size_t labels_len,
                        const struct br_buf *pprof, uint32_t n_items, struct br_part *ret)
{
    static const char digits[] = "0123456789abcdef";
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
    for (size_t i = 0; i < sizeof id; i++) {
        *o++ = (uint8_t)digits[id[i] >> 4];
        *o++ = (uint8_t)digits[id[i] & 15];
    }
    buf->len = (uint32_t)(o - buf->data);
    *ret = (struct br_part){.kind = BR_PART_OTHER,
                            .n_items = n_items,
                            .buf = buf,
                            .raw = buf->data,
                            .raw_len = buf->len,
                            .body_at = body_at};
    return 0;
}

/* --- Answers --------------------------------------------------------------------------------- */

static bool push_is_named(const struct br_buf *message, const struct br_part *part)
{
    return memmem(message->data, message->len, part->raw + part->raw_len - PYROSCOPE_ID_LEN,
                  PYROSCOPE_ID_LEN) != NULL;
}

static uint32_t push_count_text(const struct br_buf *message, const char *text)
{
    const uint8_t *at = message->data, *end = at + message->len;
    uint32_t n = 0;
    for (; (at = memmem(at, (size_t)(end - at), text, strlen(text))); at += strlen(text))
        n++;
    return n;
}

/* Errors that the message lists: "3 errors: ...; 2 errors: ...; ...; ..." are four. */
static uint64_t push_count_errors(const struct br_buf *message)
{
    static const char mark[] = " errors: ";
    const uint8_t *start = message->data, *at = start, *end = at + message->len;
    uint64_t n = 1;
    for (; (at = memmem(at, (size_t)(end - at), mark, sizeof mark - 1)); at++) {
        uint64_t listed = 0, unit = 1;
        for (const uint8_t *d = at; d > start && d[-1] >= '0' && d[-1] <= '9' && unit < 1000000;
             d--) {
            listed += unit * (uint64_t)(d[-1] - '0');
            unit *= 10;
        }
        n += listed ? listed - 1 : 0;
    }
    return n;
}

/* Profiles that the server could not even read have no id in its message. Without any id it has
 * refused the request as a whole, unless it speaks of single profiles. */
static uint64_t push_count_unnamed(const struct br_buf *message, uint32_t n_named)
{
    uint32_t n_listed = push_count_text(message, NAMED_ERROR);
    uint64_t n_errors = push_count_errors(message);
    if (n_named == 0)
        return push_count_text(message, UNNAMED_ERROR);
    return n_errors > n_listed ? n_errors - n_listed : 0;
}

/* The largest part that is not named: what has no name was too large to be read. */
static uint32_t push_largest(const struct br_item *request, const bool *named)
{
    uint32_t best = UINT32_MAX;
    for (uint32_t i = 0; i < request->n_parts; i++)
        if (!named[i] &&
            (best == UINT32_MAX || request->parts[i].raw_len > request->parts[best].raw_len))
            best = i;
    return best;
}

static void push_lose_part(struct pyroscope_push *push, struct br_item *attempt, uint32_t index)
{
    struct br_item *request = attempt->parent;
    uint32_t n = request->parts[index].n_items;
    size_t size = br_part_size(&request->parts[index]);
    uint64_t held;
    br_item_settle(attempt, BR_FATE_DROPPED, "profile_rejected", n);
    br_item_remove_part(request, index);
    if (br_log_allow(&push->refused_limit, br_host_mono_ms(push->node->host), LOG_EVERY_MS, &held))
        br_error(&push->node->log,
                 "dropped %u samples (refused): the server did not read a profile of %zu bytes", n,
                 size);
}

/* Takes out of the request what the server has stored although it refused the request, and what it
 * will never read. */
static void push_settle_stored(struct pyroscope_push *push, struct br_item *attempt,
                               const struct br_buf *message)
{
    struct br_item *request = attempt->parent;
    bool *named = br_arena_calloc(&attempt->arena, request->n_parts, sizeof *named);
    uint32_t n_named = 0;
    if (!named)
        return; /* all of it is sent again */
    for (uint32_t i = 0; i < request->n_parts; i++) {
        named[i] = push_is_named(message, &request->parts[i]);
        n_named += named[i];
    }
    uint64_t n_unnamed = push_count_unnamed(message, n_named);
    if (n_named == 0 && n_unnamed == 0)
        return;
    for (uint32_t i; n_unnamed && (i = push_largest(request, named)) != UINT32_MAX; n_unnamed--) {
        push_lose_part(push, attempt, i);
        memmove(named + i, named + i + 1, request->n_parts - i);
    }
    for (uint32_t i = request->n_parts; i-- > 0;) {
        if (named[i])
            continue;
        br_item_settle(attempt, BR_FATE_SENT, NULL, request->parts[i].n_items);
        br_item_remove_part(request, i);
    }
}

/* The status decides; INVALID_ARGUMENT is about what the request holds, everything else about all
 * requests. */
static struct br_outcome push_outcome_of(const struct br_exchange *exchange, const char *text)
{
    switch (exchange->http_status) {
    case 400:
    case 413:
    case 422:
        return br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "HTTP %u %s", exchange->http_status,
                                 text);
    case 408:
    case 500:
        return br_outcome_retry(BR_STATUS_UNAVAILABLE,
                                br_call_delay(exchange->retry_after_s < UINT32_MAX
                                                  ? exchange->retry_after_s * 1000
                                                  : UINT32_MAX),
                                "HTTP %u %s", exchange->http_status, text);
    default:
        return br_call_refusal(exchange, text);
    }
}

static struct br_outcome push_read_answer(const struct br_call *call)
{
    struct pyroscope_push *p = br_container_of(call->calls, struct pyroscope_push, calls);
    const struct br_exchange *exchange = &call->exchange;
    char text[128] = "";
    if (exchange->http_status >= 200 && exchange->http_status < 300)
        return BR_OUTCOME_DONE;
    struct br_buf *message = br_call_message(call, p->codec);
    if (message) {
        size_t len = message->len < sizeof text ? message->len : sizeof text - 1;
        (void)snprintf(text, sizeof text, "%.*s", (int)br_utf8_valid(message->data, len),
                       (const char *)message->data);
        push_settle_stored(p, call->item, message);
    }
    br_buf_unref(message);
    return push_outcome_of(exchange, text);
}

/* --- Sending --------------------------------------------------------------------------------- */

/* The headers of a request, in the memory of its item. */
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

/* --- Dividing what was refused --------------------------------------------------------------- */

static bool push_divides(const struct br_outcome *outcome)
{
    return outcome->status == BR_STATUS_INVALID_ARGUMENT;
}

static uint32_t push_count_profiles(const struct br_item *request)
{
    return request->n_parts;
}

/* Parts `from` to `to` of a request, as one of its own. */
static int push_cut_piece(const struct br_item *request, uint32_t from, uint32_t to,
                          struct br_list *pieces)
{
    struct br_item *piece = br_item_new(request->host, request->signal);
    if (!piece)
        return BR_ENOMEM;
    br_list_append(pieces, &piece->link);
    piece->metadata = request->metadata; /* in the arena of an item further up */
    for (uint32_t i = from; i < to; i++)
        if (br_item_add_part(piece, &request->parts[i]))
            return BR_ENOMEM;
    return 0;
}

static int push_cut(const struct br_item *request, struct br_list *pieces)
{
    uint32_t half = request->n_parts / 2;
    int rc = push_cut_piece(request, 0, half, pieces);
    return rc ? rc : push_cut_piece(request, half, request->n_parts, pieces);
}

static void push_refuse(const struct br_divider *divider, struct br_item *request,
                        const struct br_outcome *outcome)
{
    struct pyroscope_push *p = br_container_of(divider, struct pyroscope_push, divider);
    struct br_outcome lost = BR_OUTCOME_DONE;
    lost.n_rejected = request->n_items;
    br_redelivery_drop(p->node, request, "profile_rejected", outcome, &p->refused_limit);
    br_item_finish(request, &lost);
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
    p->divider = (struct br_divider){push_divides, push_count_profiles, push_cut, push_refuse};
    p->sender.consume = push_on_send;
    br_calls_init(&p->calls, node, config->timeout_ms, push_read_answer);
    p->retry = br_retry_new(node, config->retry, &p->sender);
    p->codec = br_codec_new();
    if (!p->retry || !p->codec || !push_make_path(p) ||
        !br_call_headers_init(&p->headers, config->headers)) {
        pyroscope_push_free(p);
        return NULL;
    }
    br_retry_divide(p->retry, &p->divider);
    return p;
}

int pyroscope_push_start(struct pyroscope_push *push, struct br_err *err)
{
    const struct pyroscope_push_config *push_config = &push->config;
    struct br_client_config config = {.endpoint = push_config->endpoint,
                                      .tls = push_config->tls,
                                      .max_connections = push_config->max_connections,
                                      .idle_timeout_ms = push_config->idle_timeout_ms,
                                      .log = &push->node->log,
                                      .on_reachable = br_retry_reachable,
                                      .on_reachable_arg = push->node};
    return push->node->host->ops->connect(push->node->host, &config, &push->client, err);
}

struct br_consumer *pyroscope_push_input(struct pyroscope_push *push)
{
    return br_retry_input(push->retry);
}

/* From the innermost outwards, with a turn for each to hear of it. */
void pyroscope_push_free(struct pyroscope_push *push)
{
    if (!push)
        return;
    struct br_host *host = push->node->host;
    br_calls_release(&push->calls);
    (void)br_host_turn(host);
    br_retry_free(push->retry);
    (void)br_host_turn(host);
    br_client_free(push->client);
    br_codec_free(push->codec);
    br_call_headers_release(&push->headers);
    br_free(push->path);
    br_free(push);
}
