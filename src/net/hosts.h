/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which Host headers a server accepts. Checking Host headers protects against DNS
 * rebinding. In a DNS rebinding attack, a web page makes its domain resolve to an address that only
 * the browser can reach. The browser then lets the page read from that address as from the page's
 * own origin. The browser sends the page's domain in Host (:authority), and the page cannot change
 * that.
 *
 * A server that listens on loopback serves only this machine. A server on loopback accepts the
 * names and addresses of loopback, the name in its endpoint, and the names in `allowed`.
 *
 * A server that listens on another address is reached by names that it cannot know, such as a
 * Kubernetes Service or a DNS alias. A server that does not listen on loopback accepts every name
 * if `allowed` is empty. If `allowed` has names, the server accepts these names, the name in its
 * endpoint, localhost, and every IP address. An IP address in Host is safe, because DNS rebinding
 * needs a name.
 *
 * Requests to unix sockets, which browsers cannot reach, are accepted. Requests without Host
 * (HTTP/1.0) are also accepted, because browsers always send Host.
 */
#pragma once

#include <stdbool.h>

#include "config/option.h"
#include "config/yaml.h"
#include "wire/request.h"

#define BR_HOSTS_HELP                                                                              \
    "host names to accept in the Host header, in addition to that of the endpoint; default: no "   \
    "other names if the endpoint is a loopback address, otherwise all names"
#define BR_HOSTS_REFUSAL "this Host header is not accepted; add the name to allowed_hosts"

struct br_hosts {
    /* endpoint and transport of the server, as in struct br_server_config */
    const char *endpoint, *transport;
    const struct br_strings *allowed; /* names in the setting allowed_hosts; may be NULL */
};

/* Returns true if an endpoint is localhost or a loopback address, or cannot be parsed. */
bool br_endpoint_is_loopback(const char *endpoint);

/* Returns false if a request must be rejected with status 403 and the text BR_HOSTS_REFUSAL. The
 * status is not 421, because 421 would make the client try again on another connection, with the
 * same result (RFC 9110 section 15.5.20). */
bool br_hosts_allow(const struct br_hosts *hosts, const struct br_request *request);

/* Reports an error for each entry of `allowed` that is not a name or an address. Entries must not
 * contain a scheme, a port, a path or a wildcard. `node` contains the key allowed_hosts, and `path`
 * is the path of `node`. */
void br_hosts_check(const struct br_strings *allowed, const struct br_yaml *node, const char *path,
                    struct br_errs *errs);
