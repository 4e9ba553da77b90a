/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "app/config.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/parts.h"

#define SIMPLE_KEY_MAX 120 /* YAML's own limit is 1024 characters; longer keys take the "? " form  \
                            */

/* What is known about the node that is printed. */
enum view {
    VIEW_ROOT,
    VIEW_SECTION, /* a map of ids */
    VIEW_TABLE,   /* a map, or a list of maps, that a table describes */
    VIEW_HEADERS,
    VIEW_GUESS, /* no table knows it: names tell */
    VIEW_HIDE,
};

struct scope {
    enum view view;
    enum br_kind kind;             /* SECTION */
    const struct br_option *table; /* TABLE */
};

struct printer {
    struct br_str *out;
    const struct br_component *const *registry;
    bool raw; /* as a file has it: secrets, and ${...} not expanded */
};

static bool sounds_secret(const char *name)
{
    static const char *const words[] = {"password", "token",   "secret", "authorization",
                                        "api_key",  "api-key", "apikey"};
    for (size_t i = 0; i < BR_COUNT(words); i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

static struct scope scope_of_row(const struct br_option *o)
{
    switch (o->kind) {
    case BR_OPT_SECRET:
        return (struct scope){.view = VIEW_HIDE};
    case BR_OPT_HEADERS:
        return (struct scope){.view = VIEW_HEADERS};
    case BR_OPT_STRUCT:
    case BR_OPT_PRESENT:
    case BR_OPT_LIST:
        return (struct scope){.view = VIEW_TABLE, .table = o->sub};
    case BR_OPT_VALUE:
    case BR_OPT_IGNORED:
        if (sounds_secret(o->name))
            return (struct scope){.view = VIEW_HIDE};
        break;
    default:
        break;
    }
    return (struct scope){.view = VIEW_GUESS};
}

static struct scope guess(const char *key)
{
    return (struct scope){.view = sounds_secret(key) ? VIEW_HIDE : VIEW_GUESS};
}

static struct scope scope_in_table(const struct br_option *table, const char *key)
{
    for (const struct br_option *o = table; o && o->name; o++)
        if (strcmp(o->name, key) == 0 || (o->alias && strcmp(o->alias, key) == 0))
            return scope_of_row(o);
    return guess(key);
}

static struct scope scope_of_id(const struct printer *p, enum br_kind kind, const char *id)
{
    while (isspace((unsigned char)*id))
        id++;
    char type[64];
    size_t len = strcspn(id, "/ \t\n");
    if (len < sizeof type) {
        memcpy(type, id, len);
        type[len] = '\0';
        const struct br_component *c = br_component_find(p->registry, kind, type);
        if (c)
            return (struct scope){.view = VIEW_TABLE, .table = c->options};
    }
    return (struct scope){.view = VIEW_GUESS};
}

static struct scope scope_of_section(const char *key)
{
    for (int kind = BR_RECEIVER; kind <= BR_EXTENSION; kind++)
        if (strcmp(key, br_kind_section((enum br_kind)kind)) == 0)
            return (struct scope){.view = VIEW_SECTION, .kind = (enum br_kind)kind};
    return guess(key);
}

static struct scope scope_of_child(const struct printer *p, struct scope s, const char *key)
{
    switch (s.view) {
    case VIEW_ROOT:
        return scope_of_section(key);
    case VIEW_SECTION:
        return scope_of_id(p, s.kind, key);
    case VIEW_TABLE:
        return scope_in_table(s.table, key);
    case VIEW_GUESS:
        return guess(key);
    case VIEW_HEADERS:
    case VIEW_HIDE:
        break;
    }
    return (struct scope){.view = VIEW_HIDE};
}

/* The list form of headers shows the names. */
static struct scope scope_of_item(struct scope s)
{
    static const struct br_option pair[] = {
        {.name = "name", .kind = BR_OPT_STRING},
        {.name = "value", .kind = BR_OPT_SECRET},
        BR_OPT_END,
    };
    if (s.view == VIEW_HEADERS)
        return (struct scope){.view = VIEW_TABLE, .table = pair};
    return s;
}

/* True when the text can stand without quotes and mean itself, in a block and as a key. */
static bool plain_safe(const char *text, size_t len)
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

static uint32_t decode(const char *text, size_t len, size_t *ret_n)
{
    unsigned char c = (unsigned char)text[0];
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
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

static bool printable(uint32_t c)
{
    if (c < 0xa0)
        return c >= 0x20 && c < 0x7f;
    return c != 0x2028 && c != 0x2029 && c != 0xfeff && c != 0xfffe && c != 0xffff;
}

static void print_quoted(struct br_str *out, const char *text, size_t len, bool dollars)
{
    br_str_putc(out, '"');
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t c = decode(text + i, len - i, &n);
        if (c == '"' || c == '\\')
            br_str_printf(out, "\\%c", (int)c);
        else if (c == '\n')
            br_str_puts(out, "\\n");
        else if (c == '$' && dollars)
            br_str_puts(out, "$$");
        else if (printable(c))
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

/* Quotes stay where they make the difference between text and a number; what came from ${...} is
 * read as either, and has to be so again. */
static void print_text(struct br_str *out, const struct br_yaml *node, bool dollars)
{
    enum br_yaml_look look = br_yaml_look(node->text);
    bool quote = !node->len || look == BR_LOOK_NULL;
    if (look == BR_LOOK_BOOL || look == BR_LOOK_NUMBER)
        quote = node->quoted && !node->expanded;
    else if (!quote)
        quote = !plain_safe(node->text, node->len);
    if (quote)
        print_quoted(out, node->text, node->len, dollars);
    else
        print_plain(out, node->text, dollars);
}

/* Nothing expands ${...} in keys. */
static void print_key(struct br_str *out, const struct br_yaml *key)
{
    bool simple = key->len <= SIMPLE_KEY_MAX;
    br_str_puts(out, simple ? "" : "? ");
    if (br_yaml_look(key->text) == BR_LOOK_TEXT && plain_safe(key->text, key->len))
        print_plain(out, key->text, false);
    else
        print_quoted(out, key->text, key->len, false);
}

static void indent(struct br_str *out, size_t level)
{
    for (size_t i = 0; i < level; i++)
        br_str_puts(out, "  ");
}

static void print_scalar(const struct printer *p, const struct br_yaml *node, struct scope s)
{
    struct br_str *out = p->out;
    if (node->type == BR_YAML_MAP)
        br_str_puts(out, "{}");
    else if (node->type == BR_YAML_SEQ)
        br_str_puts(out, "[]");
    else if (node->type == BR_YAML_NULL)
        br_str_puts(out, "null");
    else if (!p->raw && (s.view == VIEW_HIDE || s.view == VIEW_HEADERS))
        br_str_puts(out, "\"[REDACTED]\"");
    else
        print_text(out, node, !p->raw);
    br_str_putc(out, '\n');
}

static void print_children(const struct printer *p, const struct br_yaml *node, struct scope s,
                           size_t level, bool inline_first);

static void print_child(const struct printer *p, const struct br_yaml *parent, size_t i,
                        struct scope s, size_t level)
{
    const struct br_yaml *child = parent->items[i];
    if (p->raw && child->raw)
        child = child->raw;
    bool map = parent->type == BR_YAML_MAP;
    struct scope inner = map ? scope_of_child(p, s, parent->keys[i]->text) : scope_of_item(s);
    if (map) {
        print_key(p->out, parent->keys[i]);
        if (parent->keys[i]->len > SIMPLE_KEY_MAX) {
            br_str_putc(p->out, '\n');
            indent(p->out, level);
        }
        br_str_putc(p->out, ':');
    } else {
        br_str_putc(p->out, '-');
    }
    if (child->n == 0) {
        br_str_putc(p->out, ' ');
        print_scalar(p, child, inner);
    } else if (map) {
        br_str_putc(p->out, '\n');
        print_children(p, child, inner, level + 1, false);
    } else {
        br_str_putc(p->out, ' ');
        print_children(p, child, inner, level + 1, true);
    }
}

/* `inline_first`: the first child stands behind the "- " of a list. */
static void print_children(const struct printer *p, const struct br_yaml *node, struct scope s,
                           size_t level, bool inline_first)
{
    for (size_t i = 0; i < node->n; i++) {
        if (i || !inline_first)
            indent(p->out, level);
        print_child(p, node, i, s, level);
    }
}

static int print_tree(const struct printer *p, const struct br_yaml *tree)
{
    struct scope root = {.view = VIEW_ROOT};
    if (tree->n)
        print_children(p, tree, root, 0, false);
    else
        print_scalar(p, tree, root);
    return p->out->failed ? BR_ENOMEM : 0;
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
