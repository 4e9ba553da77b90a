/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows redirects of HTTP exchanges (RFC 9110 section 15.4). Responses with status 307 and 308
 * are followed up to BR_REDIRECTS_MAX times with the same method and body. Other 3xx responses
 * change the method or have no Location; such a response ends the exchange.
 *
 * Requests to each origin other than the configured origin are sent by a separate client. At most
 * BR_REDIRECT_TARGETS_MAX clients for other origins are kept. The client certificate and all
 * headers except a few known harmless ones count as credentials. Credentials are sent only to the
 * same origin, or to the same host from http to https. Requests with credentials are not redirected
 * from https to http.
 * A body with credentials (br_exchange.secret_body) counts as a credential, too.
 */
#pragma once

#include "net/client.h"

#define BR_REDIRECTS_MAX 3
#define BR_REDIRECT_TARGETS_MAX 4

/* The redirect targets of one client: the clients that follow its redirects. */
struct br_redirects {
    struct br_host *host;
    const struct br_client_config *config; /* config of the original client, borrowed */
    struct br_list targets;                /* list of struct target, least recently used first */
    unsigned n_targets;
    struct br_log_limit limit;
};

void br_redirects_init(struct br_redirects *redirects, struct br_host *host,
                       const struct br_client_config *config);

/* Frees all targets. Unfinished exchanges that were sent to redirect targets end with
 * BR_ECLOSED. */
void br_redirects_release(struct br_redirects *redirects);

/* Sends an exchange again, to the Location of its response. `client` is the client that has
 * received the response, and `from` is its endpoint. `redirects` belongs to the client to which the
 * exchange was originally given. Returns true if the exchange was sent again; the exchange may
 * already have ended. Returns false if the caller must end the exchange: `exchange->not_followed`
 * then contains the reason, or `exchange->error` is BR_ENOMEM, BR_EFULL or an error of
 * br_net_connect. */
bool br_redirect_follow(struct br_redirects *redirects, struct br_client *client,
                        const struct br_endpoint *from, struct br_exchange *exchange);

/* Restores the original fields of a redirected exchange, before it is returned to its owner. */
void br_redirect_end(struct br_exchange *exchange);

/* --- The URL of a redirect (url.c) ------------------------------------------------------------ */

/* The URL of a redirect is its Location, resolved against the URL that was requested (RFC 9110
 * section 10.2.2, RFC 3986 section 5). */

/* maximum bytes of a path with its query, including the terminator */
#define BR_URL_PATH_MAX 1024

/* An absolute http or https URL. */
struct br_url {
    struct br_endpoint server;  /* scheme, host and port; the `path` of this endpoint is empty */
    char path[BR_URL_PATH_MAX]; /* path of the URL: starts with a slash and includes the query */
};

/* Resolves `reference`, absolute or relative, against the server and `path` (with its query) of the
 * request. The fragment of the URL is removed. Returns 0 or BR_EINVAL. A reference is invalid if it
 * is too long or is not an http or https URL. A reference is also invalid if it contains a user
 * name, a space, a control character or a byte above 0x7e. */
int br_url_resolve(const struct br_endpoint *server, const char *path, const char *reference,
                   struct br_url *ret);

/* Returns true if `one` and `other` have the same scheme, host (case-insensitive) and port. */
bool br_url_same_origin(const struct br_endpoint *one, const struct br_endpoint *other);
