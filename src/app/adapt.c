/* SPDX-License-Identifier: Apache-2.0 */
#include "app/adapt.h"

#include <stdlib.h>
#include <string.h>

#include "app/adapt_parts.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"

#define KINDS (BR_EXTENSION + 1)
#define CHAIN_MAX 24 /* largest number of nested keys and list indices in the path of an error */

void *br_adapt_keep(struct br_adapter *adapter, void *memory)
{
    adapter->no_memory = adapter->no_memory || !memory;
    return memory;
}

/* --- Removing -------------------------------------------------------------------------------- */

/* Returns true if `path` ends with the key `name`. */
static bool adapt_is_named(const char *path, const char *name)
{
    size_t path_len = strlen(path), len = strlen(name);
    if (path_len < len || strcmp(path + path_len - len, name) != 0)
        return false;
    return path_len == len || path[path_len - len - 1] == ':';
}

/* Removes a key of a map or an item of a list. If `why` is not NULL, adds a warning and a comment
 * in the file, which both contain this reason. */
static void adapt_remove(struct br_adapter *adapter, struct br_yaml *parent, size_t index,
                         const char *path, const char *why)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    const char *note = NULL;
    if (why) {
        const char *name = parent->keys ? at->text : "an entry";
        bool named = parent->keys && adapt_is_named(path, name);
        br_errs_warn(adapter->adapt->errs, at, path, "%s%sleft out: %s", named ? "" : name,
                     named ? "" : " is ", why);
        note = br_adapt_keep(
            adapter, br_arena_printf(adapter->adapt->arena, "%s is left out: %s", name, why));
    }
    if (adapter->adapt->edits &&
        br_edits_add(adapter->adapt->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL,
                     note))
        adapter->no_memory = true;
    br_yaml_remove(parent, index);
}

struct br_yaml *br_adapt_section(const struct br_adapter *adapter, enum br_kind kind)
{
    struct br_yaml *section = br_yaml_get(adapter->tree, br_kind_section(kind));
    return section && section->type == BR_YAML_MAP ? section : NULL;
}

struct br_yaml *br_adapt_pipelines(const struct br_adapter *adapter)
{
    struct br_yaml *map = br_yaml_get(br_yaml_get(adapter->tree, "service"), "pipelines");
    return map && map->type == BR_YAML_MAP ? map : NULL;
}

/* --- Components ------------------------------------------------------------------------------ */

#define TYPO_EDITS 2 /* largest number of wrong characters in a misspelt name */

static bool adapt_is_typo(const char *type, const char *name)
{
    return *type == *name && br_str_distance(type, name) <= TYPO_EDITS;
}

/* Returns true if `type` is probably not a misspelt name. A misspelt name has the same first letter
 * as the correct name and differs from it in one or two characters. A component of the Collector is
 * never a misspelt name. */
static bool adapt_is_unknown(const struct br_adapter *adapter, enum br_kind kind, const char *type)
{
    for (const struct br_component *const *c = adapter->adapt->registry; *c; c++) {
        if ((*c)->kind == kind &&
            (adapt_is_typo(type, (*c)->name) || ((*c)->alias && adapt_is_typo(type, (*c)->alias))))
            return br_foreign_is_collectors(kind, type);
    }
    return true;
}

static const char *adapt_why_lacking(struct br_adapter *adapter, const struct br_adapt_unit *unit)
{
    const struct br_foreign *foreign = unit->foreign;
    const char *kind = br_kind_name(unit->kind);
    if (adapter->adapt->split && unit->kind != BR_EXTENSION)
        return br_adapt_keep(
            adapter,
            br_arena_printf(adapter->adapt->arena,
                            "the Collector keeps it, because Braid does not support this %s%s%s",
                            kind, foreign ? ", which " : "", foreign ? foreign->purpose : ""));
    if (!foreign)
        return br_adapt_keep(adapter, br_arena_printf(adapter->adapt->arena,
                                                      "Braid does not support this %s", kind));
    return br_adapt_keep(adapter,
                         br_arena_printf(adapter->adapt->arena,
                                         "Braid does not support this %s, which %s%s%s", kind,
                                         foreign->purpose, foreign->advice ? ". " : "",
                                         foreign->advice ? foreign->advice : ""));
}

static void adapt_add_unit(struct br_adapter *adapter, enum br_kind kind, struct br_yaml *key,
                           struct br_yaml *node)
{
    struct br_adapt_unit *unit = &adapter->units[adapter->n_units];
    *unit = (struct br_adapt_unit){.kind = kind, .key = key, .node = node};
    unit->id = br_adapt_keep(adapter, br_id_trim(adapter->adapt->arena, key->text));
    if (!unit->id)
        return;
    unit->type = br_adapt_keep(
        adapter, br_arena_strndup(adapter->adapt->arena, unit->id, strcspn(unit->id, "/")));
    if (!unit->type)
        return;
    unit->component = br_component_find(adapter->adapt->registry, kind, unit->type);
    unit->foreign = unit->component ? NULL : br_foreign_find(kind, unit->type);
    if (unit->foreign && unit->foreign->support == BR_FOREIGN_SAME)
        unit->component = br_component_find(adapter->adapt->registry, kind, unit->foreign->as);
    bool idle = unit->foreign && unit->foreign->support == BR_FOREIGN_IDLE;
    if (!unit->component && !idle && (unit->foreign || adapt_is_unknown(adapter, kind, unit->type)))
        unit->lacking = adapt_why_lacking(adapter, unit);
    adapter->n_units++;
}

static void adapt_collect(struct br_adapter *adapter)
{
    size_t n = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct br_yaml *section = br_adapt_section(adapter, (enum br_kind)kind);
        n += section ? section->count : 0;
    }
    adapter->units =
        br_adapt_keep(adapter, br_arena_calloc(adapter->adapt->arena, n, sizeof *adapter->units));
    for (int kind = 0; kind < KINDS && adapter->units; kind++) {
        const struct br_yaml *section = br_adapt_section(adapter, (enum br_kind)kind);
        for (size_t i = 0; section && i < section->count; i++)
            adapt_add_unit(adapter, (enum br_kind)kind, section->keys[i], section->items[i]);
    }
}

struct br_adapt_unit *br_adapt_resolve(struct br_adapter *adapter, enum br_kind kind,
                                       const struct br_yaml *node)
{
    if (node->type != BR_YAML_SCALAR)
        return NULL;
    const char *id = br_adapt_keep(adapter, br_id_trim(adapter->adapt->arena, node->text));
    struct br_adapt_unit *connector = NULL;
    for (size_t i = 0; id && i < adapter->n_units; i++) {
        struct br_adapt_unit *unit = &adapter->units[i];
        if (strcmp(unit->id, id) != 0)
            continue;
        if (unit->kind == kind)
            return unit;
        if (unit->kind == BR_CONNECTOR && (kind == BR_RECEIVER || kind == BR_EXPORTER))
            connector = unit;
    }
    return connector;
}

/* Removes the unsupported components from a list. */
static void adapt_list(struct br_adapter *adapter, struct br_yaml *list, enum br_kind kind)
{
    for (size_t i = 0; list->type == BR_YAML_SEQ && i < list->count;) {
        struct br_adapt_unit *unit = br_adapt_resolve(adapter, kind, list->items[i]);
        if (unit)
            unit->wanted = true;
        if (unit && unit->lacking)
            adapt_remove(adapter, list, i, NULL, NULL);
        else
            i++;
    }
}

/* --- Pipelines ------------------------------------------------------------------------------- */

const struct br_adapt_list br_adapt_lists[BR_ADAPT_LISTS] = {
    {"receivers", BR_RECEIVER}, {"processors", BR_PROCESSOR}, {"exporters", BR_EXPORTER}};

bool br_adapt_is_foreign_signal(const char *id)
{
    size_t n = strcspn(id, "/");
    return br_bytes_are(id, n, "metrics") || br_bytes_are(id, n, "logs");
}

/* Marks the components in the lists of a pipeline as named and, if the pipeline stays, as used. */
static void adapt_mark_units(struct br_adapter *adapter, const struct br_yaml *pipeline, bool stays)
{
    for (size_t k = 0; k < BR_ADAPT_LISTS; k++) {
        const struct br_yaml *list = br_yaml_get(pipeline, br_adapt_lists[k].key);
        bool seq = list && list->type == BR_YAML_SEQ;
        for (size_t i = 0; list && i < (seq ? list->count : 1); i++) {
            struct br_adapt_unit *unit =
                br_adapt_resolve(adapter, br_adapt_lists[k].kind, seq ? list->items[i] : list);
            if (!unit)
                continue;
            unit->named = true;
            unit->used = unit->used || stays;
        }
    }
}

/* Records each unsupported processor of a pipeline if the processor may drop, hide or change
 * data. */
static void adapt_note_losses(struct br_adapter *adapter, const struct br_yaml *key,
                              const struct br_yaml *list)
{
    for (size_t i = 0; list->type == BR_YAML_SEQ && i < list->count; i++) {
        const struct br_adapt_unit *unit = br_adapt_resolve(adapter, BR_PROCESSOR, list->items[i]);
        if (!unit || !unit->lacking || adapter->adapt->accept_loss ||
            br_foreign_is_harmless(unit->type))
            continue;
        struct br_adapt_loss *loss =
            br_adapt_keep(adapter, br_arena_calloc(adapter->adapt->arena, 1, sizeof *loss));
        if (!loss)
            return;
        *loss = (struct br_adapt_loss){adapter->losses, unit, key};
        adapter->losses = loss;
    }
}

/* Removes a pipeline. */
static void adapt_remove_pipeline(struct br_adapter *adapter, struct br_yaml *pipelines,
                                  size_t index, const char *why)
{
    char path[192];
    br_path_join(path, "service::pipelines", pipelines->keys[index]->text);
    adapt_remove(adapter, pipelines, index, path, why);
}

static void adapt_signals(struct br_adapter *adapter, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->count;) {
        const char *id =
            br_adapt_keep(adapter, br_id_trim(adapter->adapt->arena, pipelines->keys[i]->text));
        if (!id || !br_adapt_is_foreign_signal(id)) {
            i++;
            continue;
        }
        adapt_mark_units(adapter, pipelines->items[i], false);
        adapt_remove_pipeline(
            adapter, pipelines, i,
            adapter->adapt->split
                ? "the Collector keeps it, because Braid supports only traces and profiles"
                : "Braid supports only traces and profiles");
    }
}

/* Removes the unsupported components from a pipeline's list of receivers or exporters. Returns true
 * if no component remains in the list. */
static bool adapt_empties_list(struct br_adapter *adapter, const struct br_yaml *pipeline,
                               size_t index)
{
    struct br_yaml *list = br_yaml_get(pipeline, br_adapt_lists[index].key);
    if (!list || br_adapt_lists[index].kind == BR_PROCESSOR)
        return false;
    if (list->type == BR_YAML_SEQ) {
        size_t before = list->count;
        return before && (adapt_list(adapter, list, br_adapt_lists[index].kind), list->count == 0);
    }
    const struct br_adapt_unit *unit =
        list->type == BR_YAML_SCALAR ? br_adapt_resolve(adapter, br_adapt_lists[index].kind, list)
                                     : NULL;
    return unit && unit->lacking;
}

/* Returns the reason why a pipeline is removed, with the ids of its unsupported components. */
static const char *adapt_why_empty(struct br_adapter *adapter, const struct br_yaml *pipeline,
                                   size_t index)
{
    struct br_str text = {.max = 300};
    const struct br_yaml *list = br_yaml_get(pipeline, br_adapt_lists[index].key);
    bool seq = list && list->type == BR_YAML_SEQ;
    br_str_printf(&text, "%sBraid supports none of its %s",
                  adapter->adapt->split ? "the Collector keeps it, because " : "",
                  br_adapt_lists[index].key);
    for (size_t i = 0; list && i < (seq ? list->count : 1); i++) {
        const struct br_yaml *item = seq ? list->items[i] : list;
        if (item->type == BR_YAML_SCALAR)
            br_str_printf(&text, "%s%s", i ? ", " : ": ", item->text);
    }
    const char *kept = br_adapt_keep(
        adapter, br_arena_strndup(adapter->adapt->arena, text.data ? text.data : "", text.len));
    br_str_release(&text);
    return kept;
}

/* Removes a pipeline if none of its receivers, or none of its exporters, is supported. */
static bool adapt_remove_empty_pipeline(struct br_adapter *adapter, struct br_yaml *pipelines,
                                        size_t index, size_t list)
{
    struct br_yaml *pipeline = pipelines->items[index];
    const char *why = adapt_why_empty(adapter, pipeline, list);
    if (!adapt_empties_list(adapter, pipeline, list))
        return false;
    adapt_mark_units(adapter, pipeline, false);
    adapt_remove_pipeline(adapter, pipelines, index, why);
    return true;
}

/* Removes the unsupported components from a pipeline. Returns false if the whole pipeline was
 * removed. */
static bool adapt_pipeline(struct br_adapter *adapter, struct br_yaml *pipelines, size_t index)
{
    for (size_t k = 0; k < BR_ADAPT_LISTS && !adapter->no_memory; k++)
        if (br_adapt_lists[k].kind != BR_PROCESSOR &&
            adapt_remove_empty_pipeline(adapter, pipelines, index, k))
            return false;
    struct br_yaml *list = br_yaml_get(pipelines->items[index], "processors");
    if (list) {
        adapt_note_losses(adapter, pipelines->keys[index], list);
        adapt_list(adapter, list, BR_PROCESSOR);
    }
    return true;
}

/* Removes a pipeline from Braid's configuration if Braid supports none of its exporters, or if an
 * exporter sends headers from client requests. The Collector then runs the whole pipeline. The
 * links between the Collector and Braid do not forward headers from client requests. */
static bool adapt_keep_in_collector(struct br_adapter *adapter, struct br_yaml *pipelines,
                                    size_t index)
{
    const struct br_yaml *list = br_yaml_get(pipelines->items[index], "exporters");
    bool seq = list && list->type == BR_YAML_SEQ, by_client = false;
    size_t n = seq ? list->count : list && list->type == BR_YAML_SCALAR, n_lacking = 0;
    for (size_t i = 0; i < n; i++) {
        const struct br_adapt_unit *unit =
            br_adapt_resolve(adapter, BR_EXPORTER, seq ? list->items[i] : list);
        n_lacking += unit && unit->lacking;
        by_client = by_client || (unit && unit->by_client);
    }
    if (!by_client && (!n || n_lacking < n))
        return false;
    const char *why =
        by_client ? "the Collector keeps it, because an exporter sends headers from client requests"
                  : adapt_why_empty(adapter, pipelines->items[index], 2);
    adapt_mark_units(adapter, pipelines->items[index], false);
    adapt_remove_pipeline(adapter, pipelines, index, why);
    return true;
}

/* Removes or splits pipelines until Braid's pipelines contain only supported components. */
static void adapt_all_pipelines(struct br_adapter *adapter, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->count && !adapter->no_memory;)
        if (adapter->adapt->split ? !adapt_keep_in_collector(adapter, pipelines, i)
                                  : adapt_pipeline(adapter, pipelines, i))
            i++;
    if (adapter->adapt->split && !adapter->no_memory)
        br_adapt_split(adapter);
}

/* --- Connectors ------------------------------------------------------------------------------ */

/* Returns true if a list of a pipeline names the connector. `list` is an index of
 * br_adapt_lists. */
static bool adapt_list_names(struct br_adapter *adapter, const struct br_yaml *pipeline,
                             size_t list, const struct br_adapt_unit *connector)
{
    const struct br_yaml *items = br_yaml_get(pipeline, br_adapt_lists[list].key);
    bool seq = items && items->type == BR_YAML_SEQ;
    for (size_t i = 0; items && i < (seq ? items->count : 1); i++)
        if (br_adapt_resolve(adapter, br_adapt_lists[list].kind, seq ? items->items[i] : items) ==
            connector)
            return true;
    return false;
}

/* Returns true if pipelines name the connector as an exporter and as a receiver. */
static bool adapt_is_connected(struct br_adapter *adapter, const struct br_yaml *pipelines,
                               const struct br_adapt_unit *connector)
{
    bool exports = false, receives = false;
    for (size_t i = 0; i < pipelines->count; i++) {
        receives = receives || adapt_list_names(adapter, pipelines->items[i], 0, connector);
        exports = exports || adapt_list_names(adapter, pipelines->items[i], 2, connector);
    }
    return exports && receives;
}

static void adapt_note_connected(struct br_adapter *adapter)
{
    const struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    for (size_t i = 0; pipelines && i < adapter->n_units; i++)
        if (adapter->units[i].kind == BR_CONNECTOR)
            adapter->units[i].connected =
                adapt_is_connected(adapter, pipelines, &adapter->units[i]);
}

/* Removes each connector whose pipelines at one end were removed. Returns true if there is one. */
static bool adapt_disconnect(struct br_adapter *adapter, const struct br_yaml *pipelines)
{
    bool changed = false;
    for (size_t i = 0; i < adapter->n_units; i++) {
        struct br_adapt_unit *unit = &adapter->units[i];
        bool observes = unit->component && unit->component->observes;
        if (!unit->connected || observes || unit->lacking ||
            adapt_is_connected(adapter, pipelines, unit))
            continue;
        unit->lacking = adapter->adapt->split ? "the Collector keeps it, with its pipelines"
                                              : "the pipelines at one of its ends are left out";
        changed = true;
    }
    return changed;
}

/* Warns of connectors whose metrics went to a pipeline of metrics, which is removed. */
static void adapt_warn_observers(struct br_adapter *adapter)
{
    for (size_t i = 0; i < adapter->n_units; i++) {
        const struct br_adapt_unit *unit = &adapter->units[i];
        char path[192];
        if (unit->connected && unit->used && unit->component && unit->component->observes)
            br_errs_warn(adapter->adapt->errs, unit->key,
                         br_path_join(path, br_kind_section(BR_CONNECTOR), unit->id),
                         "Braid has no pipelines of metrics: the metrics are at the endpoint of "
                         "service::telemetry::metrics, from which Prometheus can scrape them");
    }
}

/* --- Sections -------------------------------------------------------------------------------- */

/* Returns true if the settings in `node` use the extension `id` as their authenticator. */
static bool adapt_names_authenticator(const struct br_yaml *node, const char *id)
{
    for (size_t i = 0; node && i < node->count; i++) {
        const struct br_yaml *value = node->items[i];
        bool named = node->keys && strcmp(node->keys[i]->text, "authenticator") == 0 &&
                     value->type == BR_YAML_SCALAR;
        if ((named && strcmp(value->text, id) == 0) || adapt_names_authenticator(value, id))
            return true;
    }
    return false;
}

/* Returns true if `unit` is an extension that a receiver or an exporter names as its
 * authenticator. */
static bool adapt_is_authenticator(const struct br_adapter *adapter,
                                   const struct br_adapt_unit *unit)
{
    for (size_t i = 0; unit->kind == BR_EXTENSION && i < adapter->n_units; i++)
        if (adapter->units[i].kind != BR_EXTENSION &&
            adapt_names_authenticator(adapter->units[i].node, unit->id))
            return true;
    return false;
}

static const char *adapt_why_unit(const struct br_adapter *adapter,
                                  const struct br_adapt_unit *unit)
{
    if (unit->lacking && adapter->adapt->split && adapt_is_authenticator(adapter, unit))
        return "the Collector keeps it, with the components that use it";
    if (unit->lacking && (unit->wanted || unit->kind == BR_EXTENSION))
        return unit->lacking;
    if (unit->lacking && !unit->named)
        return "no pipeline uses it";
    if (!unit->named || unit->used)
        return NULL;
    return adapter->adapt->split ? "the Collector keeps it" : "no remaining pipeline uses it";
}

static void adapt_units(struct br_adapter *adapter)
{
    for (size_t i = 0; i < adapter->n_units && !adapter->no_memory; i++) {
        struct br_adapt_unit *unit = &adapter->units[i];
        struct br_yaml *section = br_adapt_section(adapter, unit->kind);
        const char *why = adapt_why_unit(adapter, unit);
        size_t at = section ? br_yaml_index(section, unit->key->text) : 0;
        if (!why || !section || at == section->count)
            continue;
        char path[192];
        adapt_remove(adapter, section, at,
                     br_path_join(path, br_kind_section(unit->kind), unit->id), why);
    }
}

static void adapt_extensions(struct br_adapter *adapter)
{
    struct br_yaml *list = br_yaml_get(br_yaml_get(adapter->tree, "service"), "extensions");
    if (list)
        adapt_list(adapter, list, BR_EXTENSION);
}

/* Returns true if a rule of headers_setter takes its value from the client's request. */
static bool adapt_reads_client(const struct br_yaml *extension)
{
    const struct br_yaml *rules = br_yaml_get(extension, "headers");
    static const char *const keys[] = {"from_context", "from_attribute"};
    for (size_t i = 0; rules && rules->type == BR_YAML_SEQ && i < rules->count; i++)
        for (size_t k = 0; k < BR_COUNT(keys); k++) {
            const struct br_yaml *value = br_yaml_get(rules->items[i], keys[k]);
            if (value && value->type == BR_YAML_SCALAR && value->len)
                return true;
        }
    return false;
}

/* Checks an exporter's `auth`. Returns true if the exporter has to be removed from Braid's
 * configuration. With `split` or `accept_loss`, an exporter is removed if Braid does not have its
 * authenticator. With `split`, an exporter is also removed if it sends headers from client
 * requests, because the links between the Collector and Braid do not forward these headers. */
static bool adapt_auth(struct br_adapter *adapter, struct br_adapt_unit *unit)
{
    const struct br_yaml *name = br_yaml_get(br_yaml_get(unit->node, "auth"), "authenticator");
    const struct br_adapt_unit *extension =
        name ? br_adapt_resolve(adapter, BR_EXTENSION, name) : NULL;
    bool by_client = adapter->adapt->split && extension && adapt_reads_client(extension->node);
    if (!extension || (extension->component && !by_client))
        return false; /* the loader checks `auth` if Braid has the authenticator */
    const char *why = by_client ? "it sends headers from client requests"
                                : "Braid does not have its authenticator";
    unit->refused = br_adapt_keep(
        adapter, br_arena_printf(adapter->adapt->arena, "%s%s",
                                 adapter->adapt->split ? "the Collector keeps it: " : "", why));
    if (!adapter->adapt->split && !adapter->adapt->accept_loss)
        return false;
    unit->lacking = unit->refused;
    unit->by_client = by_client;
    return true;
}

/* Checks the `auth` of all exporters in use. Returns true if at least one exporter has to be
 * removed. */
static bool adapt_auths(struct br_adapter *adapter)
{
    bool lost = false;
    for (size_t i = 0; i < adapter->n_units && !adapter->no_memory; i++) {
        struct br_adapt_unit *unit = &adapter->units[i];
        if (unit->kind != BR_EXPORTER || !unit->component || !unit->used)
            continue;
        const struct br_yaml *auth = br_yaml_get(unit->node, "auth");
        if (auth && auth->type == BR_YAML_MAP && !unit->lacking && !unit->refused)
            lost = adapt_auth(adapter, unit) || lost;
    }
    return lost;
}

/* Marks authenticators as unsupported if no remaining component uses them. */
static void adapt_unused_authenticators(struct br_adapter *adapter)
{
    for (size_t i = 0; i < adapter->n_units; i++) {
        struct br_adapt_unit *unit = &adapter->units[i];
        bool in_use = false;
        if (unit->kind != BR_EXTENSION || !unit->component || !unit->component->authenticates ||
            unit->lacking || !adapt_is_authenticator(adapter, unit))
            continue;
        for (size_t k = 0; k < adapter->n_units; k++) {
            const struct br_adapt_unit *user = &adapter->units[k];
            bool stays = user->kind == BR_EXTENSION ? user != unit : user->used && !user->lacking;
            in_use = in_use || (stays && adapt_names_authenticator(user->node, unit->id));
        }
        if (!in_use)
            unit->lacking = adapter->adapt->split
                                ? "the Collector keeps it, with the components that use it"
                                : "the components that use it are left out";
    }
}

static void adapt_mark_used(struct br_adapter *adapter, const struct br_yaml *pipelines)
{
    for (size_t i = 0; i < adapter->n_units; i++)
        adapter->units[i].used = false;
    for (size_t i = 0; i < pipelines->count; i++)
        adapt_mark_units(adapter, pipelines->items[i], true);
}

/* Removes unsupported pipelines and components. Called again after settings were removed, because
 * the removal may have made a component unsupported. */
static int adapt_components(struct br_adapter *adapter)
{
    struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    if (!pipelines || pipelines->count == 0)
        return 0; /* the loader reports an error if there are no pipelines */
    if (adapter->adapt->split)
        br_adapt_split_connectors(adapter);
    adapt_signals(adapter, pipelines);
    adapt_all_pipelines(adapter, pipelines);
    adapt_mark_used(adapter, pipelines);
    if (adapt_auths(adapter)) {
        adapt_all_pipelines(adapter, pipelines);
        adapt_mark_used(adapter, pipelines);
    }
    while (adapt_disconnect(adapter, pipelines)) {
        adapt_all_pipelines(adapter, pipelines);
        adapt_mark_used(adapter, pipelines);
    }
    adapt_unused_authenticators(adapter);
    adapt_extensions(adapter);
    adapt_units(adapter);
    if (pipelines->count)
        return 0;
    return br_errs_add(adapter->adapt->errs, pipelines, "service::pipelines",
                       adapter->adapt->split
                           ? "no pipeline remains for Braid: all pipelines of traces and profiles "
                             "have to stay in the Collector; no file was written"
                           : "no pipeline remains: no pipeline of traces or profiles has a "
                             "receiver and an exporter that Braid supports");
}

/* --- Errors of the loader -------------------------------------------------------------------- */

/* The path from the root of the tree to a node, as keys and list indices. */
struct chain {
    struct {
        struct br_yaml *parent;
        size_t index;
    } value[CHAIN_MAX];
    size_t count;
};

static struct br_yaml *adapt_chain_value(const struct chain *chain, size_t index)
{
    return chain->value[index].parent->items[chain->value[index].index];
}

static const char *adapt_chain_key(const struct chain *chain, size_t index)
{
    const struct br_yaml *parent = chain->value[index].parent;
    return parent->keys ? parent->keys[chain->value[index].index]->text : "";
}

static bool adapt_chain_add(struct chain *chain, struct br_yaml *parent, size_t index)
{
    if (chain->count == CHAIN_MAX || index >= parent->count)
        return false;
    chain->value[chain->count].parent = parent;
    chain->value[chain->count++].index = index;
    return true;
}

/* Finds the key of `map` that is at the start of `path`. Returns the index of the key, or the
 * number of keys if no key matches. Several keys may match, because keys may contain "::". Returns
 * the index of the longest key that matches. */
static size_t adapt_chain_step(const struct br_yaml *map, const char *path, size_t *ret_len)
{
    size_t best = map->count, best_len = 0;
    for (size_t i = 0; map->type == BR_YAML_MAP && i < map->count; i++) {
        size_t len = strlen(map->keys[i]->text);
        const char *after = path + len;
        bool fits = strncmp(path, map->keys[i]->text, len) == 0 &&
                    (*after == '\0' || *after == '[' || br_text_starts(after, "::"));
        if (fits && len >= best_len) {
            best = i;
            best_len = len;
        }
    }
    *ret_len = best_len;
    return best;
}

/* Adds the nodes on the path of an error to the chain. Stops at the first node that does not
 * exist. */
static void adapt_chain_follow(struct chain *chain, struct br_yaml *tree, const char *path)
{
    struct br_yaml *at = tree;
    while (*path) {
        size_t len = 0;
        if (*path == '[') {
            char *end;
            size_t index = (size_t)strtoul(path + 1, &end, 10);
            if (at->type != BR_YAML_SEQ || *end != ']' || !adapt_chain_add(chain, at, index))
                return;
            len = (size_t)(end + 1 - path);
        } else {
            size_t index = adapt_chain_step(at, path, &len);
            if (len == 0 || !adapt_chain_add(chain, at, index))
                return;
        }
        at = adapt_chain_value(chain, chain->count - 1);
        path += len;
        path += br_text_starts(path, "::") ? 2 : 0;
    }
}

static bool adapt_chain_is_at(const struct br_yaml *node, const struct br_err *err)
{
    return node->line == err->line && node->col == err->col;
}

/* Extends the chain to the key or list item at the line and column of the error. */
static void adapt_chain_point(struct chain *chain, const struct br_err *err)
{
    struct br_yaml *at = chain->count ? adapt_chain_value(chain, chain->count - 1) : NULL;
    bool by_key = at && at->type == BR_YAML_MAP && err->code == BR_EUNSUPPORTED;
    bool slip = at && at->type == BR_YAML_MAP && br_text_starts(err->text, "unknown key");
    for (size_t i = 0; at && i < at->count; i++) {
        bool here = at->type == BR_YAML_SEQ
                        ? adapt_chain_is_at(at->items[i], err)
                        : (by_key || slip) && adapt_chain_is_at(at->keys[i], err);
        if (here && adapt_chain_add(chain, at, i))
            return;
    }
}

/* Returns the position of the first key in the chain that configures TLS or authentication, or the
 * length of the chain if there is no such key. */
static size_t adapt_chain_guard(const struct chain *chain)
{
    static const char *const guards[] = {"tls", "tls_settings", "auth"};
    for (size_t i = 2; i < chain->count; i++)
        for (size_t k = 0; k < BR_COUNT(guards); k++)
            if (strcmp(adapt_chain_key(chain, i), guards[k]) == 0)
                return i;
    return chain->count;
}

static bool adapt_is_expanded(const struct br_yaml *node)
{
    if (!node || node->expanded)
        return node != NULL;
    for (size_t i = 0; i < node->count; i++)
        if (adapt_is_expanded(node->items[i]))
            return true;
    return false;
}

/* Returns the text of an error without the name of the key, because the warning already contains
 * this name. */
static const char *adapt_why(struct br_adapter *adapter, const struct br_err *err)
{
    const char *text = err->text, *end = text[0] == '"' ? strstr(text, "\": ") : NULL;
    if (end)
        text = end + 3;
    return br_adapt_keep(adapter, br_arena_strndup(adapter->adapt->arena, text, strlen(text)));
}

/* Returns true if the chain has an item of a list `conditions` at position `index`. A condition can
 * be removed alone, because each condition is a separate rule. */
static bool adapt_chain_is_condition(const struct chain *chain, size_t index)
{
    return !chain->value[index].parent->keys &&
           strcmp(adapt_chain_key(chain, index - 1), "conditions") == 0;
}

/* Returns the component that contains the setting at the end of the chain, or NULL. */
static struct br_adapt_unit *adapt_chain_unit(const struct br_adapter *adapter,
                                              const struct chain *chain)
{
    const struct br_yaml *parent = chain->value[1].parent;
    for (size_t i = 0; parent->keys && i < adapter->n_units; i++)
        if (adapter->units[i].key == parent->keys[chain->value[1].index])
            return &adapter->units[i];
    return NULL;
}

/* Finds the component that contains the setting at the end of the chain, and marks the component as
 * unsupported. */
static bool adapt_mark_lacking(struct br_adapter *adapter, const struct chain *chain,
                               const char *why)
{
    struct br_adapt_unit *unit = adapt_chain_unit(adapter, chain);
    if (!unit || unit->lacking)
        return false;
    unit->lacking = why;
    return true;
}

/* Returns true if a value from ${...} may be the cause of an error. An error of a whole component
 * is not attributed to ${...} if a setting of the component was removed. */
static bool adapt_may_be_expanded(const struct br_adapter *adapter, const struct chain *chain)
{
    const struct br_adapt_unit *unit = chain->count == 2 ? adapt_chain_unit(adapter, chain) : NULL;
    return adapt_is_expanded(adapt_chain_value(chain, chain->count - 1)) && !(unit && unit->cut);
}

static int adapt_kind_of(const char *section)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(section, br_kind_section((enum br_kind)kind)) == 0)
            return kind;
    return -1;
}

/* Returns true if the setting at the end of the chain is one without which the component cannot do
 * its work: the resolver of load_balancing, or the credentials for the Kubernetes API. */
static bool adapt_chain_is_essential(const struct chain *chain)
{
    const struct {
        const char *section, *key;
        size_t count; /* length of the chain */
    } rows[] = {{"exporters", "resolver", 4}, {"processors", "auth_type", 3}};
    for (size_t i = 0; i < BR_COUNT(rows); i++)
        if (chain->count == rows[i].count &&
            strcmp(adapt_chain_key(chain, 0), rows[i].section) == 0 &&
            strcmp(adapt_chain_key(chain, 2), rows[i].key) == 0)
            return true;
    return false;
}

/* Ways to handle an error that the loader reports. */
enum adapt_action {
    ADAPT_REPORT,           /* change nothing and report the error */
    ADAPT_REMOVE_SETTING,   /* remove the setting at position `last` of the chain */
    ADAPT_REMOVE_COMPONENT, /* remove the whole component */
};

/* Returns true for a processor whose settings may drop or change data. */
static bool adapt_is_lossy(const struct br_adapt_unit *unit)
{
    return unit && unit->kind == BR_PROCESSOR && !br_foreign_is_harmless(unit->type);
}

/* Chooses how to handle an error. Sets `*ret_last` to the position of the setting to remove. If
 * `loss` is true, the setting may be removed even if it protects, drops or changes data. */
static enum adapt_action adapt_decide(struct br_adapter *adapter, const struct chain *chain,
                                      const struct br_err *err, bool loss, size_t *ret_last)
{
    if (chain->count < 2 || (!loss && err->code != BR_EUNSUPPORTED))
        return ADAPT_REPORT;
    if (loss && adapt_may_be_expanded(adapter, chain))
        return ADAPT_REPORT;
    int kind = adapt_kind_of(adapt_chain_key(chain, 0));
    if (kind < 0 && err->code != BR_EUNSUPPORTED &&
        strcmp(adapt_chain_key(chain, 1), "telemetry") != 0)
        return ADAPT_REPORT; /* the Collector rejects this setting too */
    size_t guard = adapt_chain_guard(chain), last = chain->count - 1;
    bool serves = kind == BR_RECEIVER || kind == BR_EXTENSION;
    bool protects =
        guard < chain->count && (serves || strcmp(adapt_chain_key(chain, guard), "auth") == 0);
    bool matters = protects || adapt_is_lossy(adapt_chain_unit(adapter, chain));
    if (matters && !loss)
        return adapter->adapt->split && kind != BR_EXTENSION ? ADAPT_REMOVE_COMPONENT
                                                             : ADAPT_REPORT;
    if (serves && guard < chain->count)
        for (last = guard - 1; last > 1 && chain->value[last].parent->count == 1;)
            /* a component whose only protocol is removed is useless, so remove the component */
            last--;
    else if (kind == BR_EXPORTER && guard < chain->count &&
             strcmp(adapt_chain_key(chain, guard), "tls_settings") != 0)
        /* an exporter must not send without its credentials or TLS, so remove the exporter */
        last = 1;
    if (adapt_chain_is_essential(chain))
        last = 1;
    for (size_t i = 2; i < last; i++)
        if (!chain->value[i].parent->keys && !adapt_chain_is_condition(chain, last))
            /* a rule without one of its conditions would match other data, so remove the whole
             * rule */
            last = i;
    *ret_last = last;
    return kind >= 0 && last == 1 ? ADAPT_REMOVE_COMPONENT : ADAPT_REMOVE_SETTING;
}

static bool adapt_chain_is_auth(const struct chain *chain)
{
    return chain->count >= 3 && adapt_kind_of(adapt_chain_key(chain, 0)) == BR_EXPORTER &&
           strcmp(adapt_chain_key(chain, 2), "auth") == 0;
}

/* Removes the cause of an error. Returns false if the cause cannot be removed, so that the error
 * has to be reported. */
static bool adapt_resolve_error(struct br_adapter *adapter, const struct br_err *err)
{
    struct chain chain = {.count = 0};
    adapt_chain_follow(&chain, adapter->tree, err->path);
    adapt_chain_point(&chain, err);
    if (chain.count < 2)
        return false; /* only an error inside a top-level section can be resolved */
    const struct br_adapt_unit *exporter =
        adapt_chain_is_auth(&chain) ? adapt_chain_unit(adapter, &chain) : NULL;
    if (exporter && exporter->refused)
        return false; /* adapt_report prints the reason that adapt_auth has recorded */
    size_t last = 0;
    enum adapt_action action =
        adapt_decide(adapter, &chain, err, adapter->adapt->accept_loss, &last);
    const char *why = action == ADAPT_REPORT ? NULL : adapt_why(adapter, err);
    if (!why)
        return false;
    if (action == ADAPT_REMOVE_COMPONENT && adapter->adapt->split)
        why = br_adapt_keep(
            adapter, br_arena_printf(adapter->adapt->arena, "the Collector keeps it: %s", why));
    if (action == ADAPT_REMOVE_COMPONENT)
        return why && adapt_mark_lacking(adapter, &chain, why);
    struct br_adapt_unit *unit = adapt_chain_unit(adapter, &chain);
    if (unit)
        unit->cut = true;
    adapt_remove(adapter, chain.value[last].parent, chain.value[last].index, err->path, why);
    return true;
}

/* Loads the configuration once and removes the causes of the errors that the loader reports.
 * Returns the number of errors that were resolved. */
static size_t adapt_round(struct br_adapter *adapter, struct br_errs *errs)
{
    struct br_config *config = NULL;
    size_t n_resolved = 0;
    if (br_config_load_tree(adapter->tree, adapter->adapt->registry, &config, errs) == BR_ENOMEM)
        adapter->no_memory = true;
    br_config_free(config);
    /* an item was removed from a list, so list indices in the paths of later errors may be wrong */
    bool moved = false;
    for (size_t i = 0; i < errs->n_errors && !adapter->no_memory; i++) {
        bool in_list = strchr(errs->errors[i].path, '[') != NULL;
        if ((in_list && moved) || !adapt_resolve_error(adapter, &errs->errors[i]))
            continue;
        moved = moved || in_list;
        n_resolved++;
    }
    return n_resolved;
}

#define ADAPT_HINT "; --accept-loss removes it, migrate --rest keeps it in a Collector"

/* Reports a remaining error. Adds the command-line options that avoid the error, if there are
 * any. */
static int adapt_report(struct br_adapter *adapter, const struct chain *chain,
                        const struct br_err *err)
{
    const struct br_yaml at = {.file = err->file, .line = err->line, .col = err->col};
    const struct br_adapt_unit *unit = chain->count >= 2 ? adapt_chain_unit(adapter, chain) : NULL;
    size_t last;
    bool avoidable = err->code == BR_EUNSUPPORTED && !adapter->adapt->accept_loss &&
                     !adapter->adapt->split &&
                     adapt_decide(adapter, chain, err, true, &last) != ADAPT_REPORT;
    if (adapt_chain_is_auth(chain) && unit && unit->refused)
        return br_errs_add(
            adapter->adapt->errs, &at, err->path, "\"auth\": %s%s", unit->refused,
            !adapter->adapt->accept_loss && !adapter->adapt->split
                ? "; --accept-loss removes the exporter, migrate --rest keeps it in a Collector"
                : "");
    size_t len = strlen(err->text);
    len -= avoidable && len && err->text[len - 1] == '.';
    return br_errs_add(adapter->adapt->errs, &at, err->path, "%.*s%s", (int)len, err->text,
                       avoidable ? ADAPT_HINT : "");
}

/* Reports the remaining errors. With `elsewhere`, an error in a value from ${...} is reported as a
 * warning, because the variable may have another value on the machine that will run the
 * configuration. */
static int adapt_report_all(struct br_adapter *adapter, const struct br_errs *errs)
{
    int rc = 0;
    for (size_t i = 0; i < errs->n_errors; i++) {
        const struct br_err *err = &errs->errors[i];
        const struct br_yaml at = {.file = err->file, .line = err->line, .col = err->col};
        struct chain chain = {.count = 0};
        adapt_chain_follow(&chain, adapter->tree, err->path);
        adapt_chain_point(&chain, err);
        if (adapter->adapt->elsewhere && chain.count >= 2 &&
            adapt_is_expanded(adapt_chain_value(&chain, chain.count - 1)))
            br_errs_warn(adapter->adapt->errs, &at, err->path,
                         "depends on ${...} and is invalid in this environment: %s", err->text);
        else
            rc = adapt_report(adapter, &chain, err);
    }
    return rc;
}

/* Reports an error for each removed processor that may drop, hide or change data, unless its
 * pipeline was also removed. */
static int adapt_report_losses(struct br_adapter *adapter)
{
    const struct br_yaml *pipelines = br_adapt_pipelines(adapter);
    int rc = 0;
    for (size_t i = 0; i < adapter->n_units; i++) {
        const struct br_adapt_unit *unit = &adapter->units[i];
        bool missed = false;
        for (const struct br_adapt_loss *loss = adapter->losses; loss; loss = loss->next)
            for (size_t k = 0; pipelines && k < pipelines->count; k++)
                missed = missed || (loss->unit == unit && loss->pipeline == pipelines->keys[k]);
        char path[192];
        if (missed)
            rc = br_errs_add(adapter->adapt->errs, unit->key,
                             br_path_join(path, br_kind_section(unit->kind), unit->id),
                             "cannot be removed without loss: %s%s" ADAPT_HINT,
                             unit->foreign ? "it " : "Braid does not know it",
                             unit->foreign ? unit->foreign->purpose : "");
    }
    return rc;
}

/* Removes settings and components until the loader reports no error that can be resolved. Each
 * round removes at least one setting or component, so the loop ends. */
static int adapt_settings(struct br_adapter *adapter)
{
    int rc = 0;
    for (bool more = true; more && !rc && !adapter->no_memory;) {
        struct br_errs errs = {0};
        more = adapt_round(adapter, &errs) > 0;
        if (more)
            rc = adapt_components(adapter);
        else
            rc = adapt_report_all(adapter, &errs);
        br_errs_release(&errs);
    }
    return rc;
}

int br_config_adapt(const struct br_adapt *adapt, struct br_yaml *tree)
{
    struct br_adapter adapter = {.adapt = adapt, .tree = tree};
    adapt_collect(&adapter);
    adapt_note_connected(&adapter);
    if (adapt->split && !adapter.no_memory)
        br_adapt_plan_all(&adapter);
    int rc = adapter.no_memory ? 0 : adapt_components(&adapter);
    if (rc == 0 && !adapter.no_memory)
        rc = adapt_settings(&adapter);
    if (rc != BR_ENOMEM && adapt_report_losses(&adapter))
        rc = BR_EINVAL;
    if (rc == 0 && adapt->split && !adapter.no_memory)
        br_adapt_plan_end(&adapter);
    if (rc == 0)
        adapt_warn_observers(&adapter);
    return adapter.no_memory ? br_errs_no_memory(adapt->errs) : rc;
}
