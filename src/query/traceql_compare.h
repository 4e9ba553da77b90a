/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare() of TraceQL: how often each value of each attribute is among selected spans, and among
 * the others. An answer has the values that are most frequent.
 *
 * Attributes are those of the span, of its resource and scope, and the intrinsics name, status,
 * statusMessage, kind, span:childCount, rootName, rootServiceName, instrumentation:name and
 * instrumentation:version. Arrays count as nil. As in Tempo, the attributes that its blocks have
 * columns for count as nil where they are not there.
 */
#pragma once

#include "base/index.h"
#include "query/traceql.h"

#define BR_TRACEQL_COMPARED_MAX 100000u /* different values of a query */

enum br_traceql_side { BR_TRACEQL_BASELINE, BR_TRACEQL_SELECTION, BR_TRACEQL_SIDES };

/* A value of an attribute on one side, or all its values together. */
struct br_traceql_compared {
    enum br_traceql_side side;
    bool is_total;
    const char *name; /* "resource.service.name" */
    struct br_traceql_value value;
    uint32_t *counts; /* of each step */
    uint64_t count;
};

struct br_traceql_comparison {
    const struct br_traceql *query; /* whose metric is compare() */
    uint64_t start_ns, step_ns;
    uint32_t n_steps;
    struct br_arena *arena; /* of all that it makes but the next four; borrowed */
    struct br_traceql_compared *entries;
    uint32_t n_entries, cap_entries;
    struct br_index index;
    bool full; /* values were left out */
};

/* Begins with nothing; the fields up to `arena` are set. */
void br_traceql_comparison_init(struct br_traceql_comparison *comparison);
void br_traceql_comparison_release(struct br_traceql_comparison *comparison);

/* Counts a span of a trace, whose bytes these are. Returns 0 or BR_ENOMEM. */
int br_traceql_comparison_add(struct br_traceql_comparison *comparison,
                              const struct br_traceql_trace *trace,
                              const struct br_traceql_span *span, const struct br_span_bytes *bytes,
                              enum br_traceql_side side);

/* Sorts the entries: values by side and name, the most frequent first, and then totals. */
void br_traceql_comparison_sort(struct br_traceql_comparison *comparison);
