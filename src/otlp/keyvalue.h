/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads KeyValue, KeyValueAndUnit and AnyValue in place, without copying. All code that reads
 * messages of these types uses the functions in this header. Fields may be in any order: Go's pdata
 * writes a value before its key. If a field is repeated, its last value counts. Unknown fields are
 * skipped.
 *
 * If a KeyValue repeats its value, the last value that is not empty counts. Protobuf would merge
 * the values instead; the result differs only for lists. Callers for which this difference matters
 * check the field `several`.
 *
 * All results point into the caller's bytes. A malformed message is read up to the first error.
 *
 * Sources: opentelemetry/proto/common/v1/common.proto, profiles/v1development/profiles.proto, 1.10
 * and later; protobuf.dev/programming-guides/encoding, "Last One Wins".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/fields.h"
#include "wire/protobuf.h"

/* The bytes of an AnyValue; `data` is NULL if the AnyValue is absent. */
struct br_value {
    const uint8_t *data;
    size_t len;
};

/* A decoded AnyValue. */
struct br_any {
    enum br_value_type type;
    uint64_t number;     /* for the types BOOL, INT and DOUBLE: the bits of the value */
    const uint8_t *data; /* for the types STRING, LIST, MAP and BYTES: the content */
    size_t len;
    /* for the type EMPTY: the index of a string in the string table (string_value_strindex); 0: the
     * value does not refer to a string */
    uint64_t reference;
};

/* Decodes an AnyValue. If the AnyValue has several fields, the last field counts; fields with a
 * wrong wire type are skipped. The type is EMPTY if no field is valid or the message is
 * malformed. */
struct br_any br_any_read(struct br_value value);

/* Returns the bytes of the field that br_any_read would decode. If a value repeats its fields, the
 * returned bytes are fewer than those of the whole value, so reading them repeatedly is faster.
 * Returns an empty value if no field is valid or the message is malformed. */
struct br_value br_value_last(struct br_value value);

struct br_keyvalue {
    const uint8_t *key; /* KeyValue: the key, if it is present as text */
    size_t key_len;
    /* index of the key in the string table; 0: the key does not refer to a string */
    uint64_t key_index;
    uint64_t unit; /* KeyValueAndUnit: index of the unit in the string table */
    struct br_value value;
    /* the message contains several values that are not empty; `value` is the last of them */
    bool several;
};

/* Reads a KeyValue. If the key is present as text, the caller must ignore `key_index`. Returns
 * false if the message is malformed. */
bool br_keyvalue_read(const uint8_t *data, size_t len, struct br_keyvalue *ret);

/* Reads a KeyValue of the most frequent shape: one key and one value in either order, both
 * shorter than 128 bytes, and no other field. Returns false for any other shape and then leaves
 * `*ret` unchanged. */
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

/* Reads a KeyValueAndUnit, an entry of the attribute table. Returns false if the message is
 * malformed. */
bool br_keyvalue_read_entry(const uint8_t *data, size_t len, struct br_keyvalue *ret);

/* Reads the next KeyValue that is field `field` of the message between `p` and `end`. Both
 * pointers may be NULL. Returns the position after the KeyValue, or NULL at the end. */
const uint8_t *br_keyvalue_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                                struct br_keyvalue *ret);

/* Reads the next element of a LIST, or the next KeyValue of a MAP, between `p` and `end`.
 * Returns the position after the element, or NULL at the end. */
const uint8_t *br_value_next(const uint8_t *p, const uint8_t *end, struct br_value *ret);
