/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/redelivery.h"

#include <stdio.h>

#include "base/mem.h"

#define RETRY_FIRST_MS 200
#define RETRY_MAX_MS 10000

struct br_redelivery {
    struct br_node *node;
    struct br_consumer *next;
    bool final, freeing;
    void (*on_end)(void *arg);
    void *arg;
    struct br_list items; /* of kept */
    unsigned n_items, n_waiting;
    size_t bytes;
    struct br_log_limit log_limit;
};

struct kept {
    struct br_list link;
    struct br_redelivery *redelivery;
    struct br_item *item;
    struct br_item *attempt; /* under way; NULL while it waits for its timer */
    struct br_timer timer;
    uint64_t delay_ms;
    size_t bytes;
};

void br_redelivery_drop(struct br_node *node, struct br_item *item, const char *reason,
                        const struct br_outcome *why, struct br_log_limit *limit)
{
    uint32_t n = item->n_held;
    br_item_settle(item, BR_FATE_DROPPED, reason, n);
    if (n)
        br_log_limited(&node->log, BR_LOG_ERROR, limit, br_host_mono_ms(node->host),
                       BR_LOG_EVERY_MS, "dropped %u %s (%s): %s: %s", n,
                       br_signal_items(item->signal), reason, br_status_name(why->status),
                       why->text);
}

void br_redelivery_partly(struct br_node *node, const struct br_item *item,
                          const struct br_outcome *outcome, struct br_log_limit *limit)
{
    if (outcome->n_rejected)
        br_node_warn(node, limit, "dropped %u of %u %s (partial success): %s", outcome->n_rejected,
                     item->n_items, br_signal_items(item->signal), outcome->text);
}

void br_redelivery_end(struct br_node *node, struct br_item *item)
{
    node->n_unsent[item->signal] += item->n_held;
    br_item_settle(item, BR_FATE_DROPPED, "shutdown", item->n_held);
}

static void redelivery_end(struct kept *kept, const struct br_outcome *outcome)
{
    struct br_redelivery *k = kept->redelivery;
    if (outcome->verdict == BR_REJECT)
        br_redelivery_drop(k->node, kept->item, "rejected", outcome, &k->log_limit);
    else if (outcome->verdict == BR_RETRY && (k->freeing || k->node->ending))
        br_redelivery_end(k->node, kept->item);
    else if (outcome->verdict == BR_RETRY)
        br_redelivery_drop(k->node, kept->item, "retries_exhausted", outcome, &k->log_limit);
    else
        br_redelivery_partly(k->node, kept->item, outcome, &k->log_limit);
    br_host_timer_stop(k->node->host, &kept->timer);
    k->bytes -= kept->bytes;
    br_item_done(kept->item);
    br_list_remove(&kept->link);
    k->n_items--;
    br_free(kept);
    if (k->on_end && !k->freeing)
        k->on_end(k->arg);
}

static void redelivery_try_once(struct kept *kept);

static void redelivery_on_due(struct br_timer *timer)
{
    struct kept *p = br_container_of(timer, struct kept, timer);
    p->redelivery->n_waiting--;
    redelivery_try_once(p);
}

static void redelivery_again(struct kept *kept, const struct br_outcome *outcome)
{
    uint64_t delay = outcome->delay_ms ? outcome->delay_ms : kept->delay_ms;
    kept->delay_ms = kept->delay_ms * 2 < RETRY_MAX_MS ? kept->delay_ms * 2 : RETRY_MAX_MS;
    if (br_host_timer(kept->redelivery->node->host, &kept->timer, delay, redelivery_on_due))
        kept->redelivery->n_waiting++;
    else
        redelivery_end(kept, outcome);
}

static void redelivery_on_attempt(struct br_item *child, void *arg)
{
    struct kept *p = arg;
    const struct br_outcome *outcome = &child->outcome;
    p->attempt = NULL;
    if (outcome->verdict == BR_RETRY && !p->redelivery->final && !p->redelivery->freeing)
        redelivery_again(p, outcome);
    else
        redelivery_end(p, outcome);
}

static void redelivery_try_once(struct kept *kept)
{
    struct br_item *child = br_item_attempt(kept->item, redelivery_on_attempt, kept);
    if (child) {
        kept->attempt = child;
        br_consume(kept->redelivery->next, child);
        return;
    }
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    redelivery_again(kept, &outcome);
}

void br_redelivery_send(struct br_redelivery *redelivery, struct br_item *item)
{
    struct kept *p = br_calloc(1, sizeof *p);
    br_item_hold(item, BR_HOLDER_BATCHES);
    item->answered = true;
    if (!p) {
        struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
        br_redelivery_drop(redelivery->node, item, "out_of_memory", &outcome,
                           &redelivery->log_limit);
        br_item_done(item);
        return;
    }
    *p = (struct kept){
        .redelivery = redelivery, .item = item, .delay_ms = RETRY_FIRST_MS, .bytes = item->size};
    redelivery->bytes += p->bytes;
    br_list_append(&redelivery->items, &p->link);
    redelivery->n_items++;
    redelivery_try_once(p);
}

struct br_redelivery *br_redelivery_new(struct br_node *node, struct br_consumer *next, bool final,
                                        void (*on_end)(void *arg), void *arg)
{
    struct br_redelivery *k = br_calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->node = node;
    k->next = next;
    k->final = final;
    k->on_end = on_end;
    k->arg = arg;
    br_list_init(&k->items);
    return k;
}

unsigned br_redelivery_kept(const struct br_redelivery *redelivery)
{
    return redelivery->n_waiting;
}

size_t br_redelivery_bytes(const struct br_redelivery *redelivery)
{
    return redelivery->bytes;
}

unsigned br_redelivery_count(const struct br_redelivery *redelivery)
{
    return redelivery->n_items;
}

bool br_redelivery_idle(const struct br_redelivery *redelivery)
{
    return br_list_empty(&redelivery->items);
}

void br_redelivery_free(struct br_redelivery *redelivery)
{
    if (!redelivery)
        return;
    struct br_outcome outcome = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    redelivery->freeing = true;
    while (!br_list_empty(&redelivery->items)) {
        struct kept *p = br_container_of(redelivery->items.next, struct kept, link);
        if (!p->attempt) {
            redelivery_end(p, &outcome);
            continue;
        }
        /* It is downstream, or finished and not completed yet: it ends on its own. */
        br_item_orphan(p->attempt, "shutdown");
        br_list_remove(&p->link);
        br_free(p);
    }
    br_free(redelivery);
}
