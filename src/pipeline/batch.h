/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batcher makes batches of items, for the `batch` processor and `sending_queue::batch`. Traces
 * are concatenated, profiles merged into one dictionary.
 *
 * Early acknowledgement: an item is done once its data is in the batch, and from then on the
 * batcher answers for it: a batch that is refused for now is kept and sent again; one that is
 * refused for good is dropped, counted and logged. While BR_BATCH_KEPT_MAX refused batches are
 * kept, or BR_BATCH_OUT_MAX have left and not ended, no batch leaves; what comes is gathered until
 * the next batch has its size (at least BR_BATCH_WAIT_ITEMS or _BYTES), then refused. Late
 * acknowledgement: an item is finished as its batch is, of which everybody behind it knows that
 * somebody waits for its delivery (BR_SENDER_WAITS). What a batch was refused in part each of its
 * items hears in its share. A piece of a batch that was cut which is refused for now while others
 * are under way or done is tried again; when BR_BATCH_RETRY_MS have passed it is the rejected
 * part of a success. Where nothing was taken the senders hear so at once.
 *
 * A request that what is gathered has no room for makes it leave first; one that an empty batch has
 * no room for is rejected. Acknowledged early, what a batch has over a multiple of its maximum
 * stays where it is less than min_size, and leaves with what comes next or by the timeout. The
 * pieces of a batch that is cut take at most four times its bytes and 1 MiB: where they would
 * repeat more, it leaves whole.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pipeline/component.h"

#define BR_BATCH_KEPT_MAX 4
#define BR_BATCH_RETRY_MS 10000
#define BR_BATCH_OUT_MAX 16
#define BR_BATCH_WAIT_ITEMS 8192
#define BR_BATCH_WAIT_BYTES (8u << 20)

/* Names of a batcher's metrics; one that is NULL is not kept. */
struct br_batch_metrics {
    const char *sizes, *sizes_bytes;  /* histograms of the batches that leave: records, and bytes */
    const char *by_size, *by_timeout; /* counters of batches that left for that reason */
};

struct br_batch_config {
    uint64_t timeout_ms; /* 0: at once */
    size_t min_size;     /* a batch of this size leaves; 0: whatever comes leaves at once */
    size_t max_size;     /* cut above it; 0: no limit */
    bool bytes;          /* sizes are bytes on the wire, not items */
    bool late;           /* acknowledge late */
    bool again; /* late: a piece that is refused for now is tried again once others were taken */
    bool final; /* BR_RETRY from downstream means that it gave up: drop, do not try again */
    const char *metadata; /* of every batch, as br_item.metadata without its end; copied */
    size_t metadata_len;  /* 0: none */
    size_t *weight; /* kept at what all weighs that is gathered, or has left and not ended, by the
                       br_item.weight with which it came; NULL: nobody asks */
    const struct br_batch_metrics *metrics; /* NULL: nothing is counted */
    size_t merge_bytes; /* profiles: what is merged may take; 0: 256 MiB, and that is the most */
};

struct br_batcher;

/* Returns a batcher for one signal that hands batches to `next` (borrowed). NULL when there is no
 * memory. */
struct br_batcher *br_batcher_new(struct br_node *node, enum br_signal signal,
                                  const struct br_batch_config *config, struct br_consumer *next);

/* Takes an item, as a consumer does. */
void br_batcher_add(struct br_batcher *batcher, struct br_item *item);

/* Sends what is gathered now, whatever its size. */
void br_batcher_flush(struct br_batcher *batcher);

/* Returns true when nothing is gathered, sent or kept. */
bool br_batcher_idle(const struct br_batcher *batcher);

/* Sets what is called whenever a batch has ended, for whoever waits for idle; may be NULL. */
void br_batcher_on_end(struct br_batcher *batcher, void (*fn)(void *arg), void *arg);

/* Drops what is held, for "shutdown". Accepts NULL. */
void br_batcher_free(struct br_batcher *batcher);
