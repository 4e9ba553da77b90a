/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/client.h"

static bool starts(const char **text, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(*text, prefix, n) != 0)
        return false;
    *text += n;
    return true;
}

/* A path as it goes into a request line: from a slash on, maybe with a query. */
static bool path_ok(const char *path)
{
    if (*path && *path != '/')
        return false;
    for (; *path; path++)
        if ((unsigned char)*path <= ' ' || *path == 0x7f || *path == '#')
            return false;
    return true;
}

/* What stands before an @ may hold a password, which no message should show. */
static bool names_user(const char *text)
{
    const char *scheme = strstr(text, "://"), *authority = scheme ? scheme + 3 : text;
    return memchr(authority, '@', strcspn(authority, "/?#"));
}

/* Splits "host:port", "[v6]:port" or "host" with a default port. */
static bool host_port(const char *text, size_t len, unsigned dflt, struct br_endpoint *ret)
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
    if (n == 0 || n >= sizeof ret->host)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)host[i] <= ' ' || host[i] == 0x7f)
            return false;
    ret->port = dflt;
    if (port) {
        char *stop = NULL;
        unsigned long v = port < end && *port >= '0' && *port <= '9' ? strtoul(port, &stop, 10) : 0;
        if (v == 0 || v > 65535 || stop != end)
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
    struct br_endpoint e = {0};
    unsigned port = 0;
    if (starts(&p, "unix:")) {
        if (starts(&p, "//") && *p && *p != '/')
            p--;
        e.unix_socket = true;
        if (!*p || strlen(p) >= 108)
            return br_err_set(err, BR_EINVAL, "\"%s\" names no unix socket (unix:///path)", text);
        (void)snprintf(e.host, sizeof e.host, "%s", p);
        (void)snprintf(e.authority, sizeof e.authority, "localhost");
        *ret = e;
        return 0;
    }
    if (names_user(text))
        return br_err_set(err, BR_EINVAL,
                          "user and password are taken as a header only: authorization: Basic ...");
    if (starts(&p, "http://")) {
        e.has_scheme = true;
        port = 80;
    } else if (starts(&p, "https://")) {
        e.has_scheme = e.tls = true;
        port = 443;
    } else if (grpc && (starts(&p, "dns:///") || starts(&p, "passthrough:///"))) {
        port = 443;
    } else if (!grpc) {
        return br_err_set(err, BR_EINVAL,
                          "\"%s\" must be a URL that starts with http:// or https://", text);
    }
    size_t len = strcspn(p, "/?#");
    if (!host_port(p, len, port, &e) || !path_ok(p + len))
        return br_err_set(err, BR_EINVAL,
                          grpc ? "\"%s\" must be host:port or http(s)://host:port, with a port "
                                 "from 1 to 65535"
                               : "\"%s\" must be http(s)://host[:port][/path]",
                          text);
    size_t path_len = strlen(p + len);
    while (path_len && p[len + path_len - 1] == '/')
        path_len--;
    if (path_len >= sizeof e.path)
        return br_err_set(err, BR_EINVAL, "the path of \"%s\" is too long", text);
    memcpy(e.path, p + len, path_len);
    *ret = e;
    return 0;
}
