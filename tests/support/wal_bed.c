/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/wal_bed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct wal_disk disk;

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

void bed_open(struct bed *bed)
{
    struct br_err err = {0};
    if (br_wal_open(&bed->config, &bed->wal, &err))
        fail_msg("%s", err.text);
    bed->queue = br_wal_queue(bed->wal, "otlp");
    assert_non_null(bed->queue);
}

void bed_begin(struct bed *bed, enum br_wal_sync_mode sync)
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

void bed_kill(struct bed *bed)
{
    disk.first = disk.n_calls + 1;
    disk.count = UINT_MAX - disk.first;
    disk.error = EIO;
    br_wal_close(bed->wal);
    disk.first = 0;
}

void bed_restart(struct bed *bed)
{
    bed_kill(bed);
    bed_open(bed);
}

void bed_end(struct bed *bed)
{
    disk.first = 0;
    br_wal_close(bed->wal);
    fake_root_free(&bed->root);
}

#define PIECES 4

/* Returns a record with metadata and a text. The first two of `pieces` are for br_wal_append. */
static struct br_wal_record bed_record(struct br_wal_queue *queue, struct iovec pieces[PIECES],
                                       const char *text, size_t len)
{
    pieces[0] = pieces[1] = (struct iovec){NULL, 0};
    pieces[2] = (struct iovec){(void *)(uintptr_t) "k\0v\0", 5};
    pieces[3] = (struct iovec){(void *)(uintptr_t)text, len};
    return (struct br_wal_record){.queue = queue,
                                  .signal = 1,
                                  .n_records = 3,
                                  .time_ns = 77,
                                  .pieces = pieces,
                                  .n_pieces = PIECES,
                                  .metadata_len = 5};
}

int bed_append_to(struct bed *bed, struct br_wal_queue *queue, const char *text, size_t len,
                  bool keep, uint64_t *ret_number)
{
    struct br_err err = {0};
    struct iovec pieces[PIECES];
    struct br_wal_record record = bed_record(queue, pieces, text, len);
    record.keep = keep;
    int rc = br_wal_append(bed->wal, &record, 1, &err);
    assert_int_equal(rc, record.rc);
    if (rc && !record.why)
        assert_true(err.text[0] != '\0');
    if (ret_number)
        *ret_number = record.number;
    return rc;
}

int bed_append(struct bed *bed, const char *text, bool keep)
{
    return bed_append_to(bed, bed->queue, text, strlen(text), keep, NULL);
}

bool bed_read_from(struct br_wal_queue *queue, struct br_wal_found *found, char *ret_text,
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

void bed_expect(struct bed *bed, const char *text)
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

void bed_expect_none(struct bed *bed)
{
    struct br_wal_found found;
    char got[256];
    assert_false(bed_read_from(bed->queue, &found, got, sizeof got));
}

uint64_t bed_append_held(struct bed *bed, const char *text, enum delivery delivery)
{
    struct iovec pieces[PIECES];
    struct br_wal_record record = bed_record(bed->queue, pieces, text, strlen(text));
    record.held = true;
    if (delivery == DELIVERED_BEFORE)
        br_wal_delivered(&record);
    assert_int_equal(br_wal_append(bed->wal, &record, 1, NULL), 0);
    if (delivery == DELIVERED_AFTER)
        br_wal_delivered(&record);
    assert_true(record.keep);
    return record.number;
}
