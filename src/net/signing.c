/* SPDX-License-Identifier: Apache-2.0 */
#include "net/signing.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define SIGNING_ARENA_MAX 65536

struct signing_client {
    struct br_client base;
    struct br_client *inner;
    struct br_host *host;
    const char *id;
    /* list of struct signed_exchange: exchanges that wait for credentials */
    struct br_list waiting;
    struct br_auth_waiter waiter;
    bool waits; /* `waiter` is in the authenticator's list */
};

/* An exchange, with the original values of the fields that are replaced when it is signed. */
struct signed_exchange {
    struct br_list link; /* entry in client->waiting */
    bool sent;           /* the exchange was passed to `inner` */
    struct br_exchange *exchange;
    struct br_signing signing;
    const struct br_header *headers;
    size_t n_headers;
    void (*on_done)(struct br_exchange *exchange);
};

/* --- Headers -----------------------------------------------------------------------------------
 */

const char *br_signing_get(const struct br_signing *signing, const char *name)
{
    for (size_t i = 0; i < signing->n_headers; i++)
        if (strcasecmp(signing->headers[i].name, name) == 0)
            return signing->headers[i].value;
    return NULL;
}

void br_signing_remove(struct br_signing *signing, const char *name)
{
    size_t kept = 0;
    for (size_t i = 0; i < signing->n_headers; i++)
        if (strcasecmp(signing->headers[i].name, name) != 0)
            signing->headers[kept++] = signing->headers[i];
    signing->n_headers = kept;
}

void br_signing_set(struct br_signing *signing, const char *name, const char *value)
{
    char *lower = br_arena_strndup(&signing->arena, name, strlen(name));
    char *copy = br_arena_strndup(&signing->arena, value, strlen(value));
    br_signing_remove(signing, name);
    if (!lower || !copy || signing->n_headers == BR_SIGNING_HEADERS_MAX) {
        signing->error = BR_ENOMEM;
        return;
    }
    for (char *c = lower; *c; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c + 32);
    signing->headers[signing->n_headers++] = (struct br_header){lower, copy};
}

/* --- Exchanges ---------------------------------------------------------------------------------
 */

/* Restores the exchange's fields and frees `signed_exchange`. */
static struct br_exchange *signing_release(struct signed_exchange *signed_exchange)
{
    struct br_exchange *exchange = signed_exchange->exchange;
    exchange->headers = signed_exchange->headers;
    exchange->n_headers = signed_exchange->n_headers;
    exchange->on_done = signed_exchange->on_done;
    exchange->signing = NULL;
    br_list_remove(&signed_exchange->link);
    br_arena_release(&signed_exchange->signing.arena);
    OPENSSL_cleanse(&signed_exchange->signing, sizeof signed_exchange->signing);
    br_free(signed_exchange);
    return exchange;
}

static void signing_on_done(struct br_exchange *exchange)
{
    exchange = signing_release(exchange->signing);
    exchange->on_done(exchange);
}

static void signing_fail(struct signed_exchange *signed_exchange, int rc, const char *why)
{
    struct br_exchange *exchange = signing_release(signed_exchange);
    exchange->error = rc;
    (void)snprintf(exchange->error_text, sizeof exchange->error_text, "%s", why);
    exchange->on_done(exchange);
}

static void signing_on_ready(struct br_auth_waiter *waiter);

static void signing_wait(struct signing_client *client, struct br_authenticator *authenticator,
                         struct signed_exchange *signed_exchange)
{
    br_list_append(&client->waiting, &signed_exchange->link);
    if (client->waits)
        return;
    client->waits = true;
    client->waiter.on_ready = signing_on_ready;
    br_authenticator_wait(authenticator, &client->waiter);
}

/* Signs and sends an exchange that is in no list. */
static void signing_send_signed(struct signing_client *client,
                                struct signed_exchange *signed_exchange)
{
    struct br_authenticator *authenticator = br_authenticator_find(client->host, client->id);
    struct br_signing *signing = &signed_exchange->signing;
    struct br_exchange *exchange = signed_exchange->exchange;
    struct br_err err = {.text = "out of memory"};
    int rc = authenticator && authenticator->sign
                 ? authenticator->sign(authenticator, signing, &err)
                 : BR_ECLOSED;
    if (rc == BR_EAGAIN) {
        signing_wait(client, authenticator, signed_exchange);
        return;
    }
    rc = rc ? rc : signing->error;
    if (rc) {
        signing_fail(signed_exchange, rc, authenticator ? err.text : "shutting down");
        return;
    }
    signed_exchange->sent = true;
    exchange->headers = signing->headers;
    exchange->n_headers = signing->n_headers;
    exchange->on_done = signing_on_done;
    br_client_send(client->inner, exchange);
}

/* Signs the waiting exchanges. Exchanges for which there are still no credentials wait again. */
static void signing_on_ready(struct br_auth_waiter *waiter)
{
    struct signing_client *client = br_container_of(waiter, struct signing_client, waiter);
    struct br_list ready, *list;
    client->waits = false;
    br_list_init(&ready);
    while ((list = br_list_shift(&client->waiting)))
        br_list_append(&ready, list);
    while ((list = br_list_shift(&ready)))
        signing_send_signed(client, br_container_of(list, struct signed_exchange, link));
}

static struct signing_client *signing_client_of(struct br_client *base)
{
    return br_container_of(base, struct signing_client, base);
}

static void signing_send(struct br_client *base, struct br_exchange *exchange)
{
    struct signing_client *client = signing_client_of(base);
    struct signed_exchange *signed_exchange = br_calloc(1, sizeof *signed_exchange);
    if (!signed_exchange || exchange->n_headers > BR_SIGNING_HEADERS_MAX) {
        br_free(signed_exchange);
        exchange->error = BR_ENOMEM;
        (void)snprintf(exchange->error_text, sizeof exchange->error_text, "out of memory");
        exchange->on_done(exchange);
        return;
    }
    br_list_init(&signed_exchange->link);
    signed_exchange->exchange = exchange;
    signed_exchange->headers = exchange->headers;
    signed_exchange->n_headers = exchange->n_headers;
    signed_exchange->on_done = exchange->on_done;
    signed_exchange->signing.exchange = exchange;
    br_arena_init(&signed_exchange->signing.arena, SIGNING_ARENA_MAX);
    if (exchange->n_headers)
        memcpy(signed_exchange->signing.headers, exchange->headers,
               exchange->n_headers * sizeof *exchange->headers);
    signed_exchange->signing.n_headers = exchange->n_headers;
    exchange->signing = signed_exchange;
    signing_send_signed(client, signed_exchange);
}

static void signing_cancel(struct br_client *base, struct br_exchange *exchange)
{
    const struct signed_exchange *signed_exchange = exchange->signing;
    if (!signed_exchange)
        return;
    if (signed_exchange->sent)
        br_client_cancel(signing_client_of(base)->inner, exchange);
    (void)signing_release(exchange->signing);
}

static void signing_expect_retry(struct br_client *base)
{
    br_client_expect_retry(signing_client_of(base)->inner);
}

static void signing_free(struct br_client *base)
{
    struct signing_client *client = signing_client_of(base);
    if (client->waits)
        br_list_remove(&client->waiter.link);
    while (!br_list_empty(&client->waiting))
        signing_fail(br_container_of(client->waiting.next, struct signed_exchange, link),
                     BR_ECLOSED, "the client is closed");
    br_client_free(client->inner);
    br_free(client);
}

static const struct br_client_ops signing_ops = {signing_send, signing_cancel, signing_free,
                                                 signing_expect_retry};

int br_signing_client_new(struct br_host *host, const char *id, struct br_client *inner,
                          struct br_client **ret, struct br_err *err)
{
    struct signing_client *client = br_calloc(1, sizeof *client);
    if (!client) {
        br_client_free(inner);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    client->base.ops = &signing_ops;
    client->inner = inner;
    client->host = host;
    client->id = id;
    br_list_init(&client->waiting);
    *ret = &client->base;
    return 0;
}
