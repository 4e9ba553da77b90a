/* SPDX-License-Identifier: Apache-2.0 */
/* Services that are being profiled, or that have spans. */
#include "processors/join/table/internal.h"

#define SERVICE_PROBES 256u /* largest number of consecutive slots that are tried for a service */
#define SERVICE_INTERVAL_MAX_S                                                                     \
    1800u /* longest interval between profiles, in seconds; a longer interval counts as unknown */

static uint64_t service_key(const struct join_table *table, uint64_t service)
{
    return join_table_mix(table, service) | 1;
}

static struct service *service_slot(struct service *services, uint64_t key, unsigned probe)
{
    return &services[((key >> 32) + probe) % SERVICE_SLOTS];
}

/* Returns the number of seconds since `seen`. The clocks of workers differ slightly; a time in
 * the future counts as now. */
static uint32_t service_passed_s(uint64_t seen, uint32_t now_s)
{
    int32_t passed = (int32_t)(now_s - (uint32_t)seen);
    return passed > 0 ? (uint32_t)passed : 0;
}

/* Returns the number of seconds for which a service is remembered after it was last seen. */
typedef uint32_t service_life_fn(const struct join_table *table, uint64_t seen);

static uint32_t service_profiled_life(const struct join_table *table, uint64_t seen)
{
    uint32_t window_s = table->window / 10, interval_s = 2 * (uint32_t)(seen >> 32);
    return window_s > interval_s ? window_s : interval_s;
}

static uint32_t service_with_spans_life(const struct join_table *table, uint64_t seen)
{
    (void)seen;
    return table->window / 10;
}

/* Returns the new value of `seen` after a profile at `now_s`: that time, and the interval since
 * the previous profile. Profiles of several types arrive in the same second, so intervals below
 * two seconds are ignored. */
static uint64_t service_seen_again(uint64_t seen, uint32_t now_s)
{
    uint64_t passed = service_passed_s(seen, now_s);
    uint64_t interval = passed > 1 ? passed : seen >> 32;
    return (interval <= SERVICE_INTERVAL_MAX_S ? interval << 32 : 0) | now_s;
}

/* Returns the slot of the service. If the service has no slot, returns a slot that is free or
 * whose service has expired. Returns NULL if all slots that are tried are in use. */
static struct service *service_claim(const struct join_table *table, struct service *services,
                                     service_life_fn *life, uint64_t key, uint32_t now_s)
{
    for (unsigned pass = 0; pass < 2; pass++) {
        for (unsigned probe = 0; probe < SERVICE_PROBES; probe++) {
            struct service *service = service_slot(services, key, probe);
            uint64_t slot_key = atomic_load_explicit(&service->key, memory_order_acquire);
            uint64_t seen = atomic_load_explicit(&service->seen, memory_order_relaxed);
            bool free = pass && (!slot_key || service_passed_s(seen, now_s) > life(table, seen));
            if (slot_key == key)
                return service;
            if (free && atomic_compare_exchange_strong(&service->key, &slot_key, key)) {
                atomic_store_explicit(&service->seen, now_s, memory_order_release);
                return service;
            }
            if (!pass && !slot_key)
                break;
        }
    }
    return NULL;
}

bool join_table_profiled(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    uint32_t now_s = join_table_tenths(now_ms) / 10;
    struct service *slot = service_claim(table, table->profiled, service_profiled_life,
                                         service_key(table, service), now_s);
    if (!slot)
        return false;
    uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_relaxed);
    atomic_store_explicit(&slot->seen, service_seen_again(seen, now_s), memory_order_release);
    return true;
}

bool join_table_is_profiled(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    uint64_t key = service_key(table, service);
    uint32_t now_s = join_table_tenths(now_ms) / 10;
    for (unsigned probe = 0; probe < SERVICE_PROBES; probe++) {
        struct service *slot = service_slot(table->profiled, key, probe);
        uint64_t slot_key = atomic_load_explicit(&slot->key, memory_order_acquire);
        uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_acquire);
        if (slot_key == key)
            return service_passed_s(seen, now_s) <= service_profiled_life(table, seen);
        if (!slot_key)
            return false;
    }
    return false;
}

/* Returns the hash under which a service is noted as exact (join_table_note_exact). Exact
 * services are in the same hash table as the profiled services. */
static uint64_t service_exact(uint64_t service)
{
    return ~service | 1;
}

void join_table_note_exact(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    (void)join_table_profiled(table, service_exact(service), now_ms);
}

bool join_table_is_exact(struct join_table *table, uint64_t service, uint64_t now_ms)
{
    return join_table_is_profiled(table, service_exact(service), now_ms);
}

bool join_table_is_newcomer(struct join_table *table, uint64_t service, uint64_t now_ms,
                            uint64_t for_ms)
{
    /* 1 is added because the time 0 means that the service was never seen */
    uint32_t now_s = join_table_tenths(now_ms) / 10 + 1;
    struct service *slot = service_claim(table, table->with_spans, service_with_spans_life,
                                         service_key(table, service), now_s);
    if (!slot)
        return false;
    uint64_t seen = atomic_load_explicit(&slot->seen, memory_order_relaxed);
    bool anew =
        !(seen >> 32) || service_passed_s(seen, now_s) > service_with_spans_life(table, seen);
    uint64_t first_s = anew ? now_s : seen >> 32;
    atomic_store_explicit(&slot->seen, first_s << 32 | now_s, memory_order_release);
    return service_passed_s(first_s, now_s) * UINT64_C(1000) < for_ms;
}
