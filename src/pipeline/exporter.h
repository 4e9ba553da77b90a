/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue, batcher and retries in front of every exporter: sending_queue and retry_on_failure,
 * with the Collector's keys and defaults. An exporter itself makes one attempt per item and
 * finishes it.
 */
#pragma once

#include "config/option.h"
#include "pipeline/batch.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"
#include "pipeline/partition.h"

enum br_sizer { BR_SIZER_REQUESTS, BR_SIZER_ITEMS, BR_SIZER_BYTES };

struct br_queue_partition_config {
    struct br_strings metadata_keys;
    int64_t cache_size; /* most partitions at once */
};

struct br_queue_batch_config {
    uint64_t flush_timeout;
    int64_t min_size, max_size;
    int sizer; /* index into {"items", "bytes"} */
    struct br_queue_partition_config partition;
};

struct br_queue_config {
    bool enabled;
    int64_t num_consumers, queue_size;
    int sizer; /* enum br_sizer */
    bool block_on_overflow, wait_for_result;
    struct br_queue_batch_config *batch;
};

struct br_retry_config {
    bool enabled;
    uint64_t initial_interval, max_interval, max_elapsed_time; /* ns */
    double randomization_factor, multiplier;
};

/* A member of every wrapped exporter's config struct (br_component.common_at). */
struct br_exporter_config {
    uint64_t timeout; /* ns, of one attempt */
    struct br_queue_config sending_queue;
    struct br_retry_config retry_on_failure;
};

/* Tables of the two blocks; rows for a struct that has `field` of struct br_exporter_config:
 * BR_EXPORTER_OPTIONS(struct x, common, "5s"). */
extern const struct br_option br_queue_options[];
extern const struct br_option br_retry_options[];
extern const struct br_option br_queue_options_off[]; /* the same, not enabled by default */
extern const struct br_option br_retry_options_off[];
#define BR_EXPORTER_OPTIONS_OFF(type, field)                                                       \
    {.name = "sending_queue",                                                                      \
     .kind = BR_OPT_STRUCT,                                                                        \
     .offset = offsetof(type, field) + offsetof(struct br_exporter_config, sending_queue),         \
     .sub = br_queue_options_off,                                                                  \
     .help = "queue in front of the exporter"},                                                    \
    {                                                                                              \
        .name = "retry_on_failure", .kind = BR_OPT_STRUCT,                                         \
        .offset = offsetof(type, field) + offsetof(struct br_exporter_config, retry_on_failure),   \
        .sub = br_retry_options_off, .help = "trying again what failed for now"                    \
    }
#define BR_EXPORTER_OPTIONS(type, field, timeout_default)                                          \
    {.name = "timeout",                                                                            \
     .kind = BR_OPT_DURATION,                                                                      \
     .offset = offsetof(type, field) + offsetof(struct br_exporter_config, timeout),               \
     .def.string = (timeout_default),                                                              \
     .help = "time limit of one attempt; 0: none"},                                                \
        {.name = "sending_queue",                                                                  \
         .kind = BR_OPT_STRUCT,                                                                    \
         .offset = offsetof(type, field) + offsetof(struct br_exporter_config, sending_queue),     \
         .sub = br_queue_options,                                                                  \
         .help = "queue in front of the exporter"},                                                \
    {                                                                                              \
        .name = "retry_on_failure", .kind = BR_OPT_STRUCT,                                         \
        .offset = offsetof(type, field) + offsetof(struct br_exporter_config, retry_on_failure),   \
        .sub = br_retry_options, .help = "trying again what failed for now"                        \
    }

extern const struct br_option br_queue_batch_options[]; /* of struct br_queue_batch_config */

/* Completes and checks `batch` of a queue: its sizes are in the queue's unit unless it has a
 * `sizer`. `node` is the map of the queue's keys at `path`. A queue without `batch` is valid.
 * Returns 0 or BR_EINVAL with errors added. */
int br_queue_batch_check(const struct br_queue_config *queue, const struct br_yaml *node,
                         const char *path, struct br_errs *errs);

/* Returns the config of the batchers of a queue, which has `batch`. They acknowledge late if it has
 * wait_for_result, otherwise early. */
struct br_partition_config br_queue_partitions(const struct br_queue_config *queue);

/* Checks what the tables cannot. Returns 0 or BR_EINVAL with errors added. */
int br_exporter_check(struct br_exporter_config *config, const struct br_yaml *node,
                      const char *path, struct br_errs *errs);

/* --- Retry ----------------------------------------------------------------------------------- */

struct br_retry;

/*
 * Sends each item to `next` until it is done, rejected, or max_elapsed_time is over. What `next`
 * rejects as too large for its peer (RESOURCE_EXHAUSTED, which exporters say of nothing else) is
 * halved, and the halves are sent one after the other, each halved again where it has to be. So one
 * thing among n that is at fault costs about 2 log2(n) requests. After 2 log2(n) + 2 refusals in a
 * row the largest piece that is left is tried; when that is refused too, each further request waits
 * for a delay of its own, until something is taken or max_elapsed_time is over.
 *
 * What failed because the peer is not there (UNAVAILABLE, or no answer in time, without a delay of
 * the peer's own) does not wait for all of its delay once the peer is: when it can be reached again
 * (br_retry_reachable), one item is sent at once. When that, or any other after 5 s without, is
 * answered, all such items of its signal are sent within a second, spread by chance. Their delays
 * go on growing where they were.
 *
 * It is the node's (node->retry) until it is freed. `next` is borrowed. NULL: no memory.
 */
struct br_retry *br_retry_new(struct br_node *node, const struct br_retry_config *config,
                              struct br_consumer *next);
struct br_consumer *br_retry_input(struct br_retry *retry);

/* Notes that a connection to the peer of `node` (struct br_node) came about after what was sent
 * before had failed for want of one. Sends nothing itself: it may be called from a client's
 * callbacks. Fits br_client_config.on_reachable. */
void br_retry_reachable(void *node);

void br_retry_free(struct br_retry *retry); /* items still held are finished with BR_RETRY */

/* --- Queue ----------------------------------------------------------------------------------- */

struct br_queue;

/* Returns a queue in front of `next`, also when it is not enabled (then it only counts). */
struct br_queue *br_queue_new(struct br_node *node, const struct br_queue_config *config,
                              struct br_consumer *next);
struct br_consumer *br_queue_input(struct br_queue *queue);

/* Takes nothing new and sends on what is held; `on_empty` is called once nothing is held. */
void br_queue_drain(struct br_queue *queue, void (*on_empty)(void *arg), void *arg);
void br_queue_close(struct br_queue *queue); /* sends and takes nothing any more */
void br_queue_drop(struct br_queue *queue);  /* drops what is still held, for "shutdown" */
void br_queue_free(struct br_queue *queue);

/* --- Counting -------------------------------------------------------------------------------- */

/* otelcol_exporter_sent_* and otelcol_exporter_send_failed_*: counted by the queue, and by
 * exporters that have none. */
struct br_exporter_counts {
    double *sent[BR_SIGNALS], *failed[BR_SIGNALS];
};

void br_exporter_counts_init(struct br_exporter_counts *counts, struct br_node *node);
