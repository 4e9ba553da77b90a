/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/sql.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

#define READ_CACHE_KIB 1024
#define WRITE_CACHE_KIB 16384
#define CHECKPOINT_PAGES 2000
#define BUSY_MS 2000
#define INDEX_BYTES 32768 /* minimum size in bytes of a WAL index (sqlite.org/walformat.html) */

/* The statements that create the tables of a partition. VALUE is a column, TABLES are statements.
 */
#define SCHEMA(VALUE, TABLES, VERSION)                                                             \
    "PRAGMA page_size = 8192;"                                                                     \
    "PRAGMA journal_mode = WAL;"                                                                   \
    "BEGIN IMMEDIATE;"                                                                             \
    "CREATE TABLE totals(one INTEGER PRIMARY KEY CHECK(one = 1), created_ns INT NOT NULL,"         \
    " written_ns INT NOT NULL, secret_0 INT NOT NULL, secret_1 INT NOT NULL,"                      \
    " n_spans INT NOT NULL, n_samples INT NOT NULL, span_from INT NOT NULL,"                       \
    " span_until INT NOT NULL, sample_from INT NOT NULL, sample_until INT NOT NULL) STRICT;"       \
    "CREATE TABLE operations(id INTEGER PRIMARY KEY, service TEXT NOT NULL, name TEXT)"            \
    " STRICT;"                                                                                     \
    "CREATE TABLE blocks(id INTEGER PRIMARY KEY, min_start INT NOT NULL, max_start INT NOT NULL,"  \
    " max_duration INT NOT NULL, n_spans INT NOT NULL, n_roots INT NOT NULL,"                      \
    " n_failed INT NOT NULL) STRICT;"                                                              \
    "CREATE TABLE block_operations(operation INT NOT NULL, block INT NOT NULL,"                    \
    " n_spans INT NOT NULL, max_duration INT NOT NULL, PRIMARY KEY(operation, block))"             \
    " WITHOUT ROWID, STRICT;"                                                                      \
    "CREATE TABLE columns(block INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"                  \
    "CREATE TABLE filters(block INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"                  \
    "CREATE TABLE bodies(block INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"                   \
    "CREATE TABLE traces(trace INT NOT NULL, block INT NOT NULL, PRIMARY KEY(trace, block))"       \
    " WITHOUT ROWID, STRICT;"                                                                      \
    "CREATE TABLE attribute_keys(id INTEGER PRIMARY KEY, resource INT NOT NULL, key TEXT NOT "     \
    "NULL)"                                                                                        \
    " STRICT;"                                                                                     \
    "CREATE TABLE attribute_values(key INT NOT NULL, value TEXT NOT NULL, PRIMARY KEY(key, "       \
    "value))"                                                                                      \
    " WITHOUT ROWID, STRICT;"                                                                      \
    "CREATE TABLE series(id INTEGER PRIMARY KEY, hash INT NOT NULL, type TEXT NOT NULL,"           \
    " labels BLOB NOT NULL) STRICT;"                                                               \
    "CREATE TABLE functions(first INTEGER PRIMARY KEY, n INT NOT NULL, data BLOB NOT NULL) "       \
    "STRICT;"                                                                                      \
    "CREATE TABLE nodes(first INTEGER PRIMARY KEY, n INT NOT NULL, data BLOB NOT NULL) STRICT;"    \
    "CREATE TABLE chunks(id INTEGER PRIMARY KEY, series INT NOT NULL, min_time INT NOT NULL,"      \
    " max_time INT NOT NULL, n_samples INT NOT NULL," VALUE " totals BLOB NOT NULL,"               \
    " samples BLOB NOT NULL) STRICT;"                                                              \
    "CREATE INDEX chunks_series ON chunks(series, max_time, min_time);"                            \
    "CREATE TABLE sums(id INTEGER PRIMARY KEY, series INT NOT NULL, first INT NOT NULL,"           \
    " last INT NOT NULL, min_time INT NOT NULL, max_time INT NOT NULL, n_samples INT NOT "         \
    "NULL," VALUE " totals BLOB NOT NULL) STRICT;"                                                 \
    "CREATE INDEX sums_series ON sums(series, first, last, min_time, max_time);"                   \
    "CREATE TABLE sample_ids(id INT NOT NULL, chunk INT NOT NULL, PRIMARY KEY(id, chunk))"         \
    " WITHOUT ROWID, STRICT;" TABLES "PRAGMA user_version = " VERSION ";"                          \
    "COMMIT;"

static const char schema[] =
    SCHEMA(" value INT NOT NULL,",
           "CREATE TABLE facts(block INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
           "CREATE TABLE series_totals(series INTEGER PRIMARY KEY, min_time INT NOT NULL,"
           " max_time INT NOT NULL, n_samples INT NOT NULL, value INT NOT NULL) STRICT;",
           "3");
/* the tables of version 2; those of version 1 are some of them */
static const char old_schema[] = SCHEMA("", "", "2");

static const char *const texts[BR_SQL_STATEMENTS] = {
    [BR_SQL_BEGIN] = "BEGIN IMMEDIATE",
    [BR_SQL_BEGIN_READ] = "BEGIN",
    [BR_SQL_COMMIT] = "COMMIT",
    [BR_SQL_ROLLBACK] = "ROLLBACK",
    [BR_SQL_TOTALS] = "SELECT created_ns, written_ns, secret_0, secret_1, n_spans, n_samples,"
                      " span_from, span_until, sample_from, sample_until FROM totals",
    [BR_SQL_TOTALS_SET] = "INSERT OR REPLACE INTO totals VALUES(1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [BR_SQL_OPERATION_ADD] = "INSERT INTO operations VALUES(?, ?, ?)",
    [BR_SQL_OPERATIONS] = "SELECT id, service, name FROM operations ORDER BY id",
    [BR_SQL_OPERATION] = "SELECT service, name FROM operations WHERE id = ?",
    [BR_SQL_BLOCK_ADD] = "INSERT INTO blocks VALUES(?, ?, ?, ?, ?, ?, ?)",
    [BR_SQL_BLOCK_LAST] = "SELECT max(id) FROM blocks",
    [BR_SQL_BLOCKS] = "SELECT id, min_start, max_start, max_duration, n_spans, n_roots, n_failed"
                      " FROM blocks",
    [BR_SQL_BLOCK_OPERATION_ADD] = "INSERT INTO block_operations VALUES(?, ?, ?, ?)",
    [BR_SQL_BLOCKS_OF_OPERATION] =
        "SELECT block, n_spans, max_duration FROM block_operations WHERE operation = ?",
    [BR_SQL_COLUMNS_ADD] = "INSERT INTO columns VALUES(?, ?)",
    [BR_SQL_COLUMNS] = "SELECT data FROM columns WHERE block = ?",
    [BR_SQL_FACTS_ADD] = "INSERT INTO facts VALUES(?, ?)",
    [BR_SQL_FACTS_OF_BLOCK] = "SELECT data FROM facts WHERE block = ?",
    [BR_SQL_FILTER_ADD] = "INSERT INTO filters VALUES(?, ?)",
    [BR_SQL_FILTER] = "SELECT data FROM filters WHERE block = ?",
    [BR_SQL_BODY_ADD] = "INSERT INTO bodies VALUES(?, ?)",
    [BR_SQL_BODY] = "SELECT data FROM bodies WHERE block = ?",
    [BR_SQL_TRACE_ADD] = "INSERT OR IGNORE INTO traces VALUES(?, ?)",
    [BR_SQL_TRACE] = "SELECT block FROM traces WHERE trace = ?",
    [BR_SQL_KEY_ADD] = "INSERT INTO attribute_keys VALUES(?, ?, ?)",
    [BR_SQL_KEYS] = "SELECT id, resource, key FROM attribute_keys",
    [BR_SQL_VALUE_ADD] = "INSERT OR IGNORE INTO attribute_values VALUES(?, ?)",
    [BR_SQL_VALUES] = "SELECT value FROM attribute_values WHERE key = ?",
    [BR_SQL_VALUES_ALL] = "SELECT key, value FROM attribute_values",
    [BR_SQL_SERIES_ADD] = "INSERT INTO series VALUES(?, ?, ?, ?)",
    [BR_SQL_SERIES] = "SELECT id, hash, type, labels FROM series",
    [BR_SQL_FUNCTIONS_ADD] = "INSERT OR REPLACE INTO functions VALUES(?, ?, ?)",
    [BR_SQL_FUNCTIONS] = "SELECT first, n, data FROM functions WHERE first >= ? ORDER BY first",
    [BR_SQL_FUNCTIONS_AT] = "SELECT first, n, data FROM functions WHERE first <= ?"
                            " ORDER BY first DESC LIMIT 1",
    [BR_SQL_NODES_ADD] = "INSERT OR REPLACE INTO nodes VALUES(?, ?, ?)",
    [BR_SQL_NODES] = "SELECT first, n, data FROM nodes WHERE first >= ? ORDER BY first",
    [BR_SQL_NODES_AT] = "SELECT first, n, data FROM nodes WHERE first <= ?"
                        " ORDER BY first DESC LIMIT 1",
    /* a sum that exceeds 64 bits becomes the largest or smallest integer */
    [BR_SQL_SERIES_TOTAL_ADD] =
        "INSERT INTO series_totals VALUES(?, ?, ?, ?, ?) ON CONFLICT(series) DO UPDATE SET"
        " min_time = min(min_time, excluded.min_time),"
        " max_time = max(max_time, excluded.max_time),"
        " n_samples = n_samples + excluded.n_samples,"
        " value = CASE WHEN typeof(value + excluded.value) = 'integer' THEN value + excluded.value"
        " WHEN value > 0 THEN 9223372036854775807 ELSE -9223372036854775807 - 1 END",
    [BR_SQL_SERIES_TOTAL] =
        "SELECT min_time, max_time, n_samples, value FROM series_totals WHERE series = ?",
    [BR_SQL_CHUNK_ADD] = "INSERT INTO chunks VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
    [BR_SQL_CHUNK_LAST] = "SELECT max(id) FROM chunks",
    [BR_SQL_CHUNK] = "SELECT series, min_time, max_time, n_samples, totals, samples FROM chunks"
                     " WHERE id = ?",
    [BR_SQL_CHUNK_VALUE] =
        "SELECT series, min_time, max_time, n_samples, value FROM chunks WHERE id = ?",
    [BR_SQL_CHUNKS_OF_SERIES] = "SELECT id, min_time, max_time FROM chunks"
                                " WHERE series = ? AND max_time >= ? AND min_time < ?",
    [BR_SQL_SUM_ADD] = "INSERT INTO sums VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    [BR_SQL_SUM_LAST] = "SELECT max(id) FROM sums",
    [BR_SQL_SUM] = "SELECT series, min_time, max_time, n_samples, totals FROM sums WHERE id = ?",
    [BR_SQL_SUM_VALUE] =
        "SELECT series, min_time, max_time, n_samples, value FROM sums WHERE id = ?",
    /* a sum of sums must precede the sums that it consists of */
    [BR_SQL_SUMS_OF_SERIES] = "SELECT id, first, last, min_time, max_time FROM sums"
                              " WHERE series = ? ORDER BY first, last DESC",
    [BR_SQL_SAMPLE_ID_ADD] = "INSERT OR IGNORE INTO sample_ids VALUES(?, ?)",
    [BR_SQL_CHUNKS_OF_ID] = "SELECT chunk FROM sample_ids WHERE id = ?",
};

const char *br_sql_schema(int version)
{
    return version < BR_SQL_FACTS ? old_schema : schema;
}

/* --- Memory ---------------------------------------------------------------------------------- */

static void *sql_memory_alloc(int size)
{
    return br_malloc((size_t)size);
}

static void *sql_memory_resize(void *memory, int size)
{
    return br_realloc(memory, (size_t)size);
}

static int sql_memory_size(void *memory)
{
    return memory ? (int)malloc_usable_size(memory) : 0;
}

static int sql_memory_round(int size)
{
    return (size + 7) & ~7;
}

static int sql_memory_init(void *arg)
{
    (void)arg;
    return SQLITE_OK;
}

static void sql_memory_end(void *arg)
{
    (void)arg;
}

void br_sql_setup(void)
{
    static const sqlite3_mem_methods methods = {
        sql_memory_alloc, br_free,         sql_memory_resize, sql_memory_size,
        sql_memory_round, sql_memory_init, sql_memory_end,    NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        return;
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    br_sql_files_setup();
}

/* --- Errors ---------------------------------------------------------------------------------- */

int br_sql_fail(struct br_sql *sql, struct br_err *err)
{
    int code = sqlite3_errcode(sql->db), system = sqlite3_system_errno(sql->db), rc = BR_EIO;
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return br_err_set(err, BR_ENOMEM, "out of memory");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        rc = BR_EPROTO;
        break;
    case SQLITE_FULL:
        rc = BR_EFULL;
        break;
    case SQLITE_INTERRUPT:
        rc = BR_ETIMEOUT;
        break;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (system == ENOSPC || system == EDQUOT || system == EFBIG)
            rc = BR_EFULL;
        break;
    default:
        break;
    }
    if (rc == BR_EFULL && system)
        return br_err_set(err, rc, "%s", strerror(system));
    return br_err_set(err, rc, "%s", sqlite3_errmsg(sql->db));
}

/* --- Connections ----------------------------------------------------------------------------- */

static int sql_exec(struct br_sql *sql, const char *text, struct br_err *err)
{
    return sqlite3_exec(sql->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : br_sql_fail(sql, err);
}

static int sql_prepare_connection(struct br_sql *sql, enum br_sql_open how, bool sync_full,
                                  struct br_err *err)
{
    char text[256];
    (void)sqlite3_extended_result_codes(sql->db, 1);
    (void)sqlite3_busy_timeout(sql->db, BUSY_MS);
    sql->version = BR_SQL_VERSION;
    br_sql_confine(sql->db);
    int rc = how == BR_SQL_CREATE ? sql_exec(sql, schema, err) : br_sql_check_schema(sql, err);
    if (rc)
        return rc;
    (void)snprintf(text, sizeof text,
                   "PRAGMA synchronous = %s; PRAGMA cache_size = -%d; PRAGMA temp_store = MEMORY;"
                   "PRAGMA wal_autocheckpoint = %d; PRAGMA query_only = %d",
                   sync_full ? "FULL" : "NORMAL",
                   how == BR_SQL_READ ? READ_CACHE_KIB : WRITE_CACHE_KIB, CHECKPOINT_PAGES,
                   how == BR_SQL_READ);
    return sql_exec(sql, text, err);
}

/* Checks that the path is a regular file. Opening a pipe could block forever, and a symbolic
 * link leads to a file that does not belong to the store. */
static int sql_check_file(const char *path, struct br_err *err)
{
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? br_err_set(err, BR_ENOTFOUND, "the file does not exist")
                               : br_err_set(err, BR_EIO, "%s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return br_err_set(err, BR_EUNSUPPORTED, "it is not a regular file");
    return 0;
}

int br_sql_open(struct br_sql *sql, const char *path, enum br_sql_open how, bool sync_full,
                struct br_err *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    *sql = (struct br_sql){.db = NULL};
    int rc = sql_check_file(path, err);
    if (rc)
        return rc;
    if (sqlite3_open_v2(path, &sql->db, flags, sqlite3_vfs_find(SQL_VFS) ? SQL_VFS : NULL) !=
        SQLITE_OK) {
        /* if the file has been deleted since the first check, report that instead */
        rc = sql_check_file(path, err);
        if (!rc)
            rc = sql->db ? br_sql_fail(sql, err) : br_err_set(err, BR_ENOMEM, "out of memory");
    }
    if (!rc)
        rc = sql_prepare_connection(sql, how, sync_full, err);
    if (rc)
        br_sql_close(sql);
    return rc;
}

void br_sql_restore_index(struct br_sql *sql)
{
    struct stat info;
    char path[4096];
    const char *name = sqlite3_db_filename(sql->db, "main");
    if (!name || (size_t)snprintf(path, sizeof path, "%s-shm", name) >= sizeof path ||
        lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return;
    if (info.st_size > sql->index_bytes)
        sql->index_bytes = info.st_size;
    off_t wanted = sql->index_bytes > INDEX_BYTES ? sql->index_bytes : INDEX_BYTES;
    if (sql->index_bytes && info.st_size < wanted)
        (void)!truncate(path, wanted);
}

void br_sql_close(struct br_sql *sql)
{
    if (sql->db)
        br_sql_restore_index(sql);
    for (int i = 0; i < BR_SQL_STATEMENTS; i++)
        (void)sqlite3_finalize(sql->statements[i]);
    (void)sqlite3_close(sql->db);
    *sql = (struct br_sql){.db = NULL};
}

/* --- Statements ------------------------------------------------------------------------------ */

sqlite3_stmt *br_sql_statement(struct br_sql *sql, enum br_sql_id id)
{
    sqlite3_stmt **statement = &sql->statements[id];
    if (!*statement) {
        if (sqlite3_prepare_v3(sql->db, texts[id], -1, SQLITE_PREPARE_PERSISTENT, statement,
                               NULL) != SQLITE_OK)
            *statement = NULL;
        return *statement;
    }
    (void)sqlite3_reset(*statement);
    return *statement;
}

int br_sql_run(struct br_sql *sql, sqlite3_stmt *statement, struct br_err *err)
{
    if (!statement)
        return br_sql_fail(sql, err);
    int rc = sqlite3_step(statement) == SQLITE_DONE ? 0 : br_sql_fail(sql, err);
    (void)sqlite3_reset(statement);
    return rc;
}

bool br_sql_row(struct br_sql *sql, sqlite3_stmt *statement, int *rc, struct br_err *err)
{
    int step = statement ? sqlite3_step(statement) : SQLITE_ERROR;
    if (step == SQLITE_ROW)
        return true;
    *rc = step == SQLITE_DONE ? 0 : br_sql_fail(sql, err);
    if (statement)
        (void)sqlite3_reset(statement);
    return false;
}
