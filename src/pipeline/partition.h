/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions keep separate batchers for items that must not be in one batch: those of the two
 * signals, those whose sender waits for the delivery and others, and those with different values of
 * the configured client metadata. A batch has the metadata that its items have in common.
 *
 * There are at most `limit` batchers. A new one replaces an idle one; if none is idle, its items
 * are refused.
 */
#pragma once

#include "config/option.h"
#include "pipeline/batch.h"

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
