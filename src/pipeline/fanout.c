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
};

struct br_fanout {
    struct br_consumer input;
    struct br_host *host;
    bool closing;
    unsigned n_apart; /* groups of which only those are left that go on alone */
    void (*on_end)(void *arg);
    void *on_end_arg;
    size_t n;
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
    bool lags;    /* REFUSED: because it goes on alone with all that it may */
    size_t apart; /* bytes, while it goes on alone */
};

/* One item that is not finished. */
struct group {
    struct br_fanout *fanout;
    struct br_item *item;
    struct br_account *account;
    unsigned n_under_way, n_held;
    bool taken;                 /* one has ended for good: nothing goes back to the sender */
    bool apart;                 /* the item has ended; neither it nor the account is there any more */
    enum br_signal signal;
    struct br_outcome outcome;  /* of those that have ended for good */
    struct br_outcome refusal;  /* of the others */
    struct share shares[];
};

static struct end *end_of(const struct share *s)
{
    return &s->group->fanout->ends[s - s->group->shares];
}

/* The same data went to all: what two have refused of it they have not refused twice. */
static void fold(struct br_outcome *into, const struct br_outcome *o)
{
    uint32_t n = o->n_rejected > into->n_rejected ? o->n_rejected : into->n_rejected;
    br_outcome_fold(into, o);
    into->n_rejected = n;
}

/* --- What others have taken ------------------------------------------------------------------ */

static void group_step(struct group *g);

/* Who waited for the delivery hears that it was not everywhere, and is not to send it again to all. */
static void say_lost(struct share *s)
{
    struct br_outcome *o = &s->group->outcome;
    o->n_rejected = s->group->item->n_items;
    if (!o->text[0])
        (void)snprintf(o->text, sizeof o->text, "%s did not take it in time, and goes without it",
                       end_of(s)->config.name);
}

static void on_lane_end(const struct br_outcome *o, void *arg)
{
    struct share *s = arg;
    struct group *g = s->group;
    s->fate = OVER;
    g->n_held--;
    if (o->verdict != BR_RETRY)
        fold(&g->outcome, o);
    else
        say_lost(s);
    group_step(g);
}

/* Makes `debt` all that can be owed for it. False when there is no memory. */
static bool borrow(struct share *s)
{
    struct group *g = s->group;
    if (!s->lent && !br_account_lend(g->account, (size_t)(s - g->shares), &s->debt))
        return false;
    s->lent = true;
    br_debt_enter(&s->debt, g->item->signal, end_of(s)->config.ledger);
    return true;
}

/* The data with all of its debt, to be held for one destination. NULL when there is no memory. */
static struct br_item *make_held(struct share *s)
{
    struct group *g = s->group;
    struct br_item *own = br_item_twin(g->item);
    if (!own)
        return NULL;
    own->metadata = NULL;
    if (!br_item_keep_metadata(own, g->item) || !borrow(s)) {
        br_item_free(own);
        return NULL;
    }
    own->debt = s->debt;
    s->debt = (struct br_debt){0};
    return own;
}

/* Nothing can be held for it. */
static void lose(struct share *s, const char *reason, const char *why)
{
    struct group *g = s->group;
    enum br_signal signal = g->item->signal;
    (void)borrow(s); /* so that its exporter has it in its account, too */
    br_lane_lost(end_of(s)->lane, signal, br_account_size(g->account), why);
    br_debt_settle(&s->debt, g->fanout->host, signal, BR_FATE_DROPPED, reason, s->debt.n_held);
}

static void hold(struct share *s)
{
    struct group *g = s->group;
    struct end *e = end_of(s);
    bool waits = e->config.delivers || g->item->waits;
    struct br_item *own = NULL;
    s->fate = OVER;
    if (g->fanout->closing)
        lose(s, "shutdown", "shutting down");
    else if (e->config.final)
        lose(s, s->lags ? "lagging" : "retries_exhausted", g->refusal.text);
    else if (!(own = make_held(s)))
        lose(s, "no_memory", "out of memory");
    if (own && br_lane_hold(e->lane, own, waits ? on_lane_end : NULL, s) && waits) {
        s->fate = HELD;
        g->n_held++;
    } else if (waits) {
        say_lost(s);
    }
}

static void hold_refused(struct group *g)
{
    for (size_t i = 0; i < g->fanout->n; i++)
        if (g->shares[i].fate == REFUSED)
            hold(&g->shares[i]);
}

/* --- The end of an item ---------------------------------------------------------------------- */

/* Where one has rejected what another has taken, the sender's item is not what is lost. */
static void say_rejected(struct group *g, const struct br_outcome *o)
{
    size_t n_rejected = 0;
    for (size_t i = 0; i < g->fanout->n; i++)
        n_rejected += g->shares[i].rejected;
    for (size_t i = 0; i < g->fanout->n && n_rejected < g->fanout->n; i++)
        if (g->shares[i].rejected)
            br_lane_lost(g->fanout->ends[i].lane, g->item->signal, br_account_size(g->account),
                         o->text);
}

static void group_end(struct group *g, const struct br_outcome *o)
{
    say_rejected(g, o);
    if (o->verdict != BR_DONE && br_account_lent(g->account) == 0)
        br_account_return(g->account);
    else
        br_account_close(g->account);
    br_item_finish(g->item, o);
    br_free(g);
}

static void give_back(struct group *g)
{
    for (size_t i = 0; i < g->fanout->n; i++)
        br_debt_forgive(&g->shares[i].debt, g->item->signal);
    group_end(g, &g->refusal);
}

/* --- Going on alone -------------------------------------------------------------------------- */

/* Nobody but such as can go on alone is left of what another one has taken. */
static bool may_part(const struct group *g)
{
    bool may = g->taken && g->n_under_way && !g->n_held && !g->apart && !g->item->waits;
    for (size_t i = 0; i < g->fanout->n; i++)
        may = may && (g->shares[i].fate != UNDER_WAY || g->fanout->ends[i].config.apart_bytes);
    return may;
}

static void part(struct group *g)
{
    for (size_t i = 0; i < g->fanout->n; i++) {
        struct share *s = &g->shares[i];
        if (s->fate != UNDER_WAY)
            continue;
        s->apart = g->item->size + APART_COST;
        end_of(s)->apart += s->apart;
    }
    g->apart = true;
    g->fanout->n_apart++;
    say_rejected(g, &g->outcome);
    br_account_close(g->account);
    br_item_finish(g->item, &g->outcome);
    g->item = NULL;
    g->account = NULL;
}

static void part_end(struct group *g)
{
    struct br_fanout *f = g->fanout;
    f->n_apart--;
    br_free(g);
    if (f->on_end)
        f->on_end(f->on_end_arg);
}

/* One that went on alone has ended. */
static void on_apart(struct share *s, struct br_item *child)
{
    struct group *g = s->group;
    const struct br_outcome *o = &child->outcome;
    const char *reason = g->fanout->closing ? "shutdown" : "retries_exhausted";
    end_of(s)->apart -= s->apart;
    s->fate = OVER;
    if (o->verdict == BR_DONE)
        return;
    br_lane_lost(end_of(s)->lane, g->signal, child->n_held, o->text);
    br_item_settle(child, o->verdict == BR_RETRY ? BR_FATE_DROPPED : BR_FATE_REJECTED, reason,
                   child->n_held);
}

static void group_step(struct group *g)
{
    if (g->taken && !g->apart)
        hold_refused(g);
    if (may_part(g))
        part(g);
    if (g->n_under_way || g->n_held)
        return;
    if (g->apart)
        part_end(g);
    else if (g->taken)
        group_end(g, &g->outcome);
    else
        give_back(g);
}

static void refuse(struct share *s, const struct br_outcome *o)
{
    s->fate = REFUSED;
    br_outcome_fold(&s->group->refusal, o);
}

static void on_share(struct br_item *child, void *arg)
{
    struct share *s = arg;
    struct group *g = s->group;
    const struct br_outcome *o = &child->outcome;
    g->n_under_way--;
    if (g->apart) {
        on_apart(s, child);
    } else if (o->verdict == BR_RETRY) {
        s->lent = child->n_held == br_account_size(g->account);
        if (s->lent)
            (void)br_debt_move(&s->debt, &child->debt, child->n_held);
        br_debt_forgive(&child->debt, child->signal);
        refuse(s, o);
    } else {
        s->fate = OVER;
        s->rejected = o->verdict == BR_REJECT;
        g->taken = true;
        fold(&g->outcome, o);
        br_item_settle(child, BR_FATE_REJECTED, NULL, child->n_held);
    }
    group_step(g);
}

/* --- The beginning --------------------------------------------------------------------------- */

/* It goes on alone with as much as it may. */
static bool is_behind(const struct end *e)
{
    return e->config.apart_bytes && e->apart >= e->config.apart_bytes;
}

/* Where all are, the sender has to wait for them. */
static bool all_behind(const struct br_fanout *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += is_behind(&f->ends[i]);
    return n == f->n;
}

/* The data for one destination, without debt. NULL when there is no memory. */
static struct br_item *make_child(const struct group *g, const struct end *e)
{
    struct br_item *child = br_item_twin(g->item);
    if (!child || !e->config.apart_bytes)
        return child;
    child->metadata = NULL; /* it may outlive the item */
    if (br_item_keep_metadata(child, g->item))
        return child;
    br_item_free(child);
    return NULL;
}

static void share_out(struct group *g, size_t i)
{
    struct share *s = &g->shares[i];
    const struct end *e = end_of(s);
    struct br_outcome o;
    s->lags = is_behind(e) && !all_behind(g->fanout);
    if (s->lags || br_lane_waits(e->lane)) {
        o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "%s lags behind", e->config.name);
        refuse(s, &o);
        return;
    }
    struct br_item *child = make_child(g, e);
    if (!child || !br_account_lend(g->account, i, &child->debt)) {
        br_item_free(child);
        o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        refuse(s, &o);
        return;
    }
    br_debt_enter(&child->debt, child->signal, e->config.ledger);
    child->keeps_debt = true;
    child->done = on_share;
    child->done_arg = s;
    g->n_under_way++;
    br_consume(e->config.next, child);
}

static void fanout_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_fanout *f = br_container_of(self, struct br_fanout, input);
    struct group *g = br_calloc(1, sizeof *g + f->n * sizeof g->shares[0]);
    struct br_account *account = g ? br_account_open(item, f->n) : NULL;
    if (!account) {
        br_free(g);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    g->fanout = f;
    g->item = item;
    g->account = account;
    g->signal = item->signal;
    g->outcome = g->refusal = BR_OUTCOME_DONE;
    g->n_under_way = 1; /* until all have theirs */
    for (size_t i = 0; i < f->n; i++)
        g->shares[i].group = g;
    for (size_t i = 0; i < f->n; i++)
        share_out(g, i);
    g->n_under_way--;
    group_step(g);
}

/* --- Life ------------------------------------------------------------------------------------ */

static struct br_lane *make_lane(const struct br_fanout *f, const struct br_fanout_config *config,
                                 const struct br_fanout_end *e)
{
    struct br_str labels = {.max = 1024};
    unsigned n = f->host->n_workers ? f->host->n_workers : 1;
    br_label(&labels, e->kind, e->id);
    struct br_lane_config lane = {.next = e->next,
                                  .name = e->name,
                                  .labels = labels.failed ? "" : labels.data,
                                  .max_bytes = config ? (size_t)config->hold_size / n : 0,
                                  .max_ms = config ? config->hold_time / 1000000 : 0};
    struct br_lane *made = br_lane_new(f->host, &lane);
    br_str_release(&labels);
    return made;
}

struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t n)
{
    struct br_fanout *f = br_calloc(1, sizeof *f + n * sizeof f->ends[0]);
    if (!f)
        return NULL;
    f->input.consume = fanout_consume;
    f->host = host;
    for (f->n = 0; f->n < n; f->n++) {
        struct end *e = &f->ends[f->n];
        e->config = ends[f->n];
        e->lane = make_lane(f, config, &ends[f->n]);
        if (!e->lane) {
            br_fanout_free(f);
            return NULL;
        }
    }
    return f;
}

struct br_consumer *br_fanout_input(struct br_fanout *f)
{
    return &f->input;
}

bool br_fanout_idle(const struct br_fanout *f)
{
    for (size_t i = 0; i < f->n; i++)
        if (!br_lane_idle(f->ends[i].lane))
            return false;
    return f->n_apart == 0;
}

void br_fanout_on_end(struct br_fanout *f, void (*fn)(void *arg), void *arg)
{
    f->on_end = fn;
    f->on_end_arg = arg;
    for (size_t i = 0; i < f->n; i++)
        br_lane_on_end(f->ends[i].lane, fn, arg);
}

void br_fanout_close(struct br_fanout *f)
{
    f->closing = true;
    for (size_t i = 0; i < f->n; i++)
        br_lane_close(f->ends[i].lane);
}

void br_fanout_free(struct br_fanout *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++)
        br_lane_free(f->ends[i].lane);
    br_free(f);
}

const struct br_option br_fanout_options[] = {
    BR_INT(struct br_fanout_config, hold_size, 64 << 20, 0, 1099511627776.0,
           "bytes held for each destination that lags behind, all workers together; 0: nothing"),
    BR_DURATION(struct br_fanout_config, hold_time, "5m", "how long each item is held"),
    BR_OPT_END,
};
