/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the same responses as Pyroscope where Pyroscope has a response for the case. Codes and
 * their HTTP statuses follow connectrpc.com/docs/protocol; gRPC-Web follows
 * grpc/doc/PROTOCOL-WEB.md.
 *
 * The SDKs examine only the HTTP status. Some SDKs retry after 429 and 5xx, and none retries after
 * another status. Therefore an error that a retry cannot fix has another status, even if Pyroscope
 * itself responds with 500.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "receivers/pyroscope/pyroscope.h"
#include "wire/grpc.h"

struct line {
    const char *code; /* error code of the Connect protocol */
    unsigned ingest, connect;
};

/* Response to a permanent error of a destination. With the destination's own status, the client
 * would retry or would try to log in to Braid. */
static const struct line refused = {"failed_precondition", 400, 400};

static const struct line done = {NULL, 200, 200};

/* Responses to permanent rejections, by status. */
static const struct {
    enum br_status status;
    struct line line;
} rejections[] = {
    {BR_STATUS_INVALID_ARGUMENT, {"invalid_argument", 400, 400}},
    {BR_STATUS_OUT_OF_RANGE, {"out_of_range", 400, 400}},
    {BR_STATUS_UNKNOWN, {"unknown", 422, 400}}, /* the status of a malformed profile */
    {BR_STATUS_RESOURCE_EXHAUSTED, {"resource_exhausted", 413, 413}},
    {BR_STATUS_UNIMPLEMENTED, {"unimplemented", 404, 404}},
};

static const struct line *pyroscope_reply_find(const struct br_outcome *outcome)
{
    static const struct line busy = {"unavailable", 503, 503},
                             limited = {"resource_exhausted", 429, 429};
    if (outcome->verdict == BR_DONE)
        return &done;
    if (outcome->verdict == BR_RETRY)
        return outcome->status == BR_STATUS_RESOURCE_EXHAUSTED ? &limited : &busy;
    for (size_t i = 0; i < BR_COUNT(rejections); i++)
        if (rejections[i].status == outcome->status)
            return &rejections[i].line;
    return &refused;
}

static void reply_error(const struct br_http_config *http, struct br_request *request,
                        unsigned status, uint32_t delay_ms, const char *code, const char *message)
{
    struct br_str text = {.max = 65536};
    br_str_puts(&text, "{\"code\":");
    br_str_json(&text, code, strlen(code));
    br_str_puts(&text, ",\"message\":");
    br_str_json(&text, message, strlen(message));
    br_str_putc(&text, '}');
    br_http_reply(http, request,
                  &(struct br_http_answer){.status = status,
                                           .delay_ms = delay_ms,
                                           .type = "application/json",
                                           .data = text.data,
                                           .len = text.len});
    br_str_release(&text);
}

void pyroscope_refuse(const struct br_http_config *http, struct br_request *request,
                      unsigned status, const char *code, const char *message)
{
    reply_error(http, request, status, 0, code, message);
}

void pyroscope_reply_ingest(const struct br_http_config *http, struct br_request *request,
                            const struct br_outcome *outcome)
{
    const struct line *line = pyroscope_reply_find(outcome);
    if (outcome->verdict == BR_DONE)
        br_http_reply(http, request, &(struct br_http_answer){.status = 200});
    else
        reply_error(http, request, line->ingest, br_retry_delay_ms(outcome), line->code,
                    outcome->text);
}

void pyroscope_reply_connect(const struct br_http_config *http, struct br_request *request,
                             bool json, const struct br_outcome *outcome)
{
    const struct line *line = pyroscope_reply_find(outcome);
    if (outcome->verdict == BR_DONE)
        br_http_reply(
            http, request,
            &(struct br_http_answer){.status = 200,
                                     .type = json ? "application/json" : "application/proto",
                                     .data = "{}",
                                     .len = json ? 2 : 0});
    else
        reply_error(http, request, line->connect, br_retry_delay_ms(outcome), line->code,
                    outcome->text);
}

static void pyroscope_reply_put_frame(struct br_str *out, uint8_t flags, const char *data,
                                      size_t len)
{
    uint8_t prefix[BR_GRPC_PREFIX];
    br_grpc_prefix(prefix, false, (uint32_t)len);
    prefix[0] = flags;
    br_str_add(out, prefix, sizeof prefix);
    br_str_add(out, data, len);
}

void pyroscope_reply_web(const struct br_http_config *http, struct br_request *request, bool json,
                         const struct br_outcome *outcome)
{
    struct br_str trailers = {.max = 4096}, body = {.max = 8192};
    br_str_printf(&trailers, "grpc-status: %d\r\n", (int)br_outcome_grpc(outcome));
    if (outcome->verdict != BR_DONE) {
        br_str_puts(&trailers, "grpc-message: ");
        br_grpc_encode_message(&trailers, outcome->text);
        br_str_puts(&trailers, "\r\n");
    }
    if (outcome->verdict == BR_DONE)
        pyroscope_reply_put_frame(&body, 0, "{}", json ? 2 : 0);
    pyroscope_reply_put_frame(&body, 0x80, trailers.data, trailers.len);
    bool whole = !trailers.failed && !body.failed;
    br_http_reply(http, request,
                  &(struct br_http_answer){.status = whole ? 200 : 503,
                                           .delay_ms = br_retry_delay_ms(outcome),
                                           .type = json ? "application/grpc-web+json"
                                                        : "application/grpc-web+proto",
                                           .data = body.data,
                                           .len = whole ? body.len : 0});
    br_str_release(&trailers);
    br_str_release(&body);
}
