/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluates compare() of TraceQL: counts how often each value of each attribute occurs among the
 * selected spans and among the other spans. The response contains the most frequent values.
 *
 * The attributes are those of the span, its resource and its scope, and the intrinsics name,
 * status, statusMessage, kind, span:childCount, rootName, rootServiceName, instrumentation:name and
 * instrumentation:version. Arrays count as nil. As in Tempo, an attribute with a dedicated column
 * in Tempo's blocks counts as nil if the span does not have it.
 */
#pragma once

#include "base/index.h"
#include "query/traceql.h"

/* most entries of a comparison: values and totals of both sides together */
#define BR_TRACEQL_COMPARED_MAX 100000u

enum br_traceql_side { BR_TRACEQL_BASELINE, BR_TRACEQL_SELECTION, BR_TRACEQL_SIDES };

/* How often a value of an attribute occurs on one side or, if `is_total`, how often all values
 * of the attribute occur on that side together. */
struct br_traceql_compared {
    enum br_traceql_side side;
    bool is_total;
    const char *name; /* name of the attribute: "resource.service.name" */
    struct br_traceql_value value;
    uint32_t *counts; /* one count of spans per step */
    uint64_t count;
};

struct br_traceql_comparison {
    const struct br_traceql *query; /* a query whose metric is compare() */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    struct br_arena *arena; /* owned by the caller; holds the names, values and counts */
    struct br_traceql_compared *entries;
    uint32_t n_entries, cap_entries;
    struct br_index index;
    /* some values were not counted, because there would be more than BR_TRACEQL_COMPARED_MAX
     * entries */
    bool full;
};

/* Initialises an empty comparison. The caller has set the fields of `comparison` up to `arena`. */
void br_traceql_comparison_init(struct br_traceql_comparison *comparison);
void br_traceql_comparison_release(struct br_traceql_comparison *comparison);

/* Counts the attributes of a span of a trace. `bytes` are the span's bytes. Returns 0 or
 * BR_ENOMEM. */
int br_traceql_comparison_add(struct br_traceql_comparison *comparison,
                              const struct br_traceql_trace *trace,
                              const struct br_traceql_span *span, const struct br_span_bytes *bytes,
                              enum br_traceql_side side);

/* Sorts the entries. Entries of single values come first, by side and attribute name, the most
 * frequent value first; the totals follow. */
void br_traceql_comparison_sort(struct br_traceql_comparison *comparison);
