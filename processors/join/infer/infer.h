/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the span in which a sample was taken: among the spans below the one that it names
 * (local.c), or, if it names none, by its thread (infer.c).
 */
#pragma once

#include "base/arena.h"
#include "processors/join/sample_view.h"
#include "processors/join/table/table.h"

/* --- Local trees ------------------------------------------------------------------------------ */

/*
 * Finds the local tree of a span: the spans of its trace and service, ordered by parent. SDK
 * bridges label samples with the root of a local tree, the span that was entered from outside the
 * service. Such a label is correct for every span of the tree. If a sample also contains its time
 * and its thread, it belongs to the span of the tree that was open there at that time.
 *
 * A span is a root if its parent is not among the spans of its trace and service. It is also a root
 * if its kind is server or consumer: then it was entered from outside, even if its parent is in the
 * tree.
 */

#define JOIN_NO_SPAN UINT32_MAX

/* Most steps that one item may take, so that no item blocks the loop for long. One step reads
 * one span. */
#define JOIN_STEPS_MAX (UINT64_C(1) << 25)
/* steps that one lookup in the table counts as, because the table is seldom in the CPU cache */
#define JOIN_STEPS_PER_LOOKUP 64u

/* The spans of one trace and service. Each span has a place; a span and its descendants occupy
 * consecutive places. */
struct join_local {
    uint8_t trace_id[16];
    uint64_t service_hash;
    uint64_t multiplier; /* secret by which span ids are multiplied */
    uint64_t since_ns;   /* spans that ended before this time (ns since 1970) may be missing */
    /* samples of the service name exactly the spans in which they were taken */
    bool exact;
    bool totals; /* at least one span of the tree has totals */
    bool shared; /* `shares` has been computed */
    /* totals of deferred samples, for each span; NULL: the span has none */
    struct join_totals **shares;
    unsigned count;
    unsigned slot_bits;
    struct join_relative *spans;
    uint16_t *parents; /* for each span, index of its parent + 1; 0: the span is a root */
    uint16_t *depths;
    uint16_t *first, *end; /* for each span, its place, and the place after its last descendant */
    uint16_t *slots;       /* hash table by span id; an entry is the index of a span + 1 */
};

/* most bytes of the trees of one item; above this limit they are freed and read again */
#define JOIN_LOCALS_BYTES (512u << 10)

/* The trees for the samples or spans of one item, each of which is read once. The caller zeroes
 * the struct and sets `table`, `link_spans`, `max_spans`, `now_ms` and `cut`. Reading a tree
 * adds to `steps`. */
struct join_locals {
    struct join_table *table;
    /* samples that were taken in one span are linked to that span (`link: span`) */
    bool link_spans;
    unsigned max_spans; /* most spans of a tree that are read; at most JOIN_FAMILY_MAX */
    uint64_t now_ms;
    struct join_relative *read; /* buffer for max_spans spans */
    /* counter of trees that were read incompletely because of max_spans */
    double *cut;
    uint64_t steps; /* steps taken for the item; above JOIN_STEPS_MAX nothing is looked up */
    uint64_t multiplier;
    struct br_arena arena;
    struct br_map *known;      /* tree by trace and service */
    struct join_local *newest; /* the tree that join_locals_get returned last */
    /* number of samples that stay with the span that they name, for lack of steps or memory */
    uint64_t n_cut;
};

/* Returns the tree of a trace (16 bytes) and a service, or NULL after too many steps or without
 * enough memory. The tree is valid until the next call. */
const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash);
/* Returns the totals of the deferred samples that were taken in a span, using all spans that
 * have arrived. These samples name the span or the root above it. Function counters follow the
 * totals. Returns NULL if no such samples exist or memory is short. */
const struct join_totals *join_locals_share(struct join_locals *locals,
                                            const struct join_local *local, uint32_t span);

/* Adds all deferred samples that name a span to `*totals`. Call it if the tree of the span is
 * unknown. */
void join_deferred_add(struct join_locals *locals, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *totals);

void join_locals_release(struct join_locals *locals); /* accepts a zeroed struct */

/* Returns the number of the span with this id in the tree, or JOIN_NO_SPAN. */
uint32_t join_local_find(const struct join_local *local, const uint8_t *span_id);

/* Returns true if `span` is `top` or one of its descendants. */
static inline bool join_local_below(const struct join_local *local, uint32_t span, uint32_t top)
{
    return local->first[top] <= local->first[span] && local->first[span] < local->end[top];
}

/* --- Samples of a local tree ------------------------------------------------------------------ */

/*
 * A sample belongs to the span that it names, unless its timestamps can be resolved. The timestamps
 * can be resolved if the sample names the root of a local tree and no sample of its service names a
 * span below a root. Each timestamp then belongs to the deepest span that was open at that time, if
 * the thread and the spans of that time are known.
 *
 * The table stores these timestamps (join_table_defer). They are assigned to spans when the totals
 * of a span are read, using all spans that have arrived by then. Metrics by span name cannot wait;
 * they use the spans that arrived before the sample.
 */

/* Called under the table's lock for each span in which a sample was taken. */
typedef void join_credited_fn(void *arg, const struct join_span *span,
                              const struct join_sample *sample);

/* Credits the samples of one item to spans. Memory comes from `arena`. */
struct join_credit {
    struct br_arena *arena;
    struct join_release_time release_time; /* release time of the item's samples */
    /* receives each span in which a sample was taken; may be NULL */
    join_credited_fn *on_credited;
    void *arg;
    struct join_locals locals;      /* set up and released by the caller */
    const struct join_local *local; /* tree of the current sample */
    uint64_t *times, *values;       /* timestamps and values of the current sample */
    uint64_t cap;                   /* capacity of `times` and of `values`, in elements */
    /* number of samples that stay with the span that they name, for lack of steps */
    uint64_t n_cut;
};

/* Position of a span in its local tree. JOIN_TREE_EXACT_ROOT is a root of a service whose
 * samples name exactly the spans in which they were taken; samples that name it are not
 * deferred. */
enum join_tree_place { JOIN_TREE_UNKNOWN, JOIN_TREE_ROOT, JOIN_TREE_EXACT_ROOT, JOIN_TREE_BELOW };
enum join_tree_place join_credit_place(struct join_credit *credit, const struct join_found *named);

/* Defers the timestamps of a sample. `sample` contains the trace id and span id that it names,
 * `where` identifies where it was taken, and its item is held for `waits_ms`. Returns false if
 * there is not enough memory, or if the sample has more than JOIN_TIMES_MAX timestamps but not
 * one value for each. */
bool join_credit_defer(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_identity *where,
                       const struct join_sample *sample, uint64_t waits_ms, uint64_t now_ms,
                       struct join_tally *tally);

/* Returns the id of the span below the named root that was open at all timestamps of the sample,
 * using the spans that have arrived. Returns NULL if this span is the root itself or the
 * timestamps belong to several spans. The id is valid as long as the result of join_locals_get. */
const uint8_t *join_credit_deepest(struct join_credit *credit, const struct join_sample_view *view,
                                   const struct join_found *named);

/* Stores, for each timestamp of the sample, the number (from 1) of the span at or below the
 * named root that was open at that time. `*ret_times` receives the timestamps, which are valid
 * until the next call. Returns false if the named span is not a root, or for lack of memory or
 * steps. */
bool join_credit_spans(struct join_credit *credit, const struct join_sample_view *view,
                       const struct join_found *named, const uint64_t **ret_times,
                       uint64_t *ret_spans);

/* Calls `on_credited` for the spans that were open at the sample's timestamps and have arrived. */
void join_credit_below(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_found *named,
                       const struct join_sample *sample);

/* --- Inference by thread ---------------------------------------------------------------------- */

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
