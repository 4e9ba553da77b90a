/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's instance of the configured graph, with nodes in topological order. Receivers and
 * exporters exist once per id, processors once per pipeline (`shared` ones once per id). Extensions
 * exist in the first worker only.
 */
#pragma once

#include "app/config.h"
#include "pipeline/component.h"

struct br_graph;

/* Creates and connects all nodes. Returns 0. On failure, returns a negative code with `err` set
 * and leaves nothing allocated. */
int br_graph_new(const struct br_config *config, struct br_host *host, struct br_graph **ret,
                 struct br_err *err);

/* Starts the nodes, exporters first and receivers last. After a failure, started nodes keep
 * running until br_graph_free. */
int br_graph_start(struct br_graph *graph, struct br_err *err);

/* Creates the graph and starts each node on a host that opens nothing (br_host.checking), then
 * frees the graph. Adds an error to `errs` for each component that would fail to start. Returns
 * 0 or a negative code. */
int br_graph_check(const struct br_config *config, struct br_host *host, struct br_errs *errs);

/* Drains the nodes level by level, starting with the receivers: each level after the previous
 * one is empty. Then calls `fn` once. After `flush_ms`, all processors and queues send the
 * records that they hold, even if a previous level is not empty. If memory for the timer is
 * short, this early sending does not happen. */
void br_graph_drain(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg);

/* Destroys the nodes. Items in the nodes are finished and counted. Accepts NULL. */
void br_graph_free(struct br_graph *graph);
