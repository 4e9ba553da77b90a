/* SPDX-License-Identifier: Apache-2.0 */
#include "app/query_command.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/client.h"
#include "net/loop.h"

struct fetch {
    struct br_exchange exchange;
    struct br_timer timer;
    struct br_loop *loop;
    struct br_fetched result;
    bool done, late;
};

/* Copies the response to `fetch`, because the connection frees the body after on_done. */
static void fetch_keep(struct fetch *fetch)
{
    const struct br_exchange *exchange = &fetch->exchange;
    size_t len = exchange->response ? exchange->response->len : 0;
    uint8_t *data = br_malloc(len + 1);
    if (!data)
        return;
    if (len)
        memcpy(data, exchange->response->data, len);
    data[len] = '\0';
    fetch->result = (struct br_fetched){.status = exchange->http_status, .data = data, .len = len};
    (void)snprintf(fetch->result.type, sizeof fetch->result.type, "%s", exchange->response_type);
}

static void fetch_on_done(struct br_exchange *exchange)
{
    struct fetch *fetch = exchange->user;
    if (!exchange->error && exchange->http_status >= 300 && exchange->http_status < 400) {
        exchange->error = BR_EIO;
        br_exchange_redirect_text(exchange, exchange->error_text, sizeof exchange->error_text);
    }
    if (!exchange->error)
        fetch_keep(fetch);
    fetch->done = true;
    br_loop_stop(fetch->loop);
}

static void fetch_on_timeout(struct br_timer *timer)
{
    struct fetch *fetch = br_container_of(timer, struct fetch, timer);
    fetch->late = true;
    br_loop_stop(fetch->loop);
}

static int fetch_result(struct fetch *fetch, const char *url, uint64_t timeout_ms,
                        struct br_fetched *ret, struct br_err *err)
{
    if (fetch->late)
        return br_err_set(err, BR_ETIMEOUT, "%s did not answer within %llu s", url,
                          (unsigned long long)(timeout_ms / 1000));
    if (fetch->exchange.error)
        return br_err_set(err, BR_EIO, "%s: %s", url, fetch->exchange.error_text);
    if (!fetch->result.data)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    *ret = fetch->result;
    return 0;
}

static int fetch_run(struct fetch *fetch, const char *url, uint64_t timeout_ms,
                     struct br_fetched *ret, struct br_err *err)
{
    struct br_host *host = br_loop_host(fetch->loop);
    struct br_client_config config = {.endpoint = url, .connect_timeout_ms = timeout_ms};
    struct br_client *client = NULL;
    int rc = host->ops->connect(host, &config, &client, err);
    if (rc)
        return rc;
    if (!br_host_timer(host, &fetch->timer, timeout_ms, fetch_on_timeout)) {
        br_client_free(client);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    br_client_send(client, &fetch->exchange);
    if (!fetch->done)
        br_loop_run(fetch->loop);
    if (!fetch->done)
        br_client_cancel(client, &fetch->exchange);
    rc = fetch_result(fetch, url, timeout_ms, ret, err);
    br_host_timer_stop(host, &fetch->timer);
    br_client_free(client);
    return rc;
}

int br_fetch(const char *url, const char *path, const char *authorization, uint64_t timeout_ms,
             struct br_fetched *ret, struct br_err *err)
{
    struct br_net *net = br_net_new();
    const struct br_header header = {"authorization", authorization};
    struct fetch fetch = {.exchange = {.method = "GET",
                                       .path = path,
                                       .headers = &header,
                                       .n_headers = authorization ? 1 : 0,
                                       .user_agent = "braid-query/" BR_VERSION,
                                       .max_response = BR_FETCH_MAX,
                                       .on_done = fetch_on_done}};
    fetch.exchange.user = &fetch;
    if (!net)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    int rc = br_loop_new(net, 0, 1, &fetch.loop, err);
    if (!rc)
        rc = fetch_run(&fetch, url, timeout_ms, ret, err);
    br_loop_free(fetch.loop);
    br_net_free(net);
    return rc;
}

void br_fetched_release(struct br_fetched *fetched)
{
    br_free(fetched->data);
    *fetched = (struct br_fetched){0};
}
