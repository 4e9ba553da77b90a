/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides an item into one request for each trace, so that each message has the trace as its key.
 *
 * The key of a message is the trace id in 32 hex digits, as in the Collector's kafka exporter with
 * partition_traces_by_id. Spans without a trace id have no key. Samples without a trace have the
 * `service.instance.id` of their resource as the key, or else a hash of the resource.
 */
#pragma once

#include "pipeline/component.h"

/* largest key of a message in bytes; a longer key is replaced by its hash */
#define KAFKA_KEY_MAX 64

/* Divides `item` into pieces and passes each to `next`; `item` ends when all pieces have ended.
 * Takes the item. An item with too many traces is cut in halves first. If the item cannot be
 * divided, finishes it with BR_RETRY if memory is short, or else with BR_REJECT. */
void kafka_divide(struct br_item *item, struct br_consumer *next);

/* Returns the key of a piece that kafka_divide has made. Returns NULL if it has none. The key lives
 * as long as the item. */
const char *kafka_key(const struct br_item *item);
