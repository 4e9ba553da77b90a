/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes data from texts of known formats: literals from database statements, and identifiers
 * from URLs.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- Database statements ---------------------------------------------------------------------- */

/*
 * Removes literals from database statements: in `SELECT a FROM t WHERE b = 'x'`, the literal `'x'`
 * becomes `?`. The cleaning supports the same systems as the Collector's db_sanitizer and has the
 * same results (contrib v0.155, processor/redactionprocessor/internal/db).
 */

enum redact_db {
    REDACT_DB_SQL,
    REDACT_DB_REDIS,
    REDACT_DB_VALKEY,
    REDACT_DB_MEMCACHED,
    REDACT_DB_MONGO,
    REDACT_DB_OPENSEARCH,
    REDACT_DB_ES,
    REDACT_DBS,
};

/* Returns the database system for a value of `db.system.name` or `db.system`, ignoring case.
 * Returns REDACT_DBS for any other value. Sets `*ret_mysql` to true if the system allows texts
 * in double quotes. */
enum redact_db redact_db_find(const uint8_t *name, size_t len, bool *ret_mysql);

/* Returns the largest size, in bytes, of the result of redact_db_clean for a statement of `len`
 * bytes. */
size_t redact_db_size_max(size_t len);

/* Writes the cleaned statement to `out` and returns its length. For a system whose statements
 * are JSON, returns SIZE_MAX if the statement is not valid JSON. */
size_t redact_db_clean(enum redact_db db, bool mysql, const uint8_t *text, size_t len,
                       uint8_t *out);

/* --- URLs ------------------------------------------------------------------------------------- */

/*
 * Removes identifiers from a URL or a path: `/users/42?x=1` becomes `/users/` and an asterisk.
 * Scheme and host are kept; query and fragment are removed. A segment of the path is kept if it
 * looks like a word. A word has at most 32 bytes: letters, `-`, `_`, `.` and `~`, and a digit only
 * as the second character (`v1`). Seven or more hexadecimal digits are not a word. All other
 * segments become `*`. All segments after the tenth are removed.
 */

#define REDACT_URL_SEGMENTS_MAX 10

/* Writes the cleaned text to `out`, which must have room for `len` bytes, and returns its
 * length. */
size_t redact_url_clean(const uint8_t *text, size_t len, uint8_t *out);
