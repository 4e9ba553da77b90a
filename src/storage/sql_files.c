/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An SQLite VFS (sqlite.org/vfs.html) that passes all calls to the VFS of the system, but repeats
 * failed reads. A read from a disk or network file system may fail once and then succeed, and
 * SQLite reports some failed reads as damage.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "storage/sql.h"

#define READS_MAX 3

struct sql_vfs;

/* Data of an open file. SQLite allocates the memory of a file, in which this struct follows the
 * data of the system's VFS. */
struct sql_file {
    const sqlite3_io_methods *real;
    struct sql_vfs *vfs;
    sqlite3_io_methods methods;
};

struct sql_vfs {
    sqlite3_vfs vfs;
    sqlite3_vfs *real;
    _Atomic unsigned n_failures;
};

static struct sql_file *sql_file_of(const sqlite3_file *file)
{
    return br_container_of(file->pMethods, struct sql_file, methods);
}

static bool sql_file_failed(int rc)
{
    return (rc & 0xff) == SQLITE_IOERR && rc != SQLITE_IOERR_SHORT_READ;
}

static int sql_file_read(sqlite3_file *file, void *data, int len, sqlite3_int64 offset)
{
    int rc = SQLITE_IOERR_READ;
    for (int i = 0; i < READS_MAX && sql_file_failed(rc); i++)
        rc = sql_file_of(file)->real->xRead(file, data, len, offset);
    atomic_fetch_add(&sql_file_of(file)->vfs->n_failures, sql_file_failed(rc));
    return rc;
}

static int sql_file_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    int rc = SQLITE_IOERR_FSTAT;
    for (int i = 0; i < READS_MAX && sql_file_failed(rc); i++)
        rc = sql_file_of(file)->real->xFileSize(file, ret);
    atomic_fetch_add(&sql_file_of(file)->vfs->n_failures, sql_file_failed(rc));
    return rc;
}

static int sql_vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                        int *ret_flags)
{
    struct sql_vfs *all = br_container_of(vfs, struct sql_vfs, vfs);
    sqlite3_vfs *real = all->real;
    int rc = real->xOpen(real, name, file, flags, ret_flags);
    if (file->pMethods) {
        struct sql_file *ours = (struct sql_file *)(void *)((char *)file + real->szOsFile);
        *ours = (struct sql_file){file->pMethods, all, *file->pMethods};
        ours->methods.xRead = sql_file_read;
        ours->methods.xFileSize = sql_file_size;
        file->pMethods = &ours->methods;
    }
    return rc;
}

unsigned br_sql_files_failures(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(SQL_VFS);
    return vfs ? atomic_load(&br_container_of(vfs, struct sql_vfs, vfs)->n_failures) : 0;
}

void br_sql_files_setup(void)
{
    /* the variable is static, because SQLite has one list of VFSs per process and keeps a
     * pointer to this VFS */
    static struct sql_vfs ours;
    sqlite3_vfs *real = sqlite3_vfs_find(NULL);
    if (!real)
        return;
    ours.vfs = *real;
    ours.real = real;
    ours.vfs.zName = SQL_VFS;
    ours.vfs.szOsFile = real->szOsFile + (int)sizeof(struct sql_file);
    ours.vfs.xOpen = sql_vfs_open;
    (void)sqlite3_vfs_register(&ours.vfs, 0);
}
