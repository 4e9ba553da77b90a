/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The local tree of a span: the spans below it in the same trace and service. SDK bridges label
 * samples with its root, the span that came from outside; what they say is true of the whole tree,
 * and where a sample says when and on which thread it was taken, of the one span that was open
 * there.
 *
 * A span is a root when its parent is not among the spans of its trace and service, or when it is
 * of the kind server or consumer: then it came from outside even where its parent is there.
 */
#pragma once

#include "base/arena.h"
#include "processors/join/reading.h"
#include "processors/join/table/table.h"

#define JOIN_NO_SPAN UINT32_MAX

/* What one item may take, so that none takes longer than a moment: a step is a span looked at. */
#define JOIN_STEPS_MAX (UINT64_C(1) << 25)
#define JOIN_STEPS_PER_LOOK 64u /* into the table, whose memory is far away */

/* The spans of one trace and service. Those below one another are numbers in a row of `first`. */
struct join_local {
    uint8_t trace_id[16];
    uint64_t service_hash;
    uint64_t multiplier; /* of the slots */
    bool figures;        /* some of them have figures */
    unsigned n;
    unsigned slot_bits;
    struct join_relative *spans;
    uint16_t *parents; /* index + 1; 0: a root */
    uint16_t *depths;
    uint16_t *first, *end; /* places of a span and those below it, in order of the tree */
    uint16_t *slots;       /* index + 1, by span id */
};

#define JOIN_LOCALS_BYTES (512u << 10) /* of an item's trees; past it they are forgotten */

/* The trees that the samples or spans of one item belong to, each read once: zeroed at first, then
 * `table` and `cut` set. Reading counts in `steps`. */
struct join_locals {
    struct join_table *table;
    double *cut;    /* counts traces of which not all spans of the service were read */
    uint64_t steps; /* done so far; past JOIN_STEPS_MAX nothing is looked up */
    uint64_t multiplier;
    struct br_arena arena;
    struct br_map *known;            /* by trace and service */
    const struct join_local *newest; /* the one asked for last */
};

/* The tree of a trace (16 bytes) and a service; NULL when there were too many steps, or no memory.
 * Lives until the next call. */
const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash);
void join_locals_release(struct join_locals *locals); /* accepts a zeroed one */

/* The number of a span among them, or JOIN_NO_SPAN. */
uint32_t join_local_find(const struct join_local *local, const uint8_t *span_id);

/* True for `span` itself and for what is below it. */
static inline bool join_local_below(const struct join_local *local, uint32_t span, uint32_t top)
{
    return local->first[top] <= local->first[span] && local->first[span] < local->end[top];
}

/* The deepest span at or below `root` that was open at `time_ns` on that thread (hashes; 0: not
 * known, which fits every thread); of several, what they have in common above them. Takes as many
 * steps as there are spans. */
uint32_t join_local_open(const struct join_local *local, uint32_t root, uint64_t time_ns,
                         uint32_t thread, uint32_t thread_name);

/* --- Samples of a local tree ------------------------------------------------------------ */

/*
 * Credits a sample to the span that it names, unless that is the root of a local tree and the
 * sample has timestamps: then each of them is the deepest span's that was open there, as far as its
 * thread tells. What was another's still counts for the span that was named
 * (join_figures.passed_ns), and for every span above by being below it.
 */

/* Called under the table's lock for each span that a sample's figures were added to. */
typedef void join_credited_fn(void *arg, const struct join_span *span,
                              const struct join_sample *sample);

/* For the samples of one item; memory lies in `arena`. */
struct join_credit {
    struct br_arena *arena;
    join_credited_fn *on_credited; /* NULL: nobody wants to know */
    void *arg;
    struct join_locals locals;      /* `table` and `cut` are set; released by whoever made this */
    const struct join_local *local; /* of the sample at hand */
    uint64_t *times, *values;       /* of the sample at hand */
    uint64_t cap;                   /* of both */
    uint64_t n_cut; /* samples that would have taken too many steps, and are the span's they name */
};

/* Adds the sample's figures to the spans that were open at its timestamps. False when all of it
 * belongs to the span that it names and was found, or there is no memory: then nothing was added.
 * `sample` has what is said of the named span, but for what the meaning says. */
bool join_credit_below(struct join_credit *credit, const struct join_meaning *meaning,
                       const struct join_reading *reading, const struct join_found *named,
                       const struct join_sample *sample);
