/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the pipelines of a configuration. The test sends items through the receiver, and the
 * exporters are fake sinks. Tests of connectors use it, because connectors need several pipelines.
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
    struct br_node *receiver;                /* the node of the receiver `in` */
    struct fake_sink sinks[PIPELINES_SINKS]; /* the sinks of the exporters sink/0, sink/1, ... */
    struct fake_tally tally;                 /* results of the items that were sent */
    /* number of the next record to send (items.h), for each signal */
    uint64_t next[BR_SIGNALS];
    unsigned n_drained;
};

/* Starts the pipelines of a configuration. It has the receiver `in`, the exporters sink/0 to
 * sink/3, and the sections `connectors` and `service` in `yaml`. */
struct pipelines_bed *pipelines_new(const char *yaml);

/* Returns the first error of a configuration and its path, or "" if the configuration is valid. The
 * text is valid until the next call. */
const char *pipelines_error(const char *yaml);

/* Sends an item with the next `n` records (items.h) to the receiver, and runs the loop. If
 * br_malloc fails, no item is sent. */
void pipelines_send(struct pipelines_bed *bed, enum br_signal signal, uint32_t n);

/* Drains the pipelines and frees everything. Fails the test if the ledger does not balance or an
 * item has not ended. */
void pipelines_free(struct pipelines_bed *bed);
