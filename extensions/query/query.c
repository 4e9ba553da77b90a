/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The query extension: its configuration, listener and access control. Requests from web pages of
 * other origins are rejected unless `cors` lists the origin. Requests with a host name that is not
 * allowed are rejected too (net/hosts.h).
 */
#include "extensions/query/query.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define TOO_MANY "too many queries are in progress"

static const struct br_option options[] = {
    BR_LISTEN_ROWS(struct br_http_config, "localhost:3200"),
    BR_AUTH_SERVER_ROW(struct br_http_config),
    BR_PRESENT(struct br_http_config, cors, struct br_cors, br_cors_options,
               "web pages of other origins that may send requests"),
    BR_HEADERS(struct br_http_config, response_headers, "additional headers of every response"),
    BR_STRINGS(struct query_config, allowed_hosts, BR_HOSTS_HELP),
    BR_STRING(struct query_config, store, "store", "id of the store exporter to query"),
    BR_DURATION(struct query_config, query_timeout, "10s",
                "time after which a query ends with an incomplete result, counted from the arrival "
                "of the request's headers"),
    BR_INT(struct query_config, max_query_memory, 256 << 20, 1 << 20, 4096ll << 20,
           "largest amount of memory in bytes that one query may use, including its response"),
    BR_INT(
        struct query_config, max_concurrent, 64, 1, QUERY_JOBS_MAX,
        "largest number of concurrent queries of one worker; the same limit applies to its live "
        "tails; one connection may use half of the limit; further queries are answered with 503"),
    BR_DURATION(
        struct br_http_config, read_timeout, "0s",
        "close a connection if no data of an incomplete request arrives for this time; 0: 30s"),
    BR_KEEPALIVE_ROWS(struct br_http_config),
    BR_CONNECTION_ROWS(struct br_http_config),
    BR_OPT_END,
};

/* --- Config ---------------------------------------------------------------------------------- */

static int query_check(void *config, const struct br_yaml *node, const char *path,
                       struct br_arena *arena, struct br_errs *errs)
{
    struct query_config *query_config = config;
    size_t before = errs->n_errors;
    (void)arena;
    br_endpoint_check(query_config->http.endpoint, query_config->http.transport, node, path, errs);
    br_hosts_check(&query_config->allowed_hosts, node, path, errs);
    if (!query_config->store[0])
        br_errs_add_key(errs, node, path, "store", "must be the id of a store exporter");
    if (query_config->query_timeout < 1000000 || query_config->query_timeout > 600000000000ull)
        br_errs_add_key(errs, node, path, "query_timeout", "must be from 1ms to 10m");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Requests -------------------------------------------------------------------------------- */

static unsigned query_method_of(const struct br_request *request)
{
    if (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0)
        return QUERY_GET;
    return strcmp(request->method, "POST") == 0 ? QUERY_POST : 0;
}

static void query_reject_method(struct query *query, struct br_request *request, unsigned methods)
{
    const struct query_config *config = query->node->config;
    static const char text[] = "this path does not support the method\n";
    static const char *const allow[] = {[QUERY_GET] = "GET, HEAD",
                                        [QUERY_POST] = "POST",
                                        [QUERY_GET | QUERY_POST] = "GET, HEAD, POST"};
    const struct br_http_answer answer = {.status = 405,
                                          .type = "text/plain; charset=utf-8",
                                          .data = text,
                                          .len = sizeof text - 1,
                                          .allow = allow[methods]};
    *query->refused += 1;
    br_http_reply(&config->http, request, &answer);
}

/* Returns the reason why a query is rejected; NULL: the query may begin. May end another query so
 * that this one can begin. */
static const char *query_admit(struct query *query, const struct br_request *request,
                               const struct query_route *route)
{
    size_t max = (size_t)((const struct query_config *)query->node->config)->max_concurrent;
    if (route->on_loop)
        return NULL;
    if (max > 1 && request->conn &&
        query_jobs_on(query, request->conn) >= max / QUERY_CONNECTION_SHARE)
        return "this connection has too many queries in progress";
    if (query_is_tail(route))
        return query->n_tails < max || query_jobs_end_tail(query) ? NULL : TOO_MANY;
    if (route->download && query->n_downloads >= QUERY_DOWNLOADS_MAX &&
        !query_jobs_end_download(query))
        return "another slice is being saved";
    if (query->n_jobs + query->n_sending >= max && !query_sending_make_room(query))
        return TOO_MANY;
    return br_host_over_limit(query->node->host) ? "the process is low on memory" : NULL;
}

static void query_dispatch(struct query *query, struct br_request *request)
{
    struct query_part parts[QUERY_PARTS_MAX];
    size_t n_parts = 0;
    unsigned methods = 0;
    int rc = BR_ENOMEM;
    const struct query_route *route =
        query_route_find(request->path, query_method_of(request), parts, &n_parts, &methods);
    const char *full = NULL;
    if (request->grpc && (!route || route->errors != QUERY_GRPC)) {
        query_respond_error(query, request, 501, QUERY_GRPC, "this method is not supported");
    } else if (!request->grpc && route && route->errors == QUERY_GRPC) {
        query_respond_error(query, request, 415, QUERY_TEXT, "this path requires gRPC");
    } else if (!route && methods) {
        query_reject_method(query, request, methods);
    } else if (!route) {
        query_respond_error(query, request, 404, QUERY_TEXT, "404 page not found");
    } else if ((full = query_admit(query, request, route))) {
        query_respond_error(query, request, 503, route->errors, full);
    } else if (!query_job_new(query, request, route, parts, n_parts, &rc)) {
        query_respond_error(query, request, rc == BR_EINVAL ? 400 : 503, route->errors,
                            rc == BR_EINVAL
                                ? "the query has a malformed escape or too many parameters"
                                : "out of memory");
    } else {
        request->max_body = query_method_of(request) == QUERY_POST ? QUERY_BODY_MAX : 0;
    }
}

static void query_begin(struct br_handler *self, struct br_request *request)
{
    struct query *query = br_container_of(self, struct query, service.handler);
    const struct query_config *config = query->node->config;
    /* the parsed encoding is not used: it is parsed again when the body is complete */
    enum br_encoding encoding;
    request->user = NULL;
    request->max_body = 0;
    request->leaves_at_eof = true;
    *query->requests += 1;
    if (!br_hosts_allow(&query->service.hosts, request))
        query_respond_error(query, request, 403, QUERY_TEXT, BR_HOSTS_REFUSAL);
    else if (br_http_answer_page(&config->http, &config->allowed_hosts, request))
        *query->refused += strcmp(request->method, "OPTIONS") != 0;
    else if (query_sessions_answer(&query->sessions, request))
        return;
    else if (br_grpc_is(request) && !br_grpc_begin(request, &encoding))
        return;
    else if (query->node->host->draining)
        query_respond_error(query, request, 503, request->grpc ? QUERY_GRPC : QUERY_TEXT,
                            "shutting down");
    else
        query_dispatch(query, request);
}

static bool query_is_public(struct br_handler *self, const struct br_request *request)
{
    const struct query *query = br_container_of(self, struct query, service.handler);
    const struct query_config *config = query->node->config;
    return query_sessions_is_public(request) ||
           (config->http.cors && br_http_is_preflight(request));
}

static const char *query_credential(struct br_handler *self, const struct br_request *request)
{
    struct query *query = br_container_of(self, struct query, service.handler);
    return query_sessions_credential(&query->sessions, request);
}

static void query_body(struct br_handler *self, struct br_request *request)
{
    (void)self;
    query_job_start(request->user);
}

static void query_gone(struct br_handler *self, struct br_request *request)
{
    (void)self;
    if (request->user)
        query_job_gone(request->user);
}

/* --- Component ------------------------------------------------------------------------------- */

static int query_create(struct br_node *node, struct br_err *err)
{
    struct query *query = node->state;
    const struct query_config *config = node->config;
    query->node = node;
    query->service.handler =
        (struct br_handler){.begin = query_begin,
                            .body = query_body,
                            .gone = query_gone,
                            .long_target = "the query is longer than 64 KiB\n"};
    query->sessions = (struct query_sessions){.node = node, .http = &config->http};
    query->started_ns = br_host_unix_ns(node->host);
    br_list_init(&query->jobs);
    query->requests = br_node_metric(node, BR_COUNTER, "braid_query_requests", NULL, NULL);
    query->refused = br_node_metric(node, BR_COUNTER, "braid_query_refused", NULL, NULL);
    query->cut = br_node_metric(node, BR_COUNTER, "braid_query_cut", NULL, NULL);
    query->cut_off = br_node_metric(node, BR_COUNTER, "braid_query_cut_off", NULL, NULL);
    query->store = br_store_get(node->host, config->store);
    query->masked = br_masked_get(node->host);
    if (query->masked)
        br_masked_watch(query->masked);
    return query->store && query->masked && !query_sending_init(query)
               ? 0
               : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int query_start(struct br_node *node, struct br_err *err)
{
    struct query *query = node->state;
    const struct query_config *config = node->config;
    struct br_server_config server = br_http_server(&config->http);
    server.gate.is_public = query_is_public;
    server.gate.credential = query_credential;
    int rc =
        br_http_service_listen(&query->service, node, "http", &config->allowed_hosts, &server, err);
    query->sessions.server = query->service.server;
    return rc;
}

static void query_drain(struct br_node *node)
{
    struct query *query = node->state;
    query_jobs_end_streams(query);
    br_http_service_drain(&query->service, node);
}

static void query_destroy(struct br_node *node)
{
    struct query *query = node->state;
    br_http_service_release(&query->service);
    if (!query->node)
        return;
    query_sessions_release(&query->sessions);
    query_jobs_release(query);
    query_sending_release(query);
    br_masked_put(node->host, query->masked);
    br_store_put(node->host, query->store);
}

static void query_refers(const void *config, struct br_reference *ret)
{
    const struct query_config *query_config = config;
    *ret = (struct br_reference){"store", BR_EXPORTER, "store", query_config->store};
}

extern const struct br_component br_query_extension;
const struct br_component br_query_extension = {
    .name = "query",
    .kind = BR_EXTENSION,
    .stability = "alpha",
    .help = "answers queries about stored data through the APIs of Tempo and Pyroscope",
    .options = options,
    .config_size = sizeof(struct query_config),
    .state_size = sizeof(struct query),
    .refers = query_refers,
    .check = query_check,
    .create = query_create,
    .start = query_start,
    .drain = query_drain,
    .destroy = query_destroy,
};
