/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the queries of spans and of samples. A view is a partition as one query
 * sees it. For src/storage only. */
#pragma once

#include "attribute/regex.h"
#include "storage/blocks.h"
#include "storage/internal.h"
#include "storage/pack.h"

/* A partition in a query. The query sees the state of the partition at its first access. */
struct br_store_view {
    struct br_store_partition *partition;
    struct br_store_totals totals;
    /* connection to the partition; NULL: the connection is not open, or the partition cannot be
     * read */
    struct br_store_reader *reader;
    /* number of calls of br_store_view_open that were not followed by br_store_view_close yet;
     * while this number is 0, the reader may be closed so that another reader can be opened */
    unsigned uses;
    bool failed;
    /* why the partition cannot be read, if this was known when the query began; otherwise NULL */
    const char *unread;
    /* service and name of each operation, by operation number; NULL: the operations have not been
     * read yet */
    const char **services, **names;
    uint32_t n_operations;
};

#define BR_STORE_BODIES 4 /* number of block bodies that a query caches */

struct br_store_body {
    /* view of the partition that contains the cached block; NULL: the entry is empty */
    struct br_store_view *view;
    int64_t block;
    /* counter value at the last use of the entry; the entry with the smallest value is evicted */
    uint64_t used;
    struct br_pack plain;
    uint32_t n_spans, n_heads, cap_heads;
    uint32_t spans[BR_BLOCK_SPANS]; /* offset in `plain` of each span of the block */
    struct {
        /* copy of the resource or scope in the arena; NULL: the resource or scope has not been
         * copied yet */
        const uint8_t *copy;
        size_t at, len;
    } * heads;
};

struct br_store_query_state {
    struct br_store_view *views; /* views of the partitions, the oldest partition first */
    uint32_t n_views;
    struct br_pack_codec codec;
    struct br_pack plain;
    struct br_columns columns;
    /* the block whose columns `columns` contains completely; `columns_view` is NULL if it contains
     * those of no block, or only the facts */
    struct br_store_view *columns_view;
    int64_t columns_block;
    struct br_store_body bodies[BR_STORE_BODIES];
    uint64_t n_used;
    size_t held_bytes; /* number of bytes of memory that the query holds outside the arena */
};

static inline struct br_store_query_state *
br_store_query_state_of(const struct br_store_query *query)
{
    return query->impl;
}

/* Returns true if the query may continue. Returns false, and sets query->cut, when the time or
 * memory of the query is used up. */
bool br_store_query_may_continue(struct br_store_query *query);

/* Adds to the bytes that the query holds outside the arena; `bytes` may be negative. */
void br_store_query_count_bytes(struct br_store_query *query, int64_t bytes);

/* Opens the reader of a view; each successful call is paired with br_store_view_close. Returns
 * false if the partition cannot be read or the query is cut. After false is returned, `*rc` is an
 * error code, or 0 if the query continues without the partition, which query->note mentions. */
bool br_store_view_open(struct br_store_query *query, struct br_store_view *view, int *rc,
                        struct br_err *err);
void br_store_view_close(struct br_store_view *view);

/* Handles a failure to read a partition. Returns 0 if the query was cut, or if the query
 * continues without the partition. Returns an error code if the query must fail. */
int br_store_view_failed(struct br_store_query *query, struct br_store_view *view, int code,
                         struct br_err *err);

/* Decompresses the blob in a column of the current row into the `plain` pack of the query's
 * state. Returns 0, BR_EPROTO or BR_ENOMEM. */
int br_store_view_blob(struct br_store_query *query, sqlite3_stmt *statement, int column,
                       struct br_err *err);

/* Returns a NUL-terminated copy of a column's text in the arena. Returns NULL and sets
 * query->cut if the arena is full. */
const char *br_store_view_text(struct br_store_query *query, sqlite3_stmt *statement, int column);

/* Returns true if a partition with these totals may contain spans that start in [from, until).
 * An `until_ns` of 0 means no end. */
bool br_store_view_has_spans(const struct br_store_totals *totals, uint64_t from_ns,
                             uint64_t until_ns);

/* Handles the last error of SQLite in the same way as br_store_view_failed, and returns the same
 * codes. */
int br_store_view_sql_failed(struct br_store_query *query, struct br_store_view *view,
                             struct br_err *err);

/* Returns true if a block of the partition can have this number: blocks are numbered consecutively,
 * and no block is empty. If the number is not possible, the partition is damaged, and the function
 * returns false. After false is returned, `*rc` is an error code, or 0 if the query continues
 * without the partition. */
bool br_store_view_block(struct br_store_query *query, struct br_store_view *view, int64_t block,
                         int *rc, struct br_err *err);

/* Reads the columns of a block into the query's state. Sets `*ret` to true if the block exists.
 * br_store_view_facts reads only the facts if the partition contains them separately. Both
 * functions return 0 or a code of br_store_view_failed. */
int br_store_view_columns(struct br_store_query *query, struct br_store_view *view, int64_t block,
                          bool *ret, struct br_err *err);
int br_store_view_facts(struct br_store_query *query, struct br_store_view *view, int64_t block,
                        bool *ret, struct br_err *err);

/* Sets the service and name of an operation, and reads them from the partition at their first use.
 * If reading fails, returns false, and either ends the query early or marks the partition as
 * failed. */
bool br_store_view_operation(struct br_store_query *query, struct br_store_view *view,
                             uint32_t operation, const char **ret_service, const char **ret_name);

/* Reads the services and names of many operations at once, for a query that needs most of them. An
 * operation that cannot be read is left to br_store_view_operation. */
void br_store_view_operations(struct br_store_query *query, struct br_store_view *view);

/* --- Series of a query (matching.c) ----------------------------------------------------------- */

/* The series that a filter of samples selects. */

struct br_store_matching {
    struct br_store_query *query;
    const struct br_sample_filter *filter;
    struct br_err *err;
    struct br_regex regex;
    struct br_regex_time time;
    /* compiled regular expression of each matcher; NULL: the matcher has no regular expression */
    pcre2_code **patterns;
    /* map from the hash of a series to its struct br_stored_series, for the series of all
     * partitions */
    struct br_map *known;
    /* series of the current view, by their ids in the partition; NULL: the filter does not
     * select the series */
    const struct br_stored_series **series;
    uint32_t n_series, cap_series;
};

/* Compiles the matchers. br_store_matching_release must be called even after an error. Returns
 * 0, BR_EINVAL for an invalid regular expression, or BR_ENOMEM. */
int br_store_matching_init(struct br_store_matching *matching, struct br_store_query *query,
                           const struct br_sample_filter *filter, struct br_err *err);
void br_store_matching_release(struct br_store_matching *matching);

/* Reads the series of a view. Returns 0, BR_ENOMEM, or a code of br_store_view_failed. */
int br_store_matching_read(struct br_store_matching *matching, struct br_store_view *view);
