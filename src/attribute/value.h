/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes, compares, converts and hashes attribute values. A value consists of the bytes of its
 * AnyValue message (otlp/keyvalue.h), defined in opentelemetry/proto/common/v1/common.proto.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/str.h"
#include "config/yaml.h"
#include "otlp/keyvalue.h"

/* Returns true if both values have the same type and content. Lists are compared element by
 * element; the entries of maps may be in any order. A NaN is not equal to any value. */
bool br_value_equal(struct br_value left, struct br_value right);
bool br_any_equal(const struct br_any *left, const struct br_any *right);

/* Makes a string value in the arena. Returns false if memory runs out. */
bool br_value_string(const void *text, size_t len, struct br_arena *arena, struct br_value *ret);

/* Makes a value from a config node. Numbers and booleans without quotes keep their type. Lists
 * and maps of the config become list and map values. For null, `*ret` is {NULL, 0}. Returns
 * false if memory runs out. */
bool br_value_from_yaml(const struct br_yaml *node, struct br_arena *arena, struct br_value *ret);

/* Makes a string value: the SHA-256, in lower-case hex, of a string, a boolean (one byte), an
 * integer or a double (eight bytes, little endian). For other types the result is "". Returns
 * false if memory runs out. */
bool br_value_hash(struct br_value value, struct br_arena *arena, struct br_value *ret);

/* Converts the value to another type. If the value already has that type or cannot be converted,
 * the result is the unchanged value. Returns false if memory runs out. */
bool br_value_convert(struct br_value value, enum br_value_type to, struct br_arena *arena,
                      struct br_value *ret);

/* --- Values as text (value_text.c) ------------------------------------------------------------ */

/* The texts of values are the same as those of the Collector's Value.AsString. */

/* Appends the text of a value. A string is unchanged, bytes are in base64, lists and maps are JSON,
 * and an empty value is "". The keys of a map are sorted. If a key occurs several times, only its
 * last entry is kept. If the arena runs out of memory, sets out->failed. */
void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena);

/* Appends a double like ECMAScript's Number::toString: the fewest digits that identify the
 * number, with an exponent below 1e-6 and from 1e21 on. Other results are "NaN", "Infinity" and
 * "-Infinity". */
void br_value_text_double(struct br_str *out, double value);

/* The texts of values as Go's json.Marshal writes them. br_value_text_go differs from br_value_text
 * in lists and maps: the characters <, > and & are escaped, and an exponent has at least two
 * digits. `value` must be finite. */
void br_value_text_go(struct br_str *out, const struct br_any *any, struct br_arena *arena);
void br_value_text_go_double(struct br_str *out, double value);

/* Appends a double without an exponent, like Go's FormatFloat(v, 'f', -1, 64). Other results are
 * "NaN", "+Inf" and "-Inf". */
void br_value_text_plain(struct br_str *out, double value);
