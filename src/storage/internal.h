/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the store share. For src/storage only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "storage/sql.h"
#include "storage/store.h"

/* Limits on open connections that are idle between queries, and on the bytes of stacks that they
 * cache. Above either limit, connections of the oldest partitions are closed. */
#define BR_STORE_IDLE_MAX 32
#define BR_STORE_IDLE_BYTES (64u << 20)

/* Suffixes of the names of partition files. */
#define BR_PARTITION_SUFFIX ".db"
#define BR_PARTITION_DAMAGED_SUFFIX ".damaged" /* follows the first suffix */

/* Prefix of the temporary files in which a slice is made (slice.h). */
#define BR_SLICE_SCRATCH "slice"

/* Totals that a partition stores about itself. The times are the smallest and the largest; if
 * the smallest exceeds the largest, the partition has none. */
struct br_store_totals {
    int64_t created_ns, written_ns;
    uint64_t secret[2]; /* key of the hashes in it */
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

/* Sets the totals of a partition that could not be read: it may contain data of any time. */
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
    bool unknown; /* stat failed */
};

/* Returns false only if the two files are known to be different. */
static inline bool br_file_id_equal(struct br_file_id left, struct br_file_id right)
{
    return left.unknown || right.unknown || (left.dev == right.dev && left.ino == right.ino);
}

/* Returns the identity of the file at `path` followed by `suffix`. */
struct br_file_id br_file_id_at(const char *path, const char *suffix);

enum br_partition_state {
    BR_PARTITION_READ, /* can be read */
    /* could not be read, or is not ours; br_store_check_partitions tries again */
    BR_PARTITION_UNREAD,
    BR_PARTITION_DAMAGED, /* br_sql_check_damage found damage; the file was renamed */
};

/* A partition and its file. Protected by the store's lock, except for fields that never change.
 * Partitions that cannot be read are listed too: they count for the retention, and queries
 * report them. */
struct br_store_partition {
    struct br_list link;
    unsigned refs; /* one of the store while the partition is listed, and one of each query */
    uint32_t number;
    char *path;
    struct br_file_id file;
    enum br_partition_state state;
    int64_t checked_ns; /* CLOCK_BOOTTIME when it was last checked for damage; 0: never */
    struct br_store_totals totals; /* of the committed data */
    int64_t aged_from_ns;          /* CLOCK_BOOTTIME of the last write: a wall clock may jump */
    uint64_t bytes;
    struct br_list idle; /* list of br_store_reader */
    bool gone;           /* its file is unlinked or renamed */
    bool expired;        /* `gone` because it exceeded the retention */
    bool sealed;         /* is not written any more: it is of an older version, or full */
};

struct br_store_tree; /* the stacks of the partition (tree.h) */

/* A connection, used by one query at a time. */
struct br_store_reader {
    struct br_list link;
    struct br_sql sql;
    struct br_store_tree *tree; /* the stacks read so far; NULL: none */
};

struct br_store_writer;

/* Descriptors of the directory and of the file `lock` in it, both locked; -1: not open. */
struct br_store_dir {
    int fd, lock_fd;
};
#define BR_STORE_DIR_NONE ((struct br_store_dir){-1, -1})

struct br_store {
    pthread_mutex_t lock;    /* held briefly; protects the list, usage and idle readers */
    pthread_mutex_t writing; /* held while writing; locked before `lock` */
    _Atomic bool open;
    _Atomic uint64_t generation;
    struct br_store_config config;
    char *directory;
    struct br_store_dir dir; /* protected by `writing` */
    struct br_log log;
    struct br_list partitions; /* the oldest first */
    unsigned n_partitions, n_idle;
    /* open connections of queries, including idle ones, and their limit */
    unsigned n_readers, readers_max;
    uint64_t n_shortened; /* items that lost data to the limits of storage/chunks.h */
    size_t idle_bytes;    /* bytes of trees cached by idle readers */
    struct br_list spare; /* readers to close after the lock is released */
    uint32_t last_number;
    struct br_store_writer *writer; /* protected by `writing` */
};

uint64_t br_store_now_ns(void); /* wall clock, in Unix nanoseconds */

/* --- The directory --------------------------------------------------------------------------- */

/* Creates the directory if needed, and locks it. Later calls check that the locked files are
 * still the ones at their paths, and lock the new ones if not. Returns 0; BR_EINVAL if another
 * process holds the lock or the path is too long; BR_EFULL or BR_EIO. */
int br_store_lock_directory(struct br_store *store, struct br_err *err);

/* Releases both locks. */
void br_store_unlock_directory(struct br_store *store);

/* The contents of the name of a partition file. */
struct br_store_file_name {
    uint32_t number;
    bool damaged;
};

/* Reads the number from the name of a partition file. Returns false for any other name. */
bool br_store_parse_number(const char *name, uint32_t *ret);

/* Reads the name of a partition file, which may have the suffix of damaged ones. Returns false
 * for any other name. */
bool br_store_parse_name(const char *name, struct br_store_file_name *ret);

/* Lists the partition files, the oldest first, and deletes temporary files that a killed process
 * left behind. The caller frees `*ret` with br_free. Returns 0, BR_EIO, BR_ENOMEM or BR_ETOOBIG. */
int br_store_list_files(struct br_store *store, struct br_store_file_name **ret,
                        uint32_t *ret_count, struct br_err *err);

/* --- Partitions ------------------------------------------------------------------------------ */

/* Reads the totals of the partition. Returns 0, BR_ENOTFOUND if nothing was committed, or a code
 * of br_sql_fail. */
int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err);

/* Creates an empty partition, lists it and opens it for writing. Returns 0, BR_EFULL, BR_EIO,
 * BR_ENOMEM or another code of br_sql_open. */
int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err);

/* Lists a partition of an earlier process, in any state, or deletes it if nothing was committed
 * to it. Returns 0 or BR_ENOMEM. */
int br_store_partition_load(struct br_store *store, const struct br_store_file_name *name,
                            struct br_err *err);

/* Checks that the files of all partitions still exist, and tries again to read partitions that
 * could not be read. */
void br_store_check_partitions(struct br_store *store);

/* Checks a partition in which SQLite or our own code found damage, and sets it aside if the
 * check confirms that. A partition that was checked recently is not checked again. Returns true
 * if the partition was set aside, now or earlier. Takes as long as reading the whole file. */
bool br_store_partition_check_damage(struct br_store *store, struct br_store_partition *partition,
                                     const char *why);

/* Removes a partition from the list if its file was deleted or replaced by another program. */
void br_store_partition_drop_lost(struct br_store *store, struct br_store_partition *partition);

/* Sets the ages of the loaded partitions by the wall clock. If the clock is behind the newest
 * partition, or ahead of it by more than the retention, it may be wrong: ages are then counted
 * from the earlier of both times, and a warning is logged. */
void br_store_partitions_date(struct br_store *store);

/* Removes all partitions from the list. Called when nothing reads or writes any more. */
void br_store_partitions_close(struct br_store *store);

/* Closes the idle connections to a partition. */
void br_store_partition_close_idle(struct br_store *store, struct br_store_partition *partition);

/* Updates the size of the partition on disk, which shrinks when SQLite deletes the write-ahead
 * log. */
void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition);

/* Records the totals of a partition after a commit that shortened `n_shortened` items. */
void br_store_partition_committed(struct br_store *store, struct br_store_partition *partition,
                                  const struct br_store_totals *totals, uint64_t n_shortened);

/* Deletes the oldest partitions until the limits are met. Stops at `spare`, which may be NULL. */
void br_store_expire(struct br_store *store, const struct br_store_partition *spare);

/* Returns true if the files of the partition were deleted or set aside. */
bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition);

/* Returns true if the files of the partition were deleted because it exceeded the retention. */
bool br_store_partition_is_expired(struct br_store *store,
                                   const struct br_store_partition *partition);

/* Releases a reference to a partition. */
void br_store_partition_put(struct br_store *store, struct br_store_partition *partition);

/* Returns how many connections queries may open, given the limit on file descriptors. */
unsigned br_store_readers_max(void);

/* Returns true if so many connections are open that a query must close one before it opens
 * another. */
bool br_store_readers_full(struct br_store *store);

/* Acquires a connection for reading. It is given back with br_store_reader_release. Returns 0 or
 * a code of br_sql_open. */
int br_store_reader_acquire(struct br_store *store, struct br_store_partition *partition,
                            struct br_store_reader **ret, struct br_err *err);
void br_store_reader_release(struct br_store *store, struct br_store_partition *partition,
                             struct br_store_reader *reader);

/* --- The writer ------------------------------------------------------------------------------ */

/* Create and free the state of the writing thread. br_store_writer_new returns NULL if memory runs
 * out; br_store_writer_free closes the open partition and accepts NULL. */
struct br_store_writer *br_store_writer_new(struct br_store *store);
void br_store_writer_free(struct br_store_writer *writer);
