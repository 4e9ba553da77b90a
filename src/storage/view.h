/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what the queries of spans and of samples share: the partitions as one query sees them.
 * For src/storage only. */
#pragma once

#include "storage/columns.h"
#include "storage/internal.h"
#include "storage/pack.h"

/* A partition in a query. Everything in it is of the state that it was in when it was first asked.
 */
struct br_store_view {
    struct br_store_partition *partition;
    struct br_store_totals totals;
    struct br_store_reader *reader; /* NULL: it is not open, or cannot be read */
    unsigned uses;                  /* of the reader; 0: it may be closed for another */
    bool failed;
    const char *unread; /* why it is not read, where that was known before; NULL: it is */
    const char **services, **names; /* of operations, by number; NULL: not read yet */
    uint32_t n_operations;
};

#define BR_STORE_BODIES 4 /* blocks' bodies that a query keeps */

struct br_store_body {
    struct br_store_view *view; /* NULL: none */
    int64_t block;
    uint64_t used; /* the greatest was used last */
    struct br_pack plain;
    uint32_t n_spans, n_heads, cap_heads;
    uint32_t spans[BR_BLOCK_SPANS]; /* where each begins in `plain` */
    struct {
        const uint8_t *copy; /* in the arena; NULL: none yet */
        size_t at, len;
    } * heads;
};

struct br_store_reading {
    struct br_store_view *views; /* the oldest first */
    uint32_t n_views;
    struct br_squeezer squeezer;
    struct br_pack plain;
    struct br_columns columns;
    struct br_store_body bodies[BR_STORE_BODIES];
    uint64_t n_used;
    size_t held; /* bytes beside the arena */
};

static inline struct br_store_reading *br_store_reading_of(const struct br_store_query *query)
{
    return query->impl;
}

/* Returns false, and the query is cut, when its time or memory is used up. */
bool br_store_query_goes_on(struct br_store_query *query);

/* Counts memory that the query holds beside the arena. */
void br_store_query_hold(struct br_store_query *query, int64_t bytes);

/* Makes the view's reader ready, until as many calls of br_store_view_rest. False where the
 * partition cannot be read: then `*rc` is 0 where the query goes on without it, and has a note of
 * that, or a code. */
bool br_store_view_open(struct br_store_query *query, struct br_store_view *view, int *rc,
                        struct br_err *err);
void br_store_view_rest(struct br_store_view *view);

/* Decides what becomes of a query when reading a partition failed with `code`: 0 where it goes on
 * without it, or is cut; or a code. */
int br_store_view_failed(struct br_store_query *query, struct br_store_view *view, int code,
                         struct br_err *err);

/* Reads a blob: column `column` of the statement's row, decompressed into reading->plain. Returns
 * 0, BR_EPROTO or BR_ENOMEM. */
int br_store_view_blob(struct br_store_query *query, sqlite3_stmt *statement, int column,
                       struct br_err *err);

/* Returns a terminated copy of a column's text in the arena; NULL, and the query is cut, when it
 * is full. */
const char *br_store_view_text(struct br_store_query *query, sqlite3_stmt *statement, int column);

/* Returns true when spans of these totals may start in [from, until); until 0: no end. */
bool br_store_view_has_spans(const struct br_store_totals *totals, uint64_t from_ns,
                             uint64_t until_ns);

/* Decides as br_store_view_failed does, of what SQLite said last. */
int br_store_view_sql_failed(struct br_store_query *query, struct br_store_view *view,
                             struct br_err *err);

/* Whether a row may be about this block: they are numbered one after the other, and none is empty.
 * False is damage, and the query goes on without the partition where `*rc` is 0. */
bool br_store_view_block(struct br_store_query *query, struct br_store_view *view, int64_t block,
                         int *rc, struct br_err *err);

/* Reads the columns of a block into reading->columns. `*ret` says whether it was there. Returns 0
 * or as br_store_view_failed. */
int br_store_view_columns(struct br_store_query *query, struct br_store_view *view, int64_t block,
                          bool *ret, struct br_err *err);
