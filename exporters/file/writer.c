/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/file/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "core/shared.h"
#include "exporters/file/backups.h"

#define MODE_BITS 0777
#define NAME_TRIES 1000 /* milliseconds that a name may be moved by */

struct file_writer {
    struct file_writer_config config; /* its path is ours */
    pthread_mutex_t lock;
    int fd;
    bool regular; /* it has a size, can be cut and renamed */
    bool torn;    /* half a record is behind `torn_at` and could not be cut off yet */
    off_t torn_at;
    int error; /* errno of opening */
};

/* --- Opening --------------------------------------------------------------------------------- */

static int file_writer_make_folders(const char *path, mode_t mode)
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

/* Always to append: whoever cuts the file meanwhile (logrotate's copytruncate) leaves no hole. */
static int file_writer_open_file(struct file_writer *writer, bool keep)
{
    int fd = br_file_open(writer->config.path, O_APPEND | (keep ? 0 : O_TRUNC));
    struct stat st;
    if (fd < 0)
        return errno;
    writer->fd = fd;
    writer->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    writer->torn = false;
    return 0;
}

static void *file_writer_make(const void *arg)
{
    struct file_writer *writer = br_calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->config = *(const struct file_writer_config *)arg;
    writer->config.path = br_strdup(writer->config.path);
    if (!writer->config.path) {
        br_free(writer);
        return NULL;
    }
    writer->fd = -1;
    (void)pthread_mutex_init(&writer->lock, NULL);
    if (writer->config.only_looks) {
        writer->error = br_file_check(writer->config.path);
        if (writer->error == ENOENT && writer->config.make_folders)
            writer->error = 0;
        return writer;
    }
    if (writer->config.make_folders)
        writer->error =
            file_writer_make_folders(writer->config.path, (mode_t)writer->config.make_folders);
    if (!writer->error)
        writer->error =
            file_writer_open_file(writer, writer->config.append || writer->config.max_bytes);
    return writer;
}

static void file_writer_release(void *thing)
{
    struct file_writer *writer = thing;
    if (writer->fd >= 0)
        (void)close(writer->fd);
    (void)pthread_mutex_destroy(&writer->lock);
    br_free((void *)(uintptr_t)writer->config.path);
    br_free(writer);
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
    if (writer->error)
        rc = br_err_set(err, BR_EIO, "cannot open %s: %s", config->path, strerror(writer->error));
    else if (strcmp(writer->config.owner, config->owner) != 0)
        rc = br_err_set(err, BR_EINVAL, "exporter %s writes to %s too; give each a path of its own",
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
        if (access(name, F_OK) == 0) /* rename would replace it */
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
        error = file_writer_open_file(writer, true);
    if (error)
        return error;
    if (fstat(old, &st) == 0) /* whoever may read the old one goes on reading */
        (void)fchmod(writer->fd, st.st_mode & MODE_BITS);
    (void)close(old);
    file_backups_prune(writer->config.path, unix_ns, writer->config.local_time,
                       writer->config.max_backups, writer->config.max_days);
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

static int file_writer_write_all(int fd, const struct file_record *record)
{
    struct iovec v[3];
    int i = 0;
    for (int k = 0; k < 3; k++)
        v[k] = (struct iovec){(void *)(uintptr_t)record->data[k], record->len[k]};
    while (i < 3) {
        ssize_t n = writev(fd, v + i, 3 - i);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        while (i < 3 && (size_t)n >= v[i].iov_len)
            n -= (ssize_t)v[i++].iov_len;
        if (i < 3) {
            v[i].iov_base = (char *)v[i].iov_base + n;
            v[i].iov_len -= (size_t)n;
        }
    }
    return 0;
}

/* Cuts off what is there of a record that could not be written. */
static int file_writer_mend(struct file_writer *writer)
{
    if (writer->torn && ftruncate(writer->fd, writer->torn_at))
        return errno;
    writer->torn = false;
    return 0;
}

static int file_writer_put_own(struct file_writer *writer, const struct file_record *record,
                               uint64_t unix_ns)
{
    size_t len = record->len[0] + record->len[1] + record->len[2];
    struct stat st = {0};
    int error = file_writer_mend(writer);
    if (error)
        return error;
    if (writer->regular && fstat(writer->fd, &st))
        return errno;
    if (writer->regular && writer->config.max_bytes && st.st_size > 0 &&
        (uint64_t)st.st_size + len > writer->config.max_bytes) {
        error = file_writer_rotate(writer, unix_ns);
        if (error)
            return error;
        st.st_size = 0;
    }
    error = file_writer_write_all(writer->fd, record);
    if (error && writer->regular) {
        writer->torn = true;
        writer->torn_at = st.st_size;
        (void)file_writer_mend(writer);
    }
    return error;
}

int file_writer_put(struct file_writer *writer, const struct file_record *record, uint64_t unix_ns)
{
    (void)pthread_mutex_lock(&writer->lock);
    int error = file_writer_put_own(writer, record, unix_ns);
    (void)pthread_mutex_unlock(&writer->lock);
    return error;
}
