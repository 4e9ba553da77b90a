/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/lane.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define WINDOW 16 /* under way at once */
#define AGAIN_FIRST_MS 50
#define AGAIN_MAX_MS 1000
#define LOG_EVERY_MS 60000

struct br_lane {
    struct br_host *host;
    struct br_consumer *next;
    struct br_log log;
    size_t max_bytes;
    uint64_t max_ms;
    struct br_list waiting, flying; /* of held; `waiting` in the order of `number` */
    unsigned n_flying;
    uint64_t n_numbers;
    size_t bytes;
    uint64_t again_ms;      /* until the next try after a refusal */
    bool refused;           /* wait for the timer, which is parked otherwise */
    struct br_timer timer;
    bool closing;
    uint64_t n_unsent[BR_SIGNALS]; /* dropped for "shutdown" */
    double *held[BR_SIGNALS], *dropped[BR_SIGNALS];
    struct br_log_limit log_limit;
    void (*on_end)(void *arg);
    void *on_end_arg;
};

struct held {
    struct br_list link;
    struct br_lane *lane;
    struct br_item *item;
    struct br_item *attempt; /* under way, or NULL */
    uint64_t number, until_ms;
    size_t bytes;
    uint32_t n;
    br_lane_end_fn *on_end;
    void *arg;
};

static void say_dropped(struct br_lane *l, enum br_signal signal, uint32_t n, const char *why)
{
    uint64_t held;
    if (n && br_log_allow(&l->log_limit, br_host_mono_ms(l->host), LOG_EVERY_MS, &held))
        br_error(&l->log, "dropped %u %s that others have taken: %s (%llu such messages held back)", n,
                 br_signal_items(signal), why, (unsigned long long)held);
}

void br_lane_lost(struct br_lane *l, enum br_signal signal, uint32_t n, const char *why)
{
    *l->dropped[signal] += n;
    if (l->closing)
        l->n_unsent[signal] += n;
    else
        say_dropped(l, signal, n, why);
}

static void lose(struct br_lane *l, struct br_item *item, const char *reason, const char *why)
{
    br_lane_lost(l, item->signal, item->n_held, why);
    br_item_settle(item, BR_FATE_DROPPED, reason, item->n_held);
}

static void held_free(struct held *h)
{
    struct br_lane *l = h->lane;
    br_list_remove(&h->link);
    l->bytes -= h->bytes;
    *l->held[h->item->signal] -= h->n;
    br_free(h);
}

/* It was delivered, or settled otherwise. */
static void held_end(struct held *h, const struct br_outcome *outcome)
{
    struct br_lane *l = h->lane;
    struct br_item *item = h->item;
    br_lane_end_fn *on_end = h->on_end;
    void *arg = h->arg;
    held_free(h);
    br_item_done(item);
    if (on_end)
        on_end(outcome, arg);
    if (l->on_end)
        l->on_end(l->on_end_arg);
}

static void held_drop(struct held *h, const char *reason, const struct br_outcome *why)
{
    lose(h->lane, h->item, reason, why->text);
    held_end(h, why);
}

static void drop_overdue(struct br_lane *l)
{
    uint64_t now = br_host_mono_ms(l->host);
    while (!br_list_empty(&l->waiting)) {
        struct held *h = br_container_of(l->waiting.next, struct held, link);
        if (h->until_ms > now)
            return;
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "not taken in time");
        held_drop(h, "lagging", &o);
    }
}

static void wait_again(struct held *h)
{
    struct br_list *at = h->lane->waiting.next;
    while (at != &h->lane->waiting && br_container_of(at, struct held, link)->number < h->number)
        at = at->next;
    br_list_remove(&h->link);
    br_list_append(at, &h->link); /* before `at` */
}

static void on_timer(struct br_timer *t);
static void send_on(struct br_lane *l);

static void come_again(struct br_lane *l)
{
    if (l->refused)
        return;
    l->refused = true;
    (void)br_host_timer(l->host, &l->timer, l->again_ms, on_timer);
    l->again_ms = l->again_ms * 2 < AGAIN_MAX_MS ? l->again_ms * 2 : AGAIN_MAX_MS;
}

static void on_attempt(struct br_item *attempt, void *arg)
{
    struct held *h = arg;
    struct br_lane *l = h->lane;
    const struct br_outcome *o = &attempt->outcome;
    h->attempt = NULL;
    l->n_flying--;
    if (o->verdict == BR_REJECT) {
        held_drop(h, "rejected", o);
    } else if (o->verdict == BR_RETRY && l->closing) {
        held_drop(h, "shutdown", o);
    } else if (o->verdict == BR_RETRY) {
        wait_again(h);
        come_again(l);
        drop_overdue(l);
    } else {
        l->again_ms = AGAIN_FIRST_MS;
        held_end(h, o);
    }
    send_on(l);
}

static void send_on(struct br_lane *l)
{
    while (!l->refused && !l->closing && l->n_flying < WINDOW && !br_list_empty(&l->waiting)) {
        struct held *h = br_container_of(l->waiting.next, struct held, link);
        struct br_item *attempt = br_item_attempt(h->item, on_attempt, h);
        if (!attempt) {
            come_again(l);
            return;
        }
        br_list_remove(&h->link);
        br_list_append(&l->flying, &h->link);
        h->attempt = attempt;
        l->n_flying++;
        br_consume(l->next, attempt);
    }
}

static void on_timer(struct br_timer *t)
{
    struct br_lane *l = br_container_of(t, struct br_lane, timer);
    (void)br_host_timer_park(l->host, t, on_timer);
    l->refused = false;
    drop_overdue(l);
    send_on(l);
}

/* What an item takes beside its data. */
static size_t cost(const struct br_item *item)
{
    return item->size + sizeof *item + sizeof(struct held) + item->n_parts * sizeof *item->parts;
}

bool br_lane_hold(struct br_lane *l, struct br_item *item, br_lane_end_fn *on_end, void *arg)
{
    size_t bytes = cost(item);
    bool room = !l->closing && bytes <= l->max_bytes && l->bytes <= l->max_bytes - bytes;
    struct held *h = room ? br_calloc(1, sizeof *h) : NULL;
    if (!h) {
        lose(l, item, l->closing ? "shutdown" : room ? "no_memory" : "lagging",
             room ? "out of memory" : "as much is held for it as may be");
        br_item_done(item);
        return false;
    }
    *h = (struct held){.lane = l,
                       .item = item,
                       .number = l->n_numbers++,
                       .until_ms = br_host_mono_ms(l->host) + l->max_ms,
                       .bytes = bytes,
                       .n = item->n_held,
                       .on_end = on_end,
                       .arg = arg};
    br_item_hold(item, BR_HOLDER_QUEUES);
    l->bytes += bytes;
    *l->held[item->signal] += h->n;
    br_list_append(&l->waiting, &h->link);
    come_again(l); /* it has just been refused */
    return true;
}

bool br_lane_waits(const struct br_lane *l)
{
    return !br_list_empty(&l->waiting);
}

bool br_lane_idle(const struct br_lane *l)
{
    return br_list_empty(&l->waiting) && br_list_empty(&l->flying);
}

void br_lane_on_end(struct br_lane *l, void (*fn)(void *arg), void *arg)
{
    l->on_end = fn;
    l->on_end_arg = arg;
}

static double *lane_metric(struct br_host *host, enum br_metric_type type, const char *name,
                           const char *labels, enum br_signal signal)
{
    struct br_str all = {.max = 1024};
    br_str_puts(&all, labels);
    br_label(&all, "signal", br_signal_name(signal));
    double *metric = br_metric(host->metrics, type, name, all.failed ? "" : all.data);
    br_str_release(&all);
    return metric;
}

struct br_lane *br_lane_new(struct br_host *host, const struct br_lane_config *config)
{
    struct br_lane *l = br_calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->host = host;
    l->next = config->next;
    l->log.name = config->name;
    l->max_bytes = config->max_bytes;
    l->max_ms = config->max_ms;
    l->again_ms = AGAIN_FIRST_MS;
    br_list_init(&l->waiting);
    br_list_init(&l->flying);
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        l->held[s] = lane_metric(host, BR_GAUGE, "braid_fanout_held", config->labels, s);
        l->dropped[s] = lane_metric(host, BR_COUNTER, "braid_fanout_dropped", config->labels, s);
    }
    if (br_host_timer_park(host, &l->timer, on_timer))
        return l;
    br_free(l);
    return NULL;
}

void br_lane_close(struct br_lane *l)
{
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    l->closing = true;
    while (!br_list_empty(&l->waiting))
        held_drop(br_container_of(l->waiting.next, struct held, link), "shutdown", &o);
}

void br_lane_free(struct br_lane *l)
{
    if (!l)
        return;
    l->on_end = NULL;
    br_lane_close(l);
    while (!br_list_empty(&l->flying)) {
        struct held *h = br_container_of(l->flying.next, struct held, link);
        br_item_orphan(h->attempt, "shutdown");
        held_free(h);
    }
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        if (l->n_unsent[s])
            br_error(&l->log, "dropped %llu %s (shutdown) that others have taken: they could not be "
                              "handed over in time",
                     (unsigned long long)l->n_unsent[s], br_signal_items(s));
    br_host_timer_stop(l->host, &l->timer);
    br_free(l);
}
