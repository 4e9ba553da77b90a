/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growable, always terminated string with a maximum length, and a few string helpers that C
 * lacks. If the maximum is reached or memory runs out, appending sets `failed` and leaves the
 * content unchanged. A caller therefore checks once, at the end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct br_str {
    /* the text, with a terminator; NULL until something is appended, unless `fixed` is set */
    char *data;
    size_t len, cap;
    size_t max;  /* largest length of the text in bytes, without the terminator; 0: 64 MiB */
    bool fixed;  /* `data` is the caller's buffer of `cap` bytes (at least 1); text is cut to fit */
    bool failed; /* a text did not fit, or memory ran out */
};

/* Frees the string's memory. The string is then empty and can be used again. Accepts a zeroed
 * string. */
void br_str_release(struct br_str *str);

/* Empties the string, keeps its memory, and clears `failed`. */
void br_str_clear(struct br_str *str);

void br_str_add(struct br_str *str, const void *data, size_t len);
void br_str_puts(struct br_str *str, const char *text);
void br_str_putc(struct br_str *str, char letter);
void br_str_printf(struct br_str *str, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends `len` bytes as a quoted JSON string. Invalid UTF-8 becomes U+FFFD. */
void br_str_json(struct br_str *str, const char *text, size_t len);

/* Appends bytes as lower-case hex digits. */
void br_str_hex(struct br_str *str, const uint8_t *data, size_t len);

/* Appends bytes as base64 with padding (RFC 4648 section 4). */
void br_str_base64(struct br_str *str, const uint8_t *data, size_t len);

/* Decodes hex of either case into `out` of `size` bytes. Returns the number of bytes, or -1 if a
 * character is not hex, the length is odd or the result does not fit. */
long br_hex_decode(const char *text, size_t len, uint8_t *out, size_t size);

/* Parses an id of `size` bytes (at most 16) in hex. Accepts either case, surrounding blanks,
 * missing leading zeros and additional leading zeros. Returns false, with `out` undefined, if
 * the text is not hex, is too long, or is all zeros. */
bool br_hex_id(const char *text, size_t len, uint8_t *out, size_t size);

/* Decodes base64 with the standard or the URL alphabet and optional padding. `out` must have
 * room for 3 * (len / 4) + 3 bytes. Returns the number of bytes, or -1 if the text is not
 * base64. */
long br_base64_decode(const char *text, size_t len, uint8_t *out);

/* Parses a number in base 2 to 16, in either case, up to the end of the string. If `negative` is
 * true, negates the result. Returns false if the string is empty, contains a character that is not
 * a digit of the base, or does not fit into an int64_t. */
bool br_parse_int(const char *digits, unsigned base, bool negative, int64_t *ret);

/* Returns the length of the longest valid UTF-8 prefix (RFC 3629: no surrogates or overlong
 * sequences). The result is `len` if all of the text is valid. */
size_t br_utf8_valid(const uint8_t *data, size_t len);

/* Copies `len` bytes to `out`, replacing each byte that does not start a valid sequence by
 * U+FFFD. `out` must have room for three times `len` bytes; NULL: the length is computed, but
 * nothing is copied. Returns the length of the result, which is `len` for valid text. */
size_t br_utf8_replace(const uint8_t *data, size_t len, uint8_t *out);

/* Returns the edit distance of two strings (insert, delete, replace, swap of neighbours),
 * ignoring ASCII case. Returns 64 for strings of more than 64 bytes. */
unsigned br_str_distance(const char *left, const char *right);

/* Returns the name, among `count` names, that is most similar to `name`. Returns NULL if no name is
 * similar enough to suggest. */
const char *br_str_nearest(const char *name, const char *const *names, size_t count);
