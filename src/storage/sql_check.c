/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "storage/pack.h"
#include "storage/sql.h"

#define SCHEMA_BYTES                                                                               \
    (16u << 20) /* maximum number of bytes of memory that reading a schema may use */
/* maximum number of virtual machine steps of SQLite that reading a schema may take */
#define SCHEMA_STEPS 100000
#define LENGTH_MAX (512 << 20) /* maximum number of bytes of a value in an untrusted database */
/* number of tables and indexes that were added in version BR_SQL_SUMS */
#define SUMS_TABLES 2
/* maximum number of bytes (one page) of a database without committed tables */
#define EMPTY_BYTES 8192
/* number of checks that must find damage before a database counts as damaged */
#define CHECKS_NEEDED 2

/* --- The tables ------------------------------------------------------------------------------ */

void br_sql_confine(sqlite3 *db)
{
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    (void)sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    (void)sqlite3_limit(db, SQLITE_LIMIT_LENGTH, LENGTH_MAX);
    (void)sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1); /* VACUUM INTO attaches a database */
}

/* Returns true if `text` equals a statement of br_sql_schema. SQLite stores the statements
 * exactly as they were written. */
static bool sql_check_has(int version, const char *text)
{
    const char *at = text ? strstr(br_sql_schema(version), text) : NULL;
    return at && br_text_starts(text, "CREATE ") && at[strlen(text)] == ';';
}

static int sql_check_count(int version)
{
    int count = 0;
    for (const char *at = br_sql_schema(version); (at = strstr(at, "CREATE ")); at++)
        count++;
    return version < BR_SQL_SUMS ? count - SUMS_TABLES : count;
}

static int sql_check_number(struct br_sql *sql, const char *text, int64_t *ret, struct br_err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(sql->db, text, -1, &statement, NULL);
    bool found = rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW;
    rc = found ? 0 : br_sql_fail(sql, err);
    if (found)
        *ret = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    return rc;
}

static int sql_check_tables(struct br_sql *sql, int version, struct br_err *err)
{
    sqlite3_stmt *statement = NULL;
    int count = 0, rc = 0;
    bool ours = true;
    (void)sqlite3_prepare_v2(sql->db, "SELECT sql FROM sqlite_master", -1, &statement, NULL);
    for (; ours && br_sql_row(sql, statement, &rc, err); count++)
        ours = sql_check_has(version, (const char *)sqlite3_column_text(statement, 0));
    (void)sqlite3_finalize(statement);
    if (rc)
        return rc;
    if (ours && version == 0 && count == 0)
        return br_err_set(err, BR_ENOTFOUND, "it is empty");
    if (!ours || version < 1 || count != sql_check_count(version))
        return br_err_set(err, BR_EUNSUPPORTED, "its tables are not those of a partition");
    sql->version = version;
    return 0;
}

static int sql_check_all(struct br_sql *sql, struct br_err *err)
{
    int64_t version = 0;
    int rc = sql_check_number(sql, "PRAGMA user_version", &version, err);
    if (rc)
        return rc;
    if (version > BR_SQL_VERSION)
        return br_err_set(err, BR_EUNSUPPORTED, "it has version %lld; this program supports %d",
                          (long long)version, BR_SQL_VERSION);
    return sql_check_tables(sql, (int)version, err);
}

static int sql_check_stop(void *arg)
{
    (void)arg;
    return 1;
}

/* Returns true if a database may contain tables although SQLite found no tables: the database file
 * is too large for an empty database. Reads that failed while SQLite opened the file are not
 * counted, so only the size can reveal them. */
static bool sql_check_is_behind(sqlite3 *db)
{
    struct stat info;
    const char *name = sqlite3_db_filename(db, "main");
    return !name || stat(name, &info) != 0 || info.st_size > EMPTY_BYTES;
}

int br_sql_check_schema(struct br_sql *sql, struct br_err *err)
{
    struct br_mem_scope scope;
    unsigned n_failures = br_sql_files_failures();
    sqlite3_progress_handler(sql->db, SCHEMA_STEPS, sql_check_stop, NULL);
    br_mem_scope_begin(&scope, SCHEMA_BYTES, NULL);
    int rc = sql_check_all(sql, err);
    br_mem_scope_end(&scope);
    sqlite3_progress_handler(sql->db, 0, NULL, NULL);
    if (rc == BR_ENOTFOUND &&
        (n_failures != br_sql_files_failures() || sql_check_is_behind(sql->db)))
        return br_err_set(err, BR_EIO, "it cannot be read");
    if (rc == BR_ETIMEOUT || (rc == BR_ENOMEM && scope.full))
        return br_err_set(err, BR_EUNSUPPORTED, "it has too many tables");
    return rc;
}

bool br_sql_has_rows(struct br_sql *sql)
{
    int64_t count = 0;
    int rc = sql_check_number(
        sql, "SELECT EXISTS(SELECT 1 FROM blocks) + EXISTS(SELECT 1 FROM chunks)", &count, NULL);
    return rc || count;
}

/* --- Damage ---------------------------------------------------------------------------------- */

/* Checks the structure of a database. integrity_check reports failed reads in the same way as
 * damage, so the text of its report is searched for failed reads. */
static int sql_check_structure(struct br_sql *sql, struct br_err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = 0;
    (void)sqlite3_prepare_v2(sql->db, "PRAGMA integrity_check(1)", -1, &statement, NULL);
    if (br_sql_row(sql, statement, &rc, err)) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        if (!text || strstr(text, "error code="))
            rc = br_err_set(err, BR_EIO, "%s", text ? text : "it cannot be checked");
        else if (strcmp(text, "ok") != 0)
            rc = br_err_set(err, BR_EPROTO, "%s", text);
    }
    (void)sqlite3_finalize(statement);
    return rc;
}

static int sql_check_blobs(struct br_sql *sql, const char *text, struct br_pack_codec *codec,
                           struct br_pack *plain, struct br_err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = 0, found = 0;
    (void)sqlite3_prepare_v2(sql->db, text, -1, &statement, NULL);
    while (!found && br_sql_row(sql, statement, &rc, err))
        for (int i = 0; i < sqlite3_column_count(statement) && !found; i++)
            found = br_pack_decompress(codec, sqlite3_column_blob(statement, i),
                                       (size_t)sqlite3_column_bytes(statement, i), plain);
    (void)sqlite3_finalize(statement);
    if (found)
        return br_err_set(err, found == BR_EIO ? BR_EPROTO : found, "%s",
                          found == BR_EIO ? "a blob is damaged" : "out of memory");
    return rc;
}

static int sql_check_contents(struct br_sql *sql, struct br_err *err)
{
    static const char *const values[] = {
        "SELECT data FROM columns",           "SELECT data FROM bodies",
        "SELECT data FROM functions",         "SELECT data FROM nodes",
        "SELECT totals, samples FROM chunks", "SELECT totals FROM sums"};
    struct br_pack_codec codec = {0};
    struct br_pack plain = {0};
    int rc = sql_check_structure(sql, err);
    size_t count = BR_COUNT(values) - (sql->version < BR_SQL_SUMS);
    for (size_t i = 0; i < count && !rc; i++)
        rc = sql_check_blobs(sql, values[i], &codec, &plain, err);
    br_pack_release(&plain);
    br_pack_codec_release(&codec);
    return rc;
}

int br_sql_check_damage(const char *path, struct br_err *err)
{
    int rc = BR_EPROTO;
    for (int i = 0; i < CHECKS_NEEDED && rc == BR_EPROTO; i++) {
        struct br_sql sql;
        unsigned n_failures = br_sql_files_failures();
        rc = br_sql_open(&sql, path, BR_SQL_READ, false, err);
        if (!rc)
            rc = sql_check_contents(&sql, err);
        br_sql_close(&sql);
        if (rc == BR_EPROTO && n_failures != br_sql_files_failures())
            rc = br_err_set(err, BR_EIO, "it cannot be read");
    }
    return rc;
}
