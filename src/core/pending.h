/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending records are the spans or samples of an item for which no result has been reported to the
 * ledger yet: sent, rejected, dropped or stored. Each record is counted once, however many
 * destinations it is sent to.
 *
 * An item has `n_pending` pending records. Normally their result goes to the ledger of the worker.
 * After a fan-out, or in a batch with late acknowledgement (br_copies_open), each destination has a
 * copy of all pending records. The result of a copy goes to a `struct br_copies`. The br_copies
 * structure keeps the original records. The number of original records that it reports as sent is
 * the largest number that any destination has sent. When the last copy has ended, the remaining
 * original records get the last result that was not BR_RESULT_SENT.
 *
 * An exporter has a ledger, too. This ledger counts all records that arrive at the exporter and
 * their results, even if the same records arrive again (br_pending_enter).
 *
 * A batch can contain pending records of several br_copies. A result is attributed to any of these
 * copies, because a peer does not name the spans that it has rejected. If memory is short,
 * br_pending_move can move more records of one copy than requested, and fewer of others; the sums
 * stay correct.
 */
#pragma once

#include "core/item.h"
#include "core/metrics.h"

/* --- Pending records ------------------------------------------------------------------------- */

/* Moves up to `count` pending records. If `into` has no exporter, it takes over the exporter of
 * `from`. Returns false if there was no memory to divide the records of a copy; to undo the
 * move, move all records back. */
bool br_pending_move(struct br_pending *into, struct br_pending *from, uint32_t count);

/* Reports the result of up to `count` records. `reason` is a constant that states why the
 * records were dropped; NULL for other results. */
void br_pending_report(struct br_pending *pending, struct br_host *host, enum br_signal signal,
                       enum br_result result, const char *reason, uint32_t count);

/* Notes that all of the records have arrived at the exporter that has this ledger. Does nothing
 * if they have already arrived there, or if `ledger` is NULL. */
void br_pending_enter(struct br_pending *pending, enum br_signal signal, struct br_ledger *ledger);

/* Notes that the exporter returns all of the records: its ledger counts them as rejected. */
void br_pending_leave(struct br_pending *pending, enum br_signal signal);

/* Discards the pending records, after br_pending_leave. Used for an item that the sender keeps
 * because no component has accepted it. */
void br_pending_discard(struct br_pending *pending, enum br_signal signal);

/* --- Copies ---------------------------------------------------------------------------------- */

struct br_copies;

/* Moves all pending records of `item` to a new br_copies with up to `count` copies. Returns NULL
 * if memory is short; `item` is then unchanged. */
struct br_copies *br_copies_open(struct br_item *item, size_t count);

/* Makes copy number `index`, which must not exist yet, of all records. Writes the pending
 * records of the copy to `pending`. Returns false if memory is short. */
bool br_copies_make(struct br_copies *copies, size_t index, struct br_pending *pending);

/* Returns the number of records in each copy. */
uint32_t br_copies_size(const struct br_copies *copies);

/* Returns the number of records without a result, in all copies together. */
uint64_t br_copies_pending(const struct br_copies *copies);

/* Separates the copies from their item, which may then be freed. The br_copies frees itself when
 * all records of all copies have a result. */
void br_copies_close(struct br_copies *copies);

/* Returns the original records without a result to the item, and frees the br_copies. None of
 * the copies may have pending records. */
void br_copies_return(struct br_copies *copies);
