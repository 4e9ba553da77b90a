/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fan-out sends each item to several destinations. An item that a destination has accepted is not
 * sent to it again. If another destination has refused the same item, the fan-out holds the item
 * for that destination (hold.h), within a limit. The sender then gets the outcome of the
 * destination that has accepted the item. The sender has to send the item again only if every
 * destination has refused it; in that case the fan-out does not keep the item.
 *
 * The sender waits for a held item in two cases. With BR_SENDER_WAITS the sender waits until the
 * item has ended. If the destination answers only after delivery (`delivers`) and the sender was
 * not answered, it waits for at most BR_FANOUT_WAIT_MS. If the item is dropped for one destination,
 * the sender receives a partial success with all records rejected. So the sender does not send them
 * again to all destinations. If the item is still held when the sender is answered, the outcome's
 * text reports that. After a sender has waited in vain, other senders do not wait until the
 * destination accepts an item again.
 *
 * A destination that does not answer, or retries for a long time by itself, would delay the sender,
 * and so the delivery to the other destinations. Deliveries to it are detached: the item ends
 * without them, within the limit `detached_bytes`. A detached item that is refused is held, like an
 * item that is not detached. If a `final` destination gives up a detached item, the item is dropped
 * for that destination. Above `detached_bytes`, further items are held or dropped for the
 * destination, as long as another destination accepts them.
 *
 * The ledger counts each record once, however many destinations there are (core/pending.h).
 */
#pragma once

#include "pipeline/component.h"

struct br_fanout_end {
    struct br_consumer *next; /* the consumer that receives the items; borrowed */
    /* ledger of the exporter, if the destination is an exporter; otherwise NULL */
    struct br_ledger *ledger;
    const char *name; /* name of the destination in log lines; borrowed */
    /* the destination's metrics have the label `kind="id"`, such as exporter="otlp/tempo";
     * borrowed until br_fanout_new returns */
    const char *kind, *id;
    /* BR_DONE from the destination means that the item was delivered, not only queued */
    bool delivers;
    /* BR_RETRY from the destination means that the destination has given up. Therefore nothing
     * is held for a final destination, and no sender waits for it if another destination has the
     * data. */
    bool final;
    /* limit in bytes of the detached deliveries; 0: no delivery is detached */
    size_t detached_bytes;
};

/* Configuration `service::fanout`. */
struct br_fanout_config {
    /* largest number of bytes held for each destination, by all workers together */
    int64_t hold_size;
    uint64_t hold_time; /* longest time that an item is held, in nanoseconds */
};

extern const struct br_option br_fanout_options[];

/* longest time that a sender waits for a held item: half of the default timeout of an OTLP
 * exporter */
#define BR_FANOUT_WAIT_MS 5000

struct br_fanout;

/* Returns a fan-out to the `count` destinations in `ends`, which are copied. If `config` is
 * NULL, nothing is held. Returns NULL if memory is short. */
struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count);
struct br_consumer *br_fanout_input(struct br_fanout *fanout);

/* Returns true if no item is held or detached. */
bool br_fanout_idle(const struct br_fanout *fanout);

/* Returns true if the fan-out has no item at all: none is held, detached or being delivered. The
 * function of br_fanout_on_end is also called when that may have become true. */
bool br_fanout_unused(const struct br_fanout *fanout);

/* Sets a function (may be NULL) that is called when an item has ended. */
void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg);

/* Drops the held items with the reason "shutdown", and does not hold further items. */
void br_fanout_close(struct br_fanout *fanout);

/* Frees the fan-out. No delivery of the fan-out may be under way. Accepts NULL. */
void br_fanout_free(struct br_fanout *fanout);
