/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The durable queue of an exporter (`sending_queue::storage`). Requests pass through these
 * components:
 *
 * request -> durable queue -> hold -> in-memory queue -> retries -> exporter | ^ v | write-ahead
 * log
 *
 * A new request is offered to the in-memory queue at once if no older request is waiting. If the
 * request is delivered within a configured time, its sender is answered and nothing is written.
 * Otherwise the request is written to the log, and its sender is answered as soon as the request is
 * stored. If the request was not offered, it then goes to the hold. If there is no room in memory,
 * it is read from the log later. Records count as stored when they are written to the log, and as
 * restored when they are sent from there, so the counters of each process add up. A request is
 * removed from the log when the backend has accepted or rejected it, or when it is older than
 * max_age.
 *
 * A request whose sender waits for the delivery is not stored, and goes directly to the in-memory
 * queue.
 */
#pragma once

#include "pipeline/exporter.h"
#include "pipeline/storage.h"

struct br_durable;

/* Returns a durable queue in front of `next`, the exporter's in-memory queue. `node` and `config`
 * belong to the exporter. Returns NULL if memory is short. */
struct br_durable *br_durable_new(struct br_node *node, const struct br_queue_config *config,
                                  struct br_queue *next);
struct br_consumer *br_durable_input(struct br_durable *durable);

/* Begins to deliver the stored requests. Returns 0, BR_EINVAL if the log is not open, or BR_ENOMEM;
 * after an error, `err` contains a message. */
int br_durable_start(struct br_durable *durable, struct br_err *err);

/* Stops retries and reading from the log, so that the in-memory queue becomes empty. Calls
 * `on_empty` when no thread uses the log and no request is in memory. Requests that were not
 * delivered remain in the log. */
void br_durable_drain(struct br_durable *durable, void (*on_empty)(void *arg), void *arg);

/* Refuses further requests. */
void br_durable_close(struct br_durable *durable);

/* Waits for running tasks, and frees the durable queue. The in-memory queue must be empty. Accepts
 * NULL. */
void br_durable_free(struct br_durable *durable);
