/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the files of the store. For src/storage only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "storage/sql.h"
#include "storage/store.h"

/* Limits on open connections that are idle between queries, and on the bytes of stacks that
 * these connections cache. If either limit is exceeded, connections to the oldest partitions are
 * closed. */
#define BR_STORE_IDLE_MAX 32
#define BR_STORE_IDLE_BYTES (64u << 20)

/* Suffix of the name of a partition file. */
#define BR_PARTITION_SUFFIX ".db"
/* appended after BR_PARTITION_SUFFIX to the name of a damaged partition */
#define BR_PARTITION_DAMAGED_SUFFIX ".damaged"

/* Prefix of the temporary files in which a slice is made (slice.h). */
#define BR_SLICE_SCRATCH "slice"

/* Totals of a partition, which the partition itself stores. `span_from` and `sample_from` are the
 * earliest times of the partition's spans and samples, `span_until` and `sample_until` the latest,
 * in Unix nanoseconds. If the earliest time exceeds the latest, the partition has no spans or
 * samples. */
struct br_store_totals {
    int64_t created_ns, written_ns;
    uint64_t secret[2]; /* secret key of the hashes of traces and attributes in the partition */
    uint64_t n_spans, n_samples;
    int64_t span_from, span_until, sample_from, sample_until;
};

static inline void br_store_totals_init(struct br_store_totals *totals)
{
    *totals = (struct br_store_totals){.span_from = INT64_MAX,
                                       .span_until = INT64_MIN,
                                       .sample_from = INT64_MAX,
                                       .sample_until = INT64_MIN};
}

/* Sets the totals of a partition that could not be read: the partition may contain data of any
 * time. */
static inline void br_store_totals_any(struct br_store_totals *totals)
{
    *totals = (struct br_store_totals){.n_spans = 1,
                                       .n_samples = 1,
                                       .span_from = INT64_MIN,
                                       .span_until = INT64_MAX,
                                       .sample_from = INT64_MIN,
                                       .sample_until = INT64_MAX};
}

/* Identity of the file at a path. Zeros mean that the file does not exist. */
struct br_file_id {
    dev_t dev;
    ino_t ino;
    bool unknown; /* true: stat failed, so the identity is not known */
};

/* Returns false only if the two files are known to be different. */
static inline bool br_file_id_equal(struct br_file_id left, struct br_file_id right)
{
    return left.unknown || right.unknown || (left.dev == right.dev && left.ino == right.ino);
}

/* Returns the identity of the file at `path` followed by `suffix`. */
struct br_file_id br_file_id_at(const char *path, const char *suffix);

enum br_partition_state {
    BR_PARTITION_READ, /* the partition can be read */
    /* the file could not be read, or is not a partition; br_store_check_partitions tries again */
    BR_PARTITION_UNREAD,
    BR_PARTITION_DAMAGED, /* br_sql_check_damage found damage; the file was renamed */
};

/* A partition and its file. Fields that change are protected by the store's lock. Partitions
 * that cannot be read are listed too: they count towards the size and age limits, and queries
 * report them. */
struct br_store_partition {
    struct br_list link;
    /* number of references: the store holds one while the partition is listed, and each user of
     * the partition, such as a query, holds one */
    unsigned refs;
    uint32_t number;
    char *path;
    struct br_file_id file;
    enum br_partition_state state;
    /* time of the last check for damage, in nanoseconds of CLOCK_BOOTTIME; 0: the file has never
     * been checked */
    int64_t checked_ns;
    struct br_store_totals totals; /* totals of the committed data */
    /* time of the last write, in nanoseconds of CLOCK_BOOTTIME; the age of the partition is counted
     * from this time, because the wall clock may jump */
    int64_t aged_from_ns;
    uint64_t bytes;
    /* list of struct br_store_reader, each an idle connection to the partition */
    struct br_list idle;
    bool gone; /* the partition's file was deleted or renamed */
    /* true: the file was deleted because the partition exceeded the size or age limit */
    bool expired;
    /* no more data is written to the partition, because it is full or has an older version */
    bool sealed;
};

struct br_store_tree; /* stacks that a reader has read (tree.h) */

/* A connection for reading a partition, used by one query at a time. */
struct br_store_reader {
    struct br_list link;
    struct br_sql sql;
    /* stacks that were read through this connection; NULL: no stack has been read */
    struct br_store_tree *tree;
};

struct br_store_writer;

/* Descriptors of the directory and of the file `lock` in it, both locked; -1: not open. */
struct br_store_dir {
    int fd, lock_fd;
};
#define BR_STORE_DIR_NONE ((struct br_store_dir){-1, -1})

struct br_store {
    /* protects the list of partitions, their totals, and the idle readers; held only briefly */
    pthread_mutex_t lock;
    pthread_mutex_t writing; /* held while a thread writes to the store; locked before `lock` */
    _Atomic bool open;
    _Atomic uint64_t generation;
    struct br_store_config config;
    char *directory;
    struct br_store_dir dir; /* locked directory of the store; protected by `writing` */
    struct br_log log;
    struct br_list partitions; /* list of struct br_store_partition, the oldest first */
    unsigned n_partitions, n_idle;
    /* number of open connections of queries, including idle ones, and the limit on this number */
    unsigned n_readers, readers_max;
    /* number of items that lost data because of the limits in storage/chunks.h */
    uint64_t n_shortened;
    size_t idle_bytes;    /* number of bytes of the stacks that idle readers cache */
    struct br_list spare; /* readers that are closed as soon as the lock is released */
    uint32_t last_number;
    struct br_store_writer *writer; /* state of the writing thread; protected by `writing` */
};

uint64_t br_store_now_ns(void); /* Returns the wall clock time in Unix nanoseconds. */

/* --- The directory --------------------------------------------------------------------------- */

/* Creates the directory if needed, and locks the directory and its file `lock`. Later calls check
 * that the locked directory and file are still at their paths, and otherwise lock the directory and
 * file that are there now. Returns 0; BR_EINVAL if another process holds the lock or the path is
 * too long; BR_EFULL or BR_EIO. */
int br_store_lock_directory(struct br_store *store, struct br_err *err);

/* Releases the locks of the directory and of its file `lock`. */
void br_store_unlock_directory(struct br_store *store);

/* The information in the name of a partition file. */
struct br_store_file_name {
    uint32_t number;
    bool damaged;
};

/* Reads the partition's number from the name of its file. Returns false if `name` is not the
 * name of a partition file. */
bool br_store_parse_number(const char *name, uint32_t *ret);

/* Reads the name of a partition file, which may end with BR_PARTITION_DAMAGED_SUFFIX. Returns
 * false if `name` is not the name of a partition file. */
bool br_store_parse_name(const char *name, struct br_store_file_name *ret);

/* Lists the partition files, the oldest first, and deletes temporary files that a killed process
 * left behind. The caller frees `*ret` with br_free. Returns 0, BR_EIO, BR_ENOMEM or BR_ETOOBIG. */
int br_store_list_files(struct br_store *store, struct br_store_file_name **ret,
                        uint32_t *ret_count, struct br_err *err);

/* --- Partitions ------------------------------------------------------------------------------ */

/* Reads the totals of the open partition. Returns 0, BR_ENOTFOUND if nothing was committed to
 * the partition, or a code of br_sql_fail. */
int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err);

/* Creates an empty partition, adds it to the store's list, and opens it for writing. Returns 0,
 * BR_EFULL, BR_EIO, BR_ENOMEM or another code of br_sql_open. */
int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err);

/* Adds a partition file of an earlier process to the store's list, even if the file is damaged or
 * unreadable. If nothing was committed to the file, deletes the file instead. Returns 0 or
 * BR_ENOMEM. */
int br_store_partition_load(struct br_store *store, const struct br_store_file_name *name,
                            struct br_err *err);

/* Checks that the files of all partitions still exist, and tries again to read partitions that
 * could not be read. */
void br_store_check_partitions(struct br_store *store);

/* Checks a partition in which SQLite or our own code found damage, and renames its file if the
 * check confirms the damage. A partition that was checked recently is not checked again. Returns
 * true if the file was renamed, now or earlier. Takes as long as reading the whole file. */
bool br_store_partition_check_damage(struct br_store *store, struct br_store_partition *partition,
                                     const char *why);

/* Removes a partition from the list if its file was deleted or replaced by another program. */
void br_store_partition_drop_lost(struct br_store *store, struct br_store_partition *partition);

/* Computes the ages of the loaded partitions from the wall clock. The clock may be wrong if its
 * time is before the last write to the newest partition, or more than the retention after that
 * write. Ages are then counted from the clock's time or from the time of that write, whichever is
 * earlier, and a warning is logged. */
void br_store_partitions_date(struct br_store *store);

/* Removes all partitions from the list. Must be called when no thread reads or writes any more. */
void br_store_partitions_close(struct br_store *store);

/* Closes the idle connections to a partition. */
void br_store_partition_close_idle(struct br_store *store, struct br_store_partition *partition);

/* Updates the size of the partition on disk, which shrinks when SQLite deletes the write-ahead
 * log. */
void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition);

/* Records the totals of a partition after a commit. The commit shortened `n_shortened` items
 * because of the limits in storage/chunks.h. */
void br_store_partition_committed(struct br_store *store, struct br_store_partition *partition,
                                  const struct br_store_totals *totals, uint64_t n_shortened);

/* Deletes the oldest partitions until the store is within the limits on its size and age. Never
 * deletes the partition `spare`, which may be NULL, or partitions newer than `spare`. */
void br_store_expire(struct br_store *store, const struct br_store_partition *spare);

/* Returns true if the files of the partition were deleted or renamed. */
bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition);

/* Returns true if the files of the partition were deleted because the partition exceeded the
 * retention. */
bool br_store_partition_is_expired(struct br_store *store,
                                   const struct br_store_partition *partition);

/* Releases a reference to a partition. */
void br_store_partition_put(struct br_store *store, struct br_store_partition *partition);

/* Returns the maximum number of connections that queries may have open. The number follows from the
 * process's limit on file descriptors. */
unsigned br_store_readers_max(void);

/* Returns true if the number of readers in use has reached its limit, so that a query must close a
 * reader before it opens another. */
bool br_store_readers_full(struct br_store *store);

/* Takes an idle connection to the partition, or opens a new one. The caller returns the
 * connection with br_store_reader_release. Returns 0 or a code of br_sql_open. */
int br_store_reader_acquire(struct br_store *store, struct br_store_partition *partition,
                            struct br_store_reader **ret, struct br_err *err);
void br_store_reader_release(struct br_store *store, struct br_store_partition *partition,
                             struct br_store_reader *reader);

/* --- The writer ------------------------------------------------------------------------------ */

/* br_store_writer_new creates the state of the writing thread, and returns NULL if memory runs
 * out. br_store_writer_free closes the open partition and frees the state; it accepts NULL. */
struct br_store_writer *br_store_writer_new(struct br_store *store);
void br_store_writer_free(struct br_store_writer *writer);
