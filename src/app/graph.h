/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graph of the configured components in one worker. Each receiver, exporter and connector has
 * one node in a graph. A processor has one node in each of its pipelines, but a `shared` processor
 * has one node for a traces pipeline and a profiles pipeline together. An extension has a node in
 * the first worker only, unless its component sets `every_worker`.
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

/* Starts the nodes, exporters first and receivers last. Returns 0, or a negative code with `err`
 * set. After a failure, the nodes that were started run until br_graph_free. */
int br_graph_start(struct br_graph *graph, struct br_err *err);

/* Creates a graph, starts each node, and frees the graph. `host` must be a host that opens no files
 * and no sockets (br_host.checking). Adds an error to `errs` for each component that would fail to
 * start. Returns 0 or a negative code. */
int br_graph_check(const struct br_config *config, struct br_host *host, struct br_errs *errs);

/* Drains the nodes, from the receivers to the exporters. A node is drained when all nodes of lower
 * depth are empty, including the nodes before it in its pipelines. Calls `fn` once when all nodes
 * are empty. After `flush_ms`, all processors and queues send the records that they hold, even if
 * nodes before them are not empty. If no memory for the timer is available, this early sending does
 * not happen. */
void br_graph_drain(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg);

/* Destroys the nodes. Completes and counts the items that the nodes still hold. Items that arrive
 * later are refused. */
void br_graph_end(struct br_graph *graph);

/* Destroys the nodes as br_graph_end does, and frees the graph. Accepts NULL. */
void br_graph_free(struct br_graph *graph);

/* --- Reload (graph_reload.c) ------------------------------------------------------------------ */

/*
 * A reload replaces a graph with the graph of another configuration. Nodes with unchanged settings
 * are moved to the new graph, together with the records that they hold. A reload calls the
 * functions in the order below. "(all)" marks calls for the graphs of all workers while no other
 * thread runs.
 *
 * 1. br_graph_hold in each worker, if br_graph_must_hold returns true; then wait for `fn`
 * 2. br_graph_end_held (all)
 * 3. br_graph_prepare and br_graph_start_new (all)
 * 4. br_graph_commit (all); the old graph then contains only removed and replaced nodes
 * 5. br_graph_retire in each worker; then wait for `fn`
 * 6. br_graph_leave (all)
 *
 * If step 3 fails, br_graph_cancel is called for all prepared graphs, and then br_graph_revive_held
 * for all old graphs.
 */

/* Returns true if a reload with the configuration `next` replaces a node whose files can be open
 * only once. The old node must then be destroyed before the new node is created. */
bool br_graph_must_hold(const struct br_graph *graph, const struct br_config *next);

/* Drains the nodes that the reload replaces and whose files can be open only once. New requests to
 * these nodes wait. Calls `fn` when the nodes are empty, possibly before the function returns. */
void br_graph_hold(struct br_graph *graph, const struct br_config *next, void (*fn)(void *arg),
                   void *arg);

/* Destroys the nodes that br_graph_hold has drained. */
void br_graph_end_held(struct br_graph *graph);

/* Creates and starts the nodes again that br_graph_end_held has destroyed, after a failed reload.
 * Forwards the requests that wait for these nodes. Returns 0, or a negative code with `err` set.
 * Nodes that could not start refuse requests. */
int br_graph_revive_held(struct br_graph *graph, struct br_err *err);

/* Creates a graph for the configuration `next`. Moves the nodes with unchanged settings from `old`
 * to the new graph. Returns 0, or a negative code with `err` set. After success, the caller must
 * end the reload with br_graph_commit or br_graph_cancel. After a failure, the caller must call
 * br_graph_cancel if `*ret` is not NULL. */
int br_graph_prepare(struct br_graph *old, const struct br_config *next, struct br_graph **ret,
                     struct br_err *err);

/* Starts the new nodes. Returns 0, or a negative code with `err` set. */
int br_graph_start_new(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Appends one line with the number of unchanged components and the names of the changed, new and
 * removed components. Must be called before br_graph_commit. */
void br_graph_describe(const struct br_graph *graph, const struct br_graph *old,
                       struct br_str *out);

/* Connects the nodes of the new graph, and directs requests for replaced nodes to the new nodes.
 * Cannot fail. */
void br_graph_commit(struct br_graph *graph, struct br_graph *old);

/* Moves the nodes that came from the old graph back to it. Frees the new graph with its remaining
 * nodes. */
void br_graph_cancel(struct br_graph *graph, struct br_graph *old);

/* Drains a replaced graph as br_graph_drain does, while the worker uses its new graph. */
void br_graph_retire(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg);

/* Destroys and frees a replaced graph. Moves fan-outs that are still delivering items to `heir`,
 * the graph that the worker uses. */
void br_graph_leave(struct br_graph *graph, struct br_graph *heir);

/* Returns true if the graph or one of its nodes was created from this configuration. */
bool br_graph_uses(const struct br_graph *graph, const struct br_config *config);
