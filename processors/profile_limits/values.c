/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/values.h"

/* What a key is mapped to is the map of its values, and they are mapped to anything but NULL. */
static void free_values(void *values)
{
    br_map_free(values, NULL);
}

void limits_values_clear(struct limits_values *v)
{
    br_map_free(v->keys, free_values);
    *v = (struct limits_values){0};
}

static struct br_map *values_of(struct limits_values *v, const void *key, size_t len)
{
    if (!v->keys) {
        br_random_bytes(v->secret, sizeof v->secret);
        v->keys = br_map_new(LIMITS_KEYS_MAX);
    }
    if (!v->keys)
        return NULL;
    uint64_t hash = br_siphash(v->secret, key, len);
    struct br_map *values = br_map_get(v->keys, &hash, sizeof hash);
    if (values || br_map_count(v->keys) == LIMITS_KEYS_MAX)
        return values;
    values = br_map_new(LIMITS_VALUES_MAX);
    if (values && br_map_put(v->keys, &hash, sizeof hash, values, NULL)) {
        br_map_free(values, NULL);
        values = NULL;
    }
    return values;
}

bool limits_values_admit(struct limits_values *v, const void *key, size_t key_len,
                         const void *value, size_t len, uint32_t max)
{
    struct br_map *values = values_of(v, key, key_len);
    if (!values)
        return false;
    uint64_t hash = br_siphash(v->secret, value, len);
    if (br_map_get(values, &hash, sizeof hash))
        return true;
    bool full = br_map_count(values) >= max || v->n_values == LIMITS_VALUES_MAX;
    if (full || br_map_put(values, &hash, sizeof hash, values, NULL))
        return false;
    v->n_values++;
    return true;
}
