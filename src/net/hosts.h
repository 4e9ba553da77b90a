/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which Host a server answers to. This protects against DNS rebinding, where a web page
 * makes its own name resolve to an address that only the browser reaches, and then reads from there
 * as from its own origin. The browser says the page's name in Host (:authority), and no page can
 * change that.
 *
 * A server on loopback is for this machine, so it answers to loopback's names and addresses, to the
 * name in its endpoint, and to `allowed`. A server on another address is for others, who know it by
 * names that it cannot know (a Service of Kubernetes, an alias in DNS): it answers to every name
 * until `allowed` names some; then to those, to the name in its endpoint, to localhost, and to
 * addresses, which no page can make its own. A unix socket is out of a browser's reach, and a
 * request without a Host (HTTP/1.0) is from no browser.
 */
#pragma once

#include <stdbool.h>

#include "config/option.h"
#include "config/yaml.h"
#include "wire/request.h"

#define BR_HOSTS_HELP                                                                              \
    "names in Host to answer to, beside the own; default: on loopback none, elsewhere any"
#define BR_HOSTS_REFUSAL "this Host is not answered to here; allowed_hosts can name it"

struct br_hosts {
    const char *endpoint, *transport; /* as in struct br_server_config */
    const struct br_strings *allowed; /* may be NULL */
};

/* Returns true when an endpoint is an address of loopback, or localhost; and when it is no endpoint
 * at all. */
bool br_endpoint_is_loopback(const char *endpoint);

/* Returns false for a request that is to be refused: 403, with BR_HOSTS_REFUSAL. (A 421 would ask
 * the client to try again on another connection, RFC 9110 section 15.5.20, where it would be told
 * the same.) */
bool br_hosts_allow(const struct br_hosts *hosts, const struct br_request *request);

/* Adds an error for each of `allowed` that is no name or address: one with a scheme, a port, a path
 * or a wildcard. `node` has the key allowed_hosts, `path` is that of `node`. */
void br_hosts_check(const struct br_strings *allowed, const struct br_yaml *node, const char *path,
                    struct br_errs *errs);
