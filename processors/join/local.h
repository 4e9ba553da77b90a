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

#include "processors/join/table.h"

#define JOIN_NO_SPAN UINT32_MAX
#define JOIN_STEPS_MAX                                                                             \
    (UINT64_C(1) << 26) /* for one item, so that none takes longer than a moment */

struct join_local {
    struct join_table *table;
    double *cut; /* counts traces of which not all spans of the service were read */
    uint8_t trace_id[16];
    uint64_t service_hash;
    bool known;   /* what follows is of that trace and service */
    bool figures; /* some of them have figures */
    unsigned n;
    struct join_relative spans[JOIN_FAMILY_MAX];
    uint16_t parents[JOIN_FAMILY_MAX]; /* index + 1; 0: a root */
    uint16_t depths[JOIN_FAMILY_MAX];
    uint16_t slots[2 * JOIN_FAMILY_MAX]; /* index + 1, by span id */
};

/* Reads the spans of a trace (16 bytes) and a service, unless that is what it has. Zeroed at first;
 * `table` and `cut` are set. `join_local_forget` makes it read again. */
void join_local_read(struct join_local *l, const uint8_t *trace_id, const uint8_t *service,
                     size_t service_len, uint64_t service_hash);
static inline void join_local_forget(struct join_local *l)
{
    l->known = false;
}

/* The number of a span among them, or JOIN_NO_SPAN. */
uint32_t join_local_find(const struct join_local *l, const uint8_t *span_id);

/* True for `span` itself and for what is below it. */
bool join_local_below(const struct join_local *l, uint32_t span, uint32_t top);

/* The deepest span at or below `root` that was open at `time_ns` on that thread (hashes; 0: not
 * known, which fits every thread); of several, what they have in common above them. */
uint32_t join_local_open(const struct join_local *l, uint32_t root, uint64_t time_ns,
                         uint32_t thread, uint32_t thread_name);
