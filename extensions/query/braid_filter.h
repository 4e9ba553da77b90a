/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the parameters that select spans: service, name, start, end, min_duration, max_duration,
 * status, roots and q (TraceQL). The list of spans and the heat map use the same functions, so that
 * they contain the same spans.
 */
#pragma once

#include "extensions/query/braid.h"
#include "query/traceql.h"

struct query_braid_filter {
    struct br_span_filter filter;
    struct br_traceql query; /* the parameter q, if `has_query` is true */
    bool has_query;
    struct br_arena arena; /* arena of `query` */
};

/* Returns the value of a parameter, or NULL if the parameter is missing or empty. */
const char *query_braid_param(const struct query_job *job, const char *name);

/* Reads the parameter `status` into the filter. On failure, calls query_job_fail and returns
 * false. */
bool query_braid_status_read(struct query_job *job, struct br_span_filter *filter);

/* Reads a parameter whose value must be `yes`, "false" or "self". Stores whether it is `yes`. On
 * failure, calls query_job_fail and returns false. */
bool query_braid_flag(struct query_job *job, const char *name, const char *yes, bool *ret);

/* Reads all parameters except q. On failure, calls query_job_fail and returns false. */
bool query_braid_filter_read(struct query_braid_filter *of, struct query_job *job);

/* Parses the parameter q, and narrows the filter to the conditions of q. The caller must release
 * `of`, even after a failure. Returns 0, or the errors of br_traceql_parse. */
int query_braid_filter_parse(struct query_braid_filter *of, struct query_job *job,
                             struct br_err *err);

/* Frees the query. Accepts a zeroed filter. */
void query_braid_filter_release(struct query_braid_filter *of);

/* A selection among the spans of a filter: bounds of the start (Unix nanoseconds) and of the
 * duration (nanoseconds). All bounds are inclusive. */
struct query_braid_selection {
    uint64_t from_ns, to_ns;
    uint64_t min_duration_ns, max_duration_ns;
};

/* Reads the parameters selection_start, selection_end, selection_min_duration and
 * selection_max_duration, which have the formats of start, end, min_duration and max_duration. A
 * missing parameter does not limit the selection. Stores in `*ret_any` whether one of them is set.
 * On failure, calls query_job_fail and returns false. */
bool query_braid_selection_read(struct query_braid_selection *selection, struct query_job *job,
                                bool *ret_any);

/* Returns true if a span with this start (Unix nanoseconds) and duration (nanoseconds) is in the
 * selection. */
bool query_braid_selection_has(const struct query_braid_selection *selection, uint64_t start_ns,
                               uint64_t duration_ns);

/* Calls `fn` for each selected span in no particular order. The span is valid during the call. With
 * a query, the data of job->store is freed between two calls (struct query_tempo_scan). Returns 0,
 * BR_EIO, BR_ENOMEM or an error of the query. If the search was cut (job->store->cut), the result
 * is incomplete and the function returns 0. */
int query_braid_filter_spans(struct query_braid_filter *of, struct query_job *job, br_span_fn *fn,
                             void *arg, struct br_err *err);

/* Receives span number `index` of the facts, which are valid during the call. Returns false to stop
 * the iteration. */
typedef bool query_braid_facts_fn(const struct br_span_facts *facts, uint32_t index, void *arg);

/* Calls `fn` for each selected span in no particular order; the filter must not have a query. Much
 * faster than query_braid_filter_spans, because the ids of spans are not read. Returns 0, BR_EIO or
 * BR_ENOMEM. If the search was cut (job->store->cut), the result is incomplete and the function
 * returns 0. */
int query_braid_filter_facts(const struct query_braid_filter *of, struct query_job *job,
                             query_braid_facts_fn *fn, void *arg, struct br_err *err);
