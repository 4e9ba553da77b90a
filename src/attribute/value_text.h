/* SPDX-License-Identifier: Apache-2.0 */
/* Formats values as text, like the Collector's Value.AsString. */
#pragma once

#include "attribute/value.h"
#include "base/str.h"

/* Appends the text of a value. A string is unchanged, bytes are in base64, lists and maps are
 * JSON, and an empty value is "". The keys of a map are sorted; of equal keys the last is kept.
 * `out` fails also if the arena runs out of memory. */
void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena);

/* Appends a double like ECMAScript's Number::toString: the shortest digits, with an exponent
 * below 1e-6 and from 1e21 on; "NaN", "Infinity", "-Infinity". */
void br_value_text_double(struct br_str *out, double value);

/* Appends a double without an exponent, like Go's FormatFloat(v, 'f', -1, 64); "NaN", "+Inf",
 * "-Inf". */
void br_value_text_plain(struct br_str *out, double value);
