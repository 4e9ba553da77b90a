/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes identifiers from a URL or a path: `/users/42?x=1` becomes `/users/` and an asterisk.
 * Scheme and host are kept; query and fragment are removed. A segment of the path is kept if it
 * looks like a word. A word has at most 32 bytes: letters, `-`, `_`, `.` and `~`, and a digit only
 * as the second character (`v1`). Seven or more hexadecimal digits are not a word. Other segments
 * become `*`, and everything after ten segments is removed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REDACT_URL_SEGMENTS_MAX 10

/* Writes the cleaned text to `out`, which must have room for `len` bytes, and returns its
 * length. */
size_t redact_url_clean(const uint8_t *text, size_t len, uint8_t *out);
