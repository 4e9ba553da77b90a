/* SPDX-License-Identifier: Apache-2.0 */
#include "net/redirect.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/bytes.h"

static bool url_is_clean(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

/* Returns the length of a scheme with its colon (RFC 3986 section 3.1), or 0 if the text has no
 * scheme. */
static size_t url_scheme_len(const char *text)
{
    size_t len = 0;
    if (!isalpha((unsigned char)text[0]))
        return 0;
    while (isalnum((unsigned char)text[len]) || (text[len] && strchr("+-.", text[len])))
        len++;
    return text[len] == ':' ? len + 1 : 0;
}

/* Parses an authority of `len` bytes. Leaves the path of `ret` empty. An authority with a user
 * name is an error. */
static int url_read_server(bool tls, const char *authority, size_t len, struct br_endpoint *ret)
{
    char text[sizeof ret->authority + 16];
    if (len >= sizeof ret->authority)
        return BR_EINVAL;
    (void)snprintf(text, sizeof text, "%s://%.*s", tls ? "https" : "http", (int)len, authority);
    return br_endpoint_read(text, false, ret, NULL);
}

/* Returns the length of a path without its last segment and the slash before it. */
static size_t url_drop_segment(const char *path, size_t len)
{
    while (len > 0 && path[len - 1] != '/')
        len--;
    return len > 0 ? len - 1 : 0;
}

/* Removes "." and ".." from a path that begins with a slash (RFC 3986 section 5.2.4), in place. */
static void url_remove_dots(char *path)
{
    const char *in = path;
    size_t out = 0;
    while (*in) {
        size_t len = 1 + strcspn(in + 1, "/");
        bool last = in[len] == '\0';
        bool here = len == 2 && in[1] == '.', up = len == 3 && in[1] == '.' && in[2] == '.';
        if (up)
            out = url_drop_segment(path, out);
        if (!here && !up) {
            memmove(path + out, in, len);
            out += len;
        } else if (last) {
            path[out++] = '/';
        }
        in += len;
    }
    path[out] = '\0';
}

/* Joins a relative path to the directory of the base path (RFC 3986 section 5.2.3). */
static int url_set_path(const char *base, const char *reference, char ret[BR_URL_PATH_MAX])
{
    size_t base_len = strcspn(base, "?"), path_len = strcspn(reference, "?#");
    const char *query = reference + path_len;
    size_t dir_len = 0, query_len = *query == '?' ? strcspn(query, "#") : 0;
    /* a reference without a path keeps the path of `base`; if the reference also has no query, it
     * keeps the query of `base` */
    if (path_len == 0) {
        dir_len = base_len;
        query = query_len ? query : base + base_len;
        query_len = query_len ? query_len : strlen(query);
    } else if (reference[0] != '/') {
        dir_len = base_len;
        while (dir_len > 0 && base[dir_len - 1] != '/')
            dir_len--;
    }
    bool slash = dir_len == 0 && reference[0] != '/';
    if (slash + dir_len + path_len + query_len >= BR_URL_PATH_MAX)
        return BR_EINVAL;
    (void)snprintf(ret, BR_URL_PATH_MAX, "%s%.*s%.*s", slash ? "/" : "", (int)dir_len, base,
                   (int)path_len, reference);
    url_remove_dots(ret);
    size_t len = strlen(ret);
    memcpy(ret + len, query, query_len);
    ret[len + query_len] = '\0';
    return 0;
}

int br_url_resolve(const struct br_endpoint *server, const char *path, const char *reference,
                   struct br_url *ret)
{
    size_t scheme_len = url_scheme_len(reference);
    bool tls = server->tls;
    if (!url_is_clean(reference))
        return BR_EINVAL;
    if (scheme_len) {
        tls = br_bytes_are_nocase(reference, scheme_len, "https:");
        if (!tls && !br_bytes_are_nocase(reference, scheme_len, "http:"))
            return BR_EINVAL;
        reference += scheme_len;
        if (!br_text_starts(reference, "//"))
            return BR_EINVAL;
    }
    if (!br_text_starts(reference, "//")) {
        ret->server = *server;
        ret->server.path[0] = '\0';
        return url_set_path(path, reference, ret->path);
    }
    size_t len = strcspn(reference + 2, "/?#");
    int rc = url_read_server(tls, reference + 2, len, &ret->server);
    return rc ? rc : url_set_path("/", reference + 2 + len, ret->path);
}

bool br_url_same_origin(const struct br_endpoint *one, const struct br_endpoint *other)
{
    return one->unix_socket == other->unix_socket && one->tls == other->tls &&
           one->port == other->port && strcasecmp(one->host, other->host) == 0;
}
