/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes out of a URL or a path what names one thing among many: `/users/42?x=1` becomes `/users/`
 * and an asterisk. Scheme and host stay; query and fragment go. Segments of the path stay that are
 * words: letters, `-`, `_`, `.` and `~`, a digit only as the second character (`v1`), no more than
 * 32 bytes, and not seven or more that are all hexadecimal. The others become `*`, and after ten
 * segments the rest goes.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define REDACT_URL_SEGMENTS_MAX 10

/* Writes what is left of a text to `out`, which has room for `len` bytes. Returns its length. */
size_t redact_url_clean(const uint8_t *text, size_t len, uint8_t *out);
