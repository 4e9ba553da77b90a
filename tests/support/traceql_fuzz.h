/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one query of any bytes against a trace. The program that includes this file defines
 * br_store_trace, which returns this trace for the id 0. Either the query must be rejected with a
 * position, or its result must be consistent. If a query can be evaluated for a single span, the
 * result must be the same as in the trace. The filter that is passed to the store must accept every
 * span of the result.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "query/traceql.h"

static inline void traceql_fuzz_require(bool ok)
{
    if (!ok)
        abort();
}

static inline bool traceql_fuzz_passes(const struct br_span_filter *filter,
                                       const struct br_stored_span *row)
{
    if (filter->service && strcmp(filter->service, row->service) != 0)
        return false;
    if (filter->name && strcmp(filter->name, row->name) != 0)
        return false;
    if (row->duration_ns < filter->min_duration_ns)
        return false;
    if (filter->max_duration_ns && row->duration_ns > filter->max_duration_ns)
        return false;
    if (filter->roots && row->parent_id)
        return false;
    return !filter->failed || row->status == 2;
}

static inline void traceql_fuzz_run(struct br_traceql *query, struct br_store_query *store)
{
    static const uint8_t trace_id[16];
    struct br_traceql_trace trace;
    struct br_span_filter filter = {0};
    bool any = false, passed = false;
    traceql_fuzz_require(br_traceql_filter(query, &filter) == 0);
    traceql_fuzz_require(br_traceql_trace_read(&trace, store, trace_id, 0, NULL) == 0);
    int rc = br_traceql_match_trace(query, store, &trace, &any, NULL);
    traceql_fuzz_require(rc == 0 || rc == BR_ETOOBIG || rc == BR_ENOMEM);
    for (uint32_t i = 0; rc == 0 && i < trace.n_spans; i++) {
        struct br_traceql_span alone = {.row = trace.spans[i].row};
        bool found = false;
        passed = passed || traceql_fuzz_passes(&filter, alone.row);
        if (query->needs_trace || br_traceql_match_span(query, store, &alone, &found, NULL))
            continue;
        traceql_fuzz_require(found == trace.spans[i].in);
        traceql_fuzz_require(!found || traceql_fuzz_passes(&filter, alone.row));
    }
    traceql_fuzz_require(!any || passed);
}

static inline void traceql_fuzz(const uint8_t *data, size_t len)
{
    struct br_arena arena;
    struct br_traceql query;
    struct br_err err = {0};
    int line = 0, col = 0;
    br_arena_init(&arena, 16 << 20);
    struct br_store_query store = {.arena = &arena};
    /* allocated with exactly this length, so that reads past its end are detected */
    char *text = malloc(len ? len : 1);
    traceql_fuzz_require(text != NULL);
    if (len)
        memcpy(text, data, len);
    int rc = br_traceql_parse(&query, text, len, &arena, &err);
    if (rc == 0)
        traceql_fuzz_run(&query, &store);
    else if (rc != BR_ENOMEM) {
        traceql_fuzz_require(rc == BR_EINVAL || rc == BR_EUNSUPPORTED);
        traceql_fuzz_require(err.line > 0 && err.col > 0);
        traceql_fuzz_require(sscanf(err.text, "%d:%d: ", &line, &col) == 2);
        traceql_fuzz_require(line == err.line && col == err.col);
    }
    br_traceql_release(&query);
    free(text);
    br_arena_release(&arena);
}
