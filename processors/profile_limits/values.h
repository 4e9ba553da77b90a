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
#define LIMITS_VALUES_MAX (1u << 20) /* of all keys together */

/* Zeroed at first. */
struct limits_values {
    struct br_map *keys;
    uint32_t n_values;
    uint8_t secret[16]; /* of the hashes */
};

/* Forgets everything; usable again. */
void limits_values_clear(struct limits_values *values);

/* Returns true when the value is one of the first `max` of its key. What there is no memory for is
 * not. */
bool limits_values_admit(struct limits_values *limits_values, const void *key, size_t key_len,
                         const void *value, size_t len, uint32_t max);
