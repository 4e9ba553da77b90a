/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses JSON numbers (RFC 8259, section 6) exactly: 18446744073709551615 and 9007199254740993.0
 * keep their values, which an int64 or a double could not hold.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Returns the length in bytes of the number at the start of `text`. Returns 0 if the text does
 * not begin with a number. */
size_t br_number_scan(const char *text, size_t len);

/* Parses an integer in its most frequent form: one to 19 digits and nothing else. Returns false
 * for any other text. */
bool br_number_digits(const char *text, size_t len, uint64_t *ret);

/* Parses a number whose value is an integer, even if the text has a fraction or an exponent.
 * `len` is the result of br_number_scan. Returns false if the value is not an integer or its
 * magnitude exceeds 2^64 - 1. */
bool br_number_integer(const char *text, size_t len, bool *ret_negative, uint64_t *ret_magnitude);

/* Parses a number as the nearest double. Returns false if the number is too large for a double.
 * The byte after the number must be readable and must not continue the number: a NUL, a quote, a
 * bracket or a comma. */
bool br_number_double(const char *text, double *ret);

/* Appends a double as in proto3 JSON: the output of br_double_print, or "NaN", "Infinity" or
 * "-Infinity" in quotes. */
void br_number_print(struct br_str *out, double value);
