/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/call.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

void br_calls_init(struct br_calls *calls, struct br_node *node, uint64_t timeout_ms,
                   struct br_outcome (*read)(const struct br_call *call))
{
    *calls = (struct br_calls){.node = node, .timeout_ms = timeout_ms, .read = read};
    br_list_init(&calls->list);
}

/* Cancels the packing or the exchange of the call. */
static void call_stop(struct br_call *call)
{
    if (call->job)
        br_packing_job_cancel(call->job);
    else
        br_client_cancel(call->client, &call->exchange);
    call->job = NULL;
}

/* Finishes the call's item with the outcome, and frees the call. */
static void call_end(struct br_call *call, const struct br_outcome *outcome)
{
    struct br_item *item = call->item;
    br_host_timer_stop(call->calls->node->host, &call->timer);
    br_list_remove(&call->link);
    br_rope_release(&call->exchange.body);
    br_free(call);
    br_item_finish(item, outcome);
}

void br_calls_release(struct br_calls *calls)
{
    while (calls->node && !br_list_empty(&calls->list)) {
        struct br_call *call = br_container_of(calls->list.next, struct br_call, link);
        struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
        call_stop(call);
        call_end(call, &outcome);
    }
}

struct br_call *br_call_new(struct br_calls *calls, struct br_item *item, struct br_client *client)
{
    struct br_call *call = br_calloc(1, sizeof *call);
    if (!call) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return NULL;
    }
    call->calls = calls;
    call->item = item;
    call->client = client;
    br_list_append(&calls->list, &call->link);
    return call;
}

void br_call_fail(struct br_call *call, int rc)
{
    struct br_outcome outcome =
        rc == BR_ENOMEM
            ? br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory")
            : br_outcome_reject(BR_STATUS_INTERNAL, "cannot be encoded: %s", br_strerror(rc));
    call_end(call, &outcome);
}

/* Returns true if the HTTP status means that the backend accepted the request. The request must
 * then not be sent again, even if the response's body is incomplete. Always returns false for gRPC,
 * which reports its status only in the trailers. */
static bool call_is_taken(const struct br_exchange *exchange)
{
    return !exchange->grpc && exchange->http_status >= 200 && exchange->http_status < 300;
}

static void call_on_done(struct br_exchange *exchange)
{
    struct br_call *call = exchange->user;
    struct br_outcome outcome = BR_OUTCOME_DONE;
    if (!exchange->error) {
        outcome = call->calls->read(call);
    } else if (!call_is_taken(exchange)) {
        br_client_expect_retry(call->client);
        outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "%s", exchange->error_text);
    }
    call_end(call, &outcome);
}

static void call_on_timeout(struct br_timer *timer)
{
    struct br_call *call = br_container_of(timer, struct br_call, timer);
    const char *why = call->job ? "the request could not be compressed" : "no answer";
    struct br_outcome outcome = BR_OUTCOME_DONE;
    if (!call_is_taken(&call->exchange))
        outcome = br_outcome_retry(BR_STATUS_DEADLINE_EXCEEDED, 0, "%s in %llu ms", why,
                                   (unsigned long long)call->calls->timeout_ms);
    call_stop(call);
    br_client_expect_retry(call->client);
    call_end(call, &outcome);
}

static void call_begin(struct br_call *call)
{
    struct br_host *host = call->calls->node->host;
    uint64_t timeout_ms = call->calls->timeout_ms;
    if (call->until_ms || !timeout_ms)
        return;
    call->until_ms = br_host_mono_ms(host) + timeout_ms;
    (void)br_host_timer(host, &call->timer, timeout_ms, call_on_timeout);
}

/* Returns the milliseconds that remain of the call's timeout, or 0 if the call has no timeout. */
static uint64_t call_left_ms(const struct br_call *call)
{
    uint64_t now = br_host_mono_ms(call->calls->node->host);
    if (!call->until_ms)
        return 0;
    return call->until_ms > now ? call->until_ms - now : 1;
}

static void call_send(struct br_call *call)
{
    call_begin(call);
    call->exchange.timeout_ms = call_left_ms(call);
    call->exchange.on_done = call_on_done;
    call->exchange.user = call;
    call->exchange.metadata = call->item->metadata;
    br_client_send(call->client, &call->exchange);
}

/* Sends the packed body, or finishes the call if packing failed. */
static void call_go(struct br_call *call, int rc)
{
    if (rc)
        br_call_fail(call, rc);
    else
        call_send(call);
}

static void call_on_packed(void *arg, int rc, struct br_rope *body)
{
    struct br_call *call = arg;
    call->job = NULL;
    call->exchange.body = *body;
    call_go(call, rc);
}

void br_call_pack(struct br_call *call, const struct br_packing *packing, struct br_codec *codec)
{
    struct br_host *host = call->calls->node->host;
    struct br_rope *body = &call->exchange.body;
    enum br_signal signal = call->item->signal;
    if (body->len <= BR_PACKING_NOW || !br_packing_any(packing)) {
        int rc = br_packing_write(packing, signal, codec, host->pool, body);
        call_go(call, rc);
        return;
    }
    call->job = br_packing_job_new(host, packing, signal, body, call_on_packed, call);
    if (!call->job) {
        br_call_fail(call, BR_ENOMEM);
        return;
    }
    call_begin(call);
    br_packing_job_start(call->job);
}

struct br_buf *br_call_message(const struct br_call *call, struct br_codec *codec)
{
    const struct br_exchange *exchange = &call->exchange;
    const char *name = exchange->response_encoding;
    struct br_buf *body = exchange->response, *plain = NULL;
    enum br_encoding encoding = BR_ENCODING_NONE;
    bool encoded = !exchange->grpc || exchange->response_compressed;
    if (!body || (encoded && !br_encoding_parse(name, strlen(name), &encoding)))
        return NULL;
    if (encoding == BR_ENCODING_NONE)
        return exchange->response_compressed ? NULL : br_buf_ref(body);
    (void)br_decompress(codec, encoding, body->data, body->len, BR_CALL_MESSAGE_MAX,
                        call->calls->node->host->pool, &plain, NULL);
    return plain;
}

uint32_t br_call_delay(int64_t delay_ms)
{
    if (delay_ms <= 0)
        return 0;
    return delay_ms < UINT32_MAX ? (uint32_t)delay_ms : UINT32_MAX;
}

/* Returns true if a word of the text begins with one of `words`. */
static bool call_contains(const char *text, const char *const *words)
{
    for (; *words; words++) {
        size_t len = strlen(*words);
        for (const char *at = text; *at; at++)
            if ((at == text || !isalpha((unsigned char)at[-1])) && !strncasecmp(at, *words, len))
                return true;
    }
    return false;
}

bool br_call_is_too_large(const char *sentence)
{
    static const char *const what[] = {"message", "request", "payload",    "body",
                                       "content", "entity",  "decompress", NULL};
    static const char *const size[] = {"larger than",  "too large",       "too big",
                                       "exceeds max",  "exceeds the max", "maximum size",
                                       "message size", "to more than",    NULL};
    static const char *const pace[] = {"rate", "quota", "memory", "too many", "per second", NULL};
    return call_contains(sentence, what) && call_contains(sentence, size) &&
           !call_contains(sentence, pace);
}

int64_t br_call_retry_after_ms(const struct br_exchange *exchange)
{
    if (exchange->retry_after_s < 0)
        return -1;
    return exchange->retry_after_s < INT64_MAX / 1000 ? exchange->retry_after_s * 1000 : INT64_MAX;
}

static struct br_outcome call_redirected(const struct br_exchange *exchange)
{
    struct br_outcome outcome = br_outcome_reject(BR_STATUS_UNKNOWN, "%s", "");
    br_exchange_redirect_text(exchange, outcome.text, sizeof outcome.text);
    return outcome;
}

struct br_outcome br_call_refusal(const struct br_exchange *exchange, const char *message)
{
    uint32_t delay_ms = br_call_delay(br_call_retry_after_ms(exchange));
    unsigned status = exchange->http_status;
    char text[sizeof((struct br_outcome *)0)->text];
    if (status >= 300 && status < 400)
        return call_redirected(exchange);
    br_exchange_refusal_text(exchange, message, text, sizeof text);
    switch (status) {
    case 429:
        return br_outcome_retry(BR_STATUS_RESOURCE_EXHAUSTED, delay_ms, "%s", text);
    case 502:
    case 503:
    case 504:
        return br_outcome_retry(BR_STATUS_UNAVAILABLE, delay_ms, "%s", text);
    case 413:
        return br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "%s", text);
    case 401:
        return br_outcome_reject(BR_STATUS_UNAUTHENTICATED, "%s", text);
    case 403:
        return br_outcome_reject(BR_STATUS_PERMISSION_DENIED, "%s", text);
    case 404:
        return br_outcome_reject(BR_STATUS_UNIMPLEMENTED, "%s", text);
    case 400: /* Collectors respond with 400 if a body is too large after decompression */
        return br_outcome_reject(br_call_is_too_large(message) ? BR_STATUS_RESOURCE_EXHAUSTED
                                                               : BR_STATUS_INVALID_ARGUMENT,
                                 "%s", text);
    default:
        return br_outcome_reject(BR_STATUS_UNKNOWN, "%s", text);
    }
}

bool br_call_headers_init(struct br_call_headers *call_headers, const struct br_headers *from)
{
    size_t bytes = 1, at = 0;
    *call_headers = (struct br_call_headers){.count = 0};
    for (size_t i = 0; i < from->count; i++)
        bytes += strlen(from->names[i]) + 1;
    call_headers->names = br_malloc(bytes);
    if (!call_headers->names)
        return false;
    for (size_t i = 0; i < from->count; i++) {
        call_headers->headers[call_headers->count++] =
            (struct br_header){call_headers->names + at, from->values[i].text};
        for (const char *c = from->names[i]; *c; c++)
            call_headers->names[at++] = *c >= 'A' && *c <= 'Z' ? (char)(*c + 32) : *c;
        call_headers->names[at++] = '\0';
    }
    return true;
}

bool br_call_headers_have(const struct br_call_headers *call_headers, const char *name)
{
    for (size_t i = 0; i < call_headers->count; i++)
        if (strcmp(call_headers->headers[i].name, name) == 0)
            return true;
    return false;
}

void br_call_headers_release(struct br_call_headers *call_headers)
{
    br_free(call_headers->names);
    *call_headers = (struct br_call_headers){.count = 0};
}
