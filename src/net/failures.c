/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>

#include "base/mem.h"
#include "net/gate.h"

/* Reads the address of "192.0.2.1:80" or "[2001:db8::1]:80". An IPv4 address has the form of
 * ::ffff:192.0.2.1. For other texts, such as those of unix sockets, all bytes of the address are
 * zero. */
static void failures_address(const char *peer, uint8_t ret[16])
{
    char text[64];
    struct in_addr v4;
    bool bracket = peer[0] == '[';
    const char *start = bracket ? peer + 1 : peer;
    size_t len = strcspn(start, bracket ? "]%" : ":");
    memset(ret, 0, 16);
    if (len >= sizeof text)
        return;
    memcpy(text, start, len);
    text[len] = '\0';
    if (!bracket && inet_pton(AF_INET, text, &v4) == 1) {
        ret[10] = ret[11] = 0xff;
        memcpy(ret + 12, &v4, sizeof v4);
    } else if (inet_pton(AF_INET6, text, ret) == 1) {
        static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
        if (memcmp(ret, mapped, sizeof mapped) != 0)
            memset(ret + 8, 0, 8);
    }
}

static bool failures_equal(const void *entry, const void *key)
{
    const struct br_failure *failure = entry;
    return failure->count && memcmp(failure->address, key, sizeof failure->address) == 0;
}

/* Subtracts the failures that have been forgiven since the last call. */
static void failures_forgive(struct br_failure *failure, uint64_t now_ms)
{
    uint64_t forgiven = (now_ms - failure->since_ms) / BR_FAILURES_FORGIVE_MS;
    failure->since_ms += forgiven * BR_FAILURES_FORGIVE_MS;
    failure->count -= forgiven < failure->count ? (uint32_t)forgiven : failure->count;
}

int br_failures_init(struct br_failures *failures)
{
    failures->entries = br_calloc((size_t)2 * BR_FAILURES_SETS, sizeof *failures->entries);
    if (!failures->entries)
        return BR_ENOMEM;
    br_cache_init(&failures->cache, failures->entries, sizeof *failures->entries, BR_FAILURES_SETS,
                  2);
    return 0;
}

void br_failures_release(struct br_failures *failures)
{
    br_free(failures->entries);
    failures->entries = NULL;
}

bool br_failures_limited(struct br_failures *failures, const char *peer, uint64_t now_ms)
{
    uint8_t address[16];
    failures_address(peer, address);
    struct br_failure *failure =
        br_cache_find(&failures->cache, br_cache_hash(&failures->cache, address, sizeof address),
                      failures_equal, address);
    if (!failure)
        return false;
    failures_forgive(failure, now_ms);
    return failure->count >= BR_FAILURES_MAX;
}

void br_failures_add(struct br_failures *failures, const char *peer, uint64_t now_ms)
{
    uint8_t address[16];
    failures_address(peer, address);
    uint64_t hash = br_cache_hash(&failures->cache, address, sizeof address);
    struct br_failure *failure = br_cache_find(&failures->cache, hash, failures_equal, address);
    if (!failure) {
        failure = br_cache_take(&failures->cache, hash);
        *failure = (struct br_failure){.since_ms = now_ms};
        memcpy(failure->address, address, sizeof address);
    }
    failures_forgive(failure, now_ms);
    if (failure->count == 0)
        failure->since_ms = now_ms;
    if (failure->count < BR_FAILURES_MAX)
        failure->count++;
}
