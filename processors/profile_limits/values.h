/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the values of each label: for each key it keeps those seen since the window began, as
 * hashes. Keys and values are bounded; what comes when a bound is reached is not let in.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

#define LIMITS_KEYS_MAX 1024
#define LIMITS_KEY_NONE UINT16_MAX
#define LIMITS_VALUES_MAX (1u << 20) /* of all keys together */

/* Zeroed at first. */
struct limits_values {
    struct br_map *keys;
    uint32_t n_values;
    uint8_t secret[16]; /* of the hashes */
};

/* Forgets everything; usable again. */
void limits_values_clear(struct limits_values *values);

/* Returns the number of the key, from 1; LIMITS_KEY_NONE when there are too many keys, or no
 * memory. It is good until everything is forgotten. */
uint16_t limits_values_key(struct limits_values *limits_values, const void *key, size_t len);

/* Returns true when the value is one of the first `max` of the key with this number. What there is
 * no memory for is not. */
bool limits_values_admit(struct limits_values *limits_values, uint16_t key, const void *value,
                         size_t len, uint32_t max);
