/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue, batcher and retries in front of every exporter. This file implements sending_queue and
 * retry_on_failure, with the keys and defaults of the Collector. The exporter itself tries to send
 * each item once, and finishes it.
 */
#pragma once

#include "config/option.h"
#include "pipeline/batch.h"
#include "pipeline/component.h"
#include "pipeline/fanout.h"

enum br_sizer { BR_SIZER_REQUESTS, BR_SIZER_ITEMS, BR_SIZER_BYTES };

struct br_queue_partition_config {
    struct br_strings metadata_keys;
    int64_t cache_size; /* maximum number of partitions that exist at the same time */
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
    /* Not an option. True if a durable queue is in front of this queue; the durable queue then
     * limits and counts the requests. */
    bool behind_storage;
    int64_t num_consumers, queue_size;
    int sizer; /* unit of queue_size, a value of enum br_sizer */
    bool block_on_overflow, wait_for_result;
    struct br_queue_batch_config *batch;
};

struct br_retry_config {
    bool enabled;
    uint64_t initial_interval, max_interval, max_elapsed_time; /* in nanoseconds */
    double randomization_factor, multiplier;
};

/* Settings that all exporters share. Embedded in the config struct of every wrapped exporter, at
 * br_component.common_at. */
struct br_exporter_config {
    uint64_t timeout; /* time limit of one attempt, in nanoseconds; 0: no limit */
    struct br_queue_config sending_queue;
    struct br_retry_config retry_on_failure;
};

/* Option tables of sending_queue and retry_on_failure. BR_EXPORTER_OPTIONS(struct x, common, "5s")
 * expands to the option rows for a config struct x that embeds a struct br_exporter_config in the
 * field `common`. */
extern const struct br_option br_queue_options[];
extern const struct br_option br_retry_options[];
/* the same options, with sending_queue and retry_on_failure disabled by default */
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

/* Completes and checks the `batch` section of a queue. Without a `sizer` in `batch`, its sizes have
 * the unit of the queue. `node` is the YAML map of the queue, at the config path `path`. A queue
 * without `batch` is valid. Returns 0, or BR_EINVAL after adding errors to `errs`. */
int br_queue_batch_check(const struct br_queue_config *queue, const struct br_yaml *node,
                         const char *path, struct br_errs *errs);

/* Returns the config of the batchers of a queue with `batch`. The batchers use late acknowledgement
 * if wait_for_result is set, and early acknowledgement otherwise. */
struct br_partition_config br_queue_partitions(const struct br_queue_config *queue);

/* Checks conditions that the option tables cannot express. Returns 0, or BR_EINVAL after adding
 * errors to `errs`. */
int br_exporter_check(struct br_exporter_config *config, const struct br_yaml *node,
                      const char *path, struct br_errs *errs);

/* --- Retry ----------------------------------------------------------------------------------- */

struct br_retry;

/*
 * Returns a struct br_retry, which sends each item to `next` repeatedly until the item is accepted
 * or rejected, or until max_elapsed_time has passed.
 *
 * If `next` rejects an item as too large for the server, the item is divided into halves. Exporters
 * report this case with RESOURCE_EXHAUSTED, and use that status for nothing else. The halves are
 * sent one after the other, and divided again if necessary. A single oversized record among n
 * causes about 2 log2(n) requests. After 2 log2(n) + 2 refusals in a row, the largest remaining
 * piece is tried. If this piece is refused too, each further request waits for the retry delay,
 * until a piece is accepted or max_elapsed_time has passed.
 *
 * A server is considered unreachable if an item fails with UNAVAILABLE or a timeout, and the server
 * has not requested a delay. After such a failure, the item can be retried before its delay has
 * passed. When a connection to the server succeeds again (br_retry_reachable), one of the failed
 * items is sent at once. If the server answers this item, or answers any item after 5 s without
 * answers, all waiting items of the signal are sent within one second, at random times. If these
 * items fail again, their delays continue to grow.
 *
 * Sets node->retry to the result, until br_retry_free is called. `next` is borrowed. Returns NULL
 * if memory is short.
 */
struct br_retry *br_retry_new(struct br_node *node, const struct br_retry_config *config,
                              struct br_consumer *next);
struct br_consumer *br_retry_input(struct br_retry *retry);

/* Reports that a connection to the server was opened, after requests had failed for lack of a
 * connection. `node` is a struct br_node; the function has the type of
 * br_client_config.on_reachable. Only arms timers, so a client may call it in a callback. */
void br_retry_reachable(void *node);

/* Makes `retry` retry each item until the item is `max_age_ms` milliseconds old, or without a limit
 * if `max_age_ms` is 0. max_elapsed_time is then not used. Accepts NULL. */
void br_retry_keep(struct br_retry *retry, uint64_t max_age_ms);

/* Ends the waiting items with BR_RETRY and the text `why`. Items that are being sent now are not
 * retried if they fail. Items that arrive later are not affected. */
void br_retry_return(struct br_retry *retry, const char *why);

/* Stops all retries. The waiting items end with BR_RETRY at once, and each item that fails later
 * ends with its first failure. Accepts NULL. */
void br_retry_stop(struct br_retry *retry);

/* Finishes the remaining items with BR_RETRY, and frees `retry`. Accepts NULL. */
void br_retry_free(struct br_retry *retry);

/* --- Queue ----------------------------------------------------------------------------------- */

struct br_queue;

/* Returns the size of an item in the unit of the queue's sizer. */
size_t br_queue_size_of(const struct br_queue_config *config, const struct br_item *item);

/* Returns a queue in front of `next`. If the config disables the queue, items pass through and are
 * only counted. */
struct br_queue *br_queue_new(struct br_node *node, const struct br_queue_config *config,
                              struct br_consumer *next);
struct br_consumer *br_queue_input(struct br_queue *queue);

/* Makes the queue call `fn` immediately before and after it passes an item to the next consumer. A
 * durable queue uses this to record which request is being processed. */
void br_queue_watch(struct br_queue *queue,
                    void (*fn)(void *arg, const struct br_item *item, bool begins), void *arg);

/* Sends the held items, and calls `on_empty` when no items are held. */
void br_queue_drain(struct br_queue *queue, void (*on_empty)(void *arg), void *arg);
void br_queue_close(struct br_queue *queue); /* Stops sending and accepting items. */
/* Drops the items that are still held, with the reason "shutdown". */
void br_queue_drop(struct br_queue *queue);
void br_queue_free(struct br_queue *queue);

/* --- Counting -------------------------------------------------------------------------------- */

/* The metrics otelcol_exporter_sent_* and otelcol_exporter_send_failed_*. The queue updates them;
 * exporters without a queue must do this themselves. */
struct br_exporter_counts {
    double *sent[BR_SIGNALS], *failed[BR_SIGNALS];
};

void br_exporter_counts_init(struct br_exporter_counts *counts, struct br_node *node);
