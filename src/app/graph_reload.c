/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "app/graph_internal.h"
#include "base/mem.h"

/* --- Doors ------------------------------------------------------------------------------------ */

static void graph_door_consume(struct br_consumer *self, struct br_item *item)
{
    struct graph_door *door = br_container_of(self, struct graph_door, input);
    if (door->closed)
        br_list_append(&door->waiting, &item->link);
    else if (door->to)
        br_consume(door->to, item);
    else
        br_item_retry(item, BR_STATUS_UNAVAILABLE, 1000, "the component could not be started");
}

struct graph_door *br_graph_door_new(void)
{
    struct graph_door *door = br_calloc(1, sizeof *door);
    if (!door)
        return NULL;
    door->input.consume = graph_door_consume;
    br_list_init(&door->waiting);
    return door;
}

void br_graph_door_open(struct graph_door *door)
{
    struct br_list *link;
    door->closed = false;
    while ((link = br_list_shift(&door->waiting)))
        graph_door_consume(&door->input, br_container_of(link, struct br_item, link));
}

void br_graph_door_free(struct graph_door *door)
{
    struct br_list *link;
    if (!door)
        return;
    while ((link = br_list_shift(&door->waiting)))
        br_item_retry(br_container_of(link, struct br_item, link), BR_STATUS_UNAVAILABLE, 1000,
                      "shutting down");
    br_free(door);
}

/* --- Comparison of configurations ------------------------------------------------------------- */

static bool graph_lists(struct br_instance *const *list, size_t count, const char *id)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i]->id, id) == 0)
            return true;
    return false;
}

static bool graph_pipeline_lists(const struct br_pipeline *p, const struct br_instance *instance)
{
    switch (instance->component->kind) {
    case BR_RECEIVER:
        return graph_lists(p->receivers, p->n_receivers, instance->id);
    case BR_PROCESSOR:
        return graph_lists(p->processors, p->n_processors, instance->id);
    case BR_EXPORTER:
        return graph_lists(p->exporters, p->n_exporters, instance->id);
    case BR_CONNECTOR:
        return graph_lists(p->receivers, p->n_receivers, instance->id) ||
               graph_lists(p->exporters, p->n_exporters, instance->id) ||
               (instance->component->observes &&
                graph_lists(p->processors, p->n_processors, instance->id));
    default:
        return false;
    }
}

static unsigned graph_signals(const struct br_config *config, const struct br_instance *instance)
{
    unsigned signals = 0;
    for (size_t i = 0; i < config->n_pipelines; i++)
        if (graph_pipeline_lists(&config->pipelines[i], instance))
            signals |= BR_SIGNAL_BIT(config->pipelines[i].signal);
    return signals;
}

static const struct br_pipeline *graph_next_pipeline(const struct br_config *config, size_t *at,
                                                     const struct br_instance *instance)
{
    while (*at < config->n_pipelines) {
        const struct br_pipeline *pipeline = &config->pipelines[(*at)++];
        if (graph_pipeline_lists(pipeline, instance))
            return pipeline;
    }
    return NULL;
}

/* Returns true if the pipelines that list a shared processor are the same, in the same order, in
 * both configurations. */
static bool graph_is_shared_alike(const struct br_instance *one, const struct br_config *old,
                                  const struct br_instance *other, const struct br_config *next)
{
    size_t i = 0, k = 0;
    for (;;) {
        const struct br_pipeline *a = graph_next_pipeline(old, &i, one);
        const struct br_pipeline *b = graph_next_pipeline(next, &k, other);
        if (!a || !b)
            return !a && !b;
        if (strcmp(a->id, b->id) != 0)
            return false;
    }
}

static const struct br_instance *graph_instance(const struct br_config *config, enum br_kind kind,
                                                const char *id)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        if (instance->component && instance->component->kind == kind &&
            strcmp(instance->id, id) == 0)
            return instance;
    }
    return NULL;
}

static bool graph_settings_are_same(const struct br_instance *one, const struct br_config *old,
                                    const struct br_instance *other, const struct br_config *next);

static bool graph_named_is_same(enum br_kind kind, const char *id, const struct br_config *old,
                                const struct br_config *next)
{
    const struct br_instance *one = graph_instance(old, kind, id);
    const struct br_instance *other = graph_instance(next, kind, id);
    return one && other && graph_settings_are_same(one, old, other, next);
}

/* Returns the id of the extension that stores an exporter's queue, or NULL. */
static const char *graph_storage_of(const struct br_instance *instance)
{
    if (!instance->component->exporter_wrapped)
        return NULL;
    const struct br_queue_config *queue = &br_graph_common_of(instance)->sending_queue;
    return queue->enabled ? queue->storage : NULL;
}

/* Returns true if two instances have the same settings, and the components that they use also have
 * the same settings. Authenticators may differ, because they are looked up for each request. */
static bool graph_settings_are_same(const struct br_instance *one, const struct br_config *old,
                                    const struct br_instance *other, const struct br_config *next)
{
    if (one->component != other->component || !br_yaml_equal(one->node, other->node))
        return false;
    struct br_reference reference = {0};
    if (one->component->refers)
        one->component->refers(one->config, &reference);
    const char *storage = graph_storage_of(one);
    return (!reference.id || graph_named_is_same(reference.kind, reference.id, old, next)) &&
           (!storage || graph_named_is_same(BR_EXTENSION, storage, old, next));
}

bool br_graph_is_same(const struct graph_place *place, const struct br_config *old,
                      const struct br_instance *new, const struct br_config *next)
{
    const struct br_instance *instance = place->at.instance;
    if (!graph_settings_are_same(instance, old, new, next))
        return false;
    return instance->component->shared ? graph_is_shared_alike(instance, old, new, next)
                                       : graph_signals(old, instance) == graph_signals(next, new);
}

/* Returns true if only one node of this instance can exist at a time, because its files can be open
 * only once. */
static bool graph_is_exclusive(const struct br_instance *instance, const struct br_config *config)
{
    struct br_reference reference = {0};
    if (instance->component->owns_files || graph_storage_of(instance))
        return true;
    if (!instance->component->refers)
        return false;
    instance->component->refers(instance->config, &reference);
    const struct br_instance *used =
        reference.id ? graph_instance(config, reference.kind, reference.id) : NULL;
    return used && used->component->owns_files;
}

/* --- Exclusive nodes -------------------------------------------------------------------------- */

static void graph_on_place_empty(struct br_node *node, void *arg)
{
    struct br_graph *graph = arg;
    (void)node;
    graph->n_holding--;
    if (graph->n_holding == 0 && graph->on_held)
        graph->on_held(graph->on_held_arg);
}

/* Returns true if the reload replaces the node of a place, and the files of this node can be open
 * only once. */
static bool graph_must_empty(const struct br_graph *graph, const struct graph_place *place,
                             const struct br_config *next)
{
    const struct br_instance *instance = place->at.instance;
    if (!graph_is_exclusive(instance, graph->config))
        return false;
    const struct br_instance *new = graph_instance(next, instance->component->kind, instance->id);
    return new && !br_graph_is_same(place, graph->config, new, next);
}

void br_graph_hold(struct br_graph *graph, const struct br_config *next, void (*fn)(void *arg),
                   void *arg)
{
    graph->on_held = fn;
    graph->on_held_arg = arg;
    graph->n_holding = 1; /* prevents a call of on_held before draining has begun in all places */
    each_place(graph, l)
    {
        struct graph_place *place = br_graph_place_of(l);
        if (!graph_must_empty(graph, place, next))
            continue;
        place->emptied = true;
        if (place->door)
            place->door->closed = true;
        graph->n_holding++;
        place->node.on_drained = graph_on_place_empty;
        place->node.on_drained_arg = graph;
        br_graph_drain_place(place);
    }
    graph_on_place_empty(NULL, graph);
}

bool br_graph_must_hold(const struct br_graph *graph, const struct br_config *next)
{
    each_place(graph, l)
    {
        if (graph_must_empty(graph, br_graph_place_of(l), next))
            return true;
    }
    return false;
}

void br_graph_end_held(struct br_graph *graph)
{
    graph->on_held = NULL;
    for (unsigned depth = GRAPH_DEPTH_EXPORTER + 2; depth-- > 0;) {
        each_place(graph, l)
        {
            struct graph_place *place = br_graph_place_of(l);
            if (place->emptied && place->at.depth == depth)
                br_graph_destroy_place(place);
        }
    }
}

/* Creates and starts the node of a place again, after a failed reload. */
static int graph_revive(struct graph_place *place, struct br_err *err)
{
    struct br_node *node = &place->node;
    struct br_node fresh = {.component = node->component,
                            .id = node->id,
                            .config = node->config,
                            .host = node->host,
                            .input = node->input,
                            .metadata_keys = node->metadata_keys,
                            .spans_wanted = node->spans_wanted,
                            .times_wanted = node->times_wanted};
    memcpy(fresh.next, node->next, sizeof fresh.next);
    memcpy(fresh.routes, node->routes, sizeof fresh.routes);
    memcpy(fresh.in_pipeline, node->in_pipeline, sizeof fresh.in_pipeline);
    *node = fresh;
    br_queue_free(place->queue);
    br_free(place->log_name);
    place->queue = NULL;
    place->log_name = NULL;
    place->retry = NULL;
    place->started = place->drains = place->emptied = false;
    int rc = br_graph_create_place(place, err);
    if (!rc)
        rc = br_graph_start_place(place, err);
    if (place->door)
        place->door->to = rc ? NULL : br_graph_entry(place);
    return rc;
}

int br_graph_revive_held(struct br_graph *graph, struct br_err *err)
{
    int rc = 0;
    for (unsigned depth = GRAPH_DEPTH_EXPORTER + 2; depth-- > 0;) {
        each_place(graph, l)
        {
            struct graph_place *place = br_graph_place_of(l);
            if (!place->emptied || place->at.depth != depth)
                continue;
            int failed = graph_revive(place, err);
            rc = failed ? failed : rc;
            if (place->door)
                br_graph_door_open(place->door);
        }
    }
    return rc;
}

/* --- Replacement ------------------------------------------------------------------------------ */

int br_graph_prepare(struct br_graph *old, const struct br_config *next, struct br_graph **ret,
                     struct br_err *err)
{
    struct br_graph *graph = br_graph_alloc(next, old->host);
    if (!graph)
        return br_graph_no_memory(err);
    *ret = graph;
    return br_graph_build(graph, old, err);
}

/* Returns true if `place` replaces a place of `old`. Both places then have the same door, and the
 * old place owns the door. */
static bool graph_borrows_door(const struct graph_place *place, const struct br_graph *old)
{
    each_place(old, l)
    {
        if (br_graph_place_of(l)->successor == place)
            return true;
    }
    return false;
}

static void graph_give_back(struct graph_place *place, struct br_graph *old)
{
    br_graph_forget_wiring(place);
    place->kept = false;
    place->at = place->before;
    place->graph = old;
    br_list_remove(&place->link);
    br_list_append(&old->places, &place->link);
}

void br_graph_cancel(struct br_graph *graph, struct br_graph *old)
{
    struct br_list *next;
    for (size_t i = 0; i < graph->config->n_pipelines; i++) {
        struct graph_spread *spread = graph->spreads[i];
        if (spread && spread->kept) {
            spread->kept = false;
            graph->spreads[i] = NULL;
        }
    }
    for (struct br_list *l = graph->places.next; l != &graph->places; l = next) {
        struct graph_place *place = br_graph_place_of(l);
        next = l->next;
        if (place->kept)
            graph_give_back(place, old);
        else if (graph_borrows_door(place, old))
            place->door = NULL;
    }
    each_place(old, l)
    {
        br_graph_place_of(l)->successor = NULL;
    }
    br_graph_free(graph);
}

/* Moves the fan-outs that the new graph does not use to old->loose. */
static void graph_drop_spreads(struct br_graph *old)
{
    for (size_t i = 0; i < old->config->n_pipelines; i++) {
        struct graph_spread *spread = old->spreads[i];
        old->spreads[i] = NULL;
        if (spread && !spread->kept)
            br_list_append(&old->loose, &spread->link);
        else if (spread)
            br_graph_keep_spread(spread);
    }
}

/* Connects the nodes of new places. Must be called before these nodes are started. */
static void graph_connect_new(struct br_graph *graph, struct br_graph *old)
{
    each_place(graph, l)
    {
        struct graph_place *place = br_graph_place_of(l);
        if (place->kept)
            continue;
        br_graph_commit_wiring(place, &old->loose);
        if (place->door && !place->door->to)
            place->door->to = br_graph_entry(place);
    }
}

int br_graph_start_new(struct br_graph *graph, struct br_graph *old, struct br_err *err)
{
    graph_connect_new(graph, old);
    return br_graph_start(graph, err);
}

void br_graph_commit(struct br_graph *graph, struct br_graph *old)
{
    graph_drop_spreads(old);
    each_place(old, l)
    {
        struct graph_place *place = br_graph_place_of(l);
        if (!place->successor)
            continue;
        if (place->door)
            place->door->to = br_graph_entry(place->successor);
        place->door = NULL;
        place->successor = NULL;
    }
    each_place(graph, l)
    {
        struct graph_place *place = br_graph_place_of(l);
        if (place->kept)
            br_graph_commit_wiring(place, &old->loose);
        place->kept = false;
        if (place->door && place->door->closed)
            br_graph_door_open(place->door);
    }
    old->retired = true;
}

bool br_graph_uses(const struct br_graph *graph, const struct br_config *config)
{
    if (graph->config == config)
        return true;
    each_place(graph, l)
    {
        if (br_graph_place_of(l)->made_of == config)
            return true;
    }
    return false;
}

static void graph_list(struct br_str *out, const char *verb, size_t *count,
                       const struct graph_place *place)
{
    br_str_printf(out, "%s%s%s", *count ? "" : ", ", *count ? ", " : verb, place->log_name);
    ++*count;
}

void br_graph_describe(const struct br_graph *graph, const struct br_graph *old, struct br_str *out)
{
    size_t kept = 0, changed = 0, added = 0, removed = 0;
    each_place(graph, l)
    {
        kept += br_graph_place_of(l)->kept;
    }
    br_str_printf(out, "%zu components unchanged", kept);
    each_place(old, l)
    {
        if (br_graph_place_of(l)->successor)
            graph_list(out, "changed: ", &changed, br_graph_place_of(l));
    }
    each_place(graph, l)
    {
        const struct graph_place *place = br_graph_place_of(l);
        if (!place->kept && !graph_borrows_door(place, old))
            graph_list(out, "new: ", &added, place);
    }
    each_place(old, l)
    {
        if (!br_graph_place_of(l)->successor)
            graph_list(out, "removed: ", &removed, br_graph_place_of(l));
    }
}

/* Moves a fan-out to `heir` if the fan-out is still delivering an item and therefore cannot be
 * freed. */
static void graph_leave_spread(struct graph_spread **spread, struct br_graph *heir)
{
    if (!*spread || br_fanout_unused((*spread)->fanout))
        return;
    br_fanout_on_end((*spread)->fanout, NULL, NULL);
    br_list_append(&heir->loose, &(*spread)->link);
    *spread = NULL;
}

static void graph_leave_outputs(struct graph_wiring *wiring, struct br_graph *heir)
{
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++)
        for (size_t i = 0; i < br_graph_n_outputs(wiring, s); i++)
            graph_leave_spread(&br_graph_output(wiring, s, i)->spread, heir);
}

void br_graph_leave(struct br_graph *graph, struct br_graph *heir)
{
    struct br_list *next;
    br_graph_end(graph);
    for (size_t i = 0; i < graph->config->n_pipelines; i++)
        graph_leave_spread(&graph->spreads[i], heir);
    for (struct br_list *l = graph->loose.next; l != &graph->loose; l = next) {
        struct graph_spread *spread = br_graph_spread_of(l);
        next = l->next;
        if (br_fanout_unused(spread->fanout))
            continue;
        br_list_remove(l);
        graph_leave_spread(&spread, heir);
    }
    each_place(graph, l)
    {
        graph_leave_outputs(&br_graph_place_of(l)->wiring, heir);
    }
    br_graph_release(graph);
}
