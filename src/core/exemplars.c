/* SPDX-License-Identifier: Apache-2.0 */
#include "core/exemplars.h"

#include "base/mem.h"

struct br_exemplars *br_exemplars_new(size_t max)
{
    size_t size;
    if (!br_size_mul(max, sizeof(struct br_exemplar), &size) ||
        !br_size_add(size, sizeof(struct br_exemplars), &size))
        return NULL;
    struct br_exemplars *exemplars = br_calloc(1, size);
    if (exemplars)
        exemplars->max = max;
    return exemplars;
}

void br_exemplars_add(struct br_exemplars *exemplars, const struct br_exemplar *exemplar)
{
    struct br_exemplar *items = exemplars->items, *oldest = items;
    for (size_t i = 0; i < exemplars->count; i++) {
        if (items[i].bucket == exemplar->bucket) {
            if (items[i].time_ns <= exemplar->time_ns)
                items[i] = *exemplar;
            return;
        }
        if (items[i].time_ns < oldest->time_ns)
            oldest = &items[i];
    }
    if (exemplars->count < exemplars->max)
        items[exemplars->count++] = *exemplar;
    else if (oldest->time_ns <= exemplar->time_ns)
        *oldest = *exemplar;
}

const struct br_exemplar *br_exemplars_find(const struct br_exemplars *exemplars, size_t bucket)
{
    for (size_t i = 0; exemplars && i < exemplars->count; i++)
        if (exemplars->items[i].bucket == bucket)
            return &exemplars->items[i];
    return NULL;
}
