/* SPDX-License-Identifier: Apache-2.0 */
#include "app/trimmer.h"

#include "base/mem.h"

static void on_look(struct br_timer *timer)
{
    struct br_trimmer *t = br_container_of(timer, struct br_trimmer, look);
    (void)br_host_timer(t->host, &t->look, BR_TRIM_LOOK_MS, on_look);
    uint64_t taken = br_pool_taken(t->host->pool), recent = taken - t->seen_bytes;
    t->seen_bytes = taken;
    t->work_bytes += recent;
    if (t->host->memory && t->seen_trims != br_memory_trims(t->host->memory)) {
        t->seen_trims = br_memory_trims(t->host->memory);
        br_pool_trim(t->host->pool);
    }
    if (recent < BR_TRIM_REST_BYTES && t->work_bytes >= BR_TRIM_WORK_BYTES) {
        t->work_bytes = 0;
        *t->trims += 1;
        br_pool_trim(t->host->pool);
        br_mem_trim();
    }
}

void br_trimmer_start(struct br_trimmer *t, struct br_host *host)
{
    *t = (struct br_trimmer){.host = host, .seen_bytes = br_pool_taken(host->pool)};
    t->trims = br_metric(host->metrics, BR_COUNTER, "braid_memory_trims", "");
    if (br_host_timer_park(host, &t->look, on_look)) /* so that it never fails to be armed again */
        (void)br_host_timer(host, &t->look, BR_TRIM_LOOK_MS, on_look);
}

void br_trimmer_stop(struct br_trimmer *t)
{
    if (t->host)
        br_host_timer_stop(t->host, &t->look);
}
