/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults below the store: reads that fail, files that the store did not write, files that are
 * deleted or replaced while it runs, and too few file descriptors.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/internal.h"
#include "storage/slice.h"
#include "tests/support/store_rig.h"
#include "tests/support/test.h"

#define ROWS 100
#define SPANS                                                                                      \
    300 /* number of spans in the partitions 1 to 3, each of which contains ROWS spans             \
         */

/* Replaces SQLite's VFS (its access to files) to simulate a faulty disk. The calls that read a file
 * or its size are counted: after `countdown` calls, the next `n_failing` calls fail. */
static struct {
    sqlite3_vfs *vfs;
    int (*open)(sqlite3_vfs *, const char *, sqlite3_file *, int, int *);
    struct methods { /* for files with locks, and for files without locks */
        const sqlite3_io_methods *real;
        sqlite3_io_methods methods;
    } kinds[2];       /* xRead and xFileSize are the same for both kinds */
    const char *only; /* faults only affect files whose names contain this text; NULL: all files */
    unsigned countdown, n_failing, n_failed;
} disk;

static bool disk_fails(void)
{
    if (disk.countdown) {
        disk.countdown--;
        return false;
    }
    if (!disk.n_failing)
        return false;
    disk.n_failing--;
    disk.n_failed++;
    return true;
}

static int disk_read(sqlite3_file *file, void *data, int len, sqlite3_int64 offset)
{
    return disk_fails() ? SQLITE_IOERR_READ : disk.kinds[0].real->xRead(file, data, len, offset);
}

static int disk_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    return disk_fails() ? SQLITE_IOERR_FSTAT : disk.kinds[0].real->xFileSize(file, ret);
}

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret)
{
    int rc = disk.open(vfs, name, file, flags, ret);
    if (!file->pMethods || (disk.only && (!name || !strstr(name, disk.only))))
        return rc;
    struct methods *kind = &disk.kinds[0];
    if (kind->real && kind->real != file->pMethods)
        kind = &disk.kinds[1];
    assert_true(!kind->real || kind->real == file->pMethods);
    if (!kind->real) {
        *kind = (struct methods){file->pMethods, *file->pMethods};
        kind->methods.xRead = disk_read;
        kind->methods.xFileSize = disk_size;
    }
    file->pMethods = &kind->methods;
    return rc;
}

static void disk_begin(const char *only)
{
    disk.vfs = sqlite3_vfs_find("unix");
    disk.open = disk.vfs->xOpen;
    disk.only = only;
    disk.countdown = disk.n_failing = disk.n_failed = 0;
    disk.vfs->xOpen = disk_open;
}

static void disk_end(void)
{
    if (disk.vfs)
        disk.vfs->xOpen = disk.open;
    disk.countdown = disk.n_failing = 0;
}

static int setup(void **state)
{
    struct store_rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    store_rig_init(rig, ROWS);
    for (uint64_t n = 0; n < SPANS; n += ROWS)
        assert_int_equal(store_rig_items(rig, BR_TRACES, n, ROWS), 0);
    assert_int_equal(store_rig_usage(rig).n_partitions, 3);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    disk_end();
    store_rig_release(*state);
    free(*state);
    return 0;
}

/* Checks that every span with a number below `count` is stored once, except for the spans from
 * `gone` to `gone_until` - 1. */
static void check(struct store_rig *rig, size_t count, size_t gone, size_t gone_until)
{
    /* has room for spans above `count`, which another store may have written */
    uint8_t *seen = calloc(1, count + 1024);
    assert_non_null(seen);
    store_rig_read(rig, seen);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(seen[i], i < gone || i >= gone_until);
    free(seen);
}

static void must_write(struct store_rig *rig, uint64_t first, uint32_t count)
{
    if (store_rig_items(rig, BR_TRACES, first, count))
        fail_msg("%s", rig->err.text);
}

static void must_reopen(struct store_rig *rig)
{
    if (store_rig_reopen(rig))
        fail_msg("%s", rig->err.text);
}

/* --- Reads that fail ------------------------------------------------------------------------- */

/* While the store is opened, read and written, one read of the disk fails once or twice. The test
 * does this for each read in turn. */
static void test_transient_read_errors(void **state)
{
    struct store_rig *rig = *state;
    uint64_t n = SPANS;
    unsigned n_failed = 0;
    for (unsigned at = 0; at < 60; at++) {
        disk_begin(NULL);
        disk.countdown = at;
        disk.n_failing = 1 + at % 2;
        must_reopen(rig);
        check(rig, n, 0, 0);
        assert_string_equal(rig->note, "");
        must_write(rig, n, 10);
        n += 10;
        n_failed += disk.n_failed;
        disk_end();
        assert_int_equal(store_rig_usage(rig).n_damaged, 0);
        assert_int_equal(store_rig_usage(rig).n_unread, 0);
    }
    assert_int_equal(n_failed, 90);
    check(rig, n, 0, 0);
}

/* If a partition cannot be read permanently, only its data is missing. The result contains all
 * other spans and a warning. The store does not rename any file. */
static void test_permanent_read_errors(void **state)
{
    struct store_rig *rig = *state;
    disk_begin("partition-00000002");
    disk.n_failing = UINT_MAX;
    must_reopen(rig);
    check(rig, SPANS, ROWS, 2 * ROWS);
    assert_non_null(strstr(rig->note, "partition 00000002"));
    assert_int_equal(store_rig_usage(rig).n_unread, 1);
    assert_int_equal(store_rig_usage(rig).n_damaged, 0);
    assert_int_equal(store_rig_usage(rig).n_spans, SPANS - ROWS);
    must_write(rig, SPANS, 10);
    disk.n_failing = 0;
    assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), 0);
    check(rig, SPANS + 10, 0, 0);
    assert_string_equal(rig->note, "");
    assert_int_equal(store_rig_usage(rig).n_unread, 0);
}

/* All data is in the log of a killed process. While the log cannot be read, SQLite reports a
 * damaged database. */
static void test_permanent_read_errors_of_a_log(void **state)
{
    struct store_rig *rig = *state;
    store_rig_close(rig);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        rig->store = br_store_get(&rig->host, "child");
        _exit(br_store_open(rig->store, &rig->config, &rig->log, &rig->err) ||
              store_rig_items(rig, BR_TRACES, SPANS, 50));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    rig->store = br_store_get(&rig->host, "store");
    for (unsigned at = 0; at < 40; at++) {
        disk_begin("partition-00000004.db-wal");
        disk.countdown = at;
        disk.n_failing = UINT_MAX;
        must_reopen(rig);
        uint8_t seen[SPANS + 50] = {0};
        store_rig_read(rig, seen);
        for (size_t i = 0; i < SPANS; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(store_rig_usage(rig).n_damaged, 0);
        store_rig_close(rig);
        disk_end();
        rig->store = br_store_get(&rig->host, "store");
    }
    must_reopen(rig);
    check(rig, SPANS + 50, 0, 0);
}

/* The same fault as in test_permanent_read_errors occurs during a query. */
static void test_permanent_read_errors_in_a_query(void **state)
{
    struct store_rig *rig = *state;
    disk_begin("partition-00000002");
    must_reopen(rig);
    disk.n_failing = UINT_MAX;
    check(rig, SPANS, ROWS, 2 * ROWS);
    assert_non_null(strstr(rig->note, "partition 00000002"));
    disk.n_failing = 0;
    check(rig, SPANS, 0, 0);
    assert_string_equal(rig->note, "");
    assert_int_equal(store_rig_usage(rig).n_damaged, 0);
}

static bool disk_is_full;

static int disk_write(sqlite3_file *file, const void *data, int len, sqlite3_int64 offset)
{
    return disk_is_full ? SQLITE_FULL : disk.kinds[0].real->xWrite(file, data, len, offset);
}

static int disk_open_to_write(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags,
                              int *ret)
{
    int rc = disk_open(vfs, name, file, flags, ret);
    for (size_t i = 0; i < BR_COUNT(disk.kinds); i++)
        disk.kinds[i].methods.xWrite = disk_write;
    return rc;
}

/* A full disk has a separate error code, because space may become free again. */
static void test_full_disk(void **state)
{
    struct store_rig *rig = *state;
    disk_begin(NULL);
    disk.vfs->xOpen = disk_open_to_write;
    must_reopen(rig);
    must_write(rig, SPANS, 10);
    disk_is_full = true;
    assert_int_equal(store_rig_items(rig, BR_TRACES, SPANS + 10, 10), BR_EFULL);
    assert_int_equal(rig->err.code, BR_EFULL);
    disk_is_full = false;
    must_write(rig, SPANS + 10, 10);
    check(rig, SPANS + 20, 0, 0);
}

/* --- Foreign files --------------------------------------------------------------------------- */

static void run_sql(const char *path, const char *text)
{
    sqlite3 *db;
    char *why = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s", why);
    (void)sqlite3_close(db);
}

static void make_link(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
}

static void make_directory(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_pipe(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_foreign(const char *path)
{
    assert_int_equal(unlink(path), 0);
    run_sql(path, "CREATE TABLE x(y); INSERT INTO x VALUES(1)");
}

/* Partition 2 cannot be used. Queries return the spans of partitions 1 and 3, and writes still
 * succeed. */
static void test_unusable_partitions(void **state)
{
#define ENDLESS "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) "
    static const struct {
        void (*make)(const char *path);
        const char *sql;
    } cases[] = {
        {make_link, NULL},
        {make_directory, NULL},
        {make_pipe, NULL},
        {make_foreign, NULL},
        {NULL, "PRAGMA user_version = 99"},
        {NULL, "PRAGMA user_version = -1"},
        {NULL, "PRAGMA user_version = 1"}, /* version 1 of the format had no sums */
        {NULL, "DROP TABLE columns"},
        {NULL, "DROP TABLE totals"},
        {NULL, "DELETE FROM totals"},
        {NULL, "CREATE TABLE more(x)"},
        {NULL, "CREATE INDEX more ON blocks(n_spans)"},
        {NULL, "ALTER TABLE blocks DROP COLUMN n_failed"},
        {NULL, "ALTER TABLE totals RENAME TO t0;"
               "CREATE VIEW totals AS " ENDLESS "SELECT 1 AS one, count(*) AS created_ns,"
               " 0 AS written_ns, 0 AS secret_0, 0 AS secret_1, 0 AS n_spans, 0 AS n_samples,"
               " 0 AS span_from, 0 AS span_until, 0 AS sample_from, 0 AS sample_until FROM r"},
        {NULL, "CREATE TRIGGER t AFTER INSERT ON blocks BEGIN DELETE FROM bodies; END"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct store_rig rig;
        char path[256];
        uint64_t n = 0;
        (void)state;
        store_rig_init(&rig, ROWS);
        for (; n < SPANS; n += ROWS)
            must_write(&rig, n, ROWS);
        br_store_put(&rig.host, rig.store);
        store_rig_path(&rig, "partition-00000002.db", path);
        if (cases[i].make)
            cases[i].make(path);
        else
            run_sql(path, cases[i].sql);
        rig.store = br_store_get(&rig.host, "store");
        assert_int_equal(br_store_open(rig.store, &rig.config, &rig.log, &rig.err), 0);
        check(&rig, SPANS, ROWS, 2 * ROWS);
        assert_non_null(strstr(rig.note, "partition 00000002"));
        assert_int_equal(store_rig_usage(&rig).n_unread, 1);
        assert_int_equal(store_rig_usage(&rig).n_damaged, 0);
        assert_int_equal(access(path, F_OK), 0);
        must_write(&rig, n, ROWS);
        check(&rig, SPANS + ROWS, ROWS, 2 * ROWS);
        (void)rmdir(path);
        store_rig_release(&rig);
    }
}

/* A block number is invalid. A reader that trusted it would allocate memory for all lower
 * numbers. */
static void test_block_numbers(void **state)
{
    struct store_rig *rig = *state;
    struct br_span_filter ours = {.order = BR_SPANS_NEWEST, .service = "service-0"};
    char path[256];
    store_rig_path(rig, "partition-00000002.db", path);
    run_sql(path, "UPDATE blocks SET id = 16777215; UPDATE block_operations SET block = 16777215");
    must_reopen(rig);
    check(rig, SPANS, ROWS, 2 * ROWS);
    assert_non_null(strstr(rig->note, "partition 00000002"));
    struct br_store_query *query = store_rig_ask(rig);
    query->max_bytes = 8 << 20;
    uint8_t seen[SPANS] = {0};
    assert_int_equal(br_store_spans(query, &ours, store_rig_count, seen, &rig->err), 0);
    assert_null(query->cut);
    store_rig_answered(rig);
    for (size_t i = 0; i < SPANS; i++)
        assert_int_equal(seen[i], i < ROWS || i >= 2 * ROWS);
}

/* --- Damage ---------------------------------------------------------------------------------- */

static void damage(const struct store_rig *rig, const char *name)
{
    char path[256], noise[64];
    store_rig_path(rig, name, path);
    memset(noise, 0xa5, sizeof noise);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, noise, sizeof noise, 0), (ssize_t)sizeof noise);
    (void)close(fd);
}

static void make_file(const struct store_rig *rig, const char *name, const char *text)
{
    char path[256];
    store_rig_path(rig, name, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void assert_text(const struct store_rig *rig, const char *name, const char *text)
{
    char path[256], found[64] = "";
    store_rig_path(rig, name, path);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, found, sizeof found), (ssize_t)strlen(text));
    assert_memory_equal(found, text, strlen(text));
    (void)close(fd);
}

/* A damaged file is counted and reported as long as it exists. When a file is renamed because it is
 * damaged, the new name is not that of an existing file. A damaged file that is older than the
 * retention is deleted. */
static void test_damaged_files_are_kept(void **state)
{
    struct store_rig *rig = *state;
    make_file(rig, "partition-00000002.db.damaged", "an older one");
    store_rig_close(rig);
    damage(rig, "partition-00000002.db");
    rig->store = br_store_get(&rig->host, "store");
    for (int i = 0; i < 2; i++) {
        must_reopen(rig);
        check(rig, SPANS, ROWS, 2 * ROWS);
        assert_non_null(strstr(rig->note, "it is damaged"));
        assert_int_equal(store_rig_usage(rig).n_damaged, 2);
        assert_int_equal(store_rig_files(rig, ".db.damaged"), 2);
        assert_text(rig, "partition-00000002.db.damaged", "an older one");
    }
    must_write(rig, SPANS, ROWS);
    rig->config.max_bytes = 1 << 20;
    must_reopen(rig);
    for (uint64_t n = SPANS + ROWS; store_rig_usage(rig).n_damaged; n += 5000) {
        assert_true(n < 1000000);
        must_write(rig, n, 5000);
    }
    assert_int_equal(store_rig_files(rig, ".db.damaged"), 0);
}

/* A partition was written while the clock was ahead. The other partitions must not expire because
 * of it. */
static void test_written_in_the_future(void **state)
{
    struct store_rig *rig = *state;
    char path[256];
    store_rig_path(rig, "partition-00000002.db", path);
    store_rig_close(rig);
    run_sql(path, "UPDATE totals SET written_ns = 9223372036854775807");
    rig->store = br_store_get(&rig->host, "store");
    rig->config.max_age_ns = 3600000000000;
    must_reopen(rig);
    check(rig, SPANS, 0, 0);
}

/* --- Files that change while the store runs -------------------------------------------------- */

static void remove_files(const struct store_rig *rig, const char *part)
{
    DIR *dir = opendir(rig->directory);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.' && strstr(entry->d_name, part))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    (void)closedir(dir);
}

/* Checks that later writes are stored and that the next process reads them. */
static void check_recovers(struct store_rig *rig, size_t gone, size_t gone_until)
{
    must_write(rig, SPANS, 50);
    check(rig, SPANS + 50, gone, gone_until);
    assert_int_equal(store_rig_usage(rig).n_spans, SPANS + 50 - (gone_until - gone));
    must_reopen(rig);
    check(rig, SPANS + 50, gone, gone_until);
}

static void test_open_partition_deleted(void **state)
{
    struct store_rig *rig = *state;
    rig->config.partition_rows = 0;
    must_reopen(rig);
    must_write(rig, 900, 1); /* this write opens partition 3 */
    remove_files(rig, "partition-00000003");
    check_recovers(rig, 2 * ROWS, SPANS);
}

/* The log is written to the database before the store closes the partition. */
static void test_log_deleted(void **state)
{
    struct store_rig *rig = *state;
    rig->config.partition_rows = 0;
    must_reopen(rig);
    must_write(rig, SPANS, 50);
    check(rig, SPANS + 50, 0, 0);
    remove_files(rig, "partition-00000003.db-wal");
    for (uint64_t n = SPANS + 50; n < SPANS + 150; n += 50) {
        must_write(rig, n, 50);
        check(rig, n + 50, 0, 0);
    }
    must_reopen(rig);
    check(rig, SPANS + 150, 0, 0);
}

static void test_sealed_partition_deleted(void **state)
{
    struct store_rig *rig = *state;
    remove_files(rig, "partition-00000001");
    assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), 0);
    assert_int_equal(store_rig_usage(rig).n_partitions, 2);
    check_recovers(rig, 0, ROWS);
}

static void test_directory_deleted(void **state)
{
    struct store_rig *rig = *state;
    remove_files(rig, "");
    assert_int_equal(rmdir(rig->directory), 0);
    check_recovers(rig, 0, SPANS);
}

/* If the lock file is deleted, another store still cannot open the directory, because the directory
 * itself is locked, too. The lock file is created again. */
static void test_lock_deleted(void **state)
{
    struct store_rig *rig = *state;
    struct br_store *other = br_store_get(&rig->host, "other");
    char path[256];
    store_rig_path(rig, "lock", path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(br_store_open(other, &rig->config, &rig->log, &rig->err), BR_EINVAL);
    assert_non_null(strstr(rig->err.text, "is in use"));
    br_store_put(&rig->host, other);
    check_recovers(rig, 0, 0);
    assert_int_equal(access(path, F_OK), 0);
}

/* The directory of another process replaces the one in use. The store does not write anything there
 * and does not acknowledge any write. It recovers when the other process releases the directory. */
static void test_directory_replaced(void **state)
{
    struct store_rig *rig = *state;
    char aside[64];
    struct br_store *other = br_store_get(&rig->host, "other");
    (void)snprintf(aside, sizeof aside, "%.40s-aside", rig->directory);
    assert_int_equal(rename(rig->directory, aside), 0);
    assert_int_equal(br_store_open(other, &rig->config, &rig->log, &rig->err), 0);
    struct store_rig theirs = *rig;
    theirs.store = other;
    must_write(&theirs, 900, 1);
    /* if the store used the directory, it would delete the other process's files */
    rig->store->config.max_bytes = 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(br_store_write(rig->store, NULL, 0, &rig->err), BR_EIO);
        assert_int_equal(store_rig_files(rig, "partition-00000001.db"), 1);
        assert_int_equal(store_rig_items(rig, BR_TRACES, SPANS, 50), BR_EIO);
        assert_non_null(strstr(rig->err.text, "is in use"));
    }
    br_store_put(&rig->host, other);
    rig->store->config.max_bytes = 0;
    must_write(rig, SPANS, 50);
    check(rig, SPANS + 50, 0, SPANS);
    struct store_rig old = *rig;
    (void)snprintf(old.directory, sizeof old.directory, "%s", aside);
    remove_files(&old, "");
    assert_int_equal(rmdir(aside), 0);
}

/* A file with the number of the next partition already exists. */
static void test_no_file_is_overwritten(void **state)
{
    struct store_rig *rig = *state;
    make_file(rig, "partition-00000004.db", "somebody's");
    must_write(rig, SPANS, ROWS);
    assert_text(rig, "partition-00000004.db", "somebody's");
    check(rig, SPANS + ROWS, 0, 0);
}

/* After the greatest number, the next partition has the number 0. The order of the partitions is
 * kept. */
static void test_numbers_wrap(void **state)
{
    struct store_rig *rig = *state;
    char from[256], into[256];
    store_rig_close(rig);
    for (unsigned i = 1; i <= 3; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "partition-%08x.db", i);
        store_rig_path(rig, name, from);
        (void)snprintf(name, sizeof name, "partition-%08x.db", 0xfffffffcu + i);
        store_rig_path(rig, name, into);
        assert_int_equal(rename(from, into), 0);
    }
    rig->store = br_store_get(&rig->host, "store");
    must_reopen(rig);
    for (uint64_t n = SPANS; n < 2 * SPANS; n += ROWS)
        must_write(rig, n, ROWS);
    assert_int_equal(store_rig_files(rig, "partition-00000000.db"), 1);
    assert_int_equal(store_rig_files(rig, "partition-00000002.db"), 1);
    for (int i = 0; i < 2; i++) {
        check(rig, 2 * SPANS, 0, 0);
        const struct br_store_partition *oldest =
            br_container_of(rig->store->partitions.next, struct br_store_partition, link);
        assert_int_equal(oldest->number, 0xfffffffd);
        must_reopen(rig);
    }
}

/* SQLite maps the index of its log into memory, so a read beyond the end of the file would raise
 * SIGBUS. */
static void test_truncated_index(void **state)
{
    struct store_rig *rig = *state;
    char path[256];
    rig->config.partition_rows = 0;
    must_reopen(rig);
    must_write(rig, SPANS, 10);
    check(rig, SPANS + 10, 0, 0);
    store_rig_path(rig, "partition-00000003.db-shm", path);
    for (uint64_t n = SPANS + 10; n < SPANS + 50; n += 10) {
        assert_int_equal(truncate(path, 0), 0);
        if (n % 20)
            check(rig, n, 0, 0);
        must_write(rig, n, 10);
    }
    assert_int_equal(truncate(path, 0), 0);
    must_reopen(rig);
    check(rig, SPANS + 50, 0, 0);
}

/* --- Slices ---------------------------------------------------------------------------------- */

/* While a slice is read, retention deletes a partition. The slice does not contain this partition,
 * and is consistent. */
static void test_slice_during_retention(void **state)
{
    struct store_rig *rig = *state;
    struct br_slice_reader *slice;
    static char data[4096];
    size_t n = 1, bytes = 0;
    assert_int_equal(br_slice_begin_store(rig->store, 0, UINT64_MAX, &slice, &rig->err), 0);
    for (; n; bytes += n) {
        if (br_slice_read(slice, data, sizeof data, &n, &rig->err))
            fail_msg("%s", rig->err.text);
        if (bytes == 0)
            remove_files(rig, "partition-");
    }
    assert_int_equal(br_slice_unread(slice), 0);
    br_slice_end(slice);
    assert_true(bytes > ROWS);
}

/* --- Few descriptors ------------------------------------------------------------------------- */

static unsigned n_descriptors(void)
{
    unsigned count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

static bool note_descriptors(const struct br_stored_span *span, void *arg)
{
    unsigned *most = arg, now = n_descriptors();
    (void)span;
    *most = now > *most ? now : *most;
    return true;
}

static void test_few_descriptors(void **state)
{
    struct store_rig *rig = *state;
    struct rlimit before, limit;
    struct br_span_filter newest = {.order = BR_SPANS_NEWEST, .limit = 3000};
    uint64_t n = SPANS;
    unsigned most = 0;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = (struct rlimit){96, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    must_reopen(rig);
    unsigned others = n_descriptors();
    for (; n < 130 * ROWS; n += ROWS)
        must_write(rig, n, ROWS);
    assert_int_equal(store_rig_usage(rig).n_partitions, 130);
    check(rig, n, 0, 0);
    assert_string_equal(rig->note, "");
    struct br_store_query *query = store_rig_ask(rig);
    assert_int_equal(br_store_spans(query, &newest, note_descriptors, &most, &rig->err), 0);
    store_rig_answered(rig);
    /* eight connections have three descriptors each; the writer has eight descriptors */
    assert_true(most <= others + 8 * 3 + 8);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

SUITE(store_faults)
{
    const struct CMUnitTest tests[] = {TEST(test_transient_read_errors),
                                       TEST(test_permanent_read_errors),
                                       TEST(test_permanent_read_errors_of_a_log),
                                       TEST(test_permanent_read_errors_in_a_query),
                                       TEST(test_unusable_partitions),
                                       TEST(test_block_numbers),
                                       TEST(test_damaged_files_are_kept),
                                       TEST(test_written_in_the_future),
                                       TEST(test_open_partition_deleted),
                                       TEST(test_log_deleted),
                                       TEST(test_sealed_partition_deleted),
                                       TEST(test_directory_deleted),
                                       TEST(test_lock_deleted),
                                       TEST(test_directory_replaced),
                                       TEST(test_no_file_is_overwritten),
                                       TEST(test_numbers_wrap),
                                       TEST(test_truncated_index),
                                       TEST(test_slice_during_retention),
                                       TEST(test_full_disk),
                                       TEST(test_few_descriptors)};
    return RUN(tests, NULL, NULL);
}
