/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the span in which a sample was taken. If the sample names a span, the result is that span
 * or one of its descendants (local.c). If the sample does not name a span, the span is found by the
 * sample's thread (infer.c).
 */
#pragma once

#include "base/arena.h"
#include "processors/join/sample_view.h"
#include "processors/join/table/table.h"

/* --- Local trees ------------------------------------------------------------------------------ */

/*
 * Finds the local tree of a span: the spans of its trace and service, ordered by parent. SDK
 * bridges label samples with the root of a local tree, the span that was entered from outside the
 * service. A label with the root is correct for samples of every span of the tree. A sample that
 * also contains its time and its thread belongs to the span of the tree that was open at that time
 * on that thread.
 *
 * A span is a root if its parent is not among the spans of its trace and service. A span of the
 * kind server or consumer is always a root: it was entered from outside, even if its parent is in
 * the tree.
 */

#define JOIN_NO_SPAN UINT32_MAX

/* Largest number of steps for one item, so that no item blocks the loop for long. One step reads
 * one span. */
#define JOIN_STEPS_MAX (UINT64_C(1) << 25)
/* number of steps that a lookup in the table counts as, because the table is seldom in the CPU
 * cache */
#define JOIN_STEPS_PER_LOOKUP 64u

/* A local tree: the spans of one trace and service. Each span has a place; a span and its
 * descendants occupy consecutive places. */
struct join_local {
    uint8_t trace_id[16];
    uint64_t service_hash;
    uint64_t multiplier; /* secret by which span ids are multiplied */
    /* spans that ended before this time (ns since 1970) may be missing from the tree */
    uint64_t since_ns;
    /* true: samples of the service contain the id of the span in which they were taken, not that
     * of a root */
    bool exact;
    bool totals; /* at least one span of the tree has totals */
    bool shared; /* `shares` has been computed */
    /* for each span: totals of its deferred samples; NULL: the span has no deferred samples */
    struct join_totals **shares;
    unsigned count;
    unsigned slot_bits;
    struct join_relative *spans;
    uint16_t *parents; /* for each span: index of its parent, plus 1; 0: the span is a root */
    uint16_t *depths;
    uint16_t *first, *end; /* for each span: its place, and the place after its last descendant */
    uint16_t *slots;       /* hash table by span id; an entry is the index of a span, plus 1 */
};

/* largest size in bytes of the trees of one item; when it is exceeded, all trees are freed and
 * read again */
#define JOIN_LOCALS_BYTES (512u << 10)

/* The local trees for the samples or spans of one item. Each tree is read once. The caller
 * zeroes the struct and sets `table`, `link_spans`, `max_spans`, `now_ms` and `cut`. Reading a
 * tree adds to `steps`. */
struct join_locals {
    struct join_table *table;
    /* with the option `link: span`: a sample that was taken in one span is linked to that span */
    bool link_spans;
    /* largest number of spans of a tree that are read, at most JOIN_FAMILY_MAX */
    unsigned max_spans;
    uint64_t now_ms;
    struct join_relative *read; /* buffer into which the max_spans spans of a tree are read */
    /* counter of trees that were read incompletely because of max_spans */
    double *cut;
    /* number of steps taken for the item; when it exceeds JOIN_STEPS_MAX, nothing more is looked
     * up */
    uint64_t steps;
    uint64_t multiplier;
    struct br_arena arena;
    struct br_map *known;      /* maps a trace and a service to their local tree */
    struct join_local *newest; /* the tree that join_locals_get returned last */
    /* number of samples that stay assigned to the span that they name, because the limit of
     * steps was reached or memory was short */
    uint64_t n_cut;
};

/* Returns the tree of a trace (16 bytes) and a service. Returns NULL if the limit of steps is
 * reached or memory is short. The tree is valid until the next call. */
const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash);
/* Returns the totals of the deferred samples that were taken in a span, according to all spans
 * that have arrived. The samples' labels contain the id of the span itself or of the root above
 * it. The function counters of these samples are stored directly after the returned totals.
 * Returns NULL if there are no such samples or memory is short. */
const struct join_totals *join_locals_share(struct join_locals *locals,
                                            const struct join_local *local, uint32_t span);

/* Adds to `*totals` all deferred samples that contain the id of the given span. Used if the tree
 * of the span is unknown. */
void join_deferred_add(struct join_locals *locals, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *totals);

void join_locals_release(struct join_locals *locals); /* frees the trees; accepts a zeroed struct */

/* Returns the index of the span with this id in the tree, or JOIN_NO_SPAN. */
uint32_t join_local_find(const struct join_local *local, const uint8_t *span_id);

/* Returns true if `span` is `top` or one of its descendants. */
static inline bool join_local_below(const struct join_local *local, uint32_t span, uint32_t top)
{
    return local->first[top] <= local->first[span] && local->first[span] < local->end[top];
}

/* --- Types and functions for the samples of a local tree -------------------------------------- */

/*
 * A sample belongs to the span whose id it contains, unless its timestamps can be resolved. The
 * timestamps can be resolved if the sample contains the id of a root. In addition, no sample of its
 * service may contain the id of a span below a root. Each timestamp then belongs to the deepest
 * span that was open at that time, if the thread and the spans of that time are known.
 *
 * The table stores timestamps that can be resolved (join_table_defer). Stored timestamps are
 * assigned to spans when the totals of a span are read, according to all spans that have arrived by
 * then. Metrics by span name cannot wait, so they are computed from the spans that arrived before
 * the sample.
 */

/* Called under the table's lock for each span in which a sample was taken. */
typedef void join_credited_fn(void *arg, const struct join_span *span,
                              const struct join_sample *sample);

/* Adds the samples of one item to the totals of spans. Memory is allocated in `arena`. */
struct join_credit {
    struct br_arena *arena;
    struct join_release_time release_time; /* release time of the item's samples */
    /* called for each span in which a sample was taken; may be NULL */
    join_credited_fn *on_credited;
    void *arg;
    struct join_locals locals;      /* set up and released by the caller */
    const struct join_local *local; /* local tree of the span that the current sample names */
    uint64_t *times, *values;       /* timestamps and values of the current sample */
    uint64_t cap;                   /* capacity of `times` and of `values`, in elements */
    /* number of samples that stay assigned to the span that they name, because the limit of
     * steps was reached */
    uint64_t n_cut;
};

/* Position of a span in its local tree. JOIN_TREE_EXACT_ROOT is a root of a service whose
 * samples contain the ids of the spans in which they were taken. Samples that contain the id of
 * such a root are not deferred. */
enum join_tree_place { JOIN_TREE_UNKNOWN, JOIN_TREE_ROOT, JOIN_TREE_EXACT_ROOT, JOIN_TREE_BELOW };
enum join_tree_place join_credit_place(struct join_credit *credit, const struct join_found *named);

/* Defers the assignment of a sample's timestamps to spans (join_table_defer). `sample` contains
 * the trace id and span id that the sample names. `where` identifies where the sample was taken.
 * The item of the sample is held for `waits_ms` milliseconds. Returns false if there is not
 * enough memory, or if the sample has more than JOIN_TIMES_MAX timestamps but not one value for
 * each. */
bool join_credit_defer(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_identity *where,
                       const struct join_sample *sample, uint64_t waits_ms, uint64_t now_ms,
                       struct join_tally *tally);

/* Finds, among the spans that have arrived, the span below the named root that was open at all
 * timestamps of the sample. Returns its id, or NULL if the span is the root itself or the
 * timestamps belong to several spans. The id is valid as long as the result of join_locals_get. */
const uint8_t *join_credit_deepest(struct join_credit *credit, const struct join_sample_view *view,
                                   const struct join_found *named);

/* Stores, for each timestamp of the sample, the number (from 1) of the span that was open at
 * that time: the named root or one of its descendants. Sets `*ret_times` to the timestamps,
 * which are valid until the next call. Returns false if the named span is not a root, if the
 * limit of steps is reached, or if memory is short. */
bool join_credit_spans(struct join_credit *credit, const struct join_sample_view *view,
                       const struct join_found *named, const uint64_t **ret_times,
                       uint64_t *ret_spans);

/* Calls `on_credited` for the spans that were open at the sample's timestamps, if the spans have
 * arrived. */
void join_credit_below(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_found *named,
                       const struct join_sample *sample);

/* --- Inference by thread ---------------------------------------------------------------------- */

/*
 * Infers the span of a sample that does not name a span. The result is a span that was open on the
 * sample's thread, in its process, when the sample was taken. The span must have been open at all
 * timestamps of the sample. All other spans that were open at these times must be its ancestors. A
 * sample that matches two spans is left unlinked.
 *
 * Sample and span must both name their thread and process, and these must be equal. Threads are
 * compared by id if the ids have the same origin: the operating system or the same runtime. Threads
 * whose ids have different origins are compared by name, and both must have a name. Two different
 * names never denote the same thread. Host, container, pod, instance and service must not
 * contradict each other. At least one of host, container, pod and instance must be present on both
 * sides, because every container has the same process ids.
 *
 * A sample is not joined if spans that were open on its thread have been evicted. The remaining
 * spans may then be ancestors of the right span.
 */

struct join_infer {
    struct join_table *table;
    struct br_arena *arena;
    /* maps a set of threads, a level and a time slot to spans; for the current item */
    struct br_map *slots;
    /* set of the spans to which timestamps were assigned; for the current item */
    struct br_map *found;
    /* set of the threads and deferred records that were already processed for the current item */
    struct br_map *shared;
    /* counter of time slots from which not all spans were read; may be NULL */
    double *cut;
    /* set by join_infer_span: true if spans that were open at the time of the sample may have
     * been evicted */
    bool unknown;
    /* buffer for the spans of one time slot; NULL until it is needed */
    struct join_neighbour *neighbours;
    /* release time of the samples that are being linked */
    struct join_release_time release_time;
    uint64_t *times;
    uint64_t cap;
    /* number of steps taken for the current item; when it exceeds JOIN_STEPS_MAX, no more spans
     * are inferred */
    uint64_t steps;
    /* number of samples whose spans were not inferred, because the limit of steps was reached or
     * memory was short */
    uint64_t n_cut;
};

void join_infer_init(struct join_infer *infer, struct join_table *table, struct br_arena *arena);
void join_infer_release(struct join_infer *infer);

/* Returns true if the sample has the attributes that inference requires. `where` combines the
 * attributes of the sample and of its resource. */
bool join_infer_may(const struct join_sample_view *view, const struct join_identity *where);

/* Stores, for each timestamp of the sample, the number of the span in which it was taken.
 * Numbers begin with 1; 0 means that no span or several spans match. Sets `*ret_times` to the
 * timestamps, which are valid until the next call. Returns false if the limit of steps is
 * reached or memory is short. */
bool join_infer_spans(struct join_infer *infer, const struct join_sample_view *view,
                      const struct join_identity *where, const uint64_t **ret_times,
                      uint64_t *ret_spans);

/* A trace id and a span id that are computed from a thread. The timestamps of the thread are
 * stored under these ids (join_table_defer). A thread has one such pair for its id and one for
 * its name. */
struct join_thread_ids {
    uint8_t trace[16], span[8];
};

/* Computes the ids under which the timestamps of a thread are stored. `key` selects the pair for
 * the thread's id or for its name. Returns false if the thread or the process is missing in
 * `where`. */
bool join_thread_ids_of(const struct join_identity *where, enum join_thread_key key,
                        struct join_thread_ids *ret);

/* Returns true if the timestamps of samples of this thread are stored under the key `key`. */
bool join_thread_is_stored_by(const struct join_identity *where, enum join_thread_key key);

/* Returns the totals of the samples that were taken in a span but do not name any span. The
 * function counters are stored directly after the totals. Returns NULL if no such samples exist
 * or memory is short. `where` combines the attributes of the span and its resource, and must
 * contain a thread and a process. */
const struct join_totals *join_infer_share(struct join_infer *infer,
                                           const struct join_identity *where,
                                           const uint8_t *trace_id, const uint8_t *span_id);

/* Returns true if the totals that join_infer_share returns for a span that started at `start_ns`
 * are incomplete, because data of its thread was evicted too early. */
bool join_infer_is_partial(const struct join_infer *infer, const struct join_identity *where,
                           uint64_t start_ns);

/* Returns the span in which the sample was taken, or NULL if no span or several spans match.
 * Sets infer->unknown. join_infer_may must have returned true for the sample. The result is
 * valid as long as infer->arena. */
const struct join_neighbour *join_infer_span(struct join_infer *infer,
                                             const struct join_sample_view *view,
                                             const struct join_identity *where);
