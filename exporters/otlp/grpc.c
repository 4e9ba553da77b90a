/* SPDX-License-Identifier: Apache-2.0 */
/* The otlp exporter: OTLP over gRPC. */
#include <stdio.h>

#include "egress/otlp/grpc.h"

static const struct br_option options[] = {
    {.name = "endpoint",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct br_otlp_grpc_config, endpoint, const char *),
     .required = true,
     .help =
         "address of the server: host:port, http(s)://host:port, dns:///host:port or unix:///path"},
    BR_OTLP_GRPC_ROWS,
    BR_OPT_END,
};

static int otlp_grpc_check(void *config, const struct br_yaml *node, const char *path,
                           struct br_arena *arena, struct br_errs *errs)
{
    struct br_otlp_grpc_config *settings = config;
    char at[256];
    size_t before = errs->n_errors;
    (void)arena;
    (void)snprintf(at, sizeof at, "%s::endpoint", path);
    if (settings->endpoint)
        br_otlp_grpc_check_endpoint(settings->endpoint, br_yaml_get(node, "endpoint"), at, errs);
    br_otlp_grpc_check(settings, node, path, errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int otlp_grpc_create(struct br_node *node, struct br_err *err)
{
    return br_otlp_grpc_init(node->state, node, node->config)
               ? 0
               : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int otlp_grpc_start(struct br_node *node, struct br_err *err)
{
    const struct br_otlp_grpc_config *config = node->config;
    return br_otlp_grpc_connect(node->state, node, config, config->endpoint, err);
}

static void otlp_grpc_consume(struct br_node *node, struct br_item *item)
{
    struct br_otlp_grpc *grpc = node->state;
    br_otlp_sender_send(grpc->sender, item);
}

static void otlp_grpc_destroy(struct br_node *node)
{
    br_otlp_grpc_release(node->state);
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
    .config_size = sizeof(struct br_otlp_grpc_config),
    .state_size = sizeof(struct br_otlp_grpc),
    .exporter_wrapped = true,
    .resolves = true,
    .common_at = offsetof(struct br_otlp_grpc_config, common),
    .check = otlp_grpc_check,
    .create = otlp_grpc_create,
    .start = otlp_grpc_start,
    .consume = otlp_grpc_consume,
    .destroy = otlp_grpc_destroy,
};
