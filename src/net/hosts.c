/* SPDX-License-Identifier: Apache-2.0 */
#include "net/hosts.h"

#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

#define HOST_SIZE 256

enum host_kind { NAME, ADDRESS, LOOPBACK };

static enum host_kind host_kind(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0)
        return LOOPBACK;
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127 ? LOOPBACK : ADDRESS;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return NAME;
    bool mapped = IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127;
    return mapped || IN6_IS_ADDR_LOOPBACK(&v6) ? LOOPBACK : ADDRESS;
}

/* Copies the name or address in a Host header, without port, brackets and trailing dot. */
static bool host_read(const char *text, char ret[HOST_SIZE])
{
    size_t len = strlen(text);
    const char *colon = memchr(text, ':', len);
    if (text[0] == '[') {
        text++;
        len = strcspn(text, "]");
        if (text[len] != ']' || (text[len + 1] && text[len + 1] != ':'))
            return false;
    } else if (colon && !strchr(colon + 1, ':')) {
        len = (size_t)(colon - text);
    }
    if (len > 1 && text[len - 1] == '.')
        len--;
    if (len == 0 || len >= HOST_SIZE)
        return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    return true;
}

bool br_endpoint_is_loopback(const char *endpoint)
{
    char host[HOST_SIZE];
    unsigned port;
    return !br_endpoint_parse(endpoint, host, &port) || host_kind(host) == LOOPBACK;
}

static bool hosts_is_own(const struct br_hosts *hosts, const char *host)
{
    char own[HOST_SIZE];
    unsigned port;
    return br_endpoint_parse(hosts->endpoint, own, &port) && strcasecmp(host, own) == 0;
}

static bool hosts_is_listed(const struct br_hosts *hosts, const char *host)
{
    char listed[HOST_SIZE];
    for (size_t i = 0; hosts->allowed && i < hosts->allowed->count; i++)
        if (host_read(hosts->allowed->items[i], listed) && strcasecmp(host, listed) == 0)
            return true;
    return false;
}

bool br_hosts_allow(const struct br_hosts *hosts, const struct br_request *request)
{
    const char *shown =
        request->scheme_host[0] ? request->scheme_host : br_request_header(request, "host");
    char host[HOST_SIZE];
    if (!shown || !shown[0] || (hosts->transport && br_text_starts(hosts->transport, "unix")))
        return true;
    bool local = br_endpoint_is_loopback(hosts->endpoint);
    if (!local && (!hosts->allowed || hosts->allowed->count == 0))
        return true;
    if (!host_read(shown, host))
        return false;
    enum host_kind kind = host_kind(host);
    return kind == LOOPBACK || (kind == ADDRESS && !local) || hosts_is_own(hosts, host) ||
           hosts_is_listed(hosts, host);
}

/* Returns true for an address, with or without brackets, or a name by RFC 1123. The name may
 * also contain underscores, because container names do. */
static bool hosts_is_valid(const char *text)
{
    static const char known[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    char host[HOST_SIZE];
    if (!host_read(text, host))
        return false;
    if (text[0] == '[')
        return text[strlen(text) - 1] == ']' && host_kind(host) != NAME;
    return host_kind(text) != NAME || text[strspn(text, known)] == '\0';
}

void br_hosts_check(const struct br_strings *allowed, const struct br_yaml *node, const char *path,
                    struct br_errs *errs)
{
    for (size_t i = 0; i < allowed->count; i++)
        if (!hosts_is_valid(allowed->items[i]))
            br_errs_add_key(
                errs, node, path, "allowed_hosts",
                "must contain names or addresses without a port, such as braid.example, "
                "got \"%.80s\"",
                allowed->items[i]);
}
