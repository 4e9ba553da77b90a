/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the lists of statements. A list contains groups of statements, or statements, which are one
 * group if they have one context.
 */
#include <string.h>

#include "base/bytes.h"
#include "processors/transform/transform.h"

/* A list that is being read. */
struct reading {
    struct transform_signal *signal;
    const struct transform_config *config;
    enum br_signal kind;
    struct br_arena *arena;
    struct br_errs *errs; /* NULL: errors are not reported */
    int rc;
};

/* Reports an error with the code BR_EINVAL or BR_EUNSUPPORTED. */
static void transform_config_report(struct reading *reading, const struct br_yaml *node,
                                    const char *path, int code, const char *text)
{
    reading->rc = reading->rc == BR_ENOMEM ? BR_ENOMEM : BR_EINVAL;
    if (!path)
        reading->rc = BR_ENOMEM;
    else if (reading->errs)
        (void)(code == BR_EUNSUPPORTED ? br_errs_lack : br_errs_add)(reading->errs, node, path,
                                                                     "%s", text);
}

static void transform_config_wrong(struct reading *reading, const struct br_yaml *node,
                                   const char *path, const char *text)
{
    transform_config_report(reading, node, path, BR_EINVAL, text);
}

static struct transform_group *transform_config_group(struct reading *reading)
{
    struct transform_group *group = br_arena_calloc(reading->arena, 1, sizeof *group);
    if (!group) {
        reading->rc = BR_ENOMEM;
        return NULL;
    }
    group->statements.named = true;
    group->statements.error_mode = (enum br_error_mode)reading->config->error_mode;
    return group;
}

static void transform_config_append(struct reading *reading, struct transform_group *group)
{
    struct transform_signal *signal = reading->signal;
    if (!group->statements.first)
        return;
    if (signal->last)
        signal->last->next = group;
    else
        signal->first = group;
    signal->last = group;
}

/* Compiles a statement or, if `condition` is set, a condition. */
static void transform_config_add(struct reading *reading, struct transform_group *group,
                                 const struct br_yaml *text, const char *path, bool condition)
{
    struct br_err err = {0};
    int rc;
    if (text->type != BR_YAML_SCALAR) {
        transform_config_wrong(reading, text, path, "must be a text");
        return;
    }
    if (condition)
        rc = br_statements_add_condition(&group->statements, &reading->signal->conditions,
                                         text->text, reading->kind, reading->arena, &err);
    else
        rc = br_statements_add(&group->statements, &reading->signal->conditions, text->text,
                               reading->kind, reading->arena, &err);
    if (rc == BR_ENOMEM)
        reading->rc = rc;
    else if (rc)
        transform_config_report(reading, text, path, rc, err.text);
}

/* Returns true if the text uses a context of the Collector that Braid does not have. */
static bool transform_config_is_foreign(const char *text)
{
    return strstr(text, "spanlink.") || strstr(text, "otelcol.");
}

static void transform_config_no_context(struct reading *reading, const struct br_yaml *node,
                                        const char *path)
{
    bool foreign = node->type == BR_YAML_SCALAR && transform_config_is_foreign(node->text);
    char text[200];
    struct br_str out = {.data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    text[0] = '\0';
    br_str_printf(&out,
                  "no path names a context; begin the paths with the name of one, such as "
                  "%s.attributes; contexts: %s",
                  reading->kind == BR_TRACES ? "span" : "sample", br_context_names(reading->kind));
    transform_config_report(reading, node, path, foreign ? BR_EUNSUPPORTED : BR_EINVAL, text);
}

/* --- Groups ----------------------------------------------------------------------------------- */

/* Returns the elements of a list; a scalar is a list of one element. */
static const struct br_yaml *const *transform_config_items(const struct br_yaml *const *node,
                                                           size_t *ret_count)
{
    *ret_count = 0;
    if (!*node || (*node)->type == BR_YAML_NULL)
        return node;
    if ((*node)->type != BR_YAML_SEQ) {
        *ret_count = 1;
        return node;
    }
    *ret_count = (*node)->count;
    return (const struct br_yaml *const *)(*node)->items;
}

static void transform_config_add_list(struct reading *reading, struct transform_group *group,
                                      const struct br_yaml *map, const char *path, bool condition)
{
    const char *key = condition ? "conditions" : "statements";
    const struct br_yaml *list = br_yaml_get(map, key);
    size_t count;
    const struct br_yaml *const *items = transform_config_items(&list, &count);
    for (size_t i = 0; i < count && reading->rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(reading->arena, "%s::%s[%zu]", path, key, i);
        transform_config_add(reading, group, items[i], at, condition);
    }
}

/* Infers the context of a list of statements and a list of conditions, which may be NULL. */
static enum br_condition_context transform_config_infer(struct reading *reading,
                                                        const struct br_yaml *statements,
                                                        const struct br_yaml *conditions)
{
    const struct br_yaml *const lists[] = {statements, conditions};
    size_t counts[2], n = 0;
    const struct br_yaml *const *items[2];
    for (unsigned i = 0; i < 2; i++)
        items[i] = transform_config_items(&lists[i], &counts[i]);
    const char **texts = br_arena_calloc(reading->arena, counts[0] + counts[1] + 1, sizeof *texts);
    if (!texts) {
        reading->rc = BR_ENOMEM;
        return BR_CONDITION_NAMED;
    }
    for (unsigned i = 0; i < 2; i++)
        for (size_t k = 0; k < counts[i]; k++)
            if (items[i][k]->type == BR_YAML_SCALAR)
                texts[n++] = items[i][k]->text;
    return br_statements_infer(texts, n, reading->kind);
}

static void transform_config_read_context(struct reading *reading, struct transform_group *group,
                                          const struct br_yaml *map, const char *path)
{
    const struct br_yaml *context = br_yaml_get(map, "context");
    bool given = context && context->type == BR_YAML_SCALAR && *context->text;
    group->statements.named = !given;
    group->statements.context =
        given ? br_context_find(context->text, reading->kind)
              : transform_config_infer(reading, br_yaml_get(map, "statements"),
                                       br_yaml_get(map, "conditions"));
    if (group->statements.context != BR_CONDITION_NAMED || reading->rc == BR_ENOMEM)
        return;
    if (!given) {
        transform_config_no_context(reading, map, path);
        return;
    }
    const char *at = br_arena_printf(reading->arena, "%s::context", path);
    char text[160];
    struct br_str out = {.data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    text[0] = '\0';
    br_str_printf(&out, "the context \"%.40s\" is unknown; contexts: %s", context->text,
                  br_context_names(reading->kind));
    transform_config_report(reading, context, at,
                            strcmp(context->text, "spanlink") == 0 ? BR_EUNSUPPORTED : BR_EINVAL,
                            text);
}

static void transform_config_read_error_mode(struct reading *reading, struct transform_group *group,
                                             const struct br_yaml *map, const char *path)
{
    const struct br_yaml *mode = br_yaml_get(map, "error_mode");
    if (!mode || mode->type == BR_YAML_NULL)
        return;
    for (unsigned i = 0; transform_error_modes[i] && mode->type == BR_YAML_SCALAR; i++)
        if (strcmp(mode->text, transform_error_modes[i]) == 0) {
            group->statements.error_mode = (enum br_error_mode)i;
            return;
        }
    transform_config_wrong(reading, mode, br_arena_printf(reading->arena, "%s::error_mode", path),
                           "must be one of ignore, silent, propagate");
}

static void transform_config_read_shared_cache(struct reading *reading,
                                               struct transform_group *group,
                                               const struct br_yaml *map, const char *path)
{
    const struct br_yaml *shared = br_yaml_get(map, "shared_cache");
    if (!shared || shared->type == BR_YAML_NULL)
        return;
    bool scalar = shared->type == BR_YAML_SCALAR;
    group->shared_cache = scalar && strcmp(shared->text, "true") == 0;
    if (!group->shared_cache && !(scalar && strcmp(shared->text, "false") == 0))
        transform_config_wrong(reading, shared,
                               br_arena_printf(reading->arena, "%s::shared_cache", path),
                               "must be true or false");
}

static void transform_config_check_keys(struct reading *reading, const struct br_yaml *map,
                                        const char *path)
{
    static const char *const known[] = {"context", "conditions", "statements", "error_mode",
                                        "shared_cache"};
    for (size_t i = 0; i < map->count; i++) {
        bool found = false;
        for (size_t k = 0; k < BR_COUNT(known); k++)
            found = found || strcmp(map->keys[i]->text, known[k]) == 0;
        if (!found)
            transform_config_wrong(
                reading, map->keys[i], path,
                "a group has only the keys context, conditions, statements, error_mode and "
                "shared_cache");
    }
}

static void transform_config_read_group(struct reading *reading, const struct br_yaml *map,
                                        const char *path)
{
    struct transform_group *group = transform_config_group(reading);
    if (!group)
        return;
    transform_config_check_keys(reading, map, path);
    transform_config_read_error_mode(reading, group, map, path);
    transform_config_read_shared_cache(reading, group, map, path);
    transform_config_read_context(reading, group, map, path);
    if (group->statements.context == BR_CONDITION_NAMED)
        return;
    transform_config_add_list(reading, group, map, path, true);
    transform_config_add_list(reading, group, map, path, false);
    transform_config_append(reading, group);
}

/* Returns the context of a statement of a list whose statements together have the context
 * `common`. A statement that only uses paths of scopes or profiles can only change these in their
 * own context. */
static enum br_condition_context transform_config_context(const struct reading *reading,
                                                          const struct br_yaml *text,
                                                          enum br_condition_context common)
{
    const char *const texts[] = {text->text};
    enum br_condition_context own = br_statements_infer(texts, 1, reading->kind);
    return own == BR_CONDITION_SCOPE || own == BR_CONDITION_PROFILE ? own : common;
}

/* Reads a list of statements. The statements are one group, or several if their contexts differ. */
static void transform_config_read_flat(struct reading *reading, const struct br_yaml *list,
                                       const char *path, const char *key)
{
    struct transform_group *group = NULL;
    size_t count;
    const struct br_yaml *const *items = transform_config_items(&list, &count);
    enum br_condition_context common = transform_config_infer(reading, list, NULL);
    for (size_t i = 0; i < count && reading->rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(reading->arena, "%s::%s[%zu]", path, key, i);
        enum br_condition_context context = transform_config_context(reading, items[i], common);
        if (context == BR_CONDITION_NAMED) {
            transform_config_no_context(reading, items[i], at);
            return;
        }
        if (!group || group->statements.context != context) {
            if (group)
                transform_config_append(reading, group);
            group = transform_config_group(reading);
            if (!group)
                return;
            group->statements.context = context;
        }
        transform_config_add(reading, group, items[i], at, false);
    }
    if (group)
        transform_config_append(reading, group);
}

int transform_compile(struct transform_signal *signal, const struct transform_config *config,
                      enum br_signal kind, const char *path, struct br_arena *arena,
                      struct br_errs *errs)
{
    const char *key = kind == BR_TRACES ? "trace_statements" : "profile_statements";
    const struct br_yaml *list =
        kind == BR_TRACES ? config->trace_statements : config->profile_statements;
    struct reading reading = {
        .signal = signal, .config = config, .kind = kind, .arena = arena, .errs = errs};
    size_t count;
    const struct br_yaml *const *items = transform_config_items(&list, &count);
    bool flat = count && items[0]->type == BR_YAML_SCALAR;
    for (size_t i = 0; i < count && reading.rc != BR_ENOMEM; i++) {
        const char *at = br_arena_printf(arena, "%s::%s[%zu]", path, key, i);
        if (!at)
            return BR_ENOMEM;
        if (items[i]->type == BR_YAML_MAP && !flat) {
            transform_config_read_group(&reading, items[i], at);
        } else if (items[i]->type != items[0]->type) {
            flat = false;
            transform_config_wrong(&reading, items[i], at,
                                   "a list contains either statements or groups, not both");
        } else if (!flat) {
            transform_config_wrong(&reading, items[i], at,
                                   "must be a statement, or a map with a list of statements under "
                                   "\"statements\"");
        }
    }
    if (flat)
        transform_config_read_flat(&reading, list, path, key);
    return reading.rc;
}
