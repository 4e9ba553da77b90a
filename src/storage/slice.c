/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/slice.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/str.h"
#include "storage/internal.h"

#define SLICE_BLOCK 512    /* block size of a tar archive, in bytes */
#define SLICE_COPY 262144  /* number of bytes that are copied with one read */
#define SLICE_NAME 100     /* size of the field with the member's name in a tar header, in bytes */
#define SLICE_SIZE_AT 124  /* offset of the member's size, in octal digits, in a tar header */
#define SLICE_SUM_AT 148   /* offset of the checksum in a tar header */
#define SLICE_MAGIC_AT 257 /* offset of "ustar" in a tar header */
#define SLICE_PATH_MAX 4096
/* number of virtual machine steps of SQLite between calls of `is_stopped`; SQLite copies a whole
 * row in one step */
#define SLICE_STEPS 100
#define SLICE_MEMBERS_MAX 10000
/* maximum number of bytes of the text that lists the partitions left out */
#define SLICE_LIST_MAX (2 * SLICE_BLOCK)

/* --- Headers of members (POSIX.1-2017, pax, "ustar Interchange Format") ---------------------- */

static unsigned slice_sum(const unsigned char header[SLICE_BLOCK])
{
    unsigned sum = 0;
    for (unsigned i = 0; i < SLICE_BLOCK; i++)
        sum += i >= SLICE_SUM_AT && i < SLICE_SUM_AT + 8 ? ' ' : header[i];
    return sum;
}

static void slice_make_header(const char *name, uint64_t size, unsigned char ret[SLICE_BLOCK])
{
    char *text = (char *)ret;
    memset(ret, 0, SLICE_BLOCK);
    (void)snprintf(text, SLICE_NAME, "%s", name);
    (void)snprintf(text + 100, 8, "%07o", 0600u);
    (void)snprintf(text + 108, 8, "%07o", 0u);
    (void)snprintf(text + 116, 8, "%07o", 0u);
    (void)snprintf(text + SLICE_SIZE_AT, 12, "%011llo", (unsigned long long)size);
    (void)snprintf(text + 136, 12, "%011o", 0u);
    text[156] = '0';
    memcpy(text + SLICE_MAGIC_AT, "ustar\00000", 8);
    (void)snprintf(text + SLICE_SUM_AT, 7, "%06o", slice_sum(ret));
    text[SLICE_SUM_AT + 7] = ' ';
}

static bool slice_read_octal(const unsigned char *field, size_t len, uint64_t *ret)
{
    char digits[16];
    int64_t value;
    memcpy(digits, field, len);
    digits[len] = '\0';
    digits[strspn(digits, "01234567")] = '\0';
    if (!br_parse_int(digits, 8, false, &value))
        return false;
    *ret = (uint64_t)value;
    return true;
}

/* Reads the name and size of a member from its header. Returns false if the member is neither a
 * partition nor the list BR_SLICE_LIST. */
static bool slice_read_header(const unsigned char header[SLICE_BLOCK], char name[SLICE_NAME + 1],
                              uint64_t *ret_size)
{
    uint64_t sum;
    uint32_t number;
    memcpy(name, header, SLICE_NAME);
    name[SLICE_NAME] = '\0';
    if (memcmp(header + SLICE_MAGIC_AT, "ustar", 5) != 0 || header[156] != '0')
        return false;
    if (!slice_read_octal(header + SLICE_SUM_AT, 7, &sum) || sum != slice_sum(header) ||
        !slice_read_octal(header + SLICE_SIZE_AT, 12, ret_size))
        return false;
    if (strcmp(name, BR_SLICE_LIST) == 0)
        return *ret_size <= SLICE_LIST_MAX;
    return br_store_parse_number(name, &number);
}

/* --- Reading and writing bytes --------------------------------------------------------------- */

static int slice_write(int fd, const void *data, size_t len, struct br_err *err)
{
    for (const char *p = data; len;) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return br_err_set(err, errno == ENOSPC ? BR_EFULL : BR_EIO, "cannot write: %s",
                              strerror(errno));
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int slice_read(int fd, void *data, size_t len, struct br_err *err)
{
    for (char *p = data; len;) {
        ssize_t n = read(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return br_err_set(err, BR_EIO, "cannot read: %s", strerror(errno));
        if (n == 0)
            return br_err_set(err, BR_EPROTO, "the file is incomplete");
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

static int slice_copy(int from, int into, uint64_t size, struct br_err *err)
{
    char *data = br_malloc(SLICE_COPY);
    int rc = data ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    while (!rc && size) {
        size_t n = size < SLICE_COPY ? (size_t)size : SLICE_COPY;
        rc = slice_read(from, data, n, err);
        if (!rc)
            rc = slice_write(into, data, n, err);
        size -= n;
    }
    br_free(data);
    return rc;
}

static size_t slice_padding(uint64_t size)
{
    return (size_t)(SLICE_BLOCK - size % SLICE_BLOCK) % SLICE_BLOCK;
}

/* --- Reading a store as an archive ----------------------------------------------------------- */

struct br_slice_reader {
    uint64_t from_ns, until_ns;
    DIR *dir;
    int fd; /* descriptor of the copy of the current partition; -1: no copy is open */
    uint64_t left, size;
    /* The next bytes of the archive that do not come from a partition: a header, padding, or the
     * list BR_SLICE_LIST with the end of the archive. */
    unsigned char block[SLICE_BLOCK + SLICE_LIST_MAX + 2 * SLICE_BLOCK];
    char list[SLICE_LIST_MAX];
    size_t list_len;
    size_t block_at, block_len;
    unsigned count, n_unread;
    bool ended;
    /* returns true if reading must stop; NULL: reading is never stopped */
    bool (*is_stopped)(void *arg);
    void *stopped_arg;
    char directory[SLICE_PATH_MAX], scratch[SLICE_PATH_MAX];
};

static bool slice_selects(const struct br_slice_reader *slice, const struct br_store_totals *totals)
{
    int64_t from = br_sql_time(slice->from_ns), until = br_sql_time(slice->until_ns);
    return (totals->span_from < until && totals->span_until >= from) ||
           (totals->sample_from < until && totals->sample_until >= from);
}

static int slice_vacuum(struct br_sql *sql, const char *path, struct br_err *err)
{
    sqlite3_stmt *statement = NULL;
    int rc = 0;
    if (sqlite3_exec(sql->db, "PRAGMA query_only = 0", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(sql->db, "VACUUM INTO ?1", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_bind_text(statement, 1, path, -1, SQLITE_STATIC) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_DONE)
        rc = br_sql_fail(sql, err);
    (void)sqlite3_finalize(statement);
    return rc;
}

static int slice_on_steps(void *arg)
{
    const struct br_slice_reader *slice = arg;
    return slice->is_stopped(slice->stopped_arg);
}

/* Copies an open database to a temporary file, and unlinks the file, which is then read through
 * slice->fd. Other processes may write to the database during the copy. */
static int slice_snapshot(struct br_slice_reader *slice, struct br_sql *sql, struct br_err *err)
{
    char path[SLICE_PATH_MAX];
    struct stat stat;
    if (slice->is_stopped)
        sqlite3_progress_handler(sql->db, SLICE_STEPS, slice_on_steps, slice);
    memcpy(path, slice->scratch, sizeof path);
    int made = mkostemp(path, O_CLOEXEC);
    if (made < 0)
        return br_err_set(err, errno == ENOSPC ? BR_EFULL : BR_EIO, "cannot create %s: %s", path,
                          strerror(errno));
    (void)close(made);
    int rc = slice_vacuum(sql, path, err);
    int fd = rc ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (!rc && (fd < 0 || fstat(fd, &stat))) {
        rc = br_err_set(err, BR_EIO, "cannot read %s: %s", path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
    }
    (void)unlink(path);
    if (rc)
        return rc;
    slice->fd = fd;
    slice->left = slice->size = (uint64_t)stat.st_size;
    return 0;
}

/* Adds the name of a left-out partition, and the reason, to the list BR_SLICE_LIST, unless the list
 * is full. */
static void slice_leave_out(struct br_slice_reader *slice, const char *name, const char *why)
{
    size_t room = sizeof slice->list - slice->list_len;
    int len = snprintf(slice->list + slice->list_len, room, "%s: %s\n", name, why);
    slice->list_len += len > 0 && (size_t)len < room ? (size_t)len : 0;
    slice->n_unread++;
}

/* Returns true if reading continues with the next partition after a failure. Reading continues
 * if the failed partition cannot be read, or was deleted in the meantime. */
static bool slice_may_continue(const struct br_slice_reader *slice, int rc, const char *path)
{
    bool stopped = slice->is_stopped && slice->is_stopped(slice->stopped_arg);
    if (rc == BR_ENOMEM || stopped)
        return false;
    return rc != BR_EFULL || access(path, F_OK) != 0;
}

/* Copies a partition and makes it the current member of the archive. Does nothing if the
 * partition has no data in the time range. */
static int slice_open_partition(struct br_slice_reader *slice, const char *name, struct br_err *err)
{
    char path[SLICE_PATH_MAX];
    struct br_sql sql;
    struct br_store_totals totals;
    bool selected = false;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", slice->directory, name) >= sizeof path)
        return br_err_set(err, BR_EIO, "the path of %s is too long", name);
    int rc = br_sql_open(&sql, path, BR_SQL_READ, false, err);
    if (!rc) {
        rc = br_store_totals_read(&sql, &totals, err);
        selected = !rc && slice_selects(slice, &totals);
        if (selected)
            rc = slice_snapshot(slice, &sql, err);
        br_sql_close(&sql);
    }
    if (rc && slice_may_continue(slice, rc, path)) {
        if (rc != BR_ENOTFOUND && access(path, F_OK) == 0)
            slice_leave_out(slice, name, err && err->text[0] ? err->text : "it cannot be read");
        return 0;
    }
    if (selected && !rc) {
        slice_make_header(name, slice->size, slice->block);
        slice->block_len = SLICE_BLOCK;
        slice->count++;
    }
    return rc;
}

static void slice_make_end(struct br_slice_reader *slice)
{
    memset(slice->block, 0, sizeof slice->block);
    slice->block_len = 2 * SLICE_BLOCK;
    slice->ended = true;
    if (!slice->list_len)
        return;
    slice_make_header(BR_SLICE_LIST, slice->list_len, slice->block);
    memcpy(slice->block + SLICE_BLOCK, slice->list, slice->list_len);
    slice->block_len += SLICE_BLOCK + slice->list_len + slice_padding(slice->list_len);
}

static int slice_next(struct br_slice_reader *slice, struct br_err *err)
{
    struct dirent *entry;
    struct br_store_file_name name;
    int rc = 0;
    slice->block_at = slice->block_len = 0;
    while (!rc && slice->fd < 0 && (entry = readdir(slice->dir))) {
        if (!br_store_parse_name(entry->d_name, &name))
            continue;
        if (name.damaged)
            slice_leave_out(slice, entry->d_name, "it is damaged");
        else
            rc = slice_open_partition(slice, entry->d_name, err);
    }
    if (rc || slice->fd >= 0)
        return rc;
    if (!slice->count && slice->n_unread)
        return br_err_set(err, BR_EIO, "%s contains no readable data of that time",
                          slice->directory);
    if (!slice->count)
        return br_err_set(err, BR_ENOTFOUND, "%s contains no data of that time", slice->directory);
    slice_make_end(slice);
    return 0;
}

/* Ends the current member, and adds the padding that follows it. */
static void slice_end_member(struct br_slice_reader *slice)
{
    (void)close(slice->fd);
    slice->fd = -1;
    memset(slice->block, 0, sizeof slice->block);
    slice->block_at = 0;
    slice->block_len = slice_padding(slice->size);
}

static size_t slice_read_block(struct br_slice_reader *slice, void *data, size_t len)
{
    size_t n = slice->block_len - slice->block_at;
    n = n < len ? n : len;
    memcpy(data, slice->block + slice->block_at, n);
    slice->block_at += n;
    return n;
}

static int slice_begin_directory(const char *directory, const char *scratch, uint64_t from_ns,
                                 uint64_t until_ns, struct br_slice_reader **ret,
                                 struct br_err *err)
{
    struct br_slice_reader *slice = br_calloc(1, sizeof *slice);
    *ret = NULL;
    br_sql_setup();
    if (!slice)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    *slice = (struct br_slice_reader){.from_ns = from_ns, .until_ns = until_ns, .fd = -1};
    int rc = 0;
    if ((size_t)snprintf(slice->directory, SLICE_PATH_MAX, "%s", directory) >= SLICE_PATH_MAX ||
        (size_t)snprintf(slice->scratch, SLICE_PATH_MAX, "%s.XXXXXX", scratch) >= SLICE_PATH_MAX)
        rc = br_err_set(err, BR_EIO, "the path %s is too long", scratch);
    else if (!(slice->dir = opendir(directory)))
        rc = br_err_set(err, BR_EIO, "cannot read %s: %s", directory, strerror(errno));
    if (rc)
        br_slice_end(slice);
    else
        *ret = slice;
    return rc;
}

int br_slice_begin_store(const struct br_store *store, uint64_t from_ns, uint64_t until_ns,
                         struct br_slice_reader **ret, struct br_err *err)
{
    char scratch[SLICE_PATH_MAX];
    if ((size_t)snprintf(scratch, sizeof scratch, "%s/" BR_SLICE_SCRATCH, store->directory) >=
        sizeof scratch)
        return br_err_set(err, BR_EIO, "the path %s is too long", store->directory);
    return slice_begin_directory(store->directory, scratch, from_ns, until_ns, ret, err);
}

void br_slice_stop_when(struct br_slice_reader *slice, bool (*is_stopped)(void *arg), void *arg)
{
    slice->is_stopped = is_stopped;
    slice->stopped_arg = arg;
}

int br_slice_read(struct br_slice_reader *slice, void *data, size_t len, size_t *ret_len,
                  struct br_err *err)
{
    char *at = data;
    int rc = 0;
    *ret_len = 0;
    while (!rc && *ret_len < len) {
        size_t n = slice_read_block(slice, at + *ret_len, len - *ret_len);
        if (!n && slice->fd >= 0 && slice->left) {
            n = slice->left < len - *ret_len ? (size_t)slice->left : len - *ret_len;
            rc = slice_read(slice->fd, at + *ret_len, n, err);
            slice->left -= n;
        } else if (!n && slice->fd >= 0) {
            slice_end_member(slice);
        } else if (!n && slice->ended) {
            break;
        } else if (!n) {
            rc = slice_next(slice, err);
        }
        *ret_len += n;
    }
    return rc;
}

void br_slice_end(struct br_slice_reader *slice)
{
    if (!slice)
        return;
    if (slice->dir)
        (void)closedir(slice->dir);
    if (slice->fd >= 0)
        (void)close(slice->fd);
    br_free(slice);
}

/* --- Saving ---------------------------------------------------------------------------------- */

static int slice_save_to(struct br_slice_reader *slice, int fd, struct br_err *err)
{
    char *data = br_malloc(SLICE_COPY);
    size_t n = 1;
    int rc = data ? 0 : br_err_set(err, BR_ENOMEM, "out of memory");
    while (!rc && n) {
        rc = br_slice_read(slice, data, SLICE_COPY, &n, err);
        if (!rc)
            rc = slice_write(fd, data, n, err);
    }
    br_free(data);
    return rc;
}

unsigned br_slice_unread(const struct br_slice_reader *slice)
{
    return slice->n_unread;
}

int br_slice_save(const char *directory, uint64_t from_ns, uint64_t until_ns, const char *file,
                  struct br_slice_saved *ret, struct br_err *err)
{
    struct br_slice_reader *slice;
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot create %s: %s", file, strerror(errno));
    int rc = slice_begin_directory(directory, file, from_ns, until_ns, &slice, err);
    if (!rc)
        rc = slice_save_to(slice, fd, err);
    if (close(fd) && !rc)
        rc = br_err_set(err, BR_EIO, "cannot write %s: %s", file, strerror(errno));
    if (rc)
        (void)unlink(file);
    else
        *ret = (struct br_slice_saved){slice->count, slice->n_unread};
    br_slice_end(slice);
    return rc;
}

/* --- Unpacking ------------------------------------------------------------------------------- */

static int slice_unpack(int fd, const char *directory, const char *name, uint64_t size,
                        struct br_err *err)
{
    char path[SLICE_PATH_MAX], padding[SLICE_BLOCK];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, name) >= sizeof path)
        return br_err_set(err, BR_EIO, "the path of %s is too long", name);
    int into = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (into < 0)
        return br_err_set(err, BR_EIO, "cannot create %s: %s", path, strerror(errno));
    int rc = slice_copy(fd, into, size, err);
    if (close(into) && !rc)
        rc = br_err_set(err, BR_EIO, "cannot write %s: %s", path, strerror(errno));
    return rc ? rc : slice_read(fd, padding, slice_padding(size), err);
}

static int slice_unpack_all(int fd, const char *directory, struct br_err *err)
{
    static const unsigned char zeros[SLICE_BLOCK];
    unsigned char header[SLICE_BLOCK];
    char name[SLICE_NAME + 1];
    uint64_t size;
    for (unsigned count = 0; count <= SLICE_MEMBERS_MAX; count++) {
        int rc = slice_read(fd, header, sizeof header, err);
        if (rc)
            return rc;
        if (memcmp(header, zeros, sizeof zeros) == 0)
            return count ? 0 : br_err_set(err, BR_EPROTO, "it contains no partitions");
        if (!slice_read_header(header, name, &size))
            return br_err_set(err, BR_EPROTO, "it was not written by `braid save`");
        rc = slice_unpack(fd, directory, name, size, err);
        if (rc)
            return rc;
    }
    return br_err_set(err, BR_EPROTO, "it contains more than %d partitions", SLICE_MEMBERS_MAX);
}

int br_slice_open(const char *file, const char *directory, struct br_err *err)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot read %s: %s", file, strerror(errno));
    int rc = slice_unpack_all(fd, directory, err);
    (void)close(fd);
    if (rc)
        br_err_prefix(err, "%s: ", file);
    return rc;
}
