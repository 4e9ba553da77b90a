/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of a block: up to BR_BLOCK_SPANS spans that were written together. Queries filter by
 * the columns. Everything else is in the body of the block, as OTLP bytes without the fields that
 * the columns contain: ids, start and end.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/pack.h"

#define BR_BLOCK_SPANS 512u
/* a block takes no more spans when its body has this many bytes */
#define BR_BLOCK_BYTES (1u << 20)

struct br_columns {
    uint32_t n_spans, n_traces;
    uint8_t traces[BR_BLOCK_SPANS][16]; /* distinct trace ids of the block */
    uint32_t trace[BR_BLOCK_SPANS];     /* trace of each span, as an index into `traces` */
    uint32_t operation[BR_BLOCK_SPANS]; /* operation of each span, as its number in the partition */
    uint64_t span_id[BR_BLOCK_SPANS], parent_id[BR_BLOCK_SPANS];
    uint64_t start_ns[BR_BLOCK_SPANS], end_ns[BR_BLOCK_SPANS];
    uint8_t kind[BR_BLOCK_SPANS], status[BR_BLOCK_SPANS];
};

/* Returns the duration of a span in nanoseconds; 0 if the span ends before it starts. */
static inline uint64_t br_columns_duration(const struct br_columns *columns, uint32_t index)
{
    uint64_t start = columns->start_ns[index], end = columns->end_ns[index];
    return end > start ? end - start : 0;
}

/* Appends the columns to `into`. If that fails, sets `into->failed`. */
void br_columns_write(const struct br_columns *columns, struct br_pack *into);

/* Reads columns that br_columns_write wrote. Returns false if the data is malformed. */
bool br_columns_read(struct br_columns *columns, const uint8_t *data, size_t len);
