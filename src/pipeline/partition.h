/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions keep batchers side by side for items that must not be in one batch: those of the two
 * signals, those whose delivery somebody waits for and others, and those that differ in the client
 * metadata that a config names. A batch goes on with the metadata that its items have in common.
 *
 * There are at most `limit` of them. A new one takes the place of one that is idle; without such,
 * its items are refused.
 */
#pragma once

#include "config/option.h"
#include "pipeline/batch.h"

struct br_partitions;

struct br_partition_config {
    struct br_batch_config batch;  /* of each; its metadata is not used */
    const struct br_strings *keys; /* of metadata, in any case; borrowed for life */
    size_t limit;
};

/* Borrows `next`. Returns NULL when there is no memory. */
struct br_partitions *br_partitions_new(struct br_node *node,
                                        const struct br_partition_config *config,
                                        struct br_consumer *next);

/* Takes an item, as a consumer does. */
void br_partitions_add(struct br_partitions *partitions, struct br_item *item);

/* Do what the functions of one batcher (batch.h) do, for all. */
void br_partitions_flush(struct br_partitions *partitions);
bool br_partitions_idle(const struct br_partitions *partitions);
size_t br_partitions_weight(const struct br_partitions *partitions, enum br_signal signal);
void br_partitions_on_end(struct br_partitions *partitions, void (*fn)(void *arg), void *arg);
size_t br_partitions_count(const struct br_partitions *partitions);

/* Drops what is held, for "shutdown". Accepts NULL. */
void br_partitions_free(struct br_partitions *partitions);
