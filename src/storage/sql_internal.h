/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files that implement storage/sql.h. For src/storage/sql*.c only. */
#pragma once

#include "storage/sql.h"

#define SQL_VFS "braid"

/* Registers the VFS named SQL_VFS, which repeats failed reads. Called once per process. */
void br_sql_files_setup(void);

/* Returns the number of reads in this process that failed even when they were repeated. SQLite
 * may report such a read as damage, or treat the file as empty. */
unsigned br_sql_files_failures(void);

/* Returns the statements that create the tables of a partition. */
const char *br_sql_schema(void);

/* Restricts a connection to an untrusted database. The database's schema cannot use functions or
 * virtual tables and cannot be changed. Values of more than LENGTH_MAX bytes are rejected. */
void br_sql_confine(sqlite3 *db);

/* Checks that the database contains exactly our tables, and sets sql->version. Returns 0;
 * BR_ENOTFOUND if the database is empty; BR_EUNSUPPORTED if the version is newer or the tables are
 * not ours; or a code of br_sql_fail. */
int br_sql_check_schema(struct br_sql *sql, struct br_err *err);
