/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the parsers of redirect targets, which a server chooses, and of proxy URLs. An accepted
 * redirect target must be a valid target of a request, and must resolve to itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/redirect.h"
#include "net/route.h"

/* Longest list of proxies that is tested, in bytes. In production, the list is an environment
 * variable. ASan's strcspn always reads to the end of the text, so a long list with many parts
 * takes too long. */
#define PROXY_MAX 32768

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

/* Returns true if this can be the path of the previous request: one from the configuration or from
 * an earlier redirect. */
static bool is_path(const char *text)
{
    size_t len = strlen(text);
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p >= 0x7f || *p == '#')
            return false;
    return text[0] == '/' && len < 500;
}

static void check_url(const struct br_endpoint *server, const char *path, const char *reference)
{
    char text[sizeof(struct br_url) + 16];
    struct br_url url, again;
    if (br_url_resolve(server, path, reference, &url))
        return;
    require(url.path[0] == '/' && strlen(url.path) < BR_URL_PATH_MAX);
    require(url.server.port > 0 && url.server.host[0] && !url.server.path[0]);
    for (const char *p = url.path; *p; p++)
        require(*p > ' ' && *p < 0x7f && *p != '#');
    (void)snprintf(text, sizeof text, "%s://%s%s", url.server.tls ? "https" : "http",
                   url.server.authority, url.path);
    require(br_url_resolve(server, "/other", text, &again) == 0);
    require(br_url_same_origin(&url.server, &again.server));
    require(strcmp(url.path, again.path) == 0);
}

static void check_proxy(const char *text, const struct br_endpoint *endpoint)
{
    const struct br_proxies proxies = {.proxy_url = text};
    const struct br_proxies environment = {
        .http = text, .https = text, .none = text, .http_name = "h", .https_name = "h"};
    struct br_route route;
    if (br_route_choose(&proxies, endpoint, false, &route, NULL) == 0 && route.kind)
        require(route.proxy.port > 0 && !route.proxy.tls);
    (void)br_route_choose(&environment, endpoint, true, &route, NULL);
}

/* The first line of the input is the reference, and the second line is the path of the request. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct br_endpoint server = {
        .host = "host.test", .authority = "host.test:4318", .port = 4318};
    char *text = malloc(size + 1), *line;
    require(text != NULL);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    line = strchr(text, '\n');
    if (line)
        *line++ = '\0';
    check_url(&server, "/v1/traces?x=1", text);
    if (line && is_path(line))
        check_url(&server, line, text);
    if (size <= PROXY_MAX)
        check_proxy(text, &server);
    free(text);
    return 0;
}
