/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/fanout.h"

#include <stdio.h>

#include "base/mem.h"
#include "core/debt.h"
#include "pipeline/lane.h"

#define APART_COST 1024 /* of an item that goes on alone, beside its data */

struct end {
    struct br_fanout_end config;
    struct br_lane *lane;
    size_t apart; /* bytes that it goes on with alone */
    bool slow;    /* a sender has waited for it in vain, and it has taken nothing since */
};

struct br_fanout {
    struct br_consumer input;
    struct br_host *host;
    bool closing;
    unsigned n_apart; /* groups of which only those are left that go on alone */
    void (*on_end)(void *arg);
    void *on_end_arg;
    size_t count;
    struct end ends[];
};

enum fate {
    UNDER_WAY,
    REFUSED, /* for now; it is not decided what becomes of it */
    HELD,    /* in the lane, and the sender waits for it */
    OVER,    /* done, rejected, dropped, or held and nobody waits */
};

/* One destination of one item. */
struct share {
    struct group *group;
    enum fate fate;
    struct br_debt debt; /* REFUSED: what the destination has left of it */
    bool lent;           /* REFUSED: `debt` is all of it */
    bool rejected;
    bool lags;           /* REFUSED: because it goes on alone with all that it may */
    size_t apart;        /* bytes, while it goes on alone */
    struct br_item *own; /* then: the data without debt, to be held should it refuse; or NULL */
};

/* One item that is not finished. */
struct group {
    struct br_fanout *fanout;
    struct br_item *item;
    struct br_account *account;
    uint32_t count; /* spans or samples that it owes */
    unsigned n_under_way, n_held;
    bool taken;            /* one has ended for good: nothing goes back to the sender */
    bool waited;           /* for as long as a sender does */
    struct br_timer timer; /* until then */
    bool apart;            /* the item has ended; neither it nor the account is there any more */
    enum br_signal signal;
    struct br_outcome outcome; /* of those that have ended for good */
    struct br_outcome refusal; /* of the others */
    struct share shares[];
};

static struct end *fanout_end_of(const struct share *share)
{
    return &share->group->fanout->ends[share - share->group->shares];
}

/* The same data went to all: what two have refused of it they have not refused twice. */
static void fanout_fold(struct br_outcome *into, const struct br_outcome *outcome)
{
    uint32_t n = outcome->n_rejected > into->n_rejected ? outcome->n_rejected : into->n_rejected;
    br_outcome_fold(into, outcome);
    into->n_rejected = n;
}

/* --- What others have taken ------------------------------------------------------------------ */

static void fanout_group_step(struct group *group);

/* A sender that waited for the delivery hears that it was not everywhere, and is not to send it
 * again to all. */
static void fanout_say_lost(struct share *share)
{
    struct br_outcome *outcome = &share->group->outcome;
    outcome->n_rejected = share->group->item->n_items;
    if (!outcome->text[0])
        (void)snprintf(outcome->text, sizeof outcome->text,
                       "%s did not take it in time, and goes without it",
                       fanout_end_of(share)->config.name);
}

/* A sender that has not waited for as long as it takes hears why. */
static void fanout_say_kept(struct share *share)
{
    struct br_outcome *outcome = &share->group->outcome;
    if (!outcome->text[0])
        (void)snprintf(outcome->text, sizeof outcome->text,
                       "%s has not taken it yet; it is kept for it",
                       fanout_end_of(share)->config.name);
}

static void fanout_on_lane_end(const struct br_outcome *outcome, void *arg)
{
    struct share *share = arg;
    struct group *group = share->group;
    share->fate = OVER;
    group->n_held--;
    if (outcome->verdict == BR_DONE)
        fanout_end_of(share)->slow = false;
    if (!group->apart && outcome->verdict != BR_RETRY)
        fanout_fold(&group->outcome, outcome);
    else if (!group->apart)
        fanout_say_lost(share);
    fanout_group_step(group);
}

/* Makes `debt` all that can be owed for it. False when there is no memory. */
static bool fanout_borrow(struct share *share)
{
    struct group *group = share->group;
    if (!share->lent &&
        !br_account_lend(group->account, (size_t)(share - group->shares), &share->debt))
        return false;
    share->lent = true;
    br_debt_enter(&share->debt, group->item->signal, fanout_end_of(share)->config.ledger);
    return true;
}

/* The data without debt, which may outlive the item. NULL when there is no memory. */
static struct br_item *fanout_make_own(const struct br_item *item)
{
    struct br_item *own = br_item_twin(item);
    if (!own)
        return NULL;
    own->metadata = NULL; /* of the item's arena */
    if (br_item_keep_metadata(own, item))
        return own;
    br_item_free(own);
    return NULL;
}

/* The data with all of its debt, to be held for one destination. NULL when there is no memory. */
static struct br_item *fanout_make_held(struct share *share)
{
    struct br_item *own = fanout_make_own(share->group->item);
    if (!own || !fanout_borrow(share)) {
        br_item_free(own);
        return NULL;
    }
    own->debt = share->debt;
    share->debt = (struct br_debt){0};
    return own;
}

/* Nothing can be held for it. */
static void fanout_lose(struct share *share, const char *reason, const char *why)
{
    struct group *group = share->group;
    enum br_signal signal = group->item->signal;
    (void)fanout_borrow(share); /* so that its exporter has it in its account, too */
    br_lane_lost(fanout_end_of(share)->lane, signal, br_account_size(group->account), why);
    br_debt_settle(&share->debt, group->fanout->host, signal, BR_FATE_DROPPED, reason,
                   share->debt.n_held);
}

static void fanout_hold(struct share *share)
{
    struct group *group = share->group;
    struct end *end = fanout_end_of(share);
    bool told = group->item->waits || (end->config.delivers && !group->item->answered),
         waits = told && (group->item->waits || !end->slow);
    struct br_item *own = NULL;
    share->fate = OVER;
    if (group->fanout->closing)
        fanout_lose(share, "shutdown", "shutting down");
    else if (end->config.final)
        fanout_lose(share, share->lags ? "lagging" : "retries_exhausted", group->refusal.text);
    else if (!(own = fanout_make_held(share)))
        fanout_lose(share, "out_of_memory", "out of memory");
    bool held = own && br_lane_hold(end->lane, own, waits ? fanout_on_lane_end : NULL, share);
    if (held && waits) {
        share->fate = HELD;
        group->n_held++;
    } else if (held && told) {
        fanout_say_kept(share);
    } else if (told) {
        fanout_say_lost(share);
    }
}

static void fanout_hold_refused(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        if (group->shares[i].fate == REFUSED)
            fanout_hold(&group->shares[i]);
}

/* --- The end of an item ---------------------------------------------------------------------- */

/* The sender's item is not lost where one has rejected what another has taken. */
static void fanout_say_rejected(struct group *group, const struct br_outcome *outcome)
{
    size_t n_rejected = 0;
    for (size_t i = 0; i < group->fanout->count; i++)
        n_rejected += group->shares[i].rejected;
    for (size_t i = 0; i < group->fanout->count && n_rejected < group->fanout->count; i++)
        if (group->shares[i].rejected)
            br_lane_lost(group->fanout->ends[i].lane, group->item->signal,
                         br_account_size(group->account), outcome->text);
}

static void fanout_group_free(struct group *group)
{
    br_host_timer_stop(group->fanout->host, &group->timer);
    br_free(group);
}

static void fanout_group_end(struct group *group, const struct br_outcome *outcome)
{
    fanout_say_rejected(group, outcome);
    if (outcome->verdict != BR_DONE && br_account_lent(group->account) == 0)
        br_account_return(group->account);
    else
        br_account_close(group->account);
    br_item_finish(group->item, outcome);
    fanout_group_free(group);
}

static void fanout_give_back(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        br_debt_forgive(&group->shares[i].debt, group->item->signal);
    fanout_group_end(group, &group->refusal);
}

/* --- Going on alone -------------------------------------------------------------------------- */

static bool fanout_may_leave(const struct group *group, size_t index)
{
    const struct end *end = &group->fanout->ends[index];
    switch (group->shares[index].fate) {
    case UNDER_WAY:
        return end->config.apart_bytes &&
               (end->config.final || group->item->answered || group->waited || end->slow);
    case HELD:
        return group->waited;
    default:
        return true;
    }
}

/* Nobody but such as can go on alone is left of what another one has taken. */
static bool fanout_may_part(const struct group *group)
{
    bool may =
        group->taken && group->n_under_way + group->n_held && !group->apart && !group->item->waits;
    for (size_t i = 0; may && i < group->fanout->count; i++)
        may = fanout_may_leave(group, i);
    return may;
}

static void fanout_leave(struct share *share)
{
    struct group *group = share->group;
    struct end *end = fanout_end_of(share);
    if (share->fate == OVER)
        return;
    if (share->fate == UNDER_WAY) {
        share->apart = group->item->size + APART_COST;
        end->apart += share->apart;
        share->own = end->config.final ? NULL : fanout_make_own(group->item);
    }
    if (!end->config.final && !group->item->answered) {
        end->slow = true;
        fanout_say_kept(share);
    }
}

static void fanout_part(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        fanout_leave(&group->shares[i]);
    group->apart = true;
    group->fanout->n_apart++;
    fanout_say_rejected(group, &group->outcome);
    br_account_close(group->account);
    br_item_finish(group->item, &group->outcome);
    group->item = NULL;
    group->account = NULL;
}

static void fanout_part_end(struct group *group)
{
    struct br_fanout *fanout = group->fanout;
    fanout->n_apart--;
    fanout_group_free(group);
    if (fanout->on_end)
        fanout->on_end(fanout->on_end_arg);
}

/* Holds what it refused after the others had ended. False where a part of it was taken, at the end,
 * or without memory. */
static bool fanout_hold_apart(struct share *share, struct br_item *child)
{
    struct br_item *own = share->own;
    if (!own || share->group->fanout->closing || child->n_held != share->group->count)
        return false;
    share->own = NULL;
    (void)br_debt_move(&own->debt, &child->debt, child->n_held);
    (void)br_lane_hold(fanout_end_of(share)->lane, own, NULL, NULL);
    return true;
}

/* One that went on alone has ended. */
static void fanout_on_apart(struct share *share, struct br_item *child)
{
    struct group *group = share->group;
    const struct br_outcome *outcome = &child->outcome;
    const char *reason = group->fanout->closing ? "shutdown" : "retries_exhausted";
    bool held = outcome->verdict == BR_RETRY && fanout_hold_apart(share, child);
    br_item_free(share->own);
    share->own = NULL;
    fanout_end_of(share)->apart -= share->apart;
    share->fate = OVER;
    if (outcome->verdict == BR_DONE)
        fanout_end_of(share)->slow = false;
    if (outcome->verdict == BR_DONE || held)
        return;
    br_lane_lost(fanout_end_of(share)->lane, group->signal, child->n_held, outcome->text);
    br_item_settle(child, outcome->verdict == BR_RETRY ? BR_FATE_DROPPED : BR_FATE_REJECTED, reason,
                   child->n_held);
}

static void fanout_on_waited(struct br_timer *timer)
{
    struct group *group = br_container_of(timer, struct group, timer);
    group->waited = true;
    fanout_group_step(group);
}

/* Without memory for the timer the sender waits as long as it takes. */
static void fanout_wait(struct group *group)
{
    if (group->taken && !group->apart && !group->item->waits && !group->waited &&
        !group->timer.due_ms)
        (void)br_host_timer(group->fanout->host, &group->timer, BR_FANOUT_WAIT_MS,
                            fanout_on_waited);
}

static void fanout_group_step(struct group *group)
{
    if (group->taken && !group->apart)
        fanout_hold_refused(group);
    if (fanout_may_part(group))
        fanout_part(group);
    if (group->n_under_way || group->n_held) {
        fanout_wait(group);
        return;
    }
    if (group->apart)
        fanout_part_end(group);
    else if (group->taken)
        fanout_group_end(group, &group->outcome);
    else
        fanout_give_back(group);
}

static void fanout_refuse(struct share *share, const struct br_outcome *outcome)
{
    share->fate = REFUSED;
    br_outcome_fold(&share->group->refusal, outcome);
}

static void fanout_on_share(struct br_item *child, void *arg)
{
    struct share *share = arg;
    struct group *group = share->group;
    const struct br_outcome *outcome = &child->outcome;
    group->n_under_way--;
    if (group->apart) {
        fanout_on_apart(share, child);
    } else if (outcome->verdict == BR_RETRY) {
        share->lent = child->n_held == group->count;
        if (share->lent)
            (void)br_debt_move(&share->debt, &child->debt, child->n_held);
        br_debt_forgive(&child->debt, child->signal);
        fanout_refuse(share, outcome);
    } else {
        share->fate = OVER;
        share->rejected = outcome->verdict == BR_REJECT;
        if (outcome->verdict == BR_DONE)
            fanout_end_of(share)->slow = false;
        group->taken = true;
        fanout_fold(&group->outcome, outcome);
        br_item_settle(child, BR_FATE_REJECTED, NULL, child->n_held);
    }
    fanout_group_step(group);
}

/* --- The beginning --------------------------------------------------------------------------- */

/* It goes on alone with as much as it may. */
static bool fanout_is_behind(const struct end *end)
{
    return end->config.apart_bytes && end->apart >= end->config.apart_bytes;
}

/* True when all destinations lag: then the sender has to wait for them. */
static bool fanout_all_behind(const struct br_fanout *fanout)
{
    size_t n = 0;
    for (size_t i = 0; i < fanout->count; i++)
        n += fanout_is_behind(&fanout->ends[i]);
    return n == fanout->count;
}

/* The data for one destination, without debt. NULL when there is no memory. */
static struct br_item *fanout_make_child(const struct group *group, const struct end *end)
{
    return end->config.apart_bytes ? fanout_make_own(group->item) : br_item_twin(group->item);
}

static void fanout_share_out(struct group *group, size_t index)
{
    struct share *share = &group->shares[index];
    const struct end *end = fanout_end_of(share);
    struct br_outcome outcome;
    share->lags = fanout_is_behind(end) && !fanout_all_behind(group->fanout);
    if (share->lags || br_lane_waits(end->lane)) {
        outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "%s lags behind", end->config.name);
        fanout_refuse(share, &outcome);
        return;
    }
    struct br_item *child = fanout_make_child(group, end);
    if (!child || !br_account_lend(group->account, index, &child->debt)) {
        br_item_free(child);
        outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        fanout_refuse(share, &outcome);
        return;
    }
    br_debt_enter(&child->debt, child->signal, end->config.ledger);
    child->keeps_debt = true;
    child->done = fanout_on_share;
    child->done_arg = share;
    group->n_under_way++;
    br_consume(end->config.next, child);
}

static void fanout_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_fanout *fanout = br_container_of(self, struct br_fanout, input);
    struct group *group = br_calloc(1, sizeof *group + fanout->count * sizeof group->shares[0]);
    struct br_account *account = group ? br_account_open(item, fanout->count) : NULL;
    if (!account) {
        br_free(group);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    group->fanout = fanout;
    group->item = item;
    group->account = account;
    group->count = br_account_size(account);
    group->signal = item->signal;
    group->outcome = group->refusal = BR_OUTCOME_DONE;
    group->n_under_way = 1; /* until all have theirs */
    for (size_t i = 0; i < fanout->count; i++)
        group->shares[i].group = group;
    for (size_t i = 0; i < fanout->count; i++)
        fanout_share_out(group, i);
    group->n_under_way--;
    fanout_group_step(group);
}

/* --- Life ------------------------------------------------------------------------------------ */

static struct br_lane *fanout_make_lane(const struct br_fanout *fanout,
                                        const struct br_fanout_config *config,
                                        const struct br_fanout_end *fanout_end)
{
    struct br_str labels = {.max = 1024};
    br_label(&labels, fanout_end->kind, fanout_end->id);
    struct br_lane_config lane = {
        .next = fanout_end->next,
        .name = fanout_end->name,
        .labels = labels.failed ? "" : labels.data,
        .max_bytes = config ? br_host_share(fanout->host, (size_t)config->hold_size) : 0,
        .max_ms = config ? config->hold_time / 1000000 : 0};
    struct br_lane *made = br_lane_new(fanout->host, &lane);
    br_str_release(&labels);
    return made;
}

struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count)
{
    struct br_fanout *fanout = br_calloc(1, sizeof *fanout + count * sizeof fanout->ends[0]);
    if (!fanout)
        return NULL;
    fanout->input.consume = fanout_consume;
    fanout->host = host;
    for (fanout->count = 0; fanout->count < count; fanout->count++) {
        struct end *end = &fanout->ends[fanout->count];
        end->config = ends[fanout->count];
        end->lane = fanout_make_lane(fanout, config, &ends[fanout->count]);
        if (!end->lane) {
            br_fanout_free(fanout);
            return NULL;
        }
    }
    return fanout;
}

struct br_consumer *br_fanout_input(struct br_fanout *fanout)
{
    return &fanout->input;
}

bool br_fanout_idle(const struct br_fanout *fanout)
{
    for (size_t i = 0; i < fanout->count; i++)
        if (!br_lane_idle(fanout->ends[i].lane))
            return false;
    return fanout->n_apart == 0;
}

void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg)
{
    fanout->on_end = fn;
    fanout->on_end_arg = arg;
    for (size_t i = 0; i < fanout->count; i++)
        br_lane_on_end(fanout->ends[i].lane, fn, arg);
}

void br_fanout_close(struct br_fanout *fanout)
{
    fanout->closing = true;
    for (size_t i = 0; i < fanout->count; i++)
        br_lane_close(fanout->ends[i].lane);
}

void br_fanout_free(struct br_fanout *fanout)
{
    if (!fanout)
        return;
    for (size_t i = 0; i < fanout->count; i++)
        br_lane_free(fanout->ends[i].lane);
    br_free(fanout);
}

const struct br_option br_fanout_options[] = {
    BR_INT(struct br_fanout_config, hold_size, 64 << 20, 0, 1099511627776.0,
           "bytes held for each destination that lags behind, all workers together; 0: nothing"),
    BR_DURATION(struct br_fanout_config, hold_time, "5m", "how long each item is held"),
    BR_OPT_END,
};
