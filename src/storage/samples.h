/* SPDX-License-Identifier: Apache-2.0 */
/* Packs and reads the blobs of a chunk of samples. For src/storage only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/pack.h"

/* A sample that is to be stored. Its trace id is borrowed until the chunk is made. */
struct br_sample_row {
    uint32_t series, node;
    int64_t value, time_ns;
    uint64_t span_id;
    const uint8_t *trace_id; /* NULL: none */
};

/* What makes the blobs; it keeps its memory. Zeroed at first. */
struct br_sample_packer {
    uint32_t *place_of; /* by node, in what is under construction; + 1, 0: none */
    uint32_t cap_places;
    uint32_t *nodes;
    int64_t *sums;
    uint32_t n_nodes, cap_nodes, cap_sums;
    bool failed; /* there was no memory to add something */
    struct br_pack totals, samples;
};

void br_sample_packer_release(struct br_sample_packer *packer);

/* Sorts rows by series, trace, span and time. */
void br_sample_rows_sort(struct br_sample_row *rows, size_t count);

/* Packs rows of one series that are sorted into packer->totals and packer->samples. False when
 * there is no memory. */
bool br_sample_rows_pack(struct br_sample_packer *packer, const struct br_sample_row *rows,
                         uint32_t count);

/* Adds to the sum of a node, a br_sample_total_fn; and packs what was added since the last time
 * into packer->totals, and forgets it. Both are false when there is no memory. */
bool br_sample_packer_add(void *packer, uint32_t node, int64_t value);
bool br_sample_packer_sum(struct br_sample_packer *packer);

/* Takes a node and the sum of its values. Returns false to stop. */
typedef bool br_sample_total_fn(void *arg, uint32_t node, int64_t value);

/* Reads totals. False when they are damaged. */
bool br_sample_totals_read(const uint8_t *data, size_t len, br_sample_total_fn *fn, void *arg);

/* A sample as it was stored. */
struct br_sample_read {
    const uint8_t *trace_id; /* NULL: none */
    uint64_t span_id;
    uint32_t node;
    int64_t value, time_ns;
};

/* Says whether the samples of a span are wanted. */
typedef bool br_sample_span_fn(void *arg, const uint8_t *trace_id, uint64_t span_id);
typedef bool br_sample_fn(void *arg, const struct br_sample_read *sample);

/* Reads the samples of the spans that `span` wants (NULL: all), with the chunk's totals beside
 * them. False when they are damaged. */
bool br_samples_read(const uint8_t *data, size_t len, const uint8_t *totals, size_t totals_len,
                     br_sample_span_fn *span, br_sample_fn *fn, void *arg);
