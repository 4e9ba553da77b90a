/* SPDX-License-Identifier: Apache-2.0 */
#include "core/pending.h"

#include "base/mem.h"
#include "core/host.h"

/* The copies of an item's records for one destination. */
struct copy {
    struct br_copies *copies;
    uint32_t n_sent;
};

struct br_copies {
    struct br_host *host;
    enum br_signal signal;
    struct br_item *item;       /* the item whose records were copied; NULL after br_copies_close */
    struct br_pending original; /* the pending records of the item itself */
    uint32_t count;             /* number of records in each copy */
    uint32_t n_sent;            /* records of `original` that were reported as sent */
    uint64_t n_unreported;      /* number of records without a result, in all copies together */
    enum br_result result;      /* the last reported result other than BR_RESULT_SENT */
    const char *reason;
    struct copy each[];
};

/* An entry of the list br_pending.copied: `count` pending records that belong to a copy. */
struct br_copied {
    struct br_copied *next;
    struct copy *copy;
    uint32_t count;
};

/* --- Records of copies ------------------------------------------------------------------------ */

/* Adds an entry to the list and takes ownership of the entry. If the first entry of the list
 * belongs to the same copy, merges the two entries. The list therefore does not grow when pieces
 * return their records. */
static void pending_copied_push(struct br_pending *pending, struct br_copied *copied)
{
    struct br_copied *first = pending->copied;
    if (first && first->copy == copied->copy) {
        first->count += copied->count;
        br_free(copied);
        return;
    }
    copied->next = first;
    pending->copied = copied;
}

static struct br_copied *pending_copied_shift(struct br_pending *pending)
{
    struct br_copied *p = pending->copied;
    if (p)
        pending->copied = p->next;
    return p;
}

static void pending_copied_move_all(struct br_pending *into, struct br_pending *from)
{
    struct br_copied *p;
    if (!into->copied) {
        into->copied = from->copied;
        from->copied = NULL;
        return;
    }
    while ((p = pending_copied_shift(from)))
        pending_copied_push(into, p);
}

/* Moves `count` records from the first entry, which must contain more than `count` records. Returns
 * false if memory is short. */
static bool pending_copied_cut(struct br_pending *into, struct br_pending *from, uint32_t count)
{
    struct br_copied *first = from->copied, *cut = br_malloc(sizeof *cut);
    if (!cut)
        return false;
    *cut = (struct br_copied){.copy = first->copy, .count = count};
    first->count -= count;
    pending_copied_push(into, cut);
    return true;
}

/* Moves `count` pending records that belong to copies. If memory for dividing an entry is short,
 * moves the whole entry and returns false. */
static bool pending_copied_move(struct br_pending *into, struct br_pending *from, uint32_t count)
{
    while (count && from->copied) {
        uint32_t all = from->copied->count;
        if (all > count && pending_copied_cut(into, from, count))
            return true;
        pending_copied_push(into, pending_copied_shift(from));
        if (all > count)
            return false;
        count -= all;
    }
    return true;
}

/* --- Reports ---------------------------------------------------------------------------------- */

static void pending_count(struct br_ledger *ledger, enum br_signal signal, enum br_result result,
                          const char *reason, uint32_t count)
{
    *ledger->held[signal] -= count;
    if (result == BR_RESULT_SENT)
        *ledger->sent[signal] += count;
    else if (result == BR_RESULT_REJECTED)
        *ledger->rejected[signal] += count;
    else if (result == BR_RESULT_STORED)
        *ledger->stored[signal] += count;
    else
        br_ledger_dropped(ledger, signal, reason, count);
}

static void pending_end_copies(struct br_copies *copies)
{
    if (copies->item || copies->n_unreported)
        return;
    br_pending_report(&copies->original, copies->host, copies->signal, copies->result,
                      copies->reason, copies->original.n_pending);
    br_free(copies);
}

/* This function is recursive, because a fan-out can send to another fan-out. A path through the
 * graph contains at most three fan-outs. */
static void pending_report_copy(struct copy *copy, enum br_result result, const char *reason,
                                uint32_t count)
{
    struct br_copies *copies = copy->copies;
    copies->n_unreported -= count;
    if (result == BR_RESULT_SENT) {
        copy->n_sent += count;
        uint32_t ahead = copy->n_sent > copies->n_sent ? copy->n_sent - copies->n_sent : 0;
        copies->n_sent += ahead;
        for (struct br_item *up = copies->item; up; up = up->parent)
            up->n_sent += ahead;
        br_pending_report(&copies->original, copies->host, copies->signal, BR_RESULT_SENT, NULL,
                          ahead);
    } else {
        copies->result = result;
        copies->reason = reason;
    }
    pending_end_copies(copies);
}

static void pending_report_copied(struct br_pending *pending, enum br_result result,
                                  const char *reason, uint32_t count)
{
    while (count && pending->copied) {
        struct br_copied *p = pending->copied;
        struct copy *copy = p->copy;
        uint32_t now = p->count < count ? p->count : count;
        p->count -= now;
        count -= now;
        if (p->count == 0)
            br_free(pending_copied_shift(pending));
        pending_report_copy(copy, result, reason, now);
    }
}

void br_pending_report(struct br_pending *pending, struct br_host *host, enum br_signal signal,
                       enum br_result result, const char *reason, uint32_t count)
{
    if (count > pending->n_pending)
        count = pending->n_pending;
    if (count == 0)
        return;
    uint32_t n_copied = count < pending->n_copied ? count : pending->n_copied;
    pending->n_pending -= count;
    pending->n_copied -= n_copied;
    if (pending->exporter)
        pending_count(pending->exporter, signal, result, reason, count);
    if (count > n_copied)
        pending_count(&host->ledger, signal, result, reason, count - n_copied);
    if (n_copied)
        pending_report_copied(pending, result, reason, pending->n_copied ? n_copied : UINT32_MAX);
}

/* --- Pending records -------------------------------------------------------------------------- */

bool br_pending_move(struct br_pending *into, struct br_pending *from, uint32_t count)
{
    if (count > from->n_pending)
        count = from->n_pending;
    if (!into->exporter)
        into->exporter = from->exporter;
    uint32_t n_copied = count < from->n_copied ? count : from->n_copied;
    into->n_pending += count;
    from->n_pending -= count;
    into->n_copied += n_copied;
    from->n_copied -= n_copied;
    if (from->n_copied)
        return pending_copied_move(into, from, n_copied);
    pending_copied_move_all(into, from);
    return true;
}

void br_pending_enter(struct br_pending *pending, enum br_signal signal, struct br_ledger *ledger)
{
    if (!ledger || pending->exporter == ledger)
        return;
    pending->exporter = ledger;
    *ledger->received[signal] += pending->n_pending;
    *ledger->held[signal] += pending->n_pending;
}

void br_pending_leave(struct br_pending *pending, enum br_signal signal)
{
    if (pending->exporter)
        pending_count(pending->exporter, signal, BR_RESULT_REJECTED, NULL, pending->n_pending);
    pending->exporter = NULL;
}

void br_pending_discard(struct br_pending *pending, enum br_signal signal)
{
    struct br_copied *p;
    br_pending_leave(pending, signal);
    while ((p = pending_copied_shift(pending))) {
        struct br_copies *copies = p->copy->copies;
        copies->n_unreported -= p->count;
        br_free(p);
        pending_end_copies(copies);
    }
    *pending = (struct br_pending){0};
}

/* --- Copies ----------------------------------------------------------------------------------- */

struct br_copies *br_copies_open(struct br_item *item, size_t count)
{
    struct br_copies *copies = br_calloc(1, sizeof *copies + count * sizeof copies->each[0]);
    if (!copies)
        return NULL;
    copies->item = item;
    copies->host = item->host;
    copies->signal = item->signal;
    copies->count = item->n_pending;
    copies->result = BR_RESULT_REJECTED;
    (void)br_pending_move(&copies->original, &item->pending, item->n_pending);
    for (size_t i = 0; i < count; i++)
        copies->each[i].copies = copies;
    return copies;
}

bool br_copies_make(struct br_copies *copies, size_t index, struct br_pending *pending)
{
    struct br_copied *p = copies->count ? br_malloc(sizeof *p) : NULL;
    if (copies->count && !p)
        return false;
    *pending =
        (struct br_pending){.n_pending = copies->count, .n_copied = copies->count, .copied = p};
    if (p)
        *p = (struct br_copied){.copy = &copies->each[index], .count = copies->count};
    copies->each[index].n_sent = 0;
    copies->n_unreported += copies->count;
    return true;
}

uint32_t br_copies_size(const struct br_copies *copies)
{
    return copies->count;
}

uint64_t br_copies_pending(const struct br_copies *copies)
{
    return copies->n_unreported;
}

void br_copies_close(struct br_copies *copies)
{
    copies->item = NULL;
    pending_end_copies(copies);
}

void br_copies_return(struct br_copies *copies)
{
    (void)br_pending_move(&copies->item->pending, &copies->original, copies->original.n_pending);
    br_free(copies);
}
