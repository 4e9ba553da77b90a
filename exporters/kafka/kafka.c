/* SPDX-License-Identifier: Apache-2.0 */
/* The kafka exporter: writes requests to topics, as OTLP in protobuf or JSON. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "exporters/kafka/division.h"
#include "exporters/kafka/producer.h"

struct state {
    struct kafka_producer *producer;
    struct br_retry *retry; /* retries each message until it is delivered or rejected */
};

static const char *const encodings[] = {"otlp_proto", "otlp_json", NULL};
static const char *const compressions[] = {"none", "gzip", "snappy", "lz4", "zstd", NULL};
static const char *const hashers[] = {"sarama_compat", "murmur2", NULL};

static const struct br_option traces_options[] = {
    BR_STRING(struct kafka_topic, topic, "otlp_spans", "topic of traces"),
    BR_ENUM(struct kafka_topic, encoding, "otlp_proto", encodings,
            "format of messages: an OTLP request in protobuf or JSON"),
    BR_STRING(struct kafka_topic, topic_from_metadata_key, NULL, "not supported"),
    BR_STRING(struct kafka_topic, message_key_from_metadata_key, NULL, "not supported"),
    BR_OPT_END,
};

static const struct br_option profiles_options[] = {
    BR_STRING(struct kafka_topic, topic, "otlp_profiles", "topic of profiles"),
    BR_ENUM(struct kafka_topic, encoding, "otlp_proto", encodings,
            "format of messages: an OTLP request in protobuf or JSON"),
    BR_STRING(struct kafka_topic, topic_from_metadata_key, NULL, "not supported"),
    BR_STRING(struct kafka_topic, message_key_from_metadata_key, NULL, "not supported"),
    BR_OPT_END,
};

static const struct br_option params_options[] = {
    BR_INT(struct kafka_compression_params, level, 0, -1, 22,
           "compression level; 0: the default level of the algorithm"),
    BR_OPT_END,
};

static const struct br_option producer_options[] = {
    BR_INT(struct kafka_producer_options, max_message_bytes, 1000000, 1000, 1000000000,
           "maximum size of a message in bytes, before compression; larger requests are divided"),
    BR_STRING(struct kafka_producer_options, required_acks, "all",
              "replicas that must store a message: all (or -1), 1 (only the leader) or 0 (none)"),
    BR_ENUM(struct kafka_producer_options, compression, "none", compressions,
            "compression algorithm for batches of messages"),
    BR_STRUCT(struct kafka_producer_options, compression_params, params_options,
              "parameters of the compression"),
    BR_DURATION(struct kafka_producer_options, linger, "10ms",
                "time that a message waits for further messages in the same batch"),
    BR_INT(struct kafka_producer_options, flush_max_messages, 10000, 1, 10000000,
           "maximum number of messages per worker that are not delivered yet"),
    BR_BOOL(struct kafka_producer_options, allow_auto_topic_creation, true,
            "let the brokers create missing topics"),
    BR_IGNORED("max_broker_write_bytes",
               "max_message_bytes already limits the size of requests to brokers"),
    BR_IGNORED("max_inflight_requests_per_broker",
               "the client library sends up to five concurrent requests to a broker"),
    BR_OPT_END,
};

static const struct br_option sticky_options[] = {
    BR_ENUM(struct kafka_sticky_key, hasher, "sarama_compat", hashers,
            "sarama_compat: FNV-1a, the Collector's default; murmur2: the default of Java clients"),
    BR_OPT_END,
};

static const struct br_option round_robin_options[] = {
    BR_OPT_END,
};

static const struct br_option partitioner_options[] = {
    BR_PRESENT(struct kafka_record_partitioner, sticky_key, struct kafka_sticky_key, sticky_options,
               "choose the partition by a hash of the key; absent: by the hash sarama_compat"),
    BR_PRESENT(struct kafka_record_partitioner, round_robin, struct kafka_round_robin,
               round_robin_options, "choose a random partition and ignore the key"),
    BR_VALUE(struct kafka_record_partitioner, least_backup, "not supported"),
    BR_VALUE(struct kafka_record_partitioner, extension, "not supported"),
    BR_OPT_END,
};

#define T struct kafka_exporter_config

static const struct br_option options[] = {
    BR_KAFKA_ROWS(T, client),
    BR_STRUCT(T, traces, traces_options, "topic and format of traces"),
    BR_STRUCT(T, profiles, profiles_options, "topic and format of profiles"),
    BR_IGNORED("logs", "Braid sends no logs"),
    BR_IGNORED("metrics", "Braid sends no metrics"),
    BR_STRINGS(T, include_metadata_keys, "client metadata to send as headers of messages"),
    BR_HEADERS(T, record_headers, "headers to add to every message"),
    BR_BOOL(T, signal_header, false,
            "add the header otelcol.signal, with the value traces or profiles, to every message"),
    BR_STRING(T, topic_from_attribute, NULL, "not supported"),
    BR_IGNORED("partition_logs_by_resource_attributes", "Braid sends no logs"),
    BR_IGNORED("partition_logs_by_trace_id", "Braid sends no logs"),
    BR_IGNORED("partition_metrics_by_resource_attributes", "Braid sends no metrics"),
    BR_BOOL(T, partition_traces_by_id, false,
            "send each trace as a separate message, with the trace id as its key"),
    BR_BOOL(T, partition_profiles_by_trace_id, false,
            "send the samples of each trace as a separate message, with the trace id as its key"),
    BR_STRUCT(T, record_partitioner, partitioner_options, "how keys are mapped to partitions"),
    BR_STRUCT(T, producer, producer_options, "how messages are sent"),
    BR_EXPORTER_OPTIONS(T, common, "5s"),
    BR_OPT_END,
};

/* Returns true if a key is set. The value null counts as not set, because `print-config --defaults`
 * prints unset keys as null. */
static bool kafka_is_present(const struct br_yaml *node)
{
    return node && node->type != BR_YAML_NULL;
}

/* Adds errors for options of the Collector that Braid does not support, which select the topic, the
 * key or the partition. */
static void kafka_exporter_check_lacks(const struct kafka_exporter_config *config,
                                       const struct br_yaml *node, const char *path,
                                       struct br_errs *errs)
{
    const struct {
        const char *block, *key;
        bool present;
    } lacks[] = {
        {"traces", "topic_from_metadata_key", config->traces.topic_from_metadata_key},
        {"traces", "message_key_from_metadata_key", config->traces.message_key_from_metadata_key},
        {"profiles", "topic_from_metadata_key", config->profiles.topic_from_metadata_key},
        {"profiles", "message_key_from_metadata_key",
         config->profiles.message_key_from_metadata_key},
        {"record_partitioner", "least_backup",
         kafka_is_present(config->record_partitioner.least_backup)},
        {"record_partitioner", "extension", kafka_is_present(config->record_partitioner.extension)},
    };
    char at[256];
    for (size_t i = 0; i < BR_COUNT(lacks); i++) {
        (void)snprintf(at, sizeof at, "%s::%s::%s", path, lacks[i].block, lacks[i].key);
        if (lacks[i].present)
            br_errs_lack(errs, br_yaml_get(br_yaml_get(node, lacks[i].block), lacks[i].key), at,
                         "is not supported");
    }
    (void)snprintf(at, sizeof at, "%s::topic_from_attribute", path);
    if (config->topic_from_attribute)
        br_errs_lack(errs, br_yaml_get(node, "topic_from_attribute"), at, "is not supported");
}

static int kafka_exporter_check(void *config, const struct br_yaml *node, const char *path,
                                struct br_arena *arena, struct br_errs *errs)
{
    static const char *const acks[] = {"all", "-1", "0", "1"};
    struct kafka_exporter_config *settings = config;
    size_t before = errs->n_errors;
    bool known = false;
    char at[256];
    (void)arena;
    br_kafka_check(&settings->client, node, path, errs);
    kafka_exporter_check_lacks(settings, node, path, errs);
    for (size_t i = 0; i < BR_COUNT(acks); i++)
        known = known || strcmp(settings->producer.required_acks, acks[i]) == 0;
    (void)snprintf(at, sizeof at, "%s::producer", path);
    if (!known)
        br_errs_add_key(errs, br_yaml_get(node, "producer"), at, "required_acks",
                        "must be all, -1, 0 or 1, got \"%s\"", settings->producer.required_acks);
    if (settings->record_partitioner.sticky_key && settings->record_partitioner.round_robin)
        br_errs_add_key(errs, node, path, "record_partitioner",
                        "must have sticky_key or round_robin, not both");
    (void)br_exporter_check(&settings->common, node, path, errs);
    return errs->n_errors > before ? BR_EINVAL : 0;
}

static const struct br_strings *kafka_exporter_metadata_keys(const void *config)
{
    const struct kafka_exporter_config *settings = config;
    return &settings->include_metadata_keys;
}

static int kafka_exporter_create(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    const struct kafka_exporter_config *config = node->config;
    state->producer = kafka_producer_new(node);
    if (state->producer)
        state->retry = br_retry_new(node, &config->common.retry_on_failure,
                                    kafka_producer_input(state->producer));
    return state->retry ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
}

static int kafka_exporter_start(struct br_node *node, struct br_err *err)
{
    struct state *state = node->state;
    return kafka_producer_start(state->producer, err);
}

static void kafka_exporter_consume(struct br_node *node, struct br_item *item)
{
    const struct state *state = node->state;
    const struct kafka_exporter_config *config = node->config;
    bool divides = item->signal == BR_TRACES ? config->partition_traces_by_id
                                             : config->partition_profiles_by_trace_id;
    if (divides)
        kafka_divide(item, br_retry_input(state->retry));
    else
        br_consume(br_retry_input(state->retry), item);
}

/* Frees the producer, and then the retries. After each of these two steps, one loop iteration runs
 * the callbacks of the items that the step has finished. */
static void kafka_exporter_destroy(struct br_node *node)
{
    struct state *state = node->state;
    kafka_producer_free(state->producer);
    (void)br_host_iterate(node->host);
    br_retry_free(state->retry);
    (void)br_host_iterate(node->host);
}

extern const struct br_component br_kafka_exporter;
const struct br_component br_kafka_exporter = {
    .name = "kafka",
    .kind = BR_EXPORTER,
    .signals = BR_BOTH_SIGNALS,
    .stability = "development",
    .help = "writes requests to Kafka topics",
    .options = options,
    .config_size = sizeof(struct kafka_exporter_config),
    .state_size = sizeof(struct state),
    .exporter_wrapped = true,
    .retries_parts = true,
    .resolves = true,
    .common_at = offsetof(struct kafka_exporter_config, common),
    .metadata_keys = kafka_exporter_metadata_keys,
    .check = kafka_exporter_check,
    .create = kafka_exporter_create,
    .start = kafka_exporter_start,
    .consume = kafka_exporter_consume,
    .destroy = kafka_exporter_destroy,
};
