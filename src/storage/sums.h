/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes sums of chunks. A sum contains the totals by node over consecutive chunks of a series, or
 * over consecutive smaller sums. A flame graph of an hour then reads a few sums, plus the chunks at
 * the edges of the range. For src/storage only.
 *
 * The chunks of a partition, of all series together, are divided into windows. BR_SUMS_CHUNKS
 * chunks are a window, and BR_SUMS_WINDOWS windows are a window of the next level. A window
 * contains chunks, or sums of the level below. When a window is complete, each series with at least
 * BR_SUMS_LEAST of these in the window gets a sum: a row that covers the chunks from `first` to
 * `last`. Two sums of a series are nested or disjoint. If a process ends before a window is
 * complete, the contents of that window are never summed.
 */
#pragma once

#include "storage/pack.h"
#include "storage/samples.h"
#include "storage/sql.h"

#define BR_SUMS_CHUNKS 64u
#define BR_SUMS_WINDOWS 8u
#define BR_SUMS_LEVELS 3u /* levels of windows; the widest windows contain 4096 chunks */
#define BR_SUMS_LEAST 4u

/* A chunk, or a sum of chunks. */
struct br_sums_part {
    uint32_t series;
    bool is_sum;
    /* `id` is the number of the row, and `first` to `last` are the chunks that the row covers */
    int64_t id, first, last;
    int64_t min_time, max_time;
    uint64_t n_samples;
};

struct br_sums;

/* Creates a writer of sums. Borrows `sql` and `codec` until br_sums_free. Returns NULL if memory
 * runs out. */
struct br_sums *br_sums_new(struct br_sql *sql, struct br_pack_codec *codec);
void br_sums_free(struct br_sums *sums); /* Frees the writer. Accepts NULL. */

/* Switches to the partition that `sql` has open. Returns 0 or a code of br_sql_fail. */
int br_sums_load(struct br_sums *sums, struct br_err *err);

/* Adds a chunk that was inserted into the database, and writes the sums of the windows that the
 * chunk completes. `packer` must be empty. Returns 0, BR_ENOMEM, BR_EPROTO or a code of
 * br_sql_fail. After an error, br_sums_load must be called. */
int br_sums_add(struct br_sums *sums, const struct br_sums_part *chunk,
                struct br_sample_packer *packer, struct br_err *err);
