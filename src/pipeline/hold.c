/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/hold.h"

#include "base/mem.h"

/* Delay between two offers in milliseconds. A delay of 0 is not used, because a timer that is due
 * at once can run several times in one loop iteration. */
#define NEXT_ITERATION_MS 1
#define NODE_FIRST_MS 200
#define NODE_MAX_MS 10000

struct held {
    struct br_list link; /* link in hold->waiting or hold->offered */
    struct br_hold *hold;
    struct br_item *item;
    /* the current attempt to deliver the item; NULL while the item waits */
    struct br_item *attempt;
    void *arg;
    struct br_timer timer; /* BR_HOLD_APART: fires when the item must be offered again */
    uint64_t number, until_ms;
    uint64_t delay_ms; /* with policy.hints: next delay of the item in milliseconds */
    uint64_t bytes;
    uint32_t n_pending; /* number of pending records when the item was added */
};

/* --- Ends ------------------------------------------------------------------------------------ */

static void hold_free_held(struct held *held)
{
    struct br_hold *hold = held->hold;
    double *gauge = hold->config.held[held->item->signal];
    br_host_timer_stop(hold->config.host, &held->timer);
    br_list_remove(&held->link);
    hold->n_held--;
    hold->bytes -= held->bytes;
    if (gauge)
        *gauge -= held->n_pending;
    br_free(held);
}

static struct held *hold_first_waiting(const struct br_hold *hold)
{
    return br_list_empty(&hold->waiting) ? NULL
                                         : br_container_of(hold->waiting.next, struct held, link);
}

static void hold_stop_waiting(struct held *held)
{
    br_list_remove(&held->link);
    held->hold->n_waiting--;
}

/* Passes an item to the owner with `end`. The item must be in neither `waiting` nor `offered`. */
static void hold_end(struct held *held, const struct br_outcome *outcome, const char *reason)
{
    struct br_hold *hold = held->hold;
    struct br_item *item = held->item;
    void *arg = held->arg;
    hold_free_held(held);
    hold->ended = true;
    hold->config.end(hold, item, arg, outcome, reason);
}

/* Ends all waiting items whose `until_ms` has passed. */
static void hold_end_waiting(struct br_hold *hold, uint64_t now_ms,
                             const struct br_outcome *outcome, const char *reason)
{
    struct held *held;
    while ((held = hold_first_waiting(hold)) && held->until_ms <= now_ms) {
        hold_stop_waiting(held);
        hold_end(held, outcome, reason);
    }
}

static void hold_end_overdue(struct br_hold *hold)
{
    hold_end_waiting(hold, br_host_mono_ms(hold->config.host), &hold->refusal, "retries_exhausted");
}

/* Calls `on_end` if items have ended. The owner may free the hold in this call. */
static void hold_report_end(struct br_hold *hold)
{
    bool ended = hold->ended;
    hold->ended = false;
    if (ended && hold->config.on_end)
        hold->config.on_end(hold->config.arg);
}

/* --- Offers ---------------------------------------------------------------------------------- */

static void hold_on_timer(struct br_timer *timer);
static void hold_on_due(struct br_timer *timer);

static uint64_t hold_next_delay(struct br_hold *hold, uint64_t *delay_ms)
{
    uint64_t now_ms = *delay_ms, max_ms = hold->config.policy.max_delay_ms;
    *delay_ms = now_ms * 2 < max_ms ? now_ms * 2 : max_ms;
    return now_ms;
}

void br_hold_pause(struct br_hold *hold)
{
    if (hold->paused && hold->config.policy.order != BR_HOLD_PACED)
        return;
    hold->paused = true;
    (void)br_host_timer(hold->config.host, &hold->timer, hold_next_delay(hold, &hold->delay_ms),
                        hold_on_timer);
}

void br_hold_start(struct br_hold *hold)
{
    if (hold->paused && hold->config.policy.order == BR_HOLD_IN_ORDER)
        return;
    (void)br_host_timer(hold->config.host, &hold->timer, 0, hold_on_timer);
}

void br_hold_note_progress(struct br_hold *hold)
{
    hold->progress = true;
    hold->delay_ms = hold->config.policy.first_delay_ms;
}

static void hold_wait(struct held *held)
{
    struct br_hold *hold = held->hold;
    struct br_list *before = &hold->waiting;
    if (hold->config.policy.order == BR_HOLD_IN_ORDER) {
        before = hold->waiting.next;
        while (before != &hold->waiting &&
               br_container_of(before, struct held, link)->number < held->number)
            before = before->next;
    }
    br_list_append(before, &held->link);
    hold->n_waiting++;
}

/* Arms the timer for the item's next offer. Returns false if the item must not be offered again. */
static bool hold_wait_apart(struct held *held, const struct br_outcome *outcome)
{
    struct br_hold *hold = held->hold;
    struct br_host *host = hold->config.host;
    bool hints = hold->config.policy.hints;
    if (held->until_ms <= br_host_mono_ms(host))
        return false;
    uint64_t delay_ms = hold_next_delay(hold, hints ? &held->delay_ms : &hold->delay_ms);
    if (hints && outcome->delay_ms)
        delay_ms = outcome->delay_ms;
    if (!br_host_timer(host, &held->timer, delay_ms, hold_on_due))
        return false;
    hold_wait(held);
    return true;
}

/* Handles the refusal of an item. The item must be in neither `waiting` nor `offered`. */
static void hold_refuse(struct held *held, const struct br_outcome *outcome)
{
    struct br_hold *hold = held->hold;
    hold->refusal = *outcome;
    if (hold->closing || (hold->config.ending && *hold->config.ending)) {
        hold_end(held, outcome, "shutdown");
    } else if (hold->config.policy.order != BR_HOLD_APART) {
        hold_wait(held);
        br_hold_pause(hold);
        hold_end_overdue(hold);
    } else if (!hold_wait_apart(held, outcome)) {
        hold_end(held, outcome, "retries_exhausted");
    }
}

static void hold_offer_waiting(struct br_hold *hold);

/* Starts the next offers after an item was refused or has ended. */
static void hold_continue(struct br_hold *hold)
{
    if (hold->config.policy.group && !hold->progress && hold->n_offered == 0)
        hold_end_waiting(hold, UINT64_MAX, &hold->refusal, "retries_exhausted");
    if (hold->config.policy.order == BR_HOLD_IN_ORDER)
        hold_offer_waiting(hold);
    hold_report_end(hold);
}

static void hold_on_attempt(struct br_item *attempt, void *arg)
{
    struct held *held = arg;
    struct br_hold *hold = held->hold;
    const struct br_outcome *outcome = &attempt->outcome;
    held->attempt = NULL;
    br_list_remove(&held->link);
    hold->n_offered--;
    if (outcome->verdict == BR_RETRY) {
        hold_refuse(held, outcome);
    } else if (outcome->verdict == BR_REJECT) {
        hold_end(held, outcome, "rejected");
    } else {
        br_hold_note_progress(hold);
        hold_end(held, outcome, NULL);
    }
    hold_continue(hold);
}

/* Offers an item that is neither in `waiting` nor in `offered`. */
static void hold_offer(struct held *held)
{
    struct br_hold *hold = held->hold;
    held->attempt = br_item_attempt(held->item, hold_on_attempt, held);
    if (held->attempt) {
        br_list_append(&hold->offered, &held->link);
        hold->n_offered++;
        br_consume(hold->config.next, held->attempt);
        return;
    }
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    hold_refuse(held, &outcome);
}

static void hold_offer_waiting(struct br_hold *hold)
{
    struct held *held;
    while (!hold->paused && hold->n_offered < hold->config.policy.window &&
           (held = hold_first_waiting(hold))) {
        hold_stop_waiting(held);
        hold_offer(held);
    }
}

static void hold_offer_one(struct br_hold *hold)
{
    struct held *held = hold_first_waiting(hold);
    if (!held)
        return;
    hold_stop_waiting(held);
    /* The timer is armed before the offer, because a refusal during the offer may postpone it
     * (br_hold_pause). */
    if (hold->n_waiting)
        (void)br_host_timer(hold->config.host, &hold->timer, NEXT_ITERATION_MS, hold_on_timer);
    hold_offer(held);
}

static void hold_on_timer(struct br_timer *timer)
{
    struct br_hold *hold = br_container_of(timer, struct br_hold, timer);
    (void)br_host_timer_park(hold->config.host, timer, hold_on_timer);
    hold->paused = false;
    if (hold->config.policy.order == BR_HOLD_PACED)
        hold_offer_one(hold);
    else
        hold_end_overdue(hold);
    hold_continue(hold);
}

static void hold_on_due(struct br_timer *timer)
{
    struct held *held = br_container_of(timer, struct held, timer);
    struct br_hold *hold = held->hold;
    hold_stop_waiting(held);
    hold_offer(held);
    hold_continue(hold);
}

/* --- Items ----------------------------------------------------------------------------------- */

bool br_hold_init(struct br_hold *hold, const struct br_hold_config *config)
{
    *hold = (struct br_hold){.config = *config, .delay_ms = config->policy.first_delay_ms};
    br_list_init(&hold->waiting);
    br_list_init(&hold->offered);
    return config->policy.order == BR_HOLD_APART ||
           br_host_timer_park(config->host, &hold->timer, hold_on_timer);
}

static uint64_t hold_size_of(const struct br_hold *hold, const struct br_item *item)
{
    if (hold->config.policy.max_bytes == BR_HOLD_UNLIMITED)
        return item->size;
    return item->size + sizeof *item + sizeof(struct held) + item->n_parts * sizeof *item->parts;
}

int br_hold_add(struct br_hold *hold, struct br_item *item, void *arg)
{
    const struct br_hold_policy *policy = &hold->config.policy;
    uint64_t bytes = hold_size_of(hold, item), now_ms = br_host_mono_ms(hold->config.host);
    if (hold->closing)
        return BR_ECLOSED;
    if (bytes > policy->max_bytes || hold->bytes > policy->max_bytes - bytes)
        return BR_EFULL;
    bool received = policy->age_since_receipt && item->received_ms;
    uint64_t since_ms = received ? item->received_ms : now_ms;
    struct held *held = br_calloc(1, sizeof *held);
    if (!held)
        return BR_ENOMEM;
    *held = (struct held){.hold = hold,
                          .item = item,
                          .arg = arg,
                          .number = hold->n_added++,
                          .until_ms = policy->max_age_ms < BR_HOLD_UNLIMITED - since_ms
                                          ? since_ms + policy->max_age_ms
                                          : BR_HOLD_UNLIMITED,
                          .delay_ms = policy->first_delay_ms,
                          .bytes = bytes,
                          .n_pending = item->n_pending};
    br_list_init(&held->link);
    hold->n_held++;
    hold->bytes += bytes;
    if (hold->config.held[item->signal])
        *hold->config.held[item->signal] += held->n_pending;
    if (policy->order == BR_HOLD_APART) {
        hold_offer(held);
        hold_report_end(hold);
    } else {
        hold_wait(held);
    }
    return 0;
}

void br_hold_close(struct br_hold *hold, const struct br_outcome *outcome)
{
    hold->closing = true;
    hold_end_waiting(hold, UINT64_MAX, outcome, "shutdown");
}

void br_hold_release(struct br_hold *hold)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    if (!hold->config.host)
        return;
    br_hold_close(hold, &outcome);
    while (!br_list_empty(&hold->offered)) {
        struct held *held = br_container_of(hold->offered.next, struct held, link);
        br_item_orphan(held->attempt, "shutdown");
        hold_free_held(held);
    }
    br_host_timer_stop(hold->config.host, &hold->timer);
}

/* --- Items whose senders have been answered -------------------------------------------------- */

static void hold_on_node_end(struct br_hold *hold, struct br_item *item, void *arg,
                             const struct br_outcome *outcome, const char *reason)
{
    (void)arg;
    if (!reason)
        br_node_log_partial(hold->node, item, outcome, &hold->log_limit);
    else if (outcome->verdict == BR_RETRY && (hold->closing || hold->node->ending))
        br_node_drop_unsent(hold->node, item);
    else
        br_node_drop(hold->node, item, reason, outcome, &hold->log_limit);
    br_item_done(item);
}

void br_hold_init_for_node(struct br_hold *hold, struct br_node *node, struct br_consumer *next,
                           bool final, void (*on_end)(void *arg), void *arg)
{
    const struct br_hold_config config = {.host = node->host,
                                          .next = next,
                                          .policy = {.order = BR_HOLD_APART,
                                                     .first_delay_ms = NODE_FIRST_MS,
                                                     .max_delay_ms = NODE_MAX_MS,
                                                     .hints = true,
                                                     .max_bytes = BR_HOLD_UNLIMITED,
                                                     .max_age_ms = final ? 0 : BR_HOLD_UNLIMITED},
                                          .end = hold_on_node_end,
                                          .on_end = on_end,
                                          .arg = arg};
    /* BR_HOLD_APART does not use the timer of the hold, so the initialization cannot fail */
    (void)br_hold_init(hold, &config);
    hold->node = node;
}

void br_hold_send(struct br_hold *hold, struct br_item *item)
{
    br_item_hold(item, BR_HOLDER_BATCHES);
    item->sender = BR_SENDER_ANSWERED;
    if (br_hold_add(hold, item, NULL) == 0)
        return;
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
    br_node_drop(hold->node, item, "out_of_memory", &outcome, &hold->log_limit);
    br_item_done(item);
}
