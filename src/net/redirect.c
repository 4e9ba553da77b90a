/* SPDX-License-Identifier: Apache-2.0 */
#include "net/redirect.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "net/net_internal.h"

struct target {
    struct br_list link;
    struct br_endpoint server;
    struct br_client *client;
    struct br_tls_config tls;
    bool trusted; /* requests to this target may contain credentials */
    unsigned n_exchanges;
    char url[sizeof((struct br_endpoint *)0)->authority + 16];
};

/* The state of a redirected exchange, from the first redirect to its end. */
struct br_hops {
    struct br_redirects *redirects;
    struct target *target; /* the target of the last redirect; NULL: the original client */
    unsigned count;
    bool stripped;
    /* path and authority of the exchange before the first redirect, restored by br_redirect_end */
    const char *path, *authority;
    const struct br_header *headers;
    size_t n_headers;
    char url_path[BR_URL_PATH_MAX];
    struct br_header kept[]; /* the original headers except those that contain credentials */
};

void br_redirects_init(struct br_redirects *redirects, struct br_host *host,
                       const struct br_client_config *config)
{
    *redirects = (struct br_redirects){.host = host, .config = config};
    br_list_init(&redirects->targets);
}

static void redirect_target_free(struct br_redirects *redirects, struct target *target)
{
    br_client_free(target->client);
    br_list_remove(&target->link);
    redirects->n_targets--;
    br_free(target);
}

void br_redirects_release(struct br_redirects *redirects)
{
    while (!br_list_empty(&redirects->targets))
        redirect_target_free(redirects,
                             br_container_of(redirects->targets.next, struct target, link));
}

/* --- Targets ---------------------------------------------------------------------------------- */

static struct target *redirect_find(struct br_redirects *redirects,
                                    const struct br_endpoint *server, bool trusted)
{
    for (struct br_list *list = redirects->targets.next; list != &redirects->targets;
         list = list->next) {
        struct target *target = br_container_of(list, struct target, link);
        if (target->trusted == trusted && br_url_same_origin(&target->server, server))
            return target;
    }
    return NULL;
}

/* Frees unused targets if the number of targets has reached its limit. Returns false if all
 * targets are in use. */
static bool redirect_evict_target(struct br_redirects *redirects)
{
    struct br_list *list = redirects->targets.next;
    while (redirects->n_targets >= BR_REDIRECT_TARGETS_MAX && list != &redirects->targets) {
        struct target *target = br_container_of(list, struct target, link);
        list = list->next;
        if (!target->n_exchanges)
            redirect_target_free(redirects, target);
    }
    return redirects->n_targets < BR_REDIRECT_TARGETS_MAX;
}

/* Makes a client for `server`. Returns 0, BR_EFULL, BR_ENOMEM, or an error of br_net_connect. */
static int redirect_connect(struct br_redirects *redirects, const struct br_endpoint *server,
                            bool trusted, struct target **ret)
{
    struct target *target = redirect_evict_target(redirects) ? br_calloc(1, sizeof *target) : NULL;
    if (!target)
        return redirects->n_targets < BR_REDIRECT_TARGETS_MAX ? BR_ENOMEM : BR_EFULL;
    struct br_client_config config = *redirects->config;
    if (config.tls)
        target->tls = *config.tls;
    if (!trusted) {
        target->tls.cert_file = target->tls.key_file = target->tls.server_name_override = NULL;
        target->tls.cert_pem = target->tls.key_pem = (struct br_secret){NULL};
    }
    target->server = *server;
    target->trusted = trusted;
    (void)snprintf(target->url, sizeof target->url, "%s://%s", server->tls ? "https" : "http",
                   server->authority);
    config.endpoint = target->url;
    config.tls = config.tls ? &target->tls : NULL;
    config.authority = NULL;
    /* if the target may receive credentials, the exchange already contains them */
    config.authenticator = NULL;
    config.on_reachable = NULL;
    int rc = br_net_connect(redirects->host, &config, &target->client, NULL);
    if (rc) {
        br_free(target);
        return rc;
    }
    br_list_append(&redirects->targets, &target->link);
    redirects->n_targets++;
    *ret = target;
    return 0;
}

static int redirect_get_target(struct br_redirects *redirects, const struct br_endpoint *server,
                               bool trusted, struct target **ret)
{
    *ret = redirect_find(redirects, server, trusted);
    if (!*ret)
        return redirect_connect(redirects, server, trusted, ret);
    br_list_remove(&(*ret)->link);
    br_list_append(&redirects->targets, &(*ret)->link);
    return 0;
}

/* --- Credentials ------------------------------------------------------------------------------ */

/* Returns true if a header contains no credentials. X-Scope-OrgID, the tenant, is not a
 * credential: without that header, the data would be stored for another tenant. */
static bool redirect_is_plain(const char *name)
{
    static const char *const plain[] = {"accept",       "connect-protocol-version",
                                        "content-type", "otlp-profiles-development-version",
                                        "user-agent",   "x-scope-orgid"};
    for (size_t i = 0; i < BR_COUNT(plain); i++)
        if (strcasecmp(name, plain[i]) == 0)
            return true;
    return false;
}

static bool redirect_has_credentials(const struct br_exchange *exchange,
                                     const struct br_client_config *config)
{
    for (size_t i = 0; i < exchange->n_headers; i++)
        if (!redirect_is_plain(exchange->headers[i].name))
            return true;
    return config->tls && (config->tls->cert_file || config->tls->cert_pem.text);
}

static bool redirect_keeps_credentials(const struct br_endpoint *from, const struct br_endpoint *to)
{
    bool upgrade = !from->unix_socket && !from->tls && to->tls;
    return br_url_same_origin(from, to) || (upgrade && strcasecmp(from->host, to->host) == 0);
}

static void redirect_strip(struct br_hops *hops, struct br_exchange *exchange)
{
    size_t count = 0;
    for (size_t i = 0; i < hops->n_headers && !hops->stripped; i++)
        if (redirect_is_plain(hops->headers[i].name))
            hops->kept[count++] = hops->headers[i];
    if (!hops->stripped) {
        exchange->headers = hops->kept;
        exchange->n_headers = count;
    }
    hops->stripped = true;
}

/* --- The next request ------------------------------------------------------------------------- */

static struct br_hops *redirect_hops_of(struct br_redirects *redirects,
                                        struct br_exchange *exchange)
{
    struct br_hops *hops = exchange->hops;
    if (hops)
        return hops;
    hops = br_calloc(1, sizeof *hops + exchange->n_headers * sizeof *hops->kept);
    if (!hops)
        return NULL;
    hops->redirects = redirects;
    hops->path = exchange->path;
    hops->authority = exchange->authority;
    hops->headers = exchange->headers;
    hops->n_headers = exchange->n_headers;
    return exchange->hops = hops;
}

static void redirect_leave_target(struct br_hops *hops)
{
    if (hops->target)
        hops->target->n_exchanges--;
    hops->target = NULL;
}

/* Logs a redirect. `stripped` is true if credentials were removed, because the target is another
 * server. */
static void redirect_log(struct br_redirects *redirects, const struct br_exchange *exchange,
                         const struct br_url *url, bool stripped)
{
    br_log_limited(
        redirects->config->log, stripped ? BR_LOG_WARN : BR_LOG_INFO, &redirects->limit,
        br_host_mono_ms(redirects->host), BR_LOG_EVERY_MS,
        "HTTP %u redirects to %s://%s%s; each request is sent twice; set the endpoint "
        "to that URL%s",
        exchange->http_status, url->server.tls ? "https" : "http", url->server.authority, url->path,
        stripped ? "; it is another server, so the headers and the client certificate of the "
                   "config are not sent to it"
                 : "");
}

/* Checks whether a redirect can be followed. Returns NULL and stores the URL in `*ret`, or
 * returns the reason why the redirect cannot be followed. */
static const char *redirect_check(const struct br_redirects *redirects,
                                  const struct br_endpoint *from,
                                  const struct br_exchange *exchange, struct br_url *ret)
{
    if (exchange->hops && exchange->hops->count == BR_REDIRECTS_MAX)
        return "3 redirects were already followed";
    if (!exchange->location[0])
        return "the response has no Location";
    if (exchange->location_cut || br_url_resolve(from, exchange->path, exchange->location, ret))
        return "the Location is malformed";
    if (from->tls && !ret->server.tls && redirect_has_credentials(exchange, redirects->config))
        return "it redirects from https to http, and the request contains credentials";
    if (exchange->secret_body && !redirect_keeps_credentials(from, &ret->server))
        return "it redirects to another server, and the body contains credentials";
    return NULL;
}

/* Changes an exchange so that it requests `url`. Returns the client that must send the exchange.
 * Returns NULL after a failure, with the error in the exchange. */
static struct br_client *redirect_set_target(struct br_redirects *redirects,
                                             struct br_client *client,
                                             const struct br_endpoint *from,
                                             struct br_exchange *exchange, const struct br_url *url)
{
    struct br_hops *hops = redirect_hops_of(redirects, exchange);
    int rc = hops ? 0 : BR_ENOMEM;
    bool same = br_url_same_origin(from, &url->server);
    bool trusted = hops && !hops->stripped && redirect_keeps_credentials(from, &url->server);
    struct target *target = NULL;
    if (!rc && !same)
        rc = redirect_get_target(redirects, &url->server, trusted, &target);
    if (rc) {
        exchange->error = rc;
        (void)snprintf(exchange->error_text, sizeof exchange->error_text,
                       "cannot follow the redirect to %.100s: %s", url->server.authority,
                       rc == BR_EFULL ? "redirects to too many servers are in progress"
                                      : br_strerror(rc));
        return NULL;
    }
    (void)snprintf(hops->url_path, sizeof hops->url_path, "%s", url->path);
    exchange->path = hops->url_path;
    hops->count++;
    if (same)
        return client;
    if (!trusted)
        redirect_strip(hops, exchange);
    redirect_leave_target(hops);
    hops->target = target;
    target->n_exchanges++;
    exchange->authority = NULL;
    return target->client;
}

bool br_redirect_follow(struct br_redirects *redirects, struct br_client *client,
                        const struct br_endpoint *from, struct br_exchange *exchange)
{
    struct br_url url;
    unsigned status = exchange->http_status;
    if (exchange->error || exchange->grpc || (status != 307 && status != 308))
        return false;
    if (exchange->hops)
        redirects = exchange->hops->redirects;
    exchange->not_followed = redirect_check(redirects, from, exchange, &url);
    if (exchange->not_followed)
        return false;
    bool credentials = redirect_has_credentials(exchange, redirects->config);
    struct br_client *next = redirect_set_target(redirects, client, from, exchange, &url);
    if (!next)
        return false;
    redirect_log(redirects, exchange, &url, credentials && exchange->hops->stripped);
    br_client_send(next, exchange);
    return true;
}

void br_redirect_end(struct br_exchange *exchange)
{
    struct br_hops *hops = exchange->hops;
    if (!hops)
        return;
    redirect_leave_target(hops);
    exchange->path = hops->path;
    exchange->authority = hops->authority;
    exchange->headers = hops->headers;
    exchange->n_headers = hops->n_headers;
    exchange->hops = NULL;
    br_free(hops);
}
