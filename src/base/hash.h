/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keyed hash for tables and caches on hot paths, where br_siphash (base/map.h) would take most of
 * the time. Like wyhash, the hash multiplies 64-bit words, 16 bytes per step, and folds each
 * 128-bit product; long texts use two independent chains. Without the secret nobody can choose
 * texts that collide.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

__extension__ typedef unsigned __int128 br_hash_product;

static inline uint64_t br_hash_load64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t br_hash_load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t br_hash_mix(uint64_t left, uint64_t right)
{
    br_hash_product r = (br_hash_product)left * right;
    return (uint64_t)r ^ (uint64_t)(r >> 64);
}

/* Returns the hash of `len` bytes with a secret from br_random_bytes. */
static inline uint64_t br_hash_keyed(const uint64_t secret[2], const void *data, size_t len)
{
    const uint8_t *p = data;
    uint64_t s0 = secret[0], s1 = secret[1], a, b, h = s0 ^ len;
    if (__builtin_expect(len <= 16, 0)) {
        if (len >= 8) {
            a = br_hash_load64(p);
            b = br_hash_load64(p + len - 8);
        } else if (len >= 4) {
            a = br_hash_load32(p);
            b = br_hash_load32(p + len - 4);
        } else {
            a = len ? (uint64_t)p[0] << 16 | (uint64_t)p[len >> 1] << 8 | p[len - 1] : 0;
            b = 0;
        }
    } else {
        const uint8_t *last = p + len - 16;
        uint64_t g = h;
        for (; last - p > 16; p += 32) {
            h = br_hash_mix(br_hash_load64(p) ^ s1, br_hash_load64(p + 8) ^ h);
            g = br_hash_mix(br_hash_load64(p + 16) ^ s0, br_hash_load64(p + 24) ^ g);
        }
        if (p < last)
            h = br_hash_mix(br_hash_load64(p) ^ s1, br_hash_load64(p + 8) ^ h);
        h ^= g;
        a = br_hash_load64(last);
        b = br_hash_load64(last + 8);
    }
    h = br_hash_mix(a ^ s1, b ^ h);
    h = br_hash_mix(h ^ s0, s1);
    return h;
}

/* Returns the hash of a number. A single multiplication is not enough: a multiplication maps
 * consecutive numbers to an arithmetic sequence. For about one secret in twenty, that sequence
 * covers only a few slots of a table. */
static inline uint64_t br_hash_number(const uint64_t secret[2], uint64_t number)
{
    return br_hash_mix(br_hash_mix(number ^ secret[1], secret[0]) ^ secret[0], secret[1]);
}
