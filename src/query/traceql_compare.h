/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare() of TraceQL: counts how often each value of each attribute occurs among selected spans
 * and among the others. The response contains the most frequent values.
 *
 * The attributes are those of the span, its resource and its scope, and the intrinsics name,
 * status, statusMessage, kind, span:childCount, rootName, rootServiceName, instrumentation:name and
 * instrumentation:version. Arrays count as nil. As in Tempo, attributes with a dedicated column in
 * its blocks count as nil if they are missing.
 */
#pragma once

#include "base/index.h"
#include "query/traceql.h"

#define BR_TRACEQL_COMPARED_MAX 100000u /* most different values per query */

enum br_traceql_side { BR_TRACEQL_BASELINE, BR_TRACEQL_SELECTION, BR_TRACEQL_SIDES };

/* The count of a value of an attribute on one side, or of all its values. */
struct br_traceql_compared {
    enum br_traceql_side side;
    bool is_total;
    const char *name; /* "resource.service.name" */
    struct br_traceql_value value;
    uint32_t *counts; /* count per step */
    uint64_t count;
};

struct br_traceql_comparison {
    const struct br_traceql *query; /* a query whose metric is compare() */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    struct br_arena *arena; /* borrowed; holds the names, values and counts */
    struct br_traceql_compared *entries;
    uint32_t n_entries, cap_entries;
    struct br_index index;
    bool full; /* some values were not counted, because there were too many */
};

/* Initialises an empty comparison. The caller has set the fields up to `arena`. */
void br_traceql_comparison_init(struct br_traceql_comparison *comparison);
void br_traceql_comparison_release(struct br_traceql_comparison *comparison);

/* Counts a span of a trace; `bytes` are those of the span. Returns 0 or BR_ENOMEM. */
int br_traceql_comparison_add(struct br_traceql_comparison *comparison,
                              const struct br_traceql_trace *trace,
                              const struct br_traceql_span *span, const struct br_span_bytes *bytes,
                              enum br_traceql_side side);

/* Sorts the entries: first values by side and name, the most frequent first, then totals. */
void br_traceql_comparison_sort(struct br_traceql_comparison *comparison);
