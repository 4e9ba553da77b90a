/* SPDX-License-Identifier: Apache-2.0 */
#include "app/graph_internal.h"
#include "base/mem.h"

static void graph_step(struct br_deferred *deferred);

static void graph_on_drained(struct br_node *node, void *arg)
{
    struct br_graph *graph = arg;
    (void)node;
    br_host_defer(graph->host, &graph->step, graph_step);
}

static void graph_drain_node(struct br_node *node)
{
    if (node->component->drain)
        node->component->drain(node);
    else
        br_node_drained(node);
}

static void graph_on_queue_empty(void *arg)
{
    graph_drain_node(arg);
}

static void graph_on_durable_empty(void *arg)
{
    struct graph_place *place = arg;
    br_queue_drain(place->queue, graph_on_queue_empty, &place->node);
}

void br_graph_drain_place(struct graph_place *place)
{
    place->node.draining = true;
    if (!place->node.on_drained) {
        place->node.on_drained = graph_on_drained;
        place->node.on_drained_arg = place->graph;
    }
    if (place->durable) {
        br_queue_drain(place->queue, NULL, NULL); /* sends the batches that are not full yet */
        br_durable_drain(place->durable, graph_on_durable_empty, place);
    } else if (place->queue) {
        br_queue_drain(place->queue, graph_on_queue_empty, &place->node);
    } else {
        graph_drain_node(&place->node);
    }
}

static void graph_on_fanout_end(void *arg)
{
    struct br_graph *graph = arg;
    br_host_defer(graph->host, &graph->step, graph_step);
}

/* Returns true if draining at the current depth does not have to wait for a fan-out. Otherwise,
 * draining continues when the fan-out becomes empty. */
static bool graph_fanout_drained(struct br_graph *graph, struct graph_spread *spread)
{
    if (!spread || spread->depth != graph->depth)
        return true;
    if (graph->retired ? br_fanout_unused(spread->fanout) : br_fanout_idle(spread->fanout))
        return true;
    br_fanout_on_end(spread->fanout, graph_on_fanout_end, graph);
    return false;
}

static bool graph_outputs_drained(struct br_graph *graph, struct graph_wiring *wiring)
{
    bool drained = true;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        for (size_t i = 0; i < br_graph_n_outputs(wiring, s); i++)
            drained = graph_fanout_drained(graph, br_graph_output(wiring, s, i)->spread) && drained;
    return drained;
}

/* Returns true if all fan-outs directly after the nodes of depth graph->depth are empty. The nodes
 * of this depth must have been drained. */
static bool graph_fanouts_drained(struct br_graph *graph)
{
    bool drained = true;
    each_place(graph, l)
    {
        drained = graph_outputs_drained(graph, &br_graph_place_of(l)->wiring) && drained;
    }
    for (struct br_list *l = graph->loose.next; l != &graph->loose; l = l->next)
        drained = graph_fanout_drained(graph, br_graph_spread_of(l)) && drained;
    for (size_t i = 0; i < graph->config->n_pipelines; i++)
        drained = graph_fanout_drained(graph, graph->spreads[i]) && drained;
    return drained;
}

static void graph_step(struct br_deferred *deferred)
{
    struct br_graph *graph = br_container_of(deferred, struct br_graph, step);
    for (; graph->depth <= GRAPH_DEPTH_EXPORTER + 1; graph->depth++) {
        bool waiting = false;
        each_place(graph, l)
        {
            struct graph_place *p = br_graph_place_of(l);
            if (p->at.depth != graph->depth || !p->node.state)
                continue;
            if (!p->drains) {
                p->drains = true;
                /* graph_on_flush_timer may have drained the node earlier, and the node may have
                 * received items since then */
                p->node.drained = false;
                br_graph_drain_place(p);
            }
            waiting = waiting || !p->node.drained;
        }
        if (waiting || !graph_fanouts_drained(graph))
            return;
    }
    br_host_timer_stop(graph->host, &graph->flush_timer);
    void (*fn)(void *) = graph->on_drained;
    graph->on_drained = NULL;
    if (fn)
        fn(graph->on_drained_arg);
}

static void graph_empty(struct graph_place *place)
{
    place->node.draining = true;
    if (place->queue)
        br_queue_drain(place->queue, NULL, NULL);
    else if (place->node.component->kind == BR_PROCESSOR ||
             place->node.component->kind == BR_CONNECTOR)
        graph_drain_node(&place->node);
}

/* Makes all processors and queues send the records that they hold. Otherwise, an unresponsive
 * backend would also delay records for other backends. A node still counts as drained only after
 * all nodes of lower depth are drained. */
static void graph_on_flush_timer(struct br_timer *timer)
{
    struct br_graph *graph = br_container_of(timer, struct br_graph, flush_timer);
    for (unsigned depth = 1; depth <= GRAPH_DEPTH_EXPORTER; depth++) {
        each_place(graph, l)
        {
            struct graph_place *p = br_graph_place_of(l);
            if (p->at.depth == depth && p->node.state && !p->drains)
                graph_empty(p);
        }
    }
}

static void graph_begin_draining(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg),
                                 void *arg)
{
    graph->on_drained = fn;
    graph->on_drained_arg = arg;
    graph->depth = 0;
    graph->on_held = NULL;
    each_place(graph, l)
    {
        br_graph_place_of(l)->node.on_drained = NULL;
    }
    (void)br_host_timer(graph->host, &graph->flush_timer, flush_ms, graph_on_flush_timer);
    br_host_defer(graph->host, &graph->step, graph_step);
}

void br_graph_drain(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg)
{
    graph->host->draining = true;
    each_place(graph, l)
    {
        if (br_graph_place_of(l)->door)
            br_graph_door_open(br_graph_place_of(l)->door);
    }
    graph_begin_draining(graph, flush_ms, fn, arg);
}

void br_graph_retire(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg)
{
    graph_begin_draining(graph, flush_ms, fn, arg);
}

static void graph_log_unsent(const struct br_node *node)
{
    for (int s = 0; s < BR_SIGNALS; s++)
        if (node->n_unsent[s])
            br_error(&node->log, "dropped %llu %s (shutdown): they could not be sent in time",
                     (unsigned long long)node->n_unsent[s], br_signal_records((enum br_signal)s));
}

void br_graph_destroy_place(struct graph_place *place)
{
    struct br_node *node = &place->node;
    void *state = node->state;
    node->ending = true;
    if (place->durable)
        br_durable_close(place->durable);
    if (place->queue)
        br_queue_close(place->queue);
    if (state && node->component->destroy)
        node->component->destroy(node);
    node->state = NULL;
    (void)br_host_iterate(node->host);
    br_retry_free(place->retry);
    place->retry = NULL;
    (void)br_host_iterate(node->host);
    if (place->queue)
        br_queue_drop(place->queue);
    (void)br_host_iterate(node->host);
    br_durable_free(place->durable);
    place->durable = NULL;
    graph_log_unsent(node);
    br_free(state);
}

static void graph_free_place(struct graph_place *place)
{
    br_graph_forget_wiring(place);
    br_graph_release_wiring(place);
    br_queue_free(place->queue);
    br_graph_door_free(place->door);
    br_free(place->log_name);
    br_free(place);
}

static void graph_close_fanout(struct graph_spread *spread, unsigned depth)
{
    if (spread && spread->depth == depth)
        br_fanout_close(spread->fanout);
}

static void graph_close_outputs(struct graph_wiring *wiring, unsigned depth)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        for (size_t i = 0; i < br_graph_n_outputs(wiring, s); i++)
            graph_close_fanout(br_graph_output(wiring, s, i)->spread, depth);
}

/* Completes the items in the fan-outs directly after the nodes of this depth. The nodes after the
 * fan-outs must have been destroyed. */
static void graph_close_fanouts(struct br_graph *graph, unsigned depth)
{
    for (size_t i = 0; i < graph->config->n_pipelines; i++)
        graph_close_fanout(graph->spreads[i], depth);
    for (struct br_list *l = graph->loose.next; l != &graph->loose; l = l->next)
        graph_close_fanout(br_graph_spread_of(l), depth);
    each_place(graph, l)
    {
        graph_close_outputs(&br_graph_place_of(l)->wiring, depth);
    }
    (void)br_host_iterate(graph->host);
}

void br_graph_end(struct br_graph *graph)
{
    if (graph->ended)
        return;
    graph->ended = true;
    br_host_defer_cancel(&graph->step);
    br_host_timer_stop(graph->host, &graph->flush_timer);
    graph->on_drained = graph->on_held = NULL;
    /* Downstream nodes are destroyed first. When a node is destroyed, no item that it has sent is
     * still pending downstream. */
    for (unsigned depth = GRAPH_DEPTH_EXPORTER + 2; depth-- > 0;) {
        if (graph->spreads && graph->heads)
            graph_close_fanouts(graph, depth);
        each_place(graph, list)
        {
            if (br_graph_place_of(list)->at.depth == depth)
                br_graph_destroy_place(br_graph_place_of(list));
        }
    }
    (void)br_host_iterate(graph->host);
}

void br_graph_release(struct br_graph *graph)
{
    struct br_list *list;
    if (!graph)
        return;
    /* fan-outs are freed first, because their log messages use the names of the places */
    for (size_t i = 0; graph->spreads && i < graph->config->n_pipelines; i++)
        br_graph_spread_free(graph->spreads[i]);
    while ((list = br_list_shift(&graph->loose)))
        br_graph_spread_free(br_graph_spread_of(list));
    while ((list = br_list_shift(&graph->places)))
        graph_free_place(br_graph_place_of(list));
    br_free(graph->spreads);
    br_free(graph->heads);
    br_free(graph->delivers);
    br_free(graph);
}

void br_graph_free(struct br_graph *graph)
{
    if (graph)
        br_graph_end(graph);
    br_graph_release(graph);
}
