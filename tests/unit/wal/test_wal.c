/* SPDX-License-Identifier: Apache-2.0 */
#include "wal/wal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/support/fake_root.h"
#include "tests/support/test.h"
#include "wal/internal.h"

/* --- Faults ---------------------------------------------------------------------------------- */

/* Simulates a disk that fails. Counts the calls by which the log changes files. `count` calls fail,
 * beginning with the call number `first`. */
static struct {
    unsigned n_calls;
    /* number of the first call that fails (numbers start at 1), and number of calls that fail */
    unsigned first, count;
    int error; /* the errno of calls that fail; 0: instead of failing, writes are short */
    bool torn; /* true: the first write that fails has written half of its data */
    /* true: direct writes (O_DIRECT) fail, or opening a file for direct writes fails, as on some
     * file systems */
    bool refuses_direct, refuses_direct_open;
} disk;

/* Returns true if this call fails. */
static bool disk_fails(void)
{
    unsigned call = ++disk.n_calls;
    return disk.first && call >= disk.first && call < disk.first + disk.count;
}

static int disk_error(void)
{
    errno = disk.error;
    return -1;
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    if (disk.refuses_direct && (fcntl(fd, F_GETFL) & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    if (!disk_fails())
        return syscall(SYS_pwritev, fd, pieces, count, at, 0);
    if (disk.error && !(disk.torn && disk.n_calls == disk.first))
        return disk_error();
    struct iovec piece = {pieces->iov_base, (pieces->iov_len + 1) / 2};
    return syscall(SYS_pwritev, fd, &piece, 1, at, 0);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (disk.refuses_direct_open && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* The tests read files from the page cache, so no data has to reach a disk. */
int fdatasync(int fd)
{
    (void)fd;
    return disk_fails() && disk.error ? disk_error() : 0;
}

int fsync(int fd)
{
    (void)fd;
    return disk_fails() && disk.error ? disk_error() : 0;
}

int ftruncate(int fd, off_t len)
{
    return disk_fails() && disk.error ? disk_error() : (int)syscall(SYS_ftruncate, fd, len);
}

/* --- The log in a directory ------------------------------------------------------------------ */

struct bed {
    struct fake_root root;
    char directory[300];
    struct br_wal_config config;
    struct br_wal *wal;
    struct br_wal_queue *queue;
};

static void bed_open(struct bed *bed)
{
    struct br_err err = {0};
    if (br_wal_open(&bed->config, &bed->wal, &err))
        fail_msg("%s", err.text);
    bed->queue = br_wal_queue(bed->wal, "otlp");
    assert_non_null(bed->queue);
}

static void bed_begin(struct bed *bed, enum br_wal_sync_mode sync)
{
    *bed = (struct bed){.root = fake_root_new()};
    (void)snprintf(bed->directory, sizeof bed->directory, "%s/storage", bed->root.path);
    bed->config = (struct br_wal_config){.directory = bed->directory,
                                         .create_directory = true,
                                         .directory_mode = 0700,
                                         .max_size = 1 << 20,
                                         .segment_size = 1 << 18,
                                         .sync = sync};
    disk.n_calls = disk.first = 0;
    disk.torn = false;
    bed_open(bed);
}

/* Closes the log. All calls that change files fail, as if the process were killed. */
static void bed_kill(struct bed *bed)
{
    disk.first = disk.n_calls + 1;
    disk.count = UINT_MAX - disk.first;
    disk.error = EIO;
    br_wal_close(bed->wal);
    disk.first = 0;
}

static void bed_restart(struct bed *bed)
{
    bed_kill(bed);
    bed_open(bed);
}

static void bed_end(struct bed *bed)
{
    disk.first = 0;
    br_wal_close(bed->wal);
    fake_root_free(&bed->root);
}

/* Appends a record whose data is `text`. Returns its rc. */
static int bed_append_to(struct bed *bed, struct br_wal_queue *queue, const char *text, size_t len,
                         bool keep, uint64_t *ret_number)
{
    struct br_err err = {0};
    struct iovec pieces[] = {{0}, {0}, {(void *)(uintptr_t) "k\0v\0", 5}, {0}};
    pieces[3] = (struct iovec){(void *)(uintptr_t)text, len};
    struct br_wal_record record = {.queue = queue,
                                   .signal = 1,
                                   .n_records = 3,
                                   .time_ns = 77,
                                   .pieces = pieces,
                                   .n_pieces = 4,
                                   .metadata_len = 5,
                                   .keep = keep};
    int rc = br_wal_append(bed->wal, &record, 1, &err);
    assert_int_equal(rc, record.rc);
    if (rc && !record.why)
        assert_true(err.text[0] != '\0');
    if (ret_number)
        *ret_number = record.number;
    return rc;
}

static int bed_append(struct bed *bed, const char *text, bool keep)
{
    return bed_append_to(bed, bed->queue, text, strlen(text), keep, NULL);
}

/* Reads the next record. Returns false if there is none. Damaged records are skipped. */
static bool bed_read_from(struct br_wal_queue *queue, struct br_wal_found *found, char *ret_text,
                          size_t size)
{
    struct br_err err = {0};
    int rc = BR_EAGAIN;
    uint8_t *room = NULL;
    while (rc == BR_EAGAIN || rc == BR_EINVAL) {
        if (!br_wal_read_begin(queue))
            return false;
        rc = br_wal_read(queue, found, &err);
        if (rc == 0) {
            room = realloc(room, found->metadata_len + found->data_len + 1);
            rc = br_wal_read_take(queue, found, room, &err);
        }
        br_wal_read_end(queue);
    }
    if (rc == BR_ENOTFOUND) {
        free(room);
        return false;
    }
    assert_int_equal(rc, 0);
    assert_int_equal(found->metadata_len, 5);
    assert_memory_equal(room, "k\0v\0", 5);
    assert_true(found->data_len < size);
    memcpy(ret_text, room + 5, found->data_len);
    ret_text[found->data_len] = '\0';
    free(room);
    return true;
}

static void bed_expect(struct bed *bed, const char *text)
{
    struct br_wal_found found;
    char got[256];
    if (!bed_read_from(bed->queue, &found, got, sizeof got))
        fail_msg("there is no record %s", text);
    assert_string_equal(got, text);
    assert_int_equal(found.signal, 1);
    assert_int_equal(found.n_records, 3);
    assert_int_equal(found.time_ns, 77);
}

static void bed_expect_none(struct bed *bed)
{
    struct br_wal_found found;
    char got[256];
    assert_false(bed_read_from(bed->queue, &found, got, sizeof got));
}

/* --- Tests ----------------------------------------------------------------------------------- */

static void records_survive_a_restart_in_order(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", false), 0);
    assert_int_equal(bed_append(&bed, "three", true), 0);
    /* The caller keeps the first record in memory, so it is not read. The third record is read from
     * the log, because the second record must be read before it. */
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_queue_total(bed.queue).n_records[1], 9);
    assert_int_equal(br_wal_queue_total(bed.queue).bytes[1], 3 * 5 + 3 + 3 + 5);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_stats(bed.wal).n_restored, 3);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* When the caller of br_wal_append delivers the record itself: never, before the call, or after the
 * call. */
enum delivery { NOT_DELIVERED, DELIVERED_BEFORE, DELIVERED_AFTER };

/* Appends a record that the caller is delivering itself. The log reads it only after a restart.
 * Returns the number of the record. */
static uint64_t bed_append_held(struct bed *bed, const char *text, enum delivery delivery)
{
    struct iovec pieces[] = {
        {0}, {0}, {(void *)(uintptr_t) "k\0v\0", 5}, {(void *)(uintptr_t)text, strlen(text)}};
    struct br_wal_record record = {.queue = bed->queue,
                                   .signal = 1,
                                   .n_records = 3,
                                   .time_ns = 77,
                                   .pieces = pieces,
                                   .n_pieces = 4,
                                   .metadata_len = 5,
                                   .held = true};
    if (delivery == DELIVERED_BEFORE)
        br_wal_delivered(&record);
    assert_int_equal(br_wal_append(bed->wal, &record, 1, NULL), 0);
    if (delivery == DELIVERED_AFTER)
        br_wal_delivered(&record);
    assert_true(record.keep);
    return record.number;
}

static void held_records_are_read_only_after_a_restart(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_false(br_wal_queue_has_unread(bed.queue));
    assert_int_equal(bed_append(&bed, "one", false), 0);
    assert_true(br_wal_queue_has_unread(bed.queue));
    assert_int_equal(bed_append_held(&bed, "two", NOT_DELIVERED), 2);
    assert_int_equal(bed_append(&bed, "three", false), 0);
    assert_int_equal(bed_append_held(&bed, "four", NOT_DELIVERED), 4);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    br_wal_done(bed.queue, 4, 1, 3, 9);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    bed_restart(&bed);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

static void done_records_do_not_come_back(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < 5; i++)
        assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c", "d", "e"}[i], true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 6);
    br_wal_done(bed.queue, 4, 1, 3, 6);
    assert_true(br_wal_has_unwritten(bed.wal));
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_false(br_wal_has_unwritten(bed.wal));
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    bed_expect(&bed, "a");
    bed_expect(&bed, "c");
    bed_expect(&bed, "e");
    bed_expect_none(&bed);
    br_wal_done(bed.queue, 1, 1, 3, 6);
    br_wal_done(bed.queue, 3, 1, 3, 6);
    br_wal_done(bed.queue, 5, 1, 3, 6);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 0);
    assert_int_equal(br_wal_queue_total(bed.queue).bytes[1], 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1); /* the old segment is deleted */
    bed_restart(&bed);
    bed_expect_none(&bed);
    uint64_t number;
    assert_int_equal(bed_append_to(&bed, bed.queue, "f", 1, true, &number), 0);
    assert_int_equal(number, 6); /* numbers of earlier records are not used again */
    bed_end(&bed);
}

static void queues_are_independent(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    struct br_wal_queue *other = br_wal_queue(bed.wal, "otlp/2");
    assert_int_equal(bed_append(&bed, "one", false), 0);
    assert_int_equal(bed_append_to(&bed, other, "uno", 3, false, NULL), 0);
    assert_int_equal(bed_append(&bed, "two", false), 0);
    br_wal_done(other, 1, 1, 3, 8);
    bed_restart(&bed);
    other = br_wal_queue(bed.wal, "otlp/2");
    assert_int_equal(other->n_unread, 0);
    assert_int_equal(bed.queue->n_unread, 2);
    bed_expect(&bed, "one");
    bed_expect(&bed, "two");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* The disk is full, and only the file `reserve` has room. When all records have been delivered, the
 * old segment is deleted. */
static void a_full_disk_has_room_when_all_records_are_done(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    bed_begin(&bed, BR_WAL_ALWAYS);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    br_wal_done(bed.queue, 1, 1, 3, 8);
    for (int i = 0; i < 2; i++) {
        disk.first = disk.n_calls + 1;
        disk.count = 1;
        disk.error = ENOSPC;
        assert_int_equal(bed_append(&bed, "three", true), BR_EFULL);
        disk.first = 0;
        assert_int_equal(access(path, F_OK), i ? -1 : 0);
        br_wal_done(bed.queue, 2, 1, 3, 8);
    }
    assert_int_equal(bed_append(&bed, "four", true), 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1);
    bed_restart(&bed);
    bed_expect(&bed, "four");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* --- Marks that are not in a segment --------------------------------------------------------- */

static void marks_survive_the_process(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < 5; i++)
        assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c", "d", "e"}[i], true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 6);
    br_wal_done(bed.queue, 5, 1, 3, 6);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 3);
    bed_restart(&bed); /* at the first restart, the marks were written to a segment */
    bed_expect(&bed, "a");
    bed_expect(&bed, "c");
    bed_expect(&bed, "d");
    bed_expect_none(&bed);
    uint64_t number;
    assert_int_equal(bed_append_to(&bed, bed.queue, "f", 1, true, &number), 0);
    assert_int_equal(number, 6);
    bed_end(&bed);
}

static void records_delivered_while_being_written_do_not_come_back(void **state)
{
    (void)state;
    for (enum delivery when = DELIVERED_BEFORE; when <= DELIVERED_AFTER; when++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        (void)bed_append_held(&bed, "x", when);
        /* this append also writes the mark of the first record */
        assert_int_equal(bed_append(&bed, "two", true), 0);
        (void)bed_append_held(&bed, "x", when);
        bed_restart(&bed);
        assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 1);
        bed_expect(&bed, "two");
        bed_expect_none(&bed);
        bed_end(&bed);
    }
}

/* The file has a limited number of places for marks. The places of old marks are reused. */
static void any_number_of_marks_can_be_set(void **state)
{
    (void)state;
    struct bed bed;
    uint64_t numbers[3] = {0};
    bed_begin(&bed, BR_WAL_OFF);
    bed.config.max_size = 64 << 20;
    br_wal_close(bed.wal);
    bed_open(&bed);
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(bed_append_to(&bed, bed.queue, "x", 1, true, &numbers[i % 3]), 0);
        if (i % 3 == 2) {
            br_wal_done(bed.queue, numbers[0], 1, 3, 6);
            br_wal_done(bed.queue, numbers[2], 1, 3, 6);
        }
    }
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 10000);
    bed_end(&bed);
}

/* Damages the mark of record 1 in the file by changing the byte at offset `at`, and restarts.
 * Record 2 has a mark, too. */
static void bed_damage_mark(struct bed *bed, long at, uint8_t mask)
{
    char path[400];
    uint8_t byte;
    (void)snprintf(path, sizeof path, "%s/marks", bed->directory);
    bed_kill(bed);
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fread(&byte, 1, 1, file), 1);
    byte ^= mask;
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fwrite(&byte, 1, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    bed_open(bed);
}

static void damaged_marks_are_ignored(void **state)
{
    (void)state;
    for (long at = 0; at < 24; at++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        assert_int_equal(bed_append(&bed, "one", true), 0);
        assert_int_equal(bed_append(&bed, "two", true), 0);
        br_wal_done(bed.queue, 1, 1, 3, 8);
        br_wal_done(bed.queue, 2, 1, 3, 8);
        bed_damage_mark(&bed, at, 0x10);
        assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], 1);
        bed_expect(&bed, "one");
        bed_expect_none(&bed);
        bed_end(&bed);
    }
}

/* A segment can lose its last records in a power failure while the file `marks` keeps their marks.
 * Their numbers must not be used again. */
static void marks_of_lost_records_do_not_affect_new_records(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    uint64_t number;
    bed_begin(&bed, BR_WAL_OFF);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    br_wal_done(bed.queue, 2, 1, 3, 8);
    bed_kill(&bed);
    assert_int_equal(truncate(path, st.st_size), 0);
    bed_open(&bed);
    bed_expect(&bed, "one");
    bed_expect_none(&bed);
    assert_int_equal(bed_append_to(&bed, bed.queue, "three", 5, true, &number), 0);
    assert_int_equal(number, 3);
    bed_restart(&bed);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* If no segment contains a queue, its marks must not affect a later queue of the same name. */
static void marks_without_a_queue_are_removed(void **state)
{
    (void)state;
    struct bed bed;
    char path[400];
    bed_begin(&bed, BR_WAL_OFF);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    br_wal_done(bed.queue, 1, 1, 3, 8);
    bed_kill(&bed);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(unlink(path), 0);
    bed_open(&bed);
    assert_int_equal(bed_append(&bed, "new", true), 0);
    bed_restart(&bed);
    bed_expect(&bed, "new");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* --- Segments, limits and damage -------------------------------------------------------------- */

static void segments_are_deleted_once_all_queues_have_passed(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    bed.config.segment_size = 100000;
    br_wal_close(bed.wal);
    bed_open(&bed);
    struct br_wal_queue *other = br_wal_queue(bed.wal, "slow");
    assert_int_equal(bed_append_to(&bed, other, "s", 1, true, NULL), 0);
    for (uint64_t n = 1; n <= 8; n++) {
        assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, true, NULL), 0);
        br_wal_done(bed.queue, n, 1, 3, sizeof big + 5);
    }
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_true(br_wal_stats(bed.wal).n_segments >= 4);
    br_wal_done(other, 1, 1, 3, 6);
    assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
    assert_int_equal(br_wal_stats(bed.wal).n_segments, 1);
    bed_end(&bed);
}

static void a_full_log_refuses_and_accepts_again(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    uint64_t number = 0, n = 0;
    int rc;
    while ((rc = bed_append_to(&bed, bed.queue, big, sizeof big, true, &number)) == 0)
        n = number;
    assert_int_equal(rc, BR_EFULL);
    assert_true(n >= 14 && n <= 17); /* 1 MiB */
    assert_true(br_wal_stats(bed.wal).bytes <= 1 << 20);
    assert_false(br_wal_stats(bed.wal).failing);
    for (uint64_t i = 1; i <= n; i++)
        br_wal_done(bed.queue, i, 1, 3, sizeof big + 5);
    assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, true, &number), 0);
    bed_end(&bed);
}

static void drop_oldest_makes_room(void **state)
{
    (void)state;
    struct bed bed;
    static char big[60000];
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    br_wal_close(bed.wal);
    bed.config.drop_oldest = true;
    bed_open(&bed);
    for (int i = 0; i < 40; i++)
        assert_int_equal(bed_append_to(&bed, bed.queue, big, sizeof big, false, NULL), 0);
    struct br_wal_stats stats = br_wal_stats(bed.wal);
    struct br_wal_total total = br_wal_queue_total(bed.queue);
    assert_true(stats.bytes <= 1 << 20);
    assert_int_equal(stats.n_dropped[1] + total.n_records[1], 40 * 3);
    assert_int_equal(bed.queue->n_unread, total.n_requests[1]);
    bed_restart(&bed);
    assert_int_equal(br_wal_queue_total(bed.queue).n_requests[1], total.n_requests[1]);
    bed_end(&bed);
}

/* --- Damage ---------------------------------------------------------------------------------- */

#define DAMAGE_RECORDS 6

static void damage_text(int i, char out[64])
{
    (void)snprintf(out, 64, "record number %d with some data", i);
}

/* Reads all records. Returns the set of their numbers, with a bit for each number. */
static unsigned damage_read(struct bed *bed)
{
    struct br_wal_found found;
    char got[256], expected[64];
    unsigned set = 0;
    while (bed_read_from(bed->queue, &found, got, sizeof got)) {
        assert_true(found.number >= 1 && found.number <= DAMAGE_RECORDS);
        damage_text((int)found.number, expected);
        assert_string_equal(got, expected);
        assert_int_equal(set & 1u << found.number, 0);
        set |= 1u << found.number;
    }
    return set;
}

static size_t damage_file(const struct bed *bed, char *path, size_t size, uint8_t *ret_data,
                          size_t cap)
{
    (void)snprintf(path, size, "%s/00000001.wal", bed->directory);
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, ret_data, cap);
    close(fd);
    assert_true(n > 0 && (size_t)n < cap);
    return (size_t)n;
}

static void damage_put(const char *path, const uint8_t *data, size_t len)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0600);
    assert_int_equal(write(fd, data, len), (ssize_t)len);
    close(fd);
}

static unsigned count_files(const char *directory, const char *name)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    DIR *dir = opendir(path);
    unsigned n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 2 ? n - 2 : 0;
}

/* Removes all files of a directory. */
static void remove_files(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
}

static void damage_clear(const struct bed *bed)
{
    char path[400];
    (void)snprintf(path, sizeof path, "%s/quarantine", bed->directory);
    remove_files(path);
    remove_files(bed->directory);
}

/* If a byte of a file is changed, at most the frame that contains it becomes unreadable. The
 * damaged frame is not removed from the file. */
static void change_bytes(enum br_wal_sync_mode sync, size_t step)
{
    struct bed bed;
    static uint8_t data[65536];
    char path[400], text[64];
    bed_begin(&bed, sync);
    for (int i = 1; i <= DAMAGE_RECORDS; i++) {
        damage_text(i, text);
        assert_int_equal(bed_append(&bed, text, true), 0);
    }
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    unsigned all = (2u << DAMAGE_RECORDS) - 2;
    for (size_t at = WAL_SEGMENT_HEADER; at < len; at += step) {
        damage_clear(&bed);
        data[at] ^= 0x40;
        damage_put(path, data, len);
        data[at] ^= 0x40;
        bed_open(&bed);
        unsigned missing = all & ~damage_read(&bed);
        assert_true((missing & (missing - 1)) == 0);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
        assert_int_equal(count_files(bed.directory, "quarantine"), 1);
        assert_int_equal(bed.queue->n_unread, 0);
        uint64_t number;
        assert_int_equal(bed_append_to(&bed, bed.queue, "new", 3, true, &number), 0);
        assert_true(number >= DAMAGE_RECORDS);
        br_wal_close(bed.wal);
    }
    damage_clear(&bed);
    bed_open(&bed);
    bed_end(&bed);
}

static void every_changed_byte_costs_one_record_at_most(void **state)
{
    (void)state;
    change_bytes(BR_WAL_INTERVAL, 1);
}

/* With `sync: always`, the log writes groups of records, each of which ends with padding. Most
 * changes of the padding have no effect. */
static void changed_bytes_in_padded_groups_cost_one_record_at_most(void **state)
{
    (void)state;
    change_bytes(BR_WAL_ALWAYS, 23);
}

/* Groups of records that are synced before their answers begin at multiples of WAL_BLOCK. */
static void synced_groups_are_aligned(void **state)
{
    (void)state;
    struct bed bed;
    static char big[100000], got[sizeof big + 1];
    struct br_wal_found found;
    memset(big, 'x', sizeof big);
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (size_t len = 1; len < sizeof big; len = len * 3 + 1) {
        assert_int_equal(bed_append_to(&bed, bed.queue, big, len, false, NULL), 0);
        assert_int_equal(bed.wal->at % WAL_BLOCK, 0);
        assert_int_equal(br_wal_stats(bed.wal).bytes, bed.wal->at);
        /* if only marks are written, the page cache is used */
        br_wal_done(bed.queue, 1000, 1, 0, 0);
        assert_int_equal(br_wal_sync(bed.wal, false, NULL), 0);
        assert_int_equal(bed.wal->at % WAL_BLOCK, 0);
    }
    bed_restart(&bed);
    for (size_t len = 1; len < sizeof big; len = len * 3 + 1) {
        assert_true(bed_read_from(bed.queue, &found, got, sizeof got));
        assert_int_equal(found.data_len, len);
        assert_memory_equal(got, big, len);
    }
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
}

/* A file system may refuse direct writes when the file is opened, or at the first write. In both
 * cases, the log writes to the page cache instead. */
static void without_direct_writes_the_page_cache_is_used(void **state)
{
    (void)state;
    for (int at_open = 0; at_open < 2; at_open++) {
        struct bed bed;
        bed_begin(&bed, BR_WAL_ALWAYS);
        disk.refuses_direct = !at_open;
        disk.refuses_direct_open = at_open;
        for (int i = 0; i < 3; i++)
            assert_int_equal(bed_append(&bed, (const char *[]){"a", "b", "c"}[i], false), 0);
        assert_int_equal(bed.wal->direct_fd, -1);
        disk.refuses_direct = disk.refuses_direct_open = false;
        bed_restart(&bed);
        bed_expect(&bed, "a");
        bed_expect(&bed, "b");
        bed_expect(&bed, "c");
        bed_expect_none(&bed);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
        bed_end(&bed);
    }
}

/* A segment of a newer format is refused. A damaged header does not cause the loss of records. */
static void headers_are_checked(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *wal = NULL;
    struct br_err err = {0};
    static uint8_t data[65536];
    char path[400], text[64];
    bed_begin(&bed, BR_WAL_ALWAYS);
    damage_text(1, text);
    assert_int_equal(bed_append(&bed, text, true), 0);
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    data[WAL_VERSION_AT]++;
    damage_put(path, data, len);
    assert_int_equal(br_wal_open(&bed.config, &wal, &err), BR_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "has version 3 of the format"));
    data[WAL_VERSION_AT] = WAL_VERSION_LEAST;
    damage_put(path, data, len);
    bed_open(&bed);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_kill(&bed);
    data[0] ^= 1;
    damage_put(path, data, len);
    bed_open(&bed);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
    assert_int_equal(damage_read(&bed), 1u << 1);
    bed_end(&bed);
}

/* If a segment is cut at any offset, all records that are complete before it can be read. */
static void every_cut_keeps_the_records_before_it(void **state)
{
    (void)state;
    struct bed bed;
    static uint8_t data[8192];
    char path[400], text[64];
    size_t ends[DAMAGE_RECORDS + 1], n_ends = 0;
    bed_begin(&bed, BR_WAL_INTERVAL);
    for (int i = 1; i <= DAMAGE_RECORDS; i++) {
        damage_text(i, text);
        assert_int_equal(bed_append(&bed, text, true), 0);
        ends[n_ends++] = bed.wal->at;
    }
    br_wal_close(bed.wal);
    size_t len = damage_file(&bed, path, sizeof path, data, sizeof data);
    for (size_t cut = WAL_SEGMENT_HEADER; cut <= len; cut++) {
        unsigned expected = 0;
        for (size_t i = 0; i < n_ends; i++)
            expected |= ends[i] <= cut ? 2u << i : 0;
        damage_clear(&bed);
        damage_put(path, data, cut);
        bed_open(&bed);
        assert_int_equal(damage_read(&bed), expected);
        assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
        br_wal_close(bed.wal);
    }
    damage_clear(&bed);
    bed_open(&bed);
    bed_end(&bed);
}

/* --- Faults of every call --------------------------------------------------------------------- */

#define FAULT_RECORDS 12

struct fault_result {
    unsigned stored, done; /* sets of record numbers, with a bit for each number */
};

/* Appends records one by one, and marks every third record that was stored as done. */
static struct fault_result fault_scenario(struct bed *bed)
{
    struct fault_result result = {0};
    static char text[30000];
    memset(text, '.', sizeof text);
    for (unsigned i = 0; i < FAULT_RECORDS; i++) {
        uint64_t number;
        text[0] = (char)('a' + i);
        int rc = bed_append_to(bed, bed->queue, text, sizeof text, true, &number);
        assert_true(rc == 0 || rc == BR_EIO || rc == BR_EFULL);
        if (rc)
            continue;
        result.stored |= 1u << i;
        if (i % 3 == 0) {
            br_wal_done(bed->queue, number, 1, 3, sizeof text + 5);
            (void)br_wal_sync(bed->wal, true, NULL);
            result.done |= 1u << i;
        }
    }
    return result;
}

static unsigned fault_read(struct bed *bed)
{
    static char text[30001];
    struct br_wal_found found;
    unsigned set = 0;
    while (bed_read_from(bed->queue, &found, text, sizeof text)) {
        unsigned i = (unsigned)text[0] - 'a';
        if (text[0] == 'z')
            continue;
        assert_true(i < FAULT_RECORDS);
        assert_int_equal(set & 1u << i, 0);
        set |= 1u << i;
    }
    return set;
}

/* Opens a log with small segments, so that the scenario needs several segments. */
static void fault_begin(struct bed *bed, enum br_wal_sync_mode sync)
{
    bed_begin(bed, sync);
    br_wal_close(bed->wal);
    bed->config.segment_size = 100000;
    bed_open(bed);
    disk.n_calls = 0;
}

static void fault_run(enum br_wal_sync_mode sync, unsigned first, unsigned count, int error,
                      bool *ret_reached)
{
    struct bed bed;
    fault_begin(&bed, sync);
    disk.first = first;
    disk.count = count;
    disk.error = error;
    struct fault_result result = fault_scenario(&bed);
    *ret_reached = disk.n_calls >= first;
    disk.first = 0;
    if (!error && (result.stored != (1u << FAULT_RECORDS) - 1))
        fail_msg("a short write (call %u) is not an error", first);
    /* it heals */
    assert_int_equal(bed_append(&bed, "z", true), 0);
    assert_false(br_wal_stats(bed.wal).failing);
    assert_int_equal(br_wal_sync(bed.wal, true, NULL), 0);
    bed_restart(&bed);
    unsigned back = fault_read(&bed);
    unsigned expected = result.stored & ~result.done;
    if (back != expected)
        fail_msg("call %u+%u, errno %d: %x came back, not %x", first, count, error, back, expected);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
}

static void every_failing_call_loses_nothing(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, 0};
    static const unsigned counts[] = {1, 2, 5};
    static const enum br_wal_sync_mode modes[] = {BR_WAL_ALWAYS, BR_WAL_INTERVAL};
    for (size_t m = 0; m < 2; m++) {
        for (size_t e = 0; e < 3; e++) {
            for (size_t c = 0; c < 3; c++) {
                bool reached = true;
                for (unsigned n = 1; reached; n++)
                    fault_run(modes[m], n, counts[c], errors[e], &reached);
            }
        }
    }
}

/* --- The process is killed at every call ------------------------------------------------------ */

/* Simulates a crash: from call number `first` on, all calls that change files fail. Then the log is
 * opened again. If `torn`, the first failing write has written half of its data. */
static bool crash_run(enum br_wal_sync_mode sync, unsigned first, bool torn)
{
    struct bed bed;
    fault_begin(&bed, sync);
    disk.first = first;
    disk.count = UINT_MAX - first;
    disk.error = EIO;
    disk.torn = torn;
    struct fault_result result = fault_scenario(&bed);
    bool reached = disk.n_calls >= first;
    disk.torn = false;
    bed_restart(&bed);
    unsigned back = fault_read(&bed), expected = result.stored & ~result.done;
    unsigned more = back & ~expected;
    if ((back & expected) != expected)
        fail_msg("call %u: %x came back, not %x", first, back, expected);
    /* in addition, at most two records may be read: the record that was being written at the crash,
     * and the record whose mark was being written */
    if (__builtin_popcount(more & ~result.stored) > 1 || __builtin_popcount(more & result.done) > 1)
        fail_msg("call %u: %x came back in addition", first, more);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 0);
    bed_end(&bed);
    return reached;
}

static void killed_at_every_call(void **state)
{
    (void)state;
    for (int torn = 0; torn < 2; torn++) {
        for (unsigned n = 1; crash_run(BR_WAL_ALWAYS, n, torn); n++)
            ;
        for (unsigned n = 1; crash_run(BR_WAL_OFF, n, torn); n++)
            ;
    }
}

/* --- Records that end the process ------------------------------------------------------------- */

/* Restarts the log while record `number` is being processed, as if the record had ended the
 * process. */
static void die_with(struct bed *bed, uint64_t number)
{
    br_wal_process(bed->queue, 5, number);
    bed_restart(bed);
}

static void the_third_death_quarantines_the_record(void **state)
{
    (void)state;
    struct bed bed;
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(bed_append(&bed, "two", true), 0);
    assert_int_equal(bed_append(&bed, "three", true), 0);
    die_with(&bed, 2);
    die_with(&bed, 2);
    die_with(&bed, 1);
    assert_int_equal(bed.queue->n_unread, 3);
    br_wal_process(bed.queue, 5, 2);
    /* the call with 0 ends the processing of the record, so the record does not count as
     * interrupted */
    br_wal_process(bed.queue, 5, 0);
    bed_restart(&bed);
    assert_int_equal(bed.queue->n_unread, 3);
    die_with(&bed, 2);
    assert_int_equal(bed.queue->n_unread, 2);
    assert_int_equal(br_wal_stats(bed.wal).n_corrupt, 1);
    assert_int_equal(count_files(bed.directory, "quarantine"), 1);
    bed_expect(&bed, "one");
    bed_expect(&bed, "three");
    bed_expect_none(&bed);
    bed_end(&bed);
}

/* --- Threads ---------------------------------------------------------------------------------- */

#define THREADS 8
#define PER_THREAD 50

static void *thread_append(void *arg)
{
    struct bed *bed = arg;
    for (int i = 0; i < PER_THREAD; i++)
        if (bed_append(bed, "x", false))
            return "an append has failed";
    return NULL;
}

static void threads_share_syncs(void **state)
{
    (void)state;
    struct bed bed;
    pthread_t threads[THREADS];
    bed_begin(&bed, BR_WAL_ALWAYS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_append, &bed), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failure;
        pthread_join(threads[i], &failure);
        assert_null(failure);
    }
    assert_int_equal(bed.queue->n_unread, THREADS * PER_THREAD);
    assert_true(br_wal_stats(bed.wal).n_syncs <= THREADS * PER_THREAD);
    bed_restart(&bed);
    assert_int_equal(bed.queue->n_unread, THREADS * PER_THREAD);
    bed_end(&bed);
}

/* --- The directory ---------------------------------------------------------------------------- */

static void one_process_uses_a_directory(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *second = NULL;
    struct br_err err = {0};
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(br_wal_open(&bed.config, &second, &err), BR_EINVAL);
    assert_non_null(strstr(err.text, "another process uses"));
    bed_end(&bed);
}

static void links_are_refused(void **state)
{
    (void)state;
    struct bed bed;
    struct br_wal *wal = NULL;
    struct br_err err = {0};
    char link[320];
    bed_begin(&bed, BR_WAL_ALWAYS);
    (void)snprintf(link, sizeof link, "%s/link", bed.root.path);
    assert_int_equal(symlink(bed.directory, link), 0);
    struct br_wal_config config = bed.config;
    config.directory = link;
    assert_int_equal(br_wal_open(&config, &wal, &err), BR_EINVAL);
    assert_int_equal(br_wal_check(&config, &err), BR_EINVAL);
    bed_end(&bed);
}

static void only_the_owner_can_read(void **state)
{
    (void)state;
    struct bed bed;
    struct stat st;
    char path[400];
    bed_begin(&bed, BR_WAL_ALWAYS);
    assert_int_equal(bed_append(&bed, "one", true), 0);
    assert_int_equal(stat(bed.directory, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    (void)snprintf(path, sizeof path, "%s/00000001.wal", bed.directory);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    bed_end(&bed);
}

static void ranges_merge(void **state)
{
    (void)state;
    struct br_ranges ranges = {0};
    assert_int_equal(br_ranges_add(&ranges, 5, 6), 0);
    assert_int_equal(br_ranges_add(&ranges, 1, 2), 0);
    assert_int_equal(br_ranges_add(&ranges, 9, 9), 0);
    assert_int_equal(ranges.count, 3);
    assert_int_equal(br_ranges_add(&ranges, 3, 3), 0);
    assert_int_equal(ranges.count, 3);
    assert_true(br_ranges_cover(&ranges, 1, 3));
    assert_false(br_ranges_cover(&ranges, 1, 4));
    assert_int_equal(br_ranges_add(&ranges, 2, 8), 0);
    assert_int_equal(ranges.count, 1);
    assert_true(br_ranges_cover(&ranges, 1, 9));
    assert_false(br_ranges_contain(&ranges, 0));
    assert_false(br_ranges_contain(&ranges, 10));
    assert_int_equal(br_ranges_add(&ranges, UINT64_MAX, UINT64_MAX), 0);
    assert_true(br_ranges_contain(&ranges, UINT64_MAX));
    struct br_range first = br_ranges_shift(&ranges);
    assert_int_equal(first.first, 1);
    assert_int_equal(first.last, 9);
    assert_int_equal(ranges.count, 1);
    br_ranges_release(&ranges);
}

SUITE(wal)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_survive_a_restart_in_order),
        cmocka_unit_test(held_records_are_read_only_after_a_restart),
        cmocka_unit_test(done_records_do_not_come_back),
        cmocka_unit_test(queues_are_independent),
        cmocka_unit_test(a_full_disk_has_room_when_all_records_are_done),
        cmocka_unit_test(marks_survive_the_process),
        cmocka_unit_test(records_delivered_while_being_written_do_not_come_back),
        cmocka_unit_test(any_number_of_marks_can_be_set),
        cmocka_unit_test(damaged_marks_are_ignored),
        cmocka_unit_test(marks_of_lost_records_do_not_affect_new_records),
        cmocka_unit_test(marks_without_a_queue_are_removed),
        cmocka_unit_test(segments_are_deleted_once_all_queues_have_passed),
        cmocka_unit_test(a_full_log_refuses_and_accepts_again),
        cmocka_unit_test(drop_oldest_makes_room),
        cmocka_unit_test(every_changed_byte_costs_one_record_at_most),
        cmocka_unit_test(changed_bytes_in_padded_groups_cost_one_record_at_most),
        cmocka_unit_test(synced_groups_are_aligned),
        cmocka_unit_test(without_direct_writes_the_page_cache_is_used),
        cmocka_unit_test(headers_are_checked),
        cmocka_unit_test(every_cut_keeps_the_records_before_it),
        cmocka_unit_test(every_failing_call_loses_nothing),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(the_third_death_quarantines_the_record),
        cmocka_unit_test(threads_share_syncs),
        cmocka_unit_test(one_process_uses_a_directory),
        cmocka_unit_test(links_are_refused),
        cmocka_unit_test(only_the_owner_can_read),
        cmocka_unit_test(ranges_merge),
    };
    return RUN(tests, NULL, NULL);
}
