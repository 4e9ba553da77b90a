/* SPDX-License-Identifier: Apache-2.0 */
/* The otlphttp exporter: OTLP in protobuf or JSON over HTTP/1.1, or over HTTP/2 if the server
 * selects it. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "egress/otlp/sender.h"
#include "net/route.h"

struct compression_params {
    int64_t level;
};

struct config {
    const char *endpoint, *traces_endpoint, *profiles_endpoint;
    int encoding;
    const char *compression;
    struct compression_params compression_params;
    struct br_tls_config tls;
    struct br_secret proxy_url;
    struct br_auth_config *auth;
    struct br_headers headers;
    int64_t max_conns_per_host;
    struct br_client_keepalive keepalive;
    uint64_t http2_read_idle_timeout, http2_ping_timeout;
    bool force_attempt_http2;
    struct br_exporter_config common;
};

struct state {
    struct br_otlp_target target;
    char *path[BR_SIGNALS];
    const char *url[BR_SIGNALS]; /* URL for each signal; NULL: the signal is not sent */
    struct br_client *client[BR_SIGNALS];
    struct br_otlp_sender *sender;
};

static const char *const encodings[] = {"proto", "json", NULL};

static const struct br_option params_options[] = {
    BR_INT(struct compression_params, level, 0, -1, 22,
           "compression level; 0: the default level of the algorithm"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_STRING(struct config, endpoint, NULL,
              "URL of the server, to which /v1/traces or /v1development/profiles is appended"),
    BR_STRING(struct config, traces_endpoint, NULL, "complete URL for traces; nothing is appended"),
    BR_STRING(struct config, profiles_endpoint, NULL,
              "complete URL for profiles; nothing is appended"),
    BR_IGNORED("metrics_endpoint", "Braid sends no metrics"),
    BR_IGNORED("logs_endpoint", "Braid sends no logs"),
    BR_ENUM(struct config, encoding, "proto", encodings,
            "format of request bodies: protobuf or JSON"),
    BR_STRUCT(struct config, tls, br_tls_client_options, "TLS settings of the connection"),
    BR_AUTH_CLIENT_ROW(struct config),
    BR_SECRET(struct config, proxy_url, BR_PROXY_HELP),
    BR_STRING(struct config, compression, "gzip",
              "compression of requests: gzip, zstd, deflate, zlib or none"),
    BR_STRUCT(struct config, compression_params, params_options, "parameters of the compression"),
    BR_HEADERS(struct config, headers, "headers to add to every request"),
    BR_INT(struct config, max_conns_per_host, 0, 0, 10000,
           "largest number of concurrent connections; 0: 100"),
    BR_CLIENT_KEEPALIVE_ROWS(struct config),
    BR_OLDER_NEGATED(struct config, keepalive.enabled, "disable_keep_alives", "keepalive::enabled"),
    BR_IGNORED("max_idle_conns",
               "unused connections count towards max_conns_per_host, which limits them"),
    BR_IGNORED("max_idle_conns_per_host",
               "unused connections count towards max_conns_per_host, which limits them"),
    BR_IGNORED("read_buffer_size", "Braid chooses the buffer sizes of its connections"),
    BR_IGNORED("write_buffer_size", "Braid chooses the buffer sizes of its connections"),
    BR_DURATION(struct config, http2_read_idle_timeout, "0",
                "send a ping if the server has sent no data for this time; 0: after 30s, and only "
                "during requests"),
    BR_DURATION(struct config, http2_ping_timeout, "15s",
                "close the connection if a ping is not answered within this time"),
    BR_BOOL(struct config, force_attempt_http2, true, "offer HTTP/2 to servers with TLS"),
    BR_IGNORED("cookies", "cookies are not stored"),
    BR_EXPORTER_OPTIONS(struct config, common, "30s"),
    BR_OPT_END,
};

static void otlp_http_check_url(const char *url, const char *key, const struct br_yaml *node,
                                const char *path, struct br_errs *errs)
{
    struct br_endpoint endpoint;
    struct br_err err = {0};
    char at[256];
    if (!url)
        return;
    (void)snprintf(at, sizeof at, "%s::%s", path, key);
    if (br_endpoint_read(url, false, &endpoint, &err))
        br_errs_add(errs, br_yaml_get(node, key), at, "%s", err.text);
    else
        br_endpoint_check_otlp_port(&endpoint, false, br_yaml_get(node, key), at, errs);
}

/* Warns about an endpoint that probably contains the path of a signal and so is not a base URL.
 * An endpoint with such a path is not an error, because the Collector accepts it. */
static void otlp_http_check_base(const struct config *config, const struct br_yaml *node,
                                 const char *path, struct br_errs *errs)
{
    static const char *const added[] = {"/v1/traces", "/v1development/profiles", "/v1/metrics",
                                        "/v1/logs", NULL};
    char at[256];
    (void)snprintf(at, sizeof at, "%s::endpoint", path);
    br_endpoint_check_base(config->endpoint, added,
                           "give whole URLs as traces_endpoint and profiles_endpoint",
                           br_yaml_get(node, "endpoint"), at, errs);
}

static int otlp_http_check(void *config, const struct br_yaml *node, const char *path,
                           struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    enum br_encoding encoding;
    char at[256];
    size_t before = errs->n_errors;
    (void)arena;
    /* The Collector accepts an exporter of only metrics or logs. If such an exporter is in a
     * pipeline of Braid, otlp_http_create reports the missing endpoint. */
    bool foreign = br_yaml_get(node, "metrics_endpoint") || br_yaml_get(node, "logs_endpoint");
    if (!settings->endpoint && !settings->traces_endpoint && !settings->profiles_endpoint &&
        !foreign)
        br_errs_add(errs, node, path,
                    "endpoint is required, or traces_endpoint and "
                    "profiles_endpoint for the exported signals");
    otlp_http_check_url(settings->endpoint, "endpoint", node, path, errs);
    otlp_http_check_base(settings, node, path, errs);
    otlp_http_check_url(settings->traces_endpoint, "traces_endpoint", node, path, errs);
    otlp_http_check_url(settings->profiles_endpoint, "profiles_endpoint", node, path, errs);
    br_proxies_check(settings->proxy_url.text, node, path, errs);
    if (!br_otlp_read_compression(settings->compression, &encoding)) {
        (void)snprintf(at, sizeof at, "%s::compression", path);
        br_otlp_refuse_compression(errs, br_yaml_get(node, "compression"), at,
                                   "gzip, zstd, deflate, zlib or none", settings->compression);
    }
    (void)br_exporter_check(&settings->common, node, path, errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* Sets the path to which a signal is sent. The signal's own URL, if configured, is used
 * unchanged. If the signal has no URL, its path is appended to the common URL. */
static bool otlp_http_set_path(struct state *state, const struct config *config,
                               enum br_signal signal)
{
    static const char *const suffix[BR_SIGNALS] = {"/v1/traces", "/v1development/profiles"};
    const char *own = signal == BR_TRACES ? config->traces_endpoint : config->profiles_endpoint;
    struct br_endpoint endpoint;
    char path[1024];
    if (!state->url[signal] || br_endpoint_read(state->url[signal], false, &endpoint, NULL))
        return true;
    const char *more = suffix[signal];
    if (own)
        more = endpoint.path[0] ? "" : "/";
    (void)snprintf(path, sizeof path, "%s%s", endpoint.path, more);
    state->path[signal] = br_strdup(path);
    state->target.path[signal] = state->path[signal];
    return state->path[signal] != NULL;
}

static int otlp_http_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->target = (struct br_otlp_target){.encoding = (enum br_otlp_encoding)config->encoding,
                                            .level = (int)config->compression_params.level,
                                            .headers = &config->headers,
                                            .user_agent = "Braid/" BR_VERSION,
                                            .timeout_ms = config->common.timeout / 1000000};
    (void)br_otlp_read_compression(config->compression, &state->target.compression);
    state->url[BR_TRACES] = config->traces_endpoint ? config->traces_endpoint : config->endpoint;
    state->url[BR_PROFILES] =
        config->profiles_endpoint ? config->profiles_endpoint : config->endpoint;
    for (int i = 0; i < BR_SIGNALS; i++)
        if (node->in_pipeline[i] && !state->url[i])
            return br_err_set(err, BR_EINVAL,
                              "endpoint or %s_endpoint is required, because it is in a %s pipeline",
                              br_signal_name((enum br_signal)i), br_signal_name((enum br_signal)i));
    if (otlp_http_set_path(state, config, BR_TRACES) &&
        otlp_http_set_path(state, config, BR_PROFILES))
        state->sender = br_otlp_sender_new(node, &state->target);
    return state->sender ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int otlp_http_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *settings = node->config;
    for (int i = 0; i < BR_SIGNALS; i++) {
        if (!state->url[i])
            continue;
        struct br_client_config config = {
            .endpoint = state->url[i],
            .tls = &settings->tls,
            .proxy_url = settings->proxy_url.text,
            .authenticator = br_auth_name(settings->auth),
            .max_connections = (unsigned)settings->max_conns_per_host,
            .http2 = settings->force_attempt_http2,
            .keepalive_time_ms = settings->http2_read_idle_timeout / 1000000,
            .keepalive_timeout_ms = settings->http2_ping_timeout / 1000000,
            .keepalive_without_stream = settings->http2_read_idle_timeout > 0,
            .log = &node->log,
            .on_reachable = br_retry_reachable,
            .on_reachable_arg = node};
        br_client_keepalive_apply(&settings->keepalive, &config);
        int rc = node->host->ops->connect(node->host, &config, &state->client[i], err);
        if (rc)
            return rc;
        state->target.client[i] = state->client[i];
    }
    return 0;
}

static void otlp_http_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    br_otlp_sender_send(state->sender, item);
}

static void otlp_http_destroy(struct br_node *node)
{
    struct state *state = node->state;
    br_otlp_sender_free(state->sender);
    for (int i = 0; i < BR_SIGNALS; i++) {
        br_client_free(state->client[i]);
        br_free(state->path[i]);
    }
}

extern const struct br_component br_otlphttp_exporter;
const struct br_component br_otlphttp_exporter = {
    .name = "otlphttp",
    .alias = "otlp_http",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "sends OTLP over HTTP, as protobuf or JSON",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .resolves = true,
    .common_at = offsetof(struct config, common),
    .check = otlp_http_check,
    .create = otlp_http_create,
    .start = otlp_http_start,
    .consume = otlp_http_consume,
    .destroy = otlp_http_destroy,
};
