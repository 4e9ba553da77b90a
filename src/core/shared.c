/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shared.h"

#include <string.h>

#include "base/mem.h"

#define SHARED_MAX 64

struct entry {
    char *name;
    void *thing;
    unsigned refs;
};

struct br_shared {
    struct entry entries[SHARED_MAX];
};

struct br_shared *br_shared_new(void)
{
    return br_calloc(1, sizeof(struct br_shared));
}

void br_shared_free(struct br_shared *shared)
{
    br_free(shared);
}

void *br_shared_get(struct br_host *host, const char *name, void *(*make)(const void *arg),
                    const void *arg)
{
    struct br_shared *shared = host->shared;
    if (!shared)
        return make(arg);
    struct entry *free_entry = NULL;
    for (size_t i = 0; i < SHARED_MAX; i++) {
        struct entry *entry = &shared->entries[i];
        if (entry->refs && strcmp(entry->name, name) == 0) {
            entry->refs++;
            return entry->thing;
        }
        if (!entry->refs && !free_entry)
            free_entry = entry;
    }
    char *copy = free_entry ? br_strdup(name) : NULL;
    void *thing = copy ? make(arg) : NULL;
    if (!thing) {
        br_free(copy);
        return NULL;
    }
    *free_entry = (struct entry){copy, thing, 1};
    return thing;
}

void br_shared_put(struct br_host *host, void *thing, void (*release)(void *thing))
{
    struct br_shared *shared = host->shared;
    if (!thing)
        return;
    for (size_t i = 0; shared && i < SHARED_MAX; i++) {
        struct entry *entry = &shared->entries[i];
        if (!entry->refs || entry->thing != thing)
            continue;
        if (--entry->refs)
            return;
        br_free(entry->name);
        entry->thing = NULL;
        break;
    }
    release(thing);
}
