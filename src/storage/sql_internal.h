/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of storage/sql.h share. For src/storage/sql*.c only. */
#pragma once

#include "storage/sql.h"

#define SQL_VFS "braid"

/* Registers the VFS of that name, which repeats failed reads. Called once in the process. */
void br_sql_files_setup(void);

/* Counts the reads, of all files of the process, that failed although they were repeated. SQLite
 * may report them as damage, or take a file for an empty one. */
unsigned br_sql_files_failures(void);

/* Returns the statements that make the tables of a partition. */
const char *br_sql_schema(void);

/* Takes from the connection what a database of a stranger may do: functions and virtual tables
 * that its schema names, changes of the schema, values over SQL_LENGTH_MAX. */
void br_sql_confine(sqlite3 *db);

/* Checks that the database is one of ours and has nothing but our tables, and sets sql->version.
 * Returns 0; BR_ENOTFOUND when it has no tables; BR_EUNSUPPORTED when it is of a newer version or
 * not ours; or as br_sql_fail. */
int br_sql_check_schema(struct br_sql *sql, struct br_err *err);
