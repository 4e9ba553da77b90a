/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON text (RFC 8259) from its start to its end, in place: it allocates nothing, and looks
 * at each byte once. The caller asks for the next value. Of an object or an array it learns only
 * which of them it is, and then enters it or skips it.
 *
 *     br_json_scan_value(s, &value)              value.type is BR_JSON_OBJECT
 *     br_json_scan_enter(s)
 *     br_json_scan_more(s, '}', true, &more)     and again with false after each member
 *     br_json_scan_name(s, &name)                an array has none
 *     br_json_scan_value(s, &value)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BR_JSON_TEXT_MAX (1u << 30) /* bytes of a text */

enum br_json_type {
    BR_JSON_NULL,
    BR_JSON_FALSE,
    BR_JSON_TRUE,
    BR_JSON_NUMBER,
    BR_JSON_STRING,
    BR_JSON_ARRAY,
    BR_JSON_OBJECT,
};

struct br_json_scan {
    const char *text, *at, *end;
    unsigned depth, max_depth; /* brackets that are open, and may be */
    struct br_err *err;
};

struct br_json_token {
    const char *text;   /* NUMBER: its first byte; STRING: the byte after the quote */
    uint32_t len;       /* NUMBER, STRING: bytes in the text */
    uint32_t plain_len; /* STRING: bytes without the escapes, never more than `len` */
    uint8_t type;
    bool escaped; /* STRING: has escapes */
};

/* What fails below returns BR_EINVAL, and the sentence says what is wrong at which byte, or that
 * brackets nest too deep. */

/* Begins with a text, which is borrowed until the end. Returns 0; BR_EINVAL when it is not UTF-8;
 * BR_ETOOBIG when it is larger than BR_JSON_TEXT_MAX. */
int br_json_scan_init(struct br_json_scan *scan, const char *text, size_t len, unsigned max_depth,
                      struct br_err *err);

/* Begins again with the same text. */
void br_json_scan_rewind(struct br_json_scan *scan);

/* Reads the value that comes next: all of a scalar, nothing of an object or an array. After a
 * number in brackets stands a byte that may be read. */
int br_json_scan_value(struct br_json_scan *scan, struct br_json_token *ret);

/* Passes the bracket of an object or an array. */
int br_json_scan_enter(struct br_json_scan *scan);

/* Tells whether another element comes, and passes the comma before it, or else the closing bracket
 * `close`. */
int br_json_scan_more(struct br_json_scan *scan, char close, bool first, bool *ret);

/* Reads a member's name and the colon. */
int br_json_scan_name(struct br_json_scan *scan, struct br_json_token *ret);

/* Passes the rest of a value, which is checked: the inside of an object or an array; nothing more
 * of a scalar. */
int br_json_scan_skip(struct br_json_scan *scan, const struct br_json_token *value);

/* Checks that nothing but white space is left. */
int br_json_scan_end(struct br_json_scan *scan);

/* Fails at the byte where the scan is: "not JSON: <what> at byte N". */
int br_json_scan_fail(struct br_json_scan *scan, const char *what);

/* Writes the `len` bytes of a STRING at `text` without the escapes into `out`, which has room for
 * `len` bytes or knows that fewer come out. Returns how many came. */
size_t br_json_plain(const char *text, size_t len, char *out);
