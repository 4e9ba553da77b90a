/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads KeyValue, KeyValueAndUnit and AnyValue in place; all code reads them here. It copies
 * nothing. Fields come in any order (Go's pdata writes a value before its key), a field that is
 * there more than once counts as it was last, and unknown ones are passed over. Source:
 * opentelemetry/proto/common/v1/common.proto, profiles/v1development/profiles.proto at 1.10 and
 * later; protobuf.dev/programming-guides/encoding, "Last One Wins".
 *
 * Of several values of one key the last that is not empty counts. By protobuf's rule they are one
 * message, their concatenation: that differs only for lists, and who cares can see `several`.
 *
 * Everything here borrows the bytes. What is malformed is read as far as it is good.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/fields.h"
#include "wire/protobuf.h"

/* The bytes of an AnyValue; NULL: there is none. */
struct br_value {
    const uint8_t *data;
    size_t len;
};

/* What an AnyValue is. */
struct br_any {
    enum br_value_type type;
    uint64_t number;     /* BOOL, INT, DOUBLE: the bits */
    const uint8_t *data; /* STRING, LIST, MAP, BYTES */
    size_t len;
    uint64_t reference; /* EMPTY: the string's index, from string_value_strindex; 0: none */
};

/* Returns what a value is; of several fields the last counts. EMPTY where the wire type is wrong.
 */
struct br_any br_any_read(struct br_value value);

/* Returns the field that br_any_read reads of it, alone: short where a value repeats its fields,
 * and is read often. Empty where no field says what it is, and where it is malformed. */
struct br_value br_value_last(struct br_value value);

struct br_keyvalue {
    const uint8_t *key; /* KeyValue: as it is written out */
    size_t key_len;
    uint64_t key_index; /* the key's index into the string table, 0: none */
    uint64_t unit;      /* KeyValueAndUnit: its unit's */
    struct br_value value;
    bool several; /* values that are not empty; `value` is the last */
};

/* Reads a KeyValue. Where a key is written out, it counts and not `key_index`. False when it is
 * malformed. */
bool br_keyvalue_read(const uint8_t *data, size_t len, struct br_keyvalue *ret);

/* Reads a KeyValue of one key and one value, in either order, both of less than 128 bytes, and
 * nothing else, as most are; false, and nothing is read, of another shape. */
static inline bool br_keyvalue_read_short(const uint8_t *data, size_t len, struct br_keyvalue *ret)
{
    const uint8_t key_tag = BR_TAG(BR_KEYVALUE_KEY, BR_WIRE_LEN),
                  value_tag = BR_TAG(BR_KEYVALUE_VALUE, BR_WIRE_LEN);
    if (len < 4 || data[1] >= 128 || data[1] + 4u > len)
        return false;
    const uint8_t *first = data + 2, *second = first + data[1] + 2;
    size_t first_len = data[1], second_len = second[-1];
    if (second_len >= 128 || first_len + 4 + second_len != len)
        return false;
    if (data[0] == value_tag && second[-2] == key_tag)
        *ret =
            (struct br_keyvalue){.key = second, .key_len = second_len, .value = {first, first_len}};
    else if (data[0] == key_tag && second[-2] == value_tag)
        *ret =
            (struct br_keyvalue){.key = first, .key_len = first_len, .value = {second, second_len}};
    else
        return false;
    return true;
}

/* Reads a KeyValueAndUnit, as it stands in the attribute table. */
bool br_keyvalue_read_entry(const uint8_t *data, size_t len, struct br_keyvalue *ret);

/* Reads the next KeyValue that is field `field` of the message between `p` and `end`, which may
 * both be NULL. Returns where to go on, or NULL when there is none. */
const uint8_t *br_keyvalue_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                                struct br_keyvalue *ret);

/* Reads the next element of a LIST, or KeyValue of a MAP, between `p` and `end`; returns the same.
 */
const uint8_t *br_value_next(const uint8_t *p, const uint8_t *end, struct br_value *ret);
