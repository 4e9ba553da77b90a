/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <string.h>
#include <sys/random.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/steps.h"

struct entry {
    uint64_t hash;
    void *key;
    size_t len;
    void *value;
};

struct br_map {
    size_t max;
    uint8_t secret[16];
    struct entry *entries;
    uint32_t count, cap;
    /* hash slots (open addressing, at most half full), each with the index of an entry plus 1;
     * 0: empty slot */
    uint32_t *slots;
    size_t n_slots;
};

void br_random_bytes(void *out, size_t len)
{
    uint8_t *p = out;
    while (len > 0) {
        ssize_t n = getrandom(p, len, 0);
        if (n <= 0)
            continue;
        p += n;
        len -= (size_t)n;
    }
}

static uint64_t map_rotl(uint64_t number, unsigned right)
{
    return number << right | number >> (64 - right);
}

static void map_sip_round(uint64_t values[4])
{
    values[0] += values[1];
    values[1] = map_rotl(values[1], 13) ^ values[0];
    values[0] = map_rotl(values[0], 32);
    values[2] += values[3];
    values[3] = map_rotl(values[3], 16) ^ values[2];
    values[0] += values[3];
    values[3] = map_rotl(values[3], 21) ^ values[0];
    values[2] += values[1];
    values[1] = map_rotl(values[1], 17) ^ values[2];
    values[2] = map_rotl(values[2], 32);
}

uint64_t br_siphash(const uint8_t key[16], const void *data, size_t len)
{
    uint64_t k0, k1, m;
    br_steps_add(len);
    memcpy(&k0, key, 8);
    memcpy(&k1, key + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575u, k1 ^ 0x646f72616e646f6du, k0 ^ 0x6c7967656e657261u,
                     k1 ^ 0x7465646279746573u};
    const uint8_t *p = data;
    size_t left = len;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&m, p, 8);
        v[3] ^= m;
        map_sip_round(v);
        v[0] ^= m;
    }
    m = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++)
        m |= (uint64_t)p[i] << (8 * i);
    v[3] ^= m;
    map_sip_round(v);
    v[0] ^= m;
    v[2] ^= 0xff;
    map_sip_round(v);
    map_sip_round(v);
    map_sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct br_map *br_map_new(size_t max)
{
    struct br_map *map = br_calloc(1, sizeof *map);
    if (!map)
        return NULL;
    map->max = max;
    br_random_bytes(map->secret, sizeof map->secret);
    return map;
}

void br_map_free(struct br_map *map, void (*release)(void *value))
{
    if (!map)
        return;
    for (uint32_t i = 0; i < map->count; i++) {
        if (release)
            release(map->entries[i].value);
        br_free(map->entries[i].key);
    }
    br_free(map->entries);
    br_free(map->slots);
    br_free(map);
}

/* Returns the slot of the key, or the empty slot where it would be inserted. The map must have
 * slots. */
static size_t map_find(const struct br_map *map, uint64_t hash, const void *key, size_t len)
{
    size_t i = hash & (map->n_slots - 1);
    while (map->slots[i]) {
        const struct entry *entry = &map->entries[map->slots[i] - 1];
        if (entry->hash == hash && entry->len == len && memcmp(entry->key, key, len) == 0)
            break;
        i = (i + 1) & (map->n_slots - 1);
    }
    return i;
}

void *br_map_get(const struct br_map *map, const void *key, size_t len)
{
    if (!map->n_slots)
        return NULL;
    size_t i = map_find(map, br_siphash(map->secret, key, len), key, len);
    return map->slots[i] ? map->entries[map->slots[i] - 1].value : NULL;
}

static int map_rehash(struct br_map *map, size_t n_slots)
{
    uint32_t *slots = br_calloc(n_slots, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    for (uint32_t e = 0; e < map->count; e++) {
        size_t i = map->entries[e].hash & (n_slots - 1);
        while (slots[i])
            i = (i + 1) & (n_slots - 1);
        slots[i] = e + 1;
    }
    br_free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    return 0;
}

int br_map_put(struct br_map *map, const void *key, size_t len, void *value, void **ret_old)
{
    uint64_t hash = br_siphash(map->secret, key, len);
    if (map->n_slots) {
        size_t i = map_find(map, hash, key, len);
        if (map->slots[i]) {
            struct entry *entry = &map->entries[map->slots[i] - 1];
            if (ret_old)
                *ret_old = entry->value;
            entry->value = value;
            return 0;
        }
    }
    if ((size_t)map->count + 1 > map->n_slots / 2 && map->count < map->max) {
        int rc = map_rehash(map, map->n_slots ? map->n_slots * 2 : 16);
        if (rc)
            return rc;
    }
    int rc =
        br_grow(&map->entries, &map->cap, (size_t)map->count + 1, sizeof *map->entries, map->max);
    if (rc)
        return rc;
    void *copy = br_malloc(len);
    if (!copy)
        return BR_ENOMEM;
    if (len)
        memcpy(copy, key, len);
    map->entries[map->count] = (struct entry){hash, copy, len, value};
    map->slots[map_find(map, hash, key, len)] = ++map->count;
    if (ret_old)
        *ret_old = NULL;
    return 0;
}

/* Empties slot `index` and moves back the entries whose probe has passed this slot. */
static void map_vacate(struct br_map *map, size_t index)
{
    size_t mask = map->n_slots - 1, j = index;
    for (;;) {
        j = (j + 1) & mask;
        if (!map->slots[j])
            break;
        size_t home = map->entries[map->slots[j] - 1].hash & mask;
        if (((j - home) & mask) >= ((j - index) & mask)) {
            map->slots[index] = map->slots[j];
            index = j;
        }
    }
    map->slots[index] = 0;
}

void *br_map_remove(struct br_map *map, const void *key, size_t len)
{
    if (!map->n_slots)
        return NULL;
    size_t i = map_find(map, br_siphash(map->secret, key, len), key, len);
    if (!map->slots[i])
        return NULL;
    uint32_t e = map->slots[i] - 1, last = map->count - 1;
    void *value = map->entries[e].value, *copy = map->entries[e].key;
    map_vacate(map, i);
    if (e != last) {
        const struct entry *moved = &map->entries[last];
        map->slots[map_find(map, moved->hash, moved->key, moved->len)] = e + 1;
        map->entries[e] = *moved;
    }
    map->count--;
    br_free(copy);
    return value;
}

size_t br_map_count(const struct br_map *map)
{
    return map->count;
}

void *br_map_at(const struct br_map *map, size_t index, const void **ret_key, size_t *ret_len)
{
    if (index >= map->count)
        return NULL;
    if (ret_key)
        *ret_key = map->entries[index].key;
    if (ret_len)
        *ret_len = map->entries[index].len;
    return map->entries[index].value;
}
