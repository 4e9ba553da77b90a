/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "storage/blocks.h"
#include "storage/chunks.h"
#include "storage/internal.h"

#define SAMPLES_A_ROW 10u
/* a partition is sealed (no more data is written to it) when its size reaches max_bytes divided by
 * PARTITIONS_LEAST */
#define PARTITIONS_LEAST 8u
#define TRIES_MAX 3
/* number of consecutive failed writes after which items are written to the next partition */
#define FAILURES_MAX 8

struct br_store_writer {
    struct br_store *store;
    struct br_store_partition *partition; /* the open partition; NULL: no partition is open */
    /* identities of the database file and of its write-ahead log, taken at the first transaction */
    struct br_file_id file, log;
    unsigned n_failures; /* number of consecutive failed writes */
    struct br_sql sql;
    struct br_pack_codec codec;
    struct br_store_totals totals; /* totals of the open partition, including uncommitted data */
    struct br_blocks *blocks;
    struct br_chunks *chunks;
};

struct br_store_writer *br_store_writer_new(struct br_store *store)
{
    struct br_store_writer *writer = br_calloc(1, sizeof *writer);
    if (!writer)
        return NULL;
    writer->store = store;
    writer->blocks = br_blocks_new(&writer->sql, &writer->totals, &writer->codec);
    writer->chunks = br_chunks_new(&writer->sql, &writer->totals, &writer->codec);
    if (writer->blocks && writer->chunks)
        return writer;
    br_store_writer_free(writer);
    return NULL;
}

/* Closes the open partition, which stays in the list. If the partition is not sealed, the next
 * write opens it again. */
static void writer_close(struct br_store_writer *writer)
{
    br_sql_close(&writer->sql);
    if (writer->partition) {
        br_store_partition_measure(writer->store, writer->partition);
        br_store_partition_put(writer->store, writer->partition);
    }
    writer->partition = NULL;
    writer->file = writer->log = (struct br_file_id){.ino = 0};
}

void br_store_writer_free(struct br_store_writer *writer)
{
    if (!writer)
        return;
    writer_close(writer);
    br_blocks_free(writer->blocks);
    br_chunks_free(writer->chunks);
    br_pack_codec_release(&writer->codec);
    br_free(writer);
}

/* --- The open partition ---------------------------------------------------------------------- */

static bool writer_is_full(const struct br_store *store, const struct br_store_partition *partition)
{
    const struct br_store_config *config = &store->config;
    const struct br_store_totals *totals = &partition->totals;
    uint64_t rows = totals->n_spans + totals->n_samples / SAMPLES_A_ROW;
    uint64_t now = br_store_now_ns(), created = (uint64_t)totals->created_ns;
    if (config->partition_rows && rows >= config->partition_rows)
        return true;
    if (config->partition_age_ns && now > created && now - created >= config->partition_age_ns)
        return true;
    return config->max_bytes && partition->bytes >= config->max_bytes / PARTITIONS_LEAST;
}

/* Takes a reference to the newest partition and returns the partition. Returns NULL if the list
 * is empty, or if no more data can be written to the newest partition. */
static struct br_store_partition *writer_newest(struct br_store *store)
{
    struct br_store_partition *partition = NULL;
    (void)pthread_mutex_lock(&store->lock);
    if (!br_list_empty(&store->partitions))
        partition = br_container_of(store->partitions.prev, struct br_store_partition, link);
    if (partition && (partition->state != BR_PARTITION_READ || partition->sealed ||
                      writer_is_full(store, partition)))
        partition = NULL;
    if (partition)
        partition->refs++;
    (void)pthread_mutex_unlock(&store->lock);
    return partition;
}

static int writer_begin_new(struct br_store_writer *writer, struct br_err *err)
{
    struct br_store *store = writer->store;
    int rc = br_store_partition_new(store, &writer->sql, &writer->partition, err);
    if (rc)
        return rc;
    (void)pthread_mutex_lock(&store->lock);
    writer->partition->refs++;
    writer->totals = writer->partition->totals;
    (void)pthread_mutex_unlock(&store->lock);
    return 0;
}

static int writer_open(struct br_store_writer *writer, struct br_err *err)
{
    int rc;
    writer->partition = writer_newest(writer->store);
    if (writer->partition) {
        rc = br_sql_open(&writer->sql, writer->partition->path, BR_SQL_WRITE,
                         writer->store->config.sync_full, err);
        if (!rc)
            rc = br_store_totals_read(&writer->sql, &writer->totals, err);
        /* The partition was created earlier, but no data has been committed to it. */
        if (rc == BR_ENOTFOUND && writer->sql.db && !writer->partition->totals.n_spans &&
            !writer->partition->totals.n_samples) {
            writer->totals = writer->partition->totals;
            rc = 0;
        }
    } else {
        rc = writer_begin_new(writer, err);
    }
    if (!rc)
        rc = br_blocks_load(writer->blocks, err);
    if (!rc)
        rc = br_chunks_load(writer->chunks, err);
    return rc;
}

static void writer_seal(struct br_store_writer *writer)
{
    (void)pthread_mutex_lock(&writer->store->lock);
    writer->partition->sealed = true;
    (void)pthread_mutex_unlock(&writer->store->lock);
}

/* Seals the open partition if it contains a large part of the names, series or stacks that fit
 * into one partition. Returns true if the partition was sealed. */
static bool writer_seal_if_near_limit(struct br_store_writer *writer)
{
    if (!br_blocks_full(writer->blocks) && !br_chunks_full(writer->chunks))
        return false;
    writer_seal(writer);
    return true;
}

/* Closes the open partition if it is full. */
static void writer_rotate(struct br_store_writer *writer)
{
    struct br_store *store = writer->store;
    if (!writer->partition)
        return;
    (void)pthread_mutex_lock(&store->lock);
    bool full = writer->partition->gone || writer_is_full(store, writer->partition);
    (void)pthread_mutex_unlock(&store->lock);
    if (writer_seal_if_near_limit(writer) || full)
        writer_close(writer);
}

/* --- A transaction --------------------------------------------------------------------------- */

static int writer_put_totals(struct br_store_writer *writer, struct br_err *err)
{
    sqlite3_stmt *statement = br_sql_statement(&writer->sql, BR_SQL_TOTALS_SET);
    struct br_store_totals *totals = &writer->totals;
    totals->written_ns = br_sql_time(br_store_now_ns());
    int64_t row[] = {totals->created_ns,         totals->written_ns,
                     (int64_t)totals->secret[0], (int64_t)totals->secret[1],
                     (int64_t)totals->n_spans,   (int64_t)totals->n_samples,
                     totals->span_from,          totals->span_until,
                     totals->sample_from,        totals->sample_until};
    for (int i = 0; statement && i < (int)BR_COUNT(row); i++)
        (void)sqlite3_bind_int64(statement, i + 1, row[i]);
    return br_sql_run(&writer->sql, statement, err);
}

static int writer_put(struct br_store_writer *writer, const struct br_item *const *items,
                      size_t n_items, struct br_err *err)
{
    br_sql_restore_index(&writer->sql);
    int rc = br_sql_run(&writer->sql, br_sql_statement(&writer->sql, BR_SQL_BEGIN), err);
    if (!rc && !writer->file.ino) {
        writer->file = br_file_id_at(writer->partition->path, "");
        writer->log = br_file_id_at(writer->partition->path, "-wal");
    }
    for (size_t i = 0; i < n_items && !rc; i++)
        rc = items[i]->signal == BR_TRACES ? br_blocks_add(writer->blocks, items[i], err)
                                           : br_chunks_add(writer->chunks, items[i], err);
    if (!rc)
        rc = br_blocks_flush(writer->blocks, err);
    if (!rc)
        rc = br_chunks_flush(writer->chunks, err);
    if (!rc)
        rc = writer_put_totals(writer, err);
    if (!rc)
        rc = br_sql_run(&writer->sql, br_sql_statement(&writer->sql, BR_SQL_COMMIT), err);
    return rc;
}

/* Closes the database: SQLite then copies the write-ahead log into the database file, even if
 * the log's file was deleted. Returns true if the database afterwards contains all committed
 * data. */
static bool writer_is_committed(struct br_store_writer *writer)
{
    struct br_store_totals found = {0};
    struct br_sql sql;
    br_store_partition_close_idle(writer->store, writer->partition);
    br_sql_close(&writer->sql);
    if (br_sql_open(&sql, writer->partition->path, BR_SQL_READ, false, NULL))
        return false;
    int rc = br_store_totals_read(&sql, &found, NULL);
    br_sql_close(&sql);
    return !rc && found.n_spans == writer->totals.n_spans &&
           found.n_samples == writer->totals.n_samples;
}

/* Checks that the open files are still at their paths. Writing to a file that was deleted or
 * replaced would succeed, but the data would be lost. */
static int writer_check_files(struct br_store_writer *writer, struct br_err *err)
{
    const char *path = writer->partition->path;
    if (!br_file_id_equal(br_file_id_at(path, ""), writer->file))
        return br_err_set(err, BR_ENOTFOUND, "%s was deleted or replaced while it was written",
                          path);
    if (br_file_id_equal(br_file_id_at(path, "-wal"), writer->log) || writer_is_committed(writer))
        return 0;
    return br_err_set(err, BR_EIO, "%s-wal was deleted or replaced while it was written", path);
}

/* Writes items into the open partition. Opens a partition first if no partition is open. Sets
 * `*had_data` to true if the partition contained data before. */
static int writer_write(struct br_store_writer *writer, const struct br_item *const *items,
                        size_t n_items, bool *had_data, struct br_err *err)
{
    int rc = writer->partition ? 0 : writer_open(writer, err);
    *had_data = writer->totals.n_spans || writer->totals.n_samples;
    if (!rc)
        rc = writer_put(writer, items, n_items, err);
    return rc ? rc : writer_check_files(writer, err);
}

/* Returns true if the next partition may accept the items: the open partition is damaged, was
 * deleted, cannot be opened, failed repeatedly, or had no room for the names in the items. */
static bool writer_may_retry(struct br_store_writer *writer, int rc, bool had_data, const char *why)
{
    bool opened = writer->file.ino;
    if (!writer->partition || rc == BR_ENOMEM || rc == BR_EFULL)
        return false;
    if (rc == BR_EINVAL)
        return had_data && writer_seal_if_near_limit(writer);
    if (rc == BR_ENOTFOUND)
        br_store_partition_drop_lost(writer->store, writer->partition);
    else if (rc != BR_EPROTO && opened && ++writer->n_failures < FAILURES_MAX)
        return false;
    if (rc == BR_EPROTO) {
        br_sql_close(&writer->sql);
        (void)br_store_partition_check_damage(writer->store, writer->partition, why);
    }
    writer->n_failures = 0;
    /* seal the partition even if its file is not damaged: the data that was read from it was
     * damaged */
    writer_seal(writer);
    return true;
}

/* Writes items. After a failure, closes the partition, because its state in memory is uncertain.
 * Sets `*again` to true if another partition may accept the items. */
static int writer_try(struct br_store_writer *writer, const struct br_item *const *items,
                      size_t n_items, bool *again, struct br_err *err)
{
    bool had_data;
    *again = false;
    writer_rotate(writer);
    int rc = writer_write(writer, items, n_items, &had_data, err);
    if (!rc) {
        writer->n_failures = 0;
        br_store_partition_committed(writer->store, writer->partition, &writer->totals,
                                     br_chunks_take_shortened(writer->chunks));
        if (!writer->sql.db)
            writer_close(writer);
        return 0;
    }
    *again = writer_may_retry(writer, rc, had_data, err->text);
    writer_close(writer);
    return rc;
}

int br_store_write(struct br_store *store, const struct br_item *const *items, size_t n_items,
                   struct br_err *err)
{
    struct br_err why = {0};
    int rc = 0;
    (void)pthread_mutex_lock(&store->writing);
    if (!atomic_load(&store->open))
        rc = br_err_set(&why, BR_EIO, "the store is not open");
    else if ((rc = br_store_lock_directory(store, &why)) == BR_EINVAL)
        rc = BR_EIO; /* the caller would take BR_EINVAL to mean that an item is invalid */
    struct br_store_writer *writer = store->writer;
    bool locked = !rc, again = !rc && n_items;
    for (int attempt = 0; attempt < TRIES_MAX && again; attempt++)
        rc = writer_try(writer, items, n_items, &again, &why);
    if (!n_items && !rc) {
        writer_rotate(writer);
        br_store_check_partitions(store);
    }
    if (locked)
        br_store_expire(store, writer->partition);
    (void)pthread_mutex_unlock(&store->writing);
    if (rc)
        return br_err_set(err, rc == BR_EINVAL || rc == BR_EFULL || rc == BR_ENOMEM ? rc : BR_EIO,
                          "%s", why.text);
    return 0;
}
