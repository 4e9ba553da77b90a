/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a pipeline under test: takes items, notes which of their spans or samples (items.h)
 * came, and finishes them as the test says.
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
    FAKE_RANDOM, /* one of the above but HOLD, by sink->seed; LATE ends in any of the first three */
    FAKE_TOO_LARGE, /* RESOURCE_EXHAUSTED without a hint over sink->limit items, or with a giant
                       among them, else DONE */
};

#define FAKE_SINK_NUMBERS 400000

struct fake_sink {
    struct br_consumer consumer; /* what upstream sends to */
    struct br_host *host;
    enum fake_verdict verdict;
    unsigned first_fail; /* so many items are refused (RETRY) before `verdict` counts */
    uint32_t delay_ms, late_ms, limit, n_rejected; /* n_rejected: of each DONE */
    uint64_t giant, n_giants; /* so many numbers from `giant` on are too large alone */
    uint64_t seed;
    bool closed; /* an item that comes now fails the test */
    struct br_list held;
    unsigned n_items; /* items that came */
    unsigned n_done, n_retry, n_reject, n_held;
    uint32_t largest;               /* most spans or samples in one item */
    size_t largest_size;            /* most bytes in one item */
    uint64_t last_ms;               /* when the last one came */
    uint8_t *delivered[BR_SIGNALS]; /* by number: how often it was in an item that was DONE */
    uint8_t *seen[BR_SIGNALS];      /* by number: how often it came */
};

/* A sink that answers DONE at once; change the fields as needed. */
void fake_sink_init(struct fake_sink *s, struct br_host *h);

/* Finishes what it holds, or the oldest of it. */
void fake_sink_release(struct fake_sink *s, enum fake_verdict verdict);
void fake_sink_release_one(struct fake_sink *s, enum fake_verdict verdict);

/* Frees; what it holds is finished with RETRY first. */
void fake_sink_free(struct fake_sink *s);

/* How many of the numbers first to first + n - 1 were delivered exactly once. */
size_t fake_sink_once(const struct fake_sink *s, enum br_signal signal, uint64_t first, size_t n);

/* How many were delivered more than once. */
size_t fake_sink_twice(const struct fake_sink *s, enum br_signal signal);

/* A node for what is made for one (queues, batchers), without a component of its own: an exporter
 * `test` in pipelines of both signals. */
struct br_node fake_node(struct br_host *h);

/* Counts the outcomes of items that it is the callback of: fake_tally_item(...), then look. */
struct fake_tally {
    unsigned n, n_done, n_retry, n_reject;
    struct br_outcome last;
};

/* An item of items.h that tells the tally, or NULL without memory. */
struct br_item *fake_tally_item(struct fake_tally *t, struct br_host *h, enum br_signal signal,
                                uint64_t first, uint32_t n);

/* What stands between a test and what it tests of a pipeline: a node before, and a sink behind. */
struct fake_bed {
    struct fake_host *h;
    struct fake_sink sink;
    struct fake_tally tally; /* of what is sent in */
    struct br_node node;     /* fake_node */
};
void fake_bed_begin(struct fake_bed *bed);

/* Frees all of it, the sink first; the test fails unless the ledger closes. What the node is for
 * has been freed by then. */
void fake_bed_end(struct fake_bed *bed);

/* A number from a seed (splitmix64), for tests that say their seed when they fail. */
uint64_t fake_random(uint64_t *seed);
