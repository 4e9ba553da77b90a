/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One component between a test that makes items and a sink that keeps what comes out, with a clock
 * that only the test moves. The sink ends br_mem_set_hooks: tests fail the node's allocations, not
 * its.
 */
#pragma once

#include "base/arena.h"
#include "base/str.h"
#include "pipeline/component.h"
#include "tests/support/reorder.h"
#include "tests/support/wire.h"

struct rig {
    struct br_host host;     /* first */
    struct br_memory memory; /* the host's budget: no limit at first */
    struct br_pool *pool;
    uint64_t now_ms, unix_ns;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    struct br_str out;         /* the last item that came out, as OTLP/JSON */
    size_t out_size;           /* its item->size */
    struct br_buf *wire;       /* and its bytes */
    unsigned n_out;            /* items that came out */
    struct br_outcome outcome; /* of the last item that ended */
    unsigned n_ended;
    bool drained;
};

/* Variants of a suite (RUN_VARIANTS): each value of enum reorder. Items made by rig_item and
 * rig_item_of get their fields in this order, and the resulting JSON has them in rising order.
 * REORDER_NOT, the default, changes neither. */
const char *rig_order(unsigned variant);

/* The same without REORDER_RISING, for suites that take long. */
const char *rig_order_not_rising(unsigned variant);

/* A node of the component, created and started with the YAML as its config. Fails the test when
 * that is refused. */
struct rig *rig_new(const struct br_component *c, const char *yaml);

/* What `start` says when it fails, "" when it does not. Lives until the next call. */
const char *rig_start_error(const struct br_component *c, const char *yaml);

/* Drains, destroys, and fails the test when a buffer is left or the ledger does not close. */
void rig_free(struct rig *r);

/* What the config is refused with, each error and warning on a line, "" for none. Lives until the
 * next call. */
const char *rig_errors(const struct br_component *c, const char *yaml);

/* A table of configs and what each is refused with: all that rig_errors says, or a part of it. */
void rig_expect_errors(const struct br_component *c, const char *const (*cases)[2], size_t n);
void rig_expect_errors_in(const struct br_component *c, const char *const (*cases)[2], size_t n);

/* An item out of OTLP/JSON, as a receiver would make it. Its end is noted in the rig. */
struct br_item *rig_item(struct rig *r, enum br_signal signal, const char *json);

/* An item out of bytes, which are taken. The test fails when a receiver would not take them. */
struct br_item *rig_item_of(struct rig *r, enum br_signal signal, struct wire *w);

/* Sends an item through the node and turns until nothing is left. */
void rig_send(struct rig *r, struct br_item *item);

/* Both at once; returns what came out as JSON, or "" when nothing did. */
const char *rig_run(struct rig *r, enum br_signal signal, const char *json);

/* Sends `n` requests that are this one with some bytes changed at random, of those that a receiver
 * would take; returns how many these were. The test fails when a receiver would not take what comes
 * out. */
unsigned rig_send_mutants(struct rig *r, enum br_signal signal, const char *json, unsigned n);

/* A request that is sent with one allocation failing. */
struct rig_shortage {
    const struct br_component *component;
    const char *yaml;
    enum br_signal signal;
    const char *json;
    struct br_item *(*make)(struct rig *r, void *arg); /* NULL: rig_item of the two above */
    /* Checks what came out, and says whether anything did; a consumer of its own has to end
     * br_mem_set_hooks. NULL: what came out is `expected`. */
    bool (*came)(struct rig *r, void *arg);
    const char *expected;
    void *arg;
};

/* Sends it to one node after another, while its first allocation fails, its second, and so on,
 * until none does. The test fails unless it always ends once, and to be retried where nothing came
 * out; returns how often that was. */
unsigned rig_run_short(const struct rig_shortage *s);

/* The value of a metric, -1 when there is none. */
double rig_metric(struct rig *r, const char *name, const char *labels);

/* Spans or samples that the ledger says were dropped for a reason; NULL: for any. */
double rig_dropped(const struct rig *r, enum br_signal signal, const char *reason);

/* Finishes what is finished, runs timers that are due. */
void rig_turn(struct rig *r);

/* The component's config out of a YAML text that it must accept, in the arena. */
void *rig_config(const struct br_component *c, const char *yaml, struct br_arena *arena);

/* A node with such a config, on a host of the test's own, neither created nor started. `*drained`
 * becomes true when it says so; NULL: it never does. The test fills in what comes before and behind
 * it, and gives node.state back to br_free. */
struct br_node rig_node(const struct br_component *c, const char *yaml, struct br_host *host,
                        struct br_arena *arena, bool *drained);

/* Creates and starts it; the test fails unless both succeed. */
void rig_node_start(struct br_node *node);
