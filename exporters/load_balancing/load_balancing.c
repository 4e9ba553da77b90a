/* SPDX-License-Identifier: Apache-2.0 */
/* The load_balancing exporter: sends all spans and samples of a trace to one of several servers. */
#include <stdio.h>
#include <string.h>

#include "exporters/load_balancing/resolver.h"

struct protocol {
    struct br_otlp_grpc_config otlp;
};

struct config {
    int routing_key; /* enum br_route */
    struct protocol protocol;
    struct load_balancing_resolver_config resolver;
    /* options at the top level of the config, which override the same options in protocol.otlp;
     * NULL: the option is absent */
    struct br_queue_config *queue;
    struct br_retry_config *retry;
    /* number of concurrent requests to each backend, taken from the queue's num_consumers. The
     * queue itself sends without a limit, so that a backend that does not respond does not delay
     * the others. */
    int64_t consumers;
};

struct state {
    struct load_balancing balancer;
    struct load_balancing_resolver resolver;
};

static const struct br_option static_options[] = {
    BR_STRINGS(struct load_balancing_static, hostnames,
               "addresses of the backends as host:port; default port: 4317"),
    BR_OPT_END,
};

static const struct br_option dns_options[] = {
    {.name = "hostname",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct load_balancing_dns, hostname, const char *),
     .required = true,
     .help = "host name whose addresses are the backends"},
    BR_STRING(struct load_balancing_dns, port, NULL, "port of the backends; default: 4317"),
    BR_DURATION(struct load_balancing_dns, interval, "5s", "time between two lookups of the name"),
    BR_DURATION(struct load_balancing_dns, timeout, "1s",
                "time after which a lookup without a result counts as failed"),
    BR_OPT_END,
};

static const struct br_option file_options[] = {
    {.name = "path",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(struct load_balancing_file, path, const char *),
     .required = true,
     .help = "file with one backend per line as host:port; lines that begin with # are ignored"},
    BR_DURATION(struct load_balancing_file, interval, "5s", "time between two reads of the file"),
    BR_OPT_END,
};

static const struct br_option resolver_options[] = {
    {.name = "static",
     .kind = BR_OPT_PRESENT,
     .offset =
         BR_OPT_FIELD(struct load_balancing_resolver_config, fixed, struct load_balancing_static *),
     .sub = static_options,
     .size = sizeof(struct load_balancing_static),
     .help = "a fixed list of backends"},
    BR_PRESENT(struct load_balancing_resolver_config, dns, struct load_balancing_dns, dns_options,
               "the addresses of a host name"),
    BR_PRESENT(struct load_balancing_resolver_config, file, struct load_balancing_file,
               file_options, "the lines of a file, which is read again when it changes"),
    BR_OPT_END,
};

static const struct br_option otlp_options[] = {
    BR_IGNORED("endpoint", "the resolver finds the endpoints"),
    BR_OTLP_GRPC_ROWS,
    BR_OPT_END,
};

static const struct br_option protocol_options[] = {
    BR_STRUCT(struct protocol, otlp, otlp_options,
              "options of the otlp exporter, used for each backend"),
    BR_OPT_END,
};

static const char *const routing_keys[] = {"traceID", "service", NULL};

static const struct br_option options[] = {
    BR_ENUM(struct config, routing_key, "traceID", routing_keys,
            "send all records of a trace (traceID) or of a service (service) to one backend"),
    BR_STRUCT(struct config, protocol, protocol_options, "protocol of the backends"),
    BR_STRUCT(struct config, resolver, resolver_options,
              "how the backends are found; exactly one of static, dns and file is required"),
    {.name = "sending_queue",
     .kind = BR_OPT_PRESENT,
     .offset = BR_OPT_FIELD(struct config, queue, struct br_queue_config *),
     .sub = br_queue_options,
     .size = sizeof(struct br_queue_config),
     .help = "overrides protocol.otlp.sending_queue"},
    {.name = "retry_on_failure",
     .kind = BR_OPT_PRESENT,
     .offset = BR_OPT_FIELD(struct config, retry, struct br_retry_config *),
     .sub = br_retry_options,
     .size = sizeof(struct br_retry_config),
     .help = "overrides protocol.otlp.retry_on_failure"},
    BR_IGNORED("timeout", "protocol.otlp.timeout limits the time of each request"),
    BR_OPT_END,
};

/* --- Checking --------------------------------------------------------------------------------- */

static void load_balancing_check_static(const struct config *config, const struct br_yaml *node,
                                        const char *path, struct br_errs *errs)
{
    const struct br_strings *hostnames = &config->resolver.fixed->hostnames;
    const struct br_yaml *at =
        br_yaml_get(br_yaml_get(br_yaml_get(node, "resolver"), "static"), "hostnames");
    char name[256];
    (void)snprintf(name, sizeof name, "%s::resolver::static::hostnames", path);
    if (!hostnames->count)
        br_errs_add(errs, at ? at : node, name, "at least one backend is required");
    if (hostnames->count > LOAD_BALANCING_BACKENDS_MAX)
        br_errs_add(errs, at, name, "at most %u backends are supported",
                    LOAD_BALANCING_BACKENDS_MAX);
    for (size_t i = 0; i < hostnames->count; i++) {
        char endpoint[LOAD_BALANCING_ENDPOINT_SIZE];
        load_balancing_add_port(hostnames->items[i], endpoint);
        br_otlp_grpc_check_endpoint(endpoint, at, name, errs);
    }
}

/* Copies sending_queue and retry_on_failure from the top level to protocol.otlp, where the graph
 * reads them. */
static void load_balancing_check_outer(struct config *config, const struct br_yaml *node,
                                       const char *path, struct br_errs *errs)
{
    struct br_exporter_config *common = &config->protocol.otlp.common;
    if (config->retry)
        common->retry_on_failure = *config->retry;
    if (config->queue) {
        common->sending_queue = *config->queue;
        (void)br_exporter_check(common, node, path, errs);
    }
}

static int load_balancing_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    struct config *settings = config;
    const struct load_balancing_resolver_config *resolver = &settings->resolver;
    struct br_queue_config *queue = &settings->protocol.otlp.common.sending_queue;
    size_t before = errs->n_errors;
    char at[256];
    (void)arena;
    int n = (resolver->fixed != NULL) + (resolver->dns != NULL) + (resolver->file != NULL);
    (void)snprintf(at, sizeof at, "%s::resolver", path);
    if (n != 1)
        br_errs_add(errs, node, at, "exactly one of static, dns and file is required");
    if (resolver->fixed)
        load_balancing_check_static(settings, node, path, errs);
    (void)snprintf(at, sizeof at, "%s::protocol::otlp", path);
    br_otlp_grpc_check(&settings->protocol.otlp, br_yaml_get(br_yaml_get(node, "protocol"), "otlp"),
                       at, errs);
    load_balancing_check_outer(settings, node, path, errs);
    settings->consumers = queue->num_consumers;
    queue->num_consumers = INT32_MAX;
    return errs->n_errors > before ? BR_EINVAL : 0;
}

/* --- The node --------------------------------------------------------------------------------- */

static int load_balancing_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    const struct load_balancing_config balancing = {.route = (enum br_route)config->routing_key,
                                                    .otlp = &config->protocol.otlp,
                                                    .consumers = config->consumers};
    return load_balancing_init(&state->balancer, node, &balancing)
               ? 0
               : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int load_balancing_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct config *config = node->config;
    return load_balancing_resolver_start(&state->resolver, &state->balancer, &config->resolver,
                                         err);
}

static void load_balancing_consume(struct br_node *node, struct br_item *item)
{
    struct state *state = node->state;
    load_balancing_route(&state->balancer, item);
}

static void load_balancing_stop(struct br_node *node)
{
    struct state *state = node->state;
    load_balancing_stop_retries(&state->balancer);
}

static void load_balancing_destroy(struct br_node *node)
{
    struct state *state = node->state;
    load_balancing_resolver_stop(&state->resolver);
    load_balancing_release(&state->balancer);
}

extern const struct br_component br_load_balancing_exporter;
const struct br_component br_load_balancing_exporter = {
    .name = "load_balancing",
    .alias = "loadbalancing",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "alpha",
    .help = "sends all spans and samples of a trace to one of several servers",
    .options = options,
    .config_size = sizeof(struct config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .retries_parts = true,
    .common_at = offsetof(struct config, protocol.otlp.common),
    .check = load_balancing_check,
    .create = load_balancing_create,
    .start = load_balancing_start,
    .consume = load_balancing_consume,
    .stop_retries = load_balancing_stop,
    .destroy = load_balancing_destroy,
};
