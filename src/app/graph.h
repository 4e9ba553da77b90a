/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's copy of the configured graph: nodes in topological order. Receivers and exporters
 * are shared per id, processors are one per pipeline (but for `shared` components: one per id),
 * extensions live in the first worker only.
 */
#pragma once

#include "app/config.h"
#include "pipeline/component.h"

struct br_graph;

/* Creates every node and wires them. Returns 0, or a negative code with a sentence; nothing is
 * left. */
int br_graph_new(const struct br_config *config, struct br_host *host, struct br_graph **ret,
                 struct br_err *err);

/* Starts exporters first, receivers last. On failure what was started stays so until br_graph_free.
 */
int br_graph_start(struct br_graph *graph, struct br_err *err);

/* Creates the graph and starts each node of it, on a host that opens nothing (br_host.checking), to
 * see what would fail; then it is gone again. Errors go to `errs`, each at its component. Returns 0
 * or a negative code. */
int br_graph_check(const struct br_config *config, struct br_host *host, struct br_errs *errs);

/* Drains from the receivers on, each level once the one before it is empty; then calls `fn` once.
 * After `hurry_ms` what processors and queues hold leaves them, also where a level before them is
 * not empty. Without memory for that timer it does not. */
void br_graph_drain(struct br_graph *graph, uint64_t hurry_ms, void (*fn)(void *arg), void *arg);

/* Destroys the nodes; what they still hold is finished and counted. Accepts NULL. */
void br_graph_free(struct br_graph *graph);
