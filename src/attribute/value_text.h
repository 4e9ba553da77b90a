/* SPDX-License-Identifier: Apache-2.0 */
/* Writes values as text, as the Collector's Value.AsString does. */
#pragma once

#include "attribute/value.h"
#include "base/str.h"

/* Appends the text of a value: a string as it is; numbers and booleans; bytes in base64; lists and
 * maps as JSON, with a map's keys sorted and of equal keys the last; nothing for an empty value.
 * `out` fails when the arena has no memory, too. */
void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena);

/* Appends a double as ECMAScript's Number::toString does: shortest digits, an exponent below 1e-6
 * and from 1e21 on; "NaN", "Infinity", "-Infinity". */
void br_value_text_double(struct br_str *out, double value);

/* Writes a number without an exponent, as Go's FormatFloat(v, 'f', -1, 64); "NaN", "+Inf", "-Inf".
 */
void br_value_text_plain(struct br_str *out, double value);
