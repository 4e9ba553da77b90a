/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batcher combines items into batches, for the `batch` processor and `sending_queue::batch`.
 * Traces are concatenated. Profiles are merged, so that they share one dictionary.
 *
 * Early acknowledgement: an item is finished as BR_DONE as soon as its data was added to the
 * gathered data. From then on the batcher is responsible for the data. A refused batch is kept and
 * retried. A rejected batch is dropped, counted and logged. No further batch is sent while
 * BR_BATCH_KEPT_MAX refused batches are kept, or while BR_BATCH_OUT_MAX sent batches have no
 * outcome. While no batch can be sent, the batcher gathers data up to min_size, but at least up to
 * BR_BATCH_WAIT_RECORDS or BR_BATCH_WAIT_BYTES. Above this limit, items are refused.
 *
 * Late acknowledgement: an item is finished with the outcome of its batch. If some records of the
 * batch were rejected, their number is divided among the items in proportion to the items' records.
 * The batches are marked with BR_SENDER_WAITS, so components downstream know that senders wait for
 * the outcome.
 *
 * A batch with late acknowledgement can be divided into pieces. If a piece is refused while other
 * pieces are being sent, or after another piece was accepted, it is retried for up to
 * BR_BATCH_RETRY_MS. If the piece is still refused then, its records are reported as rejected in a
 * partial success. If no piece is accepted and no other piece is being sent, all items are refused
 * at once.
 *
 * If an item does not fit into the gathered data, the gathered data is sent first. An item that
 * does not fit into an empty batch is rejected. With early acknowledgement, a last piece that is
 * smaller than min_size is not sent, but becomes the start of the next batch. The pieces of a batch
 * may repeat data that they share. If the total size of the pieces would exceed four times the size
 * of the batch plus 1 MiB, the batch is sent undivided.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "config/option.h"
#include "pipeline/component.h"

#define BR_BATCH_KEPT_MAX 4
#define BR_BATCH_RETRY_MS 10000
#define BR_BATCH_OUT_MAX 16
#define BR_BATCH_WAIT_RECORDS 8192
#define BR_BATCH_WAIT_BYTES (8u << 20)

/* Names of a batcher's metrics. A metric whose name is NULL is not created. */
struct br_batch_metrics {
    /* histograms of the size of sent batches, in records and in bytes */
    const char *sizes, *sizes_bytes;
    /* counters of batches that were sent because they reached min_size, and because of the
     * timeout */
    const char *by_size, *by_timeout;
};

struct br_batch_config {
    /* maximum time in milliseconds for which data is gathered; 0: data is sent at once */
    uint64_t timeout_ms;
    /* size at which the gathered data is sent; 0: data of any size is sent at once */
    size_t min_size;
    size_t max_size; /* maximum size of a batch; larger batches are divided; 0: no limit */
    /* min_size and max_size are in bytes of the encoded data (true), or in records (false) */
    bool bytes;
    bool late; /* true: late acknowledgement; false: early acknowledgement */
    /* With late acknowledgement: retry a refused piece of a batch while other pieces are being
     * sent, or after another piece was accepted. */
    bool again;
    /* the next component retries by itself, so a batch that it finishes with BR_RETRY is dropped */
    bool final;
    /* client metadata for every batch, encoded as in br_item.metadata but without the terminating
     * empty name; copied by br_batcher_new */
    const char *metadata;
    size_t metadata_len; /* length of `metadata` in bytes; 0: no metadata */
    /* Sum to which the batcher adds the weight (br_item.weight) of the data that it gathers or
     * sends, and from which it subtracts the weight when the data has an outcome. NULL: not
     * used. */
    size_t *weight;
    /* names of the metrics; NULL: the batcher has no metrics */
    const struct br_batch_metrics *metrics;
    /* profiles: maximum size in bytes of the merged data, at most 256 MiB; 0: 256 MiB */
    size_t merge_bytes;
};

struct br_batcher;

/* Returns a batcher for one signal that sends batches to `next` (borrowed). Returns NULL if
 * memory is short. */
struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next);

/* Adds an item to the gathered data. Takes ownership of the item, like br_consumer.consume. */
void br_batcher_add(struct br_batcher *batcher, struct br_item *item);

/* Sends the gathered data now, even if it is smaller than min_size. */
void br_batcher_flush(struct br_batcher *batcher);

/* Returns true if the batcher has no gathered data and no batches that are being sent or
 * retried. */
bool br_batcher_idle(const struct br_batcher *batcher);

/* Makes the batcher call `fn` with `arg` whenever a batch has ended. `fn` may call br_batcher_idle.
 * NULL removes the function. */
void br_batcher_on_end(struct br_batcher *batcher, void (*fn)(void *arg), void *arg);

/* Frees the batcher and drops its data, with the reason "shutdown". Accepts NULL. */
void br_batcher_free(struct br_batcher *batcher);

/* --- Partitions (partition.c) ----------------------------------------------------------------- */

/*
 * A struct br_partitions has a separate batcher for each group of items that may be combined. These
 * items are never in the same batch:
 *
 * - traces and profiles,
 * - items whose sender waits for the delivery, and items whose sender does not,
 * - items with different values of the configured client metadata.
 *
 * A batch gets the configured client metadata of its items. There are at most `limit` batchers. At
 * the limit, a new batcher replaces an idle one. If no batcher is idle, items that need a new
 * batcher are refused.
 */

struct br_partitions;

struct br_partition_config {
    struct br_batch_config batch; /* config of each batcher; its `metadata` is not used */
    /* Keys of client metadata, compared without case. Items with different values of the keys get
     * separate batchers. Must outlive the partitions. */
    const struct br_strings *keys;
    size_t limit;
};

/* Returns partitions that send to `next` (borrowed), or NULL if memory is short. */
struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next);

/* Adds an item to the batcher of its partition. Takes ownership of the item, like
 * br_consumer.consume. */
void br_partitions_add(struct br_partitions *partitions, struct br_item *item);

/* br_partitions_flush, br_partitions_idle and br_partitions_on_end apply br_batcher_flush,
 * br_batcher_idle and br_batcher_on_end to all batchers. br_partitions_weight returns the total
 * br_item.weight of a signal's data in all batchers. br_partitions_count returns the number of
 * batchers. */
void br_partitions_flush(struct br_partitions *partitions);
bool br_partitions_idle(const struct br_partitions *partitions);
size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal);
void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg);
size_t br_partitions_count(const struct br_partitions *partitions);

/* Frees all batchers and drops their data, with the reason "shutdown". Accepts NULL. */
void br_partitions_free(struct br_partitions *partitions);
