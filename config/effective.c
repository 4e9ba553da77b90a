/* SPDX-License-Identifier: Apache-2.0 */
#include "config/option.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/parts.h"

static struct br_yaml *effective_scalar(struct br_arena *arena, const char *text, bool quoted)
{
    struct br_yaml *node = br_yaml_scalar(arena, text, strlen(text), NULL);
    if (node)
        node->quoted = quoted;
    return node;
}

/* Returns a scalar node for `text`, or a null node if `text` is NULL. */
static struct br_yaml *effective_text(struct br_arena *arena, const char *text)
{
    return text ? effective_scalar(arena, text, true) : br_yaml_new(arena, BR_YAML_NULL, NULL);
}

static struct br_yaml *effective_number(struct br_arena *arena, const struct br_option *option,
                                        const void *field)
{
    char text[64];
    int64_t integer;
    double real;
    if (option->kind == BR_OPT_INT) {
        memcpy(&integer, field, sizeof integer);
        (void)snprintf(text, sizeof text, "%" PRId64, integer);
    } else {
        memcpy(&real, field, sizeof real);
        (void)snprintf(text, sizeof text, "%.15g", real);
    }
    return effective_scalar(arena, text, false);
}

static struct br_yaml *effective_duration(struct br_arena *arena, const void *field)
{
    char text[BR_DURATION_SIZE];
    uint64_t ns;
    memcpy(&ns, field, sizeof ns);
    return effective_scalar(arena, br_duration_format(ns, text), false);
}

static struct br_yaml *effective_strings(struct br_arena *arena, const struct br_strings *strings)
{
    struct br_yaml *list = br_yaml_new(arena, BR_YAML_SEQ, NULL);
    for (size_t i = 0; list && i < strings->count; i++) {
        struct br_yaml *item = effective_text(arena, strings->items[i]);
        if (!item || br_yaml_append(arena, list, NULL, item))
            return NULL;
    }
    return list;
}

static struct br_yaml *effective_headers(struct br_arena *arena, const struct br_headers *headers)
{
    struct br_yaml *map = br_yaml_new(arena, BR_YAML_MAP, NULL);
    for (size_t i = 0; map && i < headers->count; i++) {
        struct br_yaml *name = effective_scalar(arena, headers->names[i], true);
        struct br_yaml *value = effective_text(arena, headers->values[i].text);
        if (!name || !value || br_yaml_append(arena, map, name, value))
            return NULL;
    }
    return map;
}

/* Returns the map `{enabled: false}`. */
static struct br_yaml *effective_absent(struct br_arena *arena)
{
    struct br_yaml *map = br_yaml_new(arena, BR_YAML_MAP, NULL);
    struct br_yaml *key = effective_scalar(arena, "enabled", false);
    struct br_yaml *off = effective_scalar(arena, "false", false);
    return map && key && off && br_yaml_append(arena, map, key, off) == 0 ? map : NULL;
}

/* Returns a copy of `given`, the node from the config file, or a null node if `given` is NULL. */
static struct br_yaml *effective_as_given(struct br_arena *arena, const struct br_yaml *given)
{
    struct br_yaml *node = br_yaml_new(arena, BR_YAML_NULL, NULL);
    if (node && given)
        *node = *given;
    return node;
}

static struct br_yaml *effective_value(const struct br_option *option, const void *field,
                                       const struct br_yaml *given, struct br_arena *arena)
{
    const void *pointer = NULL;
    bool flag;
    int choice;
    switch (option->kind) {
    case BR_OPT_BOOL:
        memcpy(&flag, field, sizeof flag);
        return effective_scalar(arena, flag ? "true" : "false", false);
    case BR_OPT_INT:
    case BR_OPT_DOUBLE:
        return effective_number(arena, option, field);
    case BR_OPT_DURATION:
        return effective_duration(arena, field);
    case BR_OPT_STRING:
    /* the struct of a secret has a text as its only member, so a secret is read like a text */
    case BR_OPT_SECRET:
        memcpy(&pointer, field, sizeof pointer);
        return effective_text(arena, pointer);
    case BR_OPT_ENUM:
        memcpy(&choice, field, sizeof choice);
        return effective_text(arena, option->choices[choice]);
    case BR_OPT_STRINGS:
        return ((const struct br_strings *)field)->count ? effective_strings(arena, field)
                                                         : effective_as_given(arena, given);
    case BR_OPT_HEADERS:
        return ((const struct br_headers *)field)->count ? effective_headers(arena, field)
                                                         : effective_as_given(arena, given);
    case BR_OPT_STRUCT:
        return br_options_effective(option->sub, field, given, arena);
    case BR_OPT_PRESENT:
        memcpy(&pointer, field, sizeof pointer);
        return pointer ? br_options_effective(option->sub, pointer, given, arena)
                       : effective_absent(arena);
    case BR_OPT_LIST:
    case BR_OPT_VALUE:
    case BR_OPT_IGNORED:
        break;
    }
    return effective_as_given(arena, given);
}

struct br_yaml *br_options_effective(const struct br_option *table, const void *settings,
                                     const struct br_yaml *node, struct br_arena *arena)
{
    struct br_yaml *map = br_yaml_new(arena, BR_YAML_MAP, NULL);
    for (const struct br_option *option = table; map && option && option->name; option++) {
        /* the row defines an older spelling of a key that has another row; only the newer spelling
         * is printed */
        if (option->now)
            continue;
        const struct br_yaml *given = br_yaml_get(node, option->name);
        if (!given && option->alias)
            given = br_yaml_get(node, option->alias);
        if (option->kind == BR_OPT_IGNORED && !given)
            continue;
        struct br_yaml *key = effective_scalar(arena, option->name, false);
        struct br_yaml *value =
            effective_value(option, (const char *)settings + option->offset, given, arena);
        if (!key || !value || br_yaml_append(arena, map, key, value))
            return NULL;
    }
    return map;
}
