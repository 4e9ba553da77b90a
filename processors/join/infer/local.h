/* SPDX-License-Identifier: Apache-2.0 */
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
#pragma once

#include "base/arena.h"
#include "processors/join/sample_view.h"
#include "processors/join/table/table.h"

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

/* --- Samples of a local tree ------------------------------------------------------------ */

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
