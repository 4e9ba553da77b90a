/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one component between a test, which makes items, and a sink, which keeps the output. The
 * clock moves only if the test moves it. When the sink receives an item, it calls
 * br_mem_set_hooks(NULL). Injected allocation failures therefore affect the component, but not the
 * sink.
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
    struct br_buf *wire;  /* buffer that contains the bytes of the last output item */
    const uint8_t *bytes; /* bytes of the last output item; a part of `wire` */
    size_t n_bytes;
    unsigned n_out;            /* number of output items */
    struct br_outcome outcome; /* result of the input item that ended last */
    unsigned n_ended;
    bool drained;
};

/* Selects a variant of a suite (RUN_VARIANTS). There is a variant for each value of enum reorder.
 * The items of rig_item and rig_item_of then have their fields in this order, and the resulting
 * JSON has them in rising order. With REORDER_NOT, the default, no order is changed. */
const char *rig_order(unsigned variant);

/* Does the same as rig_order without the variant REORDER_RISING, for suites that take long. */
const char *rig_order_not_rising(unsigned variant);

/* Creates and starts a node of the component, with the YAML as its config. Fails the test if this
 * fails. */
struct rig *rig_new(const struct br_component *c, const char *yaml);

/* Returns the error with which the start of the component fails, or "" if it succeeds. The text is
 * valid until the next call. */
const char *rig_start_error(const struct br_component *c, const char *yaml);

/* Drains and destroys the node. Fails the test if a buffer is leaked or the ledger does not
 * balance. */
void rig_free(struct rig *r);

/* Returns the errors and warnings about a config, one per line, or "" if the config is valid and
 * has no warnings. The text is valid until the next call. */
const char *rig_errors(const struct br_component *c, const char *yaml);

/* Each of the `n` cases is a config and its expected error. rig_expect_errors compares the error
 * with the whole text of rig_errors. rig_expect_errors_in requires that the text contains the
 * error. */
void rig_expect_errors(const struct br_component *c, const char *const (*cases)[2], size_t n);
void rig_expect_errors_in(const struct br_component *c, const char *const (*cases)[2], size_t n);

/* Returns an item made from OTLP/JSON, as a receiver would make it. When the item ends, its result
 * is stored in r->outcome. */
struct br_item *rig_item(struct rig *r, enum br_signal signal, const char *json);

/* Returns an item that is parsed from the bytes in `*w`. Takes ownership of the bytes. Fails the
 * test if a receiver would reject them. */
struct br_item *rig_item_of(struct rig *r, enum br_signal signal, struct wire *w);

/* Sends an item through the node and runs the loop until nothing is left. */
void rig_send(struct rig *r, struct br_item *item);

/* Makes an item (rig_item) and sends it (rig_send). Returns the output as JSON, or "" without
 * output. */
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
    /* makes the item; NULL: rig_item makes it from `signal` and `json` */
    struct br_item *(*make)(struct rig *r, void *arg);
    /* Checks the output, and returns whether there is any. If NULL, the output must be `expected`.
     * A consumer of the test must call br_mem_set_hooks(NULL) when it receives an item. */
    bool (*came)(struct rig *r, void *arg);
    const char *expected;
    void *arg;
};

/* Sends the request repeatedly, each time to a new node. In the n-th run, the n-th allocation
 * fails. The last run is the one in which no allocation fails. Fails the test unless each request
 * ends exactly once, and each request without output has a retryable result. Returns the number of
 * retryable results. */
unsigned rig_run_short(const struct rig_shortage *s);

/* Returns the value of a metric, or -1 if it does not exist. */
double rig_metric(struct rig *r, const char *name, const char *labels);

/* Returns the number of records that the ledger counts as dropped for a reason. If `reason` is
 * NULL, returns the number for all reasons. */
double rig_dropped(const struct rig *r, enum br_signal signal, const char *reason);

/* Completes finished items, and runs timers that are due. */
void rig_turn(struct rig *r);

/* Parses the component's config from a YAML text that it must accept, into the arena. */
void *rig_config(const struct br_component *c, const char *yaml, struct br_arena *arena);

/* Prepares a node with this config, on a host that the test owns. Does not create or start the
 * component. `*drained` becomes true when the node reports that it has drained. If `drained` is
 * NULL, it must not report this. The test sets the next consumers of the node, and releases
 * node.state with br_free. */
struct br_node rig_node(const struct br_component *c, const char *yaml, struct br_host *host,
                        struct br_arena *arena, bool *drained);

/* Creates and starts the node. Fails the test unless both succeed. */
void rig_node_start(struct br_node *node);
