/* SPDX-License-Identifier: Apache-2.0 */
/* The kafka receiver: reads requests from topics, as OTLP in protobuf or JSON. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "receivers/kafka/consumer.h"

#define T struct kafka_receiver_config

struct state {
    struct kafka_consumer *consumer;
};

static const char *const encodings[] = {"otlp_proto", "otlp_json", NULL};
static const char *const offsets[] = {"latest", "earliest", NULL};

static const struct br_option topics_options[] = {
    BR_STRINGS(struct kafka_topics, topics,
               "topics to read; default: otlp_spans for traces and otlp_profiles for profiles"),
    BR_STRING(struct kafka_topics, topic, NULL, "older option that names a single topic"),
    BR_ENUM(struct kafka_topics, encoding, "otlp_proto", encodings,
            "format of messages: an OTLP request in protobuf or JSON"),
    BR_STRINGS(struct kafka_topics, exclude_topics,
               "not supported, because topics cannot be regular expressions"),
    BR_OPT_END,
};

static const struct br_option autocommit_options[] = {
    BR_BOOL(struct kafka_autocommit, enable, true,
            "commit offsets at the interval; false: about 100 ms after a message was delivered"),
    BR_DURATION(struct kafka_autocommit, interval, "1s", "interval at which offsets are committed"),
    BR_OPT_END,
};

static const struct br_option marking_options[] = {
    BR_BOOL(struct kafka_marking, after, true,
            "commit the offset of a message after its delivery; false: when it is received"),
    BR_BOOL(struct kafka_marking, on_error, false,
            "commit the offset of a refused message; false: send the message again"),
    BR_BOOL(struct kafka_marking, on_permanent_error, true,
            "commit the offset of a rejected message; false: send the message again, forever"),
    BR_OPT_END,
};

static const struct br_option extraction_options[] = {
    BR_BOOL(struct kafka_extraction, extract_headers, false, "not supported"),
    BR_STRINGS(struct kafka_extraction, headers, "not supported"),
    BR_OPT_END,
};

static const struct br_option options[] = {
    BR_KAFKA_ROWS(T, client),
    BR_STRING(T, group_id, "otel-collector", "consumer group"),
    BR_STRING(
        T, group_instance_id, NULL,
        "static id of this group member, allowed with one worker only; empty: dynamic members"),
    BR_ENUM(T, initial_offset, "latest", offsets,
            "offset to start at if the group has not committed one: latest or earliest"),
    BR_DURATION(T, session_timeout, "10s",
                "a member that sends no heartbeat for this time loses its partitions"),
    BR_DURATION(T, heartbeat_interval, "3s", "interval at which heartbeats are sent"),
    {.name = "group_rebalance_strategies",
     .kind = BR_OPT_STRINGS,
     .offset = BR_OPT_FIELD(T, strategies, struct br_strings),
     .help = "range, roundrobin or cooperative-sticky; default: range, which gives equal partition "
             "numbers of both topics to one member"},
    {.name = "group_rebalance_strategy",
     .kind = BR_OPT_STRING,
     .offset = BR_OPT_FIELD(T, strategy, const char *),
     .help = "older option that names a single strategy"},
    BR_INT(T, min_fetch_size, 1, 1, 100000000,
           "minimum size of a broker's response in bytes; the broker waits up to max_fetch_wait"),
    BR_INT(T, max_fetch_size, 1048576, 1000, 1000000000,
           "maximum size of a broker's response in bytes; a larger message is returned alone"),
    BR_INT(T, max_partition_fetch_size, 1048576, 1, 1000000000,
           "maximum number of bytes that a response contains for one partition"),
    BR_DURATION(T, max_fetch_wait, "250ms",
                "maximum time that a broker waits for min_fetch_size bytes"),
    BR_IGNORED("max_decompress_batch_bytes", "max_fetch_size limits compressed batches"),
    BR_STRUCT(T, traces, topics_options, "topics and format of traces"),
    BR_STRUCT(T, profiles, topics_options, "topics and format of profiles"),
    BR_IGNORED("logs", "Braid reads no logs"),
    BR_IGNORED("metrics", "Braid reads no metrics"),
    BR_STRUCT(T, autocommit, autocommit_options, "when offsets are committed"),
    BR_STRUCT(T, message_marking, marking_options, "when a message counts as processed"),
    BR_STRUCT(T, header_extraction, extraction_options, "not supported"),
    BR_IGNORED("error_backoff",
               "a refused message is sent again after 1s; the delay doubles up to 30s"),
    BR_IGNORED("partition_processing", "partitions are always processed independently"),
    BR_IGNORED("telemetry", "Braid has no metric for the delay of messages"),
    BR_OPT_END,
};

/* Adds an error for an unknown strategy, and a warning for a strategy that can assign the spans and
 * samples of a trace to different group members.
 */
static bool kafka_receiver_check_strategy(const char *name, const struct br_yaml *node,
                                          const char *path, struct br_errs *errs)
{
    bool known = strcmp(name, "roundrobin") == 0 || strcmp(name, "cooperative-sticky") == 0;
    if (strcmp(name, "range") == 0)
        return true;
    if (!known)
        (void)br_errs_add(errs, node, path,
                          "must be range, roundrobin or cooperative-sticky, got \"%s\"", name);
    else
        br_errs_warn(errs, node, path,
                     "with %s, the spans and samples of a trace can reach different members of the "
                     "group; use range if a pipeline joins them",
                     name);
    return known;
}

static void kafka_receiver_check_strategies(const struct kafka_receiver_config *config,
                                            const struct br_yaml *node, const char *path,
                                            struct br_errs *errs)
{
    const struct br_strings *names = &config->strategies;
    const struct br_yaml *list = br_yaml_get(node, "group_rebalance_strategies");
    bool cooperative = false;
    char at[256];
    (void)snprintf(at, sizeof at, "%s::group_rebalance_strategies", path);
    for (size_t i = 0; i < names->count; i++) {
        (void)kafka_receiver_check_strategy(names->items[i], list, at, errs);
        cooperative = cooperative || strcmp(names->items[i], "cooperative-sticky") == 0;
    }
    if (cooperative && names->count > 1)
        br_errs_add(errs, list, at, "cooperative-sticky cannot be combined with other strategies");
    (void)snprintf(at, sizeof at, "%s::group_rebalance_strategy", path);
    if (config->strategy && names->count)
        br_errs_add(errs, br_yaml_get(node, "group_rebalance_strategy"), at,
                    "cannot be combined with group_rebalance_strategies");
    if (config->strategy)
        (void)kafka_receiver_check_strategy(
            config->strategy, br_yaml_get(node, "group_rebalance_strategy"), at, errs);
}

static void kafka_receiver_check_topics(const struct kafka_topics *topics, const char *key,
                                        const struct br_yaml *node, const char *path,
                                        struct br_errs *errs)
{
    const struct br_yaml *block = br_yaml_get(node, key);
    char at[256];
    (void)snprintf(at, sizeof at, "%s::%s::topics", path, key);
    for (size_t i = 0; i < topics->topics.count; i++)
        if (topics->topics.items[i][0] == '^')
            br_errs_lack(errs, br_yaml_get(block, "topics"), at,
                         "regular expressions are not supported, got \"%s\"",
                         topics->topics.items[i]);
    (void)snprintf(at, sizeof at, "%s::%s::exclude_topics", path, key);
    if (topics->exclude_topics.count)
        br_errs_lack(errs, br_yaml_get(block, "exclude_topics"), at, "is not supported");
}

static int kafka_receiver_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    struct kafka_receiver_config *settings = config;
    size_t before = errs->n_errors;
    (void)arena;
    br_kafka_check(&settings->client, node, path, errs);
    kafka_receiver_check_strategies(settings, node, path, errs);
    kafka_receiver_check_topics(&settings->traces, "traces", node, path, errs);
    kafka_receiver_check_topics(&settings->profiles, "profiles", node, path, errs);
    if (settings->header_extraction.extract_headers)
        br_errs_lack(errs, br_yaml_get(node, "header_extraction"), path,
                     "header_extraction is not supported; headers are client metadata");
    if (!settings->group_id || !settings->group_id[0])
        br_errs_add_key(errs, node, path, "group_id", "must not be empty");
    if (settings->heartbeat_interval >= settings->session_timeout)
        br_errs_add_key(errs, node, path, "heartbeat_interval",
                        "must be shorter than session_timeout");
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static int kafka_receiver_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    state->consumer = kafka_consumer_new(node);
    return state->consumer ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int kafka_receiver_start(struct br_node *node, struct br_err *err)
{
    const struct state *state = node->state;
    return kafka_consumer_start(state->consumer, err);
}

static void kafka_receiver_on_left(void *arg)
{
    br_node_drained(arg);
}

/* At a shutdown, the receiver is drained at once, because the components after the receiver keep
 * its messages until they are drained themselves. The offsets of these messages are committed
 * later. At a reload, the components after the receiver continue to run, so the drain ends only
 * when the consumer has left its group. */
static void kafka_receiver_drain(struct br_node *node)
{
    const struct state *state = node->state;
    bool waits = !node->host->draining;
    kafka_consumer_stop(state->consumer, waits ? kafka_receiver_on_left : NULL, node);
    if (!waits)
        br_node_drained(node);
}

static void kafka_receiver_destroy(struct br_node *node)
{
    const struct state *state = node->state;
    kafka_consumer_free(state->consumer);
}

extern const struct br_component br_kafka_receiver;
const struct br_component br_kafka_receiver = {
    .name = "kafka",
    .kind = BR_RECEIVER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "development",
    .help = "reads requests from Kafka topics",
    .options = options,
    .config_size = sizeof(struct kafka_receiver_config),
    .state_size = sizeof(struct state),
    .check = kafka_receiver_check,
    .create = kafka_receiver_create,
    .start = kafka_receiver_start,
    .drain = kafka_receiver_drain,
    .destroy = kafka_receiver_destroy,
};
