/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One worker's instance of the configured graph, with nodes in topological order. Receivers,
 * exporters and connectors exist once per id, processors once per pipeline (`shared` ones once per
 * id). Extensions exist in the first worker only.
 */
#pragma once

#include "app/config.h"
#include "base/str.h"
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

/* Destroys the nodes. Items in the nodes are finished and counted. Items that arrive later are
 * refused. */
void br_graph_end(struct br_graph *graph);

/* Destroys the nodes as br_graph_end does, and frees the graph. Accepts NULL. */
void br_graph_free(struct br_graph *graph);

/* --- Reload (graph_reload.c) ------------------------------------------------------------------ */

/*
 * A reload replaces a graph by one of another configuration. Nodes whose settings are equal are
 * moved to the new graph, with everything that they hold. The order of calls, where (all) means for
 * the graphs of all workers, while no other thread runs:
 *
 * 1. br_graph_hold in each worker, and wait, if br_graph_must_hold
 * 2. br_graph_end_held (all)
 * 3. br_graph_prepare and br_graph_start_new (all)
 * 4. br_graph_commit (all). The old graph then contains what was removed.
 * 5. br_graph_retire in each worker, and wait
 * 6. br_graph_leave (all)
 *
 * After a failure in step 3: br_graph_cancel (all that were prepared), then br_graph_revive_held
 * (all).
 */

/* Returns true if the reload replaces nodes that cannot exist twice, because their files can be
 * open only once. */
bool br_graph_must_hold(const struct br_graph *graph, const struct br_config *next);

/* Drains the nodes that cannot exist twice. Requests to them wait. Then calls `fn`, which may be
 * called before the function returns. */
void br_graph_hold(struct br_graph *graph, const struct br_config *next, void (*fn)(void *arg),
                   void *arg);

/* Destroys the nodes that br_graph_hold has drained. */
void br_graph_end_held(struct br_graph *graph);

/* Creates and starts these nodes again, after a failed reload, and lets requests go on. Returns 0,
 * or a negative code with `err` set; requests to nodes that could not start are refused. */
int br_graph_revive_held(struct br_graph *graph, struct br_err *err);

/* Creates a graph for the configuration `next` and moves the nodes of `old` to it that are equal in
 * both. Returns 0, or a negative code with `err` set. In both cases, the caller ends the reload
 * with br_graph_commit or br_graph_cancel if `*ret` is not NULL. */
int br_graph_prepare(struct br_graph *old, const struct br_config *next, struct br_graph **ret,
                     struct br_err *err);

/* Starts the new nodes. Returns 0, or a negative code with `err` set. */
int br_graph_start_new(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Appends what is unchanged, changed, new and removed, as one line. Call it before
 * br_graph_commit. */
void br_graph_describe(const struct br_graph *graph, const struct br_graph *old,
                       struct br_str *out);

/* Connects the nodes of the new graph. Cannot fail. */
void br_graph_commit(struct br_graph *graph, struct br_graph *old);

/* Moves the nodes back to the old graph, and frees the new one with its other nodes. */
void br_graph_cancel(struct br_graph *graph, struct br_graph *old);

/* Drains a graph that was replaced, as br_graph_drain does, while its worker goes on. */
void br_graph_retire(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg);

/* Destroys and frees a graph that was replaced. `heir` is the worker's graph in use. It gets the
 * fan-outs that are still delivering. */
void br_graph_leave(struct br_graph *graph, struct br_graph *heir);

/* Returns true if the graph or one of its nodes was made from this configuration. */
bool br_graph_uses(const struct br_graph *graph, const struct br_config *config);
