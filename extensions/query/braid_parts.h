/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides the durations of two groups of spans (the sides of a comparison) into parts:
 *
 * - An operation is a service and a span name. Its part is the time for which a span waited for
 *   the spans of this operation below it.
 * - CPU time, lock waits and off-CPU time are sums of the samples of the span itself.
 * - Unexplained time is the rest.
 *
 * The parts of a side add up to the mean duration of its spans.
 *
 * The operations below a span are found as follows. The span's local subtree (braid.h) is read
 * from the top. A span of another service is an operation below. So is an entry span (SERVER,
 * CONSUMER) whose parent calls it (CLIENT, PRODUCER), even within one service. A span of the same
 * service is an operation below if it has none of these spans among its descendants; otherwise it
 * is a part of the span itself. The descendants of an operation below are not read.
 *
 * A span that outlasts its parent counts only until its parent ends. A SERVER span of another
 * service that is not within its parent is moved into the middle of its parent, because the clocks
 * of the two hosts differ (Jaeger does the same). At each moment, a span waits for the operation
 * that ends last, so that operations that run at the same time are not counted twice.
 */
#pragma once

#include "extensions/query/braid.h"

struct query_parts;

/* maximum number of spans of one side */
#define QUERY_PARTS_SPANS_MAX 500
/* a difference of CPU time is noise if it is smaller than this number of samples */
#define QUERY_PARTS_NOISE_SAMPLES 3

/* Returns an empty report in the arena of the job, or NULL if memory runs out. */
struct query_parts *query_parts_new(struct query_job *job);

/* Frees the memory of the report that is not in the arena. Accepts NULL. */
void query_parts_free(struct query_parts *parts);

/* Adds the row `span` of a trace to a side. Does nothing if the side is full. Returns 0, BR_EFULL
 * or BR_ENOMEM. */
int query_parts_add(struct query_parts *parts, unsigned side, const struct query_braid_rows *trace,
                    const struct query_braid_row *span);

/* Prepares the report for query_parts_add_samples, after the last query_parts_add. */
void query_parts_end_spans(struct query_parts *parts);

/* Adds samples that belong to the spans of a side. Samples of operations below these spans are
 * ignored. */
void query_parts_add_samples(struct query_parts *parts, unsigned side,
                             const struct br_stored_samples *samples);

/* Returns the mean duration of the spans of a side in nanoseconds; 0 if there are no spans. */
int64_t query_parts_mean_ns(const struct query_parts *parts, unsigned side);

/* Appends the field `parts` to the response. Side 0 is written as typical, and side 1 as slow. No
 * spans or samples can be added afterwards. */
void query_parts_put(struct query_parts *parts);
