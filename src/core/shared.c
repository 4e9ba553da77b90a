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

void br_shared_free(struct br_shared *s)
{
    br_free(s);
}

void *br_shared_get(struct br_host *h, const char *name, void *(*make)(const void *arg),
                    const void *arg)
{
    struct br_shared *s = h->shared;
    if (!s)
        return make(arg);
    struct entry *free_entry = NULL;
    for (size_t i = 0; i < SHARED_MAX; i++) {
        struct entry *e = &s->entries[i];
        if (e->refs && strcmp(e->name, name) == 0) {
            e->refs++;
            return e->thing;
        }
        if (!e->refs && !free_entry)
            free_entry = e;
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

void br_shared_put(struct br_host *h, void *thing, void (*release)(void *thing))
{
    struct br_shared *s = h->shared;
    if (!thing)
        return;
    for (size_t i = 0; s && i < SHARED_MAX; i++) {
        struct entry *e = &s->entries[i];
        if (!e->refs || e->thing != thing)
            continue;
        if (--e->refs)
            return;
        br_free(e->name);
        e->thing = NULL;
        break;
    }
    release(thing);
}
