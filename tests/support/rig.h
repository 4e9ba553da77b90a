/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One component between a test that makes items and a sink that keeps the output, with a clock that
 * only the test moves. The sink ends br_mem_set_hooks: tests fail allocations of the node, not
 * those of the sink.
 */
#pragma once

#include "base/arena.h"
#include "base/str.h"
#include "pipeline/component.h"
#include "tests/support/reorder.h"
#include "tests/support/wire.h"

struct rig {
    struct br_host host;     /* must be the first member */
    struct br_memory memory; /* the host's memory budget: unlimited by default */
    struct br_pool *pool;
    uint64_t now_ms, unix_ns;
    struct br_arena arena;
    struct br_node node;
    struct br_consumer sink;
    struct br_str out;    /* the last output item, as OTLP/JSON */
    size_t out_size;      /* its item->size */
    struct br_buf *wire;  /* the buffer of its bytes, which may be a part of it */
    const uint8_t *bytes; /* its bytes */
    size_t n_bytes;
    unsigned n_out;            /* number of output items */
    struct br_outcome outcome; /* result of the last item that ended */
    unsigned n_ended;
    bool drained;
};

/* Variants of a suite (RUN_VARIANTS): each value of enum reorder. Items made by rig_item and
 * rig_item_of get their fields in this order, and the resulting JSON has them in rising order.
 * REORDER_NOT, the default, changes neither. */
const char *rig_order(unsigned variant);

/* As above, without REORDER_RISING, for suites that take long. */
const char *rig_order_not_rising(unsigned variant);

/* Returns a node of the component, created and started with the YAML as its config. Fails the
 * test if that fails. */
struct rig *rig_new(const struct br_component *c, const char *yaml);

/* Returns the error of a failing `start`, "" if it succeeds. Lives until the next call. */
const char *rig_start_error(const struct br_component *c, const char *yaml);

/* Drains and destroys the node. Fails the test if a buffer is leaked or the ledger does not
 * balance. */
void rig_free(struct rig *r);

/* Returns the errors and warnings about a config, one per line, "" if it is valid. Lives
 * until the next call. */
const char *rig_errors(const struct br_component *c, const char *yaml);

/* A table of configs with the error of each: all of rig_errors, or a part of it. */
void rig_expect_errors(const struct br_component *c, const char *const (*cases)[2], size_t n);
void rig_expect_errors_in(const struct br_component *c, const char *const (*cases)[2], size_t n);

/* Returns an item made from OTLP/JSON, as a receiver would make it. Its result is noted in the
 * rig. */
struct br_item *rig_item(struct rig *r, enum br_signal signal, const char *json);

/* Returns an item made from bytes, whose ownership it takes. Fails the test if a receiver would
 * reject them. */
struct br_item *rig_item_of(struct rig *r, enum br_signal signal, struct wire *w);

/* Sends an item through the node and runs the loop until nothing is left. */
void rig_send(struct rig *r, struct br_item *item);

/* Does both; returns the output as JSON, or "" without output. */
const char *rig_run(struct rig *r, enum br_signal signal, const char *json);

/* Sends `n` copies of this request with some bytes changed at random, skipping those that a
 * receiver would reject. Returns the number sent. Fails the test if a receiver would reject the
 * output. */
unsigned rig_send_mutants(struct rig *r, enum br_signal signal, const char *json, unsigned n);

/* A request that is sent with one allocation failing. */
struct rig_shortage {
    const struct br_component *component;
    const char *yaml;
    enum br_signal signal;
    const char *json;
    struct br_item *(*make)(struct rig *r, void *arg); /* NULL: rig_item of the two above */
    /* Checks the output, and returns whether there is any. A custom consumer must end
     * br_mem_set_hooks. NULL: the output must be `expected`. */
    bool (*came)(struct rig *r, void *arg);
    const char *expected;
    void *arg;
};

/* Sends the request to one node after another, failing first its first allocation, then its
 * second, and so on, until no allocation fails. Fails the test unless each request ends exactly
 * once, and with a retryable result without output. Returns the number of such results. */
unsigned rig_run_short(const struct rig_shortage *s);

/* Returns the value of a metric, or -1 if it does not exist. */
double rig_metric(struct rig *r, const char *name, const char *labels);

/* Returns the number of records that the ledger counts as dropped for a reason; NULL: for any. */
double rig_dropped(const struct rig *r, enum br_signal signal, const char *reason);

/* Completes finished items, and runs timers that are due. */
void rig_turn(struct rig *r);

/* Parses the component's config from a YAML text that it must accept, into the arena. */
void *rig_config(const struct br_component *c, const char *yaml, struct br_arena *arena);

/* Prepares a node with such a config, on a host that the test owns, neither created nor started.
 * `*drained` becomes true when the node reports it; NULL: it must not. The test sets its
 * neighbours, and releases node.state with br_free. */
struct br_node rig_node(const struct br_component *c, const char *yaml, struct br_host *host,
                        struct br_arena *arena, bool *drained);

/* Creates and starts the node. Fails the test unless both succeed. */
void rig_node_start(struct br_node *node);
