/* SPDX-License-Identifier: Apache-2.0 */
#include "wal/wal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "wal/internal.h"

static int wal_fail(struct br_err *err, const struct br_wal_config *config, const char *what,
                    int error)
{
    char text[128];
    return br_err_set(err, BR_EIO, "cannot %s %s: %s", what, config->directory,
                      strerror_r(error, text, sizeof text));
}

/* Creates the directory and its missing parent directories. */
static int wal_make_directories(const struct br_wal_config *config)
{
    char path[WAL_PATH_MAX];
    (void)snprintf(path, sizeof path, "%s", config->directory);
    for (char *p = path + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, config->directory_mode) && errno != EEXIST)
            return errno;
        *p = '/';
    }
    return br_folder_make(path, config->directory_mode);
}

/* Checks that the path is a directory, not a symbolic link, and that it belongs to the user of this
 * process. */
static int wal_check_owner(const struct br_wal_config *config, struct br_err *err)
{
    struct stat st;
    if (lstat(config->directory, &st))
        return errno == ENOENT ? br_err_set(err, BR_EIO,
                                            "the directory %s does not exist; create it, or set "
                                            "create_directory: true",
                                            config->directory)
                               : wal_fail(err, config, "open the directory", errno);
    if (!S_ISDIR(st.st_mode))
        return br_err_set(err, BR_EINVAL, "%s must be a directory, not a symbolic link or a file",
                          config->directory);
    if (st.st_uid != geteuid())
        return br_err_set(err, BR_EINVAL,
                          "%s belongs to the user with id %u; it must belong to the user of this "
                          "process, %u",
                          config->directory, (unsigned)st.st_uid, (unsigned)geteuid());
    return 0;
}

int br_wal_check(const struct br_wal_config *config, struct br_err *err)
{
    struct stat st;
    if (strlen(config->directory) > WAL_PATH_MAX / 2)
        return br_err_set(err, BR_EINVAL, "the path of the directory is too long");
    if (lstat(config->directory, &st) && errno == ENOENT && config->create_directory)
        return 0;
    int rc = wal_check_owner(config, err);
    if (rc == 0 && access(config->directory, R_OK | W_OK | X_OK))
        rc = wal_fail(err, config, "write to the directory", errno);
    return rc;
}

static int wal_take_lock(struct br_wal *wal, struct br_err *err)
{
    const struct br_wal_config *config = &wal->config;
    char path[WAL_PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/lock", config->directory);
    wal->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (wal->lock_fd < 0)
        return wal_fail(err, config, "open the lock file in", errno);
    if (fstat(wal->lock_fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return br_err_set(err, BR_EINVAL,
                          "%s must be a file that belongs to the user of this process", path);
    if (flock(wal->lock_fd, LOCK_EX | LOCK_NB))
        return errno == EWOULDBLOCK
                   ? br_err_set(err, BR_EINVAL, "another process uses %s", config->directory)
                   : wal_fail(err, config, "lock", errno);
    return 0;
}

static int wal_open_directory(struct br_wal *wal, struct br_err *err)
{
    const struct br_wal_config *config = &wal->config;
    int rc = br_wal_check(config, err);
    if (rc)
        return rc;
    int error = config->create_directory ? wal_make_directories(config) : 0;
    if (error)
        return wal_fail(err, config, "create the directory", error);
    rc = wal_check_owner(config, err);
    if (rc)
        return rc;
    wal->directory_fd = open(config->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (wal->directory_fd < 0)
        return wal_fail(err, config, "open the directory", errno);
    return wal_take_lock(wal, err);
}

static void wal_close_fd(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

static void wal_free(struct br_wal *wal)
{
    for (uint32_t i = 0; i < wal->n_segments; i++)
        br_free(wal->segments[i].shares);
    br_free(wal->segments);
    br_ranges_release(&wal->deleted);
    br_wal_processing_close(wal);
    br_wal_marks_close(wal);
    br_wal_queues_free(wal);
    br_wal_close_segment(wal);
    br_free(wal->direct_room);
    wal_close_fd(wal->directory_fd);
    wal_close_fd(wal->lock_fd);
    (void)pthread_cond_destroy(&wal->finished);
    (void)pthread_mutex_destroy(&wal->lock);
    br_free((char *)(uintptr_t)wal->config.directory);
    br_free(wal);
}

/* Allocates the aligned buffer for direct writes. If memory is short, writes go to the page cache
 * instead. */
static void wal_make_direct(struct br_wal *wal)
{
    if (wal->config.sync != BR_WAL_ALWAYS)
        /* A direct write waits for the disk, so it is useful only if each write is synced
         * anyway. */
        return;
    wal->direct_room = br_malloc(WAL_DIRECT_BYTES + WAL_BLOCK + WAL_PADDING_MAX);
    uintptr_t at = (uintptr_t)wal->direct_room;
    if (!at)
        return;
    wal->direct = (uint8_t *)wal->direct_room + (WAL_BLOCK - at % WAL_BLOCK) % WAL_BLOCK;
    wal->padding = wal->direct + WAL_DIRECT_BYTES;
}

int br_wal_open(const struct br_wal_config *config, struct br_wal **ret, struct br_err *err)
{
    struct br_wal *wal = br_calloc(1, sizeof *wal);
    char *directory = br_strdup(config->directory);
    if (!wal || !directory) {
        br_free(wal);
        br_free(directory);
        return br_err_set(err, BR_ENOMEM, "out of memory");
    }
    wal->config = *config;
    wal->config.directory = directory;
    wal->fd = wal->direct_fd = wal->lock_fd = wal->directory_fd = -1;
    wal->next_segment = 1;
    br_list_init(&wal->jobs);
    br_list_init(&wal->queues);
    (void)pthread_mutex_init(&wal->lock, NULL);
    (void)pthread_cond_init(&wal->finished, NULL);
    wal_make_direct(wal);
    int rc = wal_open_directory(wal, err);
    if (!rc) {
        br_wal_processing_open(wal);
        br_wal_marks_open(wal);
        br_wal_reserve_make(wal);
        rc = br_wal_recover(wal, err);
    }
    if (rc) {
        wal_free(wal);
        return rc;
    }
    while (br_wal_has_unwritten(wal) && br_wal_sync(wal, false, NULL) == 0)
        ; /* writes all recovered marks to a segment, so that the file `marks` is empty */
    *ret = wal;
    return 0;
}

void br_wal_close(struct br_wal *wal)
{
    if (!wal)
        return;
    (void)br_wal_sync(wal, wal->config.sync != BR_WAL_OFF, NULL);
    wal_free(wal);
}

struct br_wal_stats br_wal_stats(struct br_wal *wal)
{
    (void)pthread_mutex_lock(&wal->lock);
    struct br_wal_stats stats = wal->stats;
    (void)pthread_mutex_unlock(&wal->lock);
    return stats;
}
