/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/values.h"

/* A key is mapped to the map of its values, and these are mapped to anything but NULL. */
static void values_free(void *values)
{
    br_map_free(values, NULL);
}

void limits_values_clear(struct limits_values *values)
{
    br_map_free(values->keys, values_free);
    *values = (struct limits_values){0};
}

static struct br_map *values_of(struct limits_values *limits_values, const void *key, size_t len)
{
    if (!limits_values->keys) {
        br_random_bytes(limits_values->secret, sizeof limits_values->secret);
        limits_values->keys = br_map_new(LIMITS_KEYS_MAX);
    }
    if (!limits_values->keys)
        return NULL;
    uint64_t hash = br_siphash(limits_values->secret, key, len);
    struct br_map *values = br_map_get(limits_values->keys, &hash, sizeof hash);
    if (values || br_map_count(limits_values->keys) == LIMITS_KEYS_MAX)
        return values;
    values = br_map_new(LIMITS_VALUES_MAX);
    if (values && br_map_put(limits_values->keys, &hash, sizeof hash, values, NULL)) {
        br_map_free(values, NULL);
        values = NULL;
    }
    return values;
}

bool limits_values_admit(struct limits_values *limits_values, const void *key, size_t key_len,
                         const void *value, size_t len, uint32_t max)
{
    struct br_map *values = values_of(limits_values, key, key_len);
    if (!values)
        return false;
    uint64_t hash = br_siphash(limits_values->secret, value, len);
    if (br_map_get(values, &hash, sizeof hash))
        return true;
    bool full = br_map_count(values) >= max || limits_values->n_values == LIMITS_VALUES_MAX;
    if (full || br_map_put(values, &hash, sizeof hash, values, NULL))
        return false;
    limits_values->n_values++;
    return true;
}
