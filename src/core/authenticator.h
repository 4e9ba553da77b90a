/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An authenticator checks the credentials of clients, or adds credentials to the requests of an
 * exporter, or both. Extensions implement authenticators. A server or client names an authenticator
 * by the id of its extension (`auth: {authenticator: ID}`) and finds the authenticator in the host.
 * Every worker has its own authenticators, so that no locks are needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/list.h"
#include "config/option.h"
#include "core/host.h"

struct br_signing;

/* prefix of an item's metadata keys that name attributes of the authenticated client */
#define BR_AUTH_KEY "auth."

/* Key of the client's IP address in the client metadata of items. The server sets the value, so a
 * header of this name is never used instead. */
#define BR_ADDRESS_KEY "client.address"

/* The two sides on which an authenticator can work. */
#define BR_AUTH_SERVER 1u /* checks the requests that a server receives */
#define BR_AUTH_CLIENT 2u /* adds credentials to the requests that a client sends */

/* The block `auth` of a server or a client. */
struct br_auth_config {
    const char *authenticator; /* id of an extension that authenticates; NULL: none */
    /* servers: names of query parameters that may contain the credentials in place of the header
     * with the same name */
    struct br_strings request_params;
};

extern const struct br_option br_auth_server_options[]; /* option rows for struct br_auth_config */
extern const struct br_option br_auth_client_options[];

/* Option rows for a struct with a member `auth` of type struct br_auth_config *. */
#define BR_AUTH_SERVER_ROW(type)                                                                   \
    BR_PRESENT(type, auth, struct br_auth_config, br_auth_server_options,                          \
               "authentication of clients; absent: all clients are accepted")
#define BR_AUTH_CLIENT_ROW(type)                                                                   \
    BR_PRESENT(type, auth, struct br_auth_config, br_auth_client_options,                          \
               "credentials to add to requests; absent: no credentials are added")

/* Returns the authenticator that a block names, or NULL for a NULL block. */
static inline const char *br_auth_name(const struct br_auth_config *auth)
{
    return auth ? auth->authenticator : NULL;
}

enum br_auth_verdict {
    BR_AUTH_ALLOWED,
    BR_AUTH_DENIED,
    /* undecided, because the check would have to compute a costly password hash */
    BR_AUTH_COSTLY,
};

struct br_authenticator {
    struct br_list link;
    const char *id; /* id of the extension */
    /* Servers: the header that contains the credentials, in lower case, and the authentication
     * scheme that precedes them in its value; "" if there is no scheme. */
    const char *header, *scheme;
    bool has_names; /* true: the credentials are a user name and a password */
    /* Servers: checks the value of the header. If `may_hash` is false, returns BR_AUTH_COSTLY
     * instead of hashing a password. If the verdict is BR_AUTH_ALLOWED, sets `*ret_context` to the
     * client's attributes (`br_request.auth`), or NULL; they live as long as the authenticator.
     * NULL: the authenticator does not check clients. */
    enum br_auth_verdict (*check)(struct br_authenticator *self, const char *value, bool may_hash,
                                  const char **ret_context);
    /* Clients: adds credentials to a request. Returns 0, BR_ENOMEM, or another error with a text
     * for the log in `err`. Returns BR_EAGAIN if the credentials are not available yet;
     * br_authenticator_ready is called when they are available. NULL: the authenticator has no
     * credentials for requests. */
    int (*sign)(struct br_authenticator *self, struct br_signing *signing, struct br_err *err);
    struct br_list waiters; /* list of struct br_auth_waiter */
};

/* A client that waits for the credentials of an authenticator. */
struct br_auth_waiter {
    struct br_list link;
    void (*on_ready)(struct br_auth_waiter *waiter);
};

/* Adds an authenticator to the host. The authenticator must stay valid until
 * br_authenticator_remove. */
void br_authenticator_add(struct br_host *host, struct br_authenticator *authenticator);

/* Removes an authenticator from its host. Requests that need the authenticator are then denied.
 * Accepts a zeroed authenticator. */
void br_authenticator_remove(struct br_authenticator *authenticator);

/* Returns the authenticator of an extension, or NULL. */
struct br_authenticator *br_authenticator_find(struct br_host *host, const char *id);

/* Adds a waiter to the authenticator. The waiter is removed before its `on_ready` is called. */
void br_authenticator_wait(struct br_authenticator *authenticator, struct br_auth_waiter *waiter);

/* Removes all waiters and calls their `on_ready`. The authenticator calls this function when its
 * credentials become available. */
void br_authenticator_ready(struct br_authenticator *authenticator);
