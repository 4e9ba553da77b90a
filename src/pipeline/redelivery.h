/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A redelivery sends items whose senders have had their answer, so that nobody else answers for
 * them any more. What the next one refuses for now is kept and sent again; what it refuses for good
 * is dropped, counted in the ledger and logged at most once a minute.
 */
#pragma once

#include <stdbool.h>

#include "pipeline/component.h"

struct br_redelivery;

/* Makes a redelivery. `final`: a BR_RETRY from `next` (borrowed) means that it gave up, so the
 * item is dropped. `on_end`, unless NULL, is called whenever an item has ended. NULL when there is
 * no memory. */
struct br_redelivery *br_redelivery_new(struct br_node *node, struct br_consumer *next, bool final,
                                        void (*on_end)(void *arg), void *arg);

/* Takes an item without parent and without a callback, and sends it until it is delivered or
 * dropped. */
void br_redelivery_send(struct br_redelivery *redelivery, struct br_item *item);

/* Items that were refused and wait; these and the ones under way, and their bytes; whether there
 * are none. */
unsigned br_redelivery_kept(const struct br_redelivery *redelivery);
unsigned br_redelivery_count(const struct br_redelivery *redelivery);
size_t br_redelivery_bytes(const struct br_redelivery *redelivery);
bool br_redelivery_idle(const struct br_redelivery *redelivery);

/* Drops what is left, for "shutdown". Accepts NULL. */
void br_redelivery_free(struct br_redelivery *redelivery);

/* Counts what `item` owes as dropped for "shutdown". Whoever destroys the node logs the sum, so
 * that nothing is held back. */
void br_redelivery_end(struct br_node *node, struct br_item *item);

/* Logs within `limit` that `outcome`, a success, has a rejected part: where nobody else hears it.
 */
void br_redelivery_partly(struct br_node *node, const struct br_item *item,
                          const struct br_outcome *outcome, struct br_log_limit *limit);

/* Counts what `item` owes as dropped for `reason`, and logs it within `limit`. */
void br_redelivery_drop(struct br_node *node, struct br_item *item, const char *reason,
                        const struct br_outcome *why, struct br_log_limit *limit);
