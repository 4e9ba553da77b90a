/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/redelivery.h"

#include <stdio.h>

#include "base/mem.h"

#define RETRY_FIRST_MS 200
#define RETRY_MAX_MS 10000
#define LOG_EVERY_MS 60000

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
    uint64_t held;
    uint32_t n = item->n_held;
    br_item_settle(item, BR_FATE_DROPPED, reason, n);
    if (!n || !br_log_allow(limit, br_host_mono_ms(node->host), LOG_EVERY_MS, &held))
        return;
    char more[64] = "";
    if (held)
        (void)snprintf(more, sizeof more, " (%llu such messages held back)",
                       (unsigned long long)held);
    br_error(&node->log, "dropped %u %s (%s): %s: %s%s", n, br_signal_items(item->signal), reason,
             br_status_name(why->status), why->text, more);
}

void br_redelivery_end(struct br_node *node, struct br_item *item)
{
    node->n_unsent[item->signal] += item->n_held;
    br_item_settle(item, BR_FATE_DROPPED, "shutdown", item->n_held);
}

static void end(struct kept *p, const struct br_outcome *o)
{
    struct br_redelivery *k = p->redelivery;
    if (o->verdict == BR_REJECT)
        br_redelivery_drop(k->node, p->item, "rejected", o, &k->log_limit);
    else if (o->verdict == BR_RETRY && (k->freeing || k->node->ending))
        br_redelivery_end(k->node, p->item);
    else if (o->verdict == BR_RETRY)
        br_redelivery_drop(k->node, p->item, "retries_exhausted", o, &k->log_limit);
    br_host_timer_stop(k->node->host, &p->timer);
    k->bytes -= p->bytes;
    br_item_done(p->item);
    br_list_remove(&p->link);
    k->n_items--;
    br_free(p);
    if (k->on_end && !k->freeing)
        k->on_end(k->arg);
}

static void try_once(struct kept *p);

static void on_due(struct br_timer *t)
{
    struct kept *p = br_container_of(t, struct kept, timer);
    p->redelivery->n_waiting--;
    try_once(p);
}

static void again(struct kept *p, const struct br_outcome *o)
{
    uint64_t delay = o->delay_ms ? o->delay_ms : p->delay_ms;
    p->delay_ms = p->delay_ms * 2 < RETRY_MAX_MS ? p->delay_ms * 2 : RETRY_MAX_MS;
    if (br_host_timer(p->redelivery->node->host, &p->timer, delay, on_due))
        p->redelivery->n_waiting++;
    else
        end(p, o);
}

static void on_attempt(struct br_item *child, void *arg)
{
    struct kept *p = arg;
    const struct br_outcome *o = &child->outcome;
    p->attempt = NULL;
    if (o->verdict == BR_RETRY && !p->redelivery->final && !p->redelivery->freeing)
        again(p, o);
    else
        end(p, o);
}

static void try_once(struct kept *p)
{
    struct br_item *child = br_item_attempt(p->item, on_attempt, p);
    if (child) {
        p->attempt = child;
        br_consume(p->redelivery->next, child);
        return;
    }
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    again(p, &o);
}

void br_redelivery_send(struct br_redelivery *k, struct br_item *item)
{
    struct kept *p = br_calloc(1, sizeof *p);
    br_item_hold(item, BR_HOLDER_BATCHES);
    if (!p) {
        struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "out of memory");
        br_redelivery_drop(k->node, item, "no_memory", &o, &k->log_limit);
        br_item_done(item);
        return;
    }
    *p = (struct kept){.redelivery = k, .item = item, .delay_ms = RETRY_FIRST_MS, .bytes = item->size};
    k->bytes += p->bytes;
    br_list_append(&k->items, &p->link);
    k->n_items++;
    try_once(p);
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

unsigned br_redelivery_kept(const struct br_redelivery *k)
{
    return k->n_waiting;
}

size_t br_redelivery_bytes(const struct br_redelivery *k)
{
    return k->bytes;
}

unsigned br_redelivery_count(const struct br_redelivery *k)
{
    return k->n_items;
}

bool br_redelivery_idle(const struct br_redelivery *k)
{
    return br_list_empty(&k->items);
}

void br_redelivery_free(struct br_redelivery *k)
{
    if (!k)
        return;
    struct br_outcome o = br_outcome_retry(BR_STATUS_UNAVAILABLE, 0, "shutting down");
    k->freeing = true;
    while (!br_list_empty(&k->items)) {
        struct kept *p = br_container_of(k->items.next, struct kept, link);
        if (!p->attempt) {
            end(p, &o);
            continue;
        }
        /* It is downstream, or finished and not completed yet: it ends on its own. */
        br_item_orphan(p->attempt, "shutdown");
        br_list_remove(&p->link);
        br_free(p);
    }
    br_free(k);
}
