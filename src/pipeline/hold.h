/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hold keeps items and offers each to one destination until the destination has taken it, has
 * rejected it, or the policy allows no further try. It reports the result of each item once.
 *
 * Contract:
 * - Owner. The hold owns an item from the moment br_hold_add returns 0 until it calls `end` for
 *   the item. `end` returns the item to the owner of the hold, which finishes it exactly once.
 *   br_hold_release is the exception: items that are offered then finish with their attempts.
 * - Data. Each try is an attempt (br_item_attempt) that refers to the item's data. The item keeps
 *   its data until `end`, and has all of its pending records while it waits.
 * - Answer. The hold never answers a sender. The owner answers either before it adds the item, or
 *   in `end`. If an item is dropped after its sender was answered, only the metrics and the log
 *   report it.
 * - Restart. Nothing here is written to disk. A durable queue (pipeline/durable.h) keeps these
 * rules: An item for which `end` was called is never offered again. An item that is waiting or
 * offered when the process stops may be offered again after the restart, so a destination can
 * receive an offered item twice. An item whose sender waits for the delivery is not restored,
 * because the sender sends it again. The age continues over a restart; the delay begins again at
 * `first_delay_ms`.
 *
 * States of an item:
 *
 * | state   | event                                | next state, `reason` of `end`     |
 * |---------|--------------------------------------|-----------------------------------|
 * | (none)  | br_hold_add                          | waiting; offered if BR_HOLD_APART |
 * | waiting | its delay is over, or it is its turn | offered                           |
 * | waiting | `max_age_ms` is over (see `order`)   | ended, "retries_exhausted"        |
 * | waiting | `group`: none offered, none accepted | ended, "retries_exhausted"        |
 * | waiting | br_hold_close, br_hold_release       | ended, "shutdown"                 |
 * | offered | BR_DONE                              | ended, NULL                       |
 * | offered | BR_REJECT                            | ended, "rejected"                 |
 * | offered | BR_RETRY, another try is allowed     | waiting                           |
 * | offered | BR_RETRY, `max_age_ms` is over       | ended, "retries_exhausted"        |
 * | offered | BR_RETRY, the hold is closed         | ended, "shutdown"                 |
 * | offered | br_hold_release                      | not reported (br_item_orphan)     |
 */
#pragma once

#include "pipeline/component.h"

#define BR_HOLD_UNLIMITED UINT64_MAX

enum br_hold_order {
    /* Each item is offered when it is added, and has its own timer for further offers. The age
     * of an item is checked when the item is refused. A refusal also ends the item if there is
     * no memory for the timer. */
    BR_HOLD_APART,
    /* Items are offered in the order in which they were added. A refusal pauses all offers. The
     * age of the items is checked at a refusal and after a pause. */
    BR_HOLD_IN_ORDER,
    /* One item is offered in each loop iteration. A refused item is offered again after all
     * waiting items, and each refusal pauses all offers. The age of an item is checked at a
     * refusal. All items are added at the same time. */
    BR_HOLD_PACED,
};

struct br_hold_policy {
    enum br_hold_order order;
    /* milliseconds before the next try after the first refusal; the delay doubles up to
     * max_delay_ms */
    uint64_t first_delay_ms;
    uint64_t max_delay_ms;
    /* BR_HOLD_APART: each item has its own delay, and a delay that the destination requests
     * replaces it */
    bool hints;
    /* The items are parts of one request. If the destination has not taken any of them and none
     * is being offered, a refusal ends all items. */
    bool group;
    /* BR_HOLD_IN_ORDER: largest number of items that are offered at the same time */
    unsigned window;
    /* limit of the bytes of all items, including their overhead; may be BR_HOLD_UNLIMITED */
    uint64_t max_bytes;
    /* milliseconds after br_hold_add from which an item is not tried again; 0: one try; may be
     * BR_HOLD_UNLIMITED */
    uint64_t max_age_ms;
    bool age_since_receipt; /* max_age_ms counts from item->received_ms, not from br_hold_add */
};

struct br_hold;

/* Receives an item that has ended, with the `arg` of br_hold_add. `reason` is NULL if the
 * destination has taken the item. If the item was not taken, `reason` is a constant that names
 * why. Must not free the hold. */
typedef void br_hold_end_fn(struct br_hold *hold, struct br_item *item, void *arg,
                            const struct br_outcome *outcome, const char *reason);

struct br_hold_config {
    struct br_host *host;
    struct br_consumer *next; /* consumer to which items are offered; borrowed */
    struct br_hold_policy policy;
    br_hold_end_fn *end;
    /* called once after `end` was called for all items that ended together; may free the hold;
     * NULL: not called */
    void (*on_end)(void *arg);
    void *arg; /* argument of on_end */
    /* points to a flag; once the flag is true, no refused item is tried again; NULL: the flag is
     * always false */
    const bool *ending;
    double *held[BR_SIGNALS]; /* gauges of the records in the hold, by signal; NULL: not counted */
};

/* A hold. The owner of a hold embeds the struct, and may read n_held, n_waiting and bytes. */
struct br_hold {
    struct br_hold_config config;
    struct br_list waiting, offered; /* lists of struct held; `waiting` is sorted by held.number */
    unsigned n_held, n_waiting, n_offered;
    uint64_t bytes; /* bytes of all items, including their overhead if max_bytes is limited */
    uint64_t n_added;
    uint64_t delay_ms; /* duration of the next pause in milliseconds */
    bool paused, closing, progress, ended;
    struct br_outcome refusal; /* outcome of the last refusal */
    /* timer that ends a pause or starts the next offer of BR_HOLD_PACED, otherwise parked; not
     * used with BR_HOLD_APART */
    struct br_timer timer;
    struct br_node *node; /* the `node` of br_hold_init_for_node; NULL for other holds */
    struct br_log_limit log_limit;
};

/* Initializes a hold. Returns false if memory is short; br_hold_release may be called even then. */
bool br_hold_init(struct br_hold *hold, const struct br_hold_config *config);

/* Adds an item. Either the owner finishes the item in `end`, or the item has no parent and only
 * the hold reports its pending records. Returns 0, BR_ENOMEM, BR_EFULL above `max_bytes`, or
 * BR_ECLOSED. After an error the caller still owns the item. */
int br_hold_add(struct br_hold *hold, struct br_item *item, void *arg);

/* Pauses all offers for the current delay, and doubles the delay for the next pause. Called when
 * the destination has just refused an item. Not for BR_HOLD_APART. */
void br_hold_pause(struct br_hold *hold);

/* Begins to offer the added items, in this loop iteration; with BR_HOLD_IN_ORDER, not before a
 * pause ends. Not for BR_HOLD_APART. */
void br_hold_start(struct br_hold *hold);

/* Notes that the destination has taken an item of the group, or that the end of an item counts
 * as such. The next delay is first_delay_ms again. After BR_DONE the hold itself calls this
 * function. */
void br_hold_note_progress(struct br_hold *hold);

/* Ends the waiting items, without calling `on_end`. An offered item ends when its attempt ends,
 * even as BR_RETRY. Items cannot be added to a closed hold. */
void br_hold_close(struct br_hold *hold, const struct br_outcome *outcome);

/* Closes the hold and abandons the items that are offered. Accepts a zeroed hold. */
void br_hold_release(struct br_hold *hold);

/* Initializes a hold of items whose senders have already been answered, so that `node` reports
 * the result of these items. Items that are not taken are dropped, counted in the ledger and
 * logged at most once a minute. `final` means that BR_RETRY from `next` (borrowed) is a final
 * refusal, so the item is dropped. `on_end` (NULL: not called) is called after items have ended. */
void br_hold_init_for_node(struct br_hold *hold, struct br_node *node, struct br_consumer *next,
                           bool final, void (*on_end)(void *arg), void *arg);

/* Adds an item without a parent and without a callback to a hold of br_hold_init_for_node, and
 * notes that its sender was answered. If memory is short, the item is dropped. */
void br_hold_send(struct br_hold *hold, struct br_item *item);
