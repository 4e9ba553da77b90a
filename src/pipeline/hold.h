/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hold keeps items and offers each of them repeatedly to one destination, until the destination
 * accepts or rejects the item, or until the policy allows no further attempt. The hold reports the
 * result of each item exactly once.
 *
 * Contract:
 * - Owner. The hold owns an item from the time br_hold_add returns 0 until the hold calls `end` for
 *   the item. `end` returns the item to the owner of the hold, which must finish it.
 *   br_hold_release is an exception: items that are offered when it is called are finished with
 *   their attempts.
 * - Data. Each offer creates an attempt (br_item_attempt), which refers to the item's data. The
 *   item keeps its data until `end`. While the item waits, it also has all of its pending records.
 * - Answer. The hold never answers a sender. The owner answers the sender either before adding the
 *   item, or in `end`. If an item is dropped after its sender was answered, only the metrics and
 *   the log report the loss.
 * - Restart. The hold does not write to disk. A durable queue (pipeline/durable.h) follows these
 *   rules: An item for which `end` was called is never offered again. An item that is waiting or
 *   offered when the process stops may be offered again after the restart, so a destination can
 *   receive an offered item twice. An item whose sender waits for the delivery is not restored,
 *   because the sender retries. After a restart, the age of an item includes the time before the
 *   restart, and its delay is `first_delay_ms` again.
 *
 * States of an item:
 *
 * | state | event | next state, `reason` of `end` |
 * |---------|--------------------------------------|-----------------------------------| | (none) |
 * br_hold_add | waiting; offered if BR_HOLD_APART | | waiting | its delay is over, or it is its
 * turn | offered | | waiting | `max_age_ms` is over (see `order`) | ended, "retries_exhausted" | |
 * waiting | `group`: none offered, none accepted | ended, "retries_exhausted" | | waiting |
 * br_hold_close, br_hold_release | ended, "shutdown" | | offered | BR_DONE | ended, NULL | |
 * offered | BR_REJECT | ended, "rejected" | | offered | BR_RETRY, another try is allowed | waiting
 * | | offered | BR_RETRY, `max_age_ms` is over | ended, "retries_exhausted" | | offered | BR_RETRY,
 * the hold is closed | ended, "shutdown" | | offered | br_hold_release | not reported
 * (br_item_orphan) |
 */
#pragma once

#include "pipeline/component.h"

#define BR_HOLD_UNLIMITED UINT64_MAX

enum br_hold_order {
    /* Each item is offered when it is added, and has its own timer for further offers. The age of
     * an item is checked when the item is refused. If memory for the timer is short, a refusal ends
     * the item. */
    BR_HOLD_APART,
    /* Items are offered in the order in which they were added. A refusal pauses all offers. The
     * age of the items is checked at a refusal and after a pause. */
    BR_HOLD_IN_ORDER,
    /* One item is offered in each loop iteration. A refused item is offered again after all waiting
     * items, and each refusal pauses all offers. The age of an item is checked at a refusal. The
     * owner adds all items at the same time. */
    BR_HOLD_PACED,
};

struct br_hold_policy {
    enum br_hold_order order;
    /* delay in milliseconds after the first refusal; doubles with each refusal, up to
     * max_delay_ms */
    uint64_t first_delay_ms;
    uint64_t max_delay_ms;
    /* BR_HOLD_APART: each item has its own delay, and a delay that the destination requests takes
     * precedence */
    bool hints;
    /* The items are parts of one request. If the destination has not accepted any part and no part
     * is being offered, a refusal ends all items. */
    bool group;
    /* BR_HOLD_IN_ORDER: maximum number of items that are offered at the same time */
    unsigned window;
    /* maximum total size of all items in bytes, including their overhead, or BR_HOLD_UNLIMITED */
    uint64_t max_bytes;
    /* time in milliseconds after br_hold_add at which retries end, or BR_HOLD_UNLIMITED; 0: each
     * item is offered once */
    uint64_t max_age_ms;
    bool age_since_receipt; /* max_age_ms counts from item->received_ms, not from br_hold_add */
};

struct br_hold;

/* Receives an item that has ended, and the `arg` that was passed to br_hold_add. If the destination
 * has accepted the item, `reason` is NULL. Otherwise `reason` is a static string, such as
 * "rejected". Must not free the hold. */
typedef void br_hold_end_fn(struct br_hold *hold, struct br_item *item, void *arg,
                            const struct br_outcome *outcome, const char *reason);

struct br_hold_config {
    struct br_host *host;
    struct br_consumer *next; /* consumer to which items are offered; borrowed */
    struct br_hold_policy policy;
    br_hold_end_fn *end;
    /* called once after `end` was called for one or more items; may free the hold; NULL: not
     * called */
    void (*on_end)(void *arg);
    void *arg; /* argument of on_end */
    /* pointer to a flag; while the flag is true, refused items are not offered again; NULL: always
     * false */
    const bool *ending;
    double *held[BR_SIGNALS]; /* gauges of the records in the hold, by signal; NULL: not counted */
};

/* A hold. The owner of a hold embeds the struct, and may read n_held, n_waiting and bytes. */
struct br_hold {
    struct br_hold_config config;
    struct br_list waiting, offered; /* lists of struct held; `waiting` is sorted by held.number */
    unsigned n_held, n_waiting, n_offered;
    /* total size of all items in bytes, including their overhead if max_bytes is limited */
    uint64_t bytes;
    uint64_t n_added;
    uint64_t delay_ms; /* duration of the next pause in milliseconds */
    bool paused, closing, progress, ended;
    struct br_outcome refusal; /* outcome of the most recent refusal */
    /* timer that ends a pause or starts the next offer of BR_HOLD_PACED, otherwise parked; not
     * used with BR_HOLD_APART */
    struct br_timer timer;
    struct br_node *node; /* the `node` of br_hold_init_for_node; NULL for other holds */
    struct br_log_limit log_limit;
};

/* Initializes a hold. Returns false if memory is short; br_hold_release may be called even then. */
bool br_hold_init(struct br_hold *hold, const struct br_hold_config *config);

/* Adds an item. `arg` is passed to `end`. Returns 0, BR_ENOMEM, BR_EFULL if the hold would exceed
 * `max_bytes`, or BR_ECLOSED if the hold is closed. After an error the caller still owns the
 * item. */
int br_hold_add(struct br_hold *hold, struct br_item *item, void *arg);

/* Pauses all offers for `delay_ms`, and doubles the delay for the next pause. The owner calls this
 * when the destination has just refused an item that is not in the hold. Not for BR_HOLD_APART. */
void br_hold_pause(struct br_hold *hold);

/* Begins to offer the added items in this loop iteration. With BR_HOLD_IN_ORDER, a pause must end
 * first. Not for BR_HOLD_APART. */
void br_hold_start(struct br_hold *hold);

/* Reports that the destination has accepted an item, so that the next delay is first_delay_ms again
 * and a `group` is not given up. The hold itself calls this function after BR_DONE. The owner can
 * call it in other cases too, such as after a rejection that must not end the group. */
void br_hold_note_progress(struct br_hold *hold);

/* Closes the hold: ends the waiting items, without calling `on_end`, and rejects new items. Offered
 * items end with their current attempt, even if its outcome is BR_RETRY. */
void br_hold_close(struct br_hold *hold, const struct br_outcome *outcome);

/* Closes the hold and abandons the items that are offered. Accepts a zeroed hold. */
void br_hold_release(struct br_hold *hold);

/* Initializes a hold for items whose senders have already been answered. Items that `next`
 * (borrowed) does not accept are dropped, counted in the ledger, and logged for `node` at most once
 * a minute. `final` means that `next` retries by itself, so an item that it finishes with BR_RETRY
 * is dropped. `on_end`, unless NULL, is called after items have ended. */
void br_hold_init_for_node(struct br_hold *hold, struct br_node *node, struct br_consumer *next,
                           bool final, void (*on_end)(void *arg), void *arg);

/* Adds an item to a hold of br_hold_init_for_node, and marks the sender of the item as answered.
 * The item must not have a parent or a callback. If memory is short, the item is dropped. */
void br_hold_send(struct br_hold *hold, struct br_item *item);
