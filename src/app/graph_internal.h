/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a graph (graph.c, graph_wire.c, graph_drain.c, graph_reload.c).
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

/* The entry of a place. */
struct graph_door {
    struct br_consumer input;
    struct br_consumer *to; /* consumer of the place behind the door; borrowed */
    bool closed;            /* requests wait until the door is opened */
    struct br_list waiting; /* list of struct br_item */
};

/* A fan-out and what it was made of, so that a reload can keep it. */
struct graph_spread {
    struct br_list link; /* in `loose` of a graph, if no pipeline or receiver uses the fan-out */
    struct br_fanout *fanout; /* owned */
    struct br_fanout_config config;
    unsigned depth;      /* depth of the nodes directly before the fan-out: 0 for receivers */
    bool kept;           /* the graph that is being prepared uses the fan-out, too */
    unsigned next_depth; /* if `kept`: `depth` in that graph */
    size_t count;
    struct br_fanout_end ends[]; /* `name` is owned */
};

/* The output of a receiver, a connector or a route of a connector. */
struct graph_output {
    struct br_consumer *next;    /* NULL: there is no pipeline */
    struct graph_spread *spread; /* distributes requests to several pipelines; NULL: one pipeline */
};

/* The outputs of a node, and what the components after it need. */
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

/* What a reload changes in a place that it keeps. */
struct graph_position {
    const struct br_instance *instance;
    /* pipeline of a processor that exists once per pipeline; otherwise NULL */
    const struct br_pipeline *pipeline;
    /* for a shared processor: index of the pipeline among those of its signal that list the
     * processor */
    unsigned turn;
    unsigned depth;
};

struct graph_place {
    struct br_list link; /* in graph->places, a list in the order of creation */
    struct br_node node;
    struct graph_position at;
    struct graph_position before; /* `at` in the old graph, during a reload */
    /* configuration that the node was made from; a kept place has an older one than its graph */
    const struct br_config *made_of;
    bool started;
    bool kept;    /* the place was moved from the old graph during this reload */
    bool drains;  /* draining of the node has begun: all nodes before it are empty */
    bool emptied; /* br_graph_hold has drained the node, because its files can be open only once */
    struct br_graph *graph;
    char *log_name;
    struct graph_door *door;       /* owned; NULL: receivers, extensions, places without a door */
    struct graph_place *successor; /* place that takes over the door after a reload; NULL: none */
    struct br_queue *queue;        /* owned; queue of an exporter */
    struct br_durable *durable;    /* owned; durable queue in front of `queue`; NULL: none */
    struct br_queue_config behind_storage; /* config of `queue` behind a durable queue */
    struct br_retry *retry;
    struct br_ledger ledger;     /* record totals of an exporter */
    struct graph_wiring wiring;  /* the outputs in use */
    struct graph_wiring planned; /* outputs after br_graph_commit_wiring */
};

struct br_graph {
    const struct br_config *config;
    struct br_host *host;
    struct br_list places;
    /* owned; for each pipeline, the fan-out to its exporters if it has several */
    struct graph_spread **spreads;
    struct br_consumer **heads; /* for each pipeline, its first consumer */
    /* for each pipeline: BR_DONE from the pipeline means that a backend has accepted the records */
    bool *delivers;
    struct br_list loose; /* struct graph_spread: fan-outs that a reload has replaced */
    bool ended;           /* all nodes have been destroyed */
    bool retired;         /* the graph contains what a reload has removed */
    unsigned depth;       /* depth of the nodes that are being drained */
    unsigned n_holding;   /* number of places that br_graph_hold is draining */
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

/* Returns the settings that an exporter with queue and retries has in common with others. */
static inline const struct br_exporter_config *br_graph_common_of(const struct br_instance *wrapped)
{
    return (const void *)((const char *)wrapped->config + wrapped->component->common_at);
}

/* Returns the place of an instance, or NULL. `pipeline` is that of a processor which exists once
 * per pipeline, otherwise NULL. */
struct graph_place *br_graph_find(struct br_graph *graph, const struct br_instance *instance,
                                  const struct br_pipeline *pipeline);

/* Returns the place of a processor in a pipeline, by its index there. */
struct graph_place *br_graph_processor(struct br_graph *graph, const struct br_pipeline *pipeline,
                                       size_t index);

/* Returns the consumer of a place's queue, or of its node. */
struct br_consumer *br_graph_entry(struct graph_place *place);

/* Creates the node of a place, and its queues. Returns 0, or a negative code with `err` set; the
 * place then has to be destroyed. */
int br_graph_create_place(struct graph_place *place, struct br_err *err);

/* Starts a node that has not been started. Returns 0, or a negative code with `err` set. */
int br_graph_start_place(struct graph_place *place, struct br_err *err);

/* Returns the depth of the last nodes before the exporters of a pipeline: the depth of its last
 * processor, or of the deepest of its receivers and connectors. */
unsigned br_graph_depth_of(struct br_graph *graph, const struct br_pipeline *pipeline);

/* Creates the nodes and fan-outs of an empty graph. Places that match one in `old` (may be NULL)
 * are moved from there. Returns 0, or a negative code with `err` set. */
int br_graph_build(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Returns a graph without nodes, or NULL without memory. */
struct br_graph *br_graph_alloc(const struct br_config *config, struct br_host *host);

/* Frees a graph whose nodes have been destroyed. */
void br_graph_release(struct br_graph *graph);

/* --- Reload (graph_reload.c) ------------------------------------------------------------------ */

/* Returns true if `new` has the same settings in the configuration `next` as `place` has, and is
 * used in the same pipelines. */
bool br_graph_is_same(const struct graph_place *place, const struct br_config *old,
                      const struct br_instance *new, const struct br_config *next);

/* Returns a door that opens to nothing yet, or NULL without memory. */
struct graph_door *br_graph_door_new(void);

/* Lets waiting requests go on, and further ones pass. */
void br_graph_door_open(struct graph_door *door);

/* Frees a door; waiting requests are refused. Accepts NULL. */
void br_graph_door_free(struct graph_door *door);

/* --- Wiring (graph_wire.c) -------------------------------------------------------------------- */

/* Plans the outputs of all nodes. Fan-outs of `old` (may be NULL) are used again if nothing has
 * changed. Returns 0, or a negative code with `err` set. */
int br_graph_plan_wiring(struct br_graph *graph, struct br_graph *old, struct br_err *err);

/* Connects a place's node as planned. Fan-outs that it no longer uses go to the list `loose`. */
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

/* Drains the node of a place and the queues in front of it; then calls node.on_drained. */
void br_graph_drain_place(struct graph_place *place);

/* Destroys the node of a place and its queues. Pending items are finished, and br_host_iterate
 * delivers the results to upstream nodes. Items that arrive later are rejected. */
void br_graph_destroy_place(struct graph_place *place);
