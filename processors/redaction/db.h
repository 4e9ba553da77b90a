/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes the literals out of statements to databases: in `SELECT a FROM t WHERE b = 'x'` the text
 * becomes `?`. As the Collector's db_sanitizer: the systems and what each is cleaned of are
 * contrib's processor/redactionprocessor/internal/db, v0.155.
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

/* Finds the system that `db.system.name` or `db.system` names, in upper or lower case; `ret_mysql`
 * says that texts may stand in double quotes there. Returns REDACT_DBS for any other. */
enum redact_db redact_db_find(const uint8_t *name, size_t len, bool *ret_mysql);

/* Returns the room that redact_db_clean needs for a statement of `len` bytes. */
size_t redact_db_room(size_t len);

/* Writes what is left of a statement to `out`. Returns its length, or SIZE_MAX when it had to be
 * JSON and is none. */
size_t redact_db_clean(enum redact_db db, bool mysql, const uint8_t *text, size_t len,
                       uint8_t *out);
