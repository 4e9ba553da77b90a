/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes the blobs of a chunk of samples. For src/storage only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/pack.h"

/* A sample to be stored. The trace id of the sample is borrowed until the chunk is made. */
struct br_sample_row {
    uint32_t series, node;
    int64_t value, time_ns;
    uint64_t span_id;
    const uint8_t *trace_id; /* trace id of the sample; NULL: the sample has no trace id */
};

/* Builds the blobs of a chunk, and reuses the memory for the next chunk. A zeroed struct is
 * valid. */
struct br_sample_packer {
    /* place_of[node] is the index of the node in `nodes` plus 1; 0: the node has not been added */
    uint32_t *place_of;
    uint32_t cap_places;
    uint32_t *nodes;
    int64_t *sums;
    uint32_t n_nodes, cap_nodes, cap_sums;
    bool failed; /* true: memory ran out while a node was added */
    struct br_pack totals, samples;
};

void br_sample_packer_release(struct br_sample_packer *packer);

/* Sorts rows by series, trace, span and time. */
void br_sample_rows_sort(struct br_sample_row *rows, size_t count);

/* Packs the sorted rows of one series into packer->totals and packer->samples. Returns false if
 * memory runs out. */
bool br_sample_rows_pack(struct br_sample_packer *packer, const struct br_sample_row *rows,
                         uint32_t count);

/* br_sample_packer_add adds a value to the sum of a node, and can be used as a br_sample_total_fn.
 * br_sample_packer_sum packs the sums into packer->totals and clears them. Both functions return
 * false if memory runs out. */
bool br_sample_packer_add(void *packer, uint32_t node, int64_t value);
bool br_sample_packer_sum(struct br_sample_packer *packer);

/* Receives a node and the sum of its values. Returns false to stop. */
typedef bool br_sample_total_fn(void *arg, uint32_t node, int64_t value);

/* Calls `fn` for each node in the packed totals of a chunk. Returns false if the totals are
 * damaged. */
bool br_sample_totals_read(const uint8_t *data, size_t len, br_sample_total_fn *fn, void *arg);

/* A sample that was read from a chunk. */
struct br_sample_read {
    const uint8_t *trace_id; /* trace id of the sample; NULL: the sample has no trace id */
    uint64_t span_id;
    uint32_t node;
    int64_t value, time_ns;
};

/* Returns true if the caller wants the samples of the span. */
typedef bool br_sample_span_fn(void *arg, const uint8_t *trace_id, uint64_t span_id);
typedef bool br_sample_fn(void *arg, const struct br_sample_read *sample);

/* Calls `fn` for the samples of the spans that `span` selects (NULL: all spans). `totals` are
 * the packed totals of the same chunk. `node_of` is scratch memory for BR_CHUNK_SAMPLES numbers.
 * Returns false if the data is damaged. */
bool br_samples_read(const uint8_t *data, size_t len, const uint8_t *totals, size_t totals_len,
                     uint32_t *node_of, br_sample_span_fn *span, br_sample_fn *fn, void *arg);
