/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Manages connections to the database of one partition, with their prepared statements.
 * docs/decisions/store.md describes the tables and the reasons for them.
 *
 * SQLite allocates through br_malloc (br_sql_setup), so SQLite's memory is counted like the rest of
 * Braid's memory.
 */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* version of new partitions (PRAGMA user_version); older partitions are read but not written */
#define BR_SQL_VERSION 3
/* lowest version (PRAGMA user_version) in which a partition has the table `sums` */
#define BR_SQL_SUMS 2
/* lowest version in which a partition has the tables `facts` and `series_totals`, and the column
 * `value` of `chunks` and `sums` */
#define BR_SQL_FACTS 3

enum br_sql_id {
    BR_SQL_BEGIN,
    BR_SQL_BEGIN_READ,
    BR_SQL_COMMIT,
    BR_SQL_ROLLBACK,
    BR_SQL_TOTALS,
    BR_SQL_TOTALS_SET,
    /* Statements for spans. */
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
    BR_SQL_FACTS_ADD,
    BR_SQL_FACTS_OF_BLOCK,
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
    /* Statements for samples. */
    BR_SQL_SERIES_ADD,
    BR_SQL_SERIES,
    BR_SQL_FUNCTIONS_ADD,
    BR_SQL_FUNCTIONS,
    BR_SQL_FUNCTIONS_AT,
    BR_SQL_NODES_ADD,
    BR_SQL_NODES,
    BR_SQL_NODES_AT,
    BR_SQL_SERIES_TOTAL_ADD,
    BR_SQL_SERIES_TOTAL,
    BR_SQL_CHUNK_ADD,
    BR_SQL_CHUNK_LAST,
    BR_SQL_CHUNK,
    BR_SQL_CHUNK_VALUE,
    BR_SQL_CHUNKS_OF_SERIES,
    BR_SQL_SUM_ADD,
    BR_SQL_SUM_LAST,
    BR_SQL_SUM,
    BR_SQL_SUM_VALUE,
    BR_SQL_SUMS_OF_SERIES,
    BR_SQL_SAMPLE_ID_ADD,
    BR_SQL_CHUNKS_OF_ID,
    BR_SQL_STATEMENTS,
};

struct br_sql {
    sqlite3 *db;
    int version; /* version of the open partition (PRAGMA user_version) */
    /* largest size of the -shm file so far, in bytes; 0: unknown */
    int64_t index_bytes;
    sqlite3_stmt *statements[BR_SQL_STATEMENTS];
};

/* Makes SQLite allocate memory with Braid's allocator. Must be called before SQLite is first used
 * in the process; later calls do nothing. */
void br_sql_setup(void);

enum br_sql_open { BR_SQL_READ, BR_SQL_WRITE, BR_SQL_CREATE };

/* Opens the database at `path`, for one thread at a time. BR_SQL_CREATE creates the tables in an
 * empty file. Failed reads are repeated. A database with tables other than Braid's is rejected
 * before anything in it is evaluated. Returns 0 or, with a message:
 *
 * - BR_ENOTFOUND: the file does not exist, or has no tables yet
 * - BR_EPROTO: SQLite reports damage, which br_sql_check_damage can confirm
 * - BR_EUNSUPPORTED: the file has a newer version, is not a partition, or is not a regular file
 * - BR_EFULL, BR_EIO, BR_ENOMEM */
int br_sql_open(struct br_sql *sql, const char *path, enum br_sql_open how, bool sync_full,
                struct br_err *err);

/* Closes the database. Accepts a zeroed struct. */
void br_sql_close(struct br_sql *sql);

/* Extends the -shm file to its earlier size if another program truncated it. SQLite maps that file,
 * and reading beyond its end would kill the process; SQLite rebuilds the contents of the -shm file.
 * Must be called before a transaction begins. */
void br_sql_restore_index(struct br_sql *sql);

/* Checks, on new connections, whether the database at `path` is damaged: reads all of it, checks
 * its structure (PRAGMA integrity_check), and decompresses every blob. Takes as long as reading the
 * whole file. Returns BR_EPROTO if two checks found damage; 0 if the database is sound; another
 * code if the check failed. */
int br_sql_check_damage(const char *path, struct br_err *err);

/* Returns true if the database contains spans or samples, or cannot be read. */
bool br_sql_has_rows(struct br_sql *sql);

/* Returns a prepared statement that is reset and has no bound values. Returns NULL if the
 * statement cannot be prepared. */
sqlite3_stmt *br_sql_statement(struct br_sql *sql, enum br_sql_id id);

/* Runs a statement that returns no rows. Returns 0 or a code of br_sql_fail. `statement` may be
 * NULL. */
int br_sql_run(struct br_sql *sql, sqlite3_stmt *statement, struct br_err *err);

/* Advances a statement to its next row. Returns true if there is a next row. If there is no next
 * row, resets the statement, sets `*rc` and returns false: `*rc` is 0 at the end of the rows, or a
 * code of br_sql_fail. `statement` may be NULL. */
bool br_sql_row(struct br_sql *sql, sqlite3_stmt *statement, int *rc, struct br_err *err);

/* Returns the code for the last error of SQLite, and writes the error's message to `err`:
 * BR_EFULL (disk full), BR_ENOMEM, BR_EPROTO (damaged), BR_ETIMEOUT (interrupted), otherwise
 * BR_EIO. */
int br_sql_fail(struct br_sql *sql, struct br_err *err);

/* Converts Unix nanoseconds to an SQLite integer. Times beyond the year 2262 become INT64_MAX. */
static inline int64_t br_sql_time(uint64_t time_ns)
{
    return time_ns > INT64_MAX ? INT64_MAX : (int64_t)time_ns;
}

/* --- For sql*.c only -------------------------------------------------------------------------- */

#define SQL_VFS "braid"

/* Registers the VFS named SQL_VFS, which repeats failed reads. Must be called once per process. */
void br_sql_files_setup(void);

/* Returns the number of reads in this process that failed even when they were repeated. SQLite may
 * report a failed read as damage, or treat the file as empty. */
unsigned br_sql_files_failures(void);

/* Returns the statements that create the tables of a partition of a version. For version 1, the
 * statements that create the table `sums` are among them, although it does not have this table. */
const char *br_sql_schema(int version);

/* Restricts a connection to an untrusted database. The database's schema cannot use functions or
 * virtual tables and cannot be changed. Values of more than LENGTH_MAX bytes are rejected. */
void br_sql_confine(sqlite3 *db);

/* Checks that the database contains exactly our tables, and sets sql->version. Returns 0;
 * BR_ENOTFOUND if the database is empty; BR_EUNSUPPORTED if the version is newer or the tables are
 * not ours; or a code of br_sql_fail. */
int br_sql_check_schema(struct br_sql *sql, struct br_err *err);
