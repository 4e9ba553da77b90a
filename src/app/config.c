/* SPDX-License-Identifier: Apache-2.0 */
#include "app/config.h"

#include <string.h>

#include "app/adapt.h"
#include "app/authenticators.h"
#include "app/connectors.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"
#include "pipeline/exporter.h"

#define NAME_MAX_CHARS 1024
#define KINDS (BR_EXTENSION + 1)

/* The top-level keys of a file. Sections are kept as nodes, because their keys are ids that the
 * user has chosen. */
struct top {
    const struct br_yaml *sections[KINDS];
    const struct br_yaml *service;
};

struct service {
    const struct br_yaml *extensions, *pipelines, *telemetry, *workers;
    struct br_fanout_config fanout;
};

struct lists {
    const struct br_yaml *receivers, *processors, *exporters;
};

#define SECTION(key, which, text)                                                                  \
    {                                                                                              \
        .name = (key), .kind = BR_OPT_VALUE, .offset = offsetof(struct top, sections[which]),      \
        .help = (text)                                                                             \
    }

static const struct br_option top_options[] = {
    SECTION("receivers", BR_RECEIVER, "components that receive data"),
    SECTION("processors", BR_PROCESSOR, "components that change or drop data"),
    SECTION("exporters", BR_EXPORTER, "components that send data"),
    SECTION("connectors", BR_CONNECTOR, "components that connect pipelines"),
    SECTION("extensions", BR_EXTENSION, "components outside the pipelines"),
    BR_VALUE(struct top, service, "pipelines, extensions and settings of the process"),
    BR_OPT_END,
};

const struct br_option br_service_options[] = {
    BR_VALUE(struct service, extensions, "ids of the extensions that run"),
    BR_VALUE(struct service, pipelines,
             "map of pipelines: `traces` or `profiles`, with `/NAME` if a signal has several "
             "pipelines; each lists `receivers`, `processors` in order, and `exporters`"),
    BR_VALUE(struct service, telemetry, "log and metrics of the process itself"),
    BR_VALUE(struct service, workers,
             "number of event loops, each in a thread, or `auto` for one per core; default: 1"),
    BR_STRUCT(
        struct service, fanout, br_fanout_options,
        "limits for records that wait for a slow destination after another one accepted them"),
    BR_OPT_END,
};

static const struct br_option lists_options[] = {
    BR_VALUE(struct lists, receivers, "ids of components"),
    BR_VALUE(struct lists, processors,
             "ids of components, in the order in which they process data"),
    BR_VALUE(struct lists, exporters, "ids of components"),
    BR_OPT_END,
};

/* Data that the loader needs for an instance. An instance of an unknown type stays in
 * config->instances, although loading fails in this case. A pipeline that lists the instance
 * therefore does not cause a second error. */
struct slot {
    enum br_kind kind;
    const struct br_yaml *key;
    bool idle; /* a Collector component that changes no data; pipelines omit it */
};

struct loader {
    struct br_config *config;
    const struct br_component *const *registry;
    struct br_arena *arena;
    struct br_errs *errs;
    struct slot *slots; /* the loader's data for config->instances, at the same indices */
    const struct top *top;
    /* a top-level key is invalid, so a section may be missing because its key is misspelt */
    bool top_failed;
    bool no_memory;
};

/* The type and the whole text of an id "type/name". Both texts are in the arena. */
struct id {
    const char *type;
    const char *whole;
};

static void *loader_keep(struct loader *loader, void *memory)
{
    loader->no_memory = loader->no_memory || !memory;
    return memory;
}

static void loader_note(struct loader *loader, int rc)
{
    loader->no_memory = loader->no_memory || rc == BR_ENOMEM;
}

/* Returns true if a name has at most NAME_MAX_CHARS characters and no spaces, control characters or
 * ASCII symbols. The Collector also rejects symbols outside ASCII. */
static bool loader_name_valid(const char *name, size_t len)
{
    size_t chars = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c <= ' ' || c == 0x7f || strchr("$+<=>^`|~", c))
            return false;
        chars += (c & 0xc0) != 0x80;
    }
    return chars <= NAME_MAX_CHARS;
}

/* Splits an id into its parts and checks it. Adds an error and returns false if the id is
 * invalid. */
static bool loader_id_parse(struct loader *loader, const struct br_yaml *node, const char *path,
                            struct id *ret)
{
    char shown[BR_SHOWN_SIZE];
    const char *slash = strchr(node->text, '/');
    const char *type = node->text, *name = slash ? slash + 1 : "";
    size_t type_len = slash ? (size_t)(slash - type) : node->len, name_len = strlen(name);
    br_text_strip(&type, &type_len);
    br_text_strip(&name, &name_len);
    if (type_len == 0 || (slash && name_len == 0)) {
        br_errs_add(loader->errs, node, path, "%s is not an id: write type or type/name",
                    br_text_show(node->text, shown));
        return false;
    }
    if (!loader_name_valid(name, name_len)) {
        br_errs_add(loader->errs, node, path,
                    "the name in %s must be at most %d characters without spaces and symbols",
                    br_text_show(node->text, shown), NAME_MAX_CHARS);
        return false;
    }
    ret->type = loader_keep(loader, br_arena_strndup(loader->arena, type, type_len));
    ret->whole = loader_keep(loader, br_arena_printf(loader->arena, "%.*s%s%.*s", (int)type_len,
                                                     type, slash ? "/" : "", (int)name_len, name));
    return ret->type && ret->whole;
}

static struct br_instance *loader_find_instance(const struct loader *loader, enum br_kind kind,
                                                const char *id)
{
    for (size_t i = 0; i < loader->config->n_instances; i++)
        if (loader->slots[i].kind == kind && strcmp(loader->config->instances[i].id, id) == 0)
            return &loader->config->instances[i];
    return NULL;
}

/* Returns the name in the registry that is most similar to `type`, or NULL. Sets `*ret_any` to true
 * if the registry has at least one component of this kind. */
static const char *loader_nearest_component(const struct loader *loader, enum br_kind kind,
                                            const char *type, bool *ret_any)
{
    const char *names[512];
    size_t n = 0;
    for (const struct br_component *const *c = loader->registry; *c && n + 2 <= BR_COUNT(names);
         c++) {
        if ((*c)->kind != kind)
            continue;
        names[n++] = (*c)->name;
        if ((*c)->alias)
            names[n++] = (*c)->alias;
    }
    *ret_any = n > 0;
    return br_str_nearest(type, names, n);
}

/* Adds an error for a component of the Collector that Braid does not have. */
static void loader_refuse_foreign(struct loader *loader, const struct slot *slot, const char *path,
                                  const char *type, const struct br_foreign *foreign)
{
    br_errs_add(loader->errs, slot->key, path,
                "\"%s\": Braid does not support this %s, which %s%s%s", type,
                br_kind_name(slot->kind), foreign->purpose, foreign->advice ? ". " : "",
                foreign->advice ? foreign->advice : "");
}

static const char *loader_article(enum br_kind kind)
{
    return kind == BR_EXPORTER || kind == BR_EXTENSION ? "an" : "a";
}

/* Returns a kind, other than `kind`, that has a component of this type, or -1 if there is none. */
static int loader_other_kind(const struct loader *loader, enum br_kind kind, const char *type)
{
    for (int other = KINDS - 1; other >= 0; other--)
        if (other != (int)kind && br_component_find(loader->registry, (enum br_kind)other, type))
            return other;
    return -1;
}

static void loader_refuse_type(struct loader *loader, const struct slot *slot, const char *path,
                               const char *type)
{
    char shown[BR_SHOWN_SIZE];
    bool any;
    if (br_errs_full(loader->errs))
        return;
    const struct br_foreign *foreign = br_foreign_find(slot->kind, type);
    if (foreign && foreign->support == BR_FOREIGN_LACKING) {
        loader_refuse_foreign(loader, slot, path, type, foreign);
        return;
    }
    const char *kind = br_kind_name(slot->kind);
    if (!foreign && br_foreign_is_collectors(slot->kind, type)) {
        br_errs_add(loader->errs, slot->key, path,
                    "\"%s\": Braid does not support this %s of the Collector", type, kind);
        return;
    }
    const char *nearest = loader_nearest_component(loader, slot->kind, type, &any);
    const char *collectors = br_foreign_nearest(slot->kind, type, nearest);
    int other = loader_other_kind(loader, slot->kind, type);
    br_text_show(type, shown);
    foreign = collectors ? br_foreign_find(slot->kind, collectors) : NULL;
    if (foreign && foreign->support == BR_FOREIGN_LACKING)
        br_errs_add(loader->errs, slot->key, path,
                    "unknown %s %s; did you mean \"%s\"? Braid does not support it: it %s", kind,
                    shown, collectors, foreign->purpose);
    else if (nearest)
        br_errs_add(loader->errs, slot->key, path,
                    "unknown %s %s; did you mean \"%s\"? \"braid components\" lists all", kind,
                    shown, nearest);
    else if (other >= 0)
        br_errs_add(loader->errs, slot->key, path, "unknown %s %s; it is %s %s: define it under %s",
                    kind, shown, loader_article((enum br_kind)other),
                    br_kind_name((enum br_kind)other), br_kind_section((enum br_kind)other));
    else if (any)
        br_errs_add(loader->errs, slot->key, path, "unknown %s %s; \"braid components\" lists all",
                    kind, shown);
    else
        br_errs_add(loader->errs, slot->key, path, "unknown %s %s; Braid has no %s", kind, shown,
                    br_kind_section(slot->kind));
}

/* Reads a component's settings with its option table, then calls the component's check. */
static void loader_read_config(struct loader *loader, struct br_instance *instance,
                               const char *path)
{
    const struct br_component *component = instance->component;
    void *config = loader_keep(loader, br_arena_calloc(loader->arena, 1, component->config_size));
    if (!config)
        return;
    instance->config = config;
    size_t before = loader->errs->n_errors;
    int rc = br_options_read(component->options, instance->node, path, config, loader->arena,
                             loader->errs);
    if (rc == 0)
        rc = br_config_check_tls(component->options, config, instance->node, path, loader->arena,
                                 loader->errs);
    if (rc == 0 && component->check)
        rc = component->check(config, instance->node, path, loader->arena, loader->errs);
    loader_note(loader, rc);
    /* The check failed without adding an error. */
    if (rc && rc != BR_ENOMEM && loader->errs->n_errors == before)
        br_errs_add(loader->errs, instance->node, path, "%s", br_strerror(rc));
}

/* Returns Braid's component of a type, or NULL if there is none. The type may be the name that the
 * Collector uses for the component. */
static const struct br_component *loader_find_component(struct loader *loader, struct slot *slot,
                                                        const char *path, const char *type)
{
    const struct br_component *found = br_component_find(loader->registry, slot->kind, type);
    const struct br_foreign *foreign = found ? NULL : br_foreign_find(slot->kind, type);
    if (!foreign || foreign->support == BR_FOREIGN_LACKING)
        return found;
    slot->idle = foreign->support == BR_FOREIGN_IDLE;
    if (!slot->idle)
        found = br_component_find(loader->registry, slot->kind, foreign->as);
    if (slot->idle)
        br_errs_warn(loader->errs, slot->key, path, "is read and has no effect: %s",
                     foreign->purpose);
    else if (found)
        br_errs_warn(loader->errs, slot->key, path, "is read as the %s \"%s\"",
                     br_kind_name(slot->kind), foreign->as);
    return found;
}

static void loader_instance(struct loader *loader, enum br_kind kind, const struct br_yaml *key,
                            const struct br_yaml *node)
{
    const char *section = br_kind_section(kind);
    struct id id;
    if (!loader_id_parse(loader, key, section, &id))
        return;
    char shown[BR_SHOWN_SIZE];
    const struct br_instance *same = loader_find_instance(loader, kind, id.whole);
    if (same) {
        br_errs_add(loader->errs, key, section,
                    "the id %s is defined twice; the first definition is in line %d",
                    br_text_show(id.whole, shown),
                    loader->slots[same - loader->config->instances].key->line);
        return;
    }
    struct br_instance *instance = &loader->config->instances[loader->config->n_instances];
    struct slot *slot = &loader->slots[loader->config->n_instances++];
    *slot = (struct slot){.kind = kind, .key = key};
    *instance = (struct br_instance){.id = id.whole, .node = node};
    const char *path =
        loader_keep(loader, br_arena_printf(loader->arena, "%s::%s", section, id.whole));
    if (!path)
        return;
    instance->component = loader_find_component(loader, slot, path, id.type);
    if (instance->component)
        loader_read_config(loader, instance, path);
    else if (!slot->idle)
        loader_refuse_type(loader, slot, section, id.type);
}

static bool loader_section_usable(struct loader *loader, const struct br_yaml *node,
                                  const char *path, const char *of)
{
    char shown[BR_SHOWN_SIZE];
    if (!node || node->type == BR_YAML_NULL)
        return false;
    if (node->type == BR_YAML_MAP)
        return true;
    char slip[BR_SHOWN_SIZE + 80];
    br_errs_add(loader->errs, node, path, "must be a map of %s, got %s%s", of,
                br_yaml_show(node, shown), br_yaml_slip(node, slip));
    return false;
}

static void loader_sections(struct loader *loader, const struct top *top)
{
    size_t n = 0;
    for (int kind = 0; kind < KINDS; kind++)
        if (top->sections[kind])
            n += top->sections[kind]->count;
    loader->config->instances =
        loader_keep(loader, br_arena_calloc(loader->arena, n, sizeof *loader->config->instances));
    loader->slots = loader_keep(loader, br_arena_calloc(loader->arena, n, sizeof *loader->slots));
    for (int kind = 0; kind < KINDS && !loader->no_memory; kind++) {
        const struct br_yaml *section = top->sections[kind];
        const char *name = br_kind_section((enum br_kind)kind);
        if (!loader_section_usable(loader, section, name, name))
            continue;
        for (size_t i = 0; i < section->count && !loader->no_memory; i++)
            loader_instance(loader, (enum br_kind)kind, section->keys[i], section->items[i]);
    }
}

/* Returns a component of another kind that has this id, or NULL. Prefers exporters. */
static const struct slot *loader_find_elsewhere(const struct loader *loader, enum br_kind kind,
                                                const char *id)
{
    const struct slot *found = NULL;
    for (size_t i = 0; i < loader->config->n_instances; i++) {
        const struct slot *slot = &loader->slots[i];
        if (slot->kind != kind && strcmp(loader->config->instances[i].id, id) == 0 &&
            (!found || slot->kind == BR_EXPORTER))
            found = slot;
    }
    return found;
}

static void loader_refuse_reference(struct loader *loader, const struct br_yaml *node,
                                    const char *path, enum br_kind kind, const char *id)
{
    size_t n = 0;
    if (br_errs_full(loader->errs) || (loader->top_failed && !loader->top->sections[kind]))
        return;
    const char **names = loader_keep(
        loader, br_arena_calloc(loader->arena, loader->config->n_instances, sizeof *names));
    if (!names)
        return;
    for (size_t i = 0; i < loader->config->n_instances; i++)
        if (loader->slots[i].kind == kind)
            names[n++] = loader->config->instances[i].id;
    char shown[BR_SHOWN_SIZE];
    br_text_show(id, shown);
    const char *nearest = br_str_nearest(id, names, n);
    const struct slot *elsewhere = loader_find_elsewhere(loader, kind, id);
    const char *type = loader_keep(loader, br_arena_strndup(loader->arena, id, strcspn(id, "/")));
    const struct br_foreign *foreign = type ? br_foreign_find(kind, type) : NULL;
    const char *what = br_kind_name(kind), *section = br_kind_section(kind);
    int other = type ? loader_other_kind(loader, kind, type) : -1;
    if (elsewhere)
        br_errs_add(loader->errs, node, path,
                    "%s is %s %s, defined in line %d, and not %s %s; name it under %s", shown,
                    loader_article(elsewhere->kind), br_kind_name(elsewhere->kind),
                    elsewhere->key->line, loader_article(kind), what,
                    br_kind_section(elsewhere->kind));
    else if (nearest)
        br_errs_add(loader->errs, node, path, "%s %s is not defined; did you mean \"%s\"?", what,
                    shown, nearest);
    else if (foreign && foreign->support == BR_FOREIGN_LACKING)
        br_errs_add(loader->errs, node, path,
                    "%s %s is not defined under %s, and Braid does not support this %s, which %s",
                    what, shown, section, what, foreign->purpose);
    else if (type && !foreign && !br_component_find(loader->registry, kind, type) &&
             br_foreign_is_collectors(kind, type))
        br_errs_add(loader->errs, node, path,
                    "%s %s is not defined under %s, and Braid does not support this %s", what,
                    shown, section, what);
    else if (!type || foreign || br_component_find(loader->registry, kind, type))
        br_errs_add(loader->errs, node, path, "%s %s is not defined under %s; add \"%s:\" there",
                    what, shown, section, id);
    else if (other >= 0)
        br_errs_add(loader->errs, node, path,
                    "%s %s is not defined under %s; it is %s %s: name it under %s", what, shown,
                    section, loader_article((enum br_kind)other), br_kind_name((enum br_kind)other),
                    br_kind_section((enum br_kind)other));
    else
        br_errs_add(loader->errs, node, path,
                    "%s %s is neither defined under %s nor known; \"braid components\" lists all",
                    what, shown, section);
}

/* Returns the instance with the id in `node`. Adds an error and returns NULL if no such instance
 * exists. */
static struct br_instance *loader_resolve(struct loader *loader, const struct br_yaml *node,
                                          const char *path, enum br_kind kind)
{
    char shown[BR_SHOWN_SIZE];
    struct id id;
    if (node->type != BR_YAML_SCALAR) {
        br_errs_add(loader->errs, node, path, "must be the id of a component, got %s",
                    br_yaml_show(node, shown));
        return NULL;
    }
    if (!loader_id_parse(loader, node, path, &id))
        return NULL;
    struct br_instance *found = loader_find_instance(loader, kind, id.whole);
    if (!found && (kind == BR_RECEIVER || kind == BR_EXPORTER))
        found = loader_find_instance(loader, BR_CONNECTOR, id.whole);
    if (found)
        found->used = true;
    else if (!loader->no_memory)
        loader_refuse_reference(loader, node, path, kind, id.whole);
    return found;
}

static bool loader_carries(struct loader *loader, const struct br_yaml *node, const char *path,
                           const struct br_instance *instance, enum br_signal signal)
{
    const struct br_component *component = instance->component;
    if (!component || component->signals & BR_SIGNAL_BIT(signal))
        return true;
    const char *other = br_signal_name(signal == BR_TRACES ? BR_PROFILES : BR_TRACES);
    br_errs_lack(loader->errs, node, path, "the %s \"%s\" supports %s, not %s",
                 br_kind_name(component->kind), component->name, other, br_signal_name(signal));
    return false;
}

static bool loader_is_idle(const struct loader *loader, const struct br_instance *instance)
{
    return loader->slots[instance - loader->config->instances].idle;
}

/* Reads a list of ids. Adds an error for an id that is listed twice. `pipeline` is NULL if the list
 * is service::extensions. */
static void loader_list(struct loader *loader, const struct br_yaml *list, const char *path,
                        enum br_kind kind, const struct br_pipeline *pipeline,
                        struct br_instance ***ret, size_t *ret_n)
{
    bool seq = list && list->type == BR_YAML_SEQ;
    size_t n = seq ? list->count : list && list->type != BR_YAML_NULL;
    struct br_instance **instances =
        loader_keep(loader, br_arena_calloc(loader->arena, n, sizeof *instances));
    if (!instances)
        return;
    *ret = instances;
    char shown[BR_SHOWN_SIZE];
    for (size_t i = 0; i < n; i++) {
        const struct br_yaml *node = seq ? list->items[i] : list;
        struct br_instance *found = loader_resolve(loader, node, path, kind);
        if (!found)
            continue;
        size_t same = 0;
        while (same < *ret_n && instances[same] != found)
            same++;
        if (same < *ret_n)
            br_errs_add(loader->errs, node, path, "the %s %s is listed twice", br_kind_name(kind),
                        br_text_show(found->id, shown));
        else if (!loader_is_idle(loader, found) &&
                 (!pipeline || loader_carries(loader, node, path, found, pipeline->signal)))
            instances[(*ret_n)++] = found;
    }
}

static void loader_pipeline_list(struct loader *loader, const struct br_yaml *key,
                                 const struct br_yaml *list, enum br_kind kind,
                                 struct br_pipeline *pipeline, struct br_instance ***ret,
                                 size_t *ret_n, bool misspelt)
{
    const char *path =
        loader_keep(loader, br_arena_printf(loader->arena, "service::pipelines::%s::%s",
                                            pipeline->id, br_kind_section(kind)));
    if (!path)
        return;
    bool empty =
        !list || list->type == BR_YAML_NULL || (list->type == BR_YAML_SEQ && list->count == 0);
    if (empty && kind != BR_PROCESSOR && !(misspelt && !list))
        br_errs_add(loader->errs, list ? list : key, path, "a pipeline needs at least one %s",
                    br_kind_name(kind));
    loader_list(loader, list, path, kind, pipeline, ret, ret_n);
}

/* Moves the connectors that only read data from the exporters of a pipeline to the end of its
 * processors. */
static void loader_move_observers(struct loader *loader, struct br_pipeline *p)
{
    size_t n = p->n_processors + p->n_exporters, n_left = 0;
    struct br_instance **chain =
        loader_keep(loader, br_arena_calloc(loader->arena, n, sizeof *chain));
    if (!chain)
        return;
    for (size_t i = 0; i < p->n_processors; i++)
        chain[i] = p->processors[i];
    for (size_t i = 0; i < p->n_exporters; i++) {
        const struct br_component *component = p->exporters[i]->component;
        if (component && component->observes)
            chain[p->n_processors++] = p->exporters[i];
        else
            p->exporters[n_left++] = p->exporters[i];
    }
    p->processors = chain;
    p->n_exporters = n_left;
}

static bool loader_parse_signal(struct loader *loader, const struct br_yaml *key, const char *type,
                                enum br_signal *ret)
{
    static const char *const names[] = {"traces", "profiles"};
    static const char *const path = "service::pipelines";
    for (size_t i = 0; i < BR_COUNT(names); i++) {
        if (strcmp(type, names[i]) == 0) {
            *ret = (enum br_signal)i;
            return true;
        }
    }
    char shown[BR_SHOWN_SIZE];
    br_text_show(type, shown);
    const char *nearest = br_str_nearest(type, names, BR_COUNT(names));
    if (strcmp(type, "metrics") == 0 || strcmp(type, "logs") == 0)
        br_errs_add(loader->errs, key, path,
                    "Braid supports only traces and profiles; remove the %s pipeline or keep it in "
                    "a Collector",
                    type);
    else if (nearest)
        br_errs_add(loader->errs, key, path, "unknown signal %s; did you mean \"%s\"?", shown,
                    nearest);
    else
        br_errs_add(loader->errs, key, path,
                    "unknown signal %s; a pipeline is one of traces, profiles", shown);
    return false;
}

static void loader_pipeline(struct loader *loader, const struct br_yaml *key,
                            const struct br_yaml *node)
{
    static const char *const section = "service::pipelines";
    char shown[BR_SHOWN_SIZE];
    struct id id;
    struct lists lists;
    struct br_pipeline *p = &loader->config->pipelines[loader->config->n_pipelines];
    if (!loader_id_parse(loader, key, section, &id) ||
        !loader_parse_signal(loader, key, id.type, &p->signal))
        return;
    p->id = id.whole;
    for (size_t i = 0; i < loader->config->n_pipelines; i++) {
        if (strcmp(loader->config->pipelines[i].id, id.whole) == 0) {
            br_errs_add(loader->errs, key, section, "the pipeline %s is defined twice",
                        br_text_show(id.whole, shown));
            return;
        }
    }
    loader->config->n_pipelines++;
    const char *path =
        loader_keep(loader, br_arena_printf(loader->arena, "%s::%s", section, id.whole));
    if (!path)
        return;
    int rc = br_options_read(lists_options, node, path, &lists, loader->arena, loader->errs);
    loader_note(loader, rc);
    if (rc == 0 || node->type == BR_YAML_MAP) {
        loader_pipeline_list(loader, key, lists.receivers, BR_RECEIVER, p, &p->receivers,
                             &p->n_receivers, rc != 0);
        loader_pipeline_list(loader, key, lists.processors, BR_PROCESSOR, p, &p->processors,
                             &p->n_processors, rc != 0);
        loader_pipeline_list(loader, key, lists.exporters, BR_EXPORTER, p, &p->exporters,
                             &p->n_exporters, rc != 0);
        loader_move_observers(loader, p);
    }
}

static void loader_pipelines(struct loader *loader, const struct br_yaml *service,
                             const struct br_yaml *pipelines)
{
    bool empty = !pipelines || pipelines->type == BR_YAML_NULL ||
                 (pipelines->type == BR_YAML_MAP && pipelines->count == 0);
    if (empty) {
        br_errs_add(loader->errs, pipelines ? pipelines : service, "service::pipelines",
                    "at least one pipeline is needed, such as traces: {receivers: [otlp], "
                    "exporters: [debug]}");
        return;
    }
    if (!loader_section_usable(loader, pipelines, "service::pipelines", "pipelines"))
        return;
    loader->config->pipelines =
        loader_keep(loader, br_arena_calloc(loader->arena, pipelines->count,
                                            sizeof *loader->config->pipelines));
    for (size_t i = 0; i < pipelines->count && !loader->no_memory; i++)
        loader_pipeline(loader, pipelines->keys[i], pipelines->items[i]);
}

/* Checks the options of extensions that name another component. The named component must exist and
 * be in a pipeline. */
static void loader_check_references(struct loader *loader)
{
    for (size_t i = 0; i < loader->config->n_extensions; i++) {
        const struct br_instance *instance = loader->config->extensions[i];
        struct br_reference wanted = {0};
        char path[192], shown[BR_SHOWN_SIZE];
        if (!instance->component || !instance->component->refers || !instance->config)
            continue;
        instance->component->refers(instance->config, &wanted);
        const struct br_instance *found = loader_find_instance(loader, wanted.kind, wanted.id);
        if (found && found->used && found->component &&
            strcmp(found->component->name, wanted.component) == 0)
            continue;
        br_errs_add_key(loader->errs, instance->node,
                        br_path_join(path, br_kind_section(BR_EXTENSION), instance->id), wanted.key,
                        found ? "must name a %s %s that is in a pipeline, got %s"
                              : "must name a %s %s; there is no %s",
                        wanted.component, br_kind_name(wanted.kind),
                        br_text_show(wanted.id, shown));
    }
}

/* Checks the `storage` of each sending queue. The id must name a file_storage extension that is in
 * service::extensions. */
static void loader_check_storages(struct loader *loader)
{
    for (size_t i = 0; i < loader->config->n_instances; i++) {
        const struct br_instance *instance = &loader->config->instances[i];
        char path[192], queue_path[224], shown[BR_SHOWN_SIZE];
        if (!instance->component || !instance->component->exporter_wrapped || !instance->config)
            continue;
        const struct br_exporter_config *common =
            (const void *)((const char *)instance->config + instance->component->common_at);
        const char *id = common->sending_queue.storage;
        const struct br_instance *found =
            id ? loader_find_instance(loader, BR_EXTENSION, id) : NULL;
        bool runs = found && found->used && found->component &&
                    strcmp(found->component->name, "file_storage") == 0;
        if (!id || runs)
            continue;
        (void)br_path_join(path, br_kind_section(BR_EXPORTER), instance->id);
        br_errs_add_key(loader->errs, br_yaml_get(instance->node, "sending_queue"),
                        br_path_join(queue_path, path, "sending_queue"), "storage",
                        "must name a file_storage extension that is in service::extensions, got %s",
                        br_text_show(id, shown));
    }
}

static void loader_service(struct loader *loader, const struct br_yaml *node)
{
    if (!node && loader->top_failed)
        return;
    if (!node || node->type == BR_YAML_NULL) {
        br_errs_add(loader->errs, node ? node : loader->config->tree, "service",
                    "is missing; service::pipelines lists the pipelines to run");
        return;
    }
    struct service service;
    int rc =
        br_options_read(br_service_options, node, "service", &service, loader->arena, loader->errs);
    loader_note(loader, rc);
    if (node->type != BR_YAML_MAP || loader->no_memory)
        return;
    loader->config->fanout = service.fanout;
    loader_list(loader, service.extensions, "service::extensions", BR_EXTENSION, NULL,
                &loader->config->extensions, &loader->config->n_extensions);
    size_t before = loader->errs->n_errors;
    loader_pipelines(loader, node, service.pipelines);
    if (loader->errs->n_errors == before)
        loader_note(loader, br_connectors_check(loader->config, loader->arena, loader->errs));
    loader_check_references(loader);
    loader_check_storages(loader);
    loader_note(loader, br_authenticators_check(loader->config, loader->arena, loader->errs));
    loader_note(loader, br_telemetry_read(service.telemetry, &loader->config->telemetry,
                                          loader->arena, loader->errs));
    const struct br_yaml *metrics = br_yaml_get(service.telemetry, "metrics");
    br_authenticators_check_server(loader->config, loader->config->telemetry.metrics_auth,
                                   br_yaml_get(metrics, "auth"),
                                   "service::telemetry::metrics::auth", loader->errs);
    loader_note(loader, br_workers_read(service.workers, &loader->config->workers, loader->errs));
}

/* Warns of unused components. Called only if there are no errors: a component whose name is
 * misspelt in a pipeline would otherwise be reported twice. */
static void loader_warn_unused(struct loader *loader)
{
    for (size_t i = 0; i < loader->config->n_instances; i++) {
        const struct br_instance *instance = &loader->config->instances[i];
        if (instance->used)
            continue;
        char path[192];
        bool extension = loader->slots[i].kind == BR_EXTENSION;
        br_errs_warn(loader->errs, loader->slots[i].key,
                     br_path_join(path, br_kind_section(loader->slots[i].kind), instance->id),
                     "is defined and never used; %s",
                     extension ? "service::extensions does not list it" : "no pipeline lists it");
    }
}

/* Returns the signals of the pipelines that list the processor, as bits. */
static unsigned loader_signals_of(const struct br_config *config,
                                  const struct br_instance *instance)
{
    unsigned signals = 0;
    for (size_t i = 0; i < config->n_pipelines; i++)
        for (size_t k = 0; k < config->pipelines[i].n_processors; k++)
            if (config->pipelines[i].processors[k] == instance)
                signals |= BR_SIGNAL_BIT(config->pipelines[i].signal);
    return signals;
}

/* Returns another instance of the same component that is only in pipelines of the signal `missing`,
 * or NULL if there is none. */
static const struct br_instance *loader_other_half(const struct br_config *config,
                                                   const struct br_instance *instance,
                                                   unsigned missing)
{
    for (size_t i = 0; i < config->n_instances; i++)
        if (config->instances[i].component == instance->component &&
            loader_signals_of(config, &config->instances[i]) == missing)
            return &config->instances[i];
    return NULL;
}

/* Warns of each processor that needs another signal, such as join, but is only in pipelines of one
 * signal. */
static void loader_warn_half(struct loader *loader)
{
    const struct br_config *config = loader->config;
    for (size_t i = 0; i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        if (!instance->component || !instance->component->shared)
            continue;
        unsigned signals = loader_signals_of(config, instance);
        unsigned missing = instance->component->signals & ~signals;
        if (!signals || !missing || !(signals & ~instance->component->handles_alone))
            continue;
        char path[192];
        const struct br_instance *half = loader_other_half(config, instance, missing);
        enum br_signal lacking = missing == BR_SIGNAL_BIT(BR_TRACES) ? BR_TRACES : BR_PROFILES;
        br_errs_warn(loader->errs, loader->slots[i].key,
                     br_path_join(path, br_kind_section(loader->slots[i].kind), instance->id),
                     "is not in any %s pipeline, so it does nothing; %s%s%slist the same id in "
                     "both pipelines",
                     br_signal_name(lacking), half ? "such a pipeline lists \"" : "",
                     half ? half->id : "", half ? "\"; " : "");
    }
}

static bool loader_failed(const struct br_errs *errs)
{
    return errs->n_errors || errs->more;
}

/* Returns true if the file has a single key, and the value of this key is a text that contains a
 * configuration. */
static bool loader_is_wrapped(const struct br_yaml *tree)
{
    return tree->count == 1 && tree->items[0]->type == BR_YAML_SCALAR &&
           strstr(tree->items[0]->text, "receivers:");
}

/* Adds an error if the file is a Kubernetes manifest or the values of a Helm chart. The
 * configuration is then only a part of the file. Returns true if an error was added. */
static bool loader_refuse_manifest(struct loader *loader, const struct br_yaml *tree)
{
    const struct br_yaml *kind = br_yaml_get(tree, "kind"), *data = br_yaml_get(tree, "data");
    char shown[BR_SHOWN_SIZE];
    if (loader_is_wrapped(tree)) {
        br_errs_add(loader->errs, tree->keys[0], NULL,
                    "the configuration is a text under %s; pass that text itself",
                    br_text_show(tree->keys[0]->text, shown));
        return true;
    }
    const struct br_yaml *config = br_yaml_get(tree, "config");
    if (br_yaml_get(config, "service") && !br_yaml_get(tree, "service")) {
        br_errs_add(loader->errs, config, NULL,
                    "the configuration is under \"config\", as in the values of a Helm chart; pass "
                    "only that part");
        return true;
    }
    if (!kind || kind->type != BR_YAML_SCALAR || !br_yaml_get(tree, "apiVersion"))
        return false;
    const char *where = strcmp(kind->text, "OpenTelemetryCollector") == 0 ? "spec::config" : "data";
    bool has_key = data && data->type == BR_YAML_MAP && data->count;
    br_errs_add(
        loader->errs, kind, NULL,
        "this is a Kubernetes manifest (%s), not a configuration; pass only the part under %s%s%s",
        br_text_show(kind->text, shown), where, has_key ? "::" : "",
        has_key ? data->keys[0]->text : "");
    return true;
}

static int loader_whole(struct loader *loader)
{
    const struct br_yaml *tree = loader->config->tree;
    if (tree->count == 0)
        return br_errs_add(loader->errs, tree, NULL,
                           "the configuration is empty; it needs receivers, exporters and "
                           "service::pipelines");
    if (loader_refuse_manifest(loader, tree))
        return BR_EINVAL;
    struct top top;
    int rc = br_options_read(top_options, tree, "", &top, loader->arena, loader->errs);
    loader_note(loader, rc);
    loader->top = &top;
    loader->top_failed = rc != 0;
    if (!loader->no_memory)
        loader_sections(loader, &top);
    if (!loader->no_memory)
        loader_service(loader, top.service);
    loader->top = NULL;
    if (loader->no_memory)
        return br_errs_no_memory(loader->errs);
    if (loader_failed(loader->errs))
        return BR_EINVAL;
    loader_warn_unused(loader);
    loader_warn_half(loader);
    br_advice(loader->config, loader->errs);
    return 0;
}

/* Sorts the errors by file, in the order of `sources`. */
static int loader_sort_errors(const struct br_config_sources *sources, struct br_arena *arena,
                              struct br_errs *errs)
{
    size_t n = 0;
    const char **files = br_arena_calloc(arena, sources->n_uris + 1, sizeof *files);
    if (!files)
        return BR_ENOMEM;
    for (; n < sources->n_uris; n++) {
        const char *uri = sources->uris[n];
        files[n] = br_text_starts(uri, "file:") ? uri + 5 : uri;
        if (br_text_starts(uri, "yaml:"))
            files[n] = "yaml";
    }
    files[n++] = "--set";
    br_errs_sort(errs, files, n);
    return 0;
}

/* Returns an empty configuration with an arena, or NULL if memory runs out. */
static struct br_config *loader_config_new(struct br_errs *errs)
{
    struct br_config *config = br_calloc(1, sizeof *config);
    if (!config) {
        (void)br_errs_no_memory(errs);
        return NULL;
    }
    br_arena_init(&config->arena, BR_CONFIG_ARENA_MAX);
    config->workers = 1;
    return config;
}

/* Reads config->tree into `config`. On success, sets `*ret` to `config`, which the caller then
 * owns. On failure, frees `config`. */
static int loader_into(struct br_config *config, const struct br_component *const *registry,
                       struct br_config **ret, struct br_errs *errs)
{
    struct loader loader = {
        .config = config, .registry = registry, .arena = &config->arena, .errs = errs};
    int rc = loader_whole(&loader);
    if (rc)
        br_config_free(config);
    else
        *ret = config;
    return rc;
}

int br_config_load_tree(struct br_yaml *tree, const struct br_component *const *registry,
                        struct br_config **ret, struct br_errs *errs)
{
    struct br_config *config = loader_config_new(errs);
    if (!config)
        return BR_ENOMEM;
    config->tree = tree;
    return loader_into(config, registry, ret, errs);
}

int br_config_load(const struct br_config_sources *sources,
                   const struct br_component *const *registry, struct br_config **ret,
                   struct br_errs *errs)
{
    struct br_config *config = loader_config_new(errs), *loaded = NULL;
    if (!config)
        return BR_ENOMEM;
    struct br_arena names;
    br_arena_init(&names, BR_CONFIG_ARENA_MAX);
    int rc = br_config_merge(sources, &config->arena, &config->tree, errs);
    if (rc == 0 && sources->skip_unsupported) {
        struct br_adapt adapt = {.registry = registry,
                                 .arena = &config->arena,
                                 .errs = errs,
                                 .accept_loss = sources->accept_loss};
        rc = br_config_adapt(&adapt, config->tree);
    }
    if (rc)
        br_config_free(config);
    else
        rc = loader_into(config, registry, &loaded, errs);
    if (loader_sort_errors(sources, &names, errs) && rc == 0)
        rc = br_errs_no_memory(errs);
    br_arena_release(&names);
    if (rc == 0)
        *ret = loaded;
    else
        br_config_free(rc == BR_ENOMEM ? loaded : NULL);
    return rc;
}

void br_config_free(struct br_config *config)
{
    if (!config)
        return;
    br_arena_release(&config->arena);
    br_free(config);
}
