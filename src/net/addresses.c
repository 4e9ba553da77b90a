/* SPDX-License-Identifier: Apache-2.0 */
#include "net/addresses.h"

#include <string.h>

#define BASE_MS 1000.0
#define FACTOR 1.6
#define MAX_MS 120000.0
#define JITTER 0.2

static bool addresses_same(const struct br_address *one, const struct br_address *other)
{
    return one->len == other->len && memcmp(&one->addr, &other->addr, one->len) == 0;
}

int br_addresses_find(const struct br_addresses *addresses, const struct br_address *address)
{
    for (unsigned i = 0; i < addresses->count; i++)
        if (addresses_same(&addresses->addresses[i], address))
            return (int)i;
    return -1;
}

bool br_addresses_add(struct br_addresses *addresses, const void *addr, socklen_t len)
{
    struct br_address fresh = {.len = len};
    if (addresses->count == BR_ADDRESSES_MAX || len > sizeof fresh.addr)
        return false;
    memcpy(&fresh.addr, addr, len);
    if (br_addresses_find(addresses, &fresh) >= 0)
        return false;
    addresses->addresses[addresses->count++] = fresh;
    return true;
}

void br_addresses_update(struct br_addresses *addresses, const struct br_addresses *fresh)
{
    struct br_addresses now = *fresh;
    now.next = 0;
    for (unsigned i = 0; i < now.count; i++) {
        int known = br_addresses_find(addresses, &now.addresses[i]);
        if (known < 0)
            continue;
        now.addresses[i] = addresses->addresses[known];
        if ((unsigned)known == addresses->next)
            now.next = i;
    }
    *addresses = now;
}

int br_addresses_next(const struct br_addresses *addresses, uint64_t now_ms, bool last_resort,
                      bool (*is_used)(void *arg, unsigned i), void *arg)
{
    int otherwise = -1;
    for (unsigned k = 0; k < addresses->count; k++) {
        unsigned i = (addresses->next + k) % addresses->count;
        const struct br_address *address = &addresses->addresses[i];
        if (address->again_ms > now_ms || (is_used && is_used(arg, i)))
            continue;
        if (address->n_failed == 0 || address->due_ms <= now_ms)
            return (int)i;
        if (otherwise < 0 || address->due_ms < addresses->addresses[otherwise].due_ms)
            otherwise = (int)i;
    }
    return last_resort ? otherwise : -1;
}

static uint64_t addresses_after(uint64_t now_ms, double delay_ms, double random)
{
    return now_ms + (uint64_t)(delay_ms * (1 - JITTER + 2 * JITTER * random));
}

void br_addresses_tried(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                        double random)
{
    if (addresses->addresses[index].n_failed > 0)
        addresses->addresses[index].again_ms = addresses_after(now_ms, BASE_MS, random);
}

void br_addresses_failed(struct br_addresses *addresses, unsigned index, uint64_t now_ms,
                         double random)
{
    struct br_address *address = &addresses->addresses[index];
    double delay_ms = BASE_MS;
    for (unsigned k = 0; k < address->n_failed && delay_ms < MAX_MS; k++)
        delay_ms *= FACTOR;
    address->n_failed++;
    address->due_ms = addresses_after(now_ms, delay_ms < MAX_MS ? delay_ms : MAX_MS, random);
    if (addresses->next == index)
        addresses->next = (index + 1) % addresses->count;
}

void br_addresses_worked(struct br_addresses *addresses, unsigned index)
{
    addresses->addresses[index].n_failed = 0;
    addresses->addresses[index].due_ms = addresses->addresses[index].again_ms = 0;
}
