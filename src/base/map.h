/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from byte strings to pointers with a maximum size. Keys are copied. Each map hashes with a
 * random secret (SipHash-1-3), so that input cannot be chosen to collide. Iteration is in order of
 * insertion until the first removal.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct br_map;

/* Returns a map of at most `max` entries, or NULL if memory runs out. */
struct br_map *br_map_new(size_t max);

/* Frees the map after calling `release` (may be NULL) for each value. `map` may be NULL. */
void br_map_free(struct br_map *map, void (*release)(void *value));

/* Returns the value of the key, or NULL. */
void *br_map_get(const struct br_map *map, const void *key, size_t len);

/* Sets the value (not NULL) of the key. If `ret_old` is not NULL, `*ret_old` is set to the
 * replaced value or NULL. Returns 0, BR_EFULL or BR_ENOMEM; on failure nothing changes. */
int br_map_put(struct br_map *map, const void *key, size_t len, void *value, void **ret_old);

/* Removes the key. Returns the value of the removed entry, or NULL if the map does not contain
 * the key. */
void *br_map_remove(struct br_map *map, const void *key, size_t len);

size_t br_map_count(const struct br_map *map);

/* Returns the value of entry number `index` (less than br_map_count), or NULL past the end.
 * `*ret_key` is valid until the entry is removed. */
void *br_map_at(const struct br_map *map, size_t index, const void **ret_key, size_t *ret_len);

/* Returns SipHash-1-3 with a 16-byte key, for tables that clients can fill. */
uint64_t br_siphash(const uint8_t key[16], const void *data, size_t len);

/* Fills `out` with random bytes that cannot be guessed (getrandom). */
void br_random_bytes(void *out, size_t len);
