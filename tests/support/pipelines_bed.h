/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph of a configuration, between receivers through which a test sends items and exporters
 * that are fake sinks. Connectors are tested in it, because they need several pipelines.
 */
#pragma once

#include "app/graph.h"
#include "tests/support/fake_host.h"
#include "tests/support/fake_sink.h"

#define PIPELINES_SINKS 4

struct pipelines_bed {
    struct fake_host *h;
    struct br_config *config;
    struct br_graph *graph;
    struct br_node *receiver;                /* the receiver `in` */
    struct fake_sink sinks[PIPELINES_SINKS]; /* of the exporters sink/0, sink/1, ... */
    struct fake_tally tally;                 /* results of the items that were sent */
    uint64_t next[BR_SIGNALS];               /* number of the next record */
    unsigned n_drained;
};

/* Starts the graph of a configuration with the receiver `in`, the exporters sink/0 to sink/3, and
 * `yaml`, which has the sections `connectors` and `service`. */
struct pipelines_bed *pipelines_new(const char *yaml);

/* Returns the first error of a configuration, with its path, or "". Lives until the next call. */
const char *pipelines_error(const char *yaml);

/* Sends an item with the next `n` records (items.h) to the receiver, and runs the loop. Without
 * br_malloc's memory, no item is sent. */
void pipelines_send(struct pipelines_bed *bed, enum br_signal signal, uint32_t n);

/* Drains the graph and frees everything. Fails the test if the ledger does not balance or an item
 * has not ended. */
void pipelines_free(struct pipelines_bed *bed);
