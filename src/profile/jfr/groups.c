/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/convert.h"

static bool groups_is_key(const void *entries, uint32_t place, const void *key)
{
    const struct br_jfr_group *group = (const struct br_jfr_group *)entries + place;
    return memcmp(&group->key, key, sizeof group->key) == 0;
}

static uint64_t groups_hash(const void *entries, uint32_t place)
{
    const struct br_jfr_groups *groups = entries;
    return br_index_hash(&groups->index, &groups->groups[place].key,
                         sizeof groups->groups[place].key);
}

/* Returns the index of the group with the key `key`. Adds the group if necessary. Returns
 * BR_INDEX_NONE if there is not enough memory. */
static uint32_t groups_place(struct br_jfr_groups *groups, const struct br_jfr_key *key)
{
    uint64_t hash = br_index_hash(&groups->index, key, sizeof *key);
    uint32_t place = br_index_find(&groups->index, hash, groups_is_key, groups->groups, key);
    if (place != BR_INDEX_NONE)
        return place;
    if (br_grow(&groups->groups, &groups->cap, (size_t)groups->count + 1, sizeof *groups->groups,
                UINT32_MAX - 1))
        return BR_INDEX_NONE;
    groups->groups[groups->count] = (struct br_jfr_group){.key = *key};
    if (br_index_add(&groups->index, hash, groups->count, groups_hash, groups))
        return BR_INDEX_NONE;
    return groups->count++;
}

/* Counts the samples of each group and records the group of each sample. */
static int groups_count(struct br_jfr_groups *groups, const struct br_jfr_table *table,
                        uint32_t *places)
{
    struct br_jfr_cursor at = {.table = table};
    struct br_jfr_sample sample;
    for (uint32_t i = 0; br_jfr_sample_next(&at, &sample); i++) {
        places[i] = groups_place(groups, &sample.key);
        if (places[i] == BR_INDEX_NONE)
            return BR_ENOMEM;
        groups->groups[places[i]].count++;
    }
    return 0;
}

static void groups_fill(struct br_jfr_groups *groups, const struct br_jfr_table *table,
                        const uint32_t *places, int which)
{
    struct br_jfr_cursor at = {.table = table};
    struct br_jfr_sample sample;
    uint32_t first = 0;
    for (uint32_t i = 0; i < groups->count; i++) {
        groups->groups[i].first = first;
        first += groups->groups[i].count;
        groups->groups[i].count = 0;
    }
    for (uint32_t i = 0; br_jfr_sample_next(&at, &sample); i++) {
        struct br_jfr_group *group = &groups->groups[places[i]];
        uint32_t place = group->first + group->count++;
        groups->times[place] = sample.time_ns;
        groups->values[place] = sample.values[which];
    }
}

int br_jfr_groups_make(struct br_jfr_groups *groups, const struct br_jfr_table *table, int which)
{
    *groups = (struct br_jfr_groups){0};
    br_index_init(&groups->index, table->count, BR_HOLDER_REQUESTS);
    uint32_t *places = br_malloc((size_t)table->count * sizeof *places);
    groups->times = br_malloc((size_t)table->count * sizeof *groups->times);
    groups->values = br_malloc((size_t)table->count * sizeof *groups->values);
    int rc =
        places && groups->times && groups->values ? groups_count(groups, table, places) : BR_ENOMEM;
    if (!rc)
        groups_fill(groups, table, places, which);
    br_free(places);
    br_index_release(&groups->index);
    return rc;
}

void br_jfr_groups_release(struct br_jfr_groups *groups)
{
    br_index_release(&groups->index);
    br_free(groups->groups);
    br_free(groups->times);
    br_free(groups->values);
    *groups = (struct br_jfr_groups){0};
}
