/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "storage/internal.h"
#include "storage/tree.h"

#define NAME_MAX_LEN 64

uint64_t br_store_now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int64_t store_boot_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* --- What it says of itself ------------------------------------------------------------------ */

int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err)
{
    sqlite3_stmt *statement = br_sql_take(sql, BR_SQL_TOTALS);
    int rc = 0;
    if (!statement)
        return br_sql_fail(sql, err);
    if (!br_sql_row(sql, statement, &rc, err))
        return rc ? rc : br_err_set(err, BR_ENOTFOUND, "it has no totals");
    *ret = (struct br_store_totals){.created_ns = sqlite3_column_int64(statement, 0),
                                    .written_ns = sqlite3_column_int64(statement, 1),
                                    .secret = {(uint64_t)sqlite3_column_int64(statement, 2),
                                               (uint64_t)sqlite3_column_int64(statement, 3)},
                                    .n_spans = (uint64_t)sqlite3_column_int64(statement, 4),
                                    .n_samples = (uint64_t)sqlite3_column_int64(statement, 5),
                                    .span_from = sqlite3_column_int64(statement, 6),
                                    .span_until = sqlite3_column_int64(statement, 7),
                                    .sample_from = sqlite3_column_int64(statement, 8),
                                    .sample_until = sqlite3_column_int64(statement, 9)};
    (void)sqlite3_reset(statement);
    return 0;
}

static uint64_t store_partition_file_size(const char *path, const char *suffix)
{
    struct stat info;
    char name[4096];
    (void)snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static uint64_t store_partition_size(const char *path)
{
    return store_partition_file_size(path, "") + store_partition_file_size(path, "-wal");
}

/* --- Life ------------------------------------------------------------------------------------ */

static void store_partition_free(struct br_store_partition *partition)
{
    if (!partition)
        return;
    br_free(partition->path);
    br_free(partition);
}

static struct br_store_partition *store_partition_make(struct br_store *store, uint32_t number)
{
    struct br_store_partition *partition = br_calloc(1, sizeof *partition);
    size_t size = strlen(store->directory) + NAME_MAX_LEN;
    if (!partition)
        return NULL;
    br_list_init(&partition->link);
    br_list_init(&partition->idle);
    br_store_totals_init(&partition->totals);
    partition->refs = 1;
    partition->number = number;
    partition->path = br_malloc(size);
    if (!partition->path) {
        store_partition_free(partition);
        return NULL;
    }
    (void)snprintf(partition->path, size, "%s/partition-%08x.db", store->directory, number);
    return partition;
}

static void store_reader_free(struct br_store_reader *reader)
{
    br_store_tree_free(reader->tree);
    br_sql_close(&reader->sql);
    br_free(reader);
}

static void store_partition_close_idle(struct br_store *store, struct br_store_partition *partition)
{
    struct br_list *link;
    while ((link = br_list_shift(&partition->idle))) {
        struct br_store_reader *reader = br_container_of(link, struct br_store_reader, link);
        store->idle_bytes -= br_store_tree_size(reader->tree);
        store_reader_free(reader);
        store->n_idle--;
    }
}

/* With the lock held. */
static void store_partition_unref(struct br_store *store, struct br_store_partition *partition)
{
    if (--partition->refs)
        return;
    store_partition_close_idle(store, partition);
    store_partition_free(partition);
}

void br_store_partition_put(struct br_store *store, struct br_store_partition *partition)
{
    (void)pthread_mutex_lock(&store->lock);
    store_partition_unref(store, partition);
    (void)pthread_mutex_unlock(&store->lock);
}

static void store_partition_list(struct br_store *store, struct br_store_partition *partition)
{
    partition->bytes = store_partition_size(partition->path);
    (void)pthread_mutex_lock(&store->lock);
    br_list_append(&store->partitions, &partition->link);
    store->n_partitions++;
    if (partition->number > store->last_number)
        store->last_number = partition->number;
    (void)pthread_mutex_unlock(&store->lock);
}

/* With the lock held. */
static void store_partition_unlist(struct br_store *store, struct br_store_partition *partition)
{
    br_list_remove(&partition->link);
    store->n_partitions--;
    partition->gone = true;
    store_partition_close_idle(store, partition);
}

static void store_partition_unlink(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char name[4096];
    for (size_t i = 0; i < BR_COUNT(suffixes); i++) {
        (void)snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        (void)unlink(name);
    }
}

static void store_partition_rename_damaged(const char *path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char from[4096], into[4096 + 16];
    for (size_t i = 0; i < BR_COUNT(suffixes); i++) {
        (void)snprintf(from, sizeof from, "%s%s", path, suffixes[i]);
        (void)snprintf(into, sizeof into, "%s.damaged%s", path, suffixes[i]);
        (void)rename(from, into);
    }
}

int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err)
{
    struct br_store_partition *partition = store_partition_make(store, store->last_number + 1);
    if (!partition)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    /* What was begun under this name, and is not listed, holds nothing. The file is for us alone,
     * and SQLite gives those beside it the same mode. */
    store_partition_unlink(partition->path);
    int fd = br_file_open(partition->path, 0);
    if (fd >= 0)
        (void)close(fd);
    int rc = br_sql_open(sql, partition->path, BR_SQL_CREATE, store->config.sync_full, err);
    if (rc) {
        store_partition_unlink(partition->path);
        store_partition_free(partition);
        return rc;
    }
    partition->totals.created_ns = partition->totals.written_ns = br_sql_time(br_store_now_ns());
    partition->aged_from_ns = store_boot_ns();
    br_random_bytes(partition->totals.secret, sizeof partition->totals.secret);
    store_partition_list(store, partition);
    *ret = partition;
    return 0;
}

/* One that a process before made: 0, also where it held nothing and was removed. */
int br_store_partition_load(struct br_store *store, uint32_t number, struct br_err *err)
{
    struct br_store_partition *partition = store_partition_make(store, number);
    struct br_sql sql;
    if (!partition)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    struct br_err why = {0};
    int rc = br_sql_open(&sql, partition->path, BR_SQL_WRITE, false, &why);
    if (!rc) {
        rc = br_store_totals_read(&sql, &partition->totals, &why);
        partition->sealed = sql.version < BR_SQL_VERSION;
        br_sql_close(&sql);
    }
    if (!rc) {
        store_partition_list(store, partition);
        return 0;
    }
    if (rc == BR_EPROTO) {
        br_store_partition_set_aside(store, partition, why.text);
        rc = 0;
    } else if (rc == BR_ENOTFOUND) {
        store_partition_unlink(partition->path); /* nothing was ever committed to it */
        rc = 0;
    } else {
        rc = br_err_set(err, rc, "%s: %s", partition->path, why.text);
    }
    store_partition_free(partition);
    return rc;
}

void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition)
{
    uint64_t bytes = store_partition_size(partition->path);
    (void)pthread_mutex_lock(&store->lock);
    if (!partition->gone)
        partition->bytes = bytes;
    (void)pthread_mutex_unlock(&store->lock);
}

void br_store_partition_wrote(struct br_store *store, struct br_store_partition *partition,
                              const struct br_store_totals *totals, uint64_t n_shortened)
{
    uint64_t bytes = store_partition_size(partition->path);
    (void)pthread_mutex_lock(&store->lock);
    partition->totals = *totals;
    partition->aged_from_ns = store_boot_ns();
    partition->bytes = bytes;
    store->n_shortened += n_shortened;
    (void)pthread_mutex_unlock(&store->lock);
    atomic_fetch_add(&store->generation, 1);
}

void br_store_partition_set_aside(struct br_store *store, struct br_store_partition *partition,
                                  const char *why)
{
    (void)pthread_mutex_lock(&store->lock);
    bool gone = partition->gone, listed = !br_list_empty(&partition->link);
    if (listed && !gone)
        store_partition_unlist(store, partition);
    store->n_damaged += !gone;
    partition->gone = true;
    (void)pthread_mutex_unlock(&store->lock);
    if (gone)
        return;
    store_partition_rename_damaged(partition->path);
    br_error(&store->log, "%s is damaged and was renamed to %s.damaged: %s", partition->path,
             partition->path, why);
    if (listed)
        br_store_partition_put(store, partition);
}

/* --- Retention ------------------------------------------------------------------------------- */

static int64_t store_newest_written(const struct br_store *store)
{
    int64_t newest = INT64_MIN;
    for (const struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        const struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        if (partition->totals.written_ns > newest)
            newest = partition->totals.written_ns;
    }
    return newest;
}

static void store_warn_of_clock(const struct br_store *store, int64_t now_ns, int64_t newest_ns)
{
    char now[32] = "", newest[32] = "";
    time_t seconds[] = {now_ns / 1000000000, newest_ns / 1000000000};
    struct tm parts[2];
    (void)strftime(now, sizeof now, "%FT%TZ", gmtime_r(&seconds[0], &parts[0]));
    (void)strftime(newest, sizeof newest, "%FT%TZ", gmtime_r(&seconds[1], &parts[1]));
    br_warn(&store->log,
            "the clock is at %s, and the newest data was written at %s: ages are counted from the "
            "newest data, and nothing is removed for its age now",
            now, newest);
}

void br_store_partitions_date(struct br_store *store)
{
    int64_t now = br_sql_time(br_store_now_ns()), boot = store_boot_ns();
    int64_t max_age = br_sql_time(store->config.max_age_ns), newest = store_newest_written(store);
    if (br_list_empty(&store->partitions))
        return;
    if (max_age && (now < newest || now - newest > max_age)) {
        store_warn_of_clock(store, now, newest);
        now = newest;
    }
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        partition->aged_from_ns = boot - (now - partition->totals.written_ns);
    }
}

static bool store_partition_is_over(const struct br_store *store,
                                    const struct br_store_partition *oldest, uint64_t bytes)
{
    const struct br_store_config *config = &store->config;
    int64_t age = store_boot_ns() - oldest->aged_from_ns;
    return (config->max_bytes && bytes > config->max_bytes) ||
           (config->max_age_ns && age > 0 && (uint64_t)age > config->max_age_ns);
}

void br_store_expire(struct br_store *store, const struct br_store_partition *spare)
{
    (void)pthread_mutex_lock(&store->lock);
    while (!br_list_empty(&store->partitions)) {
        struct br_store_partition *oldest =
            br_container_of(store->partitions.next, struct br_store_partition, link);
        uint64_t bytes = 0;
        for (struct br_list *link = store->partitions.next; link != &store->partitions;
             link = link->next)
            bytes += br_container_of(link, struct br_store_partition, link)->bytes;
        if (oldest == spare || !store_partition_is_over(store, oldest, bytes))
            break;
        store_partition_unlist(store, oldest);
        store_partition_unlink(oldest->path);
        br_info(&store->log, "%s was removed: it is over the retention", oldest->path);
        store_partition_unref(store, oldest);
    }
    (void)pthread_mutex_unlock(&store->lock);
}

bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition)
{
    (void)pthread_mutex_lock(&store->lock);
    bool gone = partition->gone;
    (void)pthread_mutex_unlock(&store->lock);
    return gone;
}

/* --- Readers --------------------------------------------------------------------------------- */

int br_store_reader_take(struct br_store *store, struct br_store_partition *partition,
                         struct br_store_reader **ret, struct br_err *err)
{
    (void)pthread_mutex_lock(&store->lock);
    struct br_list *link = br_list_shift(&partition->idle);
    if (link) {
        *ret = br_container_of(link, struct br_store_reader, link);
        store->n_idle--;
        store->idle_bytes -= br_store_tree_size((*ret)->tree);
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (link)
        return 0;
    struct br_store_reader *reader = br_calloc(1, sizeof *reader);
    if (!reader)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_list_init(&reader->link);
    int rc = br_sql_open(&reader->sql, partition->path, BR_SQL_READ, false, err);
    if (rc) {
        br_free(reader);
        return rc;
    }
    *ret = reader;
    return 0;
}

/* Takes the reader of the oldest partition that has one, because queries are mostly about the
 * newest; with `stacks` only of those with stacks. With the lock held. */
static struct br_store_reader *store_reader_oldest(struct br_store *store, bool stacks)
{
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        const struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        for (struct br_list *idle = partition->idle.next; idle != &partition->idle;
             idle = idle->next) {
            struct br_store_reader *reader = br_container_of(idle, struct br_store_reader, link);
            if (!stacks || reader->tree)
                return reader;
        }
    }
    return NULL;
}

/* Takes a reader that is too much out of those that wait; NULL: none is. With the lock held. */
static struct br_store_reader *store_reader_spare(struct br_store *store)
{
    struct br_store_reader *reader = NULL;
    if (store->idle_bytes > BR_STORE_IDLE_BYTES)
        reader = store_reader_oldest(store, true);
    else if (store->n_idle > BR_STORE_IDLE_MAX)
        reader = store_reader_oldest(store, false);
    if (!reader)
        return NULL;
    br_list_remove(&reader->link);
    store->n_idle--;
    store->idle_bytes -= br_store_tree_size(reader->tree);
    return reader;
}

void br_store_reader_give(struct br_store *store, struct br_store_partition *partition,
                          struct br_store_reader *reader)
{
    struct br_list spare;
    struct br_list *link;
    br_list_init(&spare);
    (void)pthread_mutex_lock(&store->lock);
    if (partition->gone) {
        br_list_append(&spare, &reader->link);
    } else {
        br_list_append(&partition->idle, &reader->link);
        store->n_idle++;
        store->idle_bytes += br_store_tree_size(reader->tree);
    }
    while ((reader = store_reader_spare(store)))
        br_list_append(&spare, &reader->link);
    (void)pthread_mutex_unlock(&store->lock);
    while ((link = br_list_shift(&spare)))
        store_reader_free(br_container_of(link, struct br_store_reader, link));
}

void br_store_partitions_close(struct br_store *store)
{
    struct br_list *link;
    (void)pthread_mutex_lock(&store->lock);
    while ((link = br_list_shift(&store->partitions)))
        store_partition_unref(store, br_container_of(link, struct br_store_partition, link));
    store->n_partitions = 0;
    (void)pthread_mutex_unlock(&store->lock);
}
