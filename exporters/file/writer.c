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
    struct file_writer_config config;
    pthread_mutex_t lock;
    int fd;
    bool regular; /* it has a size, can be cut and renamed */
    bool torn;    /* half a record is behind `torn_at` and could not be cut off yet */
    off_t torn_at;
    int error; /* errno of opening */
};

/* --- Opening --------------------------------------------------------------------------------- */

static int make_folders(const char *path, mode_t mode)
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
static int open_file(struct file_writer *w, bool keep)
{
    int fd = br_file_open(w->config.path, O_APPEND | (keep ? 0 : O_TRUNC));
    struct stat st;
    if (fd < 0)
        return errno;
    w->fd = fd;
    w->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    w->torn = false;
    return 0;
}

static void *make(const void *arg)
{
    struct file_writer *w = br_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    w->config = *(const struct file_writer_config *)arg;
    w->fd = -1;
    (void)pthread_mutex_init(&w->lock, NULL);
    if (w->config.only_looks) {
        w->error = br_file_check(w->config.path);
        if (w->error == ENOENT && w->config.make_folders)
            w->error = 0;
        return w;
    }
    if (w->config.make_folders)
        w->error = make_folders(w->config.path, (mode_t)w->config.make_folders);
    if (!w->error)
        w->error = open_file(w, w->config.append || w->config.max_bytes);
    return w;
}

static void release(void *thing)
{
    struct file_writer *w = thing;
    if (w->fd >= 0)
        (void)close(w->fd);
    (void)pthread_mutex_destroy(&w->lock);
    br_free(w);
}

int file_writer_open(struct br_host *host, const struct file_writer_config *config,
                     struct file_writer **ret, struct br_err *err)
{
    char name[PATH_MAX + 32];
    int rc = 0;
    (void)snprintf(name, sizeof name, "file exporter %s", config->path);
    struct file_writer *w = br_shared_get(host, name, make, config);
    if (!w)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    if (w->error)
        rc = br_err_set(err, BR_EIO, "cannot open %s: %s", config->path, strerror(w->error));
    else if (strcmp(w->config.owner, config->owner) != 0)
        rc = br_err_set(err, BR_EINVAL, "exporter %s writes to %s too; give each a path of its own",
                        w->config.owner, config->path);
    if (rc)
        file_writer_close(host, w);
    else
        *ret = w;
    return rc;
}

void file_writer_close(struct br_host *host, struct file_writer *w)
{
    br_shared_put(host, w, release);
}

/* --- Rotation -------------------------------------------------------------------------------- */

static int rename_away(struct file_writer *w, uint64_t unix_ns)
{
    char name[PATH_MAX];
    for (int i = 0; i < NAME_TRIES; i++) {
        uint64_t at = unix_ns + (uint64_t)i * 1000000;
        if (!file_backup_name(w->config.path, at, w->config.local_time, name))
            return ENAMETOOLONG;
        if (access(name, F_OK) == 0) /* rename would replace it */
            continue;
        return rename(w->config.path, name) && errno != ENOENT ? errno : 0;
    }
    return EEXIST;
}

static int rotate(struct file_writer *w, uint64_t unix_ns)
{
    int old = w->fd;
    struct stat st;
    int error = rename_away(w, unix_ns);
    if (!error)
        error = open_file(w, true);
    if (error)
        return error;
    if (fstat(old, &st) == 0) /* whoever may read the old one goes on reading */
        (void)fchmod(w->fd, st.st_mode & MODE_BITS);
    (void)close(old);
    file_backups_prune(w->config.path, unix_ns, w->config.local_time, w->config.max_backups,
                       w->config.max_days);
    return 0;
}

/* --- Writing --------------------------------------------------------------------------------- */

static int write_all(int fd, const struct file_record *record)
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
static int mend(struct file_writer *w)
{
    if (w->torn && ftruncate(w->fd, w->torn_at))
        return errno;
    w->torn = false;
    return 0;
}

static int put(struct file_writer *w, const struct file_record *record, uint64_t unix_ns)
{
    size_t len = record->len[0] + record->len[1] + record->len[2];
    struct stat st = {0};
    int error = mend(w);
    if (error)
        return error;
    if (w->regular && fstat(w->fd, &st))
        return errno;
    if (w->regular && w->config.max_bytes && st.st_size > 0 &&
        (uint64_t)st.st_size + len > w->config.max_bytes) {
        error = rotate(w, unix_ns);
        if (error)
            return error;
        st.st_size = 0;
    }
    error = write_all(w->fd, record);
    if (error && w->regular) {
        w->torn = true;
        w->torn_at = st.st_size;
        (void)mend(w);
    }
    return error;
}

int file_writer_put(struct file_writer *w, const struct file_record *record, uint64_t unix_ns)
{
    (void)pthread_mutex_lock(&w->lock);
    int error = put(w, record, unix_ns);
    (void)pthread_mutex_unlock(&w->lock);
    return error;
}
