/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fake_registry.h"

const char *const fake_modes[] = {"drop", "keep", "mark", NULL};

static const struct br_option grpc_options[] = {
    BR_STRING(struct fake_grpc, endpoint, "localhost:4317", "where to listen"),
    BR_DURATION(struct fake_grpc, keepalive, "2m", "how long a silent peer is kept"),
    BR_OPT_END,
};

static const struct br_option protocols_options[] = {
    BR_PRESENT(struct fake_protocols, grpc, struct fake_grpc, grpc_options, "gRPC"),
    BR_PRESENT(struct fake_protocols, http, struct fake_grpc, grpc_options, "HTTP"),
    BR_OPT_END,
};

const struct br_option fake_receiver_options[] = {
    BR_STRUCT(struct fake_receiver_config, protocols, protocols_options, "what it speaks"),
    BR_OPT_END,
};

static const struct br_option rule_options[] = {
    {.name = "match",
     .kind = BR_OPT_STRING,
     .required = true,
     .offset = offsetof(struct fake_rule, match),
     .help = "what it is for"},
    BR_BOOL(struct fake_rule, drop, false, "what it does"),
    BR_OPT_END,
};

static const struct br_option limits_options[] = {
    BR_INT(struct fake_limits, streams, 100, 0, 4294967295, "how many at once"),
    BR_DOUBLE(struct fake_limits, ratio, 0.5, 0, 1, "how full"),
    BR_OPT_END,
};

const struct br_option fake_processor_options[] = {
    BR_DURATION(struct fake_processor_config, timeout, "200ms", "how long it waits"),
    {.name = "size",
     .alias = "send_size",
     .kind = BR_OPT_INT,
     .def.integer = 8192,
     .offset = BR_OPT_FIELD(struct fake_processor_config, size, int64_t),
     .help = "how many"},
    BR_DOUBLE(struct fake_processor_config, ratio, 1, 0, 0, "any number"),
    BR_BOOL(struct fake_processor_config, strict, true, "or not"),
    BR_ENUM(struct fake_processor_config, mode, "keep", fake_modes, "what to do"),
    BR_STRINGS(struct fake_processor_config, include, "names"),
    BR_LIST(struct fake_processor_config, rules, struct fake_rule, rule_options, "in order"),
    BR_STRUCT(struct fake_processor_config, limits, limits_options, "bounds"),
    BR_VALUE(struct fake_processor_config, extra, "kept as it is"),
    BR_IGNORED("legacy", "of the Collector's"),
    BR_OPT_END,
};

const struct br_option fake_exporter_options[] = {
    {.name = "endpoint",
     .kind = BR_OPT_STRING,
     .required = true,
     .offset = BR_OPT_FIELD(struct fake_exporter_config, endpoint, const char *),
     .help = "where to send"},
    BR_SECRET(struct fake_exporter_config, token, "who sends"),
    BR_HEADERS(struct fake_exporter_config, headers, "sent along"),
    BR_OPT_END,
};

static const struct br_option no_options[] = {BR_OPT_END};

static int check_endpoint(void *config, const struct br_yaml *node, const char *path,
                          struct br_arena *arena, struct br_errs *errs)
{
    (void)arena;
    const struct fake_exporter_config *c = config;
    char host[256];
    unsigned port;
    if (br_endpoint_parse(c->endpoint, host, &port))
        return 0;
    return br_errs_add(errs, br_yaml_get(node, "endpoint"), path,
                       "endpoint must be host:port, got \"%s\"", c->endpoint);
}

static const struct br_component receiver = {
    .name = "fake",
    .alias = "fake_in",
    .kind = BR_RECEIVER,
    .signals = BR_BOTH_SIGNALS,
    .options = fake_receiver_options,
    .config_size = sizeof(struct fake_receiver_config),
};
static const struct br_component shape = {
    .name = "shape",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .options = fake_processor_options,
    .config_size = sizeof(struct fake_processor_config),
};
static const struct br_component sampler = {
    .name = "sampler",
    .kind = BR_PROCESSOR,
    .signals = BR_SIGNAL_BIT(BR_TRACES),
    .options = fake_processor_options,
    .config_size = sizeof(struct fake_processor_config),
};
static const struct br_component pair = {
    .name = "pair",
    .kind = BR_PROCESSOR,
    .signals = BR_BOTH_SIGNALS,
    .options = fake_processor_options,
    .config_size = sizeof(struct fake_processor_config),
    .shared = true,
};
static const struct br_component sink = {
    .name = "sink",
    .alias = "fake_sink",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .options = fake_exporter_options,
    .config_size = sizeof(struct fake_exporter_config),
    .check = check_endpoint,
};
static const struct br_component flames = {
    .name = "flames",
    .kind = BR_EXPORTER,
    .signals = BR_SIGNAL_BIT(BR_PROFILES),
    .options = no_options,
};
static const struct br_component probe = {
    .name = "probe",
    .kind = BR_EXTENSION,
    .options = no_options,
};

const struct br_component *const fake_registry[] = {&receiver, &shape,  &sampler, &pair,
                                                    &sink,     &flames, &probe,   NULL};
