/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tempo's HTTP API. tempo.c contains the routes and the tags, tempo_values.c the values of tags,
 * tempo_trace.c whole traces, tempo_search.c searches and tempo_metrics.c metrics. tempo_scan.c
 * evaluates a query on the spans of a time range, and tempo_stream.c offers the same over gRPC. The
 * responses follow tempopb (pkg/tempopb/tempo.proto), whose clients fail on unknown fields.
 */
#pragma once

#include "extensions/query/query.h"
#include "query/traceql.h"

/* Respond to GET /api/traces/{id} (v1) and /api/v2/traces/{id}: all spans of a trace. */
void query_tempo_trace_v1(struct query_job *job);
void query_tempo_trace_v2(struct query_job *job);

/* Responds to GET /api/braid/traces/{id}/otlp: all spans of a trace with all their fields, as a
 * file of OTLP/JSON (opentelemetry-proto, docs/specification.md#json-protobuf-encoding). */
void query_trace_otlp(struct query_job *job);

/* Responds to GET /api/search. */
void query_tempo_search(struct query_job *job);

/* Respond to GET /api/search/tags and /api/v2/search/tags. */
void query_tempo_tags_v1(struct query_job *job);
void query_tempo_tags_v2(struct query_job *job);

/* Respond to GET /api/search/tag/{tag}/values and /api/v2/search/tag/{tag}/values. */
void query_tempo_values_v1(struct query_job *job);
void query_tempo_values_v2(struct query_job *job);

/* Respond to GET /api/metrics/query_range and /api/metrics/query. */
void query_tempo_range(struct query_job *job);
void query_tempo_instant(struct query_job *job);

/* Reads `start` and `end` of the request as the range [from, until); a missing bound becomes 0.
 * An `end` in whole seconds includes that second. Returns false after query_job_fail. */
bool query_tempo_range_read(struct query_job *job, uint64_t *ret_from_ns, uint64_t *ret_until_ns);

/* Appends `{"key":...,"value":{...}}` with the value as a JSON AnyValue. */
void query_tempo_put_attribute(struct br_str *out, const char *key,
                               const struct br_traceql_value *value);

/* --- Names ----------------------------------------------------------------------------------- */

/* A list of distinct names, appended to the response. */
struct query_tempo_names {
    struct query_job *job;
    struct br_map *seen; /* set of the names in the list; NULL: duplicates cannot occur */
    /* type of the listed values, such as "string"; NULL: the list contains names without a type */
    const char *type;
    bool guess_type; /* derive the type of each value from its text */
    uint64_t left;
    bool any;
    struct br_err err;
    int rc;
};

/* Number of intrinsics that are listed to clients. */
#define QUERY_TEMPO_INTRINSICS 25
extern const char *const query_tempo_intrinsics[QUERY_TEMPO_INTRINSICS];

/* Begins a list, and reads `start`, `end` and `limit` of the request. `once` removes duplicates.
 * Returns false after query_job_fail. */
bool query_tempo_names_begin(struct query_tempo_names *names, struct query_job *job, bool once,
                             uint64_t *from, uint64_t *until);

/* Appends a name unless the list contains `key`. The name is the last part of `key`. Returns
 * false if the list is full. After a failure, sets `rc` and returns false. */
bool query_tempo_put(struct query_tempo_names *names, const char *key, size_t key_len,
                     const char *name, const char *type);
/* Appends a name; it is a br_name_fn. */
bool query_tempo_put_name(const char *name, uint64_t count, void *arg);
void query_tempo_put_names(struct query_tempo_names *names, const char *const *list, size_t count);

/* Ends a list and frees its map. Returns false after query_job_fail. */
bool query_tempo_names_end(struct query_tempo_names *names, int rc);

/* --- Scans ----------------------------------------------------------------------------------- */

/* A query over a time range, newest spans first. The store's query is restarted for each page of
 * spans, so its memory is bounded. Between two calls of `on_trace`, the job's `store` is
 * restarted, and all data that it returned becomes invalid. */
struct query_tempo_scan {
    struct query_job *job;
    struct br_traceql *query;
    uint64_t from_ns, until_ns; /* Unix nanoseconds; an `until_ns` of 0 means no end */
    /* A filter that br_traceql_filter has narrowed; its limit is ignored. NULL: the filter is
     * made from `query` */
    const struct br_span_filter *filter;
    /* true: `on_trace` receives whole traces. false: it receives traces of one span if the query
     * can be evaluated on single spans */
    bool whole_traces;
    /* Receives a trace, in which the matching spans are marked with `in`. Returns false to end
     * the scan; on failure also sets `rc`. */
    bool (*on_trace)(struct query_tempo_scan *scan, struct br_traceql_trace *trace);
    void *arg;
    int rc;
    struct br_err err;
    const char *cut;     /* why the result is incomplete; NULL: it is complete */
    uint64_t n_spans;    /* number of spans that were read */
    struct br_map *seen; /* set of the traces that were evaluated as a whole */
};

/* Runs a scan and sets `rc`, `err` and `cut`. */
void query_tempo_scan_execute(struct query_tempo_scan *scan);

/* Runs a scan. Returns false after query_job_fail. */
bool query_tempo_scan_run(struct query_tempo_scan *scan);
