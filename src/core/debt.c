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
    uint32_t n;           /* what it lends to each */
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
    uint32_t n;
};

/* --- Portions -------------------------------------------------------------------------------- */

/* Takes the portion. Neighbours of one claim become one, so that what was cut into pieces and comes
 * back is as short as it was. */
static void portion_push(struct br_debt *debt, struct br_portion *p)
{
    struct br_portion *first = debt->portions;
    if (first && first->claim == p->claim) {
        first->n += p->n;
        br_free(p);
        return;
    }
    p->next = first;
    debt->portions = p;
}

static struct br_portion *portion_shift(struct br_debt *debt)
{
    struct br_portion *p = debt->portions;
    if (p)
        debt->portions = p->next;
    return p;
}

static void portion_move_all(struct br_debt *into, struct br_debt *from)
{
    struct br_portion *p;
    if (!into->portions) {
        into->portions = from->portions;
        from->portions = NULL;
        return;
    }
    while ((p = portion_shift(from)))
        portion_push(into, p);
}

/* Moves `n` of the first portion, which has more. False when there is no memory. */
static bool portion_cut(struct br_debt *into, struct br_debt *from, uint32_t n)
{
    struct br_portion *first = from->portions, *cut = br_malloc(sizeof *cut);
    if (!cut)
        return false;
    *cut = (struct br_portion){.claim = first->claim, .n = n};
    first->n -= n;
    portion_push(into, cut);
    return true;
}

/* False when there was no memory to cut one, which was moved whole. */
static bool portion_move(struct br_debt *into, struct br_debt *from, uint32_t n)
{
    while (n && from->portions) {
        uint32_t all = from->portions->n;
        if (all > n && portion_cut(into, from, n))
            return true;
        portion_push(into, portion_shift(from));
        if (all > n)
            return false;
        n -= all;
    }
    return true;
}

/* --- Settling -------------------------------------------------------------------------------- */

static void count(struct br_ledger *l, enum br_signal signal, enum br_fate fate, const char *reason,
                  uint32_t n)
{
    *l->held[signal] -= n;
    if (fate == BR_FATE_SENT)
        *l->sent[signal] += n;
    else if (fate == BR_FATE_REJECTED)
        *l->rejected[signal] += n;
    else
        br_ledger_dropped(l, signal, reason, n);
}

static void account_end_if_over(struct br_account *a)
{
    if (a->item || a->n_lent)
        return;
    br_debt_settle(&a->purse, a->host, a->signal, a->fate, a->reason, a->purse.n_held);
    br_free(a);
}

/* Fan-outs behind fan-outs make this recursive, as deep as a graph has them: three at most. */
static void claim_settle(struct claim *claim, enum br_fate fate, const char *reason, uint32_t n)
{
    struct br_account *a = claim->account;
    a->n_lent -= n;
    if (fate == BR_FATE_SENT) {
        claim->n_sent += n;
        uint32_t ahead = claim->n_sent > a->n_sent ? claim->n_sent - a->n_sent : 0;
        a->n_sent += ahead;
        for (struct br_item *up = a->item; up; up = up->parent)
            up->n_sent += ahead;
        br_debt_settle(&a->purse, a->host, a->signal, BR_FATE_SENT, NULL, ahead);
    } else {
        a->fate = fate;
        a->reason = reason;
    }
    account_end_if_over(a);
}

static void settle_portions(struct br_debt *debt, enum br_fate fate, const char *reason, uint32_t n)
{
    while (n && debt->portions) {
        struct br_portion *p = debt->portions;
        struct claim *claim = p->claim;
        uint32_t now = p->n < n ? p->n : n;
        p->n -= now;
        n -= now;
        if (p->n == 0)
            br_free(portion_shift(debt));
        claim_settle(claim, fate, reason, now);
    }
}

void br_debt_settle(struct br_debt *debt, struct br_host *host, enum br_signal signal,
                    enum br_fate fate, const char *reason, uint32_t n)
{
    if (n > debt->n_held)
        n = debt->n_held;
    if (n == 0)
        return;
    uint32_t claimed = n < debt->n_claimed ? n : debt->n_claimed;
    debt->n_held -= n;
    debt->n_claimed -= claimed;
    if (debt->exporter)
        count(debt->exporter, signal, fate, reason, n);
    if (n > claimed)
        count(&host->ledger, signal, fate, reason, n - claimed);
    if (claimed)
        settle_portions(debt, fate, reason, debt->n_claimed ? claimed : UINT32_MAX);
}

/* --- Debts ----------------------------------------------------------------------------------- */

bool br_debt_move(struct br_debt *into, struct br_debt *from, uint32_t n)
{
    if (n > from->n_held)
        n = from->n_held;
    if (!into->exporter)
        into->exporter = from->exporter;
    uint32_t claimed = n < from->n_claimed ? n : from->n_claimed;
    into->n_held += n;
    from->n_held -= n;
    into->n_claimed += claimed;
    from->n_claimed -= claimed;
    if (from->n_claimed)
        return portion_move(into, from, claimed);
    portion_move_all(into, from);
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
        count(debt->exporter, signal, BR_FATE_REJECTED, NULL, debt->n_held);
    debt->exporter = NULL;
}

void br_debt_forgive(struct br_debt *debt, enum br_signal signal)
{
    struct br_portion *p;
    br_debt_leave(debt, signal);
    while ((p = portion_shift(debt))) {
        struct br_account *a = p->claim->account;
        a->n_lent -= p->n;
        br_free(p);
        account_end_if_over(a);
    }
    *debt = (struct br_debt){0};
}

/* --- Accounts -------------------------------------------------------------------------------- */

struct br_account *br_account_open(struct br_item *item, size_t n)
{
    struct br_account *a = br_calloc(1, sizeof *a + n * sizeof a->claims[0]);
    if (!a)
        return NULL;
    a->item = item;
    a->host = item->host;
    a->signal = item->signal;
    a->n = item->n_held;
    a->fate = BR_FATE_REJECTED;
    (void)br_debt_move(&a->purse, &item->debt, item->n_held);
    for (size_t i = 0; i < n; i++)
        a->claims[i].account = a;
    return a;
}

bool br_account_lend(struct br_account *a, size_t i, struct br_debt *debt)
{
    struct br_portion *p = a->n ? br_malloc(sizeof *p) : NULL;
    if (a->n && !p)
        return false;
    *debt = (struct br_debt){.n_held = a->n, .n_claimed = a->n, .portions = p};
    if (p)
        *p = (struct br_portion){.claim = &a->claims[i], .n = a->n};
    a->claims[i].n_sent = 0;
    a->n_lent += a->n;
    return true;
}

uint32_t br_account_size(const struct br_account *a)
{
    return a->n;
}

uint64_t br_account_lent(const struct br_account *a)
{
    return a->n_lent;
}

void br_account_close(struct br_account *a)
{
    a->item = NULL;
    account_end_if_over(a);
}

void br_account_return(struct br_account *a)
{
    (void)br_debt_move(&a->item->debt, &a->purse, a->purse.n_held);
    br_free(a);
}
