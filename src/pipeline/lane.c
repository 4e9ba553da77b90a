/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/lane.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

#define WINDOW 16 /* under way at once */
#define AGAIN_FIRST_MS 50
#define AGAIN_MAX_MS 1000

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
    uint64_t again_ms; /* until the next try after a refusal */
    bool refused;      /* wait for the timer, which is parked otherwise */
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
    uint32_t count;
    br_lane_end_fn *on_end;
    void *arg;
};

static void lane_say_dropped(struct br_lane *lane, enum br_signal signal, uint32_t count,
                             const char *why)
{
    if (count)
        br_log_limited(&lane->log, BR_LOG_ERROR, &lane->log_limit, br_host_mono_ms(lane->host),
                       BR_LOG_EVERY_MS, "dropped %u %s that others have taken: %s", count,
                       br_signal_items(signal), why);
}

void br_lane_lost(struct br_lane *lane, enum br_signal signal, uint32_t count, const char *why)
{
    *lane->dropped[signal] += count;
    if (lane->closing)
        lane->n_unsent[signal] += count;
    else
        lane_say_dropped(lane, signal, count, why);
}

static void lane_lose(struct br_lane *lane, struct br_item *item, const char *reason,
                      const char *why)
{
    br_lane_lost(lane, item->signal, item->n_held, why);
    br_item_settle(item, BR_FATE_DROPPED, reason, item->n_held);
}

static void lane_held_free(struct held *held)
{
    struct br_lane *lane = held->lane;
    br_list_remove(&held->link);
    lane->bytes -= held->bytes;
    *lane->held[held->item->signal] -= held->count;
    br_free(held);
}

/* It was delivered, or settled otherwise. */
static void lane_held_end(struct held *held, const struct br_outcome *outcome)
{
    struct br_lane *lane = held->lane;
    struct br_item *item = held->item;
    br_lane_end_fn *on_end = held->on_end;
    void *arg = held->arg;
    lane_held_free(held);
    br_item_done(item);
    if (on_end)
        on_end(outcome, arg);
    if (lane->on_end)
        lane->on_end(lane->on_end_arg);
}

static void lane_held_drop(struct held *held, const char *reason, const struct br_outcome *why)
{
    lane_lose(held->lane, held->item, reason, why->text);
    lane_held_end(held, why);
}

static void lane_drop_overdue(struct br_lane *lane)
{
    uint64_t now = br_host_mono_ms(lane->host);
    while (!br_list_empty(&lane->waiting)) {
        struct held *held = br_container_of(lane->waiting.next, struct held, link);
        if (held->until_ms > now)
            return;
        struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "not taken in time");
        lane_held_drop(held, "lagging", &outcome);
    }
}

static void lane_wait_again(struct held *held)
{
    struct br_list *at = held->lane->waiting.next;
    while (at != &held->lane->waiting &&
           br_container_of(at, struct held, link)->number < held->number)
        at = at->next;
    br_list_remove(&held->link);
    br_list_append(at, &held->link); /* before `at` */
}

static void lane_on_timer(struct br_timer *timer);
static void lane_send_on(struct br_lane *lane);

static void lane_come_again(struct br_lane *lane)
{
    if (lane->refused)
        return;
    lane->refused = true;
    (void)br_host_timer(lane->host, &lane->timer, lane->again_ms, lane_on_timer);
    lane->again_ms = lane->again_ms * 2 < AGAIN_MAX_MS ? lane->again_ms * 2 : AGAIN_MAX_MS;
}

static void lane_on_attempt(struct br_item *attempt, void *arg)
{
    struct held *held = arg;
    struct br_lane *lane = held->lane;
    const struct br_outcome *outcome = &attempt->outcome;
    held->attempt = NULL;
    lane->n_flying--;
    if (outcome->verdict == BR_REJECT) {
        lane_held_drop(held, "rejected", outcome);
    } else if (outcome->verdict == BR_RETRY && lane->closing) {
        lane_held_drop(held, "shutdown", outcome);
    } else if (outcome->verdict == BR_RETRY) {
        lane_wait_again(held);
        lane_come_again(lane);
        lane_drop_overdue(lane);
    } else {
        lane->again_ms = AGAIN_FIRST_MS;
        lane_held_end(held, outcome);
    }
    lane_send_on(lane);
}

static void lane_send_on(struct br_lane *lane)
{
    while (!lane->refused && !lane->closing && lane->n_flying < WINDOW &&
           !br_list_empty(&lane->waiting)) {
        struct held *held = br_container_of(lane->waiting.next, struct held, link);
        struct br_item *attempt = br_item_attempt(held->item, lane_on_attempt, held);
        if (!attempt) {
            lane_come_again(lane);
            return;
        }
        br_list_remove(&held->link);
        br_list_append(&lane->flying, &held->link);
        held->attempt = attempt;
        lane->n_flying++;
        br_consume(lane->next, attempt);
    }
}

static void lane_on_timer(struct br_timer *timer)
{
    struct br_lane *lane = br_container_of(timer, struct br_lane, timer);
    (void)br_host_timer_park(lane->host, timer, lane_on_timer);
    lane->refused = false;
    lane_drop_overdue(lane);
    lane_send_on(lane);
}

/* The memory that an item takes beside its data. */
static size_t lane_cost(const struct br_item *item)
{
    return item->size + sizeof *item + sizeof(struct held) + item->n_parts * sizeof *item->parts;
}

bool br_lane_hold(struct br_lane *lane, struct br_item *item, br_lane_end_fn *on_end, void *arg)
{
    size_t bytes = lane_cost(item);
    bool room =
        !lane->closing && bytes <= lane->max_bytes && lane->bytes <= lane->max_bytes - bytes;
    struct held *held = room ? br_calloc(1, sizeof *held) : NULL;
    if (!held) {
        lane_lose(lane, item,
                  lane->closing ? "shutdown"
                  : room        ? "out_of_memory"
                                : "lagging",
                  room ? "out of memory" : "as much is held for it as may be");
        br_item_done(item);
        return false;
    }
    *held = (struct held){.lane = lane,
                          .item = item,
                          .number = lane->n_numbers++,
                          .until_ms = br_host_mono_ms(lane->host) + lane->max_ms,
                          .bytes = bytes,
                          .count = item->n_held,
                          .on_end = on_end,
                          .arg = arg};
    br_item_hold(item, BR_HOLDER_QUEUES);
    lane->bytes += bytes;
    *lane->held[item->signal] += held->count;
    br_list_append(&lane->waiting, &held->link);
    lane_come_again(lane); /* it has just been refused */
    return true;
}

bool br_lane_waits(const struct br_lane *lane)
{
    return !br_list_empty(&lane->waiting);
}

bool br_lane_idle(const struct br_lane *lane)
{
    return br_list_empty(&lane->waiting) && br_list_empty(&lane->flying);
}

void br_lane_on_end(struct br_lane *lane, void (*fn)(void *arg), void *arg)
{
    lane->on_end = fn;
    lane->on_end_arg = arg;
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
    struct br_lane *lane = br_calloc(1, sizeof *lane);
    if (!lane)
        return NULL;
    lane->host = host;
    lane->next = config->next;
    lane->log.name = config->name;
    lane->max_bytes = config->max_bytes;
    lane->max_ms = config->max_ms;
    lane->again_ms = AGAIN_FIRST_MS;
    br_list_init(&lane->waiting);
    br_list_init(&lane->flying);
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        lane->held[s] = lane_metric(host, BR_GAUGE, "braid_fanout_held", config->labels, s);
        lane->dropped[s] = lane_metric(host, BR_COUNTER, "braid_fanout_dropped", config->labels, s);
    }
    if (br_host_timer_park(host, &lane->timer, lane_on_timer))
        return lane;
    br_free(lane);
    return NULL;
}

void br_lane_close(struct br_lane *lane)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    lane->closing = true;
    while (!br_list_empty(&lane->waiting))
        lane_held_drop(br_container_of(lane->waiting.next, struct held, link), "shutdown",
                       &outcome);
}

void br_lane_free(struct br_lane *lane)
{
    if (!lane)
        return;
    lane->on_end = NULL;
    br_lane_close(lane);
    while (!br_list_empty(&lane->flying)) {
        struct held *held = br_container_of(lane->flying.next, struct held, link);
        br_item_orphan(held->attempt, "shutdown");
        lane_held_free(held);
    }
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        if (lane->n_unsent[s])
            br_error(&lane->log,
                     "dropped %llu %s (shutdown) that others have taken: they could not be "
                     "handed over in time",
                     (unsigned long long)lane->n_unsent[s], br_signal_items(s));
    br_host_timer_stop(lane->host, &lane->timer);
    br_free(lane);
}
