/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batcher combines items into batches, for the `batch` processor and `sending_queue::batch`.
 * Traces are concatenated, profiles merged into one dictionary.
 *
 * Early acknowledgement: an item is done as soon as its data is in the gathered batch. From then on
 * the batcher is responsible for the data. A batch that is refused is kept and retried. A batch
 * that is rejected is dropped, counted and logged. No further batch is sent while BR_BATCH_KEPT_MAX
 * refused batches are kept, or while BR_BATCH_OUT_MAX batches are under way. Meanwhile data is
 * gathered until it has the size of a batch (at least BR_BATCH_WAIT_RECORDS or
 * BR_BATCH_WAIT_BYTES); further items are refused.
 *
 * Late acknowledgement: an item ends when its batch ends, with the outcome of the batch. A partial
 * rejection is divided among the items in proportion to their records. Components downstream see
 * that the sender waits (BR_SENDER_WAITS).
 *
 * A late batch can be divided into pieces. A piece that is refused while others are under way, or
 * after others were accepted, is retried for BR_BATCH_RETRY_MS. After that it is the rejected part
 * of a success. If no piece was accepted, the senders are informed at once.
 *
 * If the gathered data has no space for an item, the data is sent first. An item for which an empty
 * batch has no space is rejected. With early acknowledgement, a last piece that is smaller than
 * min_size stays, and is sent with the next data or after the timeout. The pieces of a batch take
 * at most four times its bytes plus 1 MiB; if they would repeat more, the batch is sent as a whole.
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

/* Names of a batcher's metrics. A metric whose name is NULL does not exist. */
struct br_batch_metrics {
    /* histograms of the sent batches: number of records, and number of bytes */
    const char *sizes, *sizes_bytes;
    /* counters of batches sent because they reached min_size, and because of the timeout */
    const char *by_size, *by_timeout;
};

struct br_batch_config {
    /* longest time in milliseconds that data is gathered; 0: data is sent at once */
    uint64_t timeout_ms;
    /* gathered data of at least this size is sent; 0: data of any size is sent at once */
    size_t min_size;
    size_t max_size; /* larger batches are divided; 0: no limit */
    bool bytes;      /* unit of both sizes: true: bytes on the wire; false: records */
    bool late;       /* true: late acknowledgement; false: early acknowledgement */
    bool again;      /* late: a refused piece is retried if others are under way or were accepted */
    bool final;      /* BR_RETRY from downstream means that it gave up: the batch is dropped */
    /* metadata of every batch, in the form of br_item.metadata without the empty name at its
     * end; copied */
    const char *metadata;
    size_t metadata_len; /* bytes of `metadata`; 0: no metadata */
    /* set to the weight (br_item.weight) of all data that is gathered, or was sent and has not
     * ended; NULL: not counted */
    size_t *weight;
    const struct br_batch_metrics *metrics; /* NULL: nothing is counted */
    /* profiles: limit in bytes of the merged data; 0: the maximum of 256 MiB */
    size_t merge_bytes;
};

struct br_batcher;

/* Returns a batcher for one signal that sends batches to `next` (borrowed). Returns NULL without
 * memory. */
struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next);

/* Takes an item, as a consumer does. */
void br_batcher_add(struct br_batcher *batcher, struct br_item *item);

/* Sends the gathered data now, even if it is smaller than min_size. */
void br_batcher_flush(struct br_batcher *batcher);

/* Returns true if no data is gathered, under way or kept. */
bool br_batcher_idle(const struct br_batcher *batcher);

/* Sets a function that is called with `arg` when a batch has ended. It can then call
 * br_batcher_idle. `fn` may be NULL. */
void br_batcher_on_end(struct br_batcher *batcher, void (*fn)(void *arg), void *arg);

/* Frees the batcher and drops its data, with the reason "shutdown". Accepts NULL. */
void br_batcher_free(struct br_batcher *batcher);

/* --- Partitions (partition.c) ----------------------------------------------------------------- */

/*
 * Partitions keep separate batchers for items that must not be in one batch: those of the two
 * signals, those whose sender waits for the delivery and others, and those with different values of
 * the configured client metadata. A batch has the metadata that its items have in common.
 *
 * There are at most `limit` batchers. A new one replaces an idle one; if none is idle, its items
 * are refused.
 */

struct br_partitions;

struct br_partition_config {
    struct br_batch_config batch; /* config of each batcher; its `metadata` is not used */
    /* keys of client metadata, whose case is ignored; must outlive the partitions */
    const struct br_strings *keys;
    size_t limit;
};

/* Returns partitions that send to `next` (borrowed), or NULL without memory. */
struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next);

/* Takes an item, as a consumer does. */
void br_partitions_add(struct br_partitions *partitions, struct br_item *item);

/* br_partitions_flush, _idle and _on_end do for all batchers what br_batcher_flush, _idle and
 * _on_end (batch.h) do for one. br_partitions_weight returns the total weight of a signal.
 * br_partitions_count returns the number of batchers. */
void br_partitions_flush(struct br_partitions *partitions);
bool br_partitions_idle(const struct br_partitions *partitions);
size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal);
void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg);
size_t br_partitions_count(const struct br_partitions *partitions);

/* Frees all batchers and drops their data, with the reason "shutdown". Accepts NULL. */
void br_partitions_free(struct br_partitions *partitions);
