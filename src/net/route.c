/* SPDX-License-Identifier: Apache-2.0 */
#include "net/route.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/str.h"

#define USER_MAX 256 /* maximum number of bytes of a decoded "user:password" */

/* --- NO_PROXY --------------------------------------------------------------------------------- */

/* An IPv4 or IPv6 address. IPv4-mapped IPv6 addresses are stored as IPv4. */
struct route_ip {
    uint8_t bytes[16];
    unsigned len; /* length of the address in bytes: 4 or 16 */
};

static bool route_read_ip(const char *text, struct route_ip *ret)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    ret->len = 4;
    if (inet_pton(AF_INET, text, ret->bytes) == 1)
        return true;
    if (inet_pton(AF_INET6, text, ret->bytes) != 1)
        return false;
    ret->len = 16;
    if (memcmp(ret->bytes, mapped, sizeof mapped) == 0) {
        memmove(ret->bytes, ret->bytes + sizeof mapped, 4);
        ret->len = 4;
    }
    return true;
}

static bool route_ip_is_loopback(const struct route_ip *ip)
{
    static const uint8_t v6[16] = {[15] = 1};
    return ip->len == 4 ? ip->bytes[0] == 127 : memcmp(ip->bytes, v6, sizeof v6) == 0;
}

static bool route_same_prefix(const struct route_ip *one, const struct route_ip *other,
                              unsigned n_bits)
{
    unsigned whole = n_bits / 8, rest = n_bits % 8;
    if (one->len != other->len || memcmp(one->bytes, other->bytes, whole) != 0)
        return false;
    return rest == 0 || (one->bytes[whole] ^ other->bytes[whole]) >> (8 - rest) == 0;
}

/* Parses "address/bits". Returns false if the text is not a network in CIDR notation. */
static bool route_read_network(const char *text, struct route_ip *ret, unsigned *ret_bits)
{
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    if (!slash || (size_t)(slash - text) >= sizeof address)
        return false;
    memcpy(address, text, (size_t)(slash - text));
    address[slash - text] = '\0';
    bool v6 = strchr(address, ':') != NULL;
    uint64_t bits;
    if (!br_decimal_parse(slash + 1, strlen(slash + 1), v6 ? 128 : 32, &bits) ||
        !route_read_ip(address, ret))
        return false;
    /* the prefix length of an IPv4-mapped IPv6 address counts all 128 bits */
    if (v6 && ret->len == 4)
        bits = bits > 96 ? bits - 96 : 0;
    *ret_bits = (unsigned)bits;
    return true;
}

/* Removes ":port" from a NO_PROXY entry in place. If the entry is an address with a port,
 * removes its brackets too. Returns the port, or "" if the entry has no port. */
static const char *route_cut_port(char **entry)
{
    char *text = *entry, *colon = strrchr(text, ':');
    if (!colon || (text[0] == '[' ? colon[-1] != ']' : strchr(text, ':') != colon))
        return "";
    *colon = '\0';
    if (text[0] == '[') {
        colon[-1] = '\0';
        *entry = text + 1;
    }
    return colon + 1;
}

static bool route_is_below(const char *host, const char *domain)
{
    size_t host_len = strlen(host), len = strlen(domain);
    return host_len >= len && strcasecmp(host + host_len - len, domain) == 0;
}

static bool route_name_matches(const char *name, const char *host)
{
    if (br_text_starts(name, "*."))
        name++;
    if (name[0] == '.')
        return route_is_below(host, name);
    size_t host_len = strlen(host), len = strlen(name);
    return strcasecmp(host, name) == 0 ||
           (host_len > len && host[host_len - len - 1] == '.' && route_is_below(host, name));
}

/* Returns true if a NO_PROXY entry matches a host and port. `ip` is NULL if the host is a name. */
static bool route_entry_matches(char *entry, const char *host, const struct route_ip *ip,
                                const char *port)
{
    struct route_ip own;
    unsigned bits;
    if (strcmp(entry, "*") == 0)
        return true;
    if (route_read_network(entry, &own, &bits))
        return ip && route_same_prefix(&own, ip, bits);
    const char *own_port = route_cut_port(&entry);
    if (!entry[0] || (own_port[0] && strcmp(own_port, port) != 0))
        return false;
    if (route_read_ip(entry, &own))
        return ip && route_same_prefix(&own, ip, 8 * own.len);
    return !ip && route_name_matches(entry, host);
}

/* Copies a NO_PROXY entry without surrounding white space. Returns false if the entry is empty
 * or too long. */
static bool route_copy_entry(const char *text, size_t len, char *ret, size_t size)
{
    static const char space[] = " \t\r\n";
    while (len && strchr(space, text[len - 1]))
        len--;
    for (; len && strchr(space, text[0]); len--)
        text++;
    if (len == 0 || len >= size)
        return false;
    memcpy(ret, text, len);
    ret[len] = '\0';
    return true;
}

bool br_proxies_skip(const char *no_proxy, const char *host, unsigned port)
{
    char entry[300], port_text[12];
    struct route_ip ip;
    bool is_ip = route_read_ip(host, &ip);
    if (strcasecmp(host, "localhost") == 0 || (is_ip && route_ip_is_loopback(&ip)))
        return true;
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    for (const char *at = no_proxy ? no_proxy : ""; *at;) {
        size_t len = strcspn(at, ",");
        if (route_copy_entry(at, len, entry, sizeof entry) &&
            route_entry_matches(entry, host, is_ip ? &ip : NULL, port_text))
            return true;
        at += len + (at[len] == ',');
    }
    return false;
}

/* --- A proxy's URL ---------------------------------------------------------------------------- */

/* Decodes "user" or "user:password" (RFC 3986 section 2.1). Returns the number of bytes, or -1
 * if the text is invalid or too long. */
static int route_decode_user(const char *text, size_t len, char ret[USER_MAX + 1])
{
    char plain[3 * USER_MAX + 1];
    long n = len < sizeof plain ? br_percent_decode(text, len, false, plain) : -1;
    /* Basic credentials always contain a colon (RFC 7617 section 2) */
    if (n >= 0 && !memchr(text, ':', len))
        plain[n++] = ':';
    if (n > USER_MAX)
        return -1;
    memcpy(ret, plain, n < 0 ? 0 : (size_t)n);
    return (int)n;
}

static int route_set_user(const char *text, size_t len, struct br_route *ret, struct br_err *err)
{
    char user[USER_MAX + 1];
    int n = route_decode_user(text, len, user);
    if (n < 0)
        return br_err_set(
            err, BR_EINVAL,
            "the user and password must have at most %d bytes, and %% must be followed by "
            "two hex digits",
            USER_MAX);
    struct br_str out = {
        .data = ret->authorization, .cap = sizeof ret->authorization, .fixed = true};
    br_str_puts(&out, "Basic ");
    br_str_base64(&out, (const uint8_t *)user, (size_t)n);
    return 0;
}

/* Parses a proxy URL. The scheme may be missing unless `needs_scheme` is true: environment
 * variables may omit the scheme, as in Go. */
static int route_read_proxy(const char *url, bool needs_scheme, struct br_route *ret,
                            struct br_err *err)
{
    const char *scheme_end = strstr(url, "://"),
               *rest = url + (scheme_end ? scheme_end + 3 - url : 0);
    size_t len = strcspn(rest, "/?#");
    const char *at = memrchr(rest, '@', len), *host = at ? at + 1 : rest;
    size_t host_len = len - (size_t)(host - rest);
    char text[sizeof ret->proxy.authority + 16];
    if (scheme_end && !br_text_starts_nocase(url, "http://")) {
        size_t scheme_len = (size_t)(scheme_end - url);
        bool known = br_text_starts_nocase(url, "https://") || br_text_starts_nocase(url, "socks5");
        return br_err_set(err, known ? BR_EUNSUPPORTED : BR_EINVAL,
                          "%.*s:// proxies are not supported; must be "
                          "http://[user:password@]host[:port]",
                          scheme_len < 16 ? (int)scheme_len : 16, url);
    }
    (void)snprintf(text, sizeof text, "http://%.*s",
                   host_len < sizeof ret->proxy.authority ? (int)host_len : 0, host);
    bool bare = rest[len] == '\0' || (rest[len] == '/' && rest[len + 1] == '\0');
    if ((!scheme_end && needs_scheme) || !bare || br_endpoint_read(text, false, &ret->proxy, NULL))
        return br_err_set(err, BR_EINVAL, "must be http://[user:password@]host[:port]");
    return at ? route_set_user(rest, (size_t)(at - rest), ret, err) : 0;
}

void br_proxies_check(const char *proxy_url, const struct br_yaml *node, const char *path,
                      struct br_errs *errs)
{
    struct br_route route;
    struct br_err err = {0};
    char at[256];
    int rc = proxy_url && proxy_url[0] ? route_read_proxy(proxy_url, true, &route, &err) : 0;
    (void)snprintf(at, sizeof at, "%s::proxy_url", path);
    if (rc)
        (void)(rc == BR_EUNSUPPORTED ? br_errs_lack : br_errs_add)(
            errs, br_yaml_get(node, "proxy_url"), at, "%s", err.text);
}

/* --- Choosing the route -------------------------------------------------------------------------
 */

static const char *route_variable(const char *lower, const char *upper, const char **ret_name)
{
    const char *value = getenv(lower);
    *ret_name = lower;
    if (value && value[0])
        return value;
    *ret_name = upper;
    return getenv(upper);
}

void br_proxies_read_environment(struct br_proxies *ret)
{
    const char *name;
    ret->http = route_variable("http_proxy", "HTTP_PROXY", &ret->http_name);
    ret->https = route_variable("https_proxy", "HTTPS_PROXY", &ret->https_name);
    ret->none = route_variable("no_proxy", "NO_PROXY", &name);
}

int br_route_choose(const struct br_proxies *proxies, const struct br_endpoint *endpoint, bool grpc,
                    struct br_route *ret, struct br_err *err)
{
    bool tunnel = grpc || endpoint->tls;
    bool own = proxies->proxy_url && proxies->proxy_url[0];
    const char *url = tunnel ? proxies->https : proxies->http;
    const char *name = tunnel ? proxies->https_name : proxies->http_name;
    if (own) {
        url = proxies->proxy_url;
        name = "proxy_url";
    }
    *ret = (struct br_route){.kind = BR_ROUTE_DIRECT};
    if (!url || !url[0] || endpoint->unix_socket)
        return 0;
    if (!own && br_proxies_skip(proxies->none, endpoint->host, endpoint->port))
        return 0;
    ret->kind = tunnel ? BR_ROUTE_TUNNEL : BR_ROUTE_FORWARD;
    ret->setting = name;
    int rc = route_read_proxy(url, own, ret, err);
    if (rc)
        br_err_prefix(err, "%s: ", name);
    return rc;
}
