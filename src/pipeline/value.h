/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribute values as the bytes of their AnyValue message: copying one is copying a pointer, and
 * only what an action asks for is read. Source: opentelemetry/proto/common/v1/common.proto.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "config/yaml.h"

struct br_value {
    const uint8_t *data;
    size_t len;
};

/* Field numbers of AnyValue. */
enum br_value_type {
    BR_VALUE_EMPTY,
    BR_VALUE_STRING,
    BR_VALUE_BOOL,
    BR_VALUE_INT,
    BR_VALUE_DOUBLE,
    BR_VALUE_LIST,
    BR_VALUE_MAP,
    BR_VALUE_BYTES,
};

struct br_any {
    enum br_value_type type;
    uint64_t number;     /* BOOL, INT, DOUBLE: the bits */
    const uint8_t *data; /* STRING, LIST, MAP, BYTES */
    size_t len;
};

/* What a value is; of several the last counts. Malformed bytes are EMPTY. */
struct br_any br_any_read(struct br_value v);

/* True for values of the same type and content, of lists element by element, of maps in any order;
 * a NaN equals nothing. */
bool br_value_equal(struct br_value a, struct br_value b);

/* A string value; its bytes live in the arena. False when there is no memory. */
bool br_value_string(const void *text, size_t len, struct br_arena *arena, struct br_value *ret);

/* A value from the config: numbers and booleans without quotes keep their type, lists and maps
 * become those. `*ret` is {NULL, 0} for null. False when there is no memory. */
bool br_value_from_yaml(const struct br_yaml *node, struct br_arena *arena, struct br_value *ret);

/* The SHA-256 of a string, boolean (one byte), integer or double (eight, little endian) in
 * lower-case hex; "" for any other value. False when there is no memory. */
bool br_value_hash(struct br_value v, struct br_arena *arena, struct br_value *ret);

/* The value as another type; the same where it is of that type or cannot be converted. False when
 * there is no memory. */
bool br_value_convert(struct br_value v, enum br_value_type to, struct br_arena *arena,
                      struct br_value *ret);
