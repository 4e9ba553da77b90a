/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "net/client.h"

static bool endpoint_starts(const char **text, const char *prefix)
{
    if (!br_text_starts(*text, prefix))
        return false;
    *text += strlen(prefix);
    return true;
}

/* Returns true for a path, with an optional query, that may appear in a request line. */
static bool endpoint_path_ok(const char *path)
{
    if (*path && *path != '/')
        return false;
    for (; *path; path++)
        if ((unsigned char)*path <= ' ' || *path == 0x7f || *path == '#')
            return false;
    return true;
}

/* Returns true if a URL contains a user name. The text before "@" may contain a password, which
 * must not appear in messages. */
static bool endpoint_names_user(const char *text)
{
    const char *scheme = strstr(text, "://"), *authority = scheme ? scheme + 3 : text;
    return memchr(authority, '@', strcspn(authority, "/?#"));
}

/* Returns true if a host is valid: a name, or in brackets an IPv6 address with an optional zone. */
static bool endpoint_host_ok(const char *host, size_t len, bool brackets)
{
    size_t address = strspn(host, "0123456789abcdefABCDEF:.");
    if (brackets)
        return memchr(host, ':', len) && (address >= len || host[address] == '%');
    for (size_t i = 0; i < len; i++)
        if (host[i] == '[' || host[i] == ']')
            return false;
    return true;
}

/* Splits "host:port", "[IPv6 address]:port" or "host". If the text has no port, the port is
 * `dflt`. */
static bool endpoint_host_port(const char *text, size_t len, unsigned dflt, struct br_endpoint *ret)
{
    const char *end = text + len, *host = text, *host_end = end, *port = NULL;
    if (len && text[0] == '[') {
        host = text + 1;
        host_end = memchr(text, ']', len);
        if (!host_end || (host_end + 1 < end && host_end[1] != ':'))
            return false;
        port = host_end + 1 < end ? host_end + 2 : NULL;
    } else {
        const char *colon = memchr(text, ':', len);
        if (colon) {
            host_end = colon;
            port = colon + 1;
        }
    }
    size_t n = (size_t)(host_end - host);
    if (n == 0 || n >= sizeof ret->host || !endpoint_host_ok(host, n, text[0] == '['))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f)
            return false;
    ret->port = dflt;
    if (port) {
        uint64_t v;
        if (!br_decimal_parse(port, (size_t)(end - port), 65535, &v))
            return false;
        ret->port = (unsigned)v;
    }
    if (ret->port == 0)
        return false;
    memcpy(ret->host, host, n);
    ret->host[n] = '\0';
    bool v6 = strchr(ret->host, ':') != NULL;
    (void)snprintf(ret->authority, sizeof ret->authority, v6 ? "[%s]:%u" : "%s:%u", ret->host,
                   ret->port);
    return true;
}

int br_endpoint_read(const char *text, bool grpc, struct br_endpoint *ret, struct br_err *err)
{
    const char *p = text;
    struct br_endpoint endpoint = {0};
    unsigned port = 0;
    if (endpoint_starts(&p, "unix:")) {
        if (endpoint_starts(&p, "//") && *p && *p != '/')
            p--;
        endpoint.unix_socket = true;
        if (!*p || strlen(p) >= 108)
            return br_err_set(err, BR_EINVAL,
                              "\"%s\" must contain the path of a unix socket: unix:///path", text);
        (void)snprintf(endpoint.host, sizeof endpoint.host, "%s", p);
        (void)snprintf(endpoint.authority, sizeof endpoint.authority, "localhost");
        *ret = endpoint;
        return 0;
    }
    if (endpoint_names_user(text))
        return br_err_set(
            err, BR_EINVAL,
            "must not contain a user name or password; set the header authorization: Basic ...");
    if (endpoint_starts(&p, "http://")) {
        endpoint.has_scheme = true;
        port = 80;
    } else if (endpoint_starts(&p, "https://")) {
        endpoint.has_scheme = endpoint.tls = true;
        port = 443;
    } else if (grpc && (endpoint_starts(&p, "dns:///") || endpoint_starts(&p, "passthrough:///"))) {
        port = 443;
    } else if (!grpc) {
        return br_err_set(err, BR_EINVAL,
                          "\"%s\" must be a URL that starts with http:// or https://", text);
    }
    size_t len = strcspn(p, "/?#");
    if (!endpoint_host_port(p, len, port, &endpoint) || !endpoint_path_ok(p + len))
        return br_err_set(err, BR_EINVAL,
                          grpc ? "\"%s\" must be host:port or http(s)://host:port, with a port "
                                 "from 1 to 65535"
                               : "\"%s\" must be http(s)://host[:port][/path]",
                          text);
    size_t path_len = strlen(p + len);
    while (path_len && p[len + path_len - 1] == '/')
        path_len--;
    if (grpc && path_len)
        return br_err_set(err, BR_EINVAL,
                          "\"%s\" has a path, which gRPC does not use; remove it: %.*s", text,
                          (int)(p + len - text), text);
    if (path_len >= sizeof endpoint.path)
        return br_err_set(err, BR_EINVAL, "the path of \"%s\" is too long", text);
    memcpy(endpoint.path, p + len, path_len);
    *ret = endpoint;
    return 0;
}

void br_endpoint_check_base(const char *url, const char *const *added, const char *instead,
                            const struct br_yaml *node, const char *path, struct br_errs *errs)
{
    struct br_endpoint endpoint;
    if (!url || br_endpoint_read(url, false, &endpoint, NULL))
        return;
    if (strchr(endpoint.path, '?'))
        br_errs_warn(errs, node, path,
                     "has a query string, to which the path of the API would be appended; %s",
                     instead);
    for (; *added; added++) {
        size_t len = strlen(endpoint.path), n = strlen(*added);
        if (len >= n && strcmp(endpoint.path + len - n, *added) == 0)
            br_errs_warn(errs, node, path, "ends in %s, which is appended again; remove it, or %s",
                         *added, instead);
    }
}

void br_endpoint_check_otlp_port(const struct br_endpoint *endpoint, bool grpc,
                                 const struct br_yaml *node, const char *path, struct br_errs *errs)
{
    if (!endpoint->unix_socket && endpoint->port == (grpc ? 4318 : 4317))
        br_errs_warn(errs, node, path,
                     grpc ? "port 4318 is usually OTLP over HTTP; use the exporter "
                            "otlphttp, or the gRPC port, 4317"
                          : "port 4317 is usually OTLP over gRPC; use the exporter otlp, "
                            "or the HTTP port, 4318");
}
