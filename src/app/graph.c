/* SPDX-License-Identifier: Apache-2.0 */
#include "app/graph.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "app/authenticators.h"
#include "base/mem.h"
#include "core/pending.h"
#include "otlp/dictionary/dictionary.h"
#include "pipeline/durable.h"
#include "pipeline/exporter.h"

#define DEPTH_EXPORTER 1000u
/* a queue that may hold this number of records or more is logged at start */
#define QUEUE_ITEMS_LARGE 1000000u
#define BLOCK_PATHS_MAX 65536u   /* bytes of the paths of an exporter's settings */
#define METADATA_KEYS_MAX 10000u /* largest number of metadata keys of a receiver */

struct place {
    struct br_list link; /* link in graph->places, a list in the order of creation */
    struct br_node node;
    const struct br_instance *instance;
    const struct br_pipeline
        *pipeline; /* pipeline of a processor that exists once per pipeline; otherwise NULL */
    /* for a shared processor: index of the pipeline among those of its signal that list the
     * processor */
    unsigned turn;
    unsigned depth;
    bool started;
    bool drains; /* draining of the node has begun: all nodes before it are empty */
    struct br_graph *graph;
    char *log_name;
    struct br_queue *queue;     /* owned; queue of an exporter */
    struct br_durable *durable; /* owned; durable queue in front of `queue`; NULL: none */
    struct br_queue_config behind_storage; /* config of `queue` behind a durable queue */
    struct br_retry *retry;
    struct br_ledger ledger; /* record totals of an exporter */
    /* owned; distributes records of a receiver to several pipelines, by signal */
    struct br_fanout *fanouts[BR_SIGNALS];
    /* for a receiver: metadata keys that later processors and exporters use, without duplicates */
    struct br_strings metadata_keys;
    uint32_t cap_metadata_keys;
};

struct br_graph {
    const struct br_config *config;
    struct br_host *host;
    struct br_list places;
    /* owned; for each pipeline, the fan-out to its exporters if it has several */
    struct br_fanout **fanouts;
    struct br_consumer **heads; /* for each pipeline, its first consumer */
    unsigned depth;             /* depth of the nodes that are being drained */
    void (*on_drained)(void *arg);
    void *on_drained_arg;
    struct br_deferred step;
    struct br_timer flush_timer;
};

#define each_place(g, l) for (struct br_list *l = (g)->places.next; l != &(g)->places; l = l->next)

static struct place *graph_place_of(struct br_list *list)
{
    return br_container_of(list, struct place, link);
}

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

static struct place *graph_find(struct br_graph *graph, const struct br_instance *instance,
                                const struct br_pipeline *pipeline)
{
    each_place(graph, l)
    {
        struct place *p = graph_place_of(l);
        if (p->instance == instance && p->pipeline == pipeline)
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
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a processor has one. */
            turn += config->pipelines[i].signal == pipeline->signal &&
                    config->pipelines[i].processors[k] == instance;
    return turn;
}

/* Returns a node of a shared processor. The first traces pipeline and the first profiles
 * pipeline that list the processor share one node. The second pipelines of both signals share
 * another node, and so on. Data shared by all nodes belongs to the host (core/shared.h). */
static struct place *graph_find_shared(struct br_graph *graph, const struct br_instance *instance,
                                       unsigned turn)
{
    each_place(graph, l)
    {
        struct place *p = graph_place_of(l);
        if (p->instance == instance && p->turn == turn)
            return p;
    }
    return NULL;
}

/* Returns the place of an instance in a pipeline, adding the place if it is new. graph_create
 * makes the state of its node. */
static struct place *graph_place(struct br_graph *graph, const struct br_instance *instance,
                                 const struct br_pipeline *pipeline, unsigned depth)
{
    const struct br_component *component = instance->component;
    bool own = component->kind == BR_PROCESSOR && !component->shared;
    unsigned turn = component->shared ? graph_turn_in(graph, instance, pipeline) : 0;
    const struct br_pipeline *only_in = own ? pipeline : NULL;
    struct place *p = component->shared ? graph_find_shared(graph, instance, turn)
                                        : graph_find(graph, instance, only_in);
    if (!p) {
        p = br_calloc(1, sizeof *p);
        if (!p)
            return NULL;
        p->instance = instance;
        p->pipeline = only_in;
        p->turn = turn;
        p->graph = graph;
        p->node = (struct br_node){.component = component,
                                   .id = instance->id,
                                   .config = instance->config,
                                   .host = graph->host,
                                   .input.consume = graph_node_consume};
        br_list_append(&graph->places, &p->link);
    }
    if (depth > p->depth)
        p->depth = depth;
    if (pipeline)
        p->node.in_pipeline[pipeline->signal] = true;
    return p;
}

static int graph_no_memory(struct br_err *err)
{
    return br_err_set(err, BR_ENOMEM, "out of memory");
}

static int graph_place_all(struct br_graph *graph, struct br_err *err)
{
    const struct br_config *config = graph->config;
    for (size_t i = 0; i < config->n_extensions; i++) {
        bool placed = graph->host->worker == 0 || config->extensions[i]->component->every_worker;
        if (placed && !graph_place(graph, config->extensions[i], NULL, DEPTH_EXPORTER + 1))
            return graph_no_memory(err);
    }
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        for (size_t k = 0; k < p->n_receivers; k++)
            if (!graph_place(graph, p->receivers[k], p, 0))
                return graph_no_memory(err);
        for (size_t k = 0; k < p->n_processors; k++)
            if (!graph_place(graph, p->processors[k], p, (unsigned)k + 1))
                return graph_no_memory(err);
        for (size_t k = 0; k < p->n_exporters; k++)
            if (!graph_place(graph, p->exporters[k], p, DEPTH_EXPORTER))
                return graph_no_memory(err);
    }
    return 0;
}

static struct place *graph_processor(struct br_graph *graph, const struct br_pipeline *pipeline,
                                     size_t index)
{
    const struct br_instance *instance = pipeline->processors[index];
    return instance->component->shared
               ? graph_find_shared(graph, instance, graph_turn_in(graph, instance, pipeline))
               : graph_find(graph, instance, pipeline);
}

/* Increases the depth of processors until each is deeper than its predecessors in all its
 * pipelines. Nodes are drained and destroyed by depth. */
static int graph_order(struct br_graph *graph, struct br_err *err)
{
    const struct br_config *config = graph->config;
    bool moved = true;
    while (moved) {
        moved = false;
        for (size_t i = 0; i < config->n_pipelines; i++) {
            unsigned above = 0;
            for (size_t k = 0; k < config->pipelines[i].n_processors; k++) {
                struct place *p = graph_processor(graph, &config->pipelines[i], k);
                if (p->depth <= above) {
                    p->depth = above + 1;
                    moved = true;
                }
                above = p->depth;
                if (above >= DEPTH_EXPORTER)
                    return br_err_set(
                        err, BR_EINVAL,
                        "service::pipelines::%s: too many processors, or processors with a shared "
                        "instance are in a different order than in another pipeline",
                        config->pipelines[i].id);
            }
        }
    }
    return 0;
}

static const struct br_exporter_config *graph_common_of(const struct br_instance *wrapped)
{
    return (const void *)((const char *)wrapped->config + wrapped->component->common_at);
}

/* Registers the record counters of a processor, with the attribute otel.signal as in the
 * Collector's processorhelper. */
static void graph_count_records(struct br_node *node)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        if (!node->in_pipeline[s])
            continue;
        node->incoming[s] = br_node_metric(node, BR_COUNTER, "otelcol_processor_incoming_items",
                                           "otel_signal", br_signal_name(s));
        node->outgoing[s] = br_node_metric(node, BR_COUNTER, "otelcol_processor_outgoing_items",
                                           "otel_signal", br_signal_name(s));
    }
}

static bool graph_is_durable(const struct br_queue_config *queue)
{
    return queue->enabled && queue->storage;
}

/* Returns an exporter's queue in memory. Behind a durable queue, the queue in memory has no
 * limit for requests, and reports the result of each request back. */
static struct br_queue *graph_queue(struct place *place, const struct br_queue_config *queue)
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

static int graph_create(struct br_graph *graph, struct place *place, struct br_err *err)
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
        node->state = NULL; /* the component has not created its state, so it must not destroy it */
        return graph_no_memory(err);
    }
    if (component->kind == BR_EXPORTER) {
        if (br_ledger_init(&place->ledger, graph->host->metrics, node->id)) {
            br_free(node->state);
            node->state = NULL;
            return graph_no_memory(err);
        }
        node->ledger = &place->ledger;
    }
    if (component->kind == BR_PROCESSOR)
        graph_count_records(node);
    int rc = component->create ? component->create(node, err) : 0;
    if (rc) {
        br_err_prefix(err, "%s: ", name);
        return rc; /* br_graph_free destroys the parts that were created */
    }
    if (!component->exporter_wrapped)
        return 0;
    const struct br_exporter_config *common = graph_common_of(place->instance);
    if (!component->retries_parts)
        place->retry = br_retry_new(node, &common->retry_on_failure, &node->input);
    if (place->retry || component->retries_parts)
        place->queue = graph_queue(place, &common->sending_queue);
    if (!place->queue)
        return graph_no_memory(err);
    if (!graph_is_durable(&common->sending_queue))
        return 0;
    place->durable = br_durable_new(node, &common->sending_queue, place->queue);
    return place->durable ? 0 : graph_no_memory(err);
}

static struct br_consumer *graph_entry(struct place *place)
{
    if (place->durable)
        return br_durable_input(place->durable);
    return place->queue ? br_queue_input(place->queue) : &place->node.input;
}

/* Returns true if BR_DONE from this exporter means that the backend has accepted the records. */
static bool graph_delivers(const struct place *place)
{
    if (!place->instance->component->exporter_wrapped)
        return true;
    const struct br_queue_config *queue = &graph_common_of(place->instance)->sending_queue;
    return !queue->enabled || queue->wait_for_result;
}

static struct br_fanout *graph_fan_out(struct br_graph *graph, const struct br_pipeline *pipeline)
{
    struct br_fanout_end *ends = br_calloc(pipeline->n_exporters, sizeof *ends);
    if (!ends)
        return NULL;
    for (size_t k = 0; k < pipeline->n_exporters; k++) {
        struct place *at = graph_find(graph, pipeline->exporters[k], NULL);
        ends[k] = (struct br_fanout_end){.next = graph_entry(at),
                                         .ledger = at->node.ledger,
                                         .name = at->log_name,
                                         .kind = br_kind_name(BR_EXPORTER),
                                         .id = at->node.id,
                                         .delivers = graph_delivers(at)};
        if (ends[k].delivers)
            ends[k].detached_bytes =
                br_host_share(graph->host, (size_t)graph->config->fanout.hold_size);
    }
    struct br_fanout *fanout =
        br_fanout_new(graph->host, &graph->config->fanout, ends, pipeline->n_exporters);
    br_free(ends);
    return fanout;
}

/* Connects the nodes of one pipeline, from the last to the first. */
static int graph_wire(struct br_graph *graph, size_t index, struct br_err *err)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    struct br_consumer *next;
    if (p->n_exporters == 1) {
        next = graph_entry(graph_find(graph, p->exporters[0], NULL));
    } else {
        graph->fanouts[index] = graph_fan_out(graph, p);
        if (!graph->fanouts[index])
            return graph_no_memory(err);
        next = br_fanout_input(graph->fanouts[index]);
    }
    for (size_t k = p->n_processors; k-- > 0;) {
        struct place *at = graph_processor(graph, p, k);
        at->node.next[p->signal] = next;
        next = &at->node.input;
    }
    graph->heads[index] = next;
    return 0;
}

static bool graph_has(struct br_instance *const *list, size_t count,
                      const struct br_instance *instance)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == instance)
            return true;
    return false;
}

static int graph_need_metadata(struct place *at, const char *key)
{
    struct br_strings *keys = &at->metadata_keys;
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], key) == 0)
            return 0;
    if (br_grow(&keys->items, &at->cap_metadata_keys, keys->count + 1, sizeof *keys->items,
                METADATA_KEYS_MAX))
        return BR_ENOMEM;
    keys->items[keys->count++] = key;
    at->node.metadata_keys = keys;
    return 0;
}

static int graph_need_all_metadata(struct place *at, const struct br_strings *keys)
{
    for (size_t k = 0; keys && k < keys->count; k++)
        if (graph_need_metadata(at, keys->items[k]))
            return BR_ENOMEM;
    return 0;
}

static int graph_need_metadata_of(struct place *at, const struct br_instance *instance);

/* Records the metadata keys that the authenticator of an exporter needs. */
static int graph_need_metadata_of_auth(struct place *at, const struct br_instance *exporter)
{
    struct br_arena arena;
    br_arena_init(&arena, BLOCK_PATHS_MAX);
    const struct br_instance *authenticator =
        br_authenticators_of(at->graph->config, exporter, &arena);
    int rc = authenticator ? graph_need_metadata_of(at, authenticator) : 0;
    br_arena_release(&arena);
    return rc;
}

static int graph_need_metadata_of(struct place *at, const struct br_instance *instance)
{
    const struct br_component *component = instance->component;
    const struct br_queue_batch_config *batch =
        component->exporter_wrapped ? graph_common_of(instance)->sending_queue.batch : NULL;
    if (component->metadata_keys &&
        graph_need_all_metadata(at, component->metadata_keys(instance->config)))
        return BR_ENOMEM;
    return batch ? graph_need_all_metadata(at, &batch->partition.metadata_keys) : 0;
}

/* Records the metadata keys, times and spans that processors and exporters after a receiver
 * need. */
static int graph_note_needs(struct place *at, const struct br_pipeline *pipeline)
{
    int rc = 0;
    bool times = false;
    for (size_t i = 0; i < pipeline->n_processors && !rc; i++) {
        const struct br_component *component = pipeline->processors[i]->component;
        if (component->wants_spans && pipeline->signal == BR_TRACES)
            at->node.spans_wanted = true;
        times = times || component->wants_times;
        rc = graph_need_metadata_of(at, pipeline->processors[i]);
    }
    if (pipeline->signal == BR_PROFILES && !times)
        at->node.times_wanted = false;
    for (size_t i = 0; i < pipeline->n_exporters && !rc; i++) {
        rc = graph_need_metadata_of(at, pipeline->exporters[i]);
        rc = rc ? rc : graph_need_metadata_of_auth(at, pipeline->exporters[i]);
    }
    return rc;
}

/* Returns the pipeline as a destination of its receivers. */
static struct br_fanout_end graph_head_of(struct br_graph *graph, size_t index)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    struct br_fanout_end end = {
        .next = graph->heads[index], .name = p->id, .kind = "pipeline", .id = p->id};
    for (size_t k = 0; k < p->n_exporters; k++)
        end.delivers = end.delivers || graph_delivers(graph_find(graph, p->exporters[k], NULL));
    return end;
}

static int graph_wire_receiver(struct br_graph *graph, struct place *at, struct br_err *err)
{
    const struct br_config *config = graph->config;
    struct br_fanout_end *heads = br_calloc(config->n_pipelines, sizeof *heads);
    if (!heads)
        return graph_no_memory(err);
    int rc = 0;
    at->node.times_wanted = true;
    for (int s = 0; s < BR_SIGNALS && !rc; s++) {
        size_t n = 0;
        for (size_t i = 0; i < config->n_pipelines; i++) {
            const struct br_pipeline *p = &config->pipelines[i];
            if ((int)p->signal != s || !graph_has(p->receivers, p->n_receivers, at->instance))
                continue;
            heads[n++] = graph_head_of(graph, i);
            if (graph_note_needs(at, p))
                rc = graph_no_memory(err);
        }
        if (n == 1)
            at->node.next[s] = heads[0].next;
        if (n <= 1)
            continue;
        at->fanouts[s] = br_fanout_new(graph->host, &config->fanout, heads, n);
        if (at->fanouts[s])
            at->node.next[s] = br_fanout_input(at->fanouts[s]);
        else
            rc = graph_no_memory(err);
    }
    br_free(heads);
    return rc;
}

int br_graph_new(const struct br_config *config, struct br_host *host, struct br_graph **ret,
                 struct br_err *err)
{
    struct br_graph *graph = br_calloc(1, sizeof *graph);
    if (!graph)
        return graph_no_memory(err);
    graph->config = config;
    graph->host = host;
    br_list_init(&graph->places);
    graph->fanouts = br_calloc(config->n_pipelines, sizeof(struct br_fanout *));
    graph->heads = br_calloc(config->n_pipelines, sizeof(struct br_consumer *));
    int rc = graph->fanouts && graph->heads ? graph_place_all(graph, err) : graph_no_memory(err);
    if (!rc)
        rc = graph_order(graph, err);
    each_place(graph, l)
    {
        if (!rc)
            rc = graph_create(graph, graph_place_of(l), err);
    }
    for (size_t i = 0; i < config->n_pipelines && !rc; i++)
        rc = graph_wire(graph, i, err);
    each_place(graph, l)
    {
        if (!rc && graph_place_of(l)->node.component->kind == BR_RECEIVER)
            rc = graph_wire_receiver(graph, graph_place_of(l), err);
    }
    if (rc) {
        br_graph_free(graph);
        return rc;
    }
    *ret = graph;
    return 0;
}

static int graph_start(struct place *place, struct br_err *err)
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
static void graph_note_queue(const struct br_pipeline *pipeline, const struct place *exporter,
                             uint64_t items)
{
    const struct br_queue_config *queue_config =
        &graph_common_of(exporter->instance)->sending_queue;
    uint64_t n = (uint64_t)queue_config->queue_size;
    if (!queue_config->enabled || queue_config->sizer != BR_SIZER_REQUESTS ||
        n > UINT64_MAX / items || n * items < QUEUE_ITEMS_LARGE)
        return;
    br_info(&exporter->node.log,
            "sending_queue may hold %llu requests, and the batch processor of %s makes requests of "
            "%llu %s: up to %llu %s, limited only by memory; set sizer to items or bytes to limit "
            "these",
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
            graph_note_queue(pipeline, graph_find(graph, pipeline->exporters[k], NULL), items);
}

int br_graph_start(struct br_graph *graph, struct br_err *err)
{
    for (size_t i = 0; i < graph->config->n_pipelines && graph->host->worker == 0; i++)
        graph_note_queues(graph, &graph->config->pipelines[i]);
    for (unsigned depth = DEPTH_EXPORTER + 2; depth-- > 0;) {
        each_place(graph, l)
        {
            if (graph_place_of(l)->depth != depth)
                continue;
            int rc = graph_start(graph_place_of(l), err);
            if (rc)
                return rc;
        }
    }
    return 0;
}

static int graph_check_start(struct place *place, struct br_errs *errs)
{
    const struct br_component *component = place->node.component;
    struct br_node *node = &place->node;
    struct br_err err = {0};
    char path[192];
    int rc = component->start ? component->start(node, &err) : 0;
    if (!rc)
        return 0;
    (void)snprintf(path, sizeof path, "%s::%.150s", br_kind_section(component->kind), node->id);
    br_errs_add(errs, place->instance->node, path, "%s", err.text);
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
        int failed = graph_check_start(graph_place_of(l), errs);
        rc = failed ? failed : rc;
    }
    br_graph_free(graph);
    return rc;
}

/* --- Draining ------------------------------------------------------------------------------- */

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
    struct place *place = arg;
    br_queue_drain(place->queue, graph_on_queue_empty, &place->node);
}

static void graph_drain(struct place *place)
{
    place->node.draining = true;
    place->node.on_drained = graph_on_drained;
    place->node.on_drained_arg = place->graph;
    if (place->durable) {
        br_queue_drain(place->queue, NULL, NULL); /* sends batches that are not full */
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

/* Returns true if a fan-out is empty. If the fan-out is not empty, draining continues when it
 * becomes empty. */
static bool graph_fanout_drained(struct br_graph *graph, struct br_fanout *fanout)
{
    if (!fanout || br_fanout_idle(fanout))
        return true;
    br_fanout_on_end(fanout, graph_on_fanout_end, graph);
    return false;
}

/* Returns true if no fan-out directly after the nodes of depth graph->depth, which are drained,
 * holds items. */
static bool graph_fanouts_drained(struct br_graph *graph)
{
    bool drained = true;
    each_place(graph, l)
    {
        for (int s = 0; s < BR_SIGNALS && graph->depth == 0; s++)
            drained = graph_fanout_drained(graph, graph_place_of(l)->fanouts[s]) && drained;
    }
    for (size_t i = 0; i < graph->config->n_pipelines && graph->depth + 1 == DEPTH_EXPORTER; i++)
        drained = graph_fanout_drained(graph, graph->fanouts[i]) && drained;
    return drained;
}

static void graph_step(struct br_deferred *deferred)
{
    struct br_graph *graph = br_container_of(deferred, struct br_graph, step);
    for (; graph->depth <= DEPTH_EXPORTER + 1; graph->depth++) {
        bool waiting = false;
        each_place(graph, l)
        {
            struct place *p = graph_place_of(l);
            if (p->depth != graph->depth || !p->node.state)
                continue;
            if (!p->drains) {
                p->drains = true;
                /* graph_on_flush_timer may have drained the node earlier, and the node may have
                 * received items since then */
                p->node.drained = false;
                graph_drain(p);
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

static void graph_empty(struct place *place)
{
    place->node.draining = true;
    if (place->queue)
        br_queue_drain(place->queue, NULL, NULL);
    else if (place->node.component->kind == BR_PROCESSOR)
        graph_drain_node(&place->node);
}

/* Makes all processors and queues send the records that they hold. Without this, an unresponsive
 * backend would also delay items for other backends. A level still counts as drained only after
 * the previous level. */
static void graph_on_flush_timer(struct br_timer *timer)
{
    struct br_graph *graph = br_container_of(timer, struct br_graph, flush_timer);
    for (unsigned depth = 1; depth <= DEPTH_EXPORTER; depth++) {
        each_place(graph, l)
        {
            struct place *p = graph_place_of(l);
            if (p->depth == depth && p->node.state && !p->drains)
                graph_empty(p);
        }
    }
}

void br_graph_drain(struct br_graph *graph, uint64_t flush_ms, void (*fn)(void *arg), void *arg)
{
    graph->host->draining = true;
    graph->on_drained = fn;
    graph->on_drained_arg = arg;
    graph->depth = 0;
    (void)br_host_timer(graph->host, &graph->flush_timer, flush_ms, graph_on_flush_timer);
    br_host_defer(graph->host, &graph->step, graph_step);
}

static void graph_log_unsent(const struct br_node *node)
{
    for (int s = 0; s < BR_SIGNALS; s++)
        if (node->n_unsent[s])
            br_error(&node->log, "dropped %llu %s (shutdown): they could not be sent in time",
                     (unsigned long long)node->n_unsent[s], br_signal_records((enum br_signal)s));
}

/* Destroys a node. The node's pending items are finished, and br_host_iterate delivers the
 * results to upstream nodes. Items that arrive later are rejected. */
static void graph_destroy(struct place *place)
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
    (void)br_host_iterate(node->host);
    if (place->queue)
        br_queue_drop(place->queue);
    (void)br_host_iterate(node->host);
    br_durable_free(place->durable);
    place->durable = NULL;
    graph_log_unsent(node);
    br_free(state);
}

/* Finishes the items in the fan-outs directly after the nodes of this depth. The nodes behind
 * the fan-outs have been destroyed. */
static void graph_close_fanouts(struct br_graph *graph, unsigned depth)
{
    for (size_t i = 0;
         graph->fanouts && i < graph->config->n_pipelines && depth + 1 == DEPTH_EXPORTER; i++)
        if (graph->fanouts[i])
            br_fanout_close(graph->fanouts[i]);
    each_place(graph, l)
    {
        for (int s = 0; s < BR_SIGNALS && depth == 0; s++)
            if (graph_place_of(l)->fanouts[s])
                br_fanout_close(graph_place_of(l)->fanouts[s]);
    }
    (void)br_host_iterate(graph->host);
}

void br_graph_free(struct br_graph *graph)
{
    if (!graph)
        return;
    br_host_defer_cancel(&graph->step);
    br_host_timer_stop(graph->host, &graph->flush_timer);
    graph->on_drained = NULL;
    /* Destroys downstream nodes first, so that no item remains further downstream. */
    for (unsigned depth = DEPTH_EXPORTER + 2; depth-- > 0;) {
        graph_close_fanouts(graph, depth);
        each_place(graph, list)
        {
            if (graph_place_of(list)->depth == depth)
                graph_destroy(graph_place_of(list));
        }
    }
    (void)br_host_iterate(graph->host);
    for (size_t i = 0; graph->fanouts && i < graph->config->n_pipelines; i++)
        /* freed before the places, because fan-outs log with the names in the places */
        br_fanout_free(graph->fanouts[i]);
    struct br_list *list;
    while ((list = br_list_shift(&graph->places))) {
        struct place *p = graph_place_of(list);
        for (int s = 0; s < BR_SIGNALS; s++)
            br_fanout_free(p->fanouts[s]);
        br_queue_free(p->queue);
        br_free(p->metadata_keys.items);
        br_free(p->log_name);
        br_free(p);
    }
    br_free(graph->fanouts);
    br_free(graph->heads);
    br_free(graph);
}
