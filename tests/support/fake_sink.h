/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer at the end of a pipeline under test. The sink receives items, stores the numbers of
 * their records (items.h), and finishes the items with the result that the test chooses.
 */
#pragma once

#include "pipeline/component.h"
#include "tests/support/fake_host.h"

enum fake_verdict {
    FAKE_DONE,
    FAKE_RETRY,  /* a retryable result, UNAVAILABLE, with sink->delay_ms as the retry delay */
    FAKE_REJECT, /* INVALID_ARGUMENT */
    FAKE_HOLD,   /* the item is not finished before fake_sink_release */
    FAKE_LATE,   /* the item is finished with DONE after sink->late_ms milliseconds */
    /* one of the results above except HOLD, chosen at random from sink->seed; LATE ends with any of
     * the first three results */
    FAKE_RANDOM,
    /* RESOURCE_EXHAUSTED without a retry delay if the item has more than sink->limit records, or a
     * record that is too large (`giant`); otherwise DONE */
    FAKE_TOO_LARGE,
};

#define FAKE_SINK_NUMBERS 400000

struct fake_sink {
    struct br_consumer consumer; /* the consumer that receives the items */
    struct br_host *host;
    enum fake_verdict verdict;
    unsigned first_fail; /* number of items that get a retryable result before `verdict` applies */
    /* n_rejected: number of records that each DONE reports as rejected */
    uint32_t delay_ms, late_ms, limit, n_rejected;
    /* The records with the numbers `giant` to giant + n_giants - 1 are too large, even if an item
     * contains only one record. */
    uint64_t giant, n_giants;
    uint64_t seed;
    bool closed; /* true: any further item fails the test */
    struct br_list held;
    unsigned n_items; /* items received */
    unsigned n_done, n_retry, n_reject, n_held;
    uint32_t largest;    /* largest number of records in an item */
    size_t largest_size; /* largest size of an item in bytes */
    uint64_t last_ms;    /* time at which the last item was received */
    /* indexed by record number: how often the record was in an item that ended with DONE */
    uint8_t *delivered[BR_SIGNALS];
    uint8_t *seen[BR_SIGNALS]; /* indexed by record number: how often the record was received */
};

/* Initializes a sink that finishes each item with DONE at once. The caller may then change the
 * members. */
void fake_sink_init(struct fake_sink *s, struct br_host *h);

/* Finish all held items, or the item that was held first. */
void fake_sink_release(struct fake_sink *s, enum fake_verdict verdict);
void fake_sink_release_one(struct fake_sink *s, enum fake_verdict verdict);

/* Finishes held items with RETRY, and frees the sink. */
void fake_sink_free(struct fake_sink *s);

/* Returns how many of the records first to first + n - 1 were delivered exactly once. */
size_t fake_sink_once(const struct fake_sink *s, enum br_signal signal, uint64_t first, size_t n);

/* Returns how many records were delivered more than once. */
size_t fake_sink_twice(const struct fake_sink *s, enum br_signal signal);

/* Returns a node for the tests of code that is not a component but needs a node, such as a queue.
 * It is an exporter `test` in pipelines of both signals. */
struct br_node fake_node(struct br_host *h);

/* Counts the results of the items that fake_tally_item returns. */
struct fake_tally {
    unsigned n, n_done, n_retry, n_reject;
    struct br_outcome last;
};

/* Returns an item with `n` records (items.h), whose result will be counted in the tally. Returns
 * NULL if memory is exhausted. */
struct br_item *fake_tally_item(struct fake_tally *t, struct br_host *h, enum br_signal signal,
                                uint64_t first, uint32_t n);

/* The environment for the test of a part of a pipeline: a host, a node for this part, and a sink
 * that receives its output. */
struct fake_bed {
    struct fake_host *h;
    struct fake_sink sink;
    struct fake_tally tally; /* results of the items sent in */
    struct br_node node;     /* fake_node */
};
void fake_bed_begin(struct fake_bed *bed);

/* Frees everything, the sink first. Fails the test unless the ledger balances. The caller must have
 * freed the code under test before. */
void fake_bed_end(struct fake_bed *bed);

/* Returns a number from a seed (splitmix64), for tests that print their seed when they fail. */
uint64_t fake_random(uint64_t *seed);
