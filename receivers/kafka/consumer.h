/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer of the `kafka` receiver. Each worker has one consumer, which is a member of the
 * consumer group.
 *
 * The consumer converts each message to an item. The offset of a message is committed when this
 * message and all earlier messages of its partition are finished: delivered or rejected. If the
 * pipeline refuses a message, the consumer keeps the message and sends it again. The partition of
 * the message is paused meanwhile.
 *
 * When the messages in the pipeline reach a memory limit, the consumer takes no further messages.
 * If the limit is exceeded for longer than a second, the consumer pauses all partitions. After
 * that, it can process the group's events again without receiving messages.
 *
 * Before the consumer releases a partition for another member, it waits a few seconds until the
 * messages of the partition are finished.
 */
#pragma once

#include "ingest/otlp.h"
#include "kafka/kafka.h"

enum kafka_receiver_encoding { KAFKA_READS_PROTO, KAFKA_READS_JSON };

struct kafka_topics {
    struct br_strings topics, exclude_topics;
    const char *topic; /* older option that names one topic; NULL: absent */
    int encoding;      /* value of enum kafka_receiver_encoding */
};

struct kafka_autocommit {
    bool enable;
    uint64_t interval; /* in nanoseconds */
};

struct kafka_extraction {
    /* must be false, because copying headers into resource attributes is not supported */
    bool extract_headers;
    struct br_strings headers;
};

struct kafka_marking {
    bool after, on_error, on_permanent_error;
};

struct kafka_receiver_config {
    struct br_kafka_config client;
    const char *group_id, *group_instance_id;
    int initial_offset; /* index into the list latest, earliest */
    uint64_t session_timeout, heartbeat_interval, max_fetch_wait; /* in nanoseconds */
    struct br_strings strategies;
    const char *strategy; /* older option that names one strategy; NULL: absent */
    int64_t min_fetch_size, max_fetch_size, max_partition_fetch_size;
    struct kafka_topics traces, profiles;
    struct kafka_autocommit autocommit;
    struct kafka_marking message_marking;
    struct kafka_extraction header_extraction;
};

/* --- Partitions (partition.c) ------------------------------------------------------------------
 */

enum kafka_message_state {
    KAFKA_IN_PIPELINE, /* the message is being decoded, or its item is in the pipeline */
    KAFKA_WAITS,       /* the pipeline refused the message, which its timer will send again */
    KAFKA_ENDED, /* finished: the offset can be committed when all earlier messages are finished */
};

struct kafka_consumer;

struct kafka_partition {
    struct br_list link;
    struct br_list messages; /* list of struct kafka_message, ordered by offset */
    enum br_signal signal;
    int32_t number;
    /* number of messages in KAFKA_IN_PIPELINE and in KAFKA_WAITS */
    unsigned n_in_pipeline, n_waiting;
    bool paused;
    bool revoked; /* another member will get the partition; no more messages are taken from it */
    char topic[]; /* NUL-terminated name */
};

struct kafka_message {
    struct br_list link; /* link in kafka_partition.messages or kafka_consumer.orphans */
    struct kafka_consumer *consumer;
    struct kafka_partition *partition; /* NULL: another member has got the partition */
    int64_t offset;
    enum br_signal signal;
    enum kafka_message_state state;
    struct br_buf *body;
    char *metadata; /* client metadata for the item; NULL: none */
    struct br_item *item;
    /* the thread's job while a thread decodes the body, otherwise NULL */
    struct br_reading_task *reading;
    struct br_timer timer;
    uint64_t delay_ms; /* delay before the message is sent again; 0: never refused */
};

/* Returns a new partition without messages, or NULL if memory is short. */
struct kafka_partition *kafka_partition_new(const char *topic, int32_t number,
                                            enum br_signal signal);

/* Returns the partition with this topic and number from a list, or NULL if the list does not
 * contain it. */
struct kafka_partition *kafka_partition_find(const struct br_list *partitions, const char *topic,
                                             int32_t number);

/* Removes and frees the finished messages at the beginning of the partition's list. Returns the
 * offset after the last removed message, or -1 if no message was removed. */
int64_t kafka_partition_advance(struct kafka_partition *partition);

/* Removes the partition from its list and frees it. Messages that are in the pipeline are moved to
 * `orphans`; all others are freed. */
void kafka_partition_free(struct kafka_partition *partition, struct br_list *orphans);

/* Removes a message from its list and frees it. */
void kafka_message_free(struct kafka_message *message);

/* --- Consumer (consumer.c) ---------------------------------------------------------------------
 */

struct kafka_consumer *kafka_consumer_new(struct br_node *node);

/* Checks the settings of librdkafka. Joins the consumer group, except in `braid validate`, which
 * only checks the config. Returns 0, or BR_EINVAL or BR_ENOMEM with a message in `err`. */
int kafka_consumer_start(struct kafka_consumer *consumer, struct br_err *err);

/* Stops taking messages. When the messages in the pipeline are finished, the consumer commits their
 * offsets, leaves the group and calls `on_left(arg)`, unless `on_left` is NULL. `on_left` is called
 * after 4 s at the latest. */
void kafka_consumer_stop(struct kafka_consumer *consumer, void (*on_left)(void *arg), void *arg);

/* Commits the offsets of the finished messages, leaves the consumer group, ends the threads of
 * librdkafka, and frees the consumer. Waits for the brokers for at most a second. Accepts NULL. */
void kafka_consumer_free(struct kafka_consumer *consumer);
