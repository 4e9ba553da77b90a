/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The producer of the `kafka` exporter. The producer makes one attempt to send an item as one
 * message. The outcome of the item is the delivery result that the broker reports.
 */
#pragma once

#include "kafka/kafka.h"
#include "pipeline/exporter.h"

enum kafka_encoding { KAFKA_OTLP_PROTO, KAFKA_OTLP_JSON };

struct kafka_topic {
    const char *topic;
    int encoding; /* value of enum kafka_encoding */
    /* options that Braid does not support; NULL: absent */
    const char *topic_from_metadata_key, *message_key_from_metadata_key;
};

struct kafka_compression_params {
    int64_t level; /* compression level; 0: the default level of the algorithm */
};

struct kafka_producer_options {
    int64_t max_message_bytes, flush_max_messages;
    const char *required_acks; /* "all", "-1", "0" or "1" */
    int compression;           /* index into the list none, gzip, snappy, lz4, zstd */
    struct kafka_compression_params compression_params;
    uint64_t linger; /* in nanoseconds */
    bool allow_auto_topic_creation;
};

struct kafka_sticky_key {
    int hasher; /* index into the list sarama_compat, murmur2 */
};

struct kafka_round_robin {
    bool enabled; /* not used: only the presence of the block matters */
};

struct kafka_record_partitioner {
    struct kafka_sticky_key *sticky_key;   /* NULL: absent */
    struct kafka_round_robin *round_robin; /* NULL: absent */
    /* options that Braid does not support; NULL: absent */
    const struct br_yaml *least_backup, *extension;
};

struct kafka_exporter_config {
    struct br_kafka_config client;
    struct kafka_topic traces, profiles;
    bool partition_traces_by_id, partition_profiles_by_trace_id;
    struct kafka_record_partitioner record_partitioner;
    struct br_strings include_metadata_keys;
    struct br_headers record_headers;
    bool signal_header;
    const char *topic_from_attribute; /* an option that Braid does not support; NULL: absent */
    struct kafka_producer_options producer;
    struct br_exporter_config common;
};

struct kafka_producer;

/* Creates the producer of a node. The node's config must be a struct kafka_exporter_config. Returns
 * NULL if memory is short. */
struct kafka_producer *kafka_producer_new(struct br_node *node);

/* Checks the settings of librdkafka. Starts the threads of librdkafka, except in `braid validate`,
 * which only checks the config. Returns 0, or BR_EINVAL or BR_ENOMEM with a message in `err`. */
int kafka_producer_start(struct kafka_producer *producer, struct br_err *err);

/* Returns the consumer that makes one attempt to send an item and then finishes the item. */
struct br_consumer *kafka_producer_input(struct kafka_producer *producer);

/* Ends the threads of librdkafka, finishes the pending items with BR_RETRY, and frees the producer.
 * Accepts NULL. */
void kafka_producer_free(struct kafka_producer *producer);
