/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes doubles in as few digits as name them, at about the same small cost for each. The digits
 * are those of ECMAScript's Number::toString and of Go's strconv with precision -1: the fewest that
 * read back as the same double, and of those the ones nearest to it. printf and strtod find them,
 * too, but take 20 us where it is 17 digits of a small number.
 */
#pragma once

#include "base/str.h"

#define BR_DOUBLE_DIGITS_MAX 17

/* Gives the digits (without a terminator) of a `value` that is finite and above 0; the first and
 * the last are no zeros. The value is 0.DIGITS * 10^point. Returns how many there are. */
int br_double_shortest(double value, char digits[BR_DOUBLE_DIGITS_MAX], int *ret_point);

/* Appends a finite double with an exponent below 1e-6 and from 1e21 on, as ECMAScript's
 * Number::toString and Go's encoding/json do; a negative zero is "-0". */
void br_double_print(struct br_str *out, double value);

/* Appends a finite double without an exponent, as Go's FormatFloat(v, 'f', -1, 64). */
void br_double_print_plain(struct br_str *out, double value);
