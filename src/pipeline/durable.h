/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable queue of an exporter (`sending_queue::storage`). It stands in front of the exporter's
 * queue in memory:
 *
 * request -> durable queue -> hold -> queue in memory -> retries -> exporter
 *              |    ^
 *              v    |
 *             write-ahead log
 *
 * A request is offered to the queue in memory at once if it overtakes no other. If it is delivered
 * within a configured time, its sender is answered and nothing is written. Otherwise the request is
 * written to the log, and its sender is answered when it is stored. A request that was not offered
 * goes to the hold then, if there is room in memory, or is read from the log later. Records are
 * counted as stored when they are in the log, and as restored when they are sent from there, so
 * that the ledger closes in each process. A request is removed from the log when the backend has
 * accepted or rejected it, or when max_age is over.
 *
 * A request whose sender waits for the delivery is not stored: it goes to the queue in memory.
 */
#pragma once

#include "pipeline/exporter.h"
#include "pipeline/storage.h"

struct br_durable;

/* Returns a durable queue in front of `next`, the queue in memory. `node` and `config` are those of
 * the exporter. Returns NULL without memory. */
struct br_durable *br_durable_new(struct br_node *node, const struct br_queue_config *config,
                                  struct br_queue *next);
struct br_consumer *br_durable_input(struct br_durable *durable);

/* Begins to deliver what is in the log, which must be open. Returns 0, or BR_ENOMEM and a sentence
 * in `err`. */
int br_durable_start(struct br_durable *durable, struct br_err *err);

/* Ends retries, so that the queue in memory becomes empty, and reads nothing more. Calls `on_empty`
 * when no thread uses the log and no request is in memory. What was not delivered stays in the
 * log. */
void br_durable_drain(struct br_durable *durable, void (*on_empty)(void *arg), void *arg);

/* Refuses further requests. */
void br_durable_close(struct br_durable *durable);

/* Waits for threads, and frees the queue. The queue in memory must be empty. Accepts NULL. */
void br_durable_free(struct br_durable *durable);
