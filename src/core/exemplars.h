/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exemplars of a metric: spans that the metric counted. A scrape in OpenMetrics prints their
 * ids, so that a user can open the trace of a value. A set of exemplars contains at most one
 * exemplar for each bucket of a histogram. A counter has only the bucket 0.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct br_exemplar {
    uint8_t trace_id[16];
    uint8_t span_id[8]; /* all zeros: the span id is unknown */
    double value;
    uint64_t time_ns; /* Unix time at which the value was counted */
    size_t bucket;    /* index of the bucket that contains the value */
};

struct br_exemplars {
    size_t count, max;
    struct br_exemplar items[]; /* `max` elements, of which `count` are used */
};

/* Returns an empty set of at most `max` exemplars, which must be at least 1. Returns NULL if memory
 * runs out. The caller frees the set with br_free. */
struct br_exemplars *br_exemplars_new(size_t max);

/* Adds an exemplar. The exemplar replaces the one of the same bucket or, if the set is full, the
 * oldest one. Does nothing if the exemplar to replace is newer than the added one. */
void br_exemplars_add(struct br_exemplars *exemplars, const struct br_exemplar *exemplar);

/* Returns the exemplar of a bucket, or NULL. `exemplars` may be NULL. */
const struct br_exemplar *br_exemplars_find(const struct br_exemplars *exemplars, size_t bucket);
