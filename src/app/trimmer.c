/* SPDX-License-Identifier: Apache-2.0 */
#include "app/trimmer.h"

#include "base/mem.h"

static void trimmer_on_look(struct br_timer *timer)
{
    struct br_trimmer *trimmer = br_container_of(timer, struct br_trimmer, look);
    (void)br_host_timer(trimmer->host, &trimmer->look, BR_TRIM_LOOK_MS, trimmer_on_look);
    uint64_t taken = br_pool_taken(trimmer->host->pool), recent = taken - trimmer->seen_bytes;
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
                           trimmer_on_look)) /* a parked timer can always be started again */
        (void)br_host_timer(host, &trimmer->look, BR_TRIM_LOOK_MS, trimmer_on_look);
}

void br_trimmer_stop(struct br_trimmer *trimmer)
{
    if (trimmer->host)
        br_host_timer_stop(trimmer->host, &trimmer->look);
}
