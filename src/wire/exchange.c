/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/exchange.h"

#include <stdio.h>

#include "base/err.h"

void br_exchange_begin(struct br_exchange *exchange)
{
    exchange->error = 0;
    exchange->http_status = 0;
    exchange->grpc_status = -1;
    exchange->grpc_message[0] = exchange->response_type[0] = '\0';
    exchange->response = NULL;
    exchange->response_compressed = false;
    exchange->details_len = 0;
    exchange->retry_after_s = -1;
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
                                        : "the response is too much for the memory there is");
    return rc;
}

void br_exchange_finish(struct br_exchange *exchange)
{
    struct br_buf *response = exchange->response;
    exchange->conn->n_answered += !exchange->error;
    exchange->conn = NULL;
    exchange->impl = NULL;
    exchange->on_done(exchange);
    br_buf_unref(response);
}
