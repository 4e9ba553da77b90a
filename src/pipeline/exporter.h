/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue, batcher and retries in front of every exporter: sending_queue and retry_on_failure,
 * with the Collector's keys and defaults. An exporter itself makes one attempt for each item and
 * finishes the item.
 */
#pragma once

#include "config/option.h"
#include "pipeline/batch.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"

enum br_sizer { BR_SIZER_REQUESTS, BR_SIZER_ITEMS, BR_SIZER_BYTES };

struct br_queue_partition_config {
    struct br_strings metadata_keys;
    int64_t cache_size; /* largest number of partitions that exist at the same time */
};

struct br_queue_batch_config {
    uint64_t flush_timeout;
    int64_t min_size, max_size;
    int sizer; /* unit of min_size and max_size: index into {"items", "bytes"} */
    struct br_queue_partition_config partition;
};

struct br_queue_config {
    bool enabled;
    /* id of the file_storage extension that stores the queue; NULL: the queue is in memory */
    const char *storage;
    /* not an option; true if a durable queue in front of this queue limits and counts the
     * requests */
    bool behind_storage;
    int64_t num_consumers, queue_size;
    int sizer; /* unit of queue_size, a value of enum br_sizer */
    bool block_on_overflow, wait_for_result;
    struct br_queue_batch_config *batch;
};

struct br_retry_config {
    bool enabled;
    uint64_t initial_interval, max_interval, max_elapsed_time; /* intervals in nanoseconds */
    double randomization_factor, multiplier;
};

/* A member of the config struct of every wrapped exporter (br_component.common_at). */
struct br_exporter_config {
    uint64_t timeout; /* time limit of one attempt, in nanoseconds; 0: no limit */
    struct br_queue_config sending_queue;
    struct br_retry_config retry_on_failure;
};

/* Option tables of sending_queue and retry_on_failure. BR_EXPORTER_OPTIONS(struct x, common,
 * "5s") makes the rows for a struct x whose field `common` is a struct br_exporter_config. */
extern const struct br_option br_queue_options[];
extern const struct br_option br_retry_options[];
/* the same options, but sending_queue and retry_on_failure are not enabled by default */
extern const struct br_option br_queue_options_off[];
extern const struct br_option br_retry_options_off[];
#define BR_EXPORTER_OPTIONS_OFF(type, field)                                                       \
    {.name = "sending_queue",                                                                      \
     .kind = BR_OPT_STRUCT,                                                                        \
     .offset = offsetof(type, field) + offsetof(struct br_exporter_config, sending_queue),         \
     .sub = br_queue_options_off,                                                                  \
     .help = "queue of requests that wait for the exporter"},                                      \
    {                                                                                              \
        .name = "retry_on_failure", .kind = BR_OPT_STRUCT,                                         \
        .offset = offsetof(type, field) + offsetof(struct br_exporter_config, retry_on_failure),   \
        .sub = br_retry_options_off, .help = "retries of requests that failed temporarily"         \
    }
#define BR_EXPORTER_OPTIONS(type, field, timeout_default)                                          \
    {.name = "timeout",                                                                            \
     .kind = BR_OPT_DURATION,                                                                      \
     .offset = offsetof(type, field) + offsetof(struct br_exporter_config, timeout),               \
     .def.string = (timeout_default),                                                              \
     .help = "time limit of one attempt to send a request; 0: no limit"},                          \
        {.name = "sending_queue",                                                                  \
         .kind = BR_OPT_STRUCT,                                                                    \
         .offset = offsetof(type, field) + offsetof(struct br_exporter_config, sending_queue),     \
         .sub = br_queue_options,                                                                  \
         .help = "queue of requests that wait for the exporter"},                                  \
    {                                                                                              \
        .name = "retry_on_failure", .kind = BR_OPT_STRUCT,                                         \
        .offset = offsetof(type, field) + offsetof(struct br_exporter_config, retry_on_failure),   \
        .sub = br_retry_options, .help = "retries of requests that failed temporarily"             \
    }

/* options for struct br_queue_batch_config */
extern const struct br_option br_queue_batch_options[];

/* Completes and checks `batch` of a queue. The sizes in `batch` have the unit of the queue,
 * unless `batch` contains a `sizer`. `node` is the map of the queue's keys at `path`. A queue
 * without `batch` is valid. Returns 0, or BR_EINVAL after adding errors. */
int br_queue_batch_check(const struct br_queue_config *queue, const struct br_yaml *node,
                         const char *path, struct br_errs *errs);

/* Returns the config of the batchers of a queue with `batch`. The batchers acknowledge late if
 * wait_for_result is set, otherwise early. */
struct br_partition_config br_queue_partitions(const struct br_queue_config *queue);

/* Checks conditions that the option tables cannot express. Returns 0, or BR_EINVAL after adding
 * errors. */
int br_exporter_check(struct br_exporter_config *config, const struct br_yaml *node,
                      const char *path, struct br_errs *errs);

/* --- Retry ----------------------------------------------------------------------------------- */

struct br_retry;

/*
 * Returns a consumer that sends each item to `next` until it is done, rejected, or max_elapsed_time
 * is over.
 *
 * An item that `next` rejects as too large for its server (RESOURCE_EXHAUSTED, which exporters use
 * only for that) is divided into halves. The halves are sent one after the other, and divided again
 * if necessary. One bad record of n costs about 2 log2(n) requests. After 2 log2(n) + 2 refusals in
 * a row the largest remaining piece is tried. If that piece is refused as well, each further
 * request waits for the retry delay, until a piece is accepted or max_elapsed_time is over.
 *
 * An item that failed because the server is unreachable (UNAVAILABLE, or no answer in time, without
 * a delay from the server) need not wait for its whole delay. When the server can be reached again
 * (br_retry_reachable), one such item is sent at once. When the server answers it, or answers any
 * item after 5 s without answers, all such items of the signal are sent within a second, at random
 * times. If they fail again, their delays continue to grow.
 *
 * `node` refers to the result (node->retry) until the result is freed. `next` is borrowed. Returns
 * NULL if memory is short.
 */
struct br_retry *br_retry_new(struct br_node *node, const struct br_retry_config *config,
                              struct br_consumer *next);
struct br_consumer *br_retry_input(struct br_retry *retry);

/* Notes that a connection to the server of `node` (struct br_node) was opened, after requests
 * had failed because there was no connection. Sends nothing, so it may be called from a client's
 * callbacks. Has the type of br_client_config.on_reachable. */
void br_retry_reachable(void *node);

/* Makes `retry` try each item until the item is `max_age_ms` milliseconds old (0: without a
 * limit). max_elapsed_time is then not used. Accepts NULL. */
void br_retry_keep(struct br_retry *retry, uint64_t max_age_ms);

/* Ends the waiting items with BR_RETRY and the text `why`. An item that is being sent is not
 * tried again if it fails. Later items are not affected. */
void br_retry_return(struct br_retry *retry, const char *why);

/* Ends the waiting items with BR_RETRY, and later also each item that fails. Accepts NULL. */
void br_retry_stop(struct br_retry *retry);

/* Finishes the items that it still holds with BR_RETRY, and frees the retry. Accepts NULL. */
void br_retry_free(struct br_retry *retry);

/* --- Queue ----------------------------------------------------------------------------------- */

struct br_queue;

/* Returns the size of an item in the unit of the queue's sizer. */
size_t br_queue_size_of(const struct br_queue_config *config, const struct br_item *item);

/* Returns a queue in front of `next`. If the config does not enable the queue, it only counts
 * the items. */
struct br_queue *br_queue_new(struct br_node *node, const struct br_queue_config *config,
                              struct br_consumer *next);
struct br_consumer *br_queue_input(struct br_queue *queue);

/* Makes the queue call `fn` before and after it passes an item to the next consumer. Used by a
 * durable queue in front of this queue, which identifies the item by the item's parent. */
void br_queue_watch(struct br_queue *queue,
                    void (*fn)(void *arg, const struct br_item *item, bool begins), void *arg);

/* Sends the held items and accepts no further items. Calls `on_empty` when no items are held. */
void br_queue_drain(struct br_queue *queue, void (*on_empty)(void *arg), void *arg);
void br_queue_close(struct br_queue *queue); /* Stops sending and accepting items. */
/* Drops the items that are still held, with the reason "shutdown". */
void br_queue_drop(struct br_queue *queue);
void br_queue_free(struct br_queue *queue);

/* --- Counting -------------------------------------------------------------------------------- */

/* The metrics otelcol_exporter_sent_* and otelcol_exporter_send_failed_*. The queue counts them;
 * exporters without a queue count them themselves. */
struct br_exporter_counts {
    double *sent[BR_SIGNALS], *failed[BR_SIGNALS];
};

void br_exporter_counts_init(struct br_exporter_counts *counts, struct br_node *node);
