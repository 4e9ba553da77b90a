/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses decimal numbers in texts that need no terminator. A number consists of ASCII digits only.
 * Leading zeros are allowed. On failure, results are unchanged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns true for an ASCII digit. `letter` is a char or a byte. */
static inline bool br_is_digit(int letter)
{
    return letter >= '0' && letter <= '9';
}

/* Parses the digits at `*p` and moves `*p` past all of these digits, even on failure. Returns
 * false if there is no digit before `end`, or if the number is greater than `max`. */
bool br_decimal_read(const char **p, const char *end, uint64_t max, uint64_t *ret);

/* Parses a text that consists of digits. Returns false if the text is empty or contains a
 * character that is not a digit, or if the number is greater than `max`. */
bool br_decimal_parse(const char *text, size_t len, uint64_t max, uint64_t *ret);

/* Parses digits with an optional sign, as Go's strconv.ParseInt does with base 10. Returns false
 * if the text is not such a number, or if the number does not fit into an int64_t. */
bool br_decimal_parse_signed(const char *text, size_t len, int64_t *ret);

/* Reads the digits after a decimal point and moves `*p` past them. Returns the fraction multiplied
 * by `unit`, rounded down. For example, the result for "25" and a `unit` of 1000 is 250 (0.25 *
 * 1000). Returns 0 if there are no digits. Digits after the 18th are ignored. */
uint64_t br_decimal_fraction(const char **p, const char *end, uint64_t unit);
