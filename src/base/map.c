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
    uint32_t n, cap;
    uint32_t *slots; /* entry index + 1, open addressing; at most half full */
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

static uint64_t rotl(uint64_t x, unsigned b)
{
    return x << b | x >> (64 - b);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
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
        sip_round(v);
        v[0] ^= m;
    }
    m = (uint64_t)len << 56;
    for (size_t i = 0; i < left; i++)
        m |= (uint64_t)p[i] << (8 * i);
    v[3] ^= m;
    sip_round(v);
    v[0] ^= m;
    v[2] ^= 0xff;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct br_map *br_map_new(size_t max)
{
    struct br_map *m = br_calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->max = max;
    br_random_bytes(m->secret, sizeof m->secret);
    return m;
}

void br_map_free(struct br_map *m, void (*release)(void *value))
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->n; i++) {
        if (release)
            release(m->entries[i].value);
        br_free(m->entries[i].key);
    }
    br_free(m->entries);
    br_free(m->slots);
    br_free(m);
}

/* The slot of the key, or the empty one where it would go. Needs slots. */
static size_t find(const struct br_map *m, uint64_t hash, const void *key, size_t len)
{
    size_t i = hash & (m->n_slots - 1);
    while (m->slots[i]) {
        const struct entry *e = &m->entries[m->slots[i] - 1];
        if (e->hash == hash && e->len == len && memcmp(e->key, key, len) == 0)
            break;
        i = (i + 1) & (m->n_slots - 1);
    }
    return i;
}

void *br_map_get(const struct br_map *m, const void *key, size_t len)
{
    if (!m->n_slots)
        return NULL;
    size_t i = find(m, br_siphash(m->secret, key, len), key, len);
    return m->slots[i] ? m->entries[m->slots[i] - 1].value : NULL;
}

static int rehash(struct br_map *m, size_t n_slots)
{
    uint32_t *slots = br_calloc(n_slots, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    for (uint32_t e = 0; e < m->n; e++) {
        size_t i = m->entries[e].hash & (n_slots - 1);
        while (slots[i])
            i = (i + 1) & (n_slots - 1);
        slots[i] = e + 1;
    }
    br_free(m->slots);
    m->slots = slots;
    m->n_slots = n_slots;
    return 0;
}

int br_map_put(struct br_map *m, const void *key, size_t len, void *value, void **ret_old)
{
    uint64_t hash = br_siphash(m->secret, key, len);
    if (m->n_slots) {
        size_t i = find(m, hash, key, len);
        if (m->slots[i]) {
            struct entry *e = &m->entries[m->slots[i] - 1];
            if (ret_old)
                *ret_old = e->value;
            e->value = value;
            return 0;
        }
    }
    if ((size_t)m->n + 1 > m->n_slots / 2 && m->n < m->max) {
        int rc = rehash(m, m->n_slots ? m->n_slots * 2 : 16);
        if (rc)
            return rc;
    }
    int rc = br_grow(&m->entries, &m->cap, (size_t)m->n + 1, sizeof *m->entries, m->max);
    if (rc)
        return rc;
    void *copy = br_malloc(len);
    if (!copy)
        return BR_ENOMEM;
    if (len)
        memcpy(copy, key, len);
    m->entries[m->n] = (struct entry){hash, copy, len, value};
    m->slots[find(m, hash, key, len)] = ++m->n;
    if (ret_old)
        *ret_old = NULL;
    return 0;
}

/* Empties slot `i` and moves back what probed past it. */
static void vacate(struct br_map *m, size_t i)
{
    size_t mask = m->n_slots - 1, j = i;
    for (;;) {
        j = (j + 1) & mask;
        if (!m->slots[j])
            break;
        size_t home = m->entries[m->slots[j] - 1].hash & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            m->slots[i] = m->slots[j];
            i = j;
        }
    }
    m->slots[i] = 0;
}

void *br_map_remove(struct br_map *m, const void *key, size_t len)
{
    if (!m->n_slots)
        return NULL;
    size_t i = find(m, br_siphash(m->secret, key, len), key, len);
    if (!m->slots[i])
        return NULL;
    uint32_t e = m->slots[i] - 1, last = m->n - 1;
    void *value = m->entries[e].value, *copy = m->entries[e].key;
    vacate(m, i);
    if (e != last) {
        const struct entry *moved = &m->entries[last];
        m->slots[find(m, moved->hash, moved->key, moved->len)] = e + 1;
        m->entries[e] = *moved;
    }
    m->n--;
    br_free(copy);
    return value;
}

size_t br_map_count(const struct br_map *m)
{
    return m->n;
}

void *br_map_at(const struct br_map *m, size_t i, const void **ret_key, size_t *ret_len)
{
    if (i >= m->n)
        return NULL;
    if (ret_key)
        *ret_key = m->entries[i].key;
    if (ret_len)
        *ret_len = m->entries[i].len;
    return m->entries[i].value;
}
