/* SPDX-License-Identifier: Apache-2.0 */
/* What a sample says: whose it is, what it counts, when and where it was taken. */
#pragma once

#include "otlp/dictionary.h"
#include "processors/join/identity.h"
#include "processors/join/labels.h"

/* The links of an item; what long ones say is read once. Zeroed, then `view` and `arena` set. */
struct join_links {
    const struct br_dictionary_view *view;
    struct br_arena *arena;
    struct br_map *known; /* by index */
    bool no_memory;       /* what they say is not to be used */
};
void join_links_release(struct join_links *l); /* accepts a zeroed one */

struct join_reading {
    const uint8_t *body, *end;
    const uint8_t *trace_id, *span_id; /* NULL: none */
    uint8_t trace_number, span_number; /* of the labels that they came from */
    bool linked;                       /* by a link, not by a label */
    uint32_t has_keys;                 /* bits: keys that the join would add, and the sample has */
    uint32_t stack;
    uint64_t value; /* the sum of its values */
    uint64_t n_values, n_times;
    struct join_identity where;
};

/* Reads a Sample message. `labels` is of join_labels_read; NULL: none of them means anything. */
void join_reading_of(struct join_links *links, const struct join_label *labels,
                     const uint8_t *p, const uint8_t *end, struct join_reading *ret);

/* How many numbers to make room for where so many are needed: few grow often, many once. */
static inline uint64_t join_numbers_cap(uint64_t need)
{
    return need < 32 ? 64 : need < 4096 ? 2 * need : need;
}

/* Copies what it counts and when: `n_values` and `n_times` of them. */
void join_reading_values(const struct join_reading *s, uint64_t *ret);
void join_reading_times(const struct join_reading *s, uint64_t *ret);
