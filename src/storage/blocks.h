/* SPDX-License-Identifier: Apache-2.0 */
/* Writes spans into a partition, in blocks of columns (columns.h). For src/storage only. */
#pragma once

#include "storage/internal.h"
#include "storage/pack.h"

/* The names that a partition contains and that the writer keeps in memory: operations, attribute
 * keys, and the values of these keys. The partition is sealed at a quarter of the operations; a
 * write that exceeds the maximum is rejected. Keys and values beyond their limits are stored and
 * can be searched, but are not listed. */
#define BR_OPERATIONS_MAX 400000u
#define BR_KEYS_MAX 2048u
#define BR_VALUES_MAX 1000u     /* listed values per attribute key */
#define BR_VALUE_BYTES_MAX 256u /* bytes of an attribute value; longer values are not listed */

/* bytes of a service name; longer names are cut, because each operation repeats the name */
#define BR_SERVICE_BYTES_MAX 256u
/* bytes that a block keeps of a resource or scope; fields that do not fit are left out */
#define BR_HEAD_BYTES (64u << 10)

struct br_blocks;

/* Creates a writer of blocks. Borrows `sql`, `totals` and `codec`, which must outlive the
 * result. Returns NULL if memory runs out. */
struct br_blocks *br_blocks_new(struct br_sql *sql, struct br_store_totals *totals,
                                struct br_pack_codec *codec);
void br_blocks_free(struct br_blocks *blocks);

/* Switches to the partition that `sql` has open, and reads the names in it. Returns 0,
 * BR_ENOMEM, BR_EPROTO, or a code of br_sql_fail. */
int br_blocks_load(struct br_blocks *blocks, struct br_err *err);

/* Adds the spans of a traces item, which a walk must have accepted. Returns 0, BR_ENOMEM, or a
 * code of br_sql_fail. Returns BR_EINVAL if a span is not one that a walk accepts, or if the
 * partition has too many operations. */
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
