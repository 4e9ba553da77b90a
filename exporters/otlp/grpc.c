/* SPDX-License-Identifier: Apache-2.0 */
/* The otlp exporter: OTLP over gRPC. */
#include <stdio.h>
#include <string.h>

#include "exporters/otlp/client.h"

struct keepalive {
    uint64_t time, timeout;
    bool permit_without_stream;
};

struct config {
    const char *endpoint, *compression, *authority, *user_agent;
    struct br_tls_config tls;
    struct br_auth_config *auth;
    struct br_headers headers;
    struct keepalive *keepalive;
    int balancer_name;
    int64_t connections;
    struct br_exporter_config common;
};

struct state {
    struct otlp_target target;
    struct br_client *client;
    struct otlp_sender *sender;
};

static const struct br_option keepalive_options[] = {
    BR_DURATION(struct keepalive, time, "10s",
                "send a ping if the server has sent no data for this time"),
    BR_DURATION(struct keepalive, timeout, "10s",
                "close the connection if a ping is not answered within this time"),
    BR_BOOL(struct keepalive, permit_without_stream, false,
            "also send pings on connections without requests in progress"),
    BR_OPT_END,
};

static const char *const balancers[] = {"round_robin", "pick_first", NULL};

static const struct br_option options[] = {
    {.name = "endpoint",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct config, endpoint, const char *),
     .required = true,
     .help =
         "address of the server: host:port, http(s)://host:port, dns:///host:port or unix:///path"},
    BR_STRUCT(struct config, tls, br_tls_client_options, "TLS settings of the connection"),
    BR_AUTH_CLIENT_ROW(struct config),
    BR_STRING(struct config, compression, "gzip", "compression of requests: gzip, zstd or none"),
    BR_HEADERS(struct config, headers, "metadata to add to every request"),
    BR_PRESENT(struct config, keepalive, struct keepalive, keepalive_options,
               "pings that detect broken connections; if absent, a ping is sent after 30s without "
               "data, and only during requests"),
    BR_ENUM(struct config, balancer_name, "round_robin", balancers,
            "round_robin: use all addresses of the host in turn; pick_first: use one reachable "
            "address"),
    BR_INT(struct config, connections, 1, 1, 100,
           "number of connections that each worker opens to each address of the host"),
    BR_STRING(struct config, authority, NULL,
              ":authority header of requests; default: the host and port of the endpoint"),
    BR_STRING(struct config, user_agent, "Braid/" BR_VERSION, "user-agent header of requests"),
    BR_IGNORED("read_buffer_size", "Braid chooses the buffer sizes of its connections"),
    BR_IGNORED("write_buffer_size", "Braid chooses the buffer sizes of its connections"),
    BR_IGNORED("wait_for_ready", "requests that cannot be sent are retried"),
    BR_EXPORTER_OPTIONS(struct config, common, "5s"),
    BR_OPT_END,
};

static int otlp_grpc_check(void *config, const struct br_yaml *node, const char *path,
                           struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    struct br_endpoint endpoint;
    struct br_err err = {0};
    enum br_encoding encoding;
    char at[256];
    size_t before = errs->n_errors;
    (void)arena;
    (void)snprintf(at, sizeof at, "%s::endpoint", path);
    if (settings->endpoint && br_endpoint_read(settings->endpoint, true, &endpoint, &err))
        br_errs_add(errs, br_yaml_get(node, "endpoint"), at, "%s", err.text);
    else if (settings->endpoint)
        br_endpoint_check_otlp_port(&endpoint, true, br_yaml_get(node, "endpoint"), at, errs);
    if (!otlp_read_compression(settings->compression, &encoding) ||
        encoding == BR_ENCODING_DEFLATE) {
        (void)snprintf(at, sizeof at, "%s::compression", path);
        otlp_refuse_compression(errs, br_yaml_get(node, "compression"), at, "gzip, zstd or none",
                                settings->compression);
    }
    (void)br_exporter_check(&settings->common, node, path, errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int otlp_grpc_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    state->target = (struct otlp_target){
        .grpc = true,
        .path = {"/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                 "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"},
        .headers = &config->headers,
        .user_agent = config->user_agent,
        .authority = config->authority,
        .timeout_ms = config->common.timeout / 1000000};
    (void)otlp_read_compression(config->compression, &state->target.compression);
    state->sender = otlp_sender_new(node, &state->target);
    return state->sender ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int otlp_grpc_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *settings = node->config;
    struct br_client_config config = {.endpoint = settings->endpoint,
                                      .grpc = true,
                                      .tls = &settings->tls,
                                      .authenticator = br_auth_name(settings->auth),
                                      .authority = settings->authority,
                                      .pick_first = settings->balancer_name != 0,
                                      .max_connections = (unsigned)settings->connections,
                                      .log = &node->log,
                                      .on_reachable = br_retry_reachable,
                                      .on_reachable_arg = node};
    if (settings->keepalive) {
        config.keepalive_time_ms = settings->keepalive->time / 1000000;
        config.keepalive_timeout_ms = settings->keepalive->timeout / 1000000;
        config.keepalive_without_stream = settings->keepalive->permit_without_stream;
    }
    int rc = node->host->ops->connect(node->host, &config, &state->client, err);
    state->target.client[BR_TRACES] = state->target.client[BR_PROFILES] = state->client;
    return rc;
}

static void otlp_grpc_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    otlp_sender_send(state->sender, item);
}

static void otlp_grpc_destroy(struct br_node *node)
{
    struct state *state = node->state;
    otlp_sender_free(state->sender);
    br_client_free(state->client);
}

extern const struct br_component br_otlp_exporter;
const struct br_component br_otlp_exporter = {
    .name = "otlp",
    .alias = "otlp_grpc",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "beta",
    .help = "sends OTLP over gRPC",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .resolves = true,
    .common_at = offsetof(struct config, common),
    .check = otlp_grpc_check,
    .create = otlp_grpc_create,
    .start = otlp_grpc_start,
    .consume = otlp_grpc_consume,
    .destroy = otlp_grpc_destroy,
};
