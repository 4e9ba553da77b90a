/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes, compares, converts and hashes attribute values, which are the bytes of their AnyValue
 * message (otlp/keyvalue.h). Source: opentelemetry/proto/common/v1/common.proto.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/yaml.h"
#include "otlp/keyvalue.h"

/* Returns true for values of the same type and content, of lists element by element, of maps in any
 * order; a NaN equals nothing. */
bool br_value_equal(struct br_value left, struct br_value right);

/* Makes a string value; its bytes live in the arena. False when there is no memory. */
bool br_value_string(const void *text, size_t len, struct br_arena *arena, struct br_value *ret);

/* Makes a value from the config: numbers and booleans without quotes keep their type, lists and
 * maps become those. `*ret` is {NULL, 0} for null. False when there is no memory. */
bool br_value_from_yaml(const struct br_yaml *node, struct br_arena *arena, struct br_value *ret);

/* Gives the SHA-256 of a string, boolean (one byte), integer or double (eight, little endian) in
 * lower-case hex; "" for any other value. False when there is no memory. */
bool br_value_hash(struct br_value value, struct br_arena *arena, struct br_value *ret);

/* Converts the value to another type; the same where it is of that type or cannot be converted.
 * False when there is no memory. */
bool br_value_convert(struct br_value value, enum br_value_type to, struct br_arena *arena,
                      struct br_value *ret);
