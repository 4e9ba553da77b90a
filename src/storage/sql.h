/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to the database of one partition, with the statements that were prepared on it.
 * docs/decisions/store.md has the tables and says why they are these.
 *
 * SQLite's memory goes through br_malloc (br_sql_setup), so that it is counted.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define BR_SQL_VERSION 2 /* PRAGMA user_version of a partition; an older one is only read */
#define BR_SQL_SUMS 2    /* the version that `sums` came with */

enum br_sql_id {
    BR_SQL_BEGIN,
    BR_SQL_BEGIN_READ,
    BR_SQL_COMMIT,
    BR_SQL_ROLLBACK,
    BR_SQL_TOTALS,
    BR_SQL_TOTALS_SET,
    /* Spans. */
    BR_SQL_OPERATION_ADD,
    BR_SQL_OPERATIONS,
    BR_SQL_OPERATION,
    BR_SQL_BLOCK_ADD,
    BR_SQL_BLOCK_LAST,
    BR_SQL_BLOCKS,
    BR_SQL_BLOCK_OPERATION_ADD,
    BR_SQL_BLOCKS_OF_OPERATION,
    BR_SQL_COLUMNS_ADD,
    BR_SQL_COLUMNS,
    BR_SQL_FILTER_ADD,
    BR_SQL_FILTER,
    BR_SQL_BODY_ADD,
    BR_SQL_BODY,
    BR_SQL_TRACE_ADD,
    BR_SQL_TRACE,
    BR_SQL_KEY_ADD,
    BR_SQL_KEYS,
    BR_SQL_VALUE_ADD,
    BR_SQL_VALUES,
    BR_SQL_VALUES_ALL,
    /* Samples. */
    BR_SQL_SERIES_ADD,
    BR_SQL_SERIES,
    BR_SQL_FUNCTIONS_ADD,
    BR_SQL_FUNCTIONS,
    BR_SQL_FUNCTIONS_AT,
    BR_SQL_NODES_ADD,
    BR_SQL_NODES,
    BR_SQL_NODES_AT,
    BR_SQL_CHUNK_ADD,
    BR_SQL_CHUNK_LAST,
    BR_SQL_CHUNK,
    BR_SQL_CHUNKS_OF_SERIES,
    BR_SQL_SUM_ADD,
    BR_SQL_SUM_LAST,
    BR_SQL_SUM,
    BR_SQL_SUMS_OF_SERIES,
    BR_SQL_SAMPLE_ID_ADD,
    BR_SQL_CHUNKS_OF_ID,
    BR_SQL_STATEMENTS,
};

struct br_sql {
    sqlite3 *db;
    int version;         /* of the partition */
    int64_t index_bytes; /* that its -shm file had at the most; 0: it was not seen */
    sqlite3_stmt *statements[BR_SQL_STATEMENTS];
};

/* Gives SQLite our allocator. Before its first use in the process; later calls do nothing. */
void br_sql_setup(void);

enum br_sql_open { BR_SQL_READ, BR_SQL_WRITE, BR_SQL_CREATE };

/* Opens the database at `path` for one thread at a time; CREATE makes the tables in a file that is
 * empty. What cannot be read is tried again. A database with other tables than ours is refused
 * before anything in it is evaluated. Returns 0; BR_ENOTFOUND, also when it has no tables yet;
 * BR_EPROTO when it is damaged, or SQLite takes it for that (br_sql_prove); BR_EUNSUPPORTED when it
 * is of a newer version, not ours, or no regular file; BR_EFULL, BR_EIO or BR_ENOMEM, with a
 * sentence. */
int br_sql_open(struct br_sql *sql, const char *path, enum br_sql_open how, bool sync_full,
                struct br_err *err);

/* Closes it. Accepts a zeroed one. */
void br_sql_close(struct br_sql *sql);

/* Makes the file of the log's index as long again as it was, where somebody has cut it: SQLite has
 * it mapped, and reading behind its end would end the process. SQLite makes its contents anew. Call
 * it before a transaction begins. */
void br_sql_mend(struct br_sql *sql);

/* Checks on new connections whether the database at `path` is damaged: reads all of it, checks its
 * structure (PRAGMA integrity_check), and decompresses every value. Takes as long as reading the
 * file does. Returns BR_EPROTO if two checks found damage; 0 if it is sound; another code if the
 * check failed. */
int br_sql_prove(const char *path, struct br_err *err);

/* Returns true if it has spans or samples, or if it cannot be read. */
bool br_sql_has_rows(struct br_sql *sql);

/* Returns the statement, without values and before its first row; NULL when it cannot be prepared.
 */
sqlite3_stmt *br_sql_take(struct br_sql *sql, enum br_sql_id id);

/* Runs a statement that gives no rows. Returns 0 or as br_sql_fail. */
int br_sql_run(struct br_sql *sql, sqlite3_stmt *statement, struct br_err *err);

/* Returns true while there is a row; then false, and the statement is reset. `*rc` is 0 at the end
 * of the rows, or as br_sql_fail. */
bool br_sql_row(struct br_sql *sql, sqlite3_stmt *statement, int *rc, struct br_err *err);

/* Returns what SQLite says went wrong last, as a code and a sentence: BR_EFULL (no room on the
 * disk), BR_ENOMEM, BR_EPROTO (damaged), BR_ETIMEOUT (interrupted), else BR_EIO. */
int br_sql_fail(struct br_sql *sql, struct br_err *err);

/* Returns Unix nanoseconds as SQLite's integers have them: what is later than 2262 is that. */
static inline int64_t br_sql_time(uint64_t time_ns)
{
    return time_ns > INT64_MAX ? INT64_MAX : (int64_t)time_ns;
}
