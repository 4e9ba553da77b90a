/* SPDX-License-Identifier: Apache-2.0 */
/* Values as text, as the Collector's Value.AsString has them. */
#pragma once

#include "attribute/value.h"
#include "base/str.h"

/* Appends: a string as it is; numbers and booleans; bytes in base64; lists and maps as JSON, a
 * map's keys sorted, of equal ones the last; nothing for an empty value. `out` fails when the arena
 * has no memory, too. */
void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena);

/* Appends a double as ECMAScript's Number::toString does: shortest digits, an exponent below 1e-6
 * and from 1e21 on; "NaN", "Infinity", "-Infinity". */
void br_value_text_double(struct br_str *out, double value);

/* The same without an exponent, as Go's FormatFloat(v, 'f', -1, 64); "NaN", "+Inf", "-Inf". */
void br_value_text_plain(struct br_str *out, double value);
