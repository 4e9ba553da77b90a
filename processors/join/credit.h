/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a sample is. The span that it names, unless that is the root of a local tree and the sample
 * has timestamps: then each of them is the deepest span's that was open there, as far as its thread
 * tells. What was another's still counts for the span that was named (join_figures.passed_ns), and
 * for every span above by being below it.
 */
#pragma once

#include "processors/join/local.h"
#include "processors/join/meaning.h"
#include "processors/join/reading.h"

/* A span as a sample found it, copied under the table's lock. */
struct join_found {
    uint8_t trace[16], span[8], name[JOIN_VALUE_MAX], service[JOIN_VALUE_MAX];
    uint8_t attributes[JOIN_ATTRIBUTES_BYTES_MAX];
    size_t name_len, service_len, attributes_len;
    uint64_t start_ns, end_ns;
    uint8_t status;
    bool has_trace;
};

/* A join_found_fn whose `arg` is a struct join_found. */
void join_found_copy(void *arg, const struct join_span *span);

/* Called under the table's lock for each span that a sample's figures were added to. */
typedef void join_credited_fn(void *arg, const struct join_span *span,
                              const struct join_sample *sample);

/* For the samples of one item; memory lies in `arena`. */
struct join_credit {
    struct br_arena *arena;
    join_credited_fn *on_credited; /* NULL: nobody wants to know */
    void *arg;
    struct join_locals locals; /* `table` and `cut` are set; released by whoever made this */
    const struct join_local *local; /* of the sample at hand */
    uint64_t *times, *values;       /* of the sample at hand */
    uint64_t cap;                   /* of both */
    uint64_t n_cut; /* samples that would have taken too many steps, and are the span's they name */
};

/* Adds the sample's figures to the spans that were open at its timestamps. False when all of it
 * belongs to the span that it names and was found, or there is no memory: then nothing was added.
 * `sample` has what is said of the named span, but for what the meaning says. */
bool join_credit_below(struct join_credit *c, const struct join_meaning *m,
                       const struct join_reading *s, const struct join_found *named,
                       const struct join_sample *sample);
