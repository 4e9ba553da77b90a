/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps account of who owes the ledger the spans and samples of an item. Each is counted once,
 * however many destinations it goes to.
 *
 * An item owes `n_held` of them, each until it was settled: sent, rejected or dropped. It owes them
 * to the worker's ledger or, behind a fan-out, to the account that the fan-out opened for what it
 * shares out. Every destination borrows the whole from that account. The account itself owes it
 * once to whom the shared item owed it, and settles as sent what the destination that has got
 * furthest has sent; what none of them has sent when the last one has ended, it settles as the last
 * loss that it heard of.
 *
 * Beside that, the ledger of an exporter counts all that comes to it and what became of it there,
 * however often it comes (br_debt_enter).
 *
 * Debts of several accounts meet in a batch. What is settled of it is taken from them in any order:
 * nobody knows which spans of a batch a peer has refused. Without memory a debt may be moved
 * together with more of its account than it should be; sums stay right.
 */
#pragma once

#include "core/item.h"
#include "core/metrics.h"

/* --- Debts ----------------------------------------------------------------------------------- */

/* Moves up to `count` of what `from` owes. `into` is from then on in the exporter that `from` is
 * in, unless it is in one. False when there was no memory to tell accounts apart; moving all back
 * undoes it. */
bool br_debt_move(struct br_debt *into, struct br_debt *from, uint32_t count);

/* Says what became of up to `count`. `reason` of what was dropped, a constant. */
void br_debt_settle(struct br_debt *debt, struct br_host *host, enum br_signal signal,
                    enum br_fate fate, const char *reason, uint32_t count);

/* Notes that all that is owed has come to the exporter whose ledger this is. Nothing happens where
 * it is there already, or `ledger` is NULL. */
void br_debt_enter(struct br_debt *debt, enum br_signal signal, struct br_ledger *ledger);

/* Notes that the exporter gives it back: for its ledger all that is owed is rejected. */
void br_debt_leave(struct br_debt *debt, enum br_signal signal);

/* Gives back what accounts have lent, and forgets the rest; for the exporter that it is in it is
 * rejected. For who hears that the data went nowhere and that its senders still have it. */
void br_debt_forgive(struct br_debt *debt, enum br_signal signal);

/* --- Accounts -------------------------------------------------------------------------------- */

struct br_account;

/* Opens an account for `count` destinations of `item`, to which all goes that the item owes. NULL
 * when there is no memory; then nothing has changed. */
struct br_account *br_account_open(struct br_item *item, size_t count);

/* Lends all of the account once more, to destination `index`, to whom nothing is lent. Returns
 * false when there is no memory. */
bool br_account_lend(struct br_account *account, size_t index, struct br_debt *debt);

/* Return what the account lends to each destination; and what is lent to all and not settled. */
uint32_t br_account_size(const struct br_account *account);
uint64_t br_account_lent(const struct br_account *account);

/* `close` ends the account once all that is lent is settled. `return`, when nothing is lent, puts
 * what is left of it back into the debt of its item. The item need not live longer than until then.
 */
void br_account_close(struct br_account *account);
void br_account_return(struct br_account *account);
