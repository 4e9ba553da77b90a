/* SPDX-License-Identifier: Apache-2.0 */
#include "app/connectors.h"

#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "config/parts.h"

#define CYCLE_TEXT_MAX 400u /* largest length in bytes of a cycle in a message */

static bool connectors_list_has(struct br_instance *const *list, size_t count,
                                const struct br_instance *instance)
{
    for (size_t i = 0; i < count; i++)
        if (list[i] == instance)
            return true;
    return false;
}

bool br_connectors_receives(const struct br_pipeline *pipeline, const struct br_instance *instance)
{
    return connectors_list_has(pipeline->receivers, pipeline->n_receivers, instance);
}

/* Returns a connector that is an exporter of `from` and a receiver of `to`, or NULL. */
static const struct br_instance *connectors_between(const struct br_pipeline *from,
                                                    const struct br_pipeline *to)
{
    for (size_t i = 0; from->signal == to->signal && i < from->n_exporters; i++)
        if (br_connectors_receives(to, from->exporters[i]))
            return from->exporters[i];
    return NULL;
}

bool br_connectors_link(const struct br_pipeline *from, const struct br_pipeline *to)
{
    return connectors_between(from, to) != NULL;
}

/* --- Both ends -------------------------------------------------------------------------------- */

/* Checks that each signal that a connector exports is received from it, and the reverse. */
static void connectors_check_ends(const struct br_config *config,
                                  const struct br_instance *connector, struct br_errs *errs)
{
    unsigned exported = 0, received = 0;
    char path[192];
    for (size_t i = 0; i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        if (connectors_list_has(p->exporters, p->n_exporters, connector))
            exported |= BR_SIGNAL_BIT(p->signal);
        if (br_connectors_receives(p, connector))
            received |= BR_SIGNAL_BIT(p->signal);
    }
    (void)br_path_join(path, br_kind_section(BR_CONNECTOR), connector->id);
    if (connector->component->observes) {
        if (received)
            br_errs_add(errs, connector->node, path,
                        "sends no data in Braid; remove it from the receivers of pipelines");
        return;
    }
    for (enum br_signal s = BR_TRACES; s < BR_SIGNALS; s++) {
        const char *signal = br_signal_name(s);
        if (exported & ~received & BR_SIGNAL_BIT(s))
            br_errs_add(errs, connector->node, path,
                        "is an exporter of a %s pipeline, but not a receiver of any %s pipeline; "
                        "name it under receivers of the next pipeline",
                        signal, signal);
        if (received & ~exported & BR_SIGNAL_BIT(s))
            br_errs_add(errs, connector->node, path,
                        "is a receiver of a %s pipeline, but not an exporter of any %s pipeline; "
                        "name it under exporters of the previous pipeline",
                        signal, signal);
    }
}

/* --- Routes ----------------------------------------------------------------------------------- */

static const struct br_pipeline *connectors_find_pipeline(const struct br_config *config,
                                                          const char *id)
{
    for (size_t i = 0; i < config->n_pipelines; i++)
        if (strcmp(config->pipelines[i].id, id) == 0)
            return &config->pipelines[i];
    return NULL;
}

static void connectors_check_route(const struct br_config *config,
                                   const struct br_instance *connector,
                                   const struct br_route_names *route, struct br_errs *errs)
{
    char path[192], section[192], shown[BR_SHOWN_SIZE];
    (void)br_path_join(section, br_kind_section(BR_CONNECTOR), connector->id);
    (void)br_path_join(path, section, route->key);
    for (size_t i = 0; i < route->pipelines.count; i++) {
        const char *id = route->pipelines.items[i];
        const struct br_pipeline *pipeline = connectors_find_pipeline(config, id);
        if (!pipeline)
            br_errs_add(errs, connector->node, path,
                        "must name pipelines of service::pipelines, got %s",
                        br_text_show(id, shown));
        else if (!br_connectors_receives(pipeline, connector))
            br_errs_add(errs, connector->node, path,
                        "the pipeline %s does not receive from this connector; name %s under its "
                        "receivers",
                        br_text_show(id, shown), connector->id);
    }
}

static void connectors_check_routes(const struct br_config *config,
                                    const struct br_instance *connector, struct br_errs *errs)
{
    const struct br_routes *routes = connector->component->routes && connector->config
                                         ? connector->component->routes(connector->config)
                                         : NULL;
    for (size_t i = 0; routes && i < routes->count; i++)
        connectors_check_route(config, connector, &routes->items[i], errs);
}

/* --- Cycles ----------------------------------------------------------------------------------- */

/* A search for a cycle along the pipelines. */
struct search {
    const struct br_config *config;
    bool *done;    /* for each pipeline: no cycle contains the pipeline */
    bool *on_path; /* for each pipeline: the path contains the pipeline */
    size_t *path;  /* indices of pipelines, each linked to the next one by a connector */
    size_t *next;  /* for each pipeline of the path, the next pipeline to try after it */
    size_t depth;  /* number of pipelines in `path` */
};

static void connectors_describe_one(struct br_str *text, const struct br_pipeline *before,
                                    const struct br_pipeline *pipeline)
{
    const char *signal = br_signal_name(pipeline->signal);
    br_str_printf(text, "connector \"%s\" (%s to %s)", connectors_between(before, pipeline)->id,
                  signal, signal);
}

/* Appends the connector before a pipeline of a cycle, and the processors of the pipeline. */
static void connectors_describe(struct br_str *text, const struct br_pipeline *before,
                                const struct br_pipeline *pipeline)
{
    connectors_describe_one(text, before, pipeline);
    br_str_puts(text, " -> ");
    for (size_t i = 0; i < pipeline->n_processors; i++)
        br_str_printf(text, "processor \"%s\" in pipeline \"%s\" -> ", pipeline->processors[i]->id,
                      pipeline->id);
}

/* Adds an error for the part of the path that begins with the pipeline `first`, which also follows
 * the last pipeline of the path. */
static void connectors_refuse_cycle(const struct search *search, size_t first, struct br_errs *errs)
{
    char buffer[CYCLE_TEXT_MAX];
    struct br_str text = {.data = buffer, .cap = sizeof buffer, .fixed = true};
    const struct br_pipeline *pipelines = search->config->pipelines;
    size_t at = 0;
    buffer[0] = '\0';
    while (search->path[at] != first)
        at++;
    const struct br_pipeline *last = &pipelines[search->path[search->depth - 1]];
    const struct br_pipeline *before = last;
    for (; at < search->depth; at++) {
        connectors_describe(&text, before, &pipelines[search->path[at]]);
        before = &pipelines[search->path[at]];
    }
    connectors_describe_one(&text, last, &pipelines[first]);
    br_errs_add(errs, br_yaml_get(br_yaml_get(search->config->tree, "service"), "pipelines"),
                "service::pipelines", "cycle detected: %s", buffer);
}

/* Goes on with the next pipeline after the last one of the path. Returns true if that closes a
 * cycle. */
static bool connectors_step(struct search *search, struct br_errs *errs)
{
    const struct br_config *config = search->config;
    size_t last = search->path[search->depth - 1];
    size_t to = search->next[search->depth - 1]++;
    if (to == config->n_pipelines) {
        search->done[last] = true;
        search->on_path[last] = false;
        search->depth--;
        return false;
    }
    if (search->done[to] || !br_connectors_link(&config->pipelines[last], &config->pipelines[to]))
        return false;
    if (search->on_path[to]) {
        connectors_refuse_cycle(search, to, errs);
        return true;
    }
    search->on_path[to] = true;
    search->path[search->depth] = to;
    search->next[search->depth++] = 0;
    return false;
}

/* Adds an error for the first cycle that is found. */
static int connectors_check_cycles(const struct br_config *config, struct br_arena *arena,
                                   struct br_errs *errs)
{
    size_t n = config->n_pipelines;
    if (!n)
        return 0;
    struct search search = {.config = config,
                            .done = br_arena_calloc(arena, n, sizeof(bool)),
                            .on_path = br_arena_calloc(arena, n, sizeof(bool)),
                            .path = br_arena_calloc(arena, n, sizeof(size_t)),
                            .next = br_arena_calloc(arena, n, sizeof(size_t))};
    if (!search.done || !search.on_path || !search.path || !search.next)
        return BR_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (search.done[i])
            continue;
        search.on_path[i] = true;
        search.path[0] = i;
        search.next[0] = 0;
        search.depth = 1;
        while (search.depth)
            if (connectors_step(&search, errs))
                return 0;
    }
    return 0;
}

int br_connectors_check(const struct br_config *config, struct br_arena *arena,
                        struct br_errs *errs)
{
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        if (!instance->component || instance->component->kind != BR_CONNECTOR || !instance->used)
            continue;
        connectors_check_ends(config, instance, errs);
        connectors_check_routes(config, instance, errs);
    }
    return connectors_check_cycles(config, arena, errs);
}
