/* SPDX-License-Identifier: Apache-2.0 */
#include "core/host.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "core/item.h"

/* Maximum number of callbacks in one loop iteration. Without this limit, components that finish
 * each other's items in an endless cycle would block the sockets. */
#define SETTLE_MAX 100000
#define PARKED_MS (1ull << 40) /* delay of a parked timer, in milliseconds (34 years) */

int br_host_init(struct br_host *host, const struct br_host_ops *ops, struct br_pool *pool)
{
    memset(host, 0, sizeof *host);
    host->ops = ops;
    host->pool = pool;
    br_list_init(&host->deferred);
    br_list_init(&host->finished);
    br_list_init(&host->overridables);
    br_list_init(&host->rereads);
    br_list_init(&host->authenticators);
    br_random_bytes(&host->random_state, sizeof host->random_state);
    host->n_workers = 1;
    host->metrics = br_metrics_new();
    if (!host->metrics)
        return BR_ENOMEM;
    return br_ledger_init(&host->ledger, host->metrics, NULL);
}

void br_host_release(struct br_host *host)
{
    br_timers_release(&host->timers);
    br_metrics_free(host->metrics);
    host->metrics = NULL;
}

uint64_t br_host_mono_ms(struct br_host *host)
{
    return host->ops->mono_ms(host);
}

uint64_t br_host_unix_ns(struct br_host *host)
{
    return host->ops->unix_ns(host);
}

uint64_t br_host_cpu_ns(struct br_host *host)
{
    return host->ops->cpu_ns(host);
}

bool br_host_timer(struct br_host *host, struct br_timer *timer, uint64_t delay_ms, br_timer_fn *fn)
{
    return br_timers_arm(&host->timers, timer, br_host_mono_ms(host) + delay_ms, fn) == 0;
}

bool br_host_timer_park(struct br_host *host, struct br_timer *timer, br_timer_fn *fn)
{
    return br_host_timer(host, timer, PARKED_MS, fn);
}

void br_host_timer_stop(struct br_host *host, struct br_timer *timer)
{
    br_timers_disarm(&host->timers, timer);
}

void br_host_defer(struct br_host *host, struct br_deferred *deferred,
                   void (*fn)(struct br_deferred *deferred))
{
    deferred->fn = fn;
    if (deferred->link.next && !br_list_empty(&deferred->link))
        return;
    br_list_append(&host->deferred, &deferred->link);
}

void br_host_reread(struct br_host *host)
{
    for (struct br_list *l = host->rereads.next; l != &host->rereads; l = l->next) {
        struct br_reread *reread = br_container_of(l, struct br_reread, link);
        reread->fn(reread);
    }
}

void br_host_defer_cancel(struct br_deferred *deferred)
{
    if (deferred->link.next)
        br_list_remove(&deferred->link);
}

void br_host_work(struct br_host *host, struct br_work *work)
{
    work->cancelled = false;
    if (host->ops->work && host->ops->work(host, work))
        return;
    work->run(work);
    work->done(work);
}

void br_host_work_cancel(struct br_host *host, struct br_work *work)
{
    if (host->ops->work_cancel)
        host->ops->work_cancel(host, work);
}

void br_host_work_wait(struct br_host *host, struct br_work *work)
{
    if (host->ops->work_wait)
        host->ops->work_wait(host, work);
}

bool br_host_settle(struct br_host *host)
{
    for (unsigned n = 0; n < SETTLE_MAX; n++) {
        struct br_list *list = br_list_shift(&host->finished);
        if (list) {
            br_item_complete(br_container_of(list, struct br_item, link));
            continue;
        }
        list = br_list_shift(&host->deferred);
        if (!list)
            return false;
        struct br_deferred *deferred = br_container_of(list, struct br_deferred, link);
        deferred->fn(deferred);
    }
    return true;
}

bool br_host_iterate(struct br_host *host)
{
    if (!host->checking)
        br_timers_run(&host->timers, br_host_mono_ms(host));
    return br_host_settle(host);
}

void br_host_set_memory(struct br_host *host, struct br_memory *memory)
{
    host->memory = memory;
    br_pool_set_memory(host->pool, memory);
}

bool br_host_over_limit(const struct br_host *host)
{
    if (!host->memory)
        return false;
    /* Unused buffers of the pools are not counted, because the next request is read into them. */
    size_t used = br_memory_used(host->memory), unused = br_mem_held(BR_HOLDER_POOL);
    return used > unused && used - unused > br_memory_soft(host->memory);
}

size_t br_host_share(const struct br_host *host, size_t total)
{
    size_t n_workers = host->n_workers ? host->n_workers : 1;
    return total / n_workers + (host->worker < total % n_workers);
}

double br_host_random(struct br_host *host)
{
    /* The random number generator is xorshift64*, whose state must never be 0. */
    uint64_t x = host->random_state | 1;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    host->random_state = x;
    return (double)(x * 0x2545f4914f6cdd1du >> 11) / 9007199254740992.0;
}

/* --- Return of unused memory ------------------------------------------------------------------ */

static void host_on_trim(struct br_timer *timer)
{
    struct br_trimmer *trimmer = br_container_of(timer, struct br_trimmer, look);
    (void)br_host_timer(trimmer->host, &trimmer->look, BR_TRIM_LOOK_MS, host_on_trim);
    uint64_t taken = br_pool_taken(trimmer->host->pool), recent = taken - trimmer->seen_bytes;
    br_mem_enlist();
    trimmer->seen_bytes = taken;
    trimmer->work_bytes += recent;
    if (trimmer->host->memory && trimmer->seen_trims != br_memory_trims(trimmer->host->memory)) {
        trimmer->seen_trims = br_memory_trims(trimmer->host->memory);
        br_pool_trim(trimmer->host->pool);
    }
    if (recent < BR_TRIM_REST_BYTES && trimmer->work_bytes >= BR_TRIM_WORK_BYTES) {
        trimmer->work_bytes = 0;
        *trimmer->trims += 1;
        br_pool_trim(trimmer->host->pool);
        br_mem_trim();
    }
}

void br_trimmer_start(struct br_trimmer *trimmer, struct br_host *host)
{
    *trimmer = (struct br_trimmer){.host = host, .seen_bytes = br_pool_taken(host->pool)};
    trimmer->trims = br_metric(host->metrics, BR_COUNTER, "braid_memory_trims", "");
    if (br_host_timer_park(host, &trimmer->look,
                           /* cannot fail, because the memory of a parked timer is reserved */
                           host_on_trim))
        (void)br_host_timer(host, &trimmer->look, BR_TRIM_LOOK_MS, host_on_trim);
}

void br_trimmer_stop(struct br_trimmer *trimmer)
{
    if (trimmer->host)
        br_host_timer_stop(trimmer->host, &trimmer->look);
}
