/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/fanout.h"

#include <stdio.h>

#include "base/mem.h"
#include "core/pending.h"
#include "pipeline/hold.h"

/* maximum number of held items that are offered to one destination at the same time */
#define HELD_WINDOW 16
#define HELD_FIRST_MS 50
#define HELD_MAX_MS 1000
/* overhead in bytes that is counted for each detached delivery, in addition to its data */
#define DETACHED_COST 1024

struct destination {
    struct br_fanout_end config;
    struct br_fanout *fanout;
    /* items that another destination has accepted and this one has refused */
    struct br_hold hold;
    double *dropped[BR_SIGNALS]; /* counters of the dropped records */
    /* by signal: number of records dropped with the reason "shutdown" */
    uint64_t n_unsent[BR_SIGNALS];
    struct br_log log;
    struct br_log_limit log_limit;
    size_t detached; /* total size in bytes of the destination's detached deliveries */
    /* a sender has waited BR_FANOUT_WAIT_MS for this destination without success, and the
     * destination has not accepted an item since */
    bool slow;
};

struct br_fanout {
    struct br_consumer input;
    struct br_host *host;
    bool closing;
    unsigned n_detached; /* number of groups whose remaining deliveries are all detached */
    size_t n_groups;
    void (*on_end)(void *arg);
    void *on_end_arg;
    size_t count;
    struct destination destinations[];
};

enum delivery_state {
    UNDER_WAY,
    /* the destination has returned BR_RETRY; whether to hold the item is not decided yet */
    REFUSED,
    HELD,  /* the item is in the hold, and the sender waits for it */
    ENDED, /* the item was accepted, rejected or dropped, or is held while no sender waits */
};

/* The delivery of one item to one destination. */
struct delivery {
    struct group *group;
    enum delivery_state state;
    /* REFUSED: pending records of the item for which the destination has reported no result */
    struct br_pending pending;
    bool whole; /* REFUSED: `pending` contains all records of the item */
    bool rejected;
    /* REFUSED: the item was refused because the destination has reached detached_bytes */
    bool over_limit;
    size_t detached; /* bytes added to destination.detached while the delivery is detached */
    struct br_item
        /* Detached delivery: an item with the same data and without pending records. If the
         * destination refuses the delivery, this item is added to the hold. NULL: not needed. */
        *spare;
};

/* The deliveries of one item to all destinations. */
struct group {
    struct br_fanout *fanout;
    struct br_item *item;
    struct br_copies *copies;
    uint32_t count; /* number of pending records of the item */
    unsigned n_under_way, n_held;
    /* a destination has accepted or rejected the item, so the sender must not retry */
    bool taken;
    bool waited; /* the sender has waited for BR_FANOUT_WAIT_MS */
    /* fires BR_FANOUT_WAIT_MS after the sender began to wait, and sets `waited` */
    struct br_timer timer;
    bool detached; /* the item has ended although deliveries remain; `item` and `copies` are NULL */
    enum br_signal signal;
    /* combined outcome of the deliveries that were accepted or rejected */
    struct br_outcome outcome;
    struct br_outcome refusal; /* combined outcome of the other deliveries */
    struct delivery deliveries[];
};

static bool fanout_is_answered(const struct group *group)
{
    return group->item->sender == BR_SENDER_ANSWERED;
}

static bool fanout_sender_waits(const struct group *group)
{
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL only after detaching. */
    return group->item->sender == BR_SENDER_WAITS;
}

static struct destination *fanout_destination_of(const struct delivery *delivery)
{
    return &delivery->group->fanout->destinations[delivery - delivery->group->deliveries];
}

/* Combines the outcomes of two destinations. Takes the maximum of the rejected counts, not their
 * sum, because all destinations receive the same records. */
static void fanout_fold(struct br_outcome *into, const struct br_outcome *outcome)
{
    uint32_t n = outcome->n_rejected > into->n_rejected ? outcome->n_rejected : into->n_rejected;
    br_outcome_fold(into, outcome);
    into->n_rejected = n;
}

/* --- Holding --------------------------------------------------------------------------------- */

/* Counts records that are dropped for the destination, and logs the loss. The caller reports the
 * records to the ledger. */
static void fanout_count_dropped(struct destination *destination, enum br_signal signal,
                                 uint32_t count, const char *why)
{
    *destination->dropped[signal] += count;
    if (destination->hold.closing)
        destination->n_unsent[signal] += count;
    else if (count)
        br_log_limited(&destination->log, BR_LOG_ERROR, &destination->log_limit,
                       br_host_mono_ms(destination->fanout->host), BR_LOG_EVERY_MS,
                       "dropped %u %s that other destinations accepted: %s", count,
                       br_signal_records(signal), why);
}

static void fanout_drop(struct destination *destination, struct br_item *item, const char *reason,
                        const char *why)
{
    fanout_count_dropped(destination, item->signal, item->n_pending, why);
    br_item_report(item, BR_RESULT_DROPPED, reason, item->n_pending);
    br_item_done(item);
}

/* Adds an item without a parent and a callback to the destination's hold. If a sender waits for the
 * item, `delivery` must be the delivery that ends with the item. Otherwise `delivery` must be NULL.
 * Returns false if the item was dropped. */
static bool fanout_add_held(struct destination *destination, struct br_item *item,
                            struct delivery *delivery)
{
    int rc = br_hold_add(&destination->hold, item, delivery);
    switch (rc) {
    case 0:
        br_item_hold(item, BR_HOLDER_QUEUES);
        br_hold_pause(&destination->hold); /* the destination has just refused an item */
        return true;
    case BR_ECLOSED:
        fanout_drop(destination, item, "shutdown", "the queue for this destination is full");
        return false;
    case BR_EFULL:
        fanout_drop(destination, item, "lagging", "the queue for this destination is full");
        return false;
    default:
        fanout_drop(destination, item, "out_of_memory", "out of memory");
        return false;
    }
}

/* --- Refused deliveries ---------------------------------------------------------------------- */

static void fanout_group_step(struct group *group);

/* Makes the outcome a partial success with all records rejected. The sender is thus informed that
 * one destination has not received the item, but does not retry the item for all destinations. */
static void fanout_note_lost(struct delivery *delivery)
{
    struct br_outcome *outcome = &delivery->group->outcome;
    outcome->n_rejected = delivery->group->item->n_records;
    if (!outcome->text[0])
        (void)snprintf(outcome->text, sizeof outcome->text,
                       "%s did not accept the data in time; it was dropped for this destination",
                       fanout_destination_of(delivery)->config.name);
}

/* Sets the outcome's text to report that the data is still queued for a destination. */
static void fanout_note_queued(struct delivery *delivery)
{
    struct br_outcome *outcome = &delivery->group->outcome;
    if (!outcome->text[0])
        (void)snprintf(outcome->text, sizeof outcome->text,
                       "%s has not accepted the data yet; it is queued for this destination",
                       fanout_destination_of(delivery)->config.name);
}

static void fanout_end_held(struct delivery *delivery, const struct br_outcome *outcome)
{
    struct group *group = delivery->group;
    delivery->state = ENDED;
    group->n_held--;
    if (outcome->verdict == BR_DONE)
        fanout_destination_of(delivery)->slow = false;
    if (!group->detached && outcome->verdict != BR_RETRY)
        fanout_fold(&group->outcome, outcome);
    else if (!group->detached)
        fanout_note_lost(delivery);
    fanout_group_step(group);
}

static void fanout_on_hold_end(struct br_hold *hold, struct br_item *item, void *arg,
                               const struct br_outcome *outcome, const char *reason)
{
    struct destination *destination = br_container_of(hold, struct destination, hold);
    if (outcome->verdict == BR_DONE)
        br_item_done(item);
    else if (outcome->verdict == BR_RETRY && !hold->closing)
        fanout_drop(destination, item, "lagging", "not accepted in time");
    else
        fanout_drop(destination, item, reason, outcome->text);
    if (arg)
        fanout_end_held(arg, outcome);
}

/* Sets `pending` to a copy of all pending records of the item, and counts them as received by the
 * destination's exporter. Returns false if memory is short. */
static bool fanout_make_pending(struct delivery *delivery)
{
    struct group *group = delivery->group;
    if (!delivery->whole &&
        !br_copies_make(group->copies, (size_t)(delivery - group->deliveries), &delivery->pending))
        return false;
    delivery->whole = true;
    br_pending_enter(&delivery->pending, group->item->signal,
                     fanout_destination_of(delivery)->config.ledger);
    return true;
}

/* Returns a new item with the data of `item` and without pending records. The new item may outlive
 * `item`. Returns NULL if memory is short. */
static struct br_item *fanout_copy_item(const struct br_item *item)
{
    struct br_item *spare = br_item_twin(item);
    if (!spare)
        return NULL;
    /* not copied: the metadata is in the arena of `item`, which may be freed first */
    spare->metadata = NULL;
    if (br_item_keep_metadata(spare, item))
        return spare;
    br_item_free(spare);
    return NULL;
}

/* Returns a new item with the data and all pending records of the delivery's item, to be held
 * for one destination. Returns NULL if memory is short. */
static struct br_item *fanout_make_held(struct delivery *delivery)
{
    struct br_item *spare = fanout_copy_item(delivery->group->item);
    if (!spare || !fanout_make_pending(delivery)) {
        br_item_free(spare);
        return NULL;
    }
    spare->pending = delivery->pending;
    delivery->pending = (struct br_pending){0};
    return spare;
}

/* Drops the delivery's item for its destination; the other destinations are not affected. */
static void fanout_drop_delivery(struct delivery *delivery, const char *reason, const char *why)
{
    struct group *group = delivery->group;
    enum br_signal signal = group->item->signal;
    /* creates the pending records, so that the drop is also counted in the ledger of the
     * destination's exporter */
    (void)fanout_make_pending(delivery);
    fanout_count_dropped(fanout_destination_of(delivery), signal, br_copies_size(group->copies),
                         why);
    br_pending_report(&delivery->pending, group->fanout->host, signal, BR_RESULT_DROPPED, reason,
                      delivery->pending.n_pending);
}

static void fanout_hold(struct delivery *delivery)
{
    struct group *group = delivery->group;
    struct destination *destination = fanout_destination_of(delivery);
    bool informs = fanout_sender_waits(group) ||
                   (destination->config.delivers && !fanout_is_answered(group)),
         waits = informs && (fanout_sender_waits(group) || !destination->slow);
    struct br_item *spare = NULL;
    delivery->state = ENDED;
    if (group->fanout->closing)
        fanout_drop_delivery(delivery, "shutdown", "shutting down");
    else if (destination->config.final)
        fanout_drop_delivery(delivery, delivery->over_limit ? "lagging" : "retries_exhausted",
                             group->refusal.text);
    else if (!(spare = fanout_make_held(delivery)))
        fanout_drop_delivery(delivery, "out_of_memory", "out of memory");
    bool held = spare && fanout_add_held(destination, spare, waits ? delivery : NULL);
    if (held && waits) {
        delivery->state = HELD;
        group->n_held++;
    } else if (held && informs) {
        fanout_note_queued(delivery);
    } else if (informs) {
        fanout_note_lost(delivery);
    }
}

static void fanout_hold_refused(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        if (group->deliveries[i].state == REFUSED)
            fanout_hold(&group->deliveries[i]);
}

/* --- Finishing an item ---------------------------------------------------------------------- */

/* Counts the records as dropped for the destinations that have rejected them, if another
 * destination has accepted them. The sender is not informed of this loss. */
static void fanout_count_rejected(struct group *group, const struct br_outcome *outcome)
{
    size_t n_rejected = 0;
    for (size_t i = 0; i < group->fanout->count; i++)
        n_rejected += group->deliveries[i].rejected;
    for (size_t i = 0; i < group->fanout->count && n_rejected < group->fanout->count; i++)
        if (group->deliveries[i].rejected)
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL only after detaching. */
            fanout_count_dropped(&group->fanout->destinations[i], group->item->signal,
                                 br_copies_size(group->copies), outcome->text);
}

static void fanout_group_free(struct group *group)
{
    struct br_fanout *fanout = group->fanout;
    br_host_timer_stop(fanout->host, &group->timer);
    br_free(group);
    fanout->n_groups--;
    if (fanout->on_end)
        fanout->on_end(fanout->on_end_arg);
}

static void fanout_group_end(struct group *group, const struct br_outcome *outcome)
{
    fanout_count_rejected(group, outcome);
    if (outcome->verdict != BR_DONE && br_copies_pending(group->copies) == 0)
        br_copies_return(group->copies);
    else
        br_copies_close(group->copies);
    br_item_finish(group->item, outcome);
    fanout_group_free(group);
}

static void fanout_give_back(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): NULL only after detaching. */
        br_pending_discard(&group->deliveries[i].pending, group->item->signal);
    fanout_group_end(group, &group->refusal);
}

/* --- Detached deliveries --------------------------------------------------------------------- */

static bool fanout_may_detach_one(const struct group *group, size_t index)
{
    const struct destination *destination = &group->fanout->destinations[index];
    switch (group->deliveries[index].state) {
    case UNDER_WAY:
        return destination->config.detached_bytes &&
               (destination->config.final || fanout_is_answered(group) || group->waited ||
                destination->slow);
    case HELD:
        return group->waited;
    default:
        return true;
    }
}

/* Returns true if another destination has accepted the item, and all remaining deliveries can be
 * detached. */
static bool fanout_may_detach(const struct group *group)
{
    bool may = group->taken && group->n_under_way + group->n_held && !group->detached &&
               !fanout_sender_waits(group);
    for (size_t i = 0; may && i < group->fanout->count; i++)
        may = fanout_may_detach_one(group, i);
    return may;
}

static void fanout_detach_one(struct delivery *delivery)
{
    struct group *group = delivery->group;
    struct destination *destination = fanout_destination_of(delivery);
    if (delivery->state == ENDED)
        return;
    if (delivery->state == UNDER_WAY) {
        delivery->detached = group->item->size + DETACHED_COST;
        destination->detached += delivery->detached;
        delivery->spare = destination->config.final ? NULL : fanout_copy_item(group->item);
    }
    if (!destination->config.final && !fanout_is_answered(group)) {
        destination->slow = true;
        fanout_note_queued(delivery);
    }
}

static void fanout_detach(struct group *group)
{
    for (size_t i = 0; i < group->fanout->count; i++)
        fanout_detach_one(&group->deliveries[i]);
    group->detached = true;
    group->fanout->n_detached++;
    fanout_count_rejected(group, &group->outcome);
    br_copies_close(group->copies);
    br_item_finish(group->item, &group->outcome);
    group->item = NULL;
    group->copies = NULL;
}

static void fanout_end_detached(struct group *group)
{
    struct br_fanout *fanout = group->fanout;
    fanout->n_detached--;
    fanout_group_free(group);
    if (fanout->on_end)
        fanout->on_end(fanout->on_end_arg);
}

/* Holds a detached item that was refused. Returns false if some of its records already have a
 * result, if the fan-out is closing, or if memory is short. */
static bool fanout_hold_detached(struct delivery *delivery, struct br_item *child)
{
    struct br_item *spare = delivery->spare;
    if (!spare || delivery->group->fanout->closing || child->n_pending != delivery->group->count)
        return false;
    delivery->spare = NULL;
    (void)br_pending_move(&spare->pending, &child->pending, child->n_pending);
    (void)fanout_add_held(fanout_destination_of(delivery), spare, NULL);
    return true;
}

/* Handles the outcome of a detached delivery. */
static void fanout_on_detached(struct delivery *delivery, struct br_item *child)
{
    struct group *group = delivery->group;
    const struct br_outcome *outcome = &child->outcome;
    const char *reason = group->fanout->closing ? "shutdown" : "retries_exhausted";
    bool held = outcome->verdict == BR_RETRY && fanout_hold_detached(delivery, child);
    br_item_free(delivery->spare);
    delivery->spare = NULL;
    fanout_destination_of(delivery)->detached -= delivery->detached;
    delivery->state = ENDED;
    if (outcome->verdict == BR_DONE)
        fanout_destination_of(delivery)->slow = false;
    if (outcome->verdict == BR_DONE || held)
        return;
    fanout_count_dropped(fanout_destination_of(delivery), group->signal, child->n_pending,
                         outcome->text);
    br_item_report(child, outcome->verdict == BR_RETRY ? BR_RESULT_DROPPED : BR_RESULT_REJECTED,
                   reason, child->n_pending);
}

static void fanout_on_waited(struct br_timer *timer)
{
    struct group *group = br_container_of(timer, struct group, timer);
    group->waited = true;
    fanout_group_step(group);
}

/* Starts a timer that limits how long the sender waits. If memory for the timer is short, the wait
 * has no limit. */
static void fanout_wait(struct group *group)
{
    if (group->taken && !group->detached && !fanout_sender_waits(group) && !group->waited &&
        !group->timer.due_ms)
        (void)br_host_timer(group->fanout->host, &group->timer, BR_FANOUT_WAIT_MS,
                            fanout_on_waited);
}

static void fanout_group_step(struct group *group)
{
    if (group->taken && !group->detached)
        fanout_hold_refused(group);
    if (fanout_may_detach(group))
        fanout_detach(group);
    if (group->n_under_way || group->n_held) {
        fanout_wait(group);
        return;
    }
    if (group->detached)
        fanout_end_detached(group);
    else if (group->taken)
        fanout_group_end(group, &group->outcome);
    else
        fanout_give_back(group);
}

static void fanout_refuse(struct delivery *delivery, const struct br_outcome *outcome)
{
    delivery->state = REFUSED;
    br_outcome_fold(&delivery->group->refusal, outcome);
}

static void fanout_on_delivery(struct br_item *child, void *arg)
{
    struct delivery *delivery = arg;
    struct group *group = delivery->group;
    const struct br_outcome *outcome = &child->outcome;
    group->n_under_way--;
    if (group->detached) {
        fanout_on_detached(delivery, child);
    } else if (outcome->verdict == BR_RETRY) {
        delivery->whole = child->n_pending == group->count;
        if (delivery->whole)
            (void)br_pending_move(&delivery->pending, &child->pending, child->n_pending);
        br_pending_discard(&child->pending, child->signal);
        fanout_refuse(delivery, outcome);
    } else {
        delivery->state = ENDED;
        delivery->rejected = outcome->verdict == BR_REJECT;
        if (outcome->verdict == BR_DONE)
            fanout_destination_of(delivery)->slow = false;
        group->taken = true;
        fanout_fold(&group->outcome, outcome);
        br_item_report(child, BR_RESULT_REJECTED, NULL, child->n_pending);
    }
    fanout_group_step(group);
}

/* --- Sending --------------------------------------------------------------------------------- */

/* Returns true if the detached deliveries of the destination have reached detached_bytes. */
static bool fanout_is_over_limit(const struct destination *destination)
{
    return destination->config.detached_bytes &&
           destination->detached >= destination->config.detached_bytes;
}

/* Returns true if all destinations have reached detached_bytes, so that the sender must wait for
 * them. */
static bool fanout_all_over_limit(const struct br_fanout *fanout)
{
    size_t n = 0;
    for (size_t i = 0; i < fanout->count; i++)
        n += fanout_is_over_limit(&fanout->destinations[i]);
    return n == fanout->count;
}

/* Returns an item with the data for one destination, without pending records. Returns NULL if
 * memory is short. */
static struct br_item *fanout_make_child(const struct group *group,
                                         const struct destination *destination)
{
    return destination->config.detached_bytes ? fanout_copy_item(group->item)
                                              : br_item_twin(group->item);
}

static void fanout_send_one(struct group *group, size_t index)
{
    struct delivery *delivery = &group->deliveries[index];
    const struct destination *destination = fanout_destination_of(delivery);
    struct br_outcome outcome;
    delivery->over_limit =
        fanout_is_over_limit(destination) && !fanout_all_over_limit(group->fanout);
    if (delivery->over_limit || destination->hold.n_waiting) {
        outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "%s is too slow",
                                   destination->config.name);
        fanout_refuse(delivery, &outcome);
        return;
    }
    struct br_item *child = fanout_make_child(group, destination);
    if (!child || !br_copies_make(group->copies, index, &child->pending)) {
        br_item_free(child);
        outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        fanout_refuse(delivery, &outcome);
        return;
    }
    br_pending_enter(&child->pending, child->signal, destination->config.ledger);
    child->kind = BR_ITEM_BORROWS;
    child->done = fanout_on_delivery;
    child->done_arg = delivery;
    group->n_under_way++;
    br_consume(destination->config.next, child);
}

static void fanout_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_fanout *fanout = br_container_of(self, struct br_fanout, input);
    struct group *group = br_calloc(1, sizeof *group + fanout->count * sizeof group->deliveries[0]);
    struct br_copies *copies = group ? br_copies_open(item, fanout->count) : NULL;
    if (!copies) {
        br_free(group);
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
        return;
    }
    fanout->n_groups++;
    group->fanout = fanout;
    group->item = item;
    group->copies = copies;
    group->count = br_copies_size(copies);
    group->signal = item->signal;
    group->outcome = group->refusal = BR_OUTCOME_DONE;
    group->n_under_way = 1; /* keeps the group alive until all deliveries were sent */
    for (size_t i = 0; i < fanout->count; i++)
        group->deliveries[i].group = group;
    for (size_t i = 0; i < fanout->count; i++)
        fanout_send_one(group, i);
    group->n_under_way--;
    fanout_group_step(group);
}

/* --- Life cycle ------------------------------------------------------------------------------ */

static double *fanout_metric(const struct destination *destination, enum br_metric_type type,
                             const char *name, enum br_signal signal)
{
    struct br_str labels = {.max = 1024};
    br_label(&labels, destination->config.kind, destination->config.id);
    br_label(&labels, "signal", br_signal_name(signal));
    double *metric =
        br_metric(destination->fanout->host->metrics, type, name, labels.failed ? "" : labels.data);
    br_str_release(&labels);
    return metric;
}

static bool fanout_init_destination(struct destination *destination,
                                    const struct br_fanout_config *config)
{
    struct br_host *host = destination->fanout->host;
    struct br_hold_config hold = {
        .host = host,
        .next = destination->config.next,
        .policy = {.order = BR_HOLD_IN_ORDER,
                   .first_delay_ms = HELD_FIRST_MS,
                   .max_delay_ms = HELD_MAX_MS,
                   .window = HELD_WINDOW,
                   .max_bytes = config ? br_host_share(host, (size_t)config->hold_size) : 0,
                   .max_age_ms = config ? config->hold_time / 1000000 : 0},
        .end = fanout_on_hold_end};
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        hold.held[s] = fanout_metric(destination, BR_GAUGE, "braid_fanout_held", s);
        destination->dropped[s] = fanout_metric(destination, BR_COUNTER, "braid_fanout_dropped", s);
    }
    return br_hold_init(&destination->hold, &hold);
}

static void fanout_release_destination(struct destination *destination)
{
    br_hold_release(&destination->hold);
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        if (destination->n_unsent[s])
            br_error(
                &destination->log,
                "dropped %llu %s (shutdown) that other destinations accepted: they could not be "
                "delivered in time",
                (unsigned long long)destination->n_unsent[s], br_signal_records(s));
}

struct br_fanout *br_fanout_new(struct br_host *host, const struct br_fanout_config *config,
                                const struct br_fanout_end *ends, size_t count)
{
    struct br_fanout *fanout =
        br_calloc(1, sizeof *fanout + count * sizeof fanout->destinations[0]);
    if (!fanout)
        return NULL;
    fanout->input.consume = fanout_consume;
    fanout->host = host;
    for (fanout->count = 0; fanout->count < count; fanout->count++) {
        struct destination *destination = &fanout->destinations[fanout->count];
        destination->config = ends[fanout->count];
        destination->fanout = fanout;
        destination->log.name = destination->config.name;
        if (!fanout_init_destination(destination, config)) {
            fanout_release_destination(destination);
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
        if (fanout->destinations[i].hold.n_held)
            return false;
    return fanout->n_detached == 0;
}

bool br_fanout_unused(const struct br_fanout *fanout)
{
    return fanout->n_groups == 0 && br_fanout_idle(fanout);
}

void br_fanout_on_end(struct br_fanout *fanout, void (*fn)(void *arg), void *arg)
{
    fanout->on_end = fn;
    fanout->on_end_arg = arg;
    for (size_t i = 0; i < fanout->count; i++) {
        fanout->destinations[i].hold.config.on_end = fn;
        fanout->destinations[i].hold.config.arg = arg;
    }
}

void br_fanout_close(struct br_fanout *fanout)
{
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    fanout->closing = true;
    for (size_t i = 0; i < fanout->count; i++)
        br_hold_close(&fanout->destinations[i].hold, &outcome);
}

void br_fanout_free(struct br_fanout *fanout)
{
    if (!fanout)
        return;
    for (size_t i = 0; i < fanout->count; i++)
        fanout_release_destination(&fanout->destinations[i]);
    br_free(fanout);
}

const struct br_option br_fanout_options[] = {
    BR_INT(struct br_fanout_config, hold_size, 64 << 20, 0, 1099511627776.0,
           "largest number of bytes that all workers together queue for a slow destination; "
           "0: nothing is queued"),
    BR_DURATION(struct br_fanout_config, hold_time, "5m",
                "longest time that a request is queued for a slow destination"),
    BR_OPT_END,
};
