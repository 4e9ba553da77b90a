/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a pipeline under test. The sink receives items, notes the numbers of their records
 * (items.h), and finishes them with the result that the test chooses.
 */
#pragma once

#include "pipeline/component.h"
#include "tests/support/fake_host.h"

enum fake_verdict {
    FAKE_DONE,
    FAKE_RETRY,  /* UNAVAILABLE, with sink->delay_ms as the hint */
    FAKE_REJECT, /* INVALID_ARGUMENT */
    FAKE_HOLD,   /* not before fake_sink_release */
    FAKE_LATE,   /* DONE after sink->late_ms */
    /* one of the above except HOLD, chosen by sink->seed; LATE ends in any of the first three */
    FAKE_RANDOM,
    /* RESOURCE_EXHAUSTED without a hint if the item has more than sink->limit records or a giant
     * one, else DONE */
    FAKE_TOO_LARGE,
};

#define FAKE_SINK_NUMBERS 400000

struct fake_sink {
    struct br_consumer consumer; /* the consumer that receives the items */
    struct br_host *host;
    enum fake_verdict verdict;
    unsigned first_fail; /* number of items rejected (RETRY) before `verdict` applies */
    uint32_t delay_ms, late_ms, limit, n_rejected; /* n_rejected of each DONE */
    /* number of records, counted from `giant`, that are too large even alone */
    uint64_t giant, n_giants;
    uint64_t seed;
    bool closed; /* true: any further item fails the test */
    struct br_list held;
    unsigned n_items; /* items received */
    unsigned n_done, n_retry, n_reject, n_held;
    uint32_t largest;    /* most records in one item */
    size_t largest_size; /* most bytes in one item */
    uint64_t last_ms;    /* time of the last item */
    /* by record number: how often it was in an item that was DONE */
    uint8_t *delivered[BR_SIGNALS];
    uint8_t *seen[BR_SIGNALS]; /* by record number: how often it was received */
};

/* Initializes a sink that answers DONE at once; change the fields as needed. */
void fake_sink_init(struct fake_sink *s, struct br_host *h);

/* Finishes all held items, or the oldest one. */
void fake_sink_release(struct fake_sink *s, enum fake_verdict verdict);
void fake_sink_release_one(struct fake_sink *s, enum fake_verdict verdict);

/* Frees the sink; held items are finished with RETRY first. */
void fake_sink_free(struct fake_sink *s);

/* Returns how many of the records first to first + n - 1 were delivered exactly once. */
size_t fake_sink_once(const struct fake_sink *s, enum br_signal signal, uint64_t first, size_t n);

/* Returns how many were delivered more than once. */
size_t fake_sink_twice(const struct fake_sink *s, enum br_signal signal);

/* A node for code that needs one (queues, batchers) but is not a component: an exporter `test`
 * in pipelines of both signals. */
struct br_node fake_node(struct br_host *h);

/* Counts the results of items whose callback it is: call fake_tally_item(...), then read the
 * fields. */
struct fake_tally {
    unsigned n, n_done, n_retry, n_reject;
    struct br_outcome last;
};

/* Returns an item of items.h whose result is counted in the tally, or NULL without memory. */
struct br_item *fake_tally_item(struct fake_tally *t, struct br_host *h, enum br_signal signal,
                                uint64_t first, uint32_t n);

/* The surroundings of a part of a pipeline under test: a node before it, and a sink behind it. */
struct fake_bed {
    struct fake_host *h;
    struct fake_sink sink;
    struct fake_tally tally; /* results of the items sent in */
    struct br_node node;     /* fake_node */
};
void fake_bed_begin(struct fake_bed *bed);

/* Frees everything, the sink first. Fails the test unless the ledger balances. The caller has
 * freed the code under test before. */
void fake_bed_end(struct fake_bed *bed);

/* Returns a number from a seed (splitmix64), for tests that print their seed when they fail. */
uint64_t fake_random(uint64_t *seed);
