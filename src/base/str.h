/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable, always terminated string with a maximum, and the few string helpers that C lacks.
 * Appending past the maximum or without memory sets `failed` and leaves the content as it was, so
 * that a caller checks once, at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_str {
    char *data; /* NULL while nothing was appended, unless `fixed` */
    size_t len, cap;
    size_t max;  /* bytes without the terminator; 0: 64 MiB */
    bool fixed;  /* `data` is the caller's and `cap` (at least 1) bytes large; cuts, never grows */
    bool failed; /* something did not fit, or there was no memory */
};

/* Frees what the string holds; usable again. Accepts a zeroed one. */
void br_str_release(struct br_str *str);

/* Empties it, keeping the memory, and forgets `failed`. */
void br_str_clear(struct br_str *str);

void br_str_add(struct br_str *str, const void *data, size_t len);
void br_str_puts(struct br_str *str, const char *text);
void br_str_putc(struct br_str *str, char letter);
void br_str_printf(struct br_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends `len` bytes as a quoted JSON string; invalid UTF-8 becomes U+FFFD. */
void br_str_json(struct br_str *str, const char *text, size_t len);

/* Appends lower-case hex, or base64 with padding (RFC 4648 section 4). */
void br_str_hex(struct br_str *str, const uint8_t *data, size_t len);
void br_str_base64(struct br_str *str, const uint8_t *data, size_t len);

/* Decodes hex of either case into `out` of `size` bytes. Returns the number of bytes, or -1 when a
 * character is not hex, the length is odd or it does not fit. */
long br_hex_decode(const char *text, size_t len, uint8_t *out, size_t size);

/* Reads an id of `size` bytes (at most 16) written as hex in whatever way: of either case, blanks
 * around it, shorter and padded with zeros, or with too many of them. False (and `out` is
 * undefined) when it is not hex, too long, or nothing but zeros, which is no id. */
bool br_hex_id(const char *text, size_t len, uint8_t *out, size_t size);

/* Decodes base64, standard or URL alphabet, padding optional. `out` needs len / 4 * 3 + 3 bytes.
 * Returns the number of bytes, or -1 when it is not base64. */
long br_base64_decode(const char *text, size_t len, uint8_t *out);

/* Reads the digits of a number in base 2 to 16, in either case, up to the end of the string; false
 * when there are none, another character, or more than an int64_t holds with the sign that
 * `negative` says. */
bool br_parse_int(const char *digits, unsigned base, bool negative, int64_t *ret);

/* Returns the length of the longest valid UTF-8 prefix (RFC 3629: no surrogates, nothing
 * overlong). Equal to `len` when all of it is valid. */
size_t br_utf8_valid(const uint8_t *data, size_t len);

/* Copies `len` bytes to `out`, which must have room (three times `len` is enough), with each byte
 * that starts no valid sequence replaced by U+FFFD; with `out` NULL only measures. Returns the
 * bytes that the result takes: `len` for what is valid. */
size_t br_utf8_mend(const uint8_t *data, size_t len, uint8_t *out);

/* Returns the edit distance (insert, delete, replace, swap of neighbours), ASCII case ignored; for
 * "did you mean". Strings over 64 bytes give 64. */
unsigned br_str_distance(const char *left, const char *right);

/* Returns the one of `count` names nearest to `name`, or NULL when none is near enough to be
 * meant. */
const char *br_str_nearest(const char *name, const char *const *names, size_t count);
