/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fan-out sends each item to several destinations, and each destination's outcome is its own.
 * What a destination has taken is never sent to it again. What another one did not take meanwhile
 * is held for that one alone (lane.h), within a bound, and the sender gets the outcome of the
 * first. Only when no destination has taken the item or refused it for good does the sender have to
 * send it again: then nothing of it is kept here.
 *
 * The sender also waits for what is held where somebody waits for the item's delivery
 * (BR_SENDER_WAITS), or, for BR_FANOUT_WAIT_MS, where the destination answers when it has delivered
 * and the sender is not answered yet (BR_SENDER_ANSWERED). Where one goes without the item after
 * all, that is a partial success of which nothing was taken there: its sender is told, and does not
 * send it to everybody again. Where it only takes longer, the sender is told that. Senders that
 * come after one that has waited in vain do not wait until the destination takes something again.
 *
 * One that does not answer, or tries again by itself for a long time, would hold up the others
 * through their sender: within a bound it goes on alone (`detached_bytes`). What it refuses then is
 * held as above; what one gives up that has tried for long (`final`) is lost to it. Over the bound
 * the data is held, or lost to it, as long as another one takes the data.
 *
 * To the ledger the item is one, however many destinations there are (core/pending.h).
 */
#pragma once

#include "pipeline/component.h"

struct br_fanout_end {
    struct br_consumer *next; /* borrowed */
    struct br_ledger *ledger; /* of the exporter that this is; NULL: it is none, or has none */
    const char *name;         /* for logs; borrowed */
    const char *kind, *id; /* label of its metrics: exporter="otlp/tempo"; borrowed until return */
    bool delivers;         /* DONE from it means delivered, not just taken */
    bool final; /* RETRY from it means that it has given up: nothing is held for it, and no sender
                   of which another one has the data waits for it */
    size_t detached_bytes; /* what it may go on with alone when others have ended; 0: nothing */
};

/* service::fanout. */
struct br_fanout_config {
    int64_t hold_size;  /* bytes held for each destination at the most, all workers together */
    uint64_t hold_time; /* ns */
};

extern const struct br_option br_fanout_options[];

/* Half of what an exporter of OTLP waits for an answer, by its default. */
#define BR_FANOUT_WAIT_MS 5000

struct br_fanout;

/* Returns NULL when there is no memory. `config` NULL: nothing is held. */
struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count);
struct br_consumer *br_fanout_input(struct br_fanout *fanout);

/* Returns true when nothing is held; `fn`, unless NULL, is called whenever something that was held
 * has ended. */
bool br_fanout_idle(const struct br_fanout *fanout);
void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg);

/* Holds nothing any more: what is held is dropped for "shutdown". */
void br_fanout_close(struct br_fanout *fanout);

/* Frees it; nothing that it has handed on may be under way. Accepts NULL. */
void br_fanout_free(struct br_fanout *fanout);
