/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows redirects of HTTP exchanges (RFC 9110 section 15.4). 307 and 308 are followed up to
 * BR_REDIRECTS_MAX times with the same method and body. Other 3xx responses change the method or
 * have no Location; they end the exchange.
 *
 * Each origin other than the configured one gets its own client. At most BR_REDIRECT_TARGETS_MAX of
 * these clients are kept. Credentials are the client certificate and all headers except a few known
 * harmless ones. Credentials are sent only to the same origin, or to the same host from http to
 * https. Requests with credentials are not redirected from https to http.
 */
#pragma once

#include "net/client.h"

#define BR_REDIRECTS_MAX 3
#define BR_REDIRECT_TARGETS_MAX 4

/* The redirect targets of one client. */
struct br_redirects {
    struct br_host *host;
    const struct br_client_config *config; /* the client's config, borrowed */
    struct br_list targets;                /* least recently used first */
    unsigned n_targets;
    struct br_log_limit limit;
};

void br_redirects_init(struct br_redirects *redirects, struct br_host *host,
                       const struct br_client_config *config);

/* Frees all targets. Their exchanges end with BR_ECLOSED. */
void br_redirects_release(struct br_redirects *redirects);

/* Sends an exchange on to the Location of its response. `client` has received the response, and
 * `from` is its endpoint. `redirects` belongs to the client that received the exchange from its
 * owner. Returns true if the exchange was sent again; the exchange may already have ended.
 * Returns false if the caller must end the exchange: `not_followed` then contains the reason, or
 * `error` is BR_ENOMEM, BR_EFULL or an error of br_net_connect. */
bool br_redirect_follow(struct br_redirects *redirects, struct br_client *client,
                        const struct br_endpoint *from, struct br_exchange *exchange);

/* Restores the original fields of a redirected exchange, before it is returned to its owner. */
void br_redirect_end(struct br_exchange *exchange);
