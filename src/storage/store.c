/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "core/shared.h"
#include "storage/internal.h"

#define PATH_LEN 3072
#define PARTITIONS_MAX 100000

/* --- Life ------------------------------------------------------------------------------------ */

static void *store_make(const void *arg)
{
    (void)arg;
    br_sql_setup();
    struct br_store *store = br_calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->lock_fd = -1;
    br_list_init(&store->partitions);
    if (pthread_mutex_init(&store->lock, NULL) != 0) {
        br_free(store);
        return NULL;
    }
    if (pthread_mutex_init(&store->writing, NULL) != 0) {
        (void)pthread_mutex_destroy(&store->lock);
        br_free(store);
        return NULL;
    }
    return store;
}

static void store_close(struct br_store *store)
{
    atomic_store(&store->open, false);
    br_store_writer_free(store->writer);
    store->writer = NULL;
    br_store_partitions_close(store);
    if (store->lock_fd >= 0)
        (void)close(store->lock_fd);
    store->lock_fd = -1;
    br_free(store->directory);
    store->directory = NULL;
}

static void store_release(void *thing)
{
    struct br_store *store = thing;
    store_close(store);
    (void)pthread_mutex_destroy(&store->lock);
    (void)pthread_mutex_destroy(&store->writing);
    br_free(store);
}

struct br_store *br_store_get(struct br_host *host, const char *id)
{
    char name[256];
    (void)snprintf(name, sizeof name, "store/%s", id);
    return br_shared_get(host, name, store_make, NULL);
}

void br_store_put(struct br_host *host, struct br_store *store)
{
    br_shared_put(host, store, store_release);
}

/* --- The folder ------------------------------------------------------------------------------ */

/* Also what is above it. */
static int store_make_folder(const char *directory, struct br_err *err)
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
            return br_err_set(err, error == ENOSPC ? BR_EFULL : BR_EIO, "cannot make %s: %s", path,
                              strerror(error));
    }
    return 0;
}

static int store_lock(struct br_store *store, struct br_err *err)
{
    char path[PATH_LEN + 16], text[32] = "";
    (void)snprintf(path, sizeof path, "%s/lock", store->directory);
    int fd = br_file_open(path, 0);
    if (fd < 0)
        return br_err_set(err, BR_EIO, "cannot open %s: %s", path, strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int reader = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = reader < 0 ? 0 : read(reader, text, sizeof text - 1);
        if (reader >= 0)
            (void)close(reader);
        (void)close(fd);
        text[len > 0 ? strcspn(text, "\n") : 0] = '\0';
        return br_err_set(err, BR_EINVAL, "%s is in use by process %s", store->directory,
                          *text ? text : "(unknown)");
    }
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)len, 0) != len)
        br_warn(&store->log, "cannot write %s: %s", path, strerror(errno));
    store->lock_fd = fd;
    return 0;
}

static int store_compare_numbers(const void *left, const void *right)
{
    uint32_t first = *(const uint32_t *)left, second = *(const uint32_t *)right;
    return (first > second) - (first < second);
}

bool br_store_default_directory(char *ret, size_t size)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int len = data && *data == '/' ? snprintf(ret, size, "%s/braid", data)
              : home && *home      ? snprintf(ret, size, "%s/.local/share/braid", home)
                                   : -1;
    return len > 0 && (size_t)len < size;
}

bool br_store_number_of(const char *name, uint32_t *ret)
{
    static const char before[] = "partition-", after[] = ".db";
    const size_t digits = 8, len = sizeof before - 1;
    uint8_t bytes[4];
    if (strlen(name) != len + digits + sizeof after - 1 || strncmp(name, before, len) != 0 ||
        strcmp(name + len + digits, after) != 0 ||
        br_hex_decode(name + len, digits, bytes, sizeof bytes) != sizeof bytes)
        return false;
    *ret = (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
    return true;
}

static int store_find(struct br_store *store, uint32_t **ret, uint32_t *ret_count,
                      struct br_err *err)
{
    uint32_t *numbers = NULL, count = 0, cap = 0, number;
    DIR *folder = opendir(store->directory);
    int rc = 0;
    if (!folder)
        return br_err_set(err, BR_EIO, "cannot read %s: %s", store->directory, strerror(errno));
    for (struct dirent *entry; !rc && (entry = readdir(folder));) {
        /* What a process that was killed was saving. */
        if (strncmp(entry->d_name, BR_SLICE_SCRATCH ".", sizeof BR_SLICE_SCRATCH) == 0)
            (void)unlinkat(dirfd(folder), entry->d_name, 0);
        if (!br_store_number_of(entry->d_name, &number))
            continue;
        rc = br_grow(&numbers, &cap, (size_t)count + 1, sizeof *numbers, PARTITIONS_MAX);
        if (!rc)
            numbers[count++] = number;
    }
    (void)closedir(folder);
    if (rc) {
        br_free(numbers);
        return br_err_set(err, rc, "%s has too many partitions", store->directory);
    }
    if (count)
        qsort(numbers, count, sizeof *numbers, store_compare_numbers);
    *ret = numbers;
    *ret_count = count;
    return 0;
}

static int store_load(struct br_store *store, struct br_err *err)
{
    uint32_t *numbers = NULL, count = 0;
    int rc = store_find(store, &numbers, &count, err);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = br_store_partition_load(store, numbers[i], err);
    br_free(numbers);
    return rc == BR_EUNSUPPORTED ? BR_EINVAL : rc;
}

static int store_open(struct br_store *store, const struct br_store_config *config,
                      const struct br_log *log, struct br_err *err)
{
    int rc = store_make_folder(config->directory, err);
    if (rc)
        return rc;
    store->config = *config;
    store->log = log ? *log : (struct br_log){.name = NULL};
    store->directory = br_strdup(config->directory);
    if (!store->directory)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    store->config.directory = store->directory;
    rc = store_lock(store, err);
    if (!rc)
        rc = store_load(store, err);
    if (!rc && !(store->writer = br_store_writer_new(store)))
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    if (rc) {
        store_close(store);
    } else {
        br_store_partitions_date(store);
        br_store_expire(store, NULL);
    }
    return rc;
}

int br_store_open(struct br_store *store, const struct br_store_config *config,
                  const struct br_log *log, struct br_err *err)
{
    int rc = 0;
    (void)pthread_mutex_lock(&store->writing);
    if (!atomic_load(&store->open)) {
        rc = store_open(store, config, log, err);
        atomic_store(&store->open, rc == 0);
    }
    (void)pthread_mutex_unlock(&store->writing);
    return rc;
}

bool br_store_is_open(const struct br_store *store)
{
    return atomic_load(&store->open);
}

/* --- What it holds --------------------------------------------------------------------------- */

static void store_widen(struct br_store_range *range, int64_t from, int64_t until)
{
    if (from > until)
        return;
    uint64_t oldest = from > 0 ? (uint64_t)from : 0, newest = until > 0 ? (uint64_t)until : 0;
    if (!range->oldest_ns || oldest < range->oldest_ns)
        range->oldest_ns = oldest;
    if (newest > range->newest_ns)
        range->newest_ns = newest;
}

void br_store_usage(struct br_store *store, struct br_store_usage *ret)
{
    struct br_store_usage usage = {.max_bytes = store->config.max_bytes};
    (void)pthread_mutex_lock(&store->lock);
    usage.n_partitions = store->n_partitions;
    usage.n_damaged = store->n_damaged;
    usage.n_shortened = store->n_shortened;
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        const struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        usage.bytes += partition->bytes;
        usage.n_spans += partition->totals.n_spans;
        usage.n_samples += partition->totals.n_samples;
        store_widen(&usage.spans, partition->totals.span_from, partition->totals.span_until);
        store_widen(&usage.samples, partition->totals.sample_from, partition->totals.sample_until);
    }
    (void)pthread_mutex_unlock(&store->lock);
    *ret = usage;
}

uint64_t br_store_generation(const struct br_store *store)
{
    return atomic_load(&store->generation);
}
