/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fan-out sends each item to several destinations. A destination that has accepted an item does
 * not receive it again. If one destination accepts an item and another refuses it, the fan-out
 * holds the item for the destination that has refused it (hold.h), within a limit. The sender then
 * receives the outcome of the destination that has accepted the item. If all destinations refuse an
 * item, the sender must retry, and the fan-out does not keep the item.
 *
 * The sender waits for a held item in two cases. With BR_SENDER_WAITS, the sender waits until the
 * item has ended. If the destination answers only after delivery (`delivers`) and the sender was
 * not answered yet, the sender waits for at most BR_FANOUT_WAIT_MS. If the item is dropped for one
 * destination, the sender receives a partial success with all records rejected, so that it does not
 * retry the item for all destinations. If the item is still held when the sender is answered, the
 * text of the outcome reports that. After a wait without success, further senders do not wait for
 * this destination until it accepts an item again.
 *
 * A destination that does not answer, or that retries for a long time by itself, would delay the
 * answer to the sender. After another destination has accepted the item, such a delivery can
 * therefore be detached: the sender is answered without waiting for the delivery. `detached_bytes`
 * limits the total size of detached deliveries. If a detached item is refused, it is held like any
 * other item. If a `final` destination gives up a detached item, the item is dropped for that
 * destination. Above `detached_bytes`, further items are held or dropped for the destination, as
 * long as another destination accepts them.
 *
 * The ledger counts each record once, regardless of the number of destinations (core/pending.h).
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
    /* BR_RETRY from the destination means that the destination has given up. Therefore no items are
     * held for a final destination, and senders do not wait for a final destination if another
     * destination has the data. */
    bool final;
    /* maximum total size of detached deliveries in bytes; 0: deliveries are never detached */
    size_t detached_bytes;
};

/* Configuration `service::fanout`. */
struct br_fanout_config {
    /* maximum number of bytes that all workers together hold for each destination */
    int64_t hold_size;
    uint64_t hold_time; /* maximum time for which an item is held, in nanoseconds */
};

extern const struct br_option br_fanout_options[];

/* Maximum time in milliseconds that a sender waits for a held item. Half of the default timeout of
 * an OTLP exporter. */
#define BR_FANOUT_WAIT_MS 5000

struct br_fanout;

/* Returns a fan-out to the `count` destinations in `ends`, which are copied. If `config` is
 * NULL, nothing is held. Returns NULL if memory is short. */
struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count);
struct br_consumer *br_fanout_input(struct br_fanout *fanout);

/* Returns true if no item is held or detached. */
bool br_fanout_idle(const struct br_fanout *fanout);

/* Returns true if the fan-out has no items: none is held, detached or being delivered. The function
 * set with br_fanout_on_end is also called when the result may have changed to true. */
bool br_fanout_unused(const struct br_fanout *fanout);

/* Makes the fan-out call `fn` with `arg` when an item has ended. NULL removes the function. */
void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg);

/* Drops the held items with the reason "shutdown", and does not hold further items. */
void br_fanout_close(struct br_fanout *fanout);

/* Frees the fan-out. All deliveries must have ended. Accepts NULL. */
void br_fanout_free(struct br_fanout *fanout);
