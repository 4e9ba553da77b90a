/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/otlp/grpc.h"

#include <stdio.h>

const struct br_option br_otlp_grpc_keepalive_options[] = {
    BR_DURATION(struct br_otlp_grpc_keepalive, time, "10s",
                "send a ping if the server has sent no data for this time"),
    BR_DURATION(struct br_otlp_grpc_keepalive, timeout, "10s",
                "close the connection if a ping is not answered within this time"),
    BR_BOOL(struct br_otlp_grpc_keepalive, permit_without_stream, false,
            "also send pings on connections without requests in progress"),
    BR_OPT_END,
};

const char *const br_otlp_grpc_balancers[] = {"round_robin", "pick_first", NULL};

void br_otlp_grpc_check_endpoint(const char *endpoint, const struct br_yaml *node, const char *path,
                                 struct br_errs *errs)
{
    struct br_endpoint parsed;
    struct br_err err = {0};
    if (br_endpoint_read(endpoint, true, &parsed, &err))
        br_errs_add(errs, node, path, "%s", err.text);
    else
        br_endpoint_check_otlp_port(&parsed, true, node, path, errs);
}

void br_otlp_grpc_check(struct br_otlp_grpc_config *config, const struct br_yaml *node,
                        const char *path, struct br_errs *errs)
{
    enum br_encoding encoding;
    char at[256];
    if (!br_otlp_read_compression(config->compression, &encoding) ||
        encoding == BR_ENCODING_DEFLATE) {
        (void)snprintf(at, sizeof at, "%s::compression", path);
        br_otlp_refuse_compression(errs, br_yaml_get(node, "compression"), at, "gzip, zstd or none",
                                   config->compression);
    }
    (void)br_exporter_check(&config->common, node, path, errs);
}

bool br_otlp_grpc_init(struct br_otlp_grpc *grpc, struct br_node *node,
                       const struct br_otlp_grpc_config *config)
{
    grpc->target = (struct br_otlp_target){
        .grpc = true,
        .path = {"/opentelemetry.proto.collector.trace.v1.TraceService/Export",
                 "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"},
        .headers = &config->headers,
        .user_agent = config->user_agent,
        .authority = config->authority,
        .timeout_ms = config->common.timeout / 1000000};
    (void)br_otlp_read_compression(config->compression, &grpc->target.compression);
    grpc->sender = br_otlp_sender_new(node, &grpc->target);
    return grpc->sender != NULL;
}

int br_otlp_grpc_connect(struct br_otlp_grpc *grpc, struct br_node *node,
                         const struct br_otlp_grpc_config *config, const char *endpoint,
                         struct br_err *err)
{
    struct br_client_config client = {.endpoint = endpoint,
                                      .grpc = true,
                                      .tls = &config->tls,
                                      .authenticator = br_auth_name(config->auth),
                                      .authority = config->authority,
                                      .pick_first = config->balancer_name != 0,
                                      .max_connections = (unsigned)config->connections,
                                      .log = &node->log,
                                      .on_reachable = br_retry_reachable,
                                      .on_reachable_arg = node};
    if (config->keepalive) {
        client.keepalive_time_ms = config->keepalive->time / 1000000;
        client.keepalive_timeout_ms = config->keepalive->timeout / 1000000;
        client.keepalive_without_stream = config->keepalive->permit_without_stream;
    }
    int rc = node->host->ops->connect(node->host, &client, &grpc->client, err);
    grpc->target.client[BR_TRACES] = grpc->target.client[BR_PROFILES] = grpc->client;
    return rc;
}

void br_otlp_grpc_release(struct br_otlp_grpc *grpc)
{
    br_otlp_sender_free(grpc->sender);
    br_client_free(grpc->client);
    *grpc = (struct br_otlp_grpc){0};
}
