/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes literals from database statements: in `SELECT a FROM t WHERE b = 'x'` the text becomes
 * `?`. It supports the same systems as the Collector's db_sanitizer and cleans them in the same way
 * (contrib v0.155, processor/redactionprocessor/internal/db).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* Returns the system that `db.system.name` or `db.system` names, in any case, or REDACT_DBS for
 * any other. `*ret_mysql` is true if texts may be in double quotes there. */
enum redact_db redact_db_find(const uint8_t *name, size_t len, bool *ret_mysql);

/* Returns the bytes that redact_db_clean needs for a statement of `len` bytes. */
size_t redact_db_room(size_t len);

/* Writes the cleaned statement to `out`. Returns its length, or SIZE_MAX if it must be JSON and
 * is not. */
size_t redact_db_clean(enum redact_db db, bool mysql, const uint8_t *text, size_t len,
                       uint8_t *out);
