/* SPDX-License-Identifier: Apache-2.0 */
#include "core/debt.h"

#include "base/mem.h"
#include "core/host.h"

/* What one destination has done with what it borrowed. */
struct claim {
    struct br_account *account;
    uint32_t n_sent;
};

struct br_account {
    struct br_host *host;
    enum br_signal signal;
    struct br_item *item; /* NULL once closed */
    struct br_debt purse; /* what it owes itself */
    uint32_t count;       /* what it lends to each */
    uint32_t n_sent;      /* of these, settled as sent */
    uint64_t n_lent;      /* to all destinations, not settled */
    enum br_fate fate;    /* the last loss */
    const char *reason;
    struct claim claims[];
};

/* So much of a debt is owed for a claim. */
struct br_portion {
    struct br_portion *next;
    struct claim *claim;
    uint32_t count;
};

/* --- Portions -------------------------------------------------------------------------------- */

/* Takes the portion. Neighbours of one claim become one, so that what was cut into pieces and comes
 * back is as short as it was. */
static void debt_portion_push(struct br_debt *debt, struct br_portion *portion)
{
    struct br_portion *first = debt->portions;
    if (first && first->claim == portion->claim) {
        first->count += portion->count;
        br_free(portion);
        return;
    }
    portion->next = first;
    debt->portions = portion;
}

static struct br_portion *debt_portion_shift(struct br_debt *debt)
{
    struct br_portion *p = debt->portions;
    if (p)
        debt->portions = p->next;
    return p;
}

static void debt_portion_move_all(struct br_debt *into, struct br_debt *from)
{
    struct br_portion *p;
    if (!into->portions) {
        into->portions = from->portions;
        from->portions = NULL;
        return;
    }
    while ((p = debt_portion_shift(from)))
        debt_portion_push(into, p);
}

/* Moves `count` of the first portion, which has more. False when there is no memory. */
static bool debt_portion_cut(struct br_debt *into, struct br_debt *from, uint32_t count)
{
    struct br_portion *first = from->portions, *cut = br_malloc(sizeof *cut);
    if (!cut)
        return false;
    *cut = (struct br_portion){.claim = first->claim, .count = count};
    first->count -= count;
    debt_portion_push(into, cut);
    return true;
}

/* False when there was no memory to cut one, which was moved whole. */
static bool debt_portion_move(struct br_debt *into, struct br_debt *from, uint32_t count)
{
    while (count && from->portions) {
        uint32_t all = from->portions->count;
        if (all > count && debt_portion_cut(into, from, count))
            return true;
        debt_portion_push(into, debt_portion_shift(from));
        if (all > count)
            return false;
        count -= all;
    }
    return true;
}

/* --- Settling -------------------------------------------------------------------------------- */

static void debt_count(struct br_ledger *ledger, enum br_signal signal, enum br_fate fate,
                       const char *reason, uint32_t count)
{
    *ledger->held[signal] -= count;
    if (fate == BR_FATE_SENT)
        *ledger->sent[signal] += count;
    else if (fate == BR_FATE_REJECTED)
        *ledger->rejected[signal] += count;
    else
        br_ledger_dropped(ledger, signal, reason, count);
}

static void debt_account_end_if_over(struct br_account *account)
{
    if (account->item || account->n_lent)
        return;
    br_debt_settle(&account->purse, account->host, account->signal, account->fate, account->reason,
                   account->purse.n_held);
    br_free(account);
}

/* Fan-outs behind fan-outs make this recursive, as deep as a graph has them: three at most. */
static void debt_claim_settle(struct claim *claim, enum br_fate fate, const char *reason,
                              uint32_t count)
{
    struct br_account *account = claim->account;
    account->n_lent -= count;
    if (fate == BR_FATE_SENT) {
        claim->n_sent += count;
        uint32_t ahead = claim->n_sent > account->n_sent ? claim->n_sent - account->n_sent : 0;
        account->n_sent += ahead;
        for (struct br_item *up = account->item; up; up = up->parent)
            up->n_sent += ahead;
        br_debt_settle(&account->purse, account->host, account->signal, BR_FATE_SENT, NULL, ahead);
    } else {
        account->fate = fate;
        account->reason = reason;
    }
    debt_account_end_if_over(account);
}

static void debt_settle_portions(struct br_debt *debt, enum br_fate fate, const char *reason,
                                 uint32_t count)
{
    while (count && debt->portions) {
        struct br_portion *p = debt->portions;
        struct claim *claim = p->claim;
        uint32_t now = p->count < count ? p->count : count;
        p->count -= now;
        count -= now;
        if (p->count == 0)
            br_free(debt_portion_shift(debt));
        debt_claim_settle(claim, fate, reason, now);
    }
}

void br_debt_settle(struct br_debt *debt, struct br_host *host, enum br_signal signal,
                    enum br_fate fate, const char *reason, uint32_t count)
{
    if (count > debt->n_held)
        count = debt->n_held;
    if (count == 0)
        return;
    uint32_t claimed = count < debt->n_claimed ? count : debt->n_claimed;
    debt->n_held -= count;
    debt->n_claimed -= claimed;
    if (debt->exporter)
        debt_count(debt->exporter, signal, fate, reason, count);
    if (count > claimed)
        debt_count(&host->ledger, signal, fate, reason, count - claimed);
    if (claimed)
        debt_settle_portions(debt, fate, reason, debt->n_claimed ? claimed : UINT32_MAX);
}

/* --- Debts ----------------------------------------------------------------------------------- */

bool br_debt_move(struct br_debt *into, struct br_debt *from, uint32_t count)
{
    if (count > from->n_held)
        count = from->n_held;
    if (!into->exporter)
        into->exporter = from->exporter;
    uint32_t claimed = count < from->n_claimed ? count : from->n_claimed;
    into->n_held += count;
    from->n_held -= count;
    into->n_claimed += claimed;
    from->n_claimed -= claimed;
    if (from->n_claimed)
        return debt_portion_move(into, from, claimed);
    debt_portion_move_all(into, from);
    return true;
}

void br_debt_enter(struct br_debt *debt, enum br_signal signal, struct br_ledger *ledger)
{
    if (!ledger || debt->exporter == ledger)
        return;
    debt->exporter = ledger;
    *ledger->received[signal] += debt->n_held;
    *ledger->held[signal] += debt->n_held;
}

void br_debt_leave(struct br_debt *debt, enum br_signal signal)
{
    if (debt->exporter)
        debt_count(debt->exporter, signal, BR_FATE_REJECTED, NULL, debt->n_held);
    debt->exporter = NULL;
}

void br_debt_forgive(struct br_debt *debt, enum br_signal signal)
{
    struct br_portion *p;
    br_debt_leave(debt, signal);
    while ((p = debt_portion_shift(debt))) {
        struct br_account *account = p->claim->account;
        account->n_lent -= p->count;
        br_free(p);
        debt_account_end_if_over(account);
    }
    *debt = (struct br_debt){0};
}

/* --- Accounts -------------------------------------------------------------------------------- */

struct br_account *br_account_open(struct br_item *item, size_t count)
{
    struct br_account *account = br_calloc(1, sizeof *account + count * sizeof account->claims[0]);
    if (!account)
        return NULL;
    account->item = item;
    account->host = item->host;
    account->signal = item->signal;
    account->count = item->n_held;
    account->fate = BR_FATE_REJECTED;
    (void)br_debt_move(&account->purse, &item->debt, item->n_held);
    for (size_t i = 0; i < count; i++)
        account->claims[i].account = account;
    return account;
}

bool br_account_lend(struct br_account *account, size_t index, struct br_debt *debt)
{
    struct br_portion *p = account->count ? br_malloc(sizeof *p) : NULL;
    if (account->count && !p)
        return false;
    *debt = (struct br_debt){.n_held = account->count, .n_claimed = account->count, .portions = p};
    if (p)
        *p = (struct br_portion){.claim = &account->claims[index], .count = account->count};
    account->claims[index].n_sent = 0;
    account->n_lent += account->count;
    return true;
}

uint32_t br_account_size(const struct br_account *account)
{
    return account->count;
}

uint64_t br_account_lent(const struct br_account *account)
{
    return account->n_lent;
}

void br_account_close(struct br_account *account)
{
    account->item = NULL;
    debt_account_end_if_over(account);
}

void br_account_return(struct br_account *account)
{
    (void)br_debt_move(&account->item->debt, &account->purse, account->purse.n_held);
    br_free(account);
}
