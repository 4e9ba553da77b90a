/* SPDX-License-Identifier: Apache-2.0 */
#include "app/fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/foreign.h"
#include "config/parts.h"

#define KINDS (BR_EXTENSION + 1)
#define CHAIN_MAX 24 /* pairs and items inside each other that an error's path may name */

/* A component as a section defines it. */
struct unit {
    enum br_kind kind;
    const char *id, *type;
    struct br_yaml *key;
    const struct br_component *component; /* also by a name of the Collector's */
    const struct br_foreign *foreign;
    const char *lacking; /* why it cannot stay; NULL: it can */
    bool named;          /* some pipeline names it */
    bool wanted;         /* one that Braid carries named it */
    bool used;           /* one that stays names it */
};

struct fitter {
    const struct br_fit *fit;
    struct br_yaml *tree;
    struct unit *units;
    size_t n_units;
    bool no_memory;
};

static void *fit_keep(struct fitter *f, void *p)
{
    f->no_memory = f->no_memory || !p;
    return p;
}

/* --- Taking out ------------------------------------------------------------------------------ */

/* Tells of the pair or the item and takes it out; without `why`, in silence. */
static void fit_cut(struct fitter *f, struct br_yaml *parent, size_t index, const char *path,
                    const char *why)
{
    const struct br_yaml *at = parent->keys ? parent->keys[index] : parent->items[index];
    const char *note = NULL;
    if (why) {
        const char *name = parent->keys ? at->text : "an entry";
        bool named = parent->keys && strstr(path, name);
        br_errs_warn(f->fit->errs, at, path, "%s%sleft out: %s", named ? "" : name,
                     named ? "" : " is ", why);
        note = fit_keep(f, br_arena_printf(f->fit->arena, "%s is left out: %s", name, why));
    }
    if (f->fit->edits &&
        br_edits_add(f->fit->edits, parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP, at, NULL, note))
        f->no_memory = true;
    br_yaml_remove(parent, index);
}

static struct br_yaml *fit_section(const struct fitter *f, enum br_kind kind)
{
    struct br_yaml *section = br_yaml_get(f->tree, br_kind_section(kind));
    return section && section->type == BR_YAML_MAP ? section : NULL;
}

static struct br_yaml *fit_pipelines(const struct fitter *f)
{
    struct br_yaml *map = br_yaml_get(br_yaml_get(f->tree, "service"), "pipelines");
    return map && map->type == BR_YAML_MAP ? map : NULL;
}

/* --- Components ------------------------------------------------------------------------------ */

/* Nothing that the registry has is near enough to be meant. */
static bool fit_is_strange(const struct fitter *f, enum br_kind kind, const char *type)
{
    const char *names[512];
    size_t n = 0;
    for (const struct br_component *const *c = f->fit->registry; *c && n + 2 <= BR_COUNT(names);
         c++) {
        if ((*c)->kind != kind)
            continue;
        names[n++] = (*c)->name;
        if ((*c)->alias)
            names[n++] = (*c)->alias;
    }
    return !br_str_nearest(type, names, n);
}

static const char *fit_why_lacking(struct fitter *f, const struct unit *u)
{
    const struct br_foreign *foreign = u->foreign;
    const char *kind = br_kind_name(u->kind);
    if (!foreign)
        return fit_keep(f, br_arena_printf(f->fit->arena, "Braid has no such %s", kind));
    return fit_keep(f, br_arena_printf(f->fit->arena, "Braid has no such %s; it %s%s%s", kind,
                                       foreign->does, foreign->left ? ". " : "",
                                       foreign->left ? foreign->left : ""));
}

static void fit_add_unit(struct fitter *f, enum br_kind kind, struct br_yaml *key)
{
    struct unit *u = &f->units[f->n_units];
    *u = (struct unit){.kind = kind, .key = key};
    u->id = fit_keep(f, br_id_trim(f->fit->arena, key->text));
    if (!u->id)
        return;
    u->type = fit_keep(f, br_arena_strndup(f->fit->arena, u->id, strcspn(u->id, "/")));
    if (!u->type)
        return;
    u->component = br_component_find(f->fit->registry, kind, u->type);
    u->foreign = u->component ? NULL : br_foreign_find(kind, u->type);
    if (u->foreign && u->foreign->fate == BR_FOREIGN_SAME)
        u->component = br_component_find(f->fit->registry, kind, u->foreign->as);
    bool idle = u->foreign && u->foreign->fate == BR_FOREIGN_IDLE;
    if (!u->component && !idle && (u->foreign || fit_is_strange(f, kind, u->type)))
        u->lacking = fit_why_lacking(f, u);
    f->n_units++;
}

static void fit_collect(struct fitter *f)
{
    size_t n = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        const struct br_yaml *section = fit_section(f, (enum br_kind)kind);
        n += section ? section->n : 0;
    }
    f->units = fit_keep(f, br_arena_calloc(f->fit->arena, n, sizeof *f->units));
    for (int kind = 0; kind < KINDS && f->units; kind++) {
        const struct br_yaml *section = fit_section(f, (enum br_kind)kind);
        for (size_t i = 0; section && i < section->n; i++)
            fit_add_unit(f, (enum br_kind)kind, section->keys[i]);
    }
}

/* What a list of `kind` means by `node`; NULL when nothing is defined by that name. */
static struct unit *fit_resolve(struct fitter *f, enum br_kind kind, const struct br_yaml *node)
{
    if (node->type != BR_YAML_SCALAR)
        return NULL;
    const char *id = fit_keep(f, br_id_trim(f->fit->arena, node->text));
    struct unit *connector = NULL;
    for (size_t i = 0; id && i < f->n_units; i++) {
        struct unit *u = &f->units[i];
        if (strcmp(u->id, id) != 0)
            continue;
        if (u->kind == kind)
            return u;
        if (u->kind == BR_CONNECTOR && (kind == BR_RECEIVER || kind == BR_EXPORTER))
            connector = u;
    }
    return connector;
}

/* Takes what cannot stay out of a list. */
static void fit_list(struct fitter *f, struct br_yaml *list, enum br_kind kind)
{
    for (size_t i = 0; list->type == BR_YAML_SEQ && i < list->n;) {
        struct unit *u = fit_resolve(f, kind, list->items[i]);
        if (u)
            u->wanted = true;
        if (u && u->lacking)
            fit_cut(f, list, i, NULL, NULL);
        else
            i++;
    }
}

/* --- Pipelines ------------------------------------------------------------------------------- */

static const struct {
    const char *key;
    enum br_kind kind;
} lists[] = {{"receivers", BR_RECEIVER}, {"processors", BR_PROCESSOR}, {"exporters", BR_EXPORTER}};

static bool fit_is_foreign_signal(const char *id)
{
    size_t n = strcspn(id, "/");
    return (n == 7 && strncmp(id, "metrics", n) == 0) || (n == 4 && strncmp(id, "logs", n) == 0);
}

/* Marks what a pipeline names. */
static void fit_mark(struct fitter *f, const struct br_yaml *pipeline, bool stays)
{
    for (size_t k = 0; k < BR_COUNT(lists); k++) {
        const struct br_yaml *list = br_yaml_get(pipeline, lists[k].key);
        bool seq = list && list->type == BR_YAML_SEQ;
        for (size_t i = 0; list && i < (seq ? list->n : 1); i++) {
            struct unit *u = fit_resolve(f, lists[k].kind, seq ? list->items[i] : list);
            if (!u)
                continue;
            u->named = true;
            u->used = u->used || stays;
        }
    }
}

/* A pipeline's path, and then its end. */
static void fit_cut_pipeline(struct fitter *f, struct br_yaml *pipelines, size_t index,
                             const char *why)
{
    char path[192];
    br_path_join(path, "service::pipelines", pipelines->keys[index]->text);
    fit_cut(f, pipelines, index, path, why);
}

static void fit_signals(struct fitter *f, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->n;) {
        const char *id = fit_keep(f, br_id_trim(f->fit->arena, pipelines->keys[i]->text));
        if (!id || !fit_is_foreign_signal(id)) {
            i++;
            continue;
        }
        fit_mark(f, pipelines->items[i], false);
        fit_cut_pipeline(f, pipelines, i, "Braid carries traces and profiles");
    }
}

/* True when a list that a pipeline needs had something and has nothing now. */
static bool fit_ran_dry(struct fitter *f, const struct br_yaml *pipeline, size_t k)
{
    struct br_yaml *list = br_yaml_get(pipeline, lists[k].key);
    if (!list || lists[k].kind == BR_PROCESSOR)
        return false;
    if (list->type == BR_YAML_SEQ) {
        size_t before = list->n;
        return before && (fit_list(f, list, lists[k].kind), list->n == 0);
    }
    const struct unit *u =
        list->type == BR_YAML_SCALAR ? fit_resolve(f, lists[k].kind, list) : NULL;
    return u && u->lacking;
}

/* The ids of what cannot stay in it, for the reason. */
static const char *fit_why_dry(struct fitter *f, const struct br_yaml *pipeline, size_t k)
{
    struct br_str text = {.max = 300};
    const struct br_yaml *list = br_yaml_get(pipeline, lists[k].key);
    bool seq = list && list->type == BR_YAML_SEQ;
    br_str_printf(&text, "none of its %s can stay", lists[k].key);
    for (size_t i = 0; list && i < (seq ? list->n : 1); i++) {
        const struct br_yaml *item = seq ? list->items[i] : list;
        if (item->type == BR_YAML_SCALAR)
            br_str_printf(&text, "%s%s", i ? ", " : ": ", item->text);
    }
    const char *kept =
        fit_keep(f, br_arena_strndup(f->fit->arena, text.data ? text.data : "", text.len));
    br_str_release(&text);
    return kept;
}

/* Takes out of one pipeline what cannot stay. False when the pipeline has gone with it. */
static bool fit_pipeline(struct fitter *f, struct br_yaml *pipelines, size_t index)
{
    struct br_yaml *pipeline = pipelines->items[index];
    for (size_t k = 0; k < BR_COUNT(lists) && !f->no_memory; k++) {
        const char *why = fit_why_dry(f, pipeline, k);
        struct br_yaml *list = br_yaml_get(pipeline, lists[k].key);
        if (list && lists[k].kind == BR_PROCESSOR)
            fit_list(f, list, BR_PROCESSOR);
        if (!fit_ran_dry(f, pipeline, k))
            continue;
        fit_mark(f, pipeline, false);
        fit_cut_pipeline(f, pipelines, index, why);
        return false;
    }
    return true;
}

/* Until nothing that is left names what has gone. */
static void fit_all_pipelines(struct fitter *f, struct br_yaml *pipelines)
{
    for (size_t i = 0; i < pipelines->n && !f->no_memory;)
        if (fit_pipeline(f, pipelines, i))
            i++;
}

/* --- What is left of the sections ------------------------------------------------------------ */

static const char *fit_why_unit(const struct unit *u)
{
    if (u->lacking && (u->wanted || u->kind == BR_EXTENSION))
        return u->lacking;
    if (u->lacking && !u->named)
        return "no pipeline names it";
    return u->named && !u->used ? "only what is left out uses it" : NULL;
}

static void fit_units(struct fitter *f)
{
    for (size_t i = 0; i < f->n_units && !f->no_memory; i++) {
        struct unit *u = &f->units[i];
        struct br_yaml *section = fit_section(f, u->kind);
        const char *why = fit_why_unit(u);
        size_t at = section ? br_yaml_index(section, u->key->text) : 0;
        if (!why || !section || at == section->n)
            continue;
        char path[192];
        fit_cut(f, section, at, br_path_join(path, br_kind_section(u->kind), u->id), why);
    }
}

static void fit_extensions(struct fitter *f)
{
    struct br_yaml *list = br_yaml_get(br_yaml_get(f->tree, "service"), "extensions");
    if (list)
        fit_list(f, list, BR_EXTENSION);
}

/* Everything about components, anew: a setting that went may have taken its component along. */
static int fit_components(struct fitter *f)
{
    struct br_yaml *pipelines = fit_pipelines(f);
    if (!pipelines || pipelines->n == 0)
        return 0; /* the loader says so */
    fit_signals(f, pipelines);
    fit_all_pipelines(f, pipelines);
    fit_extensions(f);
    for (size_t i = 0; i < f->n_units; i++)
        f->units[i].used = false;
    for (size_t i = 0; i < pipelines->n; i++)
        fit_mark(f, pipelines->items[i], true);
    fit_units(f);
    if (pipelines->n)
        return 0;
    return br_errs_add(f->fit->errs, pipelines, "service::pipelines",
                       "nothing is left: no pipeline of traces or profiles has a receiver and an "
                       "exporter that Braid has");
}

/* --- What the loader refuses ----------------------------------------------------------------- */

/* The pairs and items that lead to a node, from the root on. */
struct chain {
    struct {
        struct br_yaml *parent;
        size_t index;
    } v[CHAIN_MAX];
    size_t n;
};

static struct br_yaml *chain_value(const struct chain *c, size_t i)
{
    return c->v[i].parent->items[c->v[i].index];
}

static const char *chain_key(const struct chain *c, size_t i)
{
    const struct br_yaml *parent = c->v[i].parent;
    return parent->keys ? parent->keys[c->v[i].index]->text : "";
}

static bool chain_add(struct chain *c, struct br_yaml *parent, size_t index)
{
    if (c->n == CHAIN_MAX || index >= parent->n)
        return false;
    c->v[c->n].parent = parent;
    c->v[c->n++].index = index;
    return true;
}

/* The key of `map` that `path` goes on with, which may have "::" in it; map->n when there is none.
 */
static size_t chain_step(const struct br_yaml *map, const char *path, size_t *ret_len)
{
    size_t best = map->n, best_len = 0;
    for (size_t i = 0; map->type == BR_YAML_MAP && i < map->n; i++) {
        size_t len = strlen(map->keys[i]->text);
        const char *after = path + len;
        bool fits = strncmp(path, map->keys[i]->text, len) == 0 &&
                    (*after == '\0' || *after == '[' || strncmp(after, "::", 2) == 0);
        if (fits && len >= best_len) {
            best = i;
            best_len = len;
        }
    }
    *ret_len = best_len;
    return best;
}

/* Goes where an error's path leads, as far as there is something. */
static void chain_follow(struct chain *c, struct br_yaml *tree, const char *path)
{
    struct br_yaml *at = tree;
    while (*path) {
        size_t len = 0;
        if (*path == '[') {
            char *end;
            size_t index = (size_t)strtoul(path + 1, &end, 10);
            if (at->type != BR_YAML_SEQ || *end != ']' || !chain_add(c, at, index))
                return;
            len = (size_t)(end + 1 - path);
        } else {
            size_t index = chain_step(at, path, &len);
            if (len == 0 || !chain_add(c, at, index))
                return;
        }
        at = chain_value(c, c->n - 1);
        path += len;
        path += strncmp(path, "::", 2) == 0 ? 2 : 0;
    }
}

static bool chain_stands_at(const struct br_yaml *node, const struct br_err *err)
{
    return node->line == err->line && node->col == err->col;
}

/* One step further, to the key or the item that the error points at. */
static void chain_point(struct chain *c, const struct br_err *err)
{
    struct br_yaml *at = c->n ? chain_value(c, c->n - 1) : NULL;
    bool by_key = at && at->type == BR_YAML_MAP && err->code == BR_EUNSUPPORTED;
    bool slip = at && at->type == BR_YAML_MAP && strncmp(err->text, "unknown key", 11) == 0;
    for (size_t i = 0; at && i < at->n; i++) {
        bool here = at->type == BR_YAML_SEQ ? chain_stands_at(at->items[i], err)
                                            : (by_key || slip) && chain_stands_at(at->keys[i], err);
        if (here && chain_add(c, at, i))
            return;
    }
}

/* The place in the chain of a key that guards something; c->n when it has none. */
static size_t chain_guard(const struct chain *c)
{
    for (size_t i = 2; i < c->n; i++)
        if (strcmp(chain_key(c, i), "tls") == 0 || strcmp(chain_key(c, i), "auth") == 0)
            return i;
    return c->n;
}

static bool fit_is_expanded(const struct br_yaml *node)
{
    if (!node || node->expanded)
        return node != NULL;
    for (size_t i = 0; i < node->n; i++)
        if (fit_is_expanded(node->items[i]))
            return true;
    return false;
}

/* An error's words, without the name of the key, which is told before them. */
static const char *fit_why(struct fitter *f, const struct br_err *err)
{
    const char *text = err->text, *end = text[0] == '"' ? strstr(text, "\": ") : NULL;
    if (end)
        text = end + 3;
    return fit_keep(f, br_arena_strndup(f->fit->arena, text, strlen(text)));
}

/* Makes the component that the chain starts with one that cannot stay. */
static bool fit_lose_unit(struct fitter *f, const struct chain *c, const char *why)
{
    const struct br_yaml *key = c->v[1].parent->keys[c->v[1].index];
    for (size_t i = 0; i < f->n_units; i++) {
        struct unit *u = &f->units[i];
        if (u->key != key || u->lacking)
            continue;
        u->lacking = why;
        return true;
    }
    return false;
}

static int fit_kind_of(const char *section)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(section, br_kind_section((enum br_kind)kind)) == 0)
            return kind;
    return -1;
}

/* Takes out what an error is about. False when that cannot be. */
static bool fit_answer(struct fitter *f, const struct br_err *err)
{
    struct chain c = {.n = 0};
    chain_follow(&c, f->tree, err->path);
    chain_point(&c, err);
    if (c.n < 2 || (!f->fit->all && err->code != BR_EUNSUPPORTED))
        return false;
    if (f->fit->all && fit_is_expanded(chain_value(&c, c.n - 1)))
        return false;
    int kind = fit_kind_of(chain_key(&c, 0));
    if (kind < 0 && err->code != BR_EUNSUPPORTED && strcmp(chain_key(&c, 1), "telemetry") != 0)
        return false; /* no Collector takes it either */
    size_t guard = chain_guard(&c), last = c.n - 1;
    bool serves = kind == BR_RECEIVER || kind == BR_EXTENSION;
    if (serves && guard < c.n && !f->fit->all)
        return false;
    if (serves && guard < c.n)
        for (last = guard - 1; last > 1 && c.v[last].parent->n == 1;)
            last--; /* with the last of its listeners goes the house */
    else if (kind == BR_EXPORTER && guard < c.n && strcmp(chain_key(&c, guard), "tls") == 0)
        last = 1;
    const char *why = fit_why(f, err);
    for (size_t i = 2; i < last; i++)
        if (!c.v[i].parent->keys)
            last = i; /* half a rule is another rule */
    if (kind >= 0 && last == 1)
        return why && fit_lose_unit(f, &c, why);
    fit_cut(f, c.v[last].parent, c.v[last].index, err->path, why);
    return true;
}

/* One load; answers what can be answered. Returns how much that was. */
static size_t fit_round(struct fitter *f, struct br_errs *errs)
{
    struct br_config *config = NULL;
    size_t n_answered = 0;
    if (br_config_load_tree(f->tree, f->fit->registry, &config, errs) == BR_ENOMEM)
        f->no_memory = true;
    br_config_free(config);
    bool moved = false; /* the items of some list stand elsewhere by now */
    for (size_t i = 0; i < errs->n_errors && !f->no_memory; i++) {
        bool in_list = strchr(errs->errors[i].path, '[') != NULL;
        if ((in_list && moved) || !fit_answer(f, &errs->errors[i]))
            continue;
        moved = moved || in_list;
        n_answered++;
    }
    return n_answered;
}

/* What is left is this machine's, or nobody's: values that ${...} brings are not the file's fault.
 */
static int fit_judge(struct fitter *f, const struct br_errs *errs)
{
    int rc = 0;
    for (size_t i = 0; i < errs->n_errors; i++) {
        const struct br_err *err = &errs->errors[i];
        const struct br_yaml at = {.file = err->file, .line = err->line, .col = err->col};
        struct chain c = {.n = 0};
        chain_follow(&c, f->tree, err->path);
        chain_point(&c, err);
        if (c.n >= 2 && fit_is_expanded(chain_value(&c, c.n - 1)))
            br_errs_warn(f->fit->errs, &at, err->path,
                         "depends on ${...}, and is here not right: %s", err->text);
        else
            rc = br_errs_add(f->fit->errs, &at, err->path, "%s", err->text);
    }
    return rc;
}

/* Each round takes something away, so there is a last one. */
static int fit_settings(struct fitter *f)
{
    int rc = 0;
    for (bool more = true; more && !rc && !f->no_memory;) {
        struct br_errs errs = {0};
        more = fit_round(f, &errs) > 0;
        if (more)
            rc = fit_components(f);
        else if (f->fit->all)
            rc = fit_judge(f, &errs);
        br_errs_release(&errs);
    }
    return rc;
}

int br_config_fit(const struct br_fit *fit, struct br_yaml *tree)
{
    struct fitter f = {.fit = fit, .tree = tree};
    fit_collect(&f);
    int rc = f.no_memory ? 0 : fit_components(&f);
    if (rc == 0 && !f.no_memory)
        rc = fit_settings(&f);
    return f.no_memory ? br_errs_no_memory(fit->errs) : rc;
}
