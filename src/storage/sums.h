/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes sums of chunks: what the chunks of a series that follow each other add up to by node, and
 * what such sums add up to. A flame graph of an hour reads a few of these, and chunks at the edges
 * of the range alone. For src/storage only.
 *
 * BR_SUMS_CHUNKS chunks of the partition, of whatever series, are a window; BR_SUMS_WINDOWS windows
 * are one of the next level. When a window is full, each series that has BR_SUMS_LEAST parts in it
 * (chunks, or sums of the level before) gets a row that stands for all of its chunks from `first`
 * to `last`. Rows of one series are one in the other, or apart. What a process left in a window
 * that was not full stays as it is.
 */
#pragma once

#include "storage/pack.h"
#include "storage/samples.h"
#include "storage/sql.h"

#define BR_SUMS_CHUNKS 64u
#define BR_SUMS_WINDOWS 8u
#define BR_SUMS_LEVELS 3u /* so the widest are of 4096 chunks */
#define BR_SUMS_LEAST 4u

/* A chunk, or a sum of chunks. */
struct br_sums_part {
    uint32_t series;
    bool is_sum;
    int64_t id, first, last; /* its row, and the chunks that it stands for */
    int64_t min_time, max_time;
    uint64_t n_samples;
};

struct br_sums;

/* Borrows both until br_sums_free. Returns NULL when there is no memory. */
struct br_sums *br_sums_new(struct br_sql *sql, struct br_squeezer *squeezer);
void br_sums_free(struct br_sums *sums); /* accepts NULL */

/* Begins with the partition that is open now. Returns 0 or as br_sql_fail. */
int br_sums_load(struct br_sums *sums, struct br_err *err);

/* Notes a chunk that was inserted, and writes the sums of the windows that are full with it.
 * `packer` is one that nothing is under construction in. Returns 0, BR_ENOMEM, BR_EPROTO or as
 * br_sql_fail; then it has to be loaded again. */
int br_sums_add(struct br_sums *sums, const struct br_sums_part *chunk,
                struct br_sample_packer *packer, struct br_err *err);
