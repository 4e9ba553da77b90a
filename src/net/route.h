/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A route describes how a client reaches its server: directly, or through an HTTP proxy (RFC 9110
 * section 3.7). The proxy is that of the config (proxy_url), which has no exceptions, or that of
 * the environment, as Go's golang.org/x/net/http/httpproxy reads it:
 *
 * | variable | for |
 * |---|---|
 * | https_proxy, HTTPS_PROXY | https:// endpoints, and gRPC with or without TLS (as grpc-go) |
 * | http_proxy, HTTP_PROXY | http:// endpoints |
 * | no_proxy, NO_PROXY | the exceptions: see br_proxies_skip |
 *
 * The first of the two spellings that is not empty counts. Localhost, addresses of loopback and
 * unix sockets are always reached directly, except with proxy_url.
 */
#pragma once

#include "net/client.h"

enum br_route_kind {
    BR_ROUTE_DIRECT,
    BR_ROUTE_FORWARD, /* http://: the proxy gets the request with the absolute URL (RFC 9112
                         section 3.2.2) */
    BR_ROUTE_TUNNEL,  /* https:// and gRPC: CONNECT (RFC 9110 section 9.3.6) comes first */
};

struct br_route {
    enum br_route_kind kind;
    struct br_endpoint proxy; /* unless the route is direct */
    char authorization[400];  /* value of Proxy-Authorization; "": none */
    const char *setting;      /* what named the proxy, for messages: "proxy_url", "HTTPS_PROXY" */
};

/* The settings that a route is chosen by. Texts are borrowed; NULL and "" mean that one is not set.
 */
struct br_proxies {
    const char *proxy_url;
    const char *http, *https, *none;
    const char *http_name, *https_name; /* of the variables, for messages */
};

/* Fills in everything but proxy_url from the process's environment. */
void br_proxies_read_environment(struct br_proxies *ret);

/* Chooses the route to `endpoint`. Returns 0; or, for a proxy that would be used and cannot be,
 * BR_EINVAL (it is not a URL) or BR_EUNSUPPORTED (https:// and socks5:// proxies), with a sentence
 * that names the setting and shows no password. */
int br_route_choose(const struct br_proxies *proxies, const struct br_endpoint *endpoint, bool grpc,
                    struct br_route *ret, struct br_err *err);

#define BR_PROXY_HELP                                                                              \
    "http://[user:password@]host[:port] of a proxy; default: that of the environment"

/* Adds an error for a proxy_url, the value of that key in `node` (whose path is `path`), that
 * br_route_choose would refuse. */
void br_proxies_check(const char *proxy_url, const struct br_yaml *node, const char *path,
                      struct br_errs *errs);

/* Returns true when a host name or address, and its port, is reached directly by the rules of
 * NO_PROXY. Entries are separated by commas: "*" (everything), an address or a network in CIDR
 * form, "host" (it and the names below it), ".host" and "*.host" (the names below it); all but
 * networks may end in ":port". */
bool br_proxies_skip(const char *no_proxy, const char *host, unsigned port);
