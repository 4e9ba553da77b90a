/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "app/authenticators.h"
#include "app/graph_internal.h"
#include "base/mem.h"

#define BLOCK_PATHS_MAX 65536u   /* limit in bytes for the paths of an exporter's settings */
#define METADATA_KEYS_MAX 10000u /* largest number of metadata keys of a receiver */

/* Returns true if BR_DONE from this exporter means that the backend has accepted the records. */
static bool graph_delivers(const struct graph_place *place)
{
    if (!place->at.instance->component->exporter_wrapped)
        return true;
    const struct br_queue_config *queue = &br_graph_common_of(place->at.instance)->sending_queue;
    return !queue->enabled || queue->wait_for_result;
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
    return before;
}

static struct graph_spread *graph_old_spread(const struct br_graph *old, const char *pipeline)
{
    for (size_t i = 0; old && i < old->config->n_pipelines; i++)
        if (strcmp(old->config->pipelines[i].id, pipeline) == 0)
            return old->spreads[i];
    return NULL;
}

static struct graph_spread *graph_fan_out(struct br_graph *graph, struct br_graph *old,
                                          const struct br_pipeline *pipeline)
{
    struct br_fanout_end *ends = br_calloc(pipeline->n_exporters, sizeof *ends);
    if (!ends)
        return NULL;
    for (size_t k = 0; k < pipeline->n_exporters; k++) {
        struct graph_place *at = br_graph_find(graph, pipeline->exporters[k], NULL);
        ends[k] = (struct br_fanout_end){.next = &at->door->input,
                                         .ledger = at->node.ledger,
                                         .name = at->log_name,
                                         .kind = br_kind_name(BR_EXPORTER),
                                         .id = at->node.id,
                                         .delivers = graph_delivers(at)};
        if (ends[k].delivers)
            ends[k].detached_bytes =
                br_host_share(graph->host, (size_t)graph->config->fanout.hold_size);
    }
    struct graph_spread *spread =
        graph_spread_get(graph, graph_old_spread(old, pipeline->id), GRAPH_DEPTH_EXPORTER - 1, ends,
                         pipeline->n_exporters);
    br_free(ends);
    return spread;
}

/* --- Pipelines -------------------------------------------------------------------------------- */

/* Plans the connections of the nodes in one pipeline, from the last node to the first. */
static int graph_wire(struct br_graph *graph, struct br_graph *old, size_t index,
                      struct br_err *err)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    struct br_consumer *next;
    if (p->n_exporters == 1) {
        next = &br_graph_find(graph, p->exporters[0], NULL)->door->input;
    } else {
        graph->spreads[index] = graph_fan_out(graph, old, p);
        if (!graph->spreads[index])
            return br_graph_no_memory(err);
        next = br_fanout_input(graph->spreads[index]->fanout);
    }
    for (size_t k = p->n_processors; k-- > 0;) {
        struct graph_place *at = br_graph_processor(graph, p, k);
        at->planned.next[p->signal] = next;
        next = &at->door->input;
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

/* Records which metadata keys, times and spans the processors and exporters after a receiver
 * need. */
static int graph_note_needs(struct graph_place *at, const struct br_pipeline *pipeline)
{
    int rc = 0;
    bool times = false;
    for (size_t i = 0; i < pipeline->n_processors && !rc; i++) {
        const struct br_component *component = pipeline->processors[i]->component;
        if (component->wants_spans && pipeline->signal == BR_TRACES)
            at->planned.spans_wanted = true;
        times = times || component->wants_times;
        rc = graph_need_metadata_of(at, pipeline->processors[i]);
    }
    if (pipeline->signal == BR_PROFILES && !times)
        at->planned.times_wanted = false;
    for (size_t i = 0; i < pipeline->n_exporters && !rc; i++) {
        rc = graph_need_metadata_of(at, pipeline->exporters[i]);
        rc = rc ? rc : graph_need_metadata_of_auth(at, pipeline->exporters[i]);
    }
    return rc;
}

/* Returns a pipeline as a fan-out destination for its receivers. */
static struct br_fanout_end graph_head_of(struct br_graph *graph, size_t index)
{
    const struct br_pipeline *p = &graph->config->pipelines[index];
    struct br_fanout_end end = {
        .next = graph->heads[index], .name = p->id, .kind = "pipeline", .id = p->id};
    for (size_t k = 0; k < p->n_exporters; k++)
        end.delivers = end.delivers || graph_delivers(br_graph_find(graph, p->exporters[k], NULL));
    return end;
}

static int graph_wire_signal(struct br_graph *graph, struct graph_place *at, enum br_signal signal,
                             struct br_fanout_end *heads, struct br_err *err)
{
    const struct br_config *config = graph->config;
    size_t n = 0;
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        if (p->signal != signal || !graph_has(p->receivers, p->n_receivers, at->at.instance))
            continue;
        heads[n++] = graph_head_of(graph, i);
        if (graph_note_needs(at, p))
            return br_graph_no_memory(err);
    }
    if (n == 1)
        at->planned.next[signal] = heads[0].next;
    if (n <= 1)
        return 0;
    struct graph_spread *spread = graph_spread_get(graph, at->wiring.spreads[signal], 0, heads, n);
    if (!spread)
        return br_graph_no_memory(err);
    at->planned.spreads[signal] = spread;
    at->planned.next[signal] = br_fanout_input(spread->fanout);
    return 0;
}

static int graph_wire_receiver(struct br_graph *graph, struct graph_place *at, struct br_err *err)
{
    struct br_fanout_end *heads = br_calloc(graph->config->n_pipelines, sizeof *heads);
    if (!heads)
        return br_graph_no_memory(err);
    int rc = 0;
    at->planned.times_wanted = true;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS && !rc; s++)
        rc = graph_wire_signal(graph, at, s, heads, err);
    br_free(heads);
    return rc;
}

int br_graph_plan_wiring(struct br_graph *graph, struct br_graph *old, struct br_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < graph->config->n_pipelines && !rc; i++)
        rc = graph_wire(graph, old, i, err);
    each_place(graph, l)
    {
        if (!rc && br_graph_place_of(l)->node.component->kind == BR_RECEIVER)
            rc = graph_wire_receiver(graph, br_graph_place_of(l), err);
    }
    return rc;
}

static void graph_drop_spread(struct graph_spread *spread, struct br_list *loose)
{
    if (spread && !spread->kept)
        br_list_append(loose, &spread->link);
    else if (spread)
        spread->kept = false;
}

void br_graph_commit_wiring(struct graph_place *place, struct br_list *loose)
{
    struct br_node *node = &place->node;
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        graph_drop_spread(place->wiring.spreads[s], loose);
    br_free(place->wiring.metadata_keys.items);
    place->wiring = place->planned;
    place->planned = (struct graph_wiring){0};
    memcpy(node->next, place->wiring.next, sizeof node->next);
    node->metadata_keys = place->wiring.metadata_keys.count ? &place->wiring.metadata_keys : NULL;
    node->spans_wanted = place->wiring.spans_wanted;
    node->times_wanted = place->wiring.times_wanted;
}

void br_graph_forget_wiring(struct graph_place *place)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        struct graph_spread *spread = place->planned.spreads[s];
        if (spread && spread->kept)
            spread->kept = false;
        else
            br_graph_spread_free(spread);
    }
    br_free(place->planned.metadata_keys.items);
    place->planned = (struct graph_wiring){0};
}
