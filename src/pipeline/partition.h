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
    struct br_batch_config batch;  /* of each batcher; its metadata is not used */
    const struct br_strings *keys; /* keys of metadata, in any case; borrowed for life */
    size_t limit;
};

/* Returns partitions that send to `next` (borrowed), or NULL without memory. */
struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next);

/* Takes an item, like a consumer. */
void br_partitions_add(struct br_partitions *partitions, struct br_item *item);

/* Do for all batchers what the functions of the same name do for one (batch.h). */
void br_partitions_flush(struct br_partitions *partitions);
bool br_partitions_idle(const struct br_partitions *partitions);
size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal);
void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg);
size_t br_partitions_count(const struct br_partitions *partitions);

/* Frees all batchers and drops their data, with the reason "shutdown". Accepts NULL. */
void br_partitions_free(struct br_partitions *partitions);
