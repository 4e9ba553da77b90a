/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the span of samples that name none: a span that was open on their thread, of their process,
 * when they were taken. A span is theirs when it was open at all their timestamps and is the one
 * deepest span: no other open span lies below it, and every other one lies above it. A sample that
 * fits two spans belongs to neither.
 *
 * Thread and process must be said by both and be equal. Threads are told apart by their ids where
 * those are of one kind: the system's, or of the same runtime. Where they are not, or one side says
 * none, the names decide, which both have to say. Names that differ are never one thread's. Of
 * host, container, pod, instance and service nothing may contradict, and one of the first four at
 * least must be said by both, because process ids come again in every container.
 *
 * A sample whose thread had spans at that time that are not in the table any more is in none: the
 * ones that are left may be those above the right one.
 */
#pragma once

#include "base/arena.h"
#include "processors/join/infer/local.h"
#include "processors/join/sample_view.h"

struct join_infer {
    struct join_table *table;
    struct br_arena *arena;
    struct br_map *slots;  /* of this item: threads, level and slot -> spans */
    struct br_map *found;  /* likewise: spans that something was taken in */
    struct br_map *shared; /* likewise: threads and timestamps that were shared out */
    double *cut;           /* NULL, or counts slots of which not all spans were read */
    bool unknown;          /* by join_infer_span: spans are not known that were open then */
    struct join_release_time release_time; /* of the samples that are asked about */
    uint64_t *times;
    uint64_t cap;
    uint64_t steps; /* done so far: past JOIN_STEPS_MAX nothing is inferred */
    uint64_t n_cut; /* samples that would have taken more */
};

void join_infer_init(struct join_infer *infer, struct join_table *table, struct br_arena *arena);
void join_infer_release(struct join_infer *infer);

/* Says whether the sample names enough to infer from; `where` is what it and its resource say. */
bool join_infer_may(const struct join_sample_view *view, const struct join_identity *where);

/* Gives the number of the span, from 1, that each of the sample's timestamps was taken in; 0: none,
 * or more than one may be. They lie in `*ret_times`, until the next call. False without memory or
 * steps. */
bool join_infer_spans(struct join_infer *infer, const struct join_sample_view *view,
                      const struct join_identity *where, const uint64_t **ret_times,
                      uint64_t *ret_spans);

/* The ids under which the timestamps of samples of a thread and its process are kept
 * (join_table_defer): once by the thread's id, and once by its name. False where it is not said. */
struct join_thread_ids {
    uint8_t trace[16], span[8];
};
bool join_thread_ids_of(const struct join_identity *where, enum join_thread_key key,
                        struct join_thread_ids *ret);

/* Says whether samples of the thread are kept by this key. */
bool join_thread_is_stored_by(const struct join_identity *where, enum join_thread_key key);

/* Returns the totals of a span from samples that name none, with counters behind; NULL: nothing, or
 * no memory. `where` is what the span and its resource say, with a thread and a process. */
const struct join_totals *join_infer_share(struct join_infer *infer,
                                           const struct join_identity *where,
                                           const uint8_t *trace_id, const uint8_t *span_id);

/* Says whether what join_infer_share returns of a span that began then is not all: timestamps, or
 * spans of the thread, left the table too early. */
bool join_infer_is_partial(const struct join_infer *infer, const struct join_identity *where,
                           uint64_t start_ns);

/* Returns the span that the sample was taken in, for which it says enough; NULL when none is, or
 * more than one may be. Lives as long as the arena. Sets `unknown`. */
const struct join_neighbour *join_infer_span(struct join_infer *infer,
                                             const struct join_sample_view *view,
                                             const struct join_identity *where);
