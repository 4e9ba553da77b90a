/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes samples into a partition, in chunks. Each chunk contains samples of one series. The stacks
 * of the samples are nodes of the partition's stack tree. For src/storage only.
 *
 * A chunk contains its samples twice: summed by node, for a flame graph of the whole chunk, and one
 * by one, sorted by span and time.
 */
#pragma once

#include "storage/internal.h"
#include "storage/pack.h"
#include "storage/samples.h"
#include "storage/sql.h"

/* maximum number of series in a partition; a partition with half as many series is sealed */
#define BR_SERIES_MAX 100000u
/* name of an internal label; its value is two hex numbers: the fields per_sample and source of the
 * series */
#define BR_SERIES_HIDDEN "__braid__"
#define BR_CHUNK_SAMPLES 8192u /* maximum number of samples in one chunk */
/* number of samples that are collected in memory before they are written as chunks */
#define BR_SAMPLES_WAITING 32768u

/* Limit on the bytes to which an item may expand through references: BR_CHUNKS_GROWTH times the
 * item's size, plus a fixed number of bytes. The limit covers the labels of series that samples
 * create, function names, and lines of locations. Beyond the limit, the labels of samples are left
 * out of the series, names are cut, and only the innermost line of a location is kept. */
#define BR_CHUNKS_GROWTH 16u
#define BR_CHUNKS_ROOM (4u << 20)

/* The part of the limit BR_CHUNKS_GROWTH that covers data kept in memory while the partition is
 * open: function names, and labels of new series. The limit on this data is BR_CHUNKS_HELD times
 * the item's size, plus a fixed number of bytes. */
#define BR_CHUNKS_HELD 3u
#define BR_CHUNKS_HELD_FREE (512u << 10)

/* Limit on the stack nodes that an item may add: one node for each BR_CHUNKS_NODE_BYTES bytes of
 * the item, plus a fixed number of nodes. Beyond the limit, a stack keeps only its outermost
 * frames that already exist as nodes. Profiles of real programs have about 25 bytes per node,
 * unless they are small. */
#define BR_CHUNKS_NODE_BYTES 12u
#define BR_CHUNKS_NODES_FREE 16384u

/* maximum number of locations of a stack that are stored; a deeper stack loses its innermost
 * locations */
#define BR_CHUNKS_DEPTH_MAX 4096u

struct br_chunks;

/* Creates a writer of chunks. Borrows `sql`, `totals` and `codec`, which must outlive the
 * writer. Returns NULL if memory runs out. */
struct br_chunks *br_chunks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_pack_codec *codec);
void br_chunks_free(struct br_chunks *chunks);

/* Makes the writer use the partition that `sql` has opened, and reads its series and stacks.
 * Returns 0, BR_ENOMEM, BR_EPROTO, or a code of br_sql_fail. */
int br_chunks_load(struct br_chunks *chunks, struct br_err *err);

/* Adds the samples of a profiles item. The item must not contain references
 * (br_item_inline_references), and must stay valid until br_chunks_flush. Returns 0, BR_EINVAL
 * if the partition has no room for the item's series or stacks, BR_ENOMEM, or a code of
 * br_sql_fail. */
int br_chunks_add(struct br_chunks *chunks, const struct br_item *item, struct br_err *err);

/* Returns how many of the items added since the last call lost labels, parts of names, or frames
 * because of the limits BR_CHUNKS_GROWTH, BR_CHUNKS_HELD and BR_CHUNKS_NODE_BYTES. */
uint64_t br_chunks_take_shortened(struct br_chunks *chunks);

/* Writes the chunks and stacks under construction. Called before each commit. Returns 0, BR_ENOMEM,
 * BR_EPROTO, or a code of br_sql_fail. */
int br_chunks_flush(struct br_chunks *chunks, struct br_err *err);

/* Returns true when the partition has so many series or stacks that it must be sealed. */
bool br_chunks_full(const struct br_chunks *chunks);

/* --- Sums of chunks (sums.c) ------------------------------------------------------------------ */

/*
 * Writes sums of chunks. A sum contains the totals by node over consecutive chunks of a series, or
 * over consecutive smaller sums. With sums, a flame graph of an hour reads only a few sums, plus
 * the chunks at the edges of the range.
 *
 * The chunks of a partition, of all series together, are divided into windows. BR_SUMS_CHUNKS
 * chunks are a window, and BR_SUMS_WINDOWS windows are a window of the next level. A window
 * contains chunks, or sums of the level below. When a window is complete, each series with at least
 * BR_SUMS_LEAST of the chunks or sums in the window gets a sum: a row that covers the chunks from
 * `first` to `last`. Two sums of a series never overlap partly: one contains the other, or they are
 * disjoint. If a process ends before a window is complete, the contents of that window are never
 * summed.
 */

#define BR_SUMS_CHUNKS 64u
#define BR_SUMS_WINDOWS 8u
/* number of levels of windows; a window of the highest level contains 4096 chunks */
#define BR_SUMS_LEVELS 3u
#define BR_SUMS_LEAST 4u

/* A chunk, or a sum of chunks. */
struct br_sums_part {
    uint32_t series;
    bool is_sum;
    /* `id` is the number of the row, and the row covers the chunks from `first` to `last` */
    int64_t id, first, last;
    int64_t min_time, max_time;
    uint64_t n_samples;
    int64_t value; /* sum of the values of the samples */
};

struct br_sums;

/* Creates a writer of sums. Borrows `sql` and `codec` until br_sums_free. Returns NULL if memory
 * runs out. */
struct br_sums *br_sums_new(struct br_sql *sql, struct br_pack_codec *codec);
void br_sums_free(struct br_sums *sums); /* Frees the writer. Accepts NULL. */

/* Makes the writer use the partition that `sql` has opened. Returns 0 or a code of br_sql_fail. */
int br_sums_load(struct br_sums *sums, struct br_err *err);

/* Adds a chunk that was inserted into the database, and writes the sums of the windows that the
 * chunk completes. `packer` must be empty. Returns 0, BR_ENOMEM, BR_EPROTO or a code of
 * br_sql_fail. After an error, br_sums_load must be called. */
int br_sums_add(struct br_sums *sums, const struct br_sums_part *chunk,
                struct br_sample_packer *packer, struct br_err *err);
