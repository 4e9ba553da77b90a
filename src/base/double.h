/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats doubles with the fewest digits that read back as the same double, at about the same cost
 * for every value. The digits are those of ECMAScript's Number::toString and of Go's strconv with
 * precision -1: among the shortest, those nearest to the value. printf and strtod give the same
 * digits, but need 20 us for 17 digits of a small number.
 */
#pragma once

#include "base/str.h"

#define BR_DOUBLE_DIGITS_MAX 17

/* Writes the digits of a finite `value` greater than 0, without a terminator. The first and the
 * last digit are not 0. The value equals 0.DIGITS * 10^point, with the point in `*ret_point`.
 * Returns the number of digits. */
int br_double_shortest(double value, char digits[BR_DOUBLE_DIGITS_MAX], int *ret_point);

/* Appends a finite double, with an exponent if its magnitude is below 1e-6 or at least 1e21, as
 * ECMAScript's Number::toString and Go's encoding/json do. A negative zero is "-0". */
void br_double_print(struct br_str *out, double value);

/* Appends a finite double without an exponent, as Go's FormatFloat(v, 'f', -1, 64). */
void br_double_print_plain(struct br_str *out, double value);
