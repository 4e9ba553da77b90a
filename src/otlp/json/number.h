/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the numbers of JSON (RFC 8259 section 6) exactly: 18446744073709551615 and
 * 9007199254740993.0 keep their value, which they would lose in a double or an int64.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Returns the length of the number that `text` begins with; 0 where it begins with none. */
size_t br_number_scan(const char *text, size_t len);

/* Returns true when `text` is the usual integer, nothing but one to 19 digits, and its value. */
bool br_number_digits(const char *text, size_t len, uint64_t *ret);

/* Gives the value of a number (br_number_scan gave its `len`) that is an integer, also where it is
 * written with a fraction or an exponent; false when it is none, or its magnitude is over 2^64 - 1.
 */
bool br_number_integer(const char *text, size_t len, bool *ret_negative, uint64_t *ret_magnitude);

/* Gives the nearest double of a number; false when it is too large for one. The byte after the
 * number must be readable and must not continue it: a terminator, a quote, a bracket, a comma. */
bool br_number_double(const char *text, double *ret);

/* Appends a double as proto3 JSON has it: br_double_print; "NaN", "Infinity" and "-Infinity"
 * quoted.
 */
void br_number_print(struct br_str *out, double value);
