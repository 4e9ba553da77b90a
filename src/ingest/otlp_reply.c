/* SPDX-License-Identifier: Apache-2.0 */
/* Answers, by opentelemetry-proto docs/specification.md 1.11: "OTLP/gRPC" and "OTLP/HTTP Response".
 */
#include <string.h>
#include <strings.h>

#include "ingest/otlp.h"
#include "otlp/fields.h"
#include "wire/grpc.h"
#include "wire/protobuf.h"

/* An Export...ServiceResponse with partial_success, or nothing where all went well. */
static size_t encode_partial(const struct br_outcome *o, uint8_t *out)
{
    uint8_t inner[16 + sizeof o->text], *p = inner;
    if (!o->n_rejected && !o->text[0])
        return 0;
    if (o->n_rejected) {
        p = br_put_varint(p, BR_TAG(BR_PARTIAL_SUCCESS_REJECTED, BR_WIRE_VARINT));
        p = br_put_varint(p, o->n_rejected);
    }
    if (o->text[0])
        p = br_put_len(p, BR_PARTIAL_SUCCESS_MESSAGE, o->text, strlen(o->text));
    return (size_t)(br_put_len(out, BR_RESPONSE_PARTIAL_SUCCESS, inner, (size_t)(p - inner)) - out);
}

static void encode_partial_json(const struct br_outcome *o, enum br_signal signal,
                                struct br_str *out)
{
    if (!o->n_rejected && !o->text[0]) {
        br_str_puts(out, "{}");
        return;
    }
    br_str_puts(out, "{\"partialSuccess\":{");
    if (o->n_rejected)
        br_str_printf(out, "\"rejected%s\":\"%u\"%s", signal == BR_TRACES ? "Spans" : "Profiles",
                      o->n_rejected, o->text[0] ? "," : "");
    if (o->text[0]) {
        br_str_puts(out, "\"errorMessage\":");
        br_str_json(out, o->text, strlen(o->text));
    }
    br_str_puts(out, "}}");
}

static void reply_json(struct br_request *r, enum br_signal signal, unsigned code,
                       const struct br_outcome *o, const struct br_http_config *http)
{
    struct br_str text = {.max = 65536};
    if (o->verdict == BR_DONE) {
        encode_partial_json(o, signal, &text);
    } else {
        br_str_printf(&text, "{\"code\":%d,\"message\":", (int)br_outcome_grpc(o));
        br_str_json(&text, o->text, strlen(o->text));
        br_str_putc(&text, '}');
    }
    br_http_reply(http, r,
                  &(struct br_http_answer){.status = code,
                                           .delay_ms = br_retry_delay_ms(o),
                                           .type = "application/json",
                                           .data = text.data,
                                           .len = text.len});
    br_str_release(&text);
}

static void reply_protobuf(struct br_request *r, unsigned code, const struct br_outcome *o,
                           const struct br_http_config *http)
{
    struct br_arena arena;
    uint8_t partial[64 + sizeof o->text];
    struct br_http_answer a = {.status = code,
                               .delay_ms = br_retry_delay_ms(o),
                               .type = "application/x-protobuf",
                               .data = partial};
    br_arena_init(&arena, 65536);
    if (o->verdict == BR_DONE)
        a.len = encode_partial(o, partial);
    else
        a.data = br_status_encode((int)br_outcome_grpc(o), o->text, a.delay_ms, &arena, &a.len);
    br_http_reply(http, r, &a);
    br_arena_release(&arena);
}

void br_otlp_reply(struct br_request *r, enum br_signal signal, enum br_upload_format format,
                   const struct br_outcome *o, const struct br_http_config *http)
{
    uint8_t partial[64 + sizeof o->text];
    if (format == BR_UPLOAD_GRPC)
        br_grpc_reply(r, o, partial, o->verdict == BR_DONE ? encode_partial(o, partial) : 0);
    else if (format == BR_UPLOAD_JSON)
        reply_json(r, signal, br_outcome_http(o), o, http);
    else
        reply_protobuf(r, br_outcome_http(o), o, http);
}

void br_otlp_refuse(struct br_request *r, unsigned code, const char *why,
                    const struct br_http_config *http)
{
    struct br_outcome o = br_outcome_reject(BR_STATUS_INVALID_ARGUMENT, "%s", why);
    const char *type = br_request_header(r, "content-type");
    if (type && strcspn(type, "; \t") == 16 && strncasecmp(type, "application/json", 16) == 0)
        reply_json(r, BR_TRACES, code, &o, http);
    else
        reply_protobuf(r, code, &o, http);
}
