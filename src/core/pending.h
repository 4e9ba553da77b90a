/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending records are the spans or samples of an item for which no result has been reported to the
 * ledger yet: sent, rejected, dropped or stored. Each record is counted once, however many
 * destinations it is sent to.
 *
 * An item has `n_pending` pending records. Normally their result goes to the ledger of the worker.
 * After a fan-out, or in a batch with late acknowledgement (br_copies_open), each destination has a
 * copy of all pending records. The results of the copies are reported to a `struct br_copies`,
 * which keeps the original records. It reports as many original records as sent as the most
 * successful destination has sent. When the last copy has ended, the remaining original records get
 * the last result that was not BR_RESULT_SENT.
 *
 * An exporter has a ledger, too. The exporter's ledger counts all records that arrive at the
 * exporter, and their results. Records that arrive again are counted again (br_pending_enter).
 *
 * A batch can contain pending records of several br_copies. If a peer rejects a part of the batch,
 * the result is attributed to any of them, because the response does not identify the rejected
 * records. If memory is short, br_pending_move can move more records of one copy than requested,
 * and fewer of others; the sums stay correct.
 */
#pragma once

#include "core/item.h"
#include "core/metrics.h"

/* --- Pending records ------------------------------------------------------------------------- */

/* Moves up to `count` pending records. If `into` has no exporter, it takes over the exporter of
 * `from`. Returns false if memory for dividing the records of a copy was short. To undo such a
 * move, move all records back. */
bool br_pending_move(struct br_pending *into, struct br_pending *from, uint32_t count);

/* Reports the result of up to `count` records. `reason` is a constant that states why the
 * records were dropped; NULL for other results. */
void br_pending_report(struct br_pending *pending, struct br_host *host, enum br_signal signal,
                       enum br_result result, const char *reason, uint32_t count);

/* Counts all records as arrived in the ledger of an exporter. Does nothing if the records have
 * already arrived at this exporter, or if `ledger` is NULL. */
void br_pending_enter(struct br_pending *pending, enum br_signal signal, struct br_ledger *ledger);

/* Counts all records as rejected in the ledger of the exporter at which they have arrived, because
 * the exporter returns them. */
void br_pending_leave(struct br_pending *pending, enum br_signal signal);

/* Discards the pending records without reporting a result to the worker's ledger. Used for an item
 * that its sender still has because no component has accepted it. */
void br_pending_discard(struct br_pending *pending, enum br_signal signal);

/* --- Copies ---------------------------------------------------------------------------------- */

struct br_copies;

/* Moves all pending records of `item` to a new br_copies with up to `count` copies. Returns NULL
 * if memory is short; `item` is then unchanged. */
struct br_copies *br_copies_open(struct br_item *item, size_t count);

/* Creates copy number `index` of all records, which must not exist yet, and writes its pending
 * records to `pending`. Returns false if memory is short. */
bool br_copies_make(struct br_copies *copies, size_t index, struct br_pending *pending);

/* Returns the number of records in each copy. */
uint32_t br_copies_size(const struct br_copies *copies);

/* Returns the number of records without a result, in all copies together. */
uint64_t br_copies_pending(const struct br_copies *copies);

/* Separates the copies from their item, which may then be freed. The br_copies frees itself when
 * all records of all copies have a result. */
void br_copies_close(struct br_copies *copies);

/* Gives the original records that have no result back to the item, and frees the br_copies. No copy
 * may have pending records. */
void br_copies_return(struct br_copies *copies);
