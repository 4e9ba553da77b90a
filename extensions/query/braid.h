/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The types and functions that the files of Braid's own query API, /api/braid/, share. braid.c has
 * the routes, what the store holds and services; braid_spans.c spans and the live tail;
 * braid_trace.c one trace; braid_profile.c profiles, functions and differences; braid_slow.c slow
 * against typical; braid_timeline.c the time line; braid_join.c how well samples and spans meet;
 * braid_privacy.c what is private and what was redacted; braid_slice.c what the store has of a
 * time, as a file.
 *
 * What a span took is added up when it is asked for, by the ids in samples (braid_figures.c). A
 * span's local subtree are the spans below it up to those of another service: what ran for it in
 * its process.
 */
#pragma once

#include "base/map.h"
#include "extensions/query/pick.h"
#include "extensions/query/profile_answer.h"
#include "extensions/query/tables.h"

#define BRAID_TRACE_SPANS_MAX 100000 /* of a trace that are looked at */
#define BRAID_TYPES_MAX 64           /* profile types of one answer */
#define BRAID_SPANS_MAX 1000         /* that one answer lists */
#define BRAID_VALUE_DEPTH_MAX                                                                      \
    64 /* lists and maps in an attribute's value; what is deeper is null */
#define BRAID_SECOND_NS UINT64_C(1000000000)

/* --- Parameters and JSON (braid.c) ------------------------------------------------------------ */

/* Reads `start` and `end`, by default the last hour; `*ret_until` is past the end. Returns false
 * after query_job_fail. */
bool query_braid_range(struct query_job *job, uint64_t *ret_from, uint64_t *ret_until);

/* Reads a duration as "100ms", "1.5s" or nanoseconds; 0 where it is not there. Returns false after
 * query_job_fail. */
bool query_braid_duration(struct query_job *job, const char *name, uint64_t *ret);

/* Append ids as hex in the order of their bytes. */
void query_braid_put_trace(struct br_str *out, char before, const char *name,
                           const uint8_t trace_id[16]);
void query_braid_put_span(struct br_str *out, char before, const char *name, uint64_t span_id);

/* Ends the answer: the cut and the closing brace; or fails the job. */
void query_braid_end(struct query_job *job, int rc, const struct br_err *err);

/* --- Figures (braid_figures.c) ---------------------------------------------------------------- */

/* What samples add up to. */
struct query_braid_sum {
    uint64_t samples;
    int64_t value;
};

struct query_braid_figures {
    struct query_braid_sum *types; /* of the table's types, as far as there is something */
    size_t n_types;
};

/* Profile types that were met, in the order in which they were. */
struct query_braid_types {
    const char *ids[BRAID_TYPES_MAX];
    size_t count;
};

/* Returns the index of a type, entered where it is new; BRAID_TYPES_MAX where there are too many
 * or no memory. */
size_t query_braid_type(struct query_job *job, struct query_braid_types *types, const char *id);

/* Returns true for processor time in nanoseconds. */
bool query_braid_is_cpu(const char *type_id);

/* Returns the type to show where none is asked for: processor time, else wall time, else the one
 * with the most samples. BRAID_TYPES_MAX where there is none. */
size_t query_braid_main_type(const struct query_braid_types *types,
                             const struct query_braid_figures *figures);

/* Adds to a figure. Returns 0 or BR_ENOMEM. */
int query_braid_add(struct query_job *job, struct query_braid_figures *figures, size_t type,
                    uint64_t samples, int64_t value);

/* Appends `{"samples":0,"cpu_ns":0,"types":{}}`, without the last brace. */
void query_braid_put_figures(struct br_str *out, const struct query_braid_types *types,
                             const struct query_braid_figures *figures);

/* --- Traces (braid_figures.c) ----------------------------------------------------------------- */

struct query_braid_row {
    struct br_stored_span span;
    struct query_braid_figures self, subtree;
    uint32_t first_child, next, parent; /* rows; UINT32_MAX: none */
    int64_t rank;                       /* of a search: rows with a larger one come first */
    bool seen;
};

struct query_braid_rows {
    struct query_job *job;
    struct query_braid_row *rows;
    size_t count, max;
    uint32_t cap;
    struct br_map *by_id; /* of a trace: rows by span id; NULL: not read */
    struct query_braid_types types;
    int rc;
};

/* Takes a span (br_span_fn), up to rows->max. Rows are given back by query_braid_rows_release. */
bool query_braid_rows_add(const struct br_stored_span *span, void *rows);
void query_braid_rows_release(struct query_braid_rows *rows);

/* Reads the spans of a trace and who is whose child. Returns as br_store_trace. */
int query_braid_read_trace(struct query_braid_rows *rows, const uint8_t trace_id[16],
                           struct br_err *err);

/* Returns the row of a span of a trace, or NULL. */
struct query_braid_row *query_braid_find(const struct query_braid_rows *rows, uint64_t span_id);

/* Adds the ids of a row's local subtree to `pick`. Returns 0, BR_EINVAL (too many), BR_ENOMEM. */
int query_braid_pick_subtree(struct query_braid_rows *rows, const struct query_braid_row *root,
                             struct query_pick *pick);

/* Fills in `self` of all rows, by the ids in samples: one question to the store. */
int query_braid_sum_rows(struct query_braid_rows *rows, struct br_err *err);

/* Fills in `subtree` of rows that query_braid_read_trace has read, from their `self`. */
int query_braid_sum_subtrees(struct query_braid_rows *rows);

/* The OpenAPI document (openapi.json). */
extern const unsigned char query_openapi[];
extern const size_t query_openapi_len;

/* --- Spans (braid_spans.c) -------------------------------------------------------------------- */

const char *query_braid_kind(uint8_t kind);
const char *query_braid_status(uint8_t status);

/* --- Handlers --------------------------------------------------------------------------------- */

void query_braid_spans(struct query_job *job);
void query_braid_tail(struct query_job *job);
void query_braid_trace(struct query_job *job);
void query_braid_span_profile(struct query_job *job);
void query_braid_profile(struct query_job *job);
void query_braid_top(struct query_job *job);
void query_braid_diff(struct query_job *job);
void query_braid_slow(struct query_job *job);
void query_braid_timeline(struct query_job *job);
void query_braid_join(struct query_job *job);
void query_braid_privacy(struct query_job *job);
void query_braid_slice(struct query_job *job);
