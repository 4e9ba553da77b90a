/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes samples into a partition: chunks of one series each, over the partition's stacks. For
 * src/storage only.
 *
 * A chunk has its samples twice: added up by node, which is what a flame graph of the whole chunk
 * wants, and one by one, sorted by span and time. What chunks add up to together is in sums.h.
 */
#pragma once

#include "storage/internal.h"
#include "storage/pack.h"

#define BR_SERIES_MAX 100000u        /* of a partition; past a half another begins */
#define BR_SERIES_HIDDEN "__braid__" /* a label: per_sample and source of a series, hex numbers */
#define BR_CHUNK_SAMPLES 8192u       /* of one */
#define BR_SAMPLES_WAITING 32768u    /* before chunks are made of them */

/* What an item may come to by references, so many times its bytes and so many more: bytes of the
 * labels of series that samples make, of the names of functions, and lines of locations. Past that
 * samples are in the series without labels of theirs, names are cut, and of the lines of a location
 * the innermost one is kept. */
#define BR_CHUNKS_GROWTH 16u
#define BR_CHUNKS_ROOM (4u << 20)

/* What of that stays in memory while the partition is open, beside as much: names of functions, and
 * labels of series that are new. */
#define BR_CHUNKS_HELD 3u
#define BR_CHUNKS_HELD_FREE (512u << 10)

/* Nodes of stacks that an item may add: one for so many of its bytes, and so many more. Past that
 * stacks keep the outermost frames that are there. A profile of a real program has 25 bytes for
 * each, but for small ones. */
#define BR_CHUNKS_NODE_BYTES 12u
#define BR_CHUNKS_NODES_FREE 16384u

#define BR_CHUNKS_DEPTH_MAX 4096u /* locations of a stack: the outermost are kept */

struct br_chunks;

/* As br_blocks_new and its neighbours; items have no references (br_item_inline_references). */
struct br_chunks *br_chunks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_squeezer *squeezer);
void br_chunks_free(struct br_chunks *chunks);
int br_chunks_load(struct br_chunks *chunks, struct br_err *err);
int br_chunks_add(struct br_chunks *chunks, const struct br_item *item, struct br_err *err);

/* Returns how many of the items that were added since the last call have lost labels, parts of
 * names or frames to the bounds above. */
uint64_t br_chunks_take_shortened(struct br_chunks *chunks);
int br_chunks_flush(struct br_chunks *chunks, struct br_err *err);
bool br_chunks_full(const struct br_chunks *chunks);
