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
 * A batch with late acknowledgement can be divided into pieces. A piece that is refused while other
 * pieces are under way, or after other pieces were accepted, is retried for BR_BATCH_RETRY_MS. If
 * it is still refused then, its records count as the rejected part of a partial success. If no
 * piece was accepted, the senders are informed at once.
 *
 * If the gathered data has no space for an item, the data is sent first. An item for which an empty
 * batch has no space is rejected. With early acknowledgement, a last piece that is smaller than
 * min_size stays, and is sent with the next data or after the timeout. The pieces of a batch take
 * at most four times the bytes of the batch plus 1 MiB. If they would take more, because they
 * repeat data, the batch is sent as a whole.
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
    /* histograms of the sent batches: one of their numbers of records, one of their sizes in
     * bytes */
    const char *sizes, *sizes_bytes;
    /* counters of the batches sent because they reached min_size, and of those sent because of
     * the timeout */
    const char *by_size, *by_timeout;
};

struct br_batch_config {
    /* longest time in milliseconds that data is gathered; 0: data is sent at once */
    uint64_t timeout_ms;
    /* gathered data of at least this size is sent; 0: data of any size is sent at once */
    size_t min_size;
    size_t max_size; /* larger batches are divided; 0: no limit */
    bool bytes;      /* unit of min_size and max_size: true: bytes on the wire; false: records */
    bool late;       /* true: late acknowledgement; false: early acknowledgement */
    /* with late acknowledgement: a refused piece of a batch is retried if other pieces are under
     * way or were accepted */
    bool again;
    /* BR_RETRY from downstream means that downstream gave up, so the batch is dropped */
    bool final;
    /* client metadata that every batch gets, in the form of br_item.metadata without the empty
     * name at its end; copied */
    const char *metadata;
    size_t metadata_len; /* bytes of `metadata`; 0: no metadata */
    /* the batcher stores here the total weight (br_item.weight) of the data that waits in it or is
     * being sent; NULL: not stored */
    size_t *weight;
    /* names of the metrics; NULL: the batcher has no metrics */
    const struct br_batch_metrics *metrics;
    /* profiles: limit in bytes of the merged data; 0: the maximum of 256 MiB */
    size_t merge_bytes;
};

struct br_batcher;

/* Returns a batcher for one signal that sends batches to `next` (borrowed). Returns NULL if
 * memory is short. */
struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next);

/* Adds an item to the gathered data. Takes the item, as br_consumer.consume does. */
void br_batcher_add(struct br_batcher *batcher, struct br_item *item);

/* Sends the gathered data now, even if it is smaller than min_size. */
void br_batcher_flush(struct br_batcher *batcher);

/* Returns true if the batcher holds no data: none is gathered, under way or kept. */
bool br_batcher_idle(const struct br_batcher *batcher);

/* Sets a function that is called with `arg` when a batch has ended. `fn` can call
 * br_batcher_idle, and may be NULL. */
void br_batcher_on_end(struct br_batcher *batcher, void (*fn)(void *arg), void *arg);

/* Frees the batcher and drops its data, with the reason "shutdown". Accepts NULL. */
void br_batcher_free(struct br_batcher *batcher);

/* --- Partitions (partition.c) ----------------------------------------------------------------- */

/*
 * Partitions keep separate batchers for items that must not be in one batch:
 *
 * - items of the two signals,
 * - items whose sender waits for the delivery, and other items,
 * - items with different values of the configured client metadata.
 *
 * A batch has the metadata that its items have in common. There are at most `limit` batchers. A new
 * batcher replaces an idle one. If no batcher is idle, the items for the new batcher are refused.
 */

struct br_partitions;

struct br_partition_config {
    struct br_batch_config batch; /* config of each batcher; its `metadata` is not used */
    /* keys of the client metadata that separates items; case is ignored; must outlive the
     * partitions */
    const struct br_strings *keys;
    size_t limit;
};

/* Returns partitions that send to `next` (borrowed), or NULL if memory is short. */
struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next);

/* Adds an item to the batcher of its partition. Takes the item, as br_consumer.consume does. */
void br_partitions_add(struct br_partitions *partitions, struct br_item *item);

/* br_partitions_flush, br_partitions_idle and br_partitions_on_end do for all batchers what
 * br_batcher_flush, br_batcher_idle and br_batcher_on_end do for one. br_partitions_weight
 * returns the total weight of a signal's data. br_partitions_count returns the number of
 * batchers. */
void br_partitions_flush(struct br_partitions *partitions);
bool br_partitions_idle(const struct br_partitions *partitions);
size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal);
void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg);
size_t br_partitions_count(const struct br_partitions *partitions);

/* Frees all batchers and drops their data, with the reason "shutdown". Accepts NULL. */
void br_partitions_free(struct br_partitions *partitions);
