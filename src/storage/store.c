/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/shared.h"
#include "storage/internal.h"

/* --- Creating and freeing -------------------------------------------------------------------- */

static void *store_make(const void *arg)
{
    (void)arg;
    br_sql_setup();
    struct br_store *store = br_calloc(1, sizeof *store);
    if (!store)
        return NULL;
    store->dir = BR_STORE_DIR_NONE;
    br_list_init(&store->partitions);
    br_list_init(&store->spare);
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
    br_store_unlock_directory(store);
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

/* --- Opening --------------------------------------------------------------------------------- */

bool br_store_default_directory(char *ret, size_t size)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int len = -1;
    if (data && *data == '/')
        len = snprintf(ret, size, "%s/braid", data);
    else if (home && *home)
        len = snprintf(ret, size, "%s/.local/share/braid", home);
    return len > 0 && (size_t)len < size;
}

static int store_load(struct br_store *store, struct br_err *err)
{
    struct br_store_file_name *names = NULL;
    uint32_t count = 0;
    int rc = br_store_list_files(store, &names, &count, err);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = br_store_partition_load(store, &names[i], err);
    br_free(names);
    return rc;
}

static int store_open(struct br_store *store, const struct br_store_config *config,
                      const struct br_log *log, struct br_err *err)
{
    int rc = 0;
    store->config = *config;
    store->log = log ? *log : (struct br_log){.name = NULL};
    store->directory = br_strdup(config->directory);
    if (!store->directory)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    store->config.directory = store->directory;
    store->readers_max = br_store_readers_max();
    rc = br_store_lock_directory(store, err);
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

/* --- Usage ----------------------------------------------------------------------------------- */

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
    usage.n_shortened = store->n_shortened;
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        const struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        usage.bytes += partition->bytes;
        usage.n_damaged += partition->state == BR_PARTITION_DAMAGED;
        usage.n_unread += partition->state == BR_PARTITION_UNREAD;
        if (partition->state != BR_PARTITION_READ)
            continue;
        usage.n_partitions++;
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
