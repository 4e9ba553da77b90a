/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fan-out sends each item to several destinations. An item that a destination has accepted is not
 * sent to it again. If another destination has refused the same item, the fan-out holds the item
 * for that one (hold.h), within a limit, and the sender gets the outcome of the first. The sender
 * has to send the item again only if every destination has refused it; then the fan-out keeps
 * nothing.
 *
 * The sender waits for a held item in two cases. With BR_SENDER_WAITS it waits until the item has
 * ended. If the destination answers only after delivery (`delivers`) and the sender was not
 * answered, it waits for at most BR_FANOUT_WAIT_MS. If the item is dropped for one destination, the
 * sender receives a partial success with all records rejected, so that it does not send them again
 * to all. If the item is still held, the outcome's text reports that. After a sender has waited in
 * vain, others do not wait until the destination accepts an item again.
 *
 * A destination that does not answer, or retries for a long time by itself, would delay the sender
 * and so the other destinations. Its deliveries are detached: the item ends without them, within
 * the limit `detached_bytes`. A detached item that is refused is held as above. One that a `final`
 * destination gives up is dropped for it. Above the limit, further items are held or dropped for
 * the destination, as long as another destination accepts them.
 *
 * The ledger counts each record once, however many destinations there are (core/pending.h).
 */
#pragma once

#include "pipeline/component.h"

struct br_fanout_end {
    struct br_consumer *next; /* borrowed */
    struct br_ledger *ledger; /* of the exporter that this destination is; NULL: it has none */
    const char *name;         /* for logs; borrowed */
    const char *kind, *id; /* label of its metrics: exporter="otlp/tempo"; borrowed until return */
    bool delivers;         /* BR_DONE from it means delivered, not only queued */
    /* BR_RETRY from it means that it has given up: nothing is held for it, and no sender waits
     * for it if another destination has the data */
    bool final;
    size_t detached_bytes; /* limit of detached deliveries; 0: none are detached */
};

/* Configuration `service::fanout`. */
struct br_fanout_config {
    int64_t hold_size;  /* most bytes held for each destination, by all workers together */
    uint64_t hold_time; /* nanoseconds */
};

extern const struct br_option br_fanout_options[];

/* Half of the default timeout of an OTLP exporter. */
#define BR_FANOUT_WAIT_MS 5000

struct br_fanout;

/* Returns a fan-out that copies the `count` ends. `config` may be NULL: then nothing is held.
 * Returns NULL without memory. */
struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count);
struct br_consumer *br_fanout_input(struct br_fanout *fanout);

/* br_fanout_idle returns true if no item is held or detached. br_fanout_on_end sets a function
 * (may be NULL) that is called when such an item has ended. */
bool br_fanout_idle(const struct br_fanout *fanout);
void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg);

/* Drops the held items with the reason "shutdown", and holds no further ones. */
void br_fanout_close(struct br_fanout *fanout);

/* Frees the fan-out. None of its deliveries may be under way. Accepts NULL. */
void br_fanout_free(struct br_fanout *fanout);
