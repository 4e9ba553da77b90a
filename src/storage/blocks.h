/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans into a partition, as blocks (columns.h). For src/storage only. */
#pragma once

#include "storage/internal.h"
#include "storage/pack.h"

/* The names that a partition has and that the writer keeps in memory: operations, keys of
 * attributes, and values of these. At a quarter of the operations another partition begins; what
 * passes their maximum in one write is refused. Further keys, and further values of a key, are
 * stored and searched but not listed. */
#define BR_OPERATIONS_MAX 400000u
#define BR_KEYS_MAX 2048u
#define BR_VALUES_MAX 1000u     /* of one key */
#define BR_VALUE_BYTES_MAX 256u /* a longer one is not listed */

#define BR_SERVICE_BYTES_MAX 256u /* a longer name is cut: each operation has it */
#define BR_HEAD_BYTES (64u << 10) /* of a resource or scope: further fields are left out */

struct br_blocks;

/* Borrows `sql` and `totals` from the writer, which outlives it. Returns NULL when there is no
 * memory. */
struct br_blocks *br_blocks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_squeezer *squeezer);
void br_blocks_free(struct br_blocks *blocks);

/* Begins with a partition: reads the names that are in it. Returns 0 or as br_sql_fail. */
int br_blocks_load(struct br_blocks *blocks, struct br_err *err);

/* Adds the spans of a traces item that a walk has accepted. Returns 0, BR_EINVAL for what no walk
 * has accepted, or as br_sql_fail. */
int br_blocks_add(struct br_blocks *blocks, const struct br_item *item, struct br_err *err);

/* Writes what is left. Before a commit. Returns 0 or as br_sql_fail. */
int br_blocks_flush(struct br_blocks *blocks, struct br_err *err);

/* Returns true when the names have reached their maximum, and the partition is to be sealed. */
bool br_blocks_full(const struct br_blocks *blocks);

/* Returns the hash by which a trace is found, of a partition's secret. */
int64_t br_blocks_trace_hash(const uint64_t secret[2], const uint8_t trace_id[16]);

/* Returns the hash of an attribute in a block's filter. */
uint64_t br_blocks_attribute_hash(const uint64_t secret[2], bool resource, const void *key,
                                  size_t key_len, const void *value, size_t value_len);
