/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/exchange.h"

#include <stdio.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"

static bool exchange_is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}

const char *br_exchange_header(const struct br_exchange *exchange, const char *name,
                               const char *own)
{
    for (size_t i = 0; i < exchange->n_headers; i++)
        if (strcasecmp(exchange->headers[i].name, name) == 0)
            return exchange->headers[i].value;
    return own;
}

bool br_exchange_skips(const struct br_exchange *exchange, const char *name)
{
    static const char *const always[] = {"host",           "user-agent",        "content-type",
                                         "content-length", "transfer-encoding", "trailer"};
    static const char *const grpc[] = {"te", "grpc-encoding", "grpc-timeout",
                                       "grpc-accept-encoding"};
    if (exchange_is_among(name, always, BR_COUNT(always)))
        return true;
    if (exchange->content_encoding && strcasecmp(name, "content-encoding") == 0)
        return true;
    return exchange->grpc && exchange_is_among(name, grpc, BR_COUNT(grpc));
}

void br_exchange_begin(struct br_exchange *exchange)
{
    exchange->error = 0;
    exchange->http_status = 0;
    exchange->grpc_status = -1;
    exchange->grpc_message[0] = exchange->response_type[0] = '\0';
    exchange->response_encoding[0] = '\0';
    exchange->response = NULL;
    exchange->response_compressed = false;
    exchange->details = NULL;
    exchange->details_len = 0;
    exchange->retry_after_s = -1;
    exchange->location[0] = '\0';
    exchange->location_cut = false;
    exchange->not_followed = NULL;
}

void br_exchange_set_location(struct br_exchange *exchange, const char *value)
{
    int len = snprintf(exchange->location, sizeof exchange->location, "%s", value ? value : "");
    exchange->location_cut = len >= (int)sizeof exchange->location;
}

/* Returns a hint about the config that may solve the error, or NULL. */
static const char *exchange_hint(const struct br_exchange *exchange)
{
    if (exchange->http_status == 407)
        return "set user:password@ in the proxy's URL";
    return NULL;
}

void br_exchange_refusal_text(const struct br_exchange *exchange, const char *message, char *text,
                              size_t size)
{
    const char *hint = exchange_hint(exchange);
    const struct br_forward *forward = exchange->forward;
    struct br_str out = {.data = text, .cap = size, .fixed = true};
    br_str_printf(&out, "HTTP %u", exchange->http_status);
    if (hint)
        br_str_printf(&out, ": %s", hint);
    if (forward)
        br_str_printf(&out, " (through the proxy %.50s)", forward->proxy);
    br_str_printf(&out, "%s%s", message[0] ? " " : "", message);
}

void br_exchange_redirect_text(const struct br_exchange *exchange, char *text, size_t size)
{
    const char *why =
        exchange->grpc ? "gRPC does not define redirects" : "only 307 and 308 preserve the request";
    if (exchange->not_followed)
        why = exchange->not_followed;
    (void)snprintf(text, size, "HTTP %u is not followed (%s); Location: %s", exchange->http_status,
                   why, exchange->location[0] ? exchange->location : "none");
}

void br_exchange_fail(struct br_exchange *exchange, int error, const char *text)
{
    exchange->error = error;
    (void)snprintf(exchange->error_text, sizeof exchange->error_text, "%s", text);
}

int br_exchange_append(struct br_exchange *exchange, struct br_pool *pool, const uint8_t *data,
                       size_t len)
{
    size_t max = exchange->max_response ? exchange->max_response : BR_EXCHANGE_RESPONSE_MAX;
    if (!exchange->response)
        exchange->response = br_buf_new(pool, len);
    int rc = exchange->response ? br_buf_append(&exchange->response, data, len, max) : BR_ENOMEM;
    if (rc)
        br_exchange_fail(exchange, rc,
                         rc == BR_EFULL ? "the response is too large"
                                        : "out of memory for the response");
    return rc;
}

void br_exchange_drop(struct br_exchange *exchange)
{
    exchange->response = br_buf_unref(exchange->response);
    br_free(exchange->details);
    exchange->details = NULL;
    exchange->details_len = 0;
}

void br_exchange_finish(struct br_exchange *exchange)
{
    struct br_buf *response = exchange->response;
    uint8_t *details = exchange->details;
    exchange->conn->n_answered += !exchange->error;
    exchange->conn = NULL;
    exchange->impl = NULL;
    if (!exchange->follow || !exchange->follow(exchange))
        exchange->on_done(exchange);
    br_buf_unref(response);
    br_free(details);
}
