/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Infers the span of samples that name none: a span that was open on their thread, in their
 * process, when they were taken. It must have been open at all their timestamps, and must be the
 * deepest such span: no other open span is below it, and all others are above it. A sample that
 * matches two spans is left unlinked.
 *
 * Sample and span must both name their thread and process, and these must be equal. Threads are
 * compared by id if the ids have the same origin: the operating system or the same runtime.
 * Otherwise they are compared by name, which both must have. Two different names never denote the
 * same thread. Host, container, pod, instance and service must not contradict each other. At least
 * one of the first four must be present on both sides, because every container has the same process
 * ids.
 *
 * A sample is not joined if spans that were open on its thread have been evicted: the remaining
 * ones may be ancestors of the right span.
 */
#pragma once

#include "base/arena.h"
#include "processors/join/infer/local.h"
#include "processors/join/sample_view.h"

struct join_infer {
    struct join_table *table;
    struct br_arena *arena;
    struct br_map *slots; /* spans by threads, level and time slot, for the current item */
    struct br_map *found; /* spans to which timestamps were assigned, for the current item */
    /* threads and deferred records that were processed, for the current item */
    struct br_map *shared;
    /* counter of time slots from which not all spans were read; may be NULL */
    double *cut;
    /* set by join_infer_span: spans that were open at the time of the sample may have been
     * evicted */
    bool unknown;
    /* buffer for the spans of one time slot; NULL until it is needed */
    struct join_neighbour *neighbours;
    struct join_release_time release_time; /* release time of the samples to be linked */
    uint64_t *times;
    uint64_t cap;
    uint64_t steps; /* steps taken for the current item; above JOIN_STEPS_MAX nothing is inferred */
    /* number of samples whose spans were not inferred, for lack of steps or memory */
    uint64_t n_cut;
};

void join_infer_init(struct join_infer *infer, struct join_table *table, struct br_arena *arena);
void join_infer_release(struct join_infer *infer);

/* Returns true if the sample has the attributes that inference requires. `where` combines the
 * sample's attributes with those of its resource. */
bool join_infer_may(const struct join_sample_view *view, const struct join_identity *where);

/* Stores, for each timestamp of the sample, the number of the span in which it was taken.
 * Numbers begin with 1; 0 means that no span or several spans match. `*ret_times` receives the
 * timestamps, which are valid until the next call. Returns false for lack of memory or steps. */
bool join_infer_spans(struct join_infer *infer, const struct join_sample_view *view,
                      const struct join_identity *where, const uint64_t **ret_times,
                      uint64_t *ret_spans);

/* A trace id and a span id, made from a thread, under which the timestamps of the thread are
 * stored (join_table_defer). A thread has one such pair for its id and one for its name. */
struct join_thread_ids {
    uint8_t trace[16], span[8];
};

/* Computes the ids under which the timestamps of a thread are stored with this key. Returns
 * false if the thread or the process is missing in `where`. */
bool join_thread_ids_of(const struct join_identity *where, enum join_thread_key key,
                        struct join_thread_ids *ret);

/* Returns true if the timestamps of samples of this thread are stored under the key `key`. */
bool join_thread_is_stored_by(const struct join_identity *where, enum join_thread_key key);

/* Returns the totals of a span from samples that name no span, followed by function counters.
 * Returns NULL if no such samples exist or memory is short. `where` combines the attributes of
 * the span and its resource, and must contain a thread and a process. */
const struct join_totals *join_infer_share(struct join_infer *infer,
                                           const struct join_identity *where,
                                           const uint8_t *trace_id, const uint8_t *span_id);

/* Returns true if join_infer_share returns incomplete totals for a span that started at
 * `start_ns`, because timestamps or spans of its thread were evicted too early. */
bool join_infer_is_partial(const struct join_infer *infer, const struct join_identity *where,
                           uint64_t start_ns);

/* Returns the span in which the sample was taken, or NULL if no span or several spans match. The
 * sample must satisfy join_infer_may. The result is valid as long as the arena. Sets
 * infer->unknown. */
const struct join_neighbour *join_infer_span(struct join_infer *infer,
                                             const struct join_sample_view *view,
                                             const struct join_identity *where);
