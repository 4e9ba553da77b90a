/* SPDX-License-Identifier: Apache-2.0 */
/* What a sample says: whose it is, what it counts, when and where it was taken. */
#pragma once

#include "otlp/dictionary.h"
#include "processors/join/identity.h"
#include "processors/join/labels.h"

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
void join_reading_of(const struct br_dictionary_view *view, const struct join_label *labels,
                     const uint8_t *p, const uint8_t *end, struct join_reading *ret);

/* Copies what it counts and when: `n_values` and `n_times` of them. */
void join_reading_values(const struct join_reading *s, uint64_t *ret);
void join_reading_times(const struct join_reading *s, uint64_t *ret);
