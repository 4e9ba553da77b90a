/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/otlp/sender.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "egress/call.h"
#include "wire/grpc.h"

struct br_otlp_sender {
    struct br_node *node;
    const struct br_otlp_target *target;
    struct br_codec *codec;
    struct br_calls calls;
    struct br_call_headers named;
    struct br_header headers[1 + BR_HEADERS_MAX];
    size_t n_headers;
    struct br_log_limit unread_limit;
};

/* --- Reading responses ----------------------------------------------------------------------- */

/* Logs that a response could not be read. The backend accepted the request, but it is unknown
 * how many records it rejected. */
static void otlp_sender_log_unread(struct br_otlp_sender *sender)
{
    br_node_warn(sender->node, &sender->unread_limit,
                 "the JSON of a response cannot be read; rejected records in it are not counted");
}

static struct br_outcome otlp_sender_success(const struct br_call *call,
                                             const struct br_buf *message)
{
    const struct br_exchange *exchange = &call->exchange;
    struct br_outcome outcome = BR_OUTCOME_DONE;
    bool read = true;
    if (!message || !message->len)
        return outcome;
    if (!exchange->grpc && br_text_starts_nocase(exchange->response_type, "application/json"))
        read = br_otlp_partial_read_json(message->data, message->len, call->item->signal, &outcome);
    else
        br_otlp_partial_read(message->data, message->len, &outcome);
    if (!read)
        otlp_sender_log_unread(br_container_of(call->calls, struct br_otlp_sender, calls));
    if (outcome.n_rejected && call->item->signal == BR_PROFILES)
        br_otlp_partial_to_samples(call->item, &outcome);
    if (outcome.n_rejected > call->item->n_records)
        outcome.n_rejected = call->item->n_records;
    return outcome;
}

/* Returns true if a gRPC error reports that the request is too large. Servers based on tonic use
 * the status OUT_OF_RANGE for this error, and other servers use RESOURCE_EXHAUSTED. Overloaded
 * servers also send RESOURCE_EXHAUSTED, so the function checks the error message as well. */
static bool otlp_sender_is_too_large(const struct br_exchange *exchange, enum br_status status)
{
    if (status != BR_STATUS_RESOURCE_EXHAUSTED && status != BR_STATUS_OUT_OF_RANGE)
        return false;
    return br_call_is_too_large(exchange->grpc_message);
}

/* Returns the gRPC status for an HTTP status (grpc/doc/http-grpc-status-mapping.md). */
static enum br_status otlp_sender_status(unsigned http)
{
    switch (http) {
    case 400:
        return BR_STATUS_INTERNAL;
    case 401:
        return BR_STATUS_UNAUTHENTICATED;
    case 403:
        return BR_STATUS_PERMISSION_DENIED;
    case 404:
        return BR_STATUS_UNIMPLEMENTED;
    case 413:
        return BR_STATUS_RESOURCE_EXHAUSTED;
    default:
        return BR_STATUS_UNKNOWN;
    }
}

/* Returns the outcome of a response that is not gRPC, for example from a proxy. */
static struct br_outcome otlp_sender_read_foreign(const struct br_exchange *exchange)
{
    unsigned http = exchange->http_status;
    enum br_status status = otlp_sender_status(http);
    if (http == 429 || (http >= 502 && http <= 504))
        return br_outcome_retry(BR_STATUS_UNAVAILABLE,
                                br_call_delay(br_call_retry_after_ms(exchange)), "HTTP %u", http);
    if (http >= 300 && http < 400)
        return br_call_refusal(exchange, "");
    if (http == 400 || http == 404 || http == 405 || http == 415)
        return br_outcome_reject(status,
                                 "HTTP %u, which is not a gRPC response; use the server's gRPC "
                                 "port (OTLP: 4317), or the exporter otlphttp",
                                 http);
    return br_outcome_reject(status, "HTTP %u", http);
}

static struct br_outcome otlp_sender_read_grpc(const struct br_call *call,
                                               const struct br_buf *message)
{
    const struct br_exchange *exchange = &call->exchange;
    if (exchange->grpc_status == BR_STATUS_OK)
        return otlp_sender_success(call, message);
    if (exchange->grpc_status < 0)
        return otlp_sender_read_foreign(exchange);
    enum br_status status = (enum br_status)exchange->grpc_status;
    int64_t delay_ms = -1;
    int code;
    if (exchange->details_len &&
        !br_status_decode(exchange->details, exchange->details_len, &code, NULL, 0, &delay_ms))
        delay_ms = -1;
    const char *text = exchange->grpc_message[0] ? exchange->grpc_message : "no message";
    if (delay_ms < 0 && otlp_sender_is_too_large(exchange, status))
        return br_outcome_reject(BR_STATUS_RESOURCE_EXHAUSTED, "%s", text);
    if (br_status_retryable(status, delay_ms >= 0) || status == BR_STATUS_RESOURCE_EXHAUSTED)
        return br_outcome_retry(status, br_call_delay(delay_ms), "%s", text);
    return br_outcome_reject(status, "%s", text);
}

static struct br_outcome otlp_sender_read_http(const struct br_call *call,
                                               const struct br_buf *message)
{
    const struct br_exchange *exchange = &call->exchange;
    char text[128] = "";
    int code = 0;
    int64_t ignored;
    if (exchange->http_status >= 200 && exchange->http_status < 300)
        return otlp_sender_success(call, message);
    if (message && br_text_starts_nocase(exchange->response_type, "application/x-protobuf"))
        (void)br_status_decode(message->data, message->len, &code, text, sizeof text, &ignored);
    else if (message)
        (void)snprintf(text, sizeof text, "%.*s",
                       (int)br_utf8_valid(message->data, message->len < 120 ? message->len : 120),
                       (const char *)message->data);
    return br_call_refusal(exchange, text);
}

static struct br_outcome otlp_sender_read_answer(const struct br_call *call)
{
    struct br_otlp_sender *sender = br_container_of(call->calls, struct br_otlp_sender, calls);
    struct br_buf *message = br_call_message(call, sender->codec);
    struct br_outcome outcome = call->exchange.grpc ? otlp_sender_read_grpc(call, message)
                                                    : otlp_sender_read_http(call, message);
    br_buf_unref(message);
    return outcome;
}

/* --- Writing requests ------------------------------------------------------------------------ */

void br_otlp_sender_send(struct br_otlp_sender *sender, struct br_item *item)
{
    const struct br_otlp_target *target = sender->target;
    struct br_call *call = br_call_new(&sender->calls, item, target->client[item->signal]);
    if (!call)
        return;
    struct br_exchange *exchange = &call->exchange;
    const struct br_packing packing = {
        .translate = target->encoding == BR_OTLP_JSON ? br_packing_to_json : NULL,
        .encoding = target->compression,
        .level = target->level};
    int rc = br_item_write(item, &exchange->body);
    if (rc) {
        br_call_fail(call, rc);
        return;
    }
    exchange->grpc = target->grpc;
    exchange->path = target->path[item->signal];
    exchange->authority = target->authority;
    exchange->content_type = "application/x-protobuf";
    if (target->grpc)
        exchange->content_type = "application/grpc";
    else if (target->encoding == BR_OTLP_JSON)
        exchange->content_type = "application/json";
    if (target->compression != BR_ENCODING_NONE)
        exchange->content_encoding = br_encoding_name(target->compression);
    exchange->user_agent = target->user_agent;
    /* the first header, the version of the profiles signal, is not sent with traces */
    size_t skip = item->signal == BR_PROFILES ? 0 : 1;
    exchange->headers = sender->headers + skip;
    exchange->n_headers = sender->n_headers - skip;
    br_call_pack(call, &packing, sender->codec);
}

static bool otlp_sender_make_headers(struct br_otlp_sender *sender)
{
    if (!br_call_headers_init(&sender->named, sender->target->headers))
        return false;
    sender->headers[sender->n_headers++] =
        (struct br_header){"otlp-profiles-development-version", "1"};
    for (size_t i = 0; i < sender->named.count; i++)
        sender->headers[sender->n_headers++] = sender->named.headers[i];
    return true;
}

struct br_otlp_sender *br_otlp_sender_new(struct br_node *node, const struct br_otlp_target *target)
{
    struct br_otlp_sender *sender = br_calloc(1, sizeof *sender);
    if (!sender)
        return NULL;
    sender->node = node;
    sender->target = target;
    br_calls_init(&sender->calls, node, target->timeout_ms, otlp_sender_read_answer);
    sender->codec = br_codec_new();
    if (!sender->codec || !otlp_sender_make_headers(sender)) {
        br_otlp_sender_free(sender);
        return NULL;
    }
    return sender;
}

void br_otlp_sender_free(struct br_otlp_sender *sender)
{
    if (!sender)
        return;
    br_calls_release(&sender->calls);
    br_codec_free(sender->codec);
    br_call_headers_release(&sender->named);
    br_free(sender);
}

bool br_otlp_read_compression(const char *name, enum br_encoding *ret)
{
    return br_encoding_parse(name, strlen(name), ret) && *ret != BR_ENCODING_SNAPPY;
}

void br_otlp_refuse_compression(struct br_errs *errs, const struct br_yaml *node, const char *path,
                                const char *known, const char *name)
{
    static const char *const collectors[] = {"snappy", "x-snappy-framed", "lz4"};
    bool lacks = false;
    for (size_t i = 0; i < BR_COUNT(collectors); i++)
        lacks = lacks || strcmp(name, collectors[i]) == 0;
    if (lacks)
        (void)br_errs_lack(errs, node, path, "Braid does not support \"%s\"; must be %s", name,
                           known);
    else
        (void)br_errs_add(errs, node, path, "must be %s, got \"%s\"", known, name);
}
