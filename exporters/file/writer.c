/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/file/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "core/shared.h"

#define MODE_BITS 0777
/* If the name for a rotated file is taken, later times are tried, up to this many milliseconds
 * later. */
#define NAME_TRIES 1000
#define WAIT_S 1      /* seconds that a thread waits for the write of another thread */
#define READER_MS 200 /* milliseconds that a write waits for the reader of a FIFO */
/* largest number of attempts to write a record if the file is deleted each time */
#define REWRITES_MAX 100

struct file_writer {
    struct file_writer_config config; /* copy of the configuration; the writer owns its `path` */
    pthread_mutex_t lock;             /* protects `busy` and `stuck`; held only briefly */
    pthread_cond_t released;
    bool busy; /* a thread uses the fields from `fd` on */
    /* a thread has used the fields from `fd` on for WAIT_S or longer, so other threads do not
     * wait */
    bool stuck;
    int fd;      /* descriptor of the file; -1: not open */
    bool opened; /* the file was opened before, so its existing content is kept */
    /* true if the file is a regular file, which can be truncated and renamed; false: a FIFO or a
     * device */
    bool regular;
    bool torn; /* an incomplete record after `torn_at` could not be truncated yet */
    off_t torn_at;
    /* the record of which a FIFO has accepted only the beginning; NULL: no record is unfinished */
    const struct file_record *unfinished;
    bool idle; /* the reader of the FIFO has not read for READER_MS */
};

/* --- Opening --------------------------------------------------------------------------------- */

static int file_writer_make_directories(const char *path, mode_t mode)
{
    char folder[PATH_MAX];
    size_t len = strlen(path);
    if (len >= sizeof folder)
        return ENAMETOOLONG;
    memcpy(folder, path, len + 1);
    for (char *p = folder + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        int error = br_folder_make(folder, mode);
        if (error)
            return error;
        *p = '/';
    }
    return 0;
}

/* Opens the file in append mode, so that truncation by other programs (logrotate's copytruncate)
 * leaves no gap. */
static int file_writer_open_file(struct file_writer *writer)
{
    const struct file_writer_config *config = &writer->config;
    bool keep = writer->opened || config->append || config->max_bytes;
    int flags = O_APPEND | O_NONBLOCK | O_NOCTTY | (keep ? 0 : O_TRUNC);
    int fd = br_file_open(config->path, flags);
    if (fd < 0 && errno == ENOENT && config->directory_mode) {
        int error = file_writer_make_directories(config->path, (mode_t)config->directory_mode);
        if (error)
            return error;
        fd = br_file_open(config->path, flags);
    }
    struct stat st;
    if (fd < 0)
        return errno;
    writer->fd = fd;
    writer->opened = true;
    writer->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    writer->torn = false;
    return 0;
}

static void file_writer_close_file(struct file_writer *writer)
{
    if (writer->fd >= 0)
        (void)close(writer->fd);
    writer->fd = -1;
}

struct file_writer *file_writer_new(const struct file_writer_config *config)
{
    struct file_writer *writer = br_calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->config = *config;
    writer->config.path = br_strdup(writer->config.path);
    if (!writer->config.path) {
        br_free(writer);
        return NULL;
    }
    writer->fd = -1;
    pthread_condattr_t monotonic;
    (void)pthread_mutex_init(&writer->lock, NULL);
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&writer->released, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    return writer;
}

void file_writer_free(struct file_writer *writer)
{
    if (!writer)
        return;
    file_writer_close_file(writer);
    (void)pthread_cond_destroy(&writer->released);
    (void)pthread_mutex_destroy(&writer->lock);
    br_free((void *)(uintptr_t)writer->config.path);
    br_free(writer);
}

const char *file_writer_path(const struct file_writer *writer)
{
    return writer->config.path;
}

static void *file_writer_make(const void *config)
{
    return file_writer_new(config);
}

static void file_writer_release(void *thing)
{
    file_writer_free(thing);
}

static bool file_writer_is_fifo(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISFIFO(st.st_mode);
}

/* Opens the file at startup, when only one thread exists. */
static int file_writer_begin(struct file_writer *writer)
{
    const struct file_writer_config *config = &writer->config;
    if (config->only_checks) {
        int error = br_file_check(config->path);
        return error == ENOENT && config->directory_mode ? 0 : error;
    }
    int error = writer->fd < 0 ? file_writer_open_file(writer) : 0;
    return error == ENXIO && file_writer_is_fifo(config->path) ? 0 : error;
}

int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err)
{
    char name[PATH_MAX + 32];
    int rc = 0;
    (void)snprintf(name, sizeof name, "file exporter %s", config->path);
    struct file_writer *writer = br_shared_get(host, name, file_writer_make, config);
    if (!writer)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    int error = file_writer_begin(writer);
    if (error)
        rc = br_err_set(err, BR_EIO, "cannot open %s: %s", config->path, strerror(error));
    else if (strcmp(writer->config.owner, config->owner) != 0)
        rc = br_err_set(err, BR_EINVAL, "exporter %s also writes to %s; set a different path",
                        writer->config.owner, config->path);
    if (rc)
        file_writer_close(host, writer);
    else
        *ret = writer;
    return rc;
}

void file_writer_close(struct br_host *host, struct file_writer *writer)
{
    br_shared_put(host, writer, file_writer_release);
}

/* --- Rotation -------------------------------------------------------------------------------- */

static int file_writer_rename_away(struct file_writer *writer, uint64_t unix_ns)
{
    char name[PATH_MAX];
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t at = unix_ns + (uint64_t)i * 1000000;
        if (!file_backup_name(writer->config.path, at, writer->config.local_time, name))
            return ENAMETOOLONG;
        if (access(name, F_OK) == 0) /* the name is taken: rename would replace the existing file */
            continue;
        return rename(writer->config.path, name) && errno != ENOENT ? errno : 0;
    }
    return EEXIST;
}

static int file_writer_rotate(struct file_writer *writer, uint64_t unix_ns)
{
    int old = writer->fd;
    struct stat st;
    int error = file_writer_rename_away(writer, unix_ns);
    if (!error)
        error = file_writer_open_file(writer);
    if (error)
        return error;
    if (fstat(old, &st) == 0) /* gives the new file the permissions of the old file */
        (void)fchmod(writer->fd, st.st_mode & MODE_BITS);
    (void)close(old);
    file_backups_prune(writer->config.path, unix_ns, writer->config.local_time,
                       writer->config.max_backups, writer->config.max_days);
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

static size_t file_writer_length(const struct file_record *record)
{
    return record->len[0] + record->len[1] + record->len[2];
}

/* Points `ret` at the unwritten pieces of a record, and returns the number of pieces. */
static int file_writer_unwritten(const struct file_record *record, struct iovec ret[3])
{
    size_t skip = record->written;
    int n = 0;
    for (int i = 0; i < 3; i++) {
        size_t over = skip < record->len[i] ? skip : record->len[i];
        skip -= over;
        if (over < record->len[i])
            ret[n++] =
                (struct iovec){(char *)(uintptr_t)record->data[i] + over, record->len[i] - over};
    }
    return n;
}

/* Waits up to READER_MS for the reader of a FIFO. After a timeout, and until the FIFO has room
 * again, later writes do not wait. */
static bool file_writer_has_room(struct file_writer *writer)
{
    struct pollfd room = {.fd = writer->fd, .events = POLLOUT};
    writer->idle = poll(&room, 1, writer->idle ? 0 : READER_MS) == 0;
    return !writer->idle;
}

/* Writes the unwritten bytes of a record. Returns 0 or an errno, such as EAGAIN if the reader of
 * a FIFO does not read. */
static int file_writer_write_rest(struct file_writer *writer, struct file_record *record)
{
    struct iovec pieces[3];
    int n_pieces;
    while ((n_pieces = file_writer_unwritten(record, pieces)) > 0) {
        ssize_t n = writev(writer->fd, pieces, n_pieces);
        if (n >= 0)
            record->written += (size_t)n;
        else if (errno == EAGAIN && !file_writer_has_room(writer))
            return EAGAIN;
        else if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return 0;
}

/* Truncates the file at the start of an incomplete record. */
static int file_writer_truncate(struct file_writer *writer)
{
    if (writer->torn && ftruncate(writer->fd, writer->torn_at))
        return errno;
    writer->torn = false;
    return 0;
}

/* Writes a record to a regular file, which can be truncated. */
static int file_writer_put_regular(struct file_writer *writer, struct file_record *record,
                                   uint64_t unix_ns)
{
    struct stat st;
    int error = file_writer_truncate(writer);
    if (error)
        return error;
    if (fstat(writer->fd, &st))
        return errno;
    if (writer->config.max_bytes && st.st_size > 0 &&
        (uint64_t)st.st_size + file_writer_length(record) > writer->config.max_bytes) {
        error = file_writer_rotate(writer, unix_ns);
        if (error)
            return error;
        st.st_size = 0;
    }
    record->written = 0;
    error = file_writer_write_rest(writer, record);
    if (error) {
        writer->torn = true;
        writer->torn_at = st.st_size;
        (void)file_writer_truncate(writer);
    }
    return error;
}

/* Writes a record to a FIFO or a device. If the reader closes a FIFO in the middle of a record,
 * the next reader receives the whole record. */
static int file_writer_put_stream(struct file_writer *writer, struct file_record *record)
{
    int error = file_writer_write_rest(writer, record);
    if (error == EAGAIN && record->written) {
        writer->unfinished = record;
        return EINPROGRESS;
    }
    writer->unfinished = NULL;
    record->written = error ? 0 : record->written;
    if (error == EPIPE)
        file_writer_close_file(writer);
    return error;
}

/* Closes the file if its path no longer refers to it: the file was deleted or replaced. */
static void file_writer_close_replaced(struct file_writer *writer, struct file_record *record)
{
    struct stat open, named;
    if (writer->fd < 0 || !writer->regular || fstat(writer->fd, &open))
        return;
    if (stat(writer->config.path, &named)
            ? errno != ENOENT && errno != ENOTDIR
            : open.st_dev == named.st_dev && open.st_ino == named.st_ino)
        return;
    record->reopened = true;
    file_writer_close_file(writer);
}

static bool file_writer_is_deleted(const struct file_writer *writer)
{
    struct stat st;
    return writer->regular && (fstat(writer->fd, &st) || st.st_nlink == 0);
}

static int file_writer_put_locked(struct file_writer *writer, struct file_record *record,
                                  uint64_t unix_ns)
{
    if (writer->unfinished && writer->unfinished != record)
        return EBUSY;
    for (int i = 0; i < REWRITES_MAX; i++) {
        file_writer_close_replaced(writer, record);
        int error = writer->fd < 0 ? file_writer_open_file(writer) : 0;
        if (!error)
            error = writer->regular ? file_writer_put_regular(writer, record, unix_ns)
                                    : file_writer_put_stream(writer, record);
        if (error || !file_writer_is_deleted(writer))
            return error;
    }
    return ESTALE;
}

/* Waits until no other thread uses the writer. Returns false if the write of another thread
 * takes too long. */
static bool file_writer_enter(struct file_writer *writer)
{
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += WAIT_S;
    (void)pthread_mutex_lock(&writer->lock);
    while (writer->busy && !writer->stuck && !error)
        error = pthread_cond_timedwait(&writer->released, &writer->lock, &until);
    bool entered = !writer->busy;
    writer->stuck = writer->stuck || !entered;
    writer->busy = true;
    (void)pthread_mutex_unlock(&writer->lock);
    return entered;
}

static void file_writer_leave(struct file_writer *writer)
{
    (void)pthread_mutex_lock(&writer->lock);
    writer->busy = writer->stuck = false;
    (void)pthread_cond_signal(&writer->released);
    (void)pthread_mutex_unlock(&writer->lock);
}

int file_writer_put(struct file_writer *writer, struct file_record *record, uint64_t unix_ns)
{
    if (!file_writer_enter(writer))
        return EBUSY;
    int error = file_writer_put_locked(writer, record, unix_ns);
    file_writer_leave(writer);
    return error;
}

const char *file_writer_reason(int error)
{
    switch (error) {
    case EAGAIN:
        return "the reader of the FIFO does not read";
    case EBUSY:
        return "an earlier write has not finished";
    case ENXIO:
    case EPIPE:
        return "no process reads the FIFO";
    case ESTALE:
        return "the file is deleted each time it is created";
    default:
        return strerror(error);
    }
}
