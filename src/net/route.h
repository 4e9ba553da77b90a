/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A route describes how a client reaches its server: directly, or through an HTTP proxy (RFC 9110
 * section 3.7). The proxy is either set in the config (proxy_url, which ignores no_proxy) or taken
 * from the environment, as in Go's golang.org/x/net/http/httpproxy:
 *
 * | variable | used for |
 * |---|---|
 * | https_proxy, HTTPS_PROXY | https:// endpoints, and gRPC with or without TLS (as grpc-go) |
 * | http_proxy, HTTP_PROXY | http:// endpoints |
 * | no_proxy, NO_PROXY | exceptions: see br_proxies_skip |
 *
 * If a variable is set in both lower and upper case, the lower-case variable is used. Unix sockets
 * are always reached directly. Localhost and loopback addresses are reached directly unless
 * proxy_url is set.
 */
#pragma once

#include "net/client.h"

enum br_route_kind {
    BR_ROUTE_DIRECT,
    /* for http:// endpoints: requests to the proxy contain the absolute URL (RFC 9112 section
     * 3.2.2) */
    BR_ROUTE_FORWARD,
    /* https:// and gRPC: CONNECT opens a tunnel through the proxy (RFC 9110 section 9.3.6) */
    BR_ROUTE_TUNNEL,
};

struct br_route {
    enum br_route_kind kind;
    struct br_endpoint proxy; /* the proxy's address; unused if the route is direct */
    /* value of Proxy-Authorization; "" if the proxy's URL has no credentials */
    char authorization[400];
    /* name of the setting that selected the proxy, for messages: "proxy_url", "HTTPS_PROXY", ... */
    const char *setting;
};

/* The proxy settings. Strings are borrowed; NULL and "" mean that a setting is absent. */
struct br_proxies {
    const char *proxy_url;
    const char *http, *https, *none;
    /* names of the environment variables that were read, for messages */
    const char *http_name, *https_name;
};

/* Reads the proxy variables of the environment into all fields except `proxy_url`. */
void br_proxies_read_environment(struct br_proxies *ret);

/* Chooses the route to `endpoint`. Returns 0, BR_EINVAL if the proxy's URL is invalid, or
 * BR_EUNSUPPORTED for https:// and socks5:// proxies. The message in `err` names the setting and
 * never contains the password. */
int br_route_choose(const struct br_proxies *proxies, const struct br_endpoint *endpoint, bool grpc,
                    struct br_route *ret, struct br_err *err);

#define BR_PROXY_HELP                                                                              \
    "URL of a proxy: http://[user:password@]host[:port]; default: the proxy in HTTPS_PROXY or "    \
    "HTTP_PROXY"

/* Reports an error if br_route_choose would reject `proxy_url`, which is the value of the key
 * proxy_url in `node`. `path` is the path of `node`. */
void br_proxies_check(const char *proxy_url, const struct br_yaml *node, const char *path,
                      struct br_errs *errs);

/* Returns true if a host and port must be reached directly according to NO_PROXY. Entries of
 * `no_proxy` are separated by commas. Each entry matches one of these:
 * - "*": everything
 * - an address, or a network in CIDR notation: this address, or all addresses of this network
 * - "host": this name and all names below it
 * - ".host" or "*.host": only the names below it
 *
 * All entries of `no_proxy` except networks may end in ":port". */
bool br_proxies_skip(const char *no_proxy, const char *host, unsigned port);
