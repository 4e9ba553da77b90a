/* SPDX-License-Identifier: Apache-2.0 */
/* Replies to OTLP requests (opentelemetry-proto docs/specification.md 1.11, "OTLP/gRPC Response"
 * and "OTLP/HTTP Response"). */
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/str.h"
#include "ingest/otlp.h"
#include "otlp/fields.h"
#include "wire/grpc.h"
#include "wire/protobuf.h"

/* Returns the length of the outcome's text up to the first byte that is not valid UTF-8. The text
 * can contain invalid UTF-8, because it can come from a backend and can be truncated at any byte. A
 * client that finds invalid UTF-8 in a protobuf string rejects the whole reply and sends the data
 * again. */
static size_t otlp_reply_text_len(const struct br_outcome *outcome)
{
    return br_utf8_valid((const uint8_t *)outcome->text, strlen(outcome->text));
}

/* Writes an Export...ServiceResponse with partial_success. Writes nothing if all records were
 * accepted. */
static size_t otlp_reply_encode_partial(const struct br_outcome *outcome, uint8_t *out)
{
    uint8_t inner[16 + sizeof outcome->text], *p = inner;
    if (!outcome->n_rejected && !outcome->text[0])
        return 0;
    if (outcome->n_rejected) {
        p = br_put_varint(p, BR_TAG(BR_PARTIAL_SUCCESS_REJECTED, BR_WIRE_VARINT));
        p = br_put_varint(p, outcome->n_rejected);
    }
    if (outcome->text[0])
        p = br_put_len(p, BR_PARTIAL_SUCCESS_MESSAGE, outcome->text, otlp_reply_text_len(outcome));
    return (size_t)(br_put_len(out, BR_RESPONSE_PARTIAL_SUCCESS, inner, (size_t)(p - inner)) - out);
}

static void otlp_reply_encode_partial_json(const struct br_outcome *outcome, enum br_signal signal,
                                           struct br_str *out)
{
    if (!outcome->n_rejected && !outcome->text[0]) {
        br_str_puts(out, "{}");
        return;
    }
    br_str_puts(out, "{\"partialSuccess\":{");
    if (outcome->n_rejected)
        br_str_printf(out, "\"rejected%s\":\"%u\"%s", signal == BR_TRACES ? "Spans" : "Profiles",
                      outcome->n_rejected, outcome->text[0] ? "," : "");
    if (outcome->text[0]) {
        br_str_puts(out, "\"errorMessage\":");
        br_str_json(out, outcome->text, strlen(outcome->text));
    }
    br_str_puts(out, "}}");
}

static void reply_json(struct br_request *request, enum br_signal signal, unsigned code,
                       const struct br_outcome *outcome, const struct br_http_config *http)
{
    struct br_str text = {.max = 65536};
    if (outcome->verdict == BR_DONE) {
        otlp_reply_encode_partial_json(outcome, signal, &text);
    } else {
        br_str_printf(&text, "{\"code\":%d,\"message\":", (int)br_outcome_grpc(outcome));
        br_str_json(&text, outcome->text, strlen(outcome->text));
        br_str_putc(&text, '}');
    }
    br_http_reply(http, request,
                  &(struct br_http_answer){.status = code,
                                           .delay_ms = br_retry_delay_ms(outcome),
                                           .type = "application/json",
                                           .data = text.data,
                                           .len = text.len});
    br_str_release(&text);
}

static void reply_protobuf(struct br_request *request, unsigned code,
                           const struct br_outcome *outcome, const struct br_http_config *http)
{
    struct br_arena arena;
    uint8_t partial[64 + sizeof outcome->text];
    struct br_http_answer answer = {.status = code,
                                    .delay_ms = br_retry_delay_ms(outcome),
                                    .type = "application/x-protobuf",
                                    .data = partial};
    br_arena_init(&arena, 65536);
    if (outcome->verdict == BR_DONE)
        answer.len = otlp_reply_encode_partial(outcome, partial);
    else
        answer.data = br_status_encode((int)br_outcome_grpc(outcome), outcome->text,
                                       answer.delay_ms, &arena, &answer.len);
    br_http_reply(http, request, &answer);
    br_arena_release(&arena);
}

void br_otlp_reply(struct br_request *request, enum br_signal signal, enum br_upload_format format,
                   const struct br_outcome *outcome, const struct br_http_config *http)
{
    uint8_t partial[64 + sizeof outcome->text];
    if (format == BR_UPLOAD_GRPC)
        br_grpc_reply(request, outcome, partial,
                      outcome->verdict == BR_DONE ? otlp_reply_encode_partial(outcome, partial)
                                                  : 0);
    else if (format == BR_UPLOAD_JSON)
        reply_json(request, signal, br_outcome_http(outcome), outcome, http);
    else
        reply_protobuf(request, br_outcome_http(outcome), outcome, http);
}

void br_otlp_refuse(struct br_request *request, unsigned code, const char *why,
                    const struct br_http_config *http)
{
    struct br_outcome outcome = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "%s", why);
    const char *type = br_request_header(request, "content-type");
    if (type && br_bytes_are_nocase(type, strcspn(type, "; \t"), "application/json"))
        reply_json(request, BR_TRACES, code, &outcome, http);
    else
        reply_protobuf(request, code, &outcome, http);
}
