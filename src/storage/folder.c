/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "storage/internal.h"

#define PATH_LEN 3072
#define PARTITIONS_MAX 100000

/* --- Identity -------------------------------------------------------------------------------- */

static struct br_file_id folder_id(const struct stat *info)
{
    return (struct br_file_id){.dev = info->st_dev, .ino = info->st_ino};
}

struct br_file_id br_file_id_at(const char *path, const char *suffix)
{
    struct stat info;
    char name[4096];
    if ((size_t)snprintf(name, sizeof name, "%s%s", path, suffix) >= sizeof name ||
        lstat(name, &info) != 0)
        return (struct br_file_id){.unknown = errno != ENOENT && errno != ENOTDIR};
    return folder_id(&info);
}

static struct br_file_id folder_id_of(int fd)
{
    struct stat info;
    return fd >= 0 && fstat(fd, &info) == 0 ? folder_id(&info) : (struct br_file_id){.ino = 0};
}

/* --- Locking --------------------------------------------------------------------------------- */

/* Creates the directory and its parents. */
static int folder_create(const char *directory, struct br_err *err)
{
    char path[PATH_LEN];
    size_t len = strlen(directory);
    if (!len || len >= sizeof path)
        return br_err_set(err, BR_EINVAL, "the path must have 1 to %d bytes", PATH_LEN - 1);
    for (size_t i = 1; i <= len; i++) {
        if (directory[i] != '/' && directory[i] != '\0')
            continue;
        memcpy(path, directory, i);
        path[i] = '\0';
        int error = access(path, F_OK) == 0 ? 0 : br_folder_make(path, 0700);
        if (error)
            return br_err_set(err, error == ENOSPC ? BR_EFULL : BR_EIO, "cannot create %s: %s",
                              path, strerror(error));
    }
    return 0;
}

static int folder_in_use(const struct br_store *store, const char *path, struct br_err *err)
{
    char text[32] = "";
    int reader = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = reader < 0 ? 0 : read(reader, text, sizeof text - 1);
    if (reader >= 0)
        (void)close(reader);
    text[len > 0 ? strcspn(text, "\n") : 0] = '\0';
    return br_err_set(err, BR_EINVAL, "%s is in use by process %s", store->directory,
                      *text ? text : "(unknown)");
}

/* Locks the directory itself, in addition to the file `lock`, because a lock file can be
 * deleted. Only EWOULDBLOCK counts as an error of flock, because some file systems cannot lock
 * directories. */
static int folder_lock(struct br_store *store, const char *lock_path, struct br_err *err)
{
    struct br_store_dir *dir = &store->dir;
    if (dir->fd >= 0)
        return 0;
    int fd = open(store->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot open %s: %s", store->directory, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        (void)close(fd);
        return folder_in_use(store, lock_path, err);
    }
    dir->fd = fd;
    return 0;
}

static int folder_lock_file(struct br_store *store, const char *path, struct br_err *err)
{
    char text[32];
    int fd = br_file_open(path, 0);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        (void)close(fd);
        return folder_in_use(store, path, err);
    }
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len)
        br_warn(&store->log, "cannot write %s: %s", path, strerror(errno));
    store->dir.lock_fd = fd;
    return 0;
}

static void folder_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

void br_store_unlock_directory(struct br_store *store)
{
    folder_close(&store->dir.fd);
    folder_close(&store->dir.lock_fd);
}

static bool folder_is_locked(const struct br_store *store)
{
    const struct br_store_dir *dir = &store->dir;
    return br_file_id_equal(br_file_id_at(store->directory, "/."), folder_id_of(dir->fd)) &&
           br_file_id_equal(br_file_id_at(store->directory, "/lock"), folder_id_of(dir->lock_fd));
}

int br_store_lock_directory(struct br_store *store, struct br_err *err)
{
    struct br_store_dir *dir = &store->dir;
    char path[PATH_LEN + 16];
    if (dir->fd >= 0 && dir->lock_fd >= 0 && folder_is_locked(store))
        return 0;
    bool again = dir->fd >= 0;
    if (again)
        br_warn(&store->log, "%s or its lock was deleted or replaced while it was in use",
                store->directory);
    if (!br_file_id_equal(br_file_id_at(store->directory, "/."), folder_id_of(dir->fd)))
        folder_close(&dir->fd);
    folder_close(&dir->lock_fd);
    int rc = folder_create(store->directory, err);
    (void)snprintf(path, sizeof path, "%s/lock", store->directory);
    if (!rc)
        rc = folder_lock(store, path, err);
    if (!rc)
        rc = folder_lock_file(store, path, err);
    if (rc && !again)
        br_store_unlock_directory(store);
    return rc;
}

/* --- Listing --------------------------------------------------------------------------------- */

bool br_store_parse_number(const char *name, uint32_t *ret)
{
    static const char before[] = "partition-", after[] = BR_PARTITION_SUFFIX;
    const size_t digits = 8, len = sizeof before - 1;
    uint8_t bytes[4];
    if (strlen(name) != len + digits + sizeof after - 1 || !br_text_starts(name, before) ||
        strcmp(name + len + digits, after) != 0 ||
        strspn(name + len, "0123456789abcdef") < digits ||
        br_hex_decode(name + len, digits, bytes, sizeof bytes) != sizeof bytes)
        return false;
    *ret = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return true;
}

bool br_store_parse_name(const char *name, struct br_store_file_name *ret)
{
    char text[64];
    size_t len = strlen(name), tail = strlen(BR_PARTITION_DAMAGED_SUFFIX);
    ret->damaged = len > tail && strcmp(name + len - tail, BR_PARTITION_DAMAGED_SUFFIX) == 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)(ret->damaged ? len - tail : len), name);
    return len < sizeof text && br_store_parse_number(text, &ret->number);
}

static int folder_compare(const void *left, const void *right)
{
    const struct br_store_file_name *first = left, *second = right;
    if (first->number != second->number)
        return first->number > second->number ? 1 : -1;
    return second->damaged - first->damaged;
}

/* Sorts partitions by age. The numbers of partitions wrap around, so the oldest partition is the
 * first partition after the widest gap between numbers. */
static void folder_sort(struct br_store_file_name *names, uint32_t count,
                        struct br_store_file_name *scratch)
{
    uint32_t first = 0, widest = 0;
    qsort(names, count, sizeof *names, folder_compare);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t gap = names[i].number - names[(i + count - 1) % count].number;
        if (gap > widest) {
            widest = gap;
            first = i;
        }
    }
    memcpy(scratch, names, count * sizeof *names);
    for (uint32_t i = 0; i < count; i++)
        names[i] = scratch[(first + i) % count];
}

/* Returns true for a temporary file of an earlier process: the file in which the process made a
 * slice (mkstemp), or the journal of that file. */
static bool folder_is_scratch(const char *name)
{
    static const char before[] = BR_SLICE_SCRATCH ".";
    const size_t random = 6;
    if (!br_text_starts(name, before))
        return false;
    name += sizeof before - 1;
    for (size_t i = 0; i < random; i++)
        if (!isalnum((unsigned char)name[i]))
            return false;
    return name[random] == '\0' || strcmp(name + random, "-journal") == 0;
}

int br_store_list_files(struct br_store *store, struct br_store_file_name **ret,
                        uint32_t *ret_count, struct br_err *err)
{
    struct br_store_file_name *names = NULL, name;
    uint32_t count = 0, cap = 0;
    DIR *dir = opendir(store->directory);
    int rc = 0;
    if (!dir)
        return br_err_set(err, BR_EIO, "cannot read %s: %s", store->directory, strerror(errno));
    for (struct dirent *entry; !rc && (entry = readdir(dir));) {
        if (folder_is_scratch(entry->d_name))
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
        if (!br_store_parse_name(entry->d_name, &name))
            continue;
        /* The second half of the array is scratch space for sorting. */
        rc = br_grow(&names, &cap, 2 * (size_t)count + 2, sizeof *names, 2 * PARTITIONS_MAX);
        if (!rc)
            names[count++] = name;
    }
    (void)closedir(dir);
    if (rc) {
        br_free(names);
        return br_err_set(err, rc, "%s has too many partitions", store->directory);
    }
    if (count)
        folder_sort(names, count, names + count);
    *ret = names;
    *ret_count = count;
    return 0;
}
