/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items that a processor keeps for a time and forwards later, such as those of `join` and
 * `tail_sampling`. The processor decides which items it keeps, and for how long.
 *
 * | sender of the item | br_delay_take returns         | after br_delay_forward                  |
 * |--------------------|-------------------------------|-----------------------------------------|
 * | BR_SENDER_WAITS    | the item                      | the sender gets the outcome             |
 * | other              | a new item; the item is done  | refused items are offered again (hold.h)|
 */
#pragma once

#include "pipeline/hold.h"

struct br_delay {
    struct br_node *node;
    struct br_consumer output[BR_SIGNALS];
    struct br_hold sent[BR_SIGNALS]; /* items that the next component has not accepted yet */
};

/* Initializes a zeroed struct. `on_end` is called after forwarded items have ended. */
void br_delay_init(struct br_delay *delay, struct br_node *node, void (*on_end)(void *arg),
                   void *arg);

/* Returns the item that the processor keeps. Takes `item` unless the result is NULL, which means
 * that memory is short. */
struct br_item *br_delay_take(struct br_item *item);

/* Forwards a kept item to the next component. Takes the item. */
void br_delay_forward(struct br_delay *delay, struct br_item *item);

/* Ends a kept item at shutdown. Takes the item. */
void br_delay_abandon(struct br_delay *delay, struct br_item *item);

/* Returns the total size in bytes of forwarded items that the next component has not accepted. */
size_t br_delay_bytes(const struct br_delay *delay);

/* Returns true if the next component has accepted all forwarded items. */
bool br_delay_is_idle(const struct br_delay *delay);

/* Abandons the forwarded items. Accepts a zeroed struct. */
void br_delay_release(struct br_delay *delay);
