/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer of the receiver `kafka`: one member of a consumer group for each worker.
 *
 * A message becomes an item. The offset after a message is committed when that message and all
 * earlier messages of its partition have ended: delivered, stored in a durable queue, or rejected.
 * A message that the pipeline refuses is kept and sent again; its partition is paused meanwhile.
 *
 * When the messages in the pipeline reach a limit, no further message is taken. If that lasts,
 * all partitions are paused, so that the group's events are still served.
 *
 * Before a partition is given to another member, the consumer waits a few seconds until the
 * messages of that partition have ended.
 */
#pragma once

#include "ingest/otlp.h"
#include "kafka/kafka.h"

enum kafka_receiver_encoding { KAFKA_READS_PROTO, KAFKA_READS_JSON };

struct kafka_topics {
    struct br_strings topics, exclude_topics;
    const char *topic; /* older key for one topic; NULL: absent */
    int encoding;      /* value of enum kafka_receiver_encoding */
};

struct kafka_autocommit {
    bool enable;
    uint64_t interval; /* in nanoseconds */
};

struct kafka_extraction {
    bool extract_headers; /* must be false: headers are not copied into resource attributes */
    struct br_strings headers;
};

struct kafka_marking {
    bool after, on_error, on_permanent_error;
};

struct kafka_receiver_config {
    struct br_kafka_config client;
    const char *group_id, *group_instance_id;
    int initial_offset;                                           /* index into latest, earliest */
    uint64_t session_timeout, heartbeat_interval, max_fetch_wait; /* in nanoseconds */
    struct br_strings strategies;
    const char *strategy; /* older key for one strategy; NULL: absent */
    int64_t min_fetch_size, max_fetch_size, max_partition_fetch_size;
    struct kafka_topics traces, profiles;
    struct kafka_autocommit autocommit;
    struct kafka_marking message_marking;
    struct kafka_extraction header_extraction;
};

/* --- Partitions (partition.c) ------------------------------------------------------------------
 */

enum kafka_message_state {
    KAFKA_IN_PIPELINE, /* the message is being read, or its item is in the pipeline */
    KAFKA_WAITS,       /* the pipeline refused the message; its timer sends it again */
    KAFKA_ENDED,       /* the offset can be committed when all earlier messages have ended */
};

struct kafka_consumer;

struct kafka_partition {
    struct br_list link;
    struct br_list messages; /* list of struct kafka_message in the order of their offsets */
    enum br_signal signal;
    int32_t number;
    unsigned n_in_pipeline, n_waiting; /* numbers of messages in these states */
    bool paused;
    bool revoked; /* another member will get the partition; no message is taken */
    char topic[]; /* NUL-terminated name */
};

struct kafka_message {
    struct br_list link; /* in kafka_partition.messages or kafka_consumer.orphans */
    struct kafka_consumer *consumer;
    struct kafka_partition *partition; /* NULL after the partition was given away */
    int64_t offset;
    enum br_signal signal;
    enum kafka_message_state state;
    struct br_buf *body;
    char *metadata; /* client metadata for the item; NULL: none */
    struct br_item *item;
    struct br_reading_task *reading; /* NULL unless a thread reads the body */
    struct br_timer timer;
    uint64_t delay_ms; /* pause before the message is sent again */
};

/* Returns a new partition without messages. Returns NULL if memory is short. */
struct kafka_partition *kafka_partition_new(const char *topic, int32_t number,
                                            enum br_signal signal);

/* Returns the partition of a list, or NULL. */
struct kafka_partition *kafka_partition_find(const struct br_list *partitions, const char *topic,
                                             int32_t number);

/* Removes the messages at the beginning that have ended, and frees them. Returns the offset after
 * the last removed message, or -1 if there is none. */
int64_t kafka_partition_advance(struct kafka_partition *partition);

/* Removes the partition from its list and frees it. Messages that are in the pipeline are moved to
 * `orphans`; all others are freed. */
void kafka_partition_free(struct kafka_partition *partition, struct br_list *orphans);

/* Removes a message from its list and frees it. */
void kafka_message_free(struct kafka_message *message);

/* --- Consumer (consumer.c) ---------------------------------------------------------------------
 */

struct kafka_consumer *kafka_consumer_new(struct br_node *node);

/* Checks the settings of the client library and, unless the host only checks, joins the group.
 * Returns 0, or BR_EINVAL or BR_ENOMEM with a message in `err`. */
int kafka_consumer_start(struct kafka_consumer *consumer, struct br_err *err);

/* Takes no further messages. Messages in the pipeline continue, and their offsets are committed.
 * Then the consumer leaves the group and calls `on_left(arg)`, unless `on_left` is NULL. */
void kafka_consumer_stop(struct kafka_consumer *consumer, void (*on_left)(void *arg), void *arg);

/* Commits the offsets of the messages that have ended, leaves the group and ends the threads of
 * the client library. Waits for the brokers for at most a second. Accepts NULL. */
void kafka_consumer_free(struct kafka_consumer *consumer);
