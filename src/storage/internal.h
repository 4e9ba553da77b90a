/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the store share. For src/storage only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/list.h"
#include "storage/sql.h"
#include "storage/store.h"

/* Open connections that wait for the next query, and bytes of stacks that they keep. Above either,
 * those of the oldest partitions are closed. */
#define BR_STORE_IDLE_MAX 32
#define BR_STORE_IDLE_BYTES (64u << 20)

/* How names of partitions' files end. */
#define BR_PARTITION_SUFFIX ".db"
#define BR_PARTITION_DAMAGED_SUFFIX ".damaged" /* behind the other */

/* How names of files begin that a slice is made in (slice.h). */
#define BR_SLICE_SCRATCH "slice"

/* What a partition says of itself. Of times the least and the greatest; least > greatest: none. */
struct br_store_totals {
    int64_t created_ns, written_ns;
    uint64_t secret[2]; /* of hashes in it */
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

/* Totals of a partition that could not be read: it may have anything. */
static inline void br_store_totals_any(struct br_store_totals *totals)
{
    *totals = (struct br_store_totals){.n_spans = 1,
                                       .n_samples = 1,
                                       .span_from = INT64_MIN,
                                       .span_until = INT64_MAX,
                                       .sample_from = INT64_MIN,
                                       .sample_until = INT64_MAX};
}

/* Which file lies under a name; zeros: none. */
struct br_file_id {
    dev_t dev;
    ino_t ino;
    bool unknown; /* stat failed */
};

/* Returns false only for two that are known to be different. */
static inline bool br_file_id_equal(struct br_file_id left, struct br_file_id right)
{
    return left.unknown || right.unknown || (left.dev == right.dev && left.ino == right.ino);
}

/* Returns what lies under `path` with `suffix`. */
struct br_file_id br_file_id_at(const char *path, const char *suffix);

enum br_partition_state {
    BR_PARTITION_READ,    /* as it should be */
    BR_PARTITION_UNREAD,  /* could not be read, or is not ours; tried again (br_store_look) */
    BR_PARTITION_DAMAGED, /* proven to be (br_sql_prove), and renamed */
};

/* A partition and its file; under the store's lock, but for the fields that never change. Those
 * that are not read are listed, too: they count for the retention, and queries mention them. */
struct br_store_partition {
    struct br_list link;
    unsigned refs; /* the store's one while it is listed, and each query's */
    uint32_t number;
    char *path;
    struct br_file_id file;
    enum br_partition_state state;
    int64_t proven_ns; /* by CLOCK_BOOTTIME, when it was proven to be sound; 0: it was not */
    struct br_store_totals totals; /* of what is committed */
    int64_t aged_from_ns; /* when it was written last, by CLOCK_BOOTTIME: a wall clock may jump */
    uint64_t bytes;
    struct br_list idle; /* of br_store_reader */
    bool gone;           /* its file is unlinked or renamed */
    bool expired;        /* ... because it was over the retention */
    bool sealed;         /* takes no more: of an older program, or full of names or stacks */
};

struct br_store_tree; /* the partition's stacks (tree.h) */

/* A connection for one query at a time. */
struct br_store_reader {
    struct br_list link;
    struct br_sql sql;
    struct br_store_tree *tree; /* as far as they were read; NULL: not at all */
};

struct br_store_writer;

/* The folder and the file `lock` in it, both locked; -1: not open. */
struct br_store_folder {
    int fd, lock_fd;
};
#define BR_STORE_FOLDER_NONE ((struct br_store_folder){-1, -1})

struct br_store {
    pthread_mutex_t lock;    /* held for moments: the list, usage, idle readers */
    pthread_mutex_t writing; /* held by who writes; before the other */
    _Atomic bool open;
    _Atomic uint64_t generation;
    struct br_store_config config;
    char *directory;
    struct br_store_folder folder; /* under `writing` */
    struct br_log log;
    struct br_list partitions; /* the oldest first */
    unsigned n_partitions, n_idle;
    unsigned n_readers, readers_max; /* open connections of queries, those that wait included */
    uint64_t n_shortened;            /* items */
    size_t idle_bytes;               /* of trees that idle readers keep */
    struct br_list spare;            /* readers that are closed when the lock is given back */
    uint32_t last_number;
    struct br_store_writer *writer; /* under `writing` */
};

uint64_t br_store_now_ns(void); /* of the wall clock */

/* --- The folder ------------------------------------------------------------------------------ */

/* Makes the folder if needed, and locks it. A later call checks that the locked files are still the
 * ones at their paths, and locks the new ones otherwise. Returns 0; BR_EINVAL when another process
 * has it; BR_EFULL or BR_EIO. */
int br_store_hold(struct br_store *store, struct br_err *err);
void br_store_let_go(struct br_store *store);

/* A file of the folder that is a partition by its name. */
struct br_store_name {
    uint32_t number;
    bool damaged;
};

/* Reads the number of a partition from the name of its file, as we write it. Returns false for any
 * other name. */
bool br_store_number_of(const char *name, uint32_t *ret);

/* Likewise, also of a damaged one. */
bool br_store_name_of(const char *name, struct br_store_name *ret);

/* Finds the partitions, the oldest first, and removes what a process that was killed was saving.
 * The caller frees `*ret`. Returns 0, BR_EIO, BR_ENOMEM or BR_ETOOBIG. */
int br_store_find(struct br_store *store, struct br_store_name **ret, uint32_t *ret_count,
                  struct br_err *err);

/* --- Partitions ------------------------------------------------------------------------------ */

/* Reads what the partition says of itself. Returns 0, BR_ENOTFOUND where nothing was committed, or
 * as br_sql_fail. */
int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err);

/* Makes a new, empty partition, lists it and opens it for writing. Returns 0 or as br_sql_open. */
int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err);

/* Lists a partition that an earlier process made, in any state, or removes it if nothing was
 * committed to it. Returns 0 or BR_ENOMEM. */
int br_store_partition_load(struct br_store *store, const struct br_store_name *name,
                            struct br_err *err);

/* Looks whether all partitions still lie there, and tries again to read those that could not be
 * read. */
void br_store_look(struct br_store *store);

/* Decides what becomes of a partition in which SQLite or a reader of ours found damage: it is set
 * aside where that can be proven, in a time in which all of it can be read. Returns true when it
 * was, now or before. */
bool br_store_partition_suspect(struct br_store *store, struct br_store_partition *partition,
                                const char *why);

/* Takes a partition off the list if its file was deleted or replaced by somebody else. */
void br_store_partition_lost(struct br_store *store, struct br_store_partition *partition);

/* Sets the ages of the partitions that were loaded, by the wall clock. If it is ahead of the newest
 * of them by more than the retention, or behind it, it may be wrong: then ages are counted from the
 * newest one, and the log says so. */
void br_store_partitions_date(struct br_store *store);

/* Forgets all partitions, when nothing reads or writes any more. */
void br_store_partitions_close(struct br_store *store);

/* Closes the connections to it that wait for a query. */
void br_store_partition_close_idle(struct br_store *store, struct br_store_partition *partition);

/* Looks again how much of the disk it takes: a log that was written back is gone. */
void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition);

/* Notes what the partition holds after a commit, in which so many items were shortened. */
void br_store_partition_wrote(struct br_store *store, struct br_store_partition *partition,
                              const struct br_store_totals *totals, uint64_t n_shortened);

/* Unlinks the oldest partitions until the limits are kept, but for `spare` (or NULL). */
void br_store_expire(struct br_store *store, const struct br_store_partition *spare);

/* Says whether its files were removed, or set aside. */
bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition);

/* Says whether its files were removed because it was over the retention. */
bool br_store_partition_is_expired(struct br_store *store,
                                   const struct br_store_partition *partition);

/* Gives back a reference that a query has. */
void br_store_partition_put(struct br_store *store, struct br_store_partition *partition);

/* How many connections of queries may be open, by the limit of descriptors. */
unsigned br_store_readers_max(void);

/* Returns true when so many are open that a query closes one before it opens another. */
bool br_store_readers_full(struct br_store *store);

/* Takes a connection for reading. Returns 0 or as br_sql_open. */
int br_store_reader_take(struct br_store *store, struct br_store_partition *partition,
                         struct br_store_reader **ret, struct br_err *err);
void br_store_reader_give(struct br_store *store, struct br_store_partition *partition,
                          struct br_store_reader *reader);

/* --- The writer ------------------------------------------------------------------------------ */

struct br_store_writer *br_store_writer_new(struct br_store *store);
void br_store_writer_free(struct br_store_writer *writer);
