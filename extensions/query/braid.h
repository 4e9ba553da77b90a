/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations shared by the files of Braid's own query API, /api/braid/:
 *
 * - braid.c: routes, status of the store, services
 * - braid_operations.c: figures of services and operations
 * - braid_spans.c: spans, live tail
 * - braid_filter.c: the parameters that select spans
 * - braid_heat.c: numbers of spans by time and duration
 * - braid_differences.c: attributes that differ between selected spans and the rest
 * - braid_trace.c: one trace
 * - braid_profile.c: profiles, functions, differences
 * - braid_slow.c: slow spans compared with typical ones
 * - braid_parts.c: parts of the durations of these spans
 * - braid_timeline.c: figures over time
 * - braid_join.c: quality of the join of samples and spans
 * - braid_privacy.c: possibly private data, and counts of redacted values
 * - braid_slice.c: the data of a time range as a file
 *
 * The figures of a span are the number of its samples and the sums of their values, by profile
 * type. Figures are computed for each query from the span ids in samples (braid_figures.c). The
 * local subtree of a span consists of the span and those descendants that are reached through spans
 * of the same service. The local subtree represents the work done for the span in its own process.
 */
#pragma once

#include "base/map.h"
#include "extensions/query/profile_answer.h"
#include "extensions/query/query.h"
#include "extensions/query/selection.h"

#define BRAID_TRACE_SPANS_MAX 100000 /* maximum number of spans of one trace that are read */
#define BRAID_TYPES_MAX 64           /* maximum number of profile types in one response */
#define BRAID_SPANS_MAX 1000         /* maximum number of spans in one response */
/* maximum number of levels of nested lists and maps in an attribute value; deeper values are null
 */
#define BRAID_VALUE_DEPTH_MAX 64
#define BRAID_SECOND_NS UINT64_C(1000000000)

/* --- Functions for parameters and JSON (braid.c) ---------------------------------------------- */

/* Reads the parameters `start` and `end`; the default is the last hour. `*ret_until` is
 * exclusive. On failure, calls query_job_fail and returns false. */
bool query_braid_range(struct query_job *job, uint64_t *ret_from, uint64_t *ret_until);

/* Reads the parameter `name`, a duration such as "100ms" or "1.5s". Stores nanoseconds in
 * `*ret`, or 0 if the parameter is missing. On failure, calls query_job_fail and returns false. */
bool query_braid_duration(struct query_job *job, const char *name, uint64_t *ret);

/* query_braid_put_trace and query_braid_put_span append `"name":"<hex>"` with the id in hex,
 * preceded by the character `before`. The hex digits are in the order of the id's bytes. */
void query_braid_put_trace(struct br_str *out, char before, const char *name,
                           const uint8_t trace_id[16]);
void query_braid_put_span(struct br_str *out, char before, const char *name, uint64_t span_id);

/* Ends the response with the field `cut` and the closing brace, or fails the job if `rc` is not
 * 0. */
void query_braid_end(struct query_job *job, int rc, const struct br_err *err);

/* --- Figures (braid_figures.c) --------------------------------------------------------------- */

/* A number of samples, and the sum of their values. */
struct query_braid_sum {
    uint64_t samples;
    int64_t value;
};

struct query_braid_figures {
    /* sums by index of the profile type in struct query_braid_types; the array may be shorter
     * than the list of types */
    struct query_braid_sum *types;
    size_t n_types;
};

/* The profile types found so far, in order of appearance. */
struct query_braid_types {
    const char *ids[BRAID_TYPES_MAX];
    size_t count;
};

/* Finds or adds a profile type, and returns its index. Returns BRAID_TYPES_MAX if there are too
 * many types or memory runs out. */
size_t query_braid_type(struct query_job *job, struct query_braid_types *types, const char *id);

/* Returns true if the profile type is CPU time in nanoseconds. */
bool query_braid_is_cpu(const char *type_id);

/* Returns the index of the profile type to show by default: CPU time, otherwise wall time,
 * otherwise the type with the most samples. Returns BRAID_TYPES_MAX if there are no samples. */
size_t query_braid_main_type(const struct query_braid_types *types,
                             const struct query_braid_figures *figures);

/* Adds samples to the figures of the profile type with index `type`. Returns 0, BR_EFULL or
 * BR_ENOMEM. */
int query_braid_add(struct query_job *job, struct query_braid_figures *figures, size_t type,
                    uint64_t samples, int64_t value);

/* Appends an object such as `{"samples":0,"cpu_ns":0,"types":{}`, without its closing brace. */
void query_braid_put_figures(struct br_str *out, const struct query_braid_types *types,
                             const struct query_braid_figures *figures);

/* --- Traces (braid_figures.c) ---------------------------------------------------------------- */

struct query_braid_row {
    struct br_stored_span span;
    struct query_braid_figures self, subtree;
    /* indices of the first child, next sibling and parent in `rows`; UINT32_MAX: no such row */
    uint32_t first_child, next, parent;
    /* rank of the row in a search: rows with larger ranks come first */
    int64_t rank;
    bool seen;
};

struct query_braid_rows {
    struct query_job *job;
    struct query_braid_row *rows;
    size_t count, max;
    uint32_t cap;
    /* map from span id to row; NULL unless query_braid_read_trace has read the rows */
    struct br_map *by_id;
    struct query_braid_types types;
    int rc;
};

/* query_braid_rows_add adds a row for a span; it is a br_span_fn, and stops at rows->max rows.
 * query_braid_rows_release frees the rows. */
bool query_braid_rows_add(const struct br_stored_span *span, void *rows);
void query_braid_rows_release(struct query_braid_rows *rows);

/* Reads the spans of a trace as rows, and links parents with children. Returns 0, BR_EIO or
 * BR_ENOMEM. */
int query_braid_read_trace(struct query_braid_rows *rows, const uint8_t trace_id[16],
                           struct br_err *err);

/* Returns the row of a span in a trace, or NULL. */
struct query_braid_row *query_braid_find(const struct query_braid_rows *rows, uint64_t span_id);

/* Returns the row after `row` among the descendants of `root`, parents first. If `local` is true,
 * only the local subtree of `root` is visited. Begins with the row `root`, and returns NULL at the
 * end. */
const struct query_braid_row *query_braid_next(const struct query_braid_rows *rows,
                                               const struct query_braid_row *root,
                                               const struct query_braid_row *row, bool local);

/* Adds the span ids of a row's local subtree to `selection`. Returns 0, BR_EINVAL (too many
 * ids), BR_EFULL or BR_ENOMEM. */
int query_braid_select_subtree(const struct query_braid_rows *rows,
                               const struct query_braid_row *root,
                               struct query_selection *selection);

/* Computes the field `self` of all rows with a single query of the store. Returns 0, BR_EIO or
 * BR_ENOMEM. */
int query_braid_sum_rows(struct query_braid_rows *rows, struct br_err *err);

/* Computes the field `subtree` of all rows of a trace from their fields `self`. Returns 0,
 * BR_EFULL or BR_ENOMEM. */
int query_braid_sum_subtrees(struct query_braid_rows *rows);

/* The OpenAPI document (openapi.json). */
extern const unsigned char query_openapi[];
extern const size_t query_openapi_len;

/* --- Spans (braid_spans.c) ------------------------------------------------------------------- */

/* query_braid_kind returns the name of a Span.SpanKind in Braid's API, and query_braid_status
 * the name of a Status.StatusCode. */
const char *query_braid_kind(uint8_t kind);
const char *query_braid_status(uint8_t status);

/* --- Handlers -------------------------------------------------------------------------------- */

void query_braid_operations(struct query_job *job);
void query_braid_heat(struct query_job *job);
void query_braid_differences(struct query_job *job);
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
