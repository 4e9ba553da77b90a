/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the local tree of a span: the spans below it in the same trace and service. SDK bridges
 * label samples with its root, the span that came from outside; what they say is true of the whole
 * tree, and where a sample says when and on which thread it was taken, of the one span that was
 * open there.
 *
 * A span is a root when its parent is not among the spans of its trace and service, or when it is
 * of the kind server or consumer: then it came from outside even where its parent is there.
 */
#pragma once

#include "base/arena.h"
#include "processors/join/sample_view.h"
#include "processors/join/table/table.h"

#define JOIN_NO_SPAN UINT32_MAX

/* What one item may take, so that none takes longer than a moment: a step is a span looked at. */
#define JOIN_STEPS_MAX (UINT64_C(1) << 25)
#define JOIN_STEPS_PER_LOOKUP 64u /* into the table, whose memory is far away */

/* The spans of one trace and service. Those below one another are numbers in a row of `first`. */
struct join_local {
    uint8_t trace_id[16];
    uint64_t service_hash;
    uint64_t multiplier;         /* of the slots */
    uint64_t since_ns;           /* of those that ended before not all are known */
    bool exact;                  /* samples name the very spans that they were taken in */
    bool totals;                 /* some of them have totals */
    bool shared;                 /* `shares` are made */
    struct join_totals **shares; /* of each span, of what was taken; NULL: nothing */
    unsigned count;
    unsigned slot_bits;
    struct join_relative *spans;
    uint16_t *parents; /* index + 1; 0: a root */
    uint16_t *depths;
    uint16_t *first, *end; /* places of a span and those below it, in order of the tree */
    uint16_t *slots;       /* index + 1, by span id */
};

#define JOIN_LOCALS_BYTES (512u << 10) /* of an item's trees; past it they are forgotten */

/* The trees that the samples or spans of one item belong to, each read once: zeroed at first, then
 * `table`, `max_spans`, `now_ms` and `cut` set. Reading counts in `steps`. */
struct join_locals {
    struct join_table *table;
    bool link_spans;    /* samples that are one span's leave with its link */
    unsigned max_spans; /* of a tree, at most JOIN_FAMILY_MAX */
    uint64_t now_ms;
    struct join_relative *read; /* room for so many */
    double *cut;                /* counts traces of which not all spans of the service were read */
    uint64_t steps;             /* done so far; past JOIN_STEPS_MAX nothing is looked up */
    uint64_t multiplier;
    struct br_arena arena;
    struct br_map *known;      /* by trace and service */
    struct join_local *newest; /* the one asked for last */
    uint64_t n_cut; /* samples that are the span's they name, for want of steps or memory */
};

/* Returns the tree of a trace (16 bytes) and a service; NULL when there were too many steps, or no
 * memory. Lives until the next call. */
const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash);
/* Returns what a span has of samples with timestamps that name it or the root above it: those that
 * were taken in it, by all spans that have come; with counters behind. NULL: nothing, or no memory.
 */
const struct join_totals *join_locals_share(struct join_locals *locals,
                                            const struct join_local *local, uint32_t span);

/* Adds all that was taken of samples that name a span, where there is no tree to share it out in.
 */
void join_deferred_add(struct join_locals *locals, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *totals);

void join_locals_release(struct join_locals *locals); /* accepts a zeroed one */

/* Returns the number of a span among them, or JOIN_NO_SPAN. */
uint32_t join_local_find(const struct join_local *local, const uint8_t *span_id);

/* Returns true for `span` itself and for what is below it. */
static inline bool join_local_below(const struct join_local *local, uint32_t span, uint32_t top)
{
    return local->first[top] <= local->first[span] && local->first[span] < local->end[top];
}

/* --- Samples of a local tree ------------------------------------------------------------ */

/*
 * A sample is the span's that it names, unless that is the root of a local tree, the sample has
 * timestamps, and no other sample of its service names a span below a root: then each of them is
 * the deepest span's that was open there, as far as its thread tells and the spans of that time are
 * known. The table keeps the timestamps (join_table_defer), and whose they are is found out when a
 * span's totals are asked for, by all spans that have come by then. Counters by span name cannot
 * wait: they go by the spans that came before the sample.
 */

/* Called under the table's lock for each span that a sample was taken in. */
typedef void join_credited_fn(void *arg, const struct join_span *span,
                              const struct join_sample *sample);

/* For the samples of one item; memory lies in `arena`. */
struct join_credit {
    struct br_arena *arena;
    struct join_release_time release_time; /* of the samples that are asked about */
    join_credited_fn *on_credited;         /* NULL: nobody wants to know */
    void *arg;
    struct join_locals locals;      /* set up and released by whoever made this */
    const struct join_local *local; /* of the sample at hand */
    uint64_t *times, *values;       /* of the sample at hand */
    uint64_t cap;                   /* of both */
    uint64_t n_cut; /* samples that would have taken too many steps, and are the span's they name */
};

/* Says where a span that was found is in its local tree. A root of a service whose samples name the
 * very spans that they were taken in is as good as one below. */
enum join_tree_place { JOIN_TREE_UNKNOWN, JOIN_TREE_ROOT, JOIN_TREE_EXACT_ROOT, JOIN_TREE_BELOW };
enum join_tree_place join_credit_place(struct join_credit *credit, const struct join_found *named);

/* Keeps the sample's timestamps for later: `sample` says trace and span, `where` where it was
 * taken, and it leaves after `waits_ms`. False where that cannot be done: its values are of
 * no timestamp, and there are too many of them; or there is no memory. */
bool join_credit_defer(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_identity *where,
                       const struct join_sample *sample, uint64_t waits_ms, uint64_t now_ms,
                       struct join_tally *tally);

/* Returns the one span below the named one, a root, that was open at all timestamps, as far as
 * spans have come; NULL: the named one, or several. Lives as long as join_locals_get says. */
const uint8_t *join_credit_deepest(struct join_credit *credit, const struct join_sample_view *view,
                                   const struct join_found *named);

/* Gives the number of the span, from 1, at or below the named one, a root, that was open at each of
 * the sample's timestamps, which lie in `*ret_times` until the next call. False where it is no
 * root, or without memory or steps. */
bool join_credit_spans(struct join_credit *credit, const struct join_sample_view *view,
                       const struct join_found *named, const uint64_t **ret_times,
                       uint64_t *ret_spans);

/* Calls `on_credited` for the spans that were open at its timestamps, as far as they have come. */
void join_credit_below(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_found *named,
                       const struct join_sample *sample);
