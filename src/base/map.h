/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A map from byte strings to pointers, with a maximum. Keys are copied. Hashed with a secret of the
 * map's own (SipHash-1-3), so that input cannot be chosen to collide. Iteration is in order of
 * insertion until the first removal.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct br_map;

/* Returns a map of at most `max` entries; NULL when there is no memory. */
struct br_map *br_map_new(size_t max);

/* Frees the map, first handing every value to `release` (may be NULL). `map` may be NULL. */
void br_map_free(struct br_map *map, void (*release)(void *value));

/* Returns the value of the key, or NULL. */
void *br_map_get(const struct br_map *map, const void *key, size_t len);

/* Sets the key's value (not NULL). `*ret_old`, unless NULL, becomes what it replaced, or NULL.
 * Returns 0, BR_EFULL or BR_ENOMEM; on failure nothing changed. */
int br_map_put(struct br_map *map, const void *key, size_t len, void *value, void **ret_old);

/* Takes the key out; returns its value, or NULL when it was not there. */
void *br_map_remove(struct br_map *map, const void *key, size_t len);

size_t br_map_count(const struct br_map *map);

/* Returns entry `index` of br_map_count; NULL past the end. `*ret_key` lives until the entry is
 * removed. */
void *br_map_at(const struct br_map *map, size_t index, const void **ret_key, size_t *ret_len);

/* Returns SipHash-1-3 with a 16-byte key, for tables that hostile input can fill. */
uint64_t br_siphash(const uint8_t key[16], const void *data, size_t len);

/* Fills with bytes that nobody outside can guess (getrandom). */
void br_random_bytes(void *out, size_t len);
