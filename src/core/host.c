/* SPDX-License-Identifier: Apache-2.0 */
#include "core/host.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "core/item.h"

/* So that components which finish each other's items for ever cannot starve the sockets. */
#define TURN_MAX 100000
#define PARKED_MS (1ull << 40) /* 34 years */

int br_host_init(struct br_host *h, const struct br_host_ops *ops, struct br_pool *pool)
{
    memset(h, 0, sizeof *h);
    h->ops = ops;
    h->pool = pool;
    br_list_init(&h->deferred);
    br_list_init(&h->finished);
    br_list_init(&h->overridables);
    br_random_bytes(&h->random_state, sizeof h->random_state);
    h->n_workers = 1;
    h->metrics = br_metrics_new();
    if (!h->metrics)
        return BR_ENOMEM;
    return br_ledger_init(&h->ledger, h->metrics, NULL);
}

void br_host_release(struct br_host *h)
{
    br_timers_release(&h->timers);
    br_metrics_free(h->metrics);
    h->metrics = NULL;
}

uint64_t br_host_mono_ms(struct br_host *h)
{
    return h->ops->mono_ms(h);
}

uint64_t br_host_unix_ns(struct br_host *h)
{
    return h->ops->unix_ns(h);
}

uint64_t br_host_cpu_ns(struct br_host *h)
{
    return h->ops->cpu_ns(h);
}

bool br_host_timer(struct br_host *h, struct br_timer *t, uint64_t delay_ms, br_timer_fn *fn)
{
    return br_timers_arm(&h->timers, t, br_host_mono_ms(h) + delay_ms, fn) == 0;
}

bool br_host_timer_park(struct br_host *h, struct br_timer *t, br_timer_fn *fn)
{
    return br_host_timer(h, t, PARKED_MS, fn);
}

void br_host_timer_stop(struct br_host *h, struct br_timer *t)
{
    br_timers_disarm(&h->timers, t);
}

void br_host_defer(struct br_host *h, struct br_deferred *d, void (*fn)(struct br_deferred *d))
{
    d->fn = fn;
    if (d->link.next && !br_list_empty(&d->link))
        return;
    br_list_append(&h->deferred, &d->link);
}

void br_host_defer_cancel(struct br_deferred *d)
{
    if (d->link.next)
        br_list_remove(&d->link);
}

void br_host_work(struct br_host *h, struct br_work *w)
{
    w->left = false;
    if (h->ops->work && h->ops->work(h, w))
        return;
    w->run(w);
    w->done(w);
}

void br_host_work_leave(struct br_host *h, struct br_work *w)
{
    if (h->ops->work_leave)
        h->ops->work_leave(h, w);
}

void br_host_work_wait(struct br_host *h, struct br_work *w)
{
    if (h->ops->work_wait)
        h->ops->work_wait(h, w);
}

bool br_host_turn(struct br_host *h)
{
    if (!h->checking)
        br_timers_run(&h->timers, br_host_mono_ms(h));
    for (unsigned n = 0; n < TURN_MAX; n++) {
        struct br_list *l = br_list_shift(&h->finished);
        if (l) {
            br_item_complete(br_container_of(l, struct br_item, link));
            continue;
        }
        l = br_list_shift(&h->deferred);
        if (!l)
            return false;
        struct br_deferred *d = br_container_of(l, struct br_deferred, link);
        d->fn(d);
    }
    return true;
}

void br_host_set_memory(struct br_host *h, struct br_memory *memory)
{
    h->memory = memory;
    br_pool_set_memory(h->pool, memory);
}

bool br_host_over_limit(const struct br_host *h)
{
    if (!h->memory)
        return false;
    /* Unused buffers of the pools are what the next request is read into. */
    size_t used = br_memory_used(h->memory), unused = br_mem_held(BR_HOLDER_POOL);
    return used > unused && used - unused > br_memory_soft(h->memory);
}

double br_host_random(struct br_host *h)
{
    /* xorshift64*; its state is never 0. */
    uint64_t x = h->random_state | 1;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    h->random_state = x;
    return (double)(x * 0x2545f4914f6cdd1du >> 11) / 9007199254740992.0;
}
