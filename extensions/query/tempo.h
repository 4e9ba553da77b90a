/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tempo's HTTP API in pieces: tempo.c has the routes and the tags, tempo_values.c their values,
 * tempo_trace.c whole traces, tempo_search.c searches, tempo_metrics.c metrics; tempo_scan.c asks a
 * query of all spans of a range of time, tempo_stream.c answers the same over gRPC. Shapes: tempopb
 * of Tempo (pkg/tempopb/tempo.proto), whose clients fail on any field that it has not.
 */
#pragma once

#include "extensions/query/query.h"
#include "query/traceql.h"

/* Answer GET /api/traces/{id} (v1) and /api/v2/traces/{id}: all spans of a trace. */
void query_tempo_trace_v1(struct query_job *job);
void query_tempo_trace_v2(struct query_job *job);

/* Answers GET /api/braid/traces/{id}/otlp: all spans of a trace with all their fields, as a file of
 * OTLP/JSON (opentelemetry-proto, docs/specification.md#json-protobuf-encoding). */
void query_trace_otlp(struct query_job *job);

/* Answers GET /api/search. */
void query_tempo_search(struct query_job *job);

/* Answer GET /api/search/tags and /api/v2/search/tags. */
void query_tempo_tags_v1(struct query_job *job);
void query_tempo_tags_v2(struct query_job *job);

/* Answer GET /api/search/tag/{tag}/values and /api/v2/search/tag/{tag}/values. */
void query_tempo_values_v1(struct query_job *job);
void query_tempo_values_v2(struct query_job *job);

/* Answer GET /api/metrics/query_range and /api/metrics/query. */
void query_tempo_range(struct query_job *job);
void query_tempo_instant(struct query_job *job);

/* Reads `start` and `end` of the request: [from, until), 0 and 0 where they are not there. An end
 * in whole seconds includes its second. False after query_job_fail. */
bool query_tempo_range_read(struct query_job *job, uint64_t *ret_from_ns, uint64_t *ret_until_ns);

/* Appends `{"key":...,"value":{...}}`, the value as an AnyValue in JSON. */
void query_tempo_put_attribute(struct br_str *out, const char *key,
                               const struct br_traceql_value *value);

/* --- Names ------------------------------------------------------------------------------------ */

/* Names of one list, each once. */
struct query_tempo_names {
    struct query_job *job;
    struct br_map *seen; /* NULL: none comes twice */
    const char *type;    /* of values: "string"; NULL: names alone */
    bool guesses;        /* another type where the value looks like it */
    uint64_t left;
    bool any;
    struct br_err err;
    int rc;
};

/* The intrinsics that a client is told of. */
#define QUERY_TEMPO_INTRINSICS 25
extern const char *const query_tempo_intrinsics[QUERY_TEMPO_INTRINSICS];

/* Reads `start`, `end` and `limit` of the request. False after query_job_fail. */
bool query_tempo_names_begin(struct query_tempo_names *names, struct query_job *job, bool once,
                             uint64_t *from, uint64_t *until);

/* Puts a name that was not there yet. It is the end of `key`, by which it is known. False when
 * there is no room for more, or with `rc` set after a failure. */
bool query_tempo_put(struct query_tempo_names *names, const char *key, size_t key_len,
                     const char *name, const char *type);
bool query_tempo_put_name(const char *name, uint64_t count, void *arg); /* br_name_fn */
void query_tempo_put_names(struct query_tempo_names *names, const char *const *list, size_t count);

/* Ends the list of names. Returns false after query_job_fail. */
bool query_tempo_names_end(struct query_tempo_names *names, int rc);

/* --- Scans ------------------------------------------------------------------------------------ */

/* A query over a range of time, newest spans first. The store's query is begun anew for each page
 * of spans, so that what it holds is bounded: `store` and all that came from it change between two
 * calls of `take`. */
struct query_tempo_scan {
    struct query_job *job;
    struct br_traceql *query;
    uint64_t from_ns, until_ns;          /* until 0: no end */
    const struct br_span_filter *filter; /* NULL, or one that the spans of interest fit and that
                                            br_traceql_filter has narrowed; its limit is not used */
    bool whole_traces; /* `take` is called with each trace that the query finds; otherwise
                          with a trace of the one span where that can be judged alone */
    /* Takes a trace, some of whose spans are `in`. Returns false to end the scan, with `rc` set
     * after a failure. */
    bool (*take)(struct query_tempo_scan *scan, struct br_traceql_trace *trace);
    void *arg;
    int rc;
    struct br_err err;
    const char *cut;     /* why it is not all */
    uint64_t n_spans;    /* that were looked at */
    struct br_map *seen; /* traces that were taken, or judged as a whole */
};

/* Runs it: `rc`, `err` and `cut` say how it ended. */
void query_tempo_scan_ask(struct query_tempo_scan *scan);

/* The same. False after query_job_fail. */
bool query_tempo_scan_run(struct query_tempo_scan *scan);
