/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Declarations that graph.c, graph_wire.c, graph_drain.c and graph_reload.c share.
 *
 * A place contains one node and the queues in front of it. Requests enter a place through its door.
 * When a reload replaces the node, the new place takes over the door, so that upstream nodes and
 * fan-outs need not be changed.
 */
#pragma once

#include "app/graph.h"
#include "base/list.h"
#include "pipeline/durable.h"
#include "pipeline/exporter.h"

#define GRAPH_DEPTH_EXPORTER 1000u

/* The consumer through which requests enter a place. */
struct graph_door {
    struct br_consumer input;
    /* consumer to which the door forwards requests; borrowed; NULL: the node could not be started,
     * and requests are refused */
    struct br_consumer *to;
    bool closed;            /* requests wait in `waiting` until the door is opened */
    struct br_list waiting; /* list of struct br_item */
};

/* A fan-out with its configuration and its destinations. If both are unchanged, a reload keeps the
 * fan-out. */
struct graph_spread {
    struct br_list link;      /* in graph->loose if no pipeline and no receiver uses the fan-out */
    struct br_fanout *fanout; /* owned */
    struct br_fanout_config config;
    unsigned depth;      /* depth of the nodes directly before the fan-out: 0 for receivers */
    bool kept;           /* the graph that a reload prepares also uses the fan-out */
    unsigned next_depth; /* if `kept`: the value of `depth` in that graph */
    size_t count;
    struct br_fanout_end ends[]; /* `name` is owned */
};

/* The output of a receiver, a connector or a route of a connector. */
struct graph_output {
    struct br_consumer *next;    /* NULL: there is no pipeline */
    struct graph_spread *spread; /* distributes requests to several pipelines; NULL: one pipeline */
};

/* The outputs of a node, and the data that later components need from it. */
struct graph_wiring {
    /* by signal; receivers and connectors: the output to all their pipelines */
    struct graph_output all[BR_SIGNALS];
    /* connectors: by signal, the outputs of the `n_routes` routes, and their consumers as an array
     * for the node; NULL: the connector has no routes */
    struct graph_output *routes[BR_SIGNALS];
    struct br_consumer **route_inputs[BR_SIGNALS];
    size_t n_routes;
    /* receivers: metadata keys that later processors and exporters use, without duplicates */
    struct br_strings metadata_keys;
    uint32_t cap_metadata_keys;
    bool spans_wanted, times_wanted;
};

/* The members of a place that a reload updates when it keeps the place. */
struct graph_position {
    const struct br_instance *instance;
    /* processors with one node per pipeline: the pipeline of this node; otherwise NULL */
    const struct br_pipeline *pipeline;
    /* shared processors: index of the pipeline among the pipelines of its signal that list the
     * processor */
    unsigned turn;
    unsigned depth;
};

struct graph_place {
    struct br_list link; /* in graph->places */
    struct br_node node;
    struct graph_position at;
    struct graph_position before; /* during a reload: the value of `at` in the old graph */
    /* configuration from which the node was created; older than graph->config if a reload has kept
     * the place */
    const struct br_config *made_of;
    bool started;
    bool kept;    /* the place was moved from the old graph during this reload */
    bool drains;  /* draining of the node has begun: all nodes before it are empty */
    bool emptied; /* br_graph_hold has drained the node, because its files can be open only once */
    struct br_graph *graph;
    char *log_name;
    struct graph_door *door; /* owned; NULL for receivers, extensions and replaced places */
    /* place that replaces this place in a reload and takes over its door; NULL: none */
    struct graph_place *successor;
    struct br_queue *queue;     /* owned; in-memory queue of an exporter; NULL: none */
    struct br_durable *durable; /* owned; durable queue in front of `queue`; NULL: none */
    struct br_queue_config behind_storage; /* config of `queue` behind a durable queue */
    struct br_retry *retry;
    struct br_ledger ledger;     /* record counters of an exporter */
    struct graph_wiring wiring;  /* the current outputs */
    struct graph_wiring planned; /* outputs after br_graph_commit_wiring */
};

struct br_graph {
    const struct br_config *config;
    struct br_host *host;
    struct br_list places;
    /* owned; for each pipeline, the fan-out to its exporters; NULL if the pipeline has one
     * exporter */
    struct graph_spread **spreads;
    struct br_consumer **heads; /* owned; for each pipeline, its first consumer */
    /* owned; for each pipeline: BR_DONE from the pipeline means that a backend has accepted the
     * records */
    bool *delivers;
    struct br_list loose; /* list of struct graph_spread: fan-outs that a reload has replaced */
    bool ended;           /* all nodes have been destroyed */
    /* a reload has replaced the graph, which contains only removed and replaced nodes */
    bool retired;
    unsigned depth;     /* depth of the nodes that are being drained */
    unsigned n_holding; /* number of places that br_graph_hold is draining */
    void (*on_held)(void *arg);
    void *on_held_arg;
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    struct br_deferred step;
    struct br_timer flush_timer;
};

/* Returns the number of outputs of a wiring for a signal: the output to all pipelines, and the
 * routes. */
static inline size_t br_graph_n_outputs(const struct graph_wiring *wiring, enum br_signal signal)
{
    return wiring->routes[signal] ? wiring->n_routes + 1 : 1;
}

/* Returns output `index` of a wiring for a signal: 0 is the output to all pipelines, and the routes
 * follow. `index` is less than br_graph_n_outputs. */
static inline struct graph_output *br_graph_output(struct graph_wiring *wiring,
                                                   enum br_signal signal, size_t index)
{
    return index ? &wiring->routes[signal][index - 1] : &wiring->all[signal];
}

#define each_place(g, l) for (struct br_list *l = (g)->places.next; l != &(g)->places; l = l->next)

static inline struct graph_place *br_graph_place_of(struct br_list *list)
{
    return br_container_of(list, struct graph_place, link);
}

static inline struct graph_spread *br_graph_spread_of(struct br_list *list)
{
    return br_container_of(list, struct graph_spread, link);
}

static inline int br_graph_no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

/* Returns the settings that all exporters with a queue and retries have in common. */
static inline const struct br_exporter_config *br_graph_common_of(const struct br_instance *wrapped)
{
    return (const void *)((const char *)wrapped->config + wrapped->component->common_at);
}

/* Returns the place of an instance, or NULL. `pipeline` is the pipeline of a processor with one
 * node per pipeline, and NULL for other components. */
struct graph_place *br_graph_find(struct br_graph *graph, const struct br_instance *instance,
                                  const struct br_pipeline *pipeline);

/* Returns the place of the processor at position `index` in a pipeline. */
struct graph_place *br_graph_processor(struct br_graph *graph, const struct br_pipeline *pipeline,
                                       size_t index);

/* Returns the first consumer behind the door of a place: its durable queue, its in-memory queue, or
 * its node. */
struct br_consumer *br_graph_entry(struct graph_place *place);

/* Creates the node of a place, and its queues. Returns 0, or a negative code with `err` set. After
 * a failure, the place has to be destroyed. */
int br_graph_create_place(struct graph_place *place, struct br_err *err);

/* Starts the node of a place, unless it was started before. Returns 0, or a negative code with
 * `err` set. */
int br_graph_start_place(struct graph_place *place, struct br_err *err);

/* Returns the depth of the last nodes before the exporters of a pipeline: the depth of its last
 * processor, or of the deepest of its receivers and connectors. */
unsigned br_graph_depth_of(struct br_graph *graph, const struct br_pipeline *pipeline);

/* Creates the nodes and fan-outs of an empty graph. Moves places with unchanged settings from
 * `old`, which may be NULL. Returns 0, or a negative code with `err` set. */
int br_graph_build(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Returns a graph without nodes, or NULL if memory runs out. */
struct br_graph *br_graph_alloc(const struct br_config *config, struct br_host *host);

/* Frees a graph whose nodes have been destroyed. */
void br_graph_release(struct br_graph *graph);

/* --- Reload (graph_reload.c) ------------------------------------------------------------------ */

/* Compares a place of the configuration `old` with an instance of the configuration `next`. Returns
 * true if the settings are the same and both are in pipelines of the same signals. For a shared
 * processor, the pipelines must also be the same. */
bool br_graph_is_same(const struct graph_place *place, const struct br_config *old,
                      const struct br_instance *new, const struct br_config *next);

/* Returns a door whose member `to` still has to be set, or NULL if memory runs out. */
struct graph_door *br_graph_door_new(void);

/* Forwards the waiting requests. Later requests do not wait. */
void br_graph_door_open(struct graph_door *door);

/* Frees a door. Refuses the waiting requests. Accepts NULL. */
void br_graph_door_free(struct graph_door *door);

/* --- Wiring (graph_wire.c) -------------------------------------------------------------------- */

/* Plans the outputs of all nodes. A fan-out of `old`, which may be NULL, is used again if its
 * configuration and its destinations are unchanged. Returns 0, or a negative code with `err`
 * set. */
int br_graph_plan_wiring(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Connects the node of a place to its planned outputs. Moves the fan-outs that the node no longer
 * uses to the list `loose`. */
void br_graph_commit_wiring(struct graph_place *place, struct br_list *loose);

/* Frees the planned outputs. */
void br_graph_forget_wiring(struct graph_place *place);

/* Frees the outputs in use. */
void br_graph_release_wiring(struct graph_place *place);

/* Completes the reload for a fan-out that the new graph uses, too. */
void br_graph_keep_spread(struct graph_spread *spread);

/* Frees a fan-out. Accepts NULL. */
void br_graph_spread_free(struct graph_spread *spread);

/* --- Draining (graph_drain.c) ----------------------------------------------------------------- */

/* Drains the queues of a place and then its node. Calls node.on_drained when the node is empty. */
void br_graph_drain_place(struct graph_place *place);

/* Destroys the node of a place and its queues. Completes pending items, and calls br_host_iterate,
 * which delivers the results to upstream nodes. Items that arrive later are refused. */
void br_graph_destroy_place(struct graph_place *place);
