/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "app/authenticators.h"
#include "app/connectors.h"
#include "app/graph_internal.h"
#include "base/mem.h"

#define BLOCK_PATHS_MAX 65536u   /* limit in bytes for the paths of an exporter's settings */
#define METADATA_KEYS_MAX 10000u /* largest number of metadata keys of a receiver */

/* --- Delivery --------------------------------------------------------------------------------- */

/* Returns true if BR_DONE from this exporter means that the backend has accepted the records. */
static bool graph_exporter_delivers(const struct br_instance *exporter)
{
    if (!exporter->component->exporter_wrapped)
        return true;
    const struct br_queue_config *queue = &br_graph_common_of(exporter)->sending_queue;
    return !queue->enabled || queue->wait_for_result;
}

/* Returns true if BR_DONE from an exporter or connector of a pipeline means that a backend has
 * accepted the records. */
static bool graph_delivers(const struct br_graph *graph, const struct br_pipeline *pipeline,
                           const struct br_instance *to)
{
    const struct br_config *config = graph->config;
    if (to->component->kind == BR_EXPORTER)
        return graph_exporter_delivers(to);
    for (size_t i = 0; i < config->n_pipelines; i++)
        if (graph->delivers[i] && config->pipelines[i].signal == pipeline->signal &&
            br_connectors_receives(&config->pipelines[i], to))
            return true;
    return false;
}

static bool graph_pipeline_delivers(const struct br_graph *graph,
                                    const struct br_pipeline *pipeline)
{
    for (size_t k = 0; k < pipeline->n_exporters; k++)
        if (graph_delivers(graph, pipeline, pipeline->exporters[k]))
            return true;
    return false;
}

/* Sets graph->delivers. Repeats until nothing changes, because a pipeline that ends in a connector
 * depends on other pipelines. */
static void graph_find_delivering(struct br_graph *graph)
{
    const struct br_config *config = graph->config;
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < config->n_pipelines; i++) {
            if (graph->delivers[i] || !graph_pipeline_delivers(graph, &config->pipelines[i]))
                continue;
            graph->delivers[i] = true;
            more = true;
        }
    }
}

/* --- Fan-outs --------------------------------------------------------------------------------- */

void br_graph_spread_free(struct graph_spread *spread)
{
    if (!spread)
        return;
    br_fanout_free(spread->fanout);
    for (size_t i = 0; i < spread->count; i++)
        br_free((char *)(uintptr_t)spread->ends[i].name);
    br_free(spread);
}

/* Returns a new fan-out, or NULL if memory runs out. */
static struct graph_spread *graph_spread_new(struct br_graph *graph, unsigned depth,
                                             const struct br_fanout_end *ends, size_t count)
{
    struct graph_spread *spread = br_calloc(1, sizeof *spread + count * sizeof *ends);
    if (!spread)
        return NULL;
    br_list_init(&spread->link);
    spread->config = graph->config->fanout;
    spread->depth = depth;
    spread->count = count;
    memcpy(spread->ends, ends, count * sizeof *ends);
    bool named = true;
    for (size_t i = 0; i < count; i++) {
        spread->ends[i].name = br_strdup(ends[i].name);
        named = named && spread->ends[i].name;
    }
    if (named)
        spread->fanout = br_fanout_new(graph->host, &spread->config, spread->ends, count);
    if (spread->fanout)
        return spread;
    br_graph_spread_free(spread);
    return NULL;
}

static bool graph_ends_are_same(const struct br_fanout_end *one, const struct br_fanout_end *other)
{
    return one->next == other->next && one->ledger == other->ledger &&
           one->delivers == other->delivers && one->detached_bytes == other->detached_bytes &&
           strcmp(one->name, other->name) == 0;
}

static bool graph_spread_matches(const struct graph_spread *spread, const struct br_graph *graph,
                                 const struct br_fanout_end *ends, size_t count)
{
    const struct br_fanout_config *config = &graph->config->fanout;
    if (!spread || spread->count != count || spread->config.hold_size != config->hold_size ||
        spread->config.hold_time != config->hold_time)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!graph_ends_are_same(&spread->ends[i], &ends[i]))
            return false;
    return true;
}

/* Returns the fan-out `before` if its configuration and its destinations are the same. Otherwise,
 * returns a new fan-out, or NULL if memory runs out. */
static struct graph_spread *graph_spread_get(struct br_graph *graph, struct graph_spread *before,
                                             unsigned depth, const struct br_fanout_end *ends,
                                             size_t count)
{
    if (!graph_spread_matches(before, graph, ends, count))
        return graph_spread_new(graph, depth, ends, count);
    before->kept = true;
    before->next_depth = depth;
    return before;
}

static struct graph_spread *graph_old_spread(const struct br_graph *old, const char *pipeline)
{
    for (size_t i = 0; old && i < old->config->n_pipelines; i++)
        if (strcmp(old->config->pipelines[i].id, pipeline) == 0)
            return old->spreads[i];
    return NULL;
}

/* Returns the depth after which the fan-out to the exporters of a pipeline is drained. A fan-out to
 * exporters only is drained after all processors of all pipelines. */
static unsigned graph_depth_of_spread(struct br_graph *graph, const struct br_pipeline *pipeline)
{
    for (size_t k = 0; k < pipeline->n_exporters; k++)
        if (pipeline->exporters[k]->component->kind == BR_CONNECTOR)
            return br_graph_depth_of(graph, pipeline);
    return GRAPH_DEPTH_EXPORTER - 1;
}

static struct graph_spread *graph_fan_out(struct br_graph *graph, struct br_graph *old,
                                          const struct br_pipeline *pipeline)
{
    struct br_fanout_end *ends = br_calloc(pipeline->n_exporters, sizeof *ends);
    if (!ends)
        return NULL;
    for (size_t k = 0; k < pipeline->n_exporters; k++) {
        struct graph_place *at = br_graph_find(graph, pipeline->exporters[k], NULL);
        ends[k] = (struct br_fanout_end){
            .next = &at->door->input,
            .ledger = at->node.ledger,
            .name = at->log_name,
            .kind = br_kind_name(at->node.component->kind),
            .id = at->node.id,
            .delivers = graph_delivers(graph, pipeline, pipeline->exporters[k])};
        if (ends[k].delivers)
            ends[k].detached_bytes =
                br_host_share(graph->host, (size_t)graph->config->fanout.hold_size);
    }
    struct graph_spread *spread =
        graph_spread_get(graph, graph_old_spread(old, pipeline->id),
                         graph_depth_of_spread(graph, pipeline), ends, pipeline->n_exporters);
    br_free(ends);
    return spread;
}

/* --- Pipelines -------------------------------------------------------------------------------- */

/* Plans the connections of the nodes in one pipeline, from the last node to the first. */
static int graph_wire(struct br_graph *graph, struct br_graph *old, size_t index,
                      struct br_err *err)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    struct br_consumer *next = NULL;
    if (p->n_exporters == 1) {
        next = &br_graph_find(graph, p->exporters[0], NULL)->door->input;
    } else if (p->n_exporters) {
        graph->spreads[index] = graph_fan_out(graph, old, p);
        if (!graph->spreads[index])
            return br_graph_no_memory(err);
        next = br_fanout_input(graph->spreads[index]->fanout);
    }
    for (size_t k = p->n_processors; k-- > 0;) {
        struct graph_place *at = br_graph_processor(graph, p, k);
        at->planned.all[p->signal].next = next;
        next = &at->door->input;
    }
    graph->heads[index] = next;
    return 0;
}

/* --- Needs of later components ---------------------------------------------------------------- */

static int graph_need_metadata(struct graph_place *at, const char *key)
{
    struct br_strings *keys = &at->planned.metadata_keys;
    for (size_t i = 0; i < keys->count; i++)
        if (strcasecmp(keys->items[i], key) == 0)
            return 0;
    if (br_grow(&keys->items, &at->planned.cap_metadata_keys, keys->count + 1, sizeof *keys->items,
                METADATA_KEYS_MAX))
        return BR_ENOMEM;
    keys->items[keys->count++] = key;
    return 0;
}

static int graph_need_all_metadata(struct graph_place *at, const struct br_strings *keys)
{
    for (size_t k = 0; keys && k < keys->count; k++)
        if (graph_need_metadata(at, keys->items[k]))
            return BR_ENOMEM;
    return 0;
}

static int graph_need_metadata_of(struct graph_place *at, const struct br_instance *instance);

/* Records the metadata keys that the authenticator of an exporter needs. */
static int graph_need_metadata_of_auth(struct graph_place *at, const struct br_instance *exporter)
{
    struct br_arena arena;
    br_arena_init(&arena, BLOCK_PATHS_MAX);
    const struct br_instance *authenticator =
        br_authenticators_of(at->graph->config, exporter, &arena);
    int rc = authenticator ? graph_need_metadata_of(at, authenticator) : 0;
    br_arena_release(&arena);
    return rc;
}

static int graph_need_metadata_of(struct graph_place *at, const struct br_instance *instance)
{
    const struct br_component *component = instance->component;
    const struct br_queue_batch_config *batch =
        component->exporter_wrapped ? br_graph_common_of(instance)->sending_queue.batch : NULL;
    if (component->metadata_keys &&
        graph_need_all_metadata(at, component->metadata_keys(instance->config)))
        return BR_ENOMEM;
    return batch ? graph_need_all_metadata(at, &batch->partition.metadata_keys) : 0;
}

/* Records the metadata keys and spans that processors and exporters of a pipeline need. */
static int graph_note_needs(struct graph_place *at, const struct br_pipeline *pipeline)
{
    int rc = 0;
    for (size_t i = 0; i < pipeline->n_processors && !rc; i++) {
        const struct br_component *component = pipeline->processors[i]->component;
        if (component->wants_spans && pipeline->signal == BR_TRACES)
            at->planned.spans_wanted = true;
        rc = graph_need_metadata_of(at, pipeline->processors[i]);
    }
    for (size_t i = 0; i < pipeline->n_exporters && !rc; i++) {
        rc = graph_need_metadata_of(at, pipeline->exporters[i]);
        rc = rc ? rc : graph_need_metadata_of_auth(at, pipeline->exporters[i]);
    }
    return rc;
}

/* Returns true if a processor of the pipeline uses the times of samples, and folds the samples
 * before it forwards them. */
static bool graph_folds(const struct br_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n_processors; i++)
        if (pipeline->processors[i]->component->wants_times)
            return true;
    return false;
}

/* Returns true if samples leave Braid at the end of the pipeline. */
static bool graph_exports(const struct br_pipeline *pipeline)
{
    for (size_t i = 0; i < pipeline->n_exporters; i++)
        if (pipeline->exporters[i]->component->kind == BR_EXPORTER)
            return true;
    return false;
}

/* How the data of a receiver reaches a pipeline. */
enum { UNREACHED, FOLDED, UNFOLDED };

/* Marks the pipelines that the connectors of the pipeline `from` lead to. Returns true if a mark
 * has changed. */
static bool graph_reach_from(const struct br_config *config, size_t from, uint8_t *reached)
{
    const struct br_pipeline *pipelines = config->pipelines;
    uint8_t after = graph_folds(&pipelines[from]) ? FOLDED : reached[from];
    bool changed = false;
    for (size_t i = 0; reached[from] && i < config->n_pipelines; i++) {
        if (reached[i] >= after || !br_connectors_link(&pipelines[from], &pipelines[i]))
            continue;
        reached[i] = after;
        changed = true;
    }
    return changed;
}

/* Marks all pipelines that the data of a receiver reaches, directly or through connectors. */
static void graph_reach(const struct br_config *config, const struct br_instance *receiver,
                        uint8_t *reached)
{
    for (size_t i = 0; i < config->n_pipelines; i++)
        reached[i] = br_connectors_receives(&config->pipelines[i], receiver) ? UNFOLDED : UNREACHED;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < config->n_pipelines; i++)
            changed = graph_reach_from(config, i, reached) || changed;
    }
}

/* Records the metadata keys, times and spans that components after a receiver need. */
static int graph_note_all_needs(struct graph_place *at, uint8_t *reached)
{
    const struct br_config *config = at->graph->config;
    graph_reach(config, at->at.instance, reached);
    at->planned.times_wanted = true;
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        if (!reached[i])
            continue;
        if (p->signal == BR_PROFILES && reached[i] == UNFOLDED && !graph_folds(p) &&
            graph_exports(p))
            at->planned.times_wanted = false;
        if (graph_note_needs(at, p))
            return BR_ENOMEM;
    }
    return 0;
}

/* --- Outputs of receivers and connectors ------------------------------------------------------ */

/* Returns a pipeline as a fan-out destination for its receivers. */
static struct br_fanout_end graph_head_of(struct br_graph *graph, size_t index)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    return (struct br_fanout_end){.next = graph->heads[index],
                                  .name = p->id,
                                  .kind = "pipeline",
                                  .id = p->id,
                                  .delivers = graph->delivers[index]};
}

static bool graph_names(const struct br_strings *names, const char *id)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], id) == 0)
            return true;
    return false;
}

/* Makes an output of a receiver or connector to its pipelines of a signal, or only to those that
 * `route` names. `heads` is scratch memory. `before` is the output in use. */
static int graph_wire_output(struct graph_place *at, enum br_signal signal,
                             const struct br_strings *route, struct br_fanout_end *heads,
                             const struct graph_output *before, struct graph_output *ret)
{
    struct br_graph *graph = at->graph;
    const struct br_config *config = graph->config;
    size_t n = 0;
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        if (p->signal == signal && br_connectors_receives(p, at->at.instance) &&
            (!route || graph_names(route, p->id)))
            heads[n++] = graph_head_of(graph, i);
    }
    if (n == 1)
        ret->next = heads[0].next;
    if (n <= 1)
        return 0;
    ret->spread = graph_spread_get(graph, before ? before->spread : NULL, at->at.depth, heads, n);
    if (!ret->spread)
        return BR_ENOMEM;
    ret->next = br_fanout_input(ret->spread->fanout);
    return 0;
}

/* Makes the outputs of a connector's routes for a signal. */
static int graph_wire_routes(struct graph_place *at, enum br_signal signal,
                             const struct br_routes *routes, struct br_fanout_end *heads)
{
    struct graph_wiring *planned = &at->planned;
    planned->routes[signal] = br_calloc(routes->count, sizeof *planned->routes[signal]);
    planned->route_inputs[signal] = br_calloc(routes->count, sizeof *planned->route_inputs[signal]);
    if (!planned->routes[signal] || !planned->route_inputs[signal])
        return BR_ENOMEM;
    planned->n_routes = routes->count;
    for (size_t i = 0; i < routes->count; i++) {
        struct graph_output *output = &planned->routes[signal][i];
        const struct graph_output *before = i + 1 < br_graph_n_outputs(&at->wiring, signal)
                                                ? br_graph_output(&at->wiring, signal, i + 1)
                                                : NULL;
        if (graph_wire_output(at, signal, &routes->items[i].pipelines, heads, before, output))
            return BR_ENOMEM;
        planned->route_inputs[signal][i] = output->next;
    }
    return 0;
}

static int graph_wire_outputs(struct graph_place *at, struct br_fanout_end *heads)
{
    const struct br_component *component = at->at.instance->component;
    const struct br_routes *routes =
        component->routes ? component->routes(at->at.instance->config) : NULL;
    int rc = 0;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS && !rc; s++)
        rc = routes
                 ? graph_wire_routes(at, s, routes, heads)
                 : graph_wire_output(at, s, NULL, heads, &at->wiring.all[s], &at->planned.all[s]);
    return rc;
}

/* Connects a receiver or connector with its pipelines. */
static int graph_wire_source(struct graph_place *at, struct br_err *err)
{
    size_t n = at->graph->config->n_pipelines;
    struct br_fanout_end *heads = br_calloc(n, sizeof *heads);
    uint8_t *reached = br_calloc(n, sizeof *reached);
    int rc = heads && reached ? graph_wire_outputs(at, heads) : BR_ENOMEM;
    if (!rc && at->node.component->kind == BR_RECEIVER)
        rc = graph_note_all_needs(at, reached);
    br_free(heads);
    br_free(reached);
    return rc ? br_graph_no_memory(err) : 0;
}

int br_graph_plan_wiring(struct br_graph *graph, struct br_graph *old, struct br_err *err)
{
    int rc = 0;
    graph_find_delivering(graph);
    for (size_t i = 0; i < graph->config->n_pipelines && !rc; i++)
        rc = graph_wire(graph, old, i, err);
    each_place(graph, l)
    {
        enum br_kind kind = br_graph_place_of(l)->node.component->kind;
        if (!rc && (kind == BR_RECEIVER || kind == BR_CONNECTOR))
            rc = graph_wire_source(br_graph_place_of(l), err);
    }
    return rc;
}

void br_graph_keep_spread(struct graph_spread *spread)
{
    spread->kept = false;
    spread->depth = spread->next_depth;
}

static void graph_drop_spread(struct graph_spread *spread, struct br_list *loose)
{
    if (spread && !spread->kept)
        br_list_append(loose, &spread->link);
    else if (spread)
        br_graph_keep_spread(spread);
}

/* Frees the arrays of a wiring. Its fan-outs have another owner. */
static void graph_free_arrays(struct graph_wiring *wiring)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        br_free(wiring->routes[s]);
        br_free(wiring->route_inputs[s]);
    }
    br_free(wiring->metadata_keys.items);
}

void br_graph_commit_wiring(struct graph_place *place, struct br_list *loose)
{
    struct br_node *node = &place->node;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        for (size_t i = 0; i < br_graph_n_outputs(&place->wiring, s); i++)
            graph_drop_spread(br_graph_output(&place->wiring, s, i)->spread, loose);
    graph_free_arrays(&place->wiring);
    place->wiring = place->planned;
    place->planned = (struct graph_wiring){0};
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        node->next[s] = place->wiring.all[s].next;
        node->routes[s] = place->wiring.route_inputs[s];
    }
    node->metadata_keys = place->wiring.metadata_keys.count ? &place->wiring.metadata_keys : NULL;
    node->spans_wanted = place->wiring.spans_wanted;
    node->times_wanted = place->wiring.times_wanted;
}

void br_graph_forget_wiring(struct graph_place *place)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        for (size_t i = 0; i < br_graph_n_outputs(&place->planned, s); i++) {
            struct graph_spread *spread = br_graph_output(&place->planned, s, i)->spread;
            if (spread && spread->kept)
                spread->kept = false;
            else
                br_graph_spread_free(spread);
        }
    }
    graph_free_arrays(&place->planned);
    place->planned = (struct graph_wiring){0};
}

void br_graph_release_wiring(struct graph_place *place)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        for (size_t i = 0; i < br_graph_n_outputs(&place->wiring, s); i++)
            br_graph_spread_free(br_graph_output(&place->wiring, s, i)->spread);
    graph_free_arrays(&place->wiring);
    place->wiring = (struct graph_wiring){0};
}
