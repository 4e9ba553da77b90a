/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The health_check extension responds with 200 while the service runs, and with 503 from the start
 * of a shutdown. Load balancers then send no new requests while queued data is delivered. Responses
 * have the same format as those of the Collector.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "ingest/http.h"
#include "ingest/http_service.h"
#include "wire/request.h"

struct response_body {
    const char *healthy, *unhealthy;
};

struct status {
    bool enabled;
    const char *path;
};

/* Settings of the server in the form of the Collector's healthcheckv2 extension. */
struct http {
    const char *endpoint, *transport;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    struct br_headers response_headers;
    struct br_http_keepalive keepalive;
    struct status status;
};

struct config {
    bool use_v2;
    struct http *http;
    const char *endpoint, *transport, *path;
    struct br_tls_config *tls;
    struct br_auth_config *auth;
    struct response_body *response_body;
    struct br_headers response_headers;
    struct br_http_keepalive keepalive;
    struct br_strings allowed_hosts;
};

struct state {
    struct br_http_service service;
    struct br_node *node;
    struct br_header *headers; /* headers that are sent with each response */
    uint64_t since_ms, since_unix_ns;
};

static const struct br_option body_options[] = {
    BR_STRING(struct response_body, healthy, "", "body of a response with status 200"),
    BR_STRING(struct response_body, unhealthy, "", "body of a response with status 503"),
    BR_OPT_END,
};

/* Keys of the Collector's HTTP servers (confighttp) that are accepted but have no effect. */
#define SERVER_ROWS                                                                                \
    BR_IGNORED("cors", "web pages of other origins cannot read the response"),                     \
        BR_IGNORED("dialer", "only clients open connections, so a server does not use this key"),  \
        BR_IGNORED("include_metadata",                                                             \
                   "requests are not forwarded, so their metadata is not needed"),                 \
        BR_IGNORED("compression_algorithms", "requests have no body"),                             \
        BR_IGNORED("max_request_body_size", "requests have no body"),                              \
        BR_IGNORED("read_timeout", "the connection of an incomplete request is closed after 30s"), \
        BR_IGNORED("read_header_timeout",                                                          \
                   "the connection of an incomplete request is closed after 30s"),                 \
        BR_IGNORED("write_timeout",                                                                \
                   "a client that does not read its response is disconnected after 20s")

static const struct br_option status_options[] = {
    BR_BOOL(struct status, enabled, true, "answer requests for `path`"),
    BR_STRING(
        struct status, path, "/status",
        "path of the status response; a path that ends in a slash includes all paths below it"),
    BR_IGNORED("include_attributes", "the response has no attributes"),
    BR_OPT_END,
};

static const struct br_option http_options[] = {
    BR_LISTEN_ROWS(struct http, "localhost:13133"),
    BR_AUTH_SERVER_ROW(struct http),
    BR_HEADERS(struct http, response_headers, "additional headers of every response"),
    BR_STRUCT(struct http, keepalive, br_http_keepalive_options,
              "use of one connection for several requests"),
    BR_STRUCT(struct http, status, status_options,
              "response that reports the state of the service"),
    BR_IGNORED("config", "Braid does not return its configuration"),
    SERVER_ROWS,
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_BOOL(struct config, use_v2, true,
            "if `http` is set, use its settings instead of the top-level `endpoint`, `path` and "
            "other server keys"),
    BR_PRESENT(struct config, http, struct http, http_options,
               "settings of the server, in the form of the Collector's `healthcheckv2`; responses "
               "are the same as without it"),
    BR_IGNORED("grpc", "the state is available over HTTP only"),
    BR_IGNORED("component_health", "the metrics show which exporters fail"),
    BR_LISTEN_ROWS(struct config, "localhost:13133"),
    BR_AUTH_SERVER_ROW(struct config),
    BR_STRING(
        struct config, path, "/",
        "path of the status response; a path that ends in a slash includes all paths below it"),
    BR_PRESENT(
        struct config, response_body, struct response_body, body_options,
        "texts of response bodies; if absent, bodies are JSON with status, upSince and uptime"),
    BR_HEADERS(struct config, response_headers, "additional headers of every response"),
    BR_KEEPALIVE_ROWS(struct config),
    BR_STRINGS(struct config, allowed_hosts, BR_HOSTS_HELP),
    BR_IGNORED("check_collector_pipeline", "the metrics show which exporters fail"),
    SERVER_ROWS,
    BR_OPT_END,
};

static bool health_check_has_http(const struct config *settings)
{
    return settings->use_v2 && settings->http;
}

/* Uses the values in `http` instead of the values of the older keys. */
static void health_check_apply_http(struct config *settings)
{
    const struct http *http = settings->http;
    settings->endpoint = http->endpoint;
    settings->transport = http->transport;
    settings->tls = http->tls;
    settings->auth = http->auth;
    settings->response_headers = http->response_headers;
    settings->keepalive = http->keepalive;
    settings->path = http->status.path;
}

/* Checks the endpoint and the path of a server. `node` is the configuration map that contains
 * these two keys, and `path` is the path of the map. */
static void health_check_check_server(const struct config *settings, const struct br_yaml *node,
                                      const char *path, struct br_errs *errs)
{
    char at[320];
    br_endpoint_check(settings->endpoint, settings->transport, node, path, errs);
    const struct br_yaml *status = br_yaml_get(node, "status");
    if (settings->path[0] != '/') {
        (void)snprintf(at, sizeof at, "%s::%spath", path, status ? "status::" : "");
        br_errs_add(errs, br_yaml_get(status ? status : node, "path"), at,
                    "must start with a slash, got \"%s\"", settings->path);
    }
}

static int health_check_check(void *config, const struct br_yaml *node, const char *path,
                              struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    const struct br_yaml *map = node;
    size_t before = errs->n_errors;
    char at[256];
    (void)arena;
    (void)snprintf(at, sizeof at, "%s", path);
    br_hosts_check(&settings->allowed_hosts, node, path, errs);
    if (health_check_has_http(settings)) {
        map = br_yaml_get(node, "http");
        (void)snprintf(at, sizeof at, "%s::http", path);
        health_check_apply_http(settings);
    }
    health_check_check_server(settings, map, at, errs);
    if (map != node && !settings->http->status.enabled)
        br_errs_add(errs, map, at,
                    "the extension has no effect with status::enabled: false; remove "
                    "it");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- Responses ------------------------------------------------------------------------------- */

/* Appends a duration as Go prints it: 1h2m3.004s, 3.004s, 4ms, 0s. */
static void health_check_put_uptime(struct br_str *out, uint64_t ms)
{
    uint64_t seconds = ms / 1000, fraction = ms % 1000;
    if (seconds >= 3600)
        br_str_printf(out, "%" PRIu64 "h", seconds / 3600);
    if (seconds >= 60)
        br_str_printf(out, "%" PRIu64 "m", seconds / 60 % 60);
    if (seconds == 0 && fraction) {
        br_str_printf(out, "%" PRIu64 "ms", fraction);
        return;
    }
    int digits = 3;
    for (; digits > 1 && fraction % 10 == 0; digits--)
        fraction /= 10;
    br_str_printf(out, "%" PRIu64, seconds % 60);
    if (fraction)
        br_str_printf(out, ".%0*" PRIu64, digits, fraction);
    br_str_putc(out, 's');
}

static void health_check_put_status(const struct state *state, bool healthy, struct br_str *out)
{
    char since[BR_RFC3339_SIZE];
    if (!healthy) {
        br_str_puts(out,
                    "{\"status\":\"Server not available\",\"upSince\":\"0001-01-01T00:00:00Z\","
                    "\"uptime\":\"\"}");
        return;
    }
    br_str_puts(out, "{\"status\":\"Server available\",\"upSince\":\"");
    br_str_puts(out, br_rfc3339(state->since_unix_ns, 3, since));
    br_str_puts(out, "\",\"uptime\":\"");
    health_check_put_uptime(out, br_host_mono_ms(state->node->host) - state->since_ms);
    br_str_puts(out, "\"}");
}

/* Returns true if a path matches a pattern, as in Go's ServeMux: a pattern that ends in a slash
 * includes all paths below it. */
static bool health_check_path_matches(const char *pattern, const char *path)
{
    size_t len = strlen(pattern);
    return pattern[len - 1] == '/' ? strncmp(pattern, path, len) == 0 : strcmp(pattern, path) == 0;
}

static void health_check_begin(struct br_handler *self, struct br_request *request)
{
    const struct state *state = br_container_of(self, struct state, service.handler);
    const struct config *config = state->node->config;
    bool healthy = !state->node->host->draining;
    char buffer[256];
    struct br_str text = {
        .data = buffer, .cap = sizeof buffer, .max = sizeof buffer - 1, .fixed = true};
    if (!br_hosts_allow(&state->service.hosts, request)) {
        br_request_reply_text(request, 403, BR_HOSTS_REFUSAL "\n");
        return;
    }
    if (!health_check_path_matches(config->path, request->path)) {
        br_request_reply_text(request, 404, "404 page not found\n");
        return;
    }
    struct br_response reply = {.status = healthy ? 200 : 503,
                                .content_type = "application/json",
                                .headers = state->headers,
                                .n_headers = config->response_headers.count,
                                .close = !config->keepalive.enabled};
    health_check_put_status(state, healthy, &text);
    reply.text = buffer;
    if (config->response_body) {
        reply.content_type = "text/plain; charset=utf-8";
        reply.text = healthy ? config->response_body->healthy : config->response_body->unhealthy;
    }
    br_request_reply(request, &reply);
}

/* Does nothing, because every request is answered when it begins. */
static void health_check_body(struct br_handler *self, struct br_request *request)
{
    (void)self;
    (void)request;
}

/* --- Component ------------------------------------------------------------------------------- */

static int health_check_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->node = node;
    state->service.handler = (struct br_handler){
        .begin = health_check_begin, .body = health_check_body, .gone = health_check_body};
    state->headers = br_calloc(config->response_headers.count, sizeof *state->headers);
    if (!state->headers)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (size_t i = 0; i < config->response_headers.count; i++)
        state->headers[i] = (struct br_header){config->response_headers.names[i],
                                               config->response_headers.values[i].text};
    return 0;
}

static int health_check_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *settings = node->config;
    state->since_ms = br_host_mono_ms(node->host);
    state->since_unix_ns = br_host_unix_ns(node->host);
    struct br_server_config config = {.endpoint = settings->endpoint,
                                      .transport = settings->transport,
                                      .tls = settings->tls,
                                      .gate = {.auth = settings->auth},
                                      .guarded = true,
                                      .idle_timeout_ms =
                                          settings->keepalive.idle_timeout / 1000000};
    return br_http_service_listen(&state->service, node, "http", &settings->allowed_hosts, &config,
                                  err);
}

static void health_check_drain(struct br_node *node)
{
    struct state *state = node->state;
    br_http_service_drain(&state->service, node);
}

static void health_check_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_http_service_release(&state->service);
    br_free(state->headers);
}

extern const struct br_component br_health_check_extension;
const struct br_component br_health_check_extension = {
    .name = "health_check",
    .kind = BR_EXTENSION,
    .stability = "beta",
    .help = "reports whether the service accepts data",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .check = health_check_check,
    .create = health_check_create,
    .start = health_check_start,
    .drain = health_check_drain,
    .destroy = health_check_destroy,
};
