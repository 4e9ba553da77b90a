/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/values.h"

#include "base/mem.h"

/* The distinct values of one key. `values` maps each value to a pointer that is not NULL. */
struct values {
    uint16_t number; /* number of the key, from 1, in the order of the map of keys */
    struct br_map *map;
};

static void values_free(void *arg)
{
    struct values *values = arg;
    if (values)
        br_map_free(values->map, NULL);
    br_free(values);
}

void limits_values_clear(struct limits_values *values)
{
    br_map_free(values->keys, values_free);
    *values = (struct limits_values){0};
}

static struct values *values_new(uint16_t number)
{
    struct values *values = br_calloc(1, sizeof *values);
    if (!values)
        return NULL;
    values->number = number;
    values->map = br_map_new(LIMITS_VALUES_MAX);
    if (values->map)
        return values;
    br_free(values);
    return NULL;
}

uint16_t limits_values_key(struct limits_values *limits_values, const void *key, size_t len)
{
    if (!limits_values->keys) {
        br_random_bytes(limits_values->secret, sizeof limits_values->secret);
        limits_values->keys = br_map_new(LIMITS_KEYS_MAX);
    }
    if (!limits_values->keys)
        return LIMITS_KEY_NONE;
    uint64_t hash = br_siphash(limits_values->secret, key, len);
    struct values *values = br_map_get(limits_values->keys, &hash, sizeof hash);
    if (values)
        return values->number;
    size_t n_keys = br_map_count(limits_values->keys);
    values = n_keys < LIMITS_KEYS_MAX ? values_new((uint16_t)(n_keys + 1)) : NULL;
    if (values && !br_map_put(limits_values->keys, &hash, sizeof hash, values, NULL))
        return values->number;
    values_free(values);
    return LIMITS_KEY_NONE;
}

bool limits_values_admit(struct limits_values *limits_values, uint16_t key, const void *value,
                         size_t len, uint32_t max)
{
    if (key == LIMITS_KEY_NONE)
        return false;
    const void *name;
    size_t name_len;
    struct values *values = br_map_at(limits_values->keys, key - 1u, &name, &name_len);
    uint64_t hash = br_siphash(limits_values->secret, value, len);
    if (br_map_get(values->map, &hash, sizeof hash))
        return true;
    bool full = br_map_count(values->map) >= max || limits_values->n_values == LIMITS_VALUES_MAX;
    if (full || br_map_put(values->map, &hash, sizeof hash, values, NULL))
        return false;
    limits_values->n_values++;
    return true;
}
