/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/option.h"
#include "config/parts.h"

/* longest key, in bytes, that is printed without "? " (YAML's limit: 1024) */
#define SIMPLE_KEY_MAX 120

/* Determines which values below a printed node are secret. */
enum view {
    VIEW_ROOT,
    VIEW_SECTION, /* a section: a map of component ids */
    VIEW_TABLE,   /* a map, or a list of maps, that an option table describes */
    VIEW_HEADERS,
    /* no table describes the node; a value is secret if the name of its key suggests a secret */
    VIEW_GUESS,
    VIEW_HIDE,
};

struct scope {
    enum view view;
    enum br_kind kind;             /* kind of the section's components; only with VIEW_SECTION */
    const struct br_option *table; /* table that describes the node; only with VIEW_TABLE */
};

struct printer {
    struct br_str *out;
    const struct br_component *const *registry;
    bool raw; /* secrets are printed, and ${...} is printed unexpanded */
};

static bool config_print_sounds_secret(const char *name)
{
    static const char *const words[] = {"password", "token",   "secret", "authorization",
                                        "api_key",  "api-key", "apikey"};
    for (size_t i = 0; i < BR_COUNT(words); i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

static struct scope config_print_scope_of_row(const struct br_option *option)
{
    if (option->secret)
        return (struct scope){.view = VIEW_HIDE};
    switch (option->kind) {
    case BR_OPT_SECRET:
        return (struct scope){.view = VIEW_HIDE};
    case BR_OPT_HEADERS:
        return (struct scope){.view = VIEW_HEADERS};
    case BR_OPT_STRUCT:
    case BR_OPT_PRESENT:
    case BR_OPT_LIST:
        return (struct scope){.view = VIEW_TABLE, .table = option->sub};
    case BR_OPT_VALUE:
    case BR_OPT_IGNORED:
        if (config_print_sounds_secret(option->name))
            return (struct scope){.view = VIEW_HIDE};
        break;
    default:
        break;
    }
    return (struct scope){.view = VIEW_GUESS};
}

static struct scope config_print_guess(const char *key)
{
    return (struct scope){.view = config_print_sounds_secret(key) ? VIEW_HIDE : VIEW_GUESS};
}

static struct scope config_print_scope_in_table(const struct br_option *table, const char *key)
{
    for (const struct br_option *option = table; option && option->name; option++)
        if (strcmp(option->name, key) == 0 || (option->alias && strcmp(option->alias, key) == 0))
            return config_print_scope_of_row(option);
    return config_print_guess(key);
}

static struct scope config_print_scope_of_id(const struct printer *printer, enum br_kind kind,
                                             const char *id)
{
    while (isspace((unsigned char)*id))
        id++;
    char type[64];
    size_t len = strcspn(id, "/ \t\n");
    if (len < sizeof type) {
        memcpy(type, id, len);
        type[len] = '\0';
        const struct br_component *component = br_component_find(printer->registry, kind, type);
        if (component)
            return (struct scope){.view = VIEW_TABLE, .table = component->options};
    }
    return (struct scope){.view = VIEW_GUESS};
}

static struct scope config_print_scope_of_section(const char *key)
{
    for (int kind = BR_RECEIVER; kind <= BR_EXTENSION; kind++)
        if (strcmp(key, br_kind_section((enum br_kind)kind)) == 0)
            return (struct scope){.view = VIEW_SECTION, .kind = (enum br_kind)kind};
    return config_print_guess(key);
}

static struct scope config_print_scope_of_child(const struct printer *printer, struct scope scope,
                                                const char *key)
{
    switch (scope.view) {
    case VIEW_ROOT:
        return config_print_scope_of_section(key);
    case VIEW_SECTION:
        return config_print_scope_of_id(printer, scope.kind, key);
    case VIEW_TABLE:
        return config_print_scope_in_table(scope.table, key);
    case VIEW_GUESS:
        return config_print_guess(key);
    case VIEW_HEADERS:
    case VIEW_HIDE:
        break;
    }
    return (struct scope){.view = VIEW_HIDE};
}

/* Returns the scope of a list item. If headers are written as a list, their names are printed and
 * their values are hidden. */
static struct scope config_print_scope_of_item(struct scope scope)
{
    static const struct br_option pair[] = {
        {.name = "name", .kind = BR_OPT_STRING},
        {.name = "value", .kind = BR_OPT_SECRET},
        BR_OPT_END,
    };
    if (scope.view == VIEW_HEADERS)
        return (struct scope){.view = VIEW_TABLE, .table = pair};
    return scope;
}

/* Returns true if the text can be printed without quotes, both as a value and as a key. */
static bool config_print_plain_safe(const char *text, size_t len)
{
    if (!isalnum((unsigned char)text[0]) && !strchr("/_.", text[0]))
        return false;
    if (text[len - 1] == ' ' || text[len - 1] == ':' || strncmp(text, "...", 3) == 0)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("/_.:+@%=~$ -", text[i]))
            return false;
    return !strstr(text, ": ");
}

static uint32_t config_print_decode(const char *text, size_t len, size_t *ret_n)
{
    unsigned char c = (unsigned char)text[0];
    size_t n = 1u + (c >= 0x80) + (c >= 0xe0) + (c >= 0xf0);
    if (n > len || br_utf8_valid((const uint8_t *)text, n) != n) {
        *ret_n = 1;
        return c;
    }
    *ret_n = n;
    uint32_t v = n == 1 ? c : c & (0x7fu >> n);
    for (size_t i = 1; i < n; i++)
        v = v << 6 | ((unsigned char)text[i] & 0x3fu);
    return v;
}

static bool config_print_printable(uint32_t code_point)
{
    if (code_point < 0xa0)
        return code_point >= 0x20 && code_point < 0x7f;
    return code_point != 0x2028 && code_point != 0x2029 && code_point != 0xfeff &&
           code_point != 0xfffe && code_point != 0xffff;
}

static void print_quoted(struct br_str *out, const char *text, size_t len, bool dollars)
{
    br_str_putc(out, '"');
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t c = config_print_decode(text + i, len - i, &n);
        if (c == '"' || c == '\\')
            br_str_printf(out, "\\%c", (int)c);
        else if (c == '\n')
            br_str_puts(out, "\\n");
        else if (c == '$' && dollars)
            br_str_puts(out, "$$");
        else if (config_print_printable(c))
            br_str_add(out, text + i, n);
        else
            br_str_printf(out, c > 0xffff ? "\\U%08x" : "\\u%04x", c);
    }
    br_str_putc(out, '"');
}

static void print_plain(struct br_str *out, const char *text, bool dollars)
{
    for (; *text; text++)
        br_str_puts(out, *text == '$' && dollars ? "$$" : (char[]){*text, '\0'});
}

/* Appends a scalar. A text that looks like a number or a boolean is quoted if it is quoted in the
 * file. If the text comes from ${...}, it is printed without quotes, because quotes around ${...}
 * have no effect when a file is read. */
static void print_text(struct br_str *out, const struct br_yaml *node, bool dollars)
{
    enum br_yaml_look look = br_yaml_look(node->text);
    bool quote = !node->len || look == BR_LOOK_NULL;
    if (look == BR_LOOK_BOOL || look == BR_LOOK_NUMBER)
        quote = node->quoted && !node->expanded;
    else if (!quote)
        quote = !config_print_plain_safe(node->text, node->len);
    if (quote)
        print_quoted(out, node->text, node->len, dollars);
    else
        print_plain(out, node->text, dollars);
}

/* Appends a key. ${...} is not expanded in keys, so "$" is not escaped. */
static void print_key(struct br_str *out, const struct br_yaml *key)
{
    bool simple = key->len <= SIMPLE_KEY_MAX;
    br_str_puts(out, simple ? "" : "? ");
    if (br_yaml_look(key->text) == BR_LOOK_TEXT && config_print_plain_safe(key->text, key->len))
        print_plain(out, key->text, false);
    else
        print_quoted(out, key->text, key->len, false);
}

static void config_print_indent(struct br_str *out, size_t level)
{
    for (size_t i = 0; i < level; i++)
        br_str_puts(out, "  ");
}

static void print_scalar(const struct printer *printer, const struct br_yaml *node,
                         struct scope scope)
{
    struct br_str *out = printer->out;
    if (node->type == BR_YAML_MAP)
        br_str_puts(out, "{}");
    else if (node->type == BR_YAML_SEQ)
        br_str_puts(out, "[]");
    else if (node->type == BR_YAML_NULL)
        br_str_puts(out, "null");
    else if (!printer->raw && (scope.view == VIEW_HIDE || scope.view == VIEW_HEADERS))
        br_str_puts(out, "\"[REDACTED]\"");
    else
        print_text(out, node, !printer->raw);
    br_str_putc(out, '\n');
}

static void print_children(const struct printer *printer, const struct br_yaml *node,
                           struct scope scope, size_t level, bool inline_first);

static void print_child(const struct printer *printer, const struct br_yaml *parent, size_t index,
                        struct scope scope, size_t level)
{
    const struct br_yaml *child = parent->items[index];
    if (printer->raw && child->raw)
        child = child->raw;
    bool map = parent->type == BR_YAML_MAP;
    struct scope inner =
        map ? config_print_scope_of_child(printer, scope, parent->keys[index]->text)
            : config_print_scope_of_item(scope);
    if (map) {
        print_key(printer->out, parent->keys[index]);
        if (parent->keys[index]->len > SIMPLE_KEY_MAX) {
            br_str_putc(printer->out, '\n');
            config_print_indent(printer->out, level);
        }
        br_str_putc(printer->out, ':');
    } else {
        br_str_putc(printer->out, '-');
    }
    /* The value of a secret option may be a map that comes from ${...}, although the option is a
     * text. The whole map is then printed as [REDACTED]. */
    bool hidden = child->brought && !printer->raw && inner.view == VIEW_HIDE;
    if (hidden) {
        br_str_puts(printer->out, " \"[REDACTED]\"\n");
    } else if (child->count == 0) {
        br_str_putc(printer->out, ' ');
        print_scalar(printer, child, inner);
    } else if (map) {
        br_str_putc(printer->out, '\n');
        print_children(printer, child, inner, level + 1, false);
    } else {
        br_str_putc(printer->out, ' ');
        print_children(printer, child, inner, level + 1, true);
    }
}

/* Appends the children of a node. With `inline_first`, the first child is on the same line as
 * the "- " of a list item. */
static void print_children(const struct printer *printer, const struct br_yaml *node,
                           struct scope scope, size_t level, bool inline_first)
{
    for (size_t i = 0; i < node->count; i++) {
        if (i || !inline_first)
            config_print_indent(printer->out, level);
        print_child(printer, node, i, scope, level);
    }
}

static int print_tree(const struct printer *printer, const struct br_yaml *tree)
{
    struct scope root = {.view = VIEW_ROOT};
    if (tree->count)
        print_children(printer, tree, root, 0, false);
    else
        print_scalar(printer, tree, root);
    return printer->out->failed ? BR_ENOMEM : 0;
}

int br_config_print(const struct br_yaml *tree, const struct br_component *const *registry,
                    struct br_str *out)
{
    return print_tree(&(struct printer){out, registry, false}, tree);
}

int br_yaml_print(const struct br_yaml *tree, const struct br_component *const *registry,
                  struct br_str *out)
{
    return print_tree(&(struct printer){out, registry, true}, tree);
}

/* --- Effective settings ---------------------------------------------------------------------- */

/* Appends a key and its value to a map. Returns BR_ENOMEM if an argument is NULL because its
 * allocation failed. */
static int config_print_add(struct br_arena *arena, struct br_yaml *map, const char *key,
                            struct br_yaml *value)
{
    struct br_yaml *name = br_yaml_scalar(arena, key, strlen(key), NULL);
    return map && name && value ? br_yaml_append(arena, map, name, value) : BR_ENOMEM;
}

/* Appends the ids of instances to a list, which may be NULL. Returns 0 or BR_ENOMEM. */
static int config_print_append_ids(struct br_arena *arena, struct br_yaml *list,
                                   struct br_instance *const *instances, size_t count)
{
    for (size_t i = 0; list && i < count; i++) {
        struct br_yaml *id =
            br_yaml_scalar(arena, instances[i]->id, strlen(instances[i]->id), NULL);
        if (!id || br_yaml_append(arena, list, NULL, id))
            return BR_ENOMEM;
    }
    return list ? 0 : BR_ENOMEM;
}

static struct br_yaml *config_print_ids(struct br_arena *arena,
                                        struct br_instance *const *instances, size_t count)
{
    struct br_yaml *list = br_yaml_new(arena, BR_YAML_SEQ, NULL);
    return config_print_append_ids(arena, list, instances, count) ? NULL : list;
}

/* Returns a section with the components of a kind that are in use, or NULL. */
static struct br_yaml *config_print_section(struct br_config *config, enum br_kind kind)
{
    struct br_yaml *section = br_yaml_new(&config->arena, BR_YAML_MAP, NULL);
    for (size_t i = 0; section && i < config->n_instances; i++) {
        const struct br_instance *instance = &config->instances[i];
        if (!instance->used || !instance->component || instance->component->kind != kind)
            continue;
        struct br_yaml *settings = br_options_effective(
            instance->component->options, instance->config, instance->node, &config->arena);
        if (config_print_add(&config->arena, section, instance->id, settings))
            return NULL;
    }
    return section;
}

static struct br_yaml *config_print_pipelines(struct br_config *config)
{
    struct br_arena *arena = &config->arena;
    struct br_yaml *map = br_yaml_new(arena, BR_YAML_MAP, NULL);
    for (size_t i = 0; map && i < config->n_pipelines; i++) {
        const struct br_pipeline *p = &config->pipelines[i];
        struct br_yaml *lists = br_yaml_new(arena, BR_YAML_MAP, NULL);
        int rc = config_print_add(arena, lists, "receivers",
                                  config_print_ids(arena, p->receivers, p->n_receivers));
        size_t n = p->n_processors;
        while (n && p->processors[n - 1]->component && p->processors[n - 1]->component->observes)
            n--;
        rc = rc ? rc
                : config_print_add(arena, lists, "processors",
                                   config_print_ids(arena, p->processors, n));
        struct br_yaml *exporters = config_print_ids(arena, p->exporters, p->n_exporters);
        if (config_print_append_ids(arena, exporters, p->processors + n, p->n_processors - n))
            return NULL;
        rc = rc ? rc : config_print_add(arena, lists, "exporters", exporters);
        if (rc || config_print_add(arena, map, p->id, lists))
            return NULL;
    }
    return map;
}

static struct br_yaml *config_print_workers(struct br_config *config)
{
    char *text = config->workers ? br_arena_printf(&config->arena, "%u", config->workers)
                                 : br_arena_printf(&config->arena, "auto");
    return text ? br_yaml_scalar(&config->arena, text, strlen(text), NULL) : NULL;
}

static struct br_yaml *config_print_service(struct br_config *config)
{
    struct br_arena *arena = &config->arena;
    const struct br_yaml *given = br_yaml_get(config->tree, "service");
    struct br_yaml *service = br_yaml_new(arena, BR_YAML_MAP, NULL);
    struct br_yaml *telemetry =
        br_telemetry_effective(br_yaml_get(given, "telemetry"), &config->telemetry, arena);
    struct br_yaml *fanout = br_options_effective(br_fanout_options, &config->fanout,
                                                  br_yaml_get(given, "fanout"), arena);
    int rc = config_print_add(arena, service, "extensions",
                              config_print_ids(arena, config->extensions, config->n_extensions));
    rc = rc ? rc : config_print_add(arena, service, "workers", config_print_workers(config));
    rc = rc ? rc : config_print_add(arena, service, "fanout", fanout);
    rc = rc ? rc : config_print_add(arena, service, "telemetry", telemetry);
    rc = rc ? rc : config_print_add(arena, service, "pipelines", config_print_pipelines(config));
    return rc ? NULL : service;
}

int br_config_print_effective(struct br_config *config, const struct br_component *const *registry,
                              struct br_str *out)
{
    static const enum br_kind kinds[] = {BR_RECEIVER, BR_PROCESSOR, BR_EXPORTER, BR_CONNECTOR,
                                         BR_EXTENSION};
    struct br_yaml *tree = br_yaml_new(&config->arena, BR_YAML_MAP, NULL);
    int rc = 0;
    for (size_t i = 0; !rc && i < BR_COUNT(kinds); i++)
        rc = config_print_add(&config->arena, tree, br_kind_section(kinds[i]),
                              config_print_section(config, kinds[i]));
    if (!rc)
        rc = config_print_add(&config->arena, tree, "service", config_print_service(config));
    return rc ? rc : print_tree(&(struct printer){out, registry, false}, tree);
}
