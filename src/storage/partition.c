/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/time.h"
#include "storage/internal.h"
#include "storage/tree.h"

#define NAME_MAX_LEN 64
#define NUMBERS_TRIED 1000
#define LOADS_MAX 2
/* nanoseconds after a check for damage during which the partition is not checked again */
#define CHECK_VALID_NS 60000000000
#define READERS_MAX 64u
#define READERS_MIN 4u
/* one reader is allowed for every DESCRIPTORS_A_READER file descriptors of the process's limit;
 * a reader uses three */
#define DESCRIPTORS_A_READER 12u

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

/* --- Totals and sizes ------------------------------------------------------------------------ */

int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err)
{
    sqlite3_stmt *statement = br_sql_statement(sql, BR_SQL_TOTALS);
    int rc = 0;
    if (!statement)
        return br_sql_fail(sql, err);
    if (!br_sql_row(sql, statement, &rc, err))
        return rc ? rc : br_err_set(err, BR_ENOTFOUND, "nothing was committed to it");
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
    return lstat(name, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static uint64_t store_partition_size(const char *path)
{
    return store_partition_file_size(path, "") + store_partition_file_size(path, "-wal");
}

/* --- Partitions in the list ------------------------------------------------------------------ */

static void store_partition_free(struct br_store_partition *partition)
{
    if (!partition)
        return;
    br_free(partition->path);
    br_free(partition);
}

static struct br_store_partition *store_partition_make(const struct br_store *store,
                                                       const struct br_store_file_name *name)
{
    struct br_store_partition *partition = br_calloc(1, sizeof *partition);
    size_t size = strlen(store->directory) + NAME_MAX_LEN;
    if (!partition)
        return NULL;
    br_list_init(&partition->link);
    br_list_init(&partition->idle);
    br_store_totals_init(&partition->totals);
    partition->refs = 1;
    partition->number = name->number;
    partition->path = br_malloc(size);
    if (!partition->path) {
        store_partition_free(partition);
        return NULL;
    }
    (void)snprintf(partition->path, size, "%s/partition-%08x" BR_PARTITION_SUFFIX "%s",
                   store->directory, name->number,
                   name->damaged ? BR_PARTITION_DAMAGED_SUFFIX : "");
    return partition;
}

static void store_reader_free(struct br_store_reader *reader)
{
    br_store_tree_free(reader->tree);
    br_sql_close(&reader->sql);
    br_free(reader);
}

/* Moves the idle readers of a partition to store->spare; store_unlock closes them. Called with
 * the lock held. */
static void store_partition_close_idle(struct br_store *store, struct br_store_partition *partition)
{
    struct br_list *link;
    while ((link = br_list_shift(&partition->idle))) {
        struct br_store_reader *reader = br_container_of(link, struct br_store_reader, link);
        store->idle_bytes -= br_store_tree_size(reader->tree);
        br_list_append(&store->spare, link);
        store->n_idle--;
        store->n_readers--;
    }
}

/* Unlocks the store, and then closes the readers in store->spare. Closing may wait for the disk,
 * and other threads must not wait for the lock meanwhile. */
static void store_unlock(struct br_store *store)
{
    struct br_list spare;
    struct br_list *link;
    br_list_init(&spare);
    while ((link = br_list_shift(&store->spare)))
        br_list_append(&spare, link);
    (void)pthread_mutex_unlock(&store->lock);
    while ((link = br_list_shift(&spare)))
        store_reader_free(br_container_of(link, struct br_store_reader, link));
}

void br_store_partition_close_idle(struct br_store *store, struct br_store_partition *partition)
{
    (void)pthread_mutex_lock(&store->lock);
    store_partition_close_idle(store, partition);
    store_unlock(store);
}

/* Releases a reference to a partition. Called with the lock held. */
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
    store_unlock(store);
}

static void store_partition_list(struct br_store *store, struct br_store_partition *partition)
{
    partition->bytes = store_partition_size(partition->path);
    partition->file = br_file_id_at(partition->path, "");
    (void)pthread_mutex_lock(&store->lock);
    br_list_append(&store->partitions, &partition->link);
    store->n_partitions++;
    store->last_number = partition->number;
    (void)pthread_mutex_unlock(&store->lock);
}

/* Removes a partition from the list. Called with the lock held. */
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

/* --- Creating and loading -------------------------------------------------------------------- */

/* Creates a partition file with the next unused number. SQLite gives the partition's other files
 * the same mode. */
static int store_partition_make_file(struct br_store *store, struct br_store_partition **ret,
                                     struct br_err *err)
{
    int rc = BR_EIO;
    for (int i = 0; i < NUMBERS_TRIED; i++) {
        struct br_store_file_name name = {++store->last_number, false};
        struct br_store_partition *partition = store_partition_make(store, &name);
        if (!partition)
            return br_err_set(err, BR_ENOMEM, "out of memory");
        int fd = open(partition->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0) {
            /* set the mode again, because the umask may have removed the owner's permissions */
            (void)fchmod(fd, 0600);
            (void)close(fd);
            *ret = partition;
            return 0;
        }
        int error = errno;
        rc = br_err_set(err, error == ENOSPC ? BR_EFULL : BR_EIO, "cannot create %s: %s",
                        partition->path, strerror(error));
        store_partition_free(partition);
        if (error != EEXIST)
            break;
    }
    return rc;
}

int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err)
{
    struct br_store_partition *partition = NULL;
    int rc = store_partition_make_file(store, &partition, err);
    if (rc)
        return rc;
    rc = br_sql_open(sql, partition->path, BR_SQL_CREATE, store->config.sync_full, err);
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

/* Reads the totals of a partition that an earlier process created. */
static int store_partition_read(const struct br_store_partition *partition,
                                struct br_store_totals *totals, bool *sealed, struct br_err *err)
{
    struct br_sql sql;
    int rc = br_sql_open(&sql, partition->path, BR_SQL_WRITE, false, err);
    if (rc)
        return rc;
    rc = br_store_totals_read(&sql, totals, err);
    if (rc == BR_ENOTFOUND && br_sql_has_rows(&sql))
        rc = br_err_set(err, BR_EUNSUPPORTED, "it contains data but no totals");
    *sealed = sql.version < BR_SQL_VERSION;
    br_sql_close(&sql);
    return rc;
}

static void store_partition_date_file(struct br_store_partition *partition)
{
    struct stat info;
    br_store_totals_any(&partition->totals);
    int64_t written = lstat(partition->path, &info) == 0
                          ? (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec
                          : br_sql_time(br_store_now_ns());
    partition->totals.created_ns = partition->totals.written_ns = written;
}

int br_store_partition_load(struct br_store *store, const struct br_store_file_name *name,
                            struct br_err *err)
{
    struct br_store_partition *partition = store_partition_make(store, name);
    struct br_err why = {0};
    int rc = 0;
    if (!partition)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    for (int i = 0; i < LOADS_MAX && !name->damaged; i++) {
        rc = store_partition_read(partition, &partition->totals, &partition->sealed, &why);
        if (!rc || rc == BR_ENOTFOUND)
            break;
    }
    if (rc == BR_ENOTFOUND) {
        br_warn(&store->log, "%s was removed: %s", partition->path, why.text);
        store_partition_unlink(partition->path);
        store_partition_free(partition);
        return 0;
    }
    if (rc || name->damaged)
        store_partition_date_file(partition);
    if (name->damaged)
        partition->state = BR_PARTITION_DAMAGED;
    else
        partition->state = rc ? BR_PARTITION_UNREAD : BR_PARTITION_READ;
    store_partition_list(store, partition);
    if (name->damaged)
        br_warn(&store->log,
                "%s is damaged: it is not read, and is deleted when it exceeds the retention",
                partition->path);
    else if (rc &&
             !(rc == BR_EPROTO && br_store_partition_check_damage(store, partition, why.text)))
        br_error(&store->log, "%s cannot be read: %s", partition->path, why.text);
    return 0;
}

/* --- Damaged, lost and unreadable partitions ------------------------------------------------- */

/* Renames a file. Fails if a file with the new name exists. */
static bool store_rename(const char *from, const char *into)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, into, RENAME_NOREPLACE) == 0)
        return true;
    /* Some file systems do not support RENAME_NOREPLACE. */
    return errno == EINVAL && access(into, F_OK) != 0 && rename(from, into) == 0;
}

static bool store_partition_rename(const char *path, const char *into)
{
    static const char *const beside[] = {"-wal", "-shm"};
    char from[4096], name[4096];
    if (!store_rename(path, into))
        return false;
    for (size_t i = 0; i < BR_COUNT(beside); i++) {
        (void)snprintf(from, sizeof from, "%s%s", path, beside[i]);
        (void)snprintf(name, sizeof name, "%s%s", into, beside[i]);
        (void)rename(from, name);
    }
    return true;
}

/* Renames the files of a partition to names with BR_PARTITION_DAMAGED_SUFFIX. If a file with the
 * partition's number has the suffix already, uses the next free number. Returns the partition of
 * the renamed file, or NULL. */
static struct br_store_partition *store_partition_rename_damaged(struct br_store *store,
                                                                 const char *path, uint32_t number)
{
    struct br_store_file_name name = {number, true};
    for (int i = 0; i < NUMBERS_TRIED; i++) {
        struct br_store_partition *damaged = store_partition_make(store, &name);
        if (!damaged || store_partition_rename(path, damaged->path))
            return damaged;
        int error = errno;
        store_partition_free(damaged);
        if (error != EEXIST)
            return NULL;
        name.number++;
    }
    return NULL;
}

/* Renames a damaged partition, and replaces it in the list by the renamed file. */
static void store_partition_set_aside(struct br_store *store, struct br_store_partition *partition,
                                      const char *why)
{
    (void)pthread_mutex_lock(&store->lock);
    bool listed = !partition->gone && !br_list_empty(&partition->link);
    struct br_store_partition *damaged =
        listed ? store_partition_rename_damaged(store, partition->path, partition->number) : NULL;
    if (damaged) {
        damaged->state = BR_PARTITION_DAMAGED;
        damaged->totals = partition->totals;
        damaged->aged_from_ns = partition->aged_from_ns;
        damaged->bytes = store_partition_size(damaged->path);
        damaged->file = br_file_id_at(damaged->path, "");
        br_list_append(&partition->link, &damaged->link);
        store->n_partitions++;
        store_partition_unlist(store, partition);
        br_error(&store->log, "%s is damaged and was renamed to %s: %s", partition->path,
                 damaged->path, why);
        store_partition_unref(store, partition);
    } else if (listed) {
        partition->state = BR_PARTITION_UNREAD;
        br_error(&store->log, "%s is damaged and cannot be renamed: %s", partition->path, why);
    }
    store_unlock(store);
}

bool br_store_partition_check_damage(struct br_store *store, struct br_store_partition *partition,
                                     const char *why)
{
    struct br_err proof = {0};
    int64_t now = store_boot_ns();
    (void)pthread_mutex_lock(&store->lock);
    bool gone = partition->gone,
         recent = partition->checked_ns && now - partition->checked_ns < CHECK_VALID_NS;
    if (!recent)
        partition->checked_ns = now; /* other queries then do not check the partition as well */
    (void)pthread_mutex_unlock(&store->lock);
    if (gone || recent)
        return gone;
    br_warn(&store->log, "%s may be damaged (%s) and is being checked", partition->path, why);
    int rc = br_sql_check_damage(partition->path, &proof);
    if (rc == BR_EPROTO)
        store_partition_set_aside(store, partition, proof.text);
    else if (rc)
        br_error(&store->log, "%s cannot be checked: %s", partition->path, proof.text);
    else
        br_info(&store->log, "%s is not damaged", partition->path);
    return rc == BR_EPROTO;
}

void br_store_partition_drop_lost(struct br_store *store, struct br_store_partition *partition)
{
    struct br_file_id file = br_file_id_at(partition->path, "");
    (void)pthread_mutex_lock(&store->lock);
    if (!partition->gone && !br_file_id_equal(partition->file, file)) {
        const struct br_store_totals *totals = &partition->totals;
        bool known = partition->state == BR_PARTITION_READ;
        br_error(&store->log,
                 "%s was deleted or replaced while it was in use: its %llu spans and %llu samples "
                 "are lost",
                 partition->path, known ? (unsigned long long)totals->n_spans : 0,
                 known ? (unsigned long long)totals->n_samples : 0);
        store_partition_unlist(store, partition);
        store_partition_unref(store, partition);
    }
    store_unlock(store);
}

/* Takes a reference to the partition at index `at` of the list and returns the partition. Copies
 * the fields of the partition to `*ret`. Returns NULL if `at` is beyond the end of the list. */
static struct br_store_partition *store_partition_at(struct br_store *store, uint32_t at,
                                                     struct br_store_partition *ret)
{
    struct br_list *link;
    (void)pthread_mutex_lock(&store->lock);
    for (link = store->partitions.next; at && link != &store->partitions; at--)
        link = link->next;
    struct br_store_partition *found =
        link == &store->partitions ? NULL : br_container_of(link, struct br_store_partition, link);
    if (found) {
        found->refs++;
        *ret = *found;
    }
    store_unlock(store);
    return found;
}

/* Tries again to read a partition, because its file may have been replaced. */
static void store_partition_retry(struct br_store *store, struct br_store_partition *partition)
{
    struct br_file_id file = br_file_id_at(partition->path, "");
    struct br_store_totals totals;
    struct br_err why = {0};
    bool sealed = false;
    int rc = store_partition_read(partition, &totals, &sealed, &why);
    if (rc == BR_EPROTO)
        (void)br_store_partition_check_damage(store, partition, why.text);
    (void)pthread_mutex_lock(&store->lock);
    partition->file = file;
    if (!rc) {
        partition->totals = totals;
        partition->sealed = true;
        partition->state = BR_PARTITION_READ;
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (!rc)
        br_info(&store->log, "%s can be read again", partition->path);
}

void br_store_check_partitions(struct br_store *store)
{
    struct br_store_partition *partition, known;
    for (uint32_t at = 0; (partition = store_partition_at(store, at, &known));) {
        struct br_file_id file = br_file_id_at(known.path, "");
        if (known.state == BR_PARTITION_UNREAD && file.ino)
            store_partition_retry(store, partition);
        else if (!br_file_id_equal(known.file, file))
            br_store_partition_drop_lost(store, partition);
        at += !br_store_partition_is_gone(store, partition);
        br_store_partition_put(store, partition);
    }
}

/* --- After a write --------------------------------------------------------------------------- */

void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition)
{
    uint64_t bytes = store_partition_size(partition->path);
    (void)pthread_mutex_lock(&store->lock);
    if (!partition->gone)
        partition->bytes = bytes;
    (void)pthread_mutex_unlock(&store->lock);
}

void br_store_partition_committed(struct br_store *store, struct br_store_partition *partition,
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
    char now[BR_RFC3339_SIZE], newest[BR_RFC3339_SIZE];
    br_warn(&store->log,
            "the clock is at %s but the newest data was written at %s: ages are counted from the "
            "earlier time, and nothing is removed because of its age now",
            br_rfc3339((uint64_t)now_ns, 0, now), br_rfc3339((uint64_t)newest_ns, 0, newest));
}

void br_store_partitions_date(struct br_store *store)
{
    int64_t now = br_sql_time(br_store_now_ns()), boot = store_boot_ns();
    int64_t max_age = br_sql_time(store->config.max_age_ns), newest = store_newest_written(store);
    if (br_list_empty(&store->partitions))
        return;
    if (max_age && (now < newest || now - newest > max_age)) {
        store_warn_of_clock(store, now, newest);
        now = now < newest ? now : newest;
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

/* Removes the oldest partition from the list if the partition exceeds the retention. Returns the
 * partition, whose reference now belongs to the caller. Returns NULL if no partition was
 * removed. */
static struct br_store_partition *store_unlist_expired(struct br_store *store,
                                                       const struct br_store_partition *spare)
{
    struct br_store_partition *oldest = NULL;
    uint64_t bytes = 0;
    (void)pthread_mutex_lock(&store->lock);
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next)
        bytes += br_container_of(link, struct br_store_partition, link)->bytes;
    if (!br_list_empty(&store->partitions))
        oldest = br_container_of(store->partitions.next, struct br_store_partition, link);
    if (oldest && (oldest == spare || !store_partition_is_over(store, oldest, bytes)))
        oldest = NULL;
    if (oldest) {
        oldest->expired = true;
        store_partition_unlist(store, oldest);
    }
    store_unlock(store);
    return oldest;
}

/* Deletes files without holding the lock, because deleting may wait for the disk. */
void br_store_expire(struct br_store *store, const struct br_store_partition *spare)
{
    struct br_store_partition *oldest;
    while ((oldest = store_unlist_expired(store, spare))) {
        /* If the partition's file was replaced, the new file belongs to another program, and is
         * not deleted. */
        if (br_file_id_equal(oldest->file, br_file_id_at(oldest->path, "")))
            store_partition_unlink(oldest->path);
        if (access(oldest->path, F_OK) == 0)
            br_warn(&store->log, "%s exceeds the retention and cannot be removed", oldest->path);
        else
            br_info(&store->log, "%s was removed: it exceeds the retention", oldest->path);
        br_store_partition_put(store, oldest);
    }
}

bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition)
{
    (void)pthread_mutex_lock(&store->lock);
    bool gone = partition->gone;
    (void)pthread_mutex_unlock(&store->lock);
    return gone;
}

bool br_store_partition_is_expired(struct br_store *store,
                                   const struct br_store_partition *partition)
{
    (void)pthread_mutex_lock(&store->lock);
    bool expired = partition->expired;
    (void)pthread_mutex_unlock(&store->lock);
    return expired;
}

/* --- Readers --------------------------------------------------------------------------------- */

unsigned br_store_readers_max(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur > READERS_MAX * DESCRIPTORS_A_READER)
        return READERS_MAX;
    unsigned max = (unsigned)limit.rlim_cur / DESCRIPTORS_A_READER;
    return max > READERS_MIN ? max : READERS_MIN;
}

bool br_store_readers_full(struct br_store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    bool full = store->n_readers - store->n_idle >= store->readers_max;
    (void)pthread_mutex_unlock(&store->lock);
    return full;
}

/* Finds an idle reader of the oldest partition that has one, because most queries read the
 * newest partition. If `stacks` is true, considers only readers that cache stacks. Called with
 * the lock held. */
static struct br_store_reader *store_reader_oldest(struct br_store *store, bool stacks)
{
    for (struct br_list *link = store->partitions.next; link != &store->partitions;
         link = link->next) {
        const struct br_store_partition *partition =
            br_container_of(link, struct br_store_partition, link);
        for (struct br_list *idle = partition->idle.next; idle != &partition->idle;
             idle = idle->next) {
            struct br_store_reader *reader = br_container_of(idle, struct br_store_reader, link);
            /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Branch): idle links have readers. */
            if (!stacks || reader->tree)
                return reader;
        }
    }
    return NULL;
}

/* If the limits on idle readers are exceeded, removes an idle reader and returns it. Returns
 * NULL if the limits are not exceeded. Called with the lock held. */
static struct br_store_reader *store_reader_spare(struct br_store *store)
{
    struct br_store_reader *reader = NULL;
    if (store->idle_bytes > BR_STORE_IDLE_BYTES)
        reader = store_reader_oldest(store, true);
    else if (store->n_idle > BR_STORE_IDLE_MAX ||
             (store->n_idle && store->n_readers > store->readers_max))
        reader = store_reader_oldest(store, false);
    if (!reader)
        return NULL;
    br_list_remove(&reader->link);
    store->n_idle--;
    store->n_readers--;
    store->idle_bytes -= br_store_tree_size(reader->tree);
    return reader;
}

static void store_readers_free(struct br_list *readers)
{
    struct br_list *link;
    while ((link = br_list_shift(readers)))
        store_reader_free(br_container_of(link, struct br_store_reader, link));
}

/* Opens a connection to a partition, and closes idle connections if there are too many. */
static int store_reader_open(struct br_store *store, const struct br_store_partition *partition,
                             struct br_store_reader **ret, struct br_err *err)
{
    struct br_store_reader *reader = br_calloc(1, sizeof *reader), *spare;
    struct br_list spares;
    if (!reader)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    br_list_init(&reader->link);
    br_list_init(&spares);
    (void)pthread_mutex_lock(&store->lock);
    store->n_readers++;
    while ((spare = store_reader_spare(store)))
        br_list_append(&spares, &spare->link);
    (void)pthread_mutex_unlock(&store->lock);
    store_readers_free(&spares);
    int rc = br_sql_open(&reader->sql, partition->path, BR_SQL_READ, false, err);
    if (!rc) {
        *ret = reader;
        return 0;
    }
    br_free(reader);
    (void)pthread_mutex_lock(&store->lock);
    store->n_readers--;
    (void)pthread_mutex_unlock(&store->lock);
    return rc;
}

int br_store_reader_acquire(struct br_store *store, struct br_store_partition *partition,
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
    return link ? 0 : store_reader_open(store, partition, ret, err);
}

void br_store_reader_release(struct br_store *store, struct br_store_partition *partition,
                             struct br_store_reader *reader)
{
    struct br_list spare;
    br_list_init(&spare);
    (void)pthread_mutex_lock(&store->lock);
    if (partition->gone) {
        br_list_append(&spare, &reader->link);
        store->n_readers--;
    } else {
        br_list_append(&partition->idle, &reader->link);
        store->n_idle++;
        store->idle_bytes += br_store_tree_size(reader->tree);
    }
    while ((reader = store_reader_spare(store)))
        br_list_append(&spare, &reader->link);
    (void)pthread_mutex_unlock(&store->lock);
    store_readers_free(&spare);
}

void br_store_partitions_close(struct br_store *store)
{
    struct br_list *link;
    (void)pthread_mutex_lock(&store->lock);
    while ((link = br_list_shift(&store->partitions)))
        store_partition_unref(store, br_container_of(link, struct br_store_partition, link));
    store->n_partitions = 0;
    store_unlock(store);
}
