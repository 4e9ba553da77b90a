/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tempo's HTTP API. tempo.c contains the routes and the tags, tempo_values.c the values of tags,
 * tempo_trace.c whole traces, tempo_search.c searches and tempo_metrics.c metrics. tempo_scan.c
 * evaluates a query on the spans of a time range, and tempo_stream.c offers the API over gRPC. The
 * responses follow tempopb (pkg/tempopb/tempo.proto), because clients fail on unknown fields.
 */
#pragma once

#include "extensions/query/query.h"
#include "query/traceql.h"

/* Responds with all spans of a trace: to GET /api/traces/{id} (v1), or /api/v2/traces/{id} (v2). */
void query_tempo_trace_v1(struct query_job *job);
void query_tempo_trace_v2(struct query_job *job);

/* Responds to GET /api/braid/traces/{id}/otlp: all spans of a trace with all their fields, as a
 * file of OTLP/JSON (opentelemetry-proto, docs/specification.md#json-protobuf-encoding). */
void query_trace_otlp(struct query_job *job);

/* Responds to GET /api/search. */
void query_tempo_search(struct query_job *job);

/* Responds with the names of tags: to GET /api/search/tags (v1), or /api/v2/search/tags (v2). */
void query_tempo_tags_v1(struct query_job *job);
void query_tempo_tags_v2(struct query_job *job);

/* Responds with the values of a tag: to GET /api/search/tag/{tag}/values (v1), or
 * /api/v2/search/tag/{tag}/values (v2). */
void query_tempo_values_v1(struct query_job *job);
void query_tempo_values_v2(struct query_job *job);

/* Responds with metrics: to GET /api/metrics/query_range, or /api/metrics/query (instant). */
void query_tempo_range(struct query_job *job);
void query_tempo_instant(struct query_job *job);

/* Reads the parameters `start` and `end` as the range [from, until). A missing bound is stored
 * as 0. An `end` in whole seconds includes that second. On failure, calls query_job_fail and
 * returns false. */
bool query_tempo_range_read(struct query_job *job, uint64_t *ret_from_ns, uint64_t *ret_until_ns);

/* Appends `{"key":...,"value":{...}}` with the value as a JSON AnyValue. */
void query_tempo_put_attribute(struct br_str *out, const char *key,
                               const struct br_traceql_value *value);

/* --- Names ----------------------------------------------------------------------------------- */

/* A list of distinct names that is being written to the response. */
struct query_tempo_names {
    struct query_job *job;
    /* set of the keys of listed names, used to omit duplicates; NULL: duplicates cannot occur */
    struct br_map *seen;
    /* type that is written with each value, such as "string"; NULL: the list contains names
     * without a type */
    const char *type;
    bool guess_type; /* true: the type of each value is derived from its text */
    uint64_t left;
    bool any;
    struct br_err err;
    int rc;
};

/* number of intrinsics that the lists of tags contain */
#define QUERY_TEMPO_INTRINSICS 25
extern const char *const query_tempo_intrinsics[QUERY_TEMPO_INTRINSICS];

/* Begins a list, and reads the parameters `start`, `end` and `limit`. If `once` is true,
 * duplicates are omitted. On failure, calls query_job_fail and returns false. */
bool query_tempo_names_begin(struct query_tempo_names *names, struct query_job *job, bool once,
                             uint64_t *from, uint64_t *until);

/* Appends a name unless the list contains `key`. `name` points to the last part of `key`.
 * Returns false if the list is full. On failure, sets `rc` and returns false. */
bool query_tempo_put(struct query_tempo_names *names, const char *key, size_t key_len,
                     const char *name, const char *type);
/* Appends a name; this function has the type br_name_fn. */
bool query_tempo_put_name(const char *name, uint64_t count, void *arg);
void query_tempo_put_names(struct query_tempo_names *names, const char *const *list, size_t count);

/* Ends a list and frees its map. On failure, calls query_job_fail and returns false. */
bool query_tempo_names_end(struct query_tempo_names *names, int rc);

/* --- Scans ----------------------------------------------------------------------------------- */

/* A search in a time range, from the newest spans to the oldest. Spans are read in pages. The
 * store's query is restarted for each page, so that the memory is bounded. All data that
 * job->store returned becomes invalid at a restart, which may happen between two calls of
 * `on_trace`. */
struct query_tempo_scan {
    struct query_job *job;
    struct br_traceql *query;
    /* range of start times in Unix nanoseconds; an `until_ns` of 0 means no end */
    uint64_t from_ns, until_ns;
    /* a filter that br_traceql_filter has narrowed; its limit is ignored; NULL: the scan derives
     * the filter from `query` */
    const struct br_span_filter *filter;
    /* true: `on_trace` receives whole traces. false: if the query can be evaluated on single
     * spans, `on_trace` receives each span as a separate trace */
    bool whole_traces;
    /* Receives a trace, in which the field `in` marks the matching spans. Returns false to end
     * the scan; on failure also sets `rc`. */
    bool (*on_trace)(struct query_tempo_scan *scan, struct br_traceql_trace *trace);
    void *arg;
    int rc;
    struct br_err err;
    const char *cut;     /* reason why the result is incomplete; NULL: the result is complete */
    uint64_t n_spans;    /* number of spans that were read */
    struct br_map *seen; /* set of the traces that were evaluated as a whole */
};

/* Runs a scan and sets `rc`, `err` and `cut`. */
void query_tempo_scan_execute(struct query_tempo_scan *scan);

/* Runs a scan. On failure, calls query_job_fail and returns false. */
bool query_tempo_scan_run(struct query_tempo_scan *scan);
