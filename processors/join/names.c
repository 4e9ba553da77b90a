/* SPDX-License-Identifier: Apache-2.0 */
/* What the table knows by name. */
#include "base/mem.h"
#include "base/str.h"
#include "processors/join/table_internal.h"

uint16_t join_table_type(struct join_table *t, const char *name, size_t len)
{
    len = strnlen(name, len);
    pthread_mutex_lock(&t->names_lock);
    unsigned i = 0;
    while (i < t->n_types && (t->type_lens[i] != len || memcmp(t->types[i], name, len) != 0))
        i++;
    if (i == t->n_types && i < JOIN_TYPES - 1) {
        t->types[i] = len <= UINT8_MAX ? br_strndup(name, len) : NULL;
        t->type_lens[i] = (uint8_t)len;
        if (t->types[i])
            t->n_types++;
        else
            i = JOIN_TYPES - 1;
    }
    pthread_mutex_unlock(&t->names_lock);
    return (uint16_t)i;
}

const char *join_table_type_name(struct join_table *t, uint16_t type)
{
    pthread_mutex_lock(&t->names_lock);
    const char *name = type < t->n_types ? t->types[type] : "other";
    pthread_mutex_unlock(&t->names_lock);
    return name;
}

#define SERVICE_TIME_BITS 24u

void join_table_profiled(struct join_table *t, uint64_t service, uint64_t now_ms)
{
    uint64_t hash = mix(t, service), time_mask = (1u << SERVICE_TIME_BITS) - 1;
    uint64_t entry = (hash & ~time_mask) | (tenths(now_ms) / 10 & time_mask);
    atomic_store_explicit(&t->services[hash >> 52], entry, memory_order_relaxed);
}

bool join_table_is_profiled(struct join_table *t, uint64_t service, uint64_t now_ms)
{
    uint64_t hash = mix(t, service), time_mask = (1u << SERVICE_TIME_BITS) - 1;
    uint64_t entry = atomic_load_explicit(&t->services[hash >> 52], memory_order_relaxed);
    uint64_t passed = (tenths(now_ms) / 10 - entry) & time_mask;
    if (passed > time_mask / 2)
        passed = 0; /* another worker's clock is a little ahead */
    return entry && ((entry ^ hash) & ~time_mask) == 0 && passed <= t->window / 10;
}

bool join_table_value(struct join_table *t, unsigned key, const void *value, size_t len, size_t max)
{
    static char there;
    if (key >= KEYS_MAX)
        return false;
    pthread_mutex_lock(&t->names_lock);
    if (!t->values[key])
        t->values[key] = br_map_new(max);
    bool ok = t->values[key] && (br_map_get(t->values[key], value, len) ||
                                 br_map_put(t->values[key], value, len, &there, NULL) == 0);
    pthread_mutex_unlock(&t->names_lock);
    return ok;
}

/* A function's number is where the map has it, from 1: nothing is ever taken out. */
uint32_t join_table_function(struct join_table *t, const uint8_t *name, size_t len)
{
    uint32_t number = 0;
    len = len <= JOIN_VALUE_MAX ? len : br_utf8_valid(name, JOIN_VALUE_MAX);
    pthread_mutex_lock(&t->names_lock);
    if (!t->functions)
        t->functions = br_map_new(JOIN_FUNCTIONS_MAX);
    if (t->functions) {
        number = (uint32_t)(uintptr_t)br_map_get(t->functions, name, len);
        uint32_t next = (uint32_t)br_map_count(t->functions) + 1;
        if (!number && br_map_put(t->functions, name, len, (void *)(uintptr_t)next, NULL) == 0)
            number = next;
    }
    pthread_mutex_unlock(&t->names_lock);
    return number ? number : JOIN_FUNCTION_OTHER;
}

const char *join_table_function_name(struct join_table *t, uint32_t number, size_t *ret_len)
{
    const void *name = NULL;
    pthread_mutex_lock(&t->names_lock);
    if (t->functions && number && number != JOIN_FUNCTION_OTHER)
        (void)br_map_at(t->functions, number - 1, &name, ret_len);
    pthread_mutex_unlock(&t->names_lock);
    if (!name)
        *ret_len = strlen("_other");
    return name ? name : "_other";
}

bool join_table_series(struct join_table *t, const void *key, size_t len, size_t max)
{
    static char there;
    pthread_mutex_lock(&t->names_lock);
    if (!t->series)
        t->series = br_map_new(max);
    bool ok = t->series && (br_map_get(t->series, key, len) ||
                            br_map_put(t->series, key, len, &there, NULL) == 0);
    pthread_mutex_unlock(&t->names_lock);
    return ok;
}

uint32_t join_table_hash(const struct join_table *t, const void *data, size_t len)
{
    uint8_t secret[16];
    memcpy(secret, t->secret, sizeof secret);
    return (uint32_t)br_siphash(secret, data, len) | 1;
}

void join_names_init(struct join_table *t)
{
    pthread_mutex_init(&t->names_lock, NULL);
}

void join_names_release(struct join_table *t)
{
    for (unsigned i = 0; i < t->n_types; i++)
        br_free(t->types[i]);
    for (unsigned i = 0; i < KEYS_MAX; i++)
        br_map_free(t->values[i], NULL);
    br_map_free(t->functions, NULL);
    br_map_free(t->series, NULL);
    pthread_mutex_destroy(&t->names_lock);
}
