/* SPDX-License-Identifier: Apache-2.0 */
#include "net/addresses.h"

#include <string.h>

#define BASE_MS 1000.0
#define FACTOR 1.6
#define MAX_MS 120000.0
#define JITTER 0.2

static bool same(const struct br_address *one, const struct br_address *other)
{
    return one->len == other->len && memcmp(&one->addr, &other->addr, one->len) == 0;
}

int br_addresses_find(const struct br_addresses *a, const struct br_address *address)
{
    for (unsigned i = 0; i < a->n; i++)
        if (same(&a->v[i], address))
            return (int)i;
    return -1;
}

bool br_addresses_add(struct br_addresses *a, const void *addr, socklen_t len)
{
    struct br_address fresh = {.len = len};
    if (a->n == BR_ADDRESSES_MAX || len > sizeof fresh.addr)
        return false;
    memcpy(&fresh.addr, addr, len);
    if (br_addresses_find(a, &fresh) >= 0)
        return false;
    a->v[a->n++] = fresh;
    return true;
}

void br_addresses_update(struct br_addresses *a, const struct br_addresses *fresh)
{
    struct br_addresses now = *fresh;
    now.turn = 0;
    for (unsigned i = 0; i < now.n; i++) {
        int known = br_addresses_find(a, &now.v[i]);
        if (known < 0)
            continue;
        now.v[i] = a->v[known];
        if ((unsigned)known == a->turn)
            now.turn = i;
    }
    *a = now;
}

int br_addresses_pick(const struct br_addresses *a, uint64_t now_ms, bool last_resort,
                      bool (*taken)(void *arg, unsigned i), void *arg)
{
    int otherwise = -1;
    for (unsigned k = 0; k < a->n; k++) {
        unsigned i = (a->turn + k) % a->n;
        const struct br_address *address = &a->v[i];
        if (address->again_ms > now_ms || (taken && taken(arg, i)))
            continue;
        if (address->n_failed == 0 || address->due_ms <= now_ms)
            return (int)i;
        if (otherwise < 0 || address->due_ms < a->v[otherwise].due_ms)
            otherwise = (int)i;
    }
    return last_resort ? otherwise : -1;
}

static uint64_t after(uint64_t now_ms, double delay_ms, double random)
{
    return now_ms + (uint64_t)(delay_ms * (1 - JITTER + 2 * JITTER * random));
}

void br_addresses_tried(struct br_addresses *a, unsigned i, uint64_t now_ms, double random)
{
    if (a->v[i].n_failed > 0)
        a->v[i].again_ms = after(now_ms, BASE_MS, random);
}

void br_addresses_failed(struct br_addresses *a, unsigned i, uint64_t now_ms, double random)
{
    struct br_address *address = &a->v[i];
    double delay_ms = BASE_MS;
    for (unsigned k = 0; k < address->n_failed && delay_ms < MAX_MS; k++)
        delay_ms *= FACTOR;
    address->n_failed++;
    address->due_ms = after(now_ms, delay_ms < MAX_MS ? delay_ms : MAX_MS, random);
    if (a->turn == i)
        a->turn = (i + 1) % a->n;
}

void br_addresses_worked(struct br_addresses *a, unsigned i)
{
    a->v[i].n_failed = 0;
    a->v[i].due_ms = a->v[i].again_ms = 0;
}
