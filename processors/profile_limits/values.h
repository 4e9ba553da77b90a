/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the distinct values of each label. For each key it stores hashes of the values seen since
 * the window began. The numbers of keys and values are limited; beyond the limits, new keys and
 * values are not admitted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

#define LIMITS_KEYS_MAX 1024
#define LIMITS_KEY_NONE UINT16_MAX
#define LIMITS_VALUES_MAX (1u << 20) /* most stored values of all keys together */

/* Zero-initialized. */
struct limits_values {
    struct br_map *keys;
    uint32_t n_values;
    uint8_t secret[16]; /* secret key of the hash function */
};

/* Removes all keys and values. `values` can be used again. */
void limits_values_clear(struct limits_values *values);

/* Returns the number of the key, from 1, which is valid until limits_values_clear. Returns
 * LIMITS_KEY_NONE if there are too many keys or not enough memory. */
uint16_t limits_values_key(struct limits_values *limits_values, const void *key, size_t len);

/* Returns true if the value is one of the first `max` distinct values of the key. Returns false
 * if it is not, or if there is not enough memory to store the value. */
bool limits_values_admit(struct limits_values *limits_values, uint16_t key, const void *value,
                         size_t len, uint32_t max);
