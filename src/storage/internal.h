/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the files of the store share. For src/storage only. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "storage/sql.h"
#include "storage/store.h"

/* Open connections that wait for the next query, and bytes of stacks that they keep. Above either,
 * those of the oldest partitions are closed. */
#define BR_STORE_IDLE_MAX 32
#define BR_STORE_IDLE_BYTES (64u << 20)

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

/* Also the file behind it; everything under the store's lock, but for what never changes. */
struct br_store_partition {
    struct br_list link;
    unsigned refs; /* the store's one while it is listed, and each query's */
    uint32_t number;
    char *path;
    struct br_store_totals totals; /* of what is committed */
    int64_t aged_from_ns; /* when it was written last, by CLOCK_BOOTTIME: a wall clock may jump */
    uint64_t bytes;
    struct br_list idle; /* of br_store_reader */
    bool gone;           /* its file is unlinked or renamed */
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

struct br_store {
    pthread_mutex_t lock;    /* held for moments: the list, usage, idle readers */
    pthread_mutex_t writing; /* held by who writes; before the other */
    _Atomic bool open;
    _Atomic uint64_t generation;
    struct br_store_config config;
    char *directory;
    int lock_fd;
    struct br_log log;
    struct br_list partitions; /* the oldest first */
    unsigned n_partitions, n_damaged, n_idle;
    uint64_t n_shortened; /* items */
    size_t idle_bytes;    /* of trees that idle readers keep */
    uint32_t last_number;
    struct br_store_writer *writer; /* under `writing` */
};

uint64_t br_store_now_ns(void); /* of the wall clock */

/* --- Partitions ------------------------------------------------------------------------------ */

/* Reads the number of a partition out of the name of its file; false when it is no such name. */
bool br_store_number_of(const char *name, uint32_t *ret);

/* Reads what the partition says of itself. Returns 0, BR_ENOTFOUND where nothing was committed, or
 * as br_sql_fail. */
int br_store_totals_read(struct br_sql *sql, struct br_store_totals *ret, struct br_err *err);

/* Makes a new, empty partition, lists it and opens it for writing. Returns 0 or as br_sql_open. */
int br_store_partition_new(struct br_store *store, struct br_sql *sql,
                           struct br_store_partition **ret, struct br_err *err);

/* Lists one that a process before made; one that is damaged is set aside. Returns 0 or as
 * br_sql_open. */
int br_store_partition_load(struct br_store *store, uint32_t number, struct br_err *err);

/* Sets the ages of the partitions that were loaded, by the wall clock. If it is ahead of the newest
 * of them by more than the retention, or behind it, it may be wrong: then ages are counted from the
 * newest one, and the log says so. */
void br_store_partitions_date(struct br_store *store);

/* Forgets all partitions, when nothing reads or writes any more. */
void br_store_partitions_close(struct br_store *store);

/* Looks again how much of the disk it takes: a log that was written back is gone. */
void br_store_partition_measure(struct br_store *store, struct br_store_partition *partition);

/* Notes what the partition holds after a commit, in which so many items were shortened. */
void br_store_partition_wrote(struct br_store *store, struct br_store_partition *partition,
                              const struct br_store_totals *totals, uint64_t n_shortened);

/* Takes the partition off the list and renames its files: it is damaged. `why` goes to the log. */
void br_store_partition_set_aside(struct br_store *store, struct br_store_partition *partition,
                                  const char *why);

/* Unlinks the oldest partitions until the limits are kept, but for `spare` (or NULL). */
void br_store_expire(struct br_store *store, const struct br_store_partition *spare);

/* Says whether its files were removed, or set aside. */
bool br_store_partition_is_gone(struct br_store *store, const struct br_store_partition *partition);

/* Gives back a reference that a query has. */
void br_store_partition_put(struct br_store *store, struct br_store_partition *partition);

/* Takes a connection for reading. Returns 0 or as br_sql_open. */
int br_store_reader_take(struct br_store *store, struct br_store_partition *partition,
                         struct br_store_reader **ret, struct br_err *err);
void br_store_reader_give(struct br_store *store, struct br_store_partition *partition,
                          struct br_store_reader *reader);

/* --- The writer ------------------------------------------------------------------------------ */

struct br_store_writer *br_store_writer_new(struct br_store *store);
void br_store_writer_free(struct br_store_writer *writer);
