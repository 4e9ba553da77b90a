/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows redirects of HTTP exchanges (RFC 9110 section 15.4). 307 and 308 are followed, at most
 * BR_REDIRECTS_MAX times, with the same method and body; other 3xx change the method or name no
 * place, and end the exchange as they are.
 *
 * Each other origin gets a separate client, of which a client keeps BR_REDIRECT_TARGETS_MAX.
 * Credentials are all headers but those that every server may read, and the client certificate.
 * They are not sent to another origin, but from http to https of the same host. With credentials,
 * nothing is followed from https to http.
 */
#pragma once

#include "net/client.h"

#define BR_REDIRECTS_MAX 3
#define BR_REDIRECT_TARGETS_MAX 4

/* The origins that a client was redirected to. */
struct br_redirects {
    struct br_host *host;
    const struct br_client_config *config; /* of the client */
    struct br_list targets;                /* the most recently used last */
    unsigned n_targets;
    struct br_log_limit limit;
};

void br_redirects_init(struct br_redirects *redirects, struct br_host *host,
                       const struct br_client_config *config);

/* Frees the clients; their exchanges end with BR_ECLOSED. */
void br_redirects_release(struct br_redirects *redirects);

/* Sends an exchange that was answered by `client`, whose endpoint is `from`, on to its Location.
 * `redirects` are those of the client that it was first given to. Returns true when the exchange is
 * under way again, or has ended meanwhile. Otherwise it has to be finished: with its answer and
 * the reason in `not_followed`, or with an error (BR_ENOMEM, BR_EFULL). */
bool br_redirect_follow(struct br_redirects *redirects, struct br_client *client,
                        const struct br_endpoint *from, struct br_exchange *exchange);

/* Restores the fields of an exchange that was sent on, before it is given back to its owner. */
void br_redirect_end(struct br_exchange *exchange);
