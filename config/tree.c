/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

struct br_yaml *br_yaml_new(struct br_arena *arena, enum br_yaml_type type,
                            const struct br_yaml *at)
{
    struct br_yaml *node = br_arena_calloc(arena, 1, sizeof *node);
    if (!node)
        return NULL;
    node->type = type;
    if (at) {
        node->file = at->file;
        node->line = at->line;
        node->col = at->col;
    }
    return node;
}

struct br_yaml *br_yaml_scalar(struct br_arena *arena, const char *text, size_t len,
                               const struct br_yaml *at)
{
    struct br_yaml *node = br_yaml_new(arena, BR_YAML_SCALAR, at);
    if (!node)
        return NULL;
    node->text = br_arena_strndup(arena, text, len);
    node->len = len;
    return node->text ? node : NULL;
}

static struct br_yaml **yaml_tree_grown(struct br_arena *arena, struct br_yaml **old, size_t count)
{
    struct br_yaml **array = br_arena_calloc(arena, count ? count * 2 : 4, sizeof *array);
    if (array && count)
        memcpy(array, old, count * sizeof *array);
    return array;
}

int br_yaml_append(struct br_arena *arena, struct br_yaml *node, struct br_yaml *key,
                   struct br_yaml *value)
{
    /* The array's capacity is 4, 8, 16, ..., and is computed from the count. */
    size_t n = node->count;
    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        struct br_yaml **items = yaml_tree_grown(arena, node->items, n);
        struct br_yaml **keys = key ? yaml_tree_grown(arena, node->keys, n) : NULL;
        if (!items || (key && !keys))
            return BR_ENOMEM;
        node->items = items;
        node->keys = keys;
    }
    node->items[n] = value;
    if (key)
        node->keys[n] = key;
    node->count++;
    return 0;
}

void br_yaml_remove(struct br_yaml *node, size_t index)
{
    size_t after = node->count - index - 1;
    memmove(node->items + index, node->items + index + 1, after * sizeof *node->items);
    if (node->keys)
        memmove(node->keys + index, node->keys + index + 1, after * sizeof *node->keys);
    node->count--;
}

size_t br_yaml_index(const struct br_yaml *map, const char *key)
{
    size_t i = 0;
    while (i < map->count && strcmp(map->keys[i]->text, key) != 0)
        i++;
    return i;
}

struct br_yaml *br_yaml_get(const struct br_yaml *map, const char *key)
{
    if (!map || map->type != BR_YAML_MAP)
        return NULL;
    size_t i = br_yaml_index(map, key);
    return i < map->count ? map->items[i] : NULL;
}

static bool yaml_tree_one_of(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, words[i]) == 0)
            return true;
    return false;
}

enum br_yaml_look br_yaml_look(const char *text)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE"};
    static const char *const odd[] = {"inf", "Inf", "INF", "nan", "NaN", "NAN"};
    if (yaml_tree_one_of(text, nulls, BR_COUNT(nulls)))
        return BR_LOOK_NULL;
    if (yaml_tree_one_of(text, bools, BR_COUNT(bools)))
        return BR_LOOK_BOOL;
    const char *p = text + (*text == '-' || *text == '+');
    if (*p == '.' && yaml_tree_one_of(p + 1, odd, BR_COUNT(odd)))
        return BR_LOOK_NUMBER;
    if (!isdigit((unsigned char)p[*p == '.']))
        return BR_LOOK_TEXT;
    return p[strspn(p, "0123456789abcdefABCDEFxXoO_.+-")] ? BR_LOOK_TEXT : BR_LOOK_NUMBER;
}

const char *br_text_show(const char *text, char *out)
{
    enum { SHOWN = 96 };
    size_t len = strnlen(text, SHOWN + 1);
    bool cut = len > SHOWN;
    if (cut)
        len = br_utf8_valid((const uint8_t *)text, SHOWN);
    (void)snprintf(out, BR_SHOWN_SIZE, "\"%.*s%s\"", (int)len, text, cut ? "..." : "");
    for (char *p = out; *p; p++)
        if (iscntrl((unsigned char)*p))
            *p = ' ';
    return out;
}

const char *br_yaml_show(const struct br_yaml *node, char *out)
{
    if (node && node->type == BR_YAML_SCALAR)
        return br_text_show(node->text, out);
    const char *what = "nothing";
    if (node && node->type == BR_YAML_MAP)
        what = "a map";
    if (node && node->type == BR_YAML_SEQ)
        what = "a list";
    (void)snprintf(out, BR_SHOWN_SIZE, "%s", what);
    return out;
}

#define NO_BREAK_SPACE "\xc2\xa0"

static bool yaml_tree_text_is_key(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_/.-", text[i]))
            return false;
    return len > 0;
}

const char *br_yaml_slip(const struct br_yaml *node, char out[BR_SHOWN_SIZE + 80])
{
    const size_t size = BR_SHOWN_SIZE + 80;
    const char *text = node && node->type == BR_YAML_SCALAR ? node->text : "";
    size_t key = strcspn(text, ": \n\t\xc2");
    bool plain = node && !node->quoted && !node->expanded && yaml_tree_text_is_key(text, key);
    out[0] = '\0';
    if (!plain)
        return out;
    if (strstr(text, NO_BREAK_SPACE))
        (void)snprintf(out, size,
                       "; it contains a no-break space, where YAML requires a plain one");
    else if (!text[key] && node->own_line && br_yaml_look(text) == BR_LOOK_TEXT)
        (void)snprintf(out, size, "; a colon is missing after it");
    else if (text[key] == ':' && text[key + 1])
        (void)snprintf(out, size, "; a space is missing after its first colon");
    else if (text[key] && strchr(" \n", text[key]) && node->own_line && key < 64)
        (void)snprintf(out, size, "; a colon is missing after \"%.*s\"", (int)key, text);
    return out;
}

const char *br_path_join(char out[192], const char *path, const char *name)
{
    (void)snprintf(out, 192, "%s%s%s", path, *path ? "::" : "", name);
    return out;
}

void br_text_strip(const char **text, size_t *len)
{
    while (*len && isspace((unsigned char)**text)) {
        (*text)++;
        (*len)--;
    }
    while (*len && isspace((unsigned char)(*text)[*len - 1]))
        (*len)--;
}

char *br_id_trim(struct br_arena *arena, const char *text)
{
    const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : "";
    size_t type_len = slash ? (size_t)(slash - text) : strlen(text), name_len = strlen(name);
    br_text_strip(&text, &type_len);
    br_text_strip(&name, &name_len);
    return br_arena_printf(arena, "%.*s%s%.*s", (int)type_len, text, slash ? "/" : "",
                           (int)name_len, name);
}

static bool tree_scalars_are_equal(const struct br_yaml *one, const struct br_yaml *other)
{
    return one->quoted == other->quoted && one->len == other->len &&
           (one->len == 0 || memcmp(one->text, other->text, one->len) == 0);
}

bool br_yaml_equal(const struct br_yaml *one, const struct br_yaml *other)
{
    static const struct br_yaml none = {.type = BR_YAML_NULL};
    one = one ? one : &none;
    other = other ? other : &none;
    if (one->type != other->type || one->count != other->count)
        return false;
    if (one->type == BR_YAML_SCALAR)
        return tree_scalars_are_equal(one, other);
    for (size_t i = 0; i < one->count; i++) {
        if (one->type == BR_YAML_MAP && !tree_scalars_are_equal(one->keys[i], other->keys[i]))
            return false;
        if (!br_yaml_equal(one->items[i], other->items[i]))
            return false;
    }
    return true;
}
