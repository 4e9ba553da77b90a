/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides an item into one request for each trace, so that each Kafka message has a trace id as its
 * key.
 *
 * The key of a message is the trace id in 32 hex digits, as in the Collector's kafka exporter with
 * partition_traces_by_id. Spans without a trace id are sent without a key. The key of samples
 * without a trace is the attribute `service.instance.id` of their resource, or a hash of the
 * resource if this attribute is absent.
 */
#pragma once

#include "pipeline/component.h"

/* maximum length of a message key in bytes; a longer key is replaced by its hash */
#define KAFKA_KEY_MAX 64

/* Divides `item` into pieces and passes each piece to `next`. Takes `item`, which is finished when
 * all its pieces are finished. An item with too many traces is first split in half. If the item
 * cannot be divided, finishes it with BR_RETRY if memory is short, and with BR_REJECT otherwise. */
void kafka_divide(struct br_item *item, struct br_consumer *next);

/* Returns the message key of a piece that kafka_divide has made, or NULL if the piece has no key.
 * The key is valid until the item is freed. */
const char *kafka_key(const struct br_item *item);
