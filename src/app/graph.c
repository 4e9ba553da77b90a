/* SPDX-License-Identifier: Apache-2.0 */
#include "app/graph.h"

#include <stdio.h>
#include <string.h>

#include "app/graph_internal.h"
#include "base/mem.h"
#include "core/pending.h"
#include "otlp/dictionary/dictionary.h"

/* smallest capacity of a queue, in records, that is logged at start */
#define QUEUE_ITEMS_LARGE 1000000u

static void graph_node_consume(struct br_consumer *self, struct br_item *item)
{
    struct br_node *node = br_container_of(self, struct br_node, input);
    if (!node->state) {
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "shutting down");
        return;
    }
    if (node->incoming[item->signal])
        *node->incoming[item->signal] += item->n_records;
    br_pending_enter(&item->pending, item->signal, node->ledger);
    bool refers =
        node->component->resolves && item->signal == BR_PROFILES && br_item_has_references(item);
    int rc = refers ? br_item_inline_references(item) : 0;
    if (rc == BR_ENOMEM)
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "out of memory");
    else if (rc)
        br_item_reject(
            item, BR_STATUS_INVALID_ARGUMENT,
            "the request is too large after each reference to a string is replaced by the string");
    else
        node->component->consume(node, item);
}

struct graph_place *br_graph_find(struct br_graph *graph, const struct br_instance *instance,
                                  const struct br_pipeline *pipeline)
{
    each_place(graph, l)
    {
        struct graph_place *p = br_graph_place_of(l);
        if (p->at.instance == instance && p->at.pipeline == pipeline)
            return p;
    }
    return NULL;
}

/* Returns the number of earlier pipelines of the same signal that list the instance. */
static unsigned graph_turn_in(const struct br_graph *graph, const struct br_instance *instance,
                              const struct br_pipeline *pipeline)
{
    const struct br_config *config = graph->config;
    unsigned turn = 0;
    for (size_t i = 0; i < config->n_pipelines && &config->pipelines[i] != pipeline; i++)
        for (size_t k = 0; k < config->pipelines[i].n_processors; k++)
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): set if n_processors > 0. */
            turn += config->pipelines[i].signal == pipeline->signal &&
                    config->pipelines[i].processors[k] == instance;
    return turn;
}

/* Returns the place of a shared processor for the pipelines with the index `turn`, or NULL. The
 * first traces pipeline and the first profiles pipeline that list the processor share one node. The
 * second pipelines of both signals share another node, and so on. The host owns the data that all
 * nodes of the processor share (core/shared.h). */
static struct graph_place *graph_find_shared(struct br_graph *graph,
                                             const struct br_instance *instance, unsigned turn)
{
    each_place(graph, l)
    {
        struct graph_place *p = br_graph_place_of(l);
        if (p->at.instance == instance && p->at.turn == turn)
            return p;
    }
    return NULL;
}

/* Returns the place in `old` that has the same component, id, pipeline and turn as the position
 * `at`, or NULL. */
static struct graph_place *graph_find_old(struct br_graph *old, const struct graph_position *at)
{
    if (!old)
        return NULL;
    each_place(old, l)
    {
        struct graph_place *p = br_graph_place_of(l);
        const struct br_instance *instance = p->at.instance;
        bool same_pipeline = p->at.pipeline && at->pipeline
                                 ? strcmp(p->at.pipeline->id, at->pipeline->id) == 0
                                 : p->at.pipeline == at->pipeline;
        if (instance->component == at->instance->component && same_pipeline &&
            p->at.turn == at->turn && strcmp(instance->id, at->instance->id) == 0)
            return p;
    }
    return NULL;
}

static struct graph_place *graph_new_place(struct br_graph *graph, const struct graph_position *at)
{
    struct graph_place *place = br_calloc(1, sizeof *place);
    if (!place)
        return NULL;
    place->at = *at;
    place->made_of = graph->config;
    place->graph = graph;
    place->node = (struct br_node){.component = at->instance->component,
                                   .id = at->instance->id,
                                   .config = at->instance->config,
                                   .host = graph->host,
                                   .input.consume = graph_node_consume};
    br_list_append(&graph->places, &place->link);
    return place;
}

/* Moves a place from the old graph if its settings are the same; otherwise creates a new place.
 * When the reload succeeds, a new place takes over the door of the place that it replaces. Returns
 * NULL if memory runs out. */
static struct graph_place *graph_add_place(struct br_graph *graph, struct br_graph *old,
                                           const struct graph_position *at)
{
    struct graph_place *before = graph_find_old(old, at);
    if (before && !before->emptied &&
        br_graph_is_same(before, old->config, at->instance, graph->config)) {
        before->kept = true;
        before->before = before->at;
        before->at = *at;
        before->graph = graph;
        br_list_remove(&before->link);
        br_list_append(&graph->places, &before->link);
        return before;
    }
    struct graph_place *place = graph_new_place(graph, at);
    if (place && before)
        before->successor = place;
    if (!place || at->instance->component->kind == BR_RECEIVER ||
        at->instance->component->kind == BR_EXTENSION)
        return place;
    place->door = before ? before->door : br_graph_door_new();
    return place->door ? place : NULL;
}

/* Returns the place of an instance in a pipeline. Adds the place if the graph does not have it yet.
 * Returns NULL if memory runs out. */
static struct graph_place *graph_place(struct br_graph *graph, struct br_graph *old,
                                       const struct br_instance *instance,
                                       const struct br_pipeline *pipeline, unsigned depth)
{
    const struct br_component *component = instance->component;
    bool own = (component->kind == BR_PROCESSOR && !component->shared) || component->observes;
    struct graph_position at = {.instance = instance,
                                .pipeline = own ? pipeline : NULL,
                                .turn = component->shared ? graph_turn_in(graph, instance, pipeline)
                                                          : 0};
    struct graph_place *p = component->shared ? graph_find_shared(graph, instance, at.turn)
                                              : br_graph_find(graph, instance, at.pipeline);
    if (!p)
        p = graph_add_place(graph, old, &at);
    if (!p)
        return NULL;
    if (depth > p->at.depth)
        p->at.depth = depth;
    if (pipeline)
        p->node.in_pipeline[pipeline->signal] = true;
    return p;
}

static int graph_place_all(struct br_graph *graph, struct br_graph *old, struct br_err *err)
{
    const struct br_config *config = graph->config;
    for (size_t i = 0; i < config->n_extensions; i++) {
        bool placed = graph->host->worker == 0 || config->extensions[i]->component->every_worker;
        if (placed &&
            !graph_place(graph, old, config->extensions[i], NULL, GRAPH_DEPTH_EXPORTER + 1))
            return br_graph_no_memory(err);
    }
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        for (size_t k = 0; k < p->n_receivers; k++)
            if (!graph_place(graph, old, p->receivers[k], p, 0))
                return br_graph_no_memory(err);
        for (size_t k = 0; k < p->n_processors; k++)
            if (!graph_place(graph, old, p->processors[k], p, (unsigned)k + 1))
                return br_graph_no_memory(err);
        for (size_t k = 0; k < p->n_exporters; k++) {
            bool ends = p->exporters[k]->component->kind == BR_EXPORTER;
            if (!graph_place(graph, old, p->exporters[k], p, ends ? GRAPH_DEPTH_EXPORTER : 1))
                return br_graph_no_memory(err);
        }
    }
    return 0;
}

struct graph_place *br_graph_processor(struct br_graph *graph, const struct br_pipeline *pipeline,
                                       size_t index)
{
    const struct br_instance *instance = pipeline->processors[index];
    return instance->component->shared
               ? graph_find_shared(graph, instance, graph_turn_in(graph, instance, pipeline))
               : br_graph_find(graph, instance, pipeline);
}

/* Makes a place deeper than `above`. Returns true if the place was not. */
static bool graph_lower(struct graph_place *place, unsigned above)
{
    if (place->at.depth > above)
        return false;
    place->at.depth = above + 1;
    return true;
}

static unsigned graph_depth_of_receivers(struct br_graph *graph, const struct br_pipeline *pipeline)
{
    unsigned depth = 0;
    for (size_t k = 0; k < pipeline->n_receivers; k++) {
        const struct graph_place *place = br_graph_find(graph, pipeline->receivers[k], NULL);
        depth = place->at.depth > depth ? place->at.depth : depth;
    }
    return depth;
}

unsigned br_graph_depth_of(struct br_graph *graph, const struct br_pipeline *pipeline)
{
    return pipeline->n_processors
               ? br_graph_processor(graph, pipeline, pipeline->n_processors - 1)->at.depth
               : graph_depth_of_receivers(graph, pipeline);
}

/* Makes each processor and connector of a pipeline deeper than its predecessors. Returns true if a
 * depth has changed. */
static bool graph_order_pipeline(struct br_graph *graph, const struct br_pipeline *pipeline,
                                 unsigned *ret_depth)
{
    unsigned above = graph_depth_of_receivers(graph, pipeline);
    bool moved = false;
    for (size_t k = 0; k < pipeline->n_processors; k++) {
        struct graph_place *place = br_graph_processor(graph, pipeline, k);
        moved = graph_lower(place, above) || moved;
        above = place->at.depth;
    }
    for (size_t k = 0; k < pipeline->n_exporters; k++)
        if (pipeline->exporters[k]->component->kind == BR_CONNECTOR)
            moved = graph_lower(br_graph_find(graph, pipeline->exporters[k], NULL), above) || moved;
    *ret_depth = above;
    return moved;
}

/* Increases the depth of processors and connectors until each one is deeper than all components
 * before it in its pipelines. Nodes are drained and destroyed in the order of their depth. */
static int graph_order(struct br_graph *graph, struct br_err *err)
{
    const struct br_config *config = graph->config;
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t i = 0; i < config->n_pipelines; i++) {
            unsigned depth;
            moved = graph_order_pipeline(graph, &config->pipelines[i], &depth) || moved;
            if (depth + 1 >= GRAPH_DEPTH_EXPORTER)
                return br_err_set(
                    err, BR_EINVAL,
                    "service::pipelines::%s: too many processors, or processors with a shared "
                    "instance are in a different order than in another pipeline",
                    config->pipelines[i].id);
        }
    }
    return 0;
}

/* Registers the record counters of a processor or connector, with the attribute otel.signal as in
 * the Collector's processorhelper and in its metrics of connectors. */
static void graph_count_records(struct br_node *node)
{
    bool connects = node->component->kind == BR_CONNECTOR;
    const char *in =
        connects ? "otelcol_connector_consumed_items" : "otelcol_processor_incoming_items";
    const char *out =
        connects ? "otelcol_connector_produced_items" : "otelcol_processor_outgoing_items";
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        if (!node->in_pipeline[s])
            continue;
        node->incoming[s] = br_node_metric(node, BR_COUNTER, in, "otel_signal", br_signal_name(s));
        node->outgoing[s] = br_node_metric(node, BR_COUNTER, out, "otel_signal", br_signal_name(s));
    }
}

static bool graph_is_durable(const struct br_queue_config *queue)
{
    return queue->enabled && queue->storage;
}

/* Creates the in-memory queue of an exporter. Behind a durable queue, the in-memory queue has no
 * size limit and reports the result of each request to the durable queue. */
static struct br_queue *graph_queue(struct graph_place *place, const struct br_queue_config *queue)
{
    struct br_consumer *next = place->retry ? br_retry_input(place->retry) : &place->node.input;
    if (graph_is_durable(queue)) {
        place->behind_storage = *queue;
        queue = &place->behind_storage;
        if (!queue->wait_for_result) {
            place->behind_storage.queue_size = INT64_MAX;
            place->behind_storage.wait_for_result = true;
            place->behind_storage.behind_storage = true;
        }
    }
    return br_queue_new(&place->node, queue, next);
}

int br_graph_create_place(struct graph_place *place, struct br_err *err)
{
    struct br_node *node = &place->node;
    const struct br_component *component = node->component;
    char name[512];
    (void)snprintf(name, sizeof name, "%s/%s", br_kind_name(component->kind), node->id);
    place->log_name = br_strdup(name);
    node->log.name = place->log_name;
    node->state = br_calloc(1, component->state_size);
    if (!place->log_name || !node->state) {
        br_free(node->state);
        node->state = NULL; /* component->create has not run, so component->destroy must not run */
        return br_graph_no_memory(err);
    }
    if (component->kind == BR_EXPORTER) {
        if (br_ledger_init(&place->ledger, node->host->metrics, node->id)) {
            br_free(node->state);
            node->state = NULL;
            return br_graph_no_memory(err);
        }
        node->ledger = &place->ledger;
    }
    if (component->kind == BR_PROCESSOR || component->kind == BR_CONNECTOR)
        graph_count_records(node);
    int rc = component->create ? component->create(node, err) : 0;
    if (rc) {
        br_err_prefix(err, "%s: ", name);
        return rc; /* br_graph_free destroys the parts that were created */
    }
    if (!component->exporter_wrapped)
        return 0;
    const struct br_exporter_config *common = br_graph_common_of(place->at.instance);
    if (!component->retries_parts)
        place->retry = br_retry_new(node, &common->retry_on_failure, &node->input);
    if (place->retry || component->retries_parts)
        place->queue = graph_queue(place, &common->sending_queue);
    if (!place->queue)
        return br_graph_no_memory(err);
    if (!graph_is_durable(&common->sending_queue))
        return 0;
    place->durable = br_durable_new(node, &common->sending_queue, place->queue);
    return place->durable ? 0 : br_graph_no_memory(err);
}

struct br_consumer *br_graph_entry(struct graph_place *place)
{
    if (place->durable)
        return br_durable_input(place->durable);
    return place->queue ? br_queue_input(place->queue) : &place->node.input;
}

struct br_graph *br_graph_alloc(const struct br_config *config, struct br_host *host)
{
    struct br_graph *graph = br_calloc(1, sizeof *graph);
    if (!graph)
        return NULL;
    graph->config = config;
    graph->host = host;
    br_list_init(&graph->places);
    br_list_init(&graph->loose);
    graph->spreads = br_calloc(config->n_pipelines, sizeof(struct graph_spread *));
    graph->heads = br_calloc(config->n_pipelines, sizeof(struct br_consumer *));
    graph->delivers = br_calloc(config->n_pipelines, sizeof(bool));
    if (graph->spreads && graph->heads && graph->delivers)
        return graph;
    br_graph_release(graph);
    return NULL;
}

int br_graph_build(struct br_graph *graph, struct br_graph *old, struct br_err *err)
{
    int rc = graph_place_all(graph, old, err);
    if (!rc)
        rc = graph_order(graph, err);
    each_place(graph, l)
    {
        if (!rc && !br_graph_place_of(l)->kept)
            rc = br_graph_create_place(br_graph_place_of(l), err);
    }
    return rc ? rc : br_graph_plan_wiring(graph, old, err);
}

int br_graph_new(const struct br_config *config, struct br_host *host, struct br_graph **ret,
                 struct br_err *err)
{
    struct br_graph *graph = br_graph_alloc(config, host);
    if (!graph)
        return br_graph_no_memory(err);
    int rc = br_graph_build(graph, NULL, err);
    if (rc) {
        br_graph_free(graph);
        return rc;
    }
    each_place(graph, l)
    {
        struct graph_place *place = br_graph_place_of(l);
        br_graph_commit_wiring(place, &graph->loose);
        if (place->door)
            place->door->to = br_graph_entry(place);
    }
    *ret = graph;
    return 0;
}

int br_graph_start_place(struct graph_place *place, struct br_err *err)
{
    const struct br_component *component = place->node.component;
    if (place->started)
        return 0;
    place->started = true;
    int rc = component->start ? component->start(&place->node, err) : 0;
    if (!rc && place->durable)
        rc = br_durable_start(place->durable, err);
    if (rc)
        br_err_prefix(err, "%s: ", place->log_name);
    return rc;
}

/* Logs how many records an exporter's queue may hold behind a batch processor, because the
 * configured queue size counts requests. */
static void graph_note_queue(const struct br_pipeline *pipeline, const struct graph_place *exporter,
                             uint64_t items)
{
    const struct br_queue_config *queue_config =
        &br_graph_common_of(exporter->at.instance)->sending_queue;
    uint64_t n = (uint64_t)queue_config->queue_size;
    if (!queue_config->enabled || queue_config->sizer != BR_SIZER_REQUESTS ||
        n > UINT64_MAX / items || n * items < QUEUE_ITEMS_LARGE)
        return;
    br_info(&exporter->node.log,
            "sending_queue may hold %llu requests, and the batch processor of %s makes requests of "
            "%llu %s, so the queue may hold up to %llu %s; to limit this number, set sizer to "
            "items or bytes",
            (unsigned long long)n, pipeline->id, (unsigned long long)items,
            br_signal_records(pipeline->signal), (unsigned long long)(n * items),
            br_signal_records(pipeline->signal));
}

static void graph_note_queues(struct br_graph *graph, const struct br_pipeline *pipeline)
{
    uint64_t items = 0;
    for (size_t k = 0; k < pipeline->n_processors; k++) {
        const struct br_component *component = pipeline->processors[k]->component;
        if (component->request_records)
            items = component->request_records(pipeline->processors[k]->config);
    }
    for (size_t k = 0; items && k < pipeline->n_exporters; k++)
        if (pipeline->exporters[k]->component->exporter_wrapped)
            graph_note_queue(pipeline, br_graph_find(graph, pipeline->exporters[k], NULL), items);
}

int br_graph_start(struct br_graph *graph, struct br_err *err)
{
    for (size_t i = 0; i < graph->config->n_pipelines && graph->host->worker == 0; i++)
        graph_note_queues(graph, &graph->config->pipelines[i]);
    for (unsigned depth = GRAPH_DEPTH_EXPORTER + 2; depth-- > 0;) {
        each_place(graph, l)
        {
            if (br_graph_place_of(l)->at.depth != depth)
                continue;
            int rc = br_graph_start_place(br_graph_place_of(l), err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int graph_check_start(struct graph_place *place, struct br_errs *errs)
{
    const struct br_component *component = place->node.component;
    struct br_node *node = &place->node;
    struct br_err err = {0};
    char path[192];
    int rc = component->start ? component->start(node, &err) : 0;
    if (!rc)
        return 0;
    (void)snprintf(path, sizeof path, "%s::%.150s", br_kind_section(component->kind), node->id);
    br_errs_add(errs, place->at.instance->node, path, "%s", err.text);
    return rc;
}

int br_graph_check(const struct br_config *config, struct br_host *host, struct br_errs *errs)
{
    struct br_graph *graph = NULL;
    struct br_err err = {0};
    int rc = br_graph_new(config, host, &graph, &err);
    if (rc) {
        br_errs_add(errs, NULL, NULL, "%s", err.text);
        return rc;
    }
    each_place(graph, l)
    {
        int failed = graph_check_start(br_graph_place_of(l), errs);
        rc = failed ? failed : rc;
    }
    br_graph_free(graph);
    return rc;
}
