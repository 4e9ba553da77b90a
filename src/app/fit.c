/* SPDX-License-Identifier: Apache-2.0 */
#include "app/fit.h"

#include <stdlib.h>
#include <string.h>

#include "app/auth.h"
#include "app/fit_parts.h"
#include "base/bytes.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"

#define KINDS (BR_EXTENSION + 1)
#define CHAIN_MAX 24 /* pairs and items inside each other that an error's path may name */

void *br_fit_keep(struct br_fitter *fitter, void *memory)
{
    fitter->no_memory = fitter->no_memory || !memory;
    return memory;
}

/* --- Taking out ------------------------------------------------------------------------------ */

/* The path ends with the name. */
static bool fit_is_named(const char *path, const char *name)
{
    size_t path_len = strlen(path), len = strlen(name);
    if (path_len < len || strcmp(path + path_len - len, name) != 0)
        return false;
    return path_len == len || path[path_len - len - 1] == ':';
}

/* Tells of the pair or the item and takes it out; without `why`, in silence. */
static void fit_cut(struct br_fitter *fitter, struct br_yaml *parent, size_t index,
                    const char *path, const char *why)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    const char *note = NULL;
    if (why) {
        const char *name = parent->keys ? at->text : "an entry";
        bool named = parent->keys && fit_is_named(path, name);
        br_errs_warn(fitter->fit->errs, at, path, "%s%sleft out: %s", named ? "" : name,
                     named ? "" : " is ", why);
        note = br_fit_keep(fitter,
                           br_arena_printf(fitter->fit->arena, "%s is left out: %s", name, why));
    }
    if (fitter->fit->edits &&
        br_edits_add(fitter->fit->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL, note))
        fitter->no_memory = true;
    br_yaml_remove(parent, index);
}

struct br_yaml *br_fit_section(const struct br_fitter *fitter, enum br_kind kind)
{
    struct br_yaml *section = br_yaml_get(fitter->tree, br_kind_section(kind));
    return section && section->type == BR_YAML_MAP ? section : NULL;
}

struct br_yaml *br_fit_pipelines(const struct br_fitter *fitter)
{
    struct br_yaml *map = br_yaml_get(br_yaml_get(fitter->tree, "service"), "pipelines");
    return map && map->type == BR_YAML_MAP ? map : NULL;
}

/* --- Components ------------------------------------------------------------------------------ */

/* Nothing that the registry has is near enough to be meant. */
static bool fit_is_strange(const struct br_fitter *fitter, enum br_kind kind, const char *type)
{
    const char *names[512];
    size_t n = 0;
    for (const struct br_component *const *c = fitter->fit->registry;
         *c && n + 2 <= BR_COUNT(names); c++) {
        if ((*c)->kind != kind)
            continue;
        names[n++] = (*c)->name;
        if ((*c)->alias)
            names[n++] = (*c)->alias;
    }
    return !br_str_nearest(type, names, n);
}

static const char *fit_why_lacking(struct br_fitter *fitter, const struct br_fit_unit *unit)
{
    const struct br_foreign *foreign = unit->foreign;
    const char *kind = br_kind_name(unit->kind);
    if (fitter->fit->divide && unit->kind != BR_EXTENSION)
        return br_fit_keep(fitter,
                           br_arena_printf(fitter->fit->arena,
                                           "the Collector keeps it: Braid has no such %s%s%s", kind,
                                           foreign ? "; it " : "", foreign ? foreign->does : ""));
    if (!foreign)
        return br_fit_keep(fitter,
                           br_arena_printf(fitter->fit->arena, "Braid has no such %s", kind));
    return br_fit_keep(fitter,
                       br_arena_printf(fitter->fit->arena, "Braid has no such %s; it %s%s%s", kind,
                                       foreign->does, foreign->left ? ". " : "",
                                       foreign->left ? foreign->left : ""));
}

static void fit_add_unit(struct br_fitter *fitter, enum br_kind kind, struct br_yaml *key,
                         struct br_yaml *node)
{
    struct br_fit_unit *unit = &fitter->units[fitter->n_units];
    *unit = (struct br_fit_unit){.kind = kind, .key = key, .node = node};
    unit->id = br_fit_keep(fitter, br_id_trim(fitter->fit->arena, key->text));
    if (!unit->id)
        return;
    unit->type =
        br_fit_keep(fitter, br_arena_strndup(fitter->fit->arena, unit->id, strcspn(unit->id, "/")));
    if (!unit->type)
        return;
    unit->component = br_component_find(fitter->fit->registry, kind, unit->type);
    unit->foreign = unit->component ? NULL : br_foreign_find(kind, unit->type);
    if (unit->foreign && unit->foreign->fate == BR_FOREIGN_SAME)
        unit->component = br_component_find(fitter->fit->registry, kind, unit->foreign->as);
    bool idle = unit->foreign && unit->foreign->fate == BR_FOREIGN_IDLE;
    if (!unit->component && !idle && (unit->foreign || fit_is_strange(fitter, kind, unit->type)))
        unit->lacking = fit_why_lacking(fitter, unit);
    fitter->n_units++;
}

static void fit_collect(struct br_fitter *fitter)
{
    size_t n = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct br_yaml *section = br_fit_section(fitter, (enum br_kind)kind);
        n += section ? section->count : 0;
    }
    fitter->units =
        br_fit_keep(fitter, br_arena_calloc(fitter->fit->arena, n, sizeof *fitter->units));
    for (int kind = 0; kind < KINDS && fitter->units; kind++) {
        const struct br_yaml *section = br_fit_section(fitter, (enum br_kind)kind);
        for (size_t i = 0; section && i < section->count; i++)
            fit_add_unit(fitter, (enum br_kind)kind, section->keys[i], section->items[i]);
    }
}

/* What a list of `kind` means by `node`; NULL when nothing is defined by that name. */
struct br_fit_unit *br_fit_resolve(struct br_fitter *fitter, enum br_kind kind,
                                   const struct br_yaml *node)
{
    if (node->type != BR_YAML_SCALAR)
        return NULL;
    const char *id = br_fit_keep(fitter, br_id_trim(fitter->fit->arena, node->text));
    struct br_fit_unit *connector = NULL;
    for (size_t i = 0; id && i < fitter->n_units; i++) {
        struct br_fit_unit *unit = &fitter->units[i];
        if (strcmp(unit->id, id) != 0)
            continue;
        if (unit->kind == kind)
            return unit;
        if (unit->kind == BR_CONNECTOR && (kind == BR_RECEIVER || kind == BR_EXPORTER))
            connector = unit;
    }
    return connector;
}

/* Takes what cannot stay out of a list. */
static void fit_list(struct br_fitter *fitter, struct br_yaml *list, enum br_kind kind)
{
    for (size_t i = 0; list->type == BR_YAML_SEQ && i < list->count;) {
        struct br_fit_unit *unit = br_fit_resolve(fitter, kind, list->items[i]);
        if (unit)
            unit->wanted = true;
        if (unit && unit->lacking)
            fit_cut(fitter, list, i, NULL, NULL);
        else
            i++;
    }
}

/* --- Pipelines ------------------------------------------------------------------------------- */

const struct br_fit_list br_fit_lists[BR_FIT_LISTS] = {
    {"receivers", BR_RECEIVER}, {"processors", BR_PROCESSOR}, {"exporters", BR_EXPORTER}};

static bool fit_is_foreign_signal(const char *id)
{
    size_t n = strcspn(id, "/");
    return br_bytes_are(id, n, "metrics") || br_bytes_are(id, n, "logs");
}

/* Marks what a pipeline names. */
static void fit_mark(struct br_fitter *fitter, const struct br_yaml *pipeline, bool stays)
{
    for (size_t k = 0; k < BR_FIT_LISTS; k++) {
        const struct br_yaml *list = br_yaml_get(pipeline, br_fit_lists[k].key);
        bool seq = list && list->type == BR_YAML_SEQ;
        for (size_t i = 0; list && i < (seq ? list->count : 1); i++) {
            struct br_fit_unit *unit =
                br_fit_resolve(fitter, br_fit_lists[k].kind, seq ? list->items[i] : list);
            if (!unit)
                continue;
            unit->named = true;
            unit->used = unit->used || stays;
        }
    }
}

/* Remembers the processors that a pipeline loses although they drop, hide or change data. */
static void fit_note_losses(struct br_fitter *fitter, const struct br_yaml *key,
                            const struct br_yaml *list)
{
    for (size_t i = 0; list->type == BR_YAML_SEQ && i < list->count; i++) {
        const struct br_fit_unit *unit = br_fit_resolve(fitter, BR_PROCESSOR, list->items[i]);
        if (!unit || !unit->lacking || fitter->fit->accept_loss ||
            br_foreign_is_harmless(unit->type))
            continue;
        struct br_fit_loss *loss =
            br_fit_keep(fitter, br_arena_calloc(fitter->fit->arena, 1, sizeof *loss));
        if (!loss)
            return;
        *loss = (struct br_fit_loss){fitter->losses, unit, key};
        fitter->losses = loss;
    }
}

/* A pipeline's path, and then its end. */
static void fit_cut_pipeline(struct br_fitter *fitter, struct br_yaml *pipelines, size_t index,
                             const char *why)
{
    char path[192];
    br_path_join(path, "service::pipelines", pipelines->keys[index]->text);
    fit_cut(fitter, pipelines, index, path, why);
}

static void fit_signals(struct br_fitter *fitter, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->count;) {
        const char *id =
            br_fit_keep(fitter, br_id_trim(fitter->fit->arena, pipelines->keys[i]->text));
        if (!id || !fit_is_foreign_signal(id)) {
            i++;
            continue;
        }
        fit_mark(fitter, pipelines->items[i], false);
        fit_cut_pipeline(fitter, pipelines, i,
                         fitter->fit->divide
                             ? "the Collector keeps it: Braid carries traces and profiles"
                             : "Braid carries traces and profiles");
    }
}

/* True when a list that a pipeline needs had something and has nothing now. */
static bool fit_ran_dry(struct br_fitter *fitter, const struct br_yaml *pipeline, size_t index)
{
    struct br_yaml *list = br_yaml_get(pipeline, br_fit_lists[index].key);
    if (!list || br_fit_lists[index].kind == BR_PROCESSOR)
        return false;
    if (list->type == BR_YAML_SEQ) {
        size_t before = list->count;
        return before && (fit_list(fitter, list, br_fit_lists[index].kind), list->count == 0);
    }
    const struct br_fit_unit *unit = list->type == BR_YAML_SCALAR
                                         ? br_fit_resolve(fitter, br_fit_lists[index].kind, list)
                                         : NULL;
    return unit && unit->lacking;
}

/* The ids of what cannot stay in it, for the reason. */
static const char *fit_why_dry(struct br_fitter *fitter, const struct br_yaml *pipeline,
                               size_t index)
{
    struct br_str text = {.max = 300};
    const struct br_yaml *list = br_yaml_get(pipeline, br_fit_lists[index].key);
    bool seq = list && list->type == BR_YAML_SEQ;
    br_str_printf(&text, "%snone of its %s can stay",
                  fitter->fit->divide ? "the Collector keeps it: " : "", br_fit_lists[index].key);
    for (size_t i = 0; list && i < (seq ? list->count : 1); i++) {
        const struct br_yaml *item = seq ? list->items[i] : list;
        if (item->type == BR_YAML_SCALAR)
            br_str_printf(&text, "%s%s", i ? ", " : ": ", item->text);
    }
    const char *kept = br_fit_keep(
        fitter, br_arena_strndup(fitter->fit->arena, text.data ? text.data : "", text.len));
    br_str_release(&text);
    return kept;
}

/* Takes the pipeline out when none of the list's components can stay. */
static bool fit_dry_pipeline(struct br_fitter *fitter, struct br_yaml *pipelines, size_t index,
                             size_t list)
{
    struct br_yaml *pipeline = pipelines->items[index];
    const char *why = fit_why_dry(fitter, pipeline, list);
    if (!fit_ran_dry(fitter, pipeline, list))
        return false;
    fit_mark(fitter, pipeline, false);
    fit_cut_pipeline(fitter, pipelines, index, why);
    return true;
}

/* Takes out of one pipeline what cannot stay. False when the pipeline has gone with it. */
static bool fit_pipeline(struct br_fitter *fitter, struct br_yaml *pipelines, size_t index)
{
    for (size_t k = 0; k < BR_FIT_LISTS && !fitter->no_memory; k++)
        if (br_fit_lists[k].kind != BR_PROCESSOR && fit_dry_pipeline(fitter, pipelines, index, k))
            return false;
    struct br_yaml *list = br_yaml_get(pipelines->items[index], "processors");
    if (list) {
        fit_note_losses(fitter, pipelines->keys[index], list);
        fit_list(fitter, list, BR_PROCESSOR);
    }
    return true;
}

/* Takes out a pipeline that stays in the Collector as a whole: with all its exporters, or with one
 * that sends headers of clients, which no link passes on. */
static bool fit_leave_pipeline(struct br_fitter *fitter, struct br_yaml *pipelines, size_t index)
{
    const struct br_yaml *list = br_yaml_get(pipelines->items[index], "exporters");
    bool seq = list && list->type == BR_YAML_SEQ, by_client = false;
    size_t n = seq ? list->count : list && list->type == BR_YAML_SCALAR, n_lacking = 0;
    for (size_t i = 0; i < n; i++) {
        const struct br_fit_unit *unit =
            br_fit_resolve(fitter, BR_EXPORTER, seq ? list->items[i] : list);
        n_lacking += unit && unit->lacking;
        by_client = by_client || (unit && unit->by_client);
    }
    if (!by_client && (!n || n_lacking < n))
        return false;
    const char *why = by_client ? "the Collector keeps it: an exporter sends headers of its clients"
                                : fit_why_dry(fitter, pipelines->items[index], 2);
    fit_mark(fitter, pipelines->items[index], false);
    fit_cut_pipeline(fitter, pipelines, index, why);
    return true;
}

/* Until nothing that is left names what has gone. */
static void fit_all_pipelines(struct br_fitter *fitter, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->count && !fitter->no_memory;)
        if (fitter->fit->divide ? !fit_leave_pipeline(fitter, pipelines, i)
                                : fit_pipeline(fitter, pipelines, i))
            i++;
    if (fitter->fit->divide && !fitter->no_memory)
        br_fit_divide(fitter);
}

/* --- What is left of the sections ------------------------------------------------------------ */

static const char *fit_why_unit(const struct br_fitter *fitter, const struct br_fit_unit *unit)
{
    if (unit->lacking && unit->translated)
        return "exporters send its headers themselves";
    if (unit->lacking && (unit->wanted || unit->kind == BR_EXTENSION))
        return unit->lacking;
    if (unit->lacking && !unit->named)
        return "no pipeline names it";
    if (!unit->named || unit->used)
        return NULL;
    return fitter->fit->divide ? "the Collector keeps it" : "only what is left out uses it";
}

static void fit_units(struct br_fitter *fitter)
{
    for (size_t i = 0; i < fitter->n_units && !fitter->no_memory; i++) {
        struct br_fit_unit *unit = &fitter->units[i];
        struct br_yaml *section = br_fit_section(fitter, unit->kind);
        const char *why = fit_why_unit(fitter, unit);
        size_t at = section ? br_yaml_index(section, unit->key->text) : 0;
        if (!why || !section || at == section->count)
            continue;
        char path[192];
        fit_cut(fitter, section, at, br_path_join(path, br_kind_section(unit->kind), unit->id),
                why);
    }
}

static void fit_extensions(struct br_fitter *fitter)
{
    struct br_yaml *list = br_yaml_get(br_yaml_get(fitter->tree, "service"), "extensions");
    if (list)
        fit_list(fitter, list, BR_EXTENSION);
}

/* Replaces an exporter's `auth` by headers. Returns true when the exporter cannot stay for it. */
static bool fit_auth(struct br_fitter *fitter, struct br_fit_unit *unit)
{
    size_t at = br_yaml_index(unit->node, "auth");
    const struct br_yaml *key = unit->node->keys[at];
    const struct br_yaml *name = br_yaml_get(unit->node->items[at], "authenticator");
    struct br_fit_unit *extension = name ? br_fit_resolve(fitter, BR_EXTENSION, name) : NULL;
    const char *why = "it names no extension that is defined";
    char path[192];
    br_path_join(path, "exporters", unit->id);
    int rc = BR_EUNSUPPORTED;
    if (extension) {
        struct br_auth auth = {fitter->fit->arena, fitter->fit->edits, extension->type,
                               extension->node};
        rc = br_auth_translate(&auth, unit->key, unit->node, &why);
    }
    fitter->no_memory = fitter->no_memory || rc == BR_ENOMEM;
    if (rc == 0) {
        extension->translated = true;
        br_errs_warn(fitter->fit->errs, key, path, "auth is carried over as headers");
    }
    if (rc != BR_EUNSUPPORTED)
        return false;
    unit->refused = br_fit_keep(
        fitter, br_arena_printf(fitter->fit->arena, "%sBraid has no authenticators: %s",
                                fitter->fit->divide ? "the Collector keeps it: " : "", why));
    if (!fitter->fit->divide && !fitter->fit->accept_loss)
        return false;
    unit->lacking = unit->refused;
    unit->by_client = extension && strcmp(extension->type, "headers_setter") == 0;
    return true;
}

/* Translates the authenticators of the exporters that are used. Returns true when an exporter
 * cannot stay. */
static bool fit_auths(struct br_fitter *fitter)
{
    bool lost = false;
    for (size_t i = 0; i < fitter->n_units && !fitter->no_memory; i++) {
        struct br_fit_unit *unit = &fitter->units[i];
        const struct br_yaml *auth = br_yaml_get(unit->node, "auth");
        if (unit->kind == BR_EXPORTER && unit->component && unit->used && !unit->lacking &&
            !unit->refused && auth && auth->type == BR_YAML_MAP)
            lost = fit_auth(fitter, unit) || lost;
    }
    return lost;
}

static void fit_mark_used(struct br_fitter *fitter, const struct br_yaml *pipelines)
{
    for (size_t i = 0; i < fitter->n_units; i++)
        fitter->units[i].used = false;
    for (size_t i = 0; i < pipelines->count; i++)
        fit_mark(fitter, pipelines->items[i], true);
}

/* Everything about components, anew: a setting that went may have taken its component along. */
static int fit_components(struct br_fitter *fitter)
{
    struct br_yaml *pipelines = br_fit_pipelines(fitter);
    if (!pipelines || pipelines->count == 0)
        return 0; /* the loader says so */
    fit_signals(fitter, pipelines);
    fit_all_pipelines(fitter, pipelines);
    fit_mark_used(fitter, pipelines);
    if (fit_auths(fitter)) {
        fit_all_pipelines(fitter, pipelines);
        fit_mark_used(fitter, pipelines);
    }
    fit_extensions(fitter);
    fit_units(fitter);
    if (pipelines->count)
        return 0;
    return br_errs_add(
        fitter->fit->errs, pipelines, "service::pipelines",
        fitter->fit->divide
            ? "nothing is left for Braid: no pipeline of traces or profiles can leave "
              "the Collector; nothing was written"
            : "nothing is left: no pipeline of traces or profiles has a receiver "
              "and an exporter that Braid has");
}

/* --- What the loader refuses ----------------------------------------------------------------- */

/* The pairs and items that lead to a node, from the root on. */
struct chain {
    struct {
        struct br_yaml *parent;
        size_t index;
    } value[CHAIN_MAX];
    size_t count;
};

static struct br_yaml *fit_chain_value(const struct chain *chain, size_t index)
{
    return chain->value[index].parent->items[chain->value[index].index];
}

static const char *fit_chain_key(const struct chain *chain, size_t index)
{
    const struct br_yaml *parent = chain->value[index].parent;
    return parent->keys ? parent->keys[chain->value[index].index]->text : "";
}

static bool fit_chain_add(struct chain *chain, struct br_yaml *parent, size_t index)
{
    if (chain->count == CHAIN_MAX || index >= parent->count)
        return false;
    chain->value[chain->count].parent = parent;
    chain->value[chain->count++].index = index;
    return true;
}

/* The key of `map` that `path` goes on with, which may have "::" in it; map->n when there is none.
 */
static size_t fit_chain_step(const struct br_yaml *map, const char *path, size_t *ret_len)
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

/* Goes where an error's path leads, as far as there is something. */
static void fit_chain_follow(struct chain *chain, struct br_yaml *tree, const char *path)
{
    struct br_yaml *at = tree;
    while (*path) {
        size_t len = 0;
        if (*path == '[') {
            char *end;
            size_t index = (size_t)strtoul(path + 1, &end, 10);
            if (at->type != BR_YAML_SEQ || *end != ']' || !fit_chain_add(chain, at, index))
                return;
            len = (size_t)(end + 1 - path);
        } else {
            size_t index = fit_chain_step(at, path, &len);
            if (len == 0 || !fit_chain_add(chain, at, index))
                return;
        }
        at = fit_chain_value(chain, chain->count - 1);
        path += len;
        path += br_text_starts(path, "::") ? 2 : 0;
    }
}

static bool fit_chain_stands_at(const struct br_yaml *node, const struct br_err *err)
{
    return node->line == err->line && node->col == err->col;
}

/* One step further, to the key or the item that the error points at. */
static void fit_chain_point(struct chain *chain, const struct br_err *err)
{
    struct br_yaml *at = chain->count ? fit_chain_value(chain, chain->count - 1) : NULL;
    bool by_key = at && at->type == BR_YAML_MAP && err->code == BR_EUNSUPPORTED;
    bool slip = at && at->type == BR_YAML_MAP && br_text_starts(err->text, "unknown key");
    for (size_t i = 0; at && i < at->count; i++) {
        bool here = at->type == BR_YAML_SEQ
                        ? fit_chain_stands_at(at->items[i], err)
                        : (by_key || slip) && fit_chain_stands_at(at->keys[i], err);
        if (here && fit_chain_add(chain, at, i))
            return;
    }
}

/* The place in the chain of a key that guards something; c->n when it has none. */
static size_t fit_chain_guard(const struct chain *chain)
{
    static const char *const guards[] = {"tls", "tls_settings", "auth"};
    for (size_t i = 2; i < chain->count; i++)
        for (size_t k = 0; k < BR_COUNT(guards); k++)
            if (strcmp(fit_chain_key(chain, i), guards[k]) == 0)
                return i;
    return chain->count;
}

static bool fit_is_expanded(const struct br_yaml *node)
{
    if (!node || node->expanded)
        return node != NULL;
    for (size_t i = 0; i < node->count; i++)
        if (fit_is_expanded(node->items[i]))
            return true;
    return false;
}

/* An error's words, without the name of the key, which is told before them. */
static const char *fit_why(struct br_fitter *fitter, const struct br_err *err)
{
    const char *text = err->text, *end = text[0] == '"' ? strstr(text, "\": ") : NULL;
    if (end)
        text = end + 3;
    return br_fit_keep(fitter, br_arena_strndup(fitter->fit->arena, text, strlen(text)));
}

/* One of a list of conditions, each of which is a rule of its own, wherever the list stands. */
static bool fit_chain_is_condition(const struct chain *chain, size_t index)
{
    return !chain->value[index].parent->keys &&
           strcmp(fit_chain_key(chain, index - 1), "conditions") == 0;
}

/* The component that the chain starts with; NULL where it starts with none. */
static struct br_fit_unit *fit_chain_unit(const struct br_fitter *fitter, const struct chain *chain)
{
    const struct br_yaml *parent = chain->value[1].parent;
    for (size_t i = 0; parent->keys && i < fitter->n_units; i++)
        if (fitter->units[i].key == parent->keys[chain->value[1].index])
            return &fitter->units[i];
    return NULL;
}

/* Makes the component that the chain starts with one that cannot stay. */
static bool fit_lose_unit(struct br_fitter *fitter, const struct chain *chain, const char *why)
{
    struct br_fit_unit *unit = fit_chain_unit(fitter, chain);
    if (!unit || unit->lacking)
        return false;
    unit->lacking = why;
    return true;
}

/* What an error is about has a value that ${...} brings, which may be what is wrong. What is wrong
 * with a component that has lost a setting is what it has lost. */
static bool fit_may_be_expanded(const struct br_fitter *fitter, const struct chain *chain)
{
    const struct br_fit_unit *unit = chain->count == 2 ? fit_chain_unit(fitter, chain) : NULL;
    return fit_is_expanded(fit_chain_value(chain, chain->count - 1)) && !(unit && unit->cut);
}

static int fit_kind_of(const char *section)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(section, br_kind_section((enum br_kind)kind)) == 0)
            return kind;
    return -1;
}

/* The answer to an error. */
enum fit_verdict {
    FIT_KEEP, /* nothing: it stays an error */
    FIT_CUT,  /* the setting at `last` of the chain goes */
    FIT_LOSE, /* its component goes */
};

/* Returns true for a processor whose settings may decide which data passes, or change it. */
static bool fit_is_lossy(const struct br_fit_unit *unit)
{
    return unit && unit->kind == BR_PROCESSOR && !br_foreign_is_harmless(unit->type);
}

/* Decides about an error; `loss` allows to leave out what matters. */
static enum fit_verdict fit_decide(struct br_fitter *fitter, const struct chain *chain,
                                   const struct br_err *err, bool loss, size_t *ret_last)
{
    if (chain->count < 2 || (!loss && err->code != BR_EUNSUPPORTED))
        return FIT_KEEP;
    if (loss && fit_may_be_expanded(fitter, chain))
        return FIT_KEEP;
    int kind = fit_kind_of(fit_chain_key(chain, 0));
    if (kind < 0 && err->code != BR_EUNSUPPORTED &&
        strcmp(fit_chain_key(chain, 1), "telemetry") != 0)
        return FIT_KEEP; /* no Collector takes it either */
    size_t guard = fit_chain_guard(chain), last = chain->count - 1;
    bool serves = kind == BR_RECEIVER || kind == BR_EXTENSION;
    bool matters = (serves && guard < chain->count) || fit_is_lossy(fit_chain_unit(fitter, chain));
    if (matters && !loss)
        return fitter->fit->divide && kind != BR_EXTENSION ? FIT_LOSE : FIT_KEEP;
    if (serves && guard < chain->count)
        for (last = guard - 1; last > 1 && chain->value[last].parent->count == 1;)
            last--; /* without its last listener the component goes */
    else if (kind == BR_EXPORTER && guard < chain->count &&
             strcmp(fit_chain_key(chain, guard), "tls") == 0)
        last = 1;
    for (size_t i = 2; i < last; i++)
        if (!chain->value[i].parent->keys && !fit_chain_is_condition(chain, last))
            last = i; /* half a rule is another rule */
    *ret_last = last;
    return kind >= 0 && last == 1 ? FIT_LOSE : FIT_CUT;
}

static bool fit_chain_is_auth(const struct chain *chain)
{
    return chain->count == 3 && fit_kind_of(fit_chain_key(chain, 0)) == BR_EXPORTER &&
           strcmp(fit_chain_key(chain, 2), "auth") == 0;
}

/* Takes out what an error is about. False when that cannot be. */
static bool fit_answer(struct br_fitter *fitter, const struct br_err *err)
{
    struct chain chain = {.count = 0};
    fit_chain_follow(&chain, fitter->tree, err->path);
    fit_chain_point(&chain, err);
    if (fit_chain_is_auth(&chain))
        return false; /* what can be done about it has been done before */
    size_t last = 0;
    enum fit_verdict verdict = fit_decide(fitter, &chain, err, fitter->fit->accept_loss, &last);
    const char *why = verdict == FIT_KEEP ? NULL : fit_why(fitter, err);
    if (!why)
        return false;
    if (verdict == FIT_LOSE && fitter->fit->divide)
        why = br_fit_keep(fitter,
                          br_arena_printf(fitter->fit->arena, "the Collector keeps it: %s", why));
    if (verdict == FIT_LOSE)
        return why && fit_lose_unit(fitter, &chain, why);
    struct br_fit_unit *unit = fit_chain_unit(fitter, &chain);
    if (unit)
        unit->cut = true;
    fit_cut(fitter, chain.value[last].parent, chain.value[last].index, err->path, why);
    return true;
}

/* One load; answers what can be answered. Returns how much that was. */
static size_t fit_round(struct br_fitter *fitter, struct br_errs *errs)
{
    struct br_config *config = NULL;
    size_t n_answered = 0;
    if (br_config_load_tree(fitter->tree, fitter->fit->registry, &config, errs) == BR_ENOMEM)
        fitter->no_memory = true;
    br_config_free(config);
    bool moved = false; /* the items of some list stand elsewhere by now */
    for (size_t i = 0; i < errs->n_errors && !fitter->no_memory; i++) {
        bool in_list = strchr(errs->errors[i].path, '[') != NULL;
        if ((in_list && moved) || !fit_answer(fitter, &errs->errors[i]))
            continue;
        moved = moved || in_list;
        n_answered++;
    }
    return n_answered;
}

#define FIT_HINT "; --accept-loss leaves it out, migrate --rest keeps it in a Collector"

/* Reports an error that is left, with the way out where there is one. */
static int fit_report(struct br_fitter *fitter, const struct chain *chain, const struct br_err *err)
{
    const struct br_yaml at = {.file = err->file, .line = err->line, .col = err->col};
    const struct br_fit_unit *unit = chain->count >= 2 ? fit_chain_unit(fitter, chain) : NULL;
    size_t last;
    bool way = err->code == BR_EUNSUPPORTED && !fitter->fit->accept_loss && !fitter->fit->divide &&
               fit_decide(fitter, chain, err, true, &last) != FIT_KEEP;
    if (fit_chain_is_auth(chain) && unit && unit->refused)
        return br_errs_add(fitter->fit->errs, &at, err->path, "\"auth\": %s%s", unit->refused,
                           way ? "; --accept-loss leaves the exporter out, migrate --rest keeps it "
                                 "in a Collector"
                               : "");
    size_t len = strlen(err->text);
    len -= way && len && err->text[len - 1] == '.';
    return br_errs_add(fitter->fit->errs, &at, err->path, "%.*s%s", (int)len, err->text,
                       way ? FIT_HINT : "");
}

/* Values that ${...} brings are not the file's fault where another environment is meant. */
static int fit_judge(struct br_fitter *fitter, const struct br_errs *errs)
{
    int rc = 0;
    for (size_t i = 0; i < errs->n_errors; i++) {
        const struct br_err *err = &errs->errors[i];
        const struct br_yaml at = {.file = err->file, .line = err->line, .col = err->col};
        struct chain chain = {.count = 0};
        fit_chain_follow(&chain, fitter->tree, err->path);
        fit_chain_point(&chain, err);
        if (fitter->fit->elsewhere && chain.count >= 2 &&
            fit_is_expanded(fit_chain_value(&chain, chain.count - 1)))
            br_errs_warn(fitter->fit->errs, &at, err->path,
                         "depends on ${...}, and is here not right: %s", err->text);
        else
            rc = fit_report(fitter, &chain, err);
    }
    return rc;
}

/* Refuses what pipelines that are still there have lost. */
static int fit_refuse_losses(struct br_fitter *fitter)
{
    const struct br_yaml *pipelines = br_fit_pipelines(fitter);
    int rc = 0;
    for (size_t i = 0; i < fitter->n_units; i++) {
        const struct br_fit_unit *unit = &fitter->units[i];
        bool missed = false;
        for (const struct br_fit_loss *loss = fitter->losses; loss; loss = loss->next)
            for (size_t k = 0; pipelines && k < pipelines->count; k++)
                missed = missed || (loss->unit == unit && loss->pipeline == pipelines->keys[k]);
        char path[192];
        if (missed)
            rc = br_errs_add(fitter->fit->errs, unit->key,
                             br_path_join(path, br_kind_section(unit->kind), unit->id),
                             "cannot be left out without a loss: %s%s" FIT_HINT,
                             unit->foreign ? "it " : "it is unknown here",
                             unit->foreign ? unit->foreign->does : "");
    }
    return rc;
}

/* Each round takes something away, so there is a last one. */
static int fit_settings(struct br_fitter *fitter)
{
    int rc = 0;
    for (bool more = true; more && !rc && !fitter->no_memory;) {
        struct br_errs errs = {0};
        more = fit_round(fitter, &errs) > 0;
        if (more)
            rc = fit_components(fitter);
        else
            rc = fit_judge(fitter, &errs);
        br_errs_release(&errs);
    }
    return rc;
}

int br_config_fit(const struct br_fit *fit, struct br_yaml *tree)
{
    struct br_fitter fitter = {.fit = fit, .tree = tree};
    fit_collect(&fitter);
    if (fit->divide && !fitter.no_memory)
        br_fit_plan_all(&fitter);
    int rc = fitter.no_memory ? 0 : fit_components(&fitter);
    if (rc == 0 && !fitter.no_memory)
        rc = fit_settings(&fitter);
    if (rc != BR_ENOMEM && fit_refuse_losses(&fitter))
        rc = BR_EINVAL;
    if (rc == 0 && fit->divide && !fitter.no_memory)
        br_fit_plan_end(&fitter);
    return fitter.no_memory ? br_errs_no_memory(fit->errs) : rc;
}
