/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans into a partition, in blocks. A block consists of columns, a body and a Bloom
 * filter. For src/storage only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "storage/internal.h"
#include "storage/pack.h"

/* Limits on the names that a partition contains and that the writer keeps in memory: operations,
 * attribute keys, and the values of these keys. The partition is sealed when it has a quarter of
 * BR_OPERATIONS_MAX operations. A write that would exceed BR_OPERATIONS_MAX is rejected. Keys
 * and values beyond their limits are stored and can be searched, but are not listed. */
#define BR_OPERATIONS_MAX 400000u
#define BR_KEYS_MAX 2048u
#define BR_VALUES_MAX 1000u /* maximum number of values that are listed for an attribute key */
/* maximum number of bytes of a listed attribute value; longer values are not listed */
#define BR_VALUE_BYTES_MAX 256u

/* maximum number of bytes of a service name; longer names are cut, because each operation repeats
 * the name */
#define BR_SERVICE_BYTES_MAX 256u
/* maximum number of bytes of a resource or scope in a block; fields that do not fit are left out */
#define BR_HEAD_BYTES (64u << 10)

struct br_blocks;

/* Creates a writer of blocks. Borrows `sql`, `totals` and `codec`, which must outlive the
 * result. Returns NULL if memory runs out. */
struct br_blocks *br_blocks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_pack_codec *codec);
void br_blocks_free(struct br_blocks *blocks);

/* Makes the writer use the partition that `sql` has opened, and reads the names in it. Returns
 * 0, BR_ENOMEM, BR_EPROTO, or a code of br_sql_fail. */
int br_blocks_load(struct br_blocks *blocks, struct br_err *err);

/* Adds the spans of a traces item, which br_walk must have accepted. Returns 0, BR_ENOMEM, or a
 * code of br_sql_fail. Returns BR_EINVAL if the partition has too many operations, or if a span is
 * malformed (br_walk would have rejected the item). */
int br_blocks_add(struct br_blocks *blocks, const struct br_item *item, struct br_err *err);

/* Writes the block under construction. Called before each commit. Returns 0, BR_ENOMEM or a code
 * of br_sql_fail. */
int br_blocks_flush(struct br_blocks *blocks, struct br_err *err);

/* Returns true when the partition contains so many operations that it must be sealed. */
bool br_blocks_full(const struct br_blocks *blocks);

/* Returns the hash under which a trace is stored. `secret` is the hash key of the partition. */
int64_t br_blocks_trace_hash(const uint64_t secret[2], const uint8_t trace_id[16]);

/* Returns the hash under which the Bloom filter of a block contains an attribute. `secret` is
 * the hash key of the partition. */
uint64_t br_blocks_attribute_hash(const uint64_t secret[2], bool resource, const void *key,
                                  size_t key_len, const void *value, size_t value_len);

/* --- Columns (columns.c) ---------------------------------------------------------------------- */

/*
 * The columns of a block: up to BR_BLOCK_SPANS spans that were written together. Queries filter
 * spans by the columns of a block. Everything else is in the body of the block, as OTLP bytes
 * without the fields that the columns contain: ids, start and end.
 *
 * The database has two values for each block. The facts (operation, start, end, status, and whether
 * the span is a root) are numbers of fixed width that are not compressed, so that a query can read
 * the facts of millions of spans. The ids and kinds are compressed. A partition older than
 * BR_SQL_FACTS contains both in one compressed value.
 */

#define BR_BLOCK_SPANS 512u
/* size of a block's body, in bytes, at which no more spans are added to the block */
#define BR_BLOCK_BYTES (1u << 20)

struct br_columns {
    uint32_t n_spans;
    /* facts */
    /* operation of each span, as its number in the partition; at most BR_OPERATIONS_MAX */
    uint32_t operation[BR_BLOCK_SPANS];
    uint64_t start_ns[BR_BLOCK_SPANS], end_ns[BR_BLOCK_SPANS];
    uint8_t status[BR_BLOCK_SPANS]; /* at most BR_COLUMNS_STATUS_MAX */
    bool root[BR_BLOCK_SPANS];      /* true: the span has no parent */
    /* ids and kinds */
    uint32_t n_traces;
    uint8_t traces[BR_BLOCK_SPANS][16]; /* distinct trace ids of the block */
    uint32_t trace[BR_BLOCK_SPANS];     /* trace of each span, as an index into `traces` */
    uint64_t span_id[BR_BLOCK_SPANS], parent_id[BR_BLOCK_SPANS];
    uint8_t kind[BR_BLOCK_SPANS];
};

/* largest value of br_columns.status; a greater status code is stored as this value */
#define BR_COLUMNS_STATUS_MAX 127u

/* Returns the duration of a span in nanoseconds; 0 if the span ends before it starts. */
static inline uint64_t br_columns_duration(const struct br_columns *columns, uint32_t index)
{
    uint64_t start = columns->start_ns[index], end = columns->end_ns[index];
    return end > start ? end - start : 0;
}

/* br_columns_write appends the ids and kinds to `into`, and br_columns_write_facts the facts. If
 * the pack is full or memory runs out, they set `into->failed`. */
void br_columns_write(const struct br_columns *columns, struct br_pack *into);
void br_columns_write_facts(const struct br_columns *columns, struct br_pack *into);

/* Reads the ids and kinds that br_columns_write wrote. With `with_facts`, reads the value of a
 * partition older than BR_SQL_FACTS, which also contains the facts. Returns false if the data is
 * malformed. */
bool br_columns_read(struct br_columns *columns, const uint8_t *data, size_t len, bool with_facts);

/* Reads what br_columns_write_facts wrote. The ids and kinds do not change. Returns false if the
 * data is malformed. */
bool br_columns_read_facts(struct br_columns *columns, const uint8_t *data, size_t len);

/* --- Filters (bloom.c) ------------------------------------------------------------------------ */

/*
 * Bloom filters over the attributes of a block of spans. A filter uses keyed hashes, with ten bits
 * and seven probes for each distinct hash. A query therefore reads about one block in a hundred
 * unnecessarily. The size of a filter is proportional to the number of distinct hashes.
 */

/* The distinct hashes of a block that is being built. A zeroed struct is an empty set. */
struct br_hashes {
    uint64_t *slots; /* hash table, allocated by br_hashes_add; an empty slot is 0 */
    size_t n_slots, count;
    bool failed; /* true: memory ran out, so some hashes are missing */
};

/* br_hashes_release frees the memory of a set of hashes. br_hashes_clear empties the set and keeps
 * its memory. Both functions accept a zeroed set. */
void br_hashes_release(struct br_hashes *hashes);
void br_hashes_clear(struct br_hashes *hashes);

/* Adds a hash. Returns true if the set did not contain the hash. Returns false if the set
 * contained the hash already. If memory runs out, sets `failed` and returns false. */
bool br_hashes_add(struct br_hashes *hashes, uint64_t hash);

/* Appends the filter of all added hashes to `into`. */
void br_bloom_write(const struct br_hashes *hashes, struct br_pack *into);

/* Returns true if the hash may have been added to the filter, and false if it certainly was not.
 * Returns false for an empty filter. */
bool br_bloom_has(const uint8_t *filter, size_t len, uint64_t hash);
