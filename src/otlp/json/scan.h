/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON text (RFC 8259) from start to end, in place. The scan allocates nothing and reads each
 * byte once. The caller requests one value after another. For an object or array the scan returns
 * only the type; the caller then enters or skips the object or array.
 *
 *     br_json_scan_value(s, &value)              value.type is BR_JSON_OBJECT
 *     br_json_scan_enter(s)
 *     br_json_scan_more(s, '}', true, &more)     true: first member; false: later members
 *     br_json_scan_name(s, &name)                only in objects
 *     br_json_scan_value(s, &value)
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BR_JSON_TEXT_MAX (1u << 30) /* maximum number of bytes of a JSON text */

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
    unsigned depth, max_depth; /* number of open brackets, and the largest number allowed */
    struct br_err *err;
};

struct br_json_token {
    /* NUMBER: the first byte of the number; STRING: the byte after the opening quote */
    const char *text;
    uint32_t len;       /* NUMBER, STRING: number of bytes in the text, without quotes */
    uint32_t plain_len; /* STRING: number of bytes after escapes are replaced, at most `len` */
    uint8_t type;
    bool escaped; /* STRING: the text contains escapes */
};

/* The functions below return 0 or BR_EINVAL. The error message contains the problem and its
 * offset in bytes, or states that brackets nest too deep. */

/* Begins a scan of a text, which is borrowed while the scan is used. Also returns BR_EINVAL if
 * the text is not UTF-8, and BR_ETOOBIG if it is larger than BR_JSON_TEXT_MAX. */
int br_json_scan_init(struct br_json_scan *scan, const char *text, size_t len, unsigned max_depth,
                      struct br_err *err);

/* Moves the scan back to the start of the text. */
void br_json_scan_rewind(struct br_json_scan *scan);

/* Reads the next value. A scalar is read completely; of an object or array only the type is
 * read. The byte after a number that is inside brackets is always readable, as br_number_double
 * requires. */
int br_json_scan_value(struct br_json_scan *scan, struct br_json_token *ret);

/* Enters an object or array: moves past its opening bracket. */
int br_json_scan_enter(struct br_json_scan *scan);

/* Sets `*ret` and skips the comma if another element of the object or array follows. If no element
 * follows, clears `*ret` and skips the closing bracket `close`. `first` is true before the first
 * element. */
int br_json_scan_more(struct br_json_scan *scan, char close, bool first, bool *ret);

/* Reads the name of an object's member and the colon after the name. */
int br_json_scan_name(struct br_json_scan *scan, struct br_json_token *ret);

/* Skips the content of an object or array and checks its syntax. Does nothing if `value` is a
 * scalar. */
int br_json_scan_skip(struct br_json_scan *scan, const struct br_json_token *value);

/* Checks that only white space follows until the end of the text. */
int br_json_scan_end(struct br_json_scan *scan);

/* Reports an error at the current byte: "not JSON: <what> at byte N". */
int br_json_scan_fail(struct br_json_scan *scan, const char *what);

/* Copies a STRING of `len` bytes at `text` to `out` and replaces escapes by their characters.
 * `out` must have space for `len` bytes, which is always enough. Returns the number of bytes
 * written. */
size_t br_json_plain(const char *text, size_t len, char *out);
