/* SPDX-License-Identifier: Apache-2.0 */
#include "config/yaml.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "config/parts.h"

#define NODES_MAX 10000

struct anchor {
    struct anchor *next;
    const char *name;
    struct br_yaml *node;
};

/* A map or list that is not complete yet, and the key whose value comes next. */
struct frame {
    struct br_yaml *node;
    struct br_yaml *key;
};

struct builder {
    yaml_parser_t parser;
    struct br_arena *arena;
    struct br_errs *errs;
    const char *text, *file;
    size_t len, n_nodes, n_documents, depth;
    /* list of anchors, newest first, so that a search finds the last anchor with a name */
    struct anchor *anchors;
    struct br_yaml *root;
    bool plain; /* true: merge keys ("<<") are kept as ordinary pairs */
    struct frame stack[BR_YAML_DEPTH_MAX];
};

static struct br_yaml yaml_place(const struct builder *builder, const yaml_mark_t *mark)
{
    return (struct br_yaml){
        .file = builder->file, .line = (int)mark->line + 1, .col = (int)mark->column + 1};
}

/* Returns the character at a mark of libyaml, whose columns count characters. */
static char yaml_char_at(const struct builder *builder, const yaml_mark_t *mark)
{
    const char *p = builder->text, *end = builder->text + builder->len;
    for (size_t line = 0; line < mark->line && p < end; p++)
        line += *p == '\n';
    for (size_t col = 0; col < mark->column && p < end; col++)
        do
            p++;
        while (p < end && ((unsigned char)*p & 0xc0) == 0x80);
    return p < end ? *p : '\0';
}

static int yaml_bad_bytes(struct builder *builder)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < builder->parser.problem_offset && i < builder->len; i++) {
        mark.column++;
        if (builder->text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    struct br_yaml at = yaml_place(builder, &mark);
    return br_errs_add(builder->errs, &at, NULL,
                       "a byte that YAML does not allow (%s); the file must be UTF-8 text",
                       builder->parser.problem);
}

/* Returns the start and the length of a line, counted from 0. */
static const char *yaml_line_of(const struct builder *builder, size_t line, size_t *ret_len)
{
    const char *p = builder->text, *end = builder->text + builder->len;
    for (; line > 0 && p < end; p++)
        line -= *p == '\n';
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    *ret_len = (size_t)((stop ? stop : end) - p);
    return p;
}

/* Returns a description of the mistake in the line, or "" if the line alone shows no mistake.
 * `*ret_at` is the offset of the mistake. */
static const char *yaml_slip_of(const char *line, size_t len, size_t *ret_at)
{
    size_t start = 0;
    const char *odd = memmem(line, len, "\xc2\xa0", 2);
    *ret_at = odd ? (size_t)(odd - line) : 0;
    if (odd)
        return "this is a no-break space; YAML requires a plain one";
    while (start < len && strchr(" -", line[start]))
        start++;
    size_t end = start;
    while (end < len && (isalnum((unsigned char)line[end]) || strchr("_/.-", line[end])))
        end++;
    *ret_at = end;
    size_t rest = end;
    while (rest < len && strchr(" \r", line[rest]))
        rest++;
    if (end == start)
        return "";
    if (rest == len || line[rest] == '#')
        return "a colon is missing after this key";
    bool glued = line[end] == ':' && end + 1 < len && !strchr(" \r", line[end + 1]);
    return glued ? "a space is missing after this colon" : "";
}

/* Returns true for a line such as "timeout 5s", which YAML reads as a text that continues in the
 * next line. `*ret_at` is the offset after the key. */
static bool yaml_lacks_colon(const char *line, size_t len, size_t *ret_at)
{
    size_t start = 0;
    while (start < len && line[start] == ' ')
        start++;
    size_t end = start;
    while (end < len && (isalnum((unsigned char)line[end]) || line[end] == '_'))
        end++;
    *ret_at = end;
    return end > start && end < len && line[end] == ' ' && !memchr(line, ':', len);
}

/* Reports a mistake in the line of an error or in an earlier line. The parser may report a
 * correct line because of a mistake in an earlier line. */
static bool yaml_explain_slip(struct builder *builder)
{
    enum { LOOK_BACK = 8 };
    size_t line = builder->parser.problem_mark.line, len, at;
    for (size_t i = line + 1; i-- > 0 && i + LOOK_BACK > line;) {
        const char *text = yaml_line_of(builder, i, &len);
        const char *slip = yaml_slip_of(text, len, &at);
        if (!*slip && i + 1 >= line && yaml_lacks_colon(text, len, &at))
            slip = "a colon is missing after this key";
        if (!*slip)
            continue;
        struct br_yaml place = {.file = builder->file, .line = (int)i + 1, .col = (int)at + 1};
        br_errs_add(builder->errs, &place, NULL, "%s", slip);
        return true;
    }
    return false;
}

/* Returns the first typographic quote of a text, or NULL. `*ret_len` is the length of the quote
 * in bytes. */
static const char *yaml_find_quote(const char *text, size_t len, size_t *ret_len)
{
    static const char *const quotes[] = {"\xe2\x80\x9c", "\xe2\x80\x9d", "\xe2\x80\x9e",
                                         "\xe2\x80\x98", "\xe2\x80\x99", "\xc2\xab"};
    const char *first = NULL;
    for (size_t i = 0; i < BR_COUNT(quotes); i++) {
        const char *at = memmem(text, len, quotes[i], strlen(quotes[i]));
        if (at && (!first || at < first)) {
            first = at;
            *ret_len = strlen(quotes[i]);
        }
    }
    return first;
}

static int yaml_refuse_quote(struct builder *builder, const struct br_yaml *at, const char *quote,
                             size_t len)
{
    return br_errs_add(builder->errs, at, NULL,
                       "a typographic quote (%.*s) is not a quote in YAML; use \" or '", (int)len,
                       quote);
}

/* Returns the first template in a text, or NULL. Unless `any` is set, finds only templates of
 * Helm, because texts of other programs contain double braces, too. */
static const char *yaml_find_template(const char *text, size_t len, bool any)
{
    static const char *const marks[] = {".Values", ".Release",   ".Chart", ".Capabilities",
                                        ".Files.", "include \"", "toYaml "};
    const char *at = memmem(text, len, "{{", 2);
    const char *end = at ? memmem(at, len - (size_t)(at - text), "}}", 2) : NULL;
    for (size_t i = 0; end && !any && i < BR_COUNT(marks); i++)
        any = memmem(at, (size_t)(end - at), marks[i], strlen(marks[i])) != NULL;
    return any ? at : NULL;
}

static int yaml_refuse_template(struct builder *builder, const struct br_yaml *at, const char *text,
                                size_t len)
{
    char shown[BR_SHOWN_SIZE], copy[BR_SHOWN_SIZE];
    const char *stop = memmem(text, len, "}}", 2);
    (void)snprintf(copy, sizeof copy, "%.*s", (int)(stop ? (size_t)(stop + 2 - text) : len), text);
    return br_errs_add(
        builder->errs, at, NULL,
        "the template %s was not rendered; render the file first, as \"helm template\" does",
        br_text_show(copy, shown));
}

/* Searches for a template in the line of an error and in earlier lines. */
static bool yaml_explain_template(struct builder *builder, size_t line)
{
    enum { LOOK_BACK = 4 };
    size_t len;
    for (size_t i = line + 1; i-- > 0 && i + LOOK_BACK > line;) {
        const char *text = yaml_line_of(builder, i, &len);
        const char *at = yaml_find_template(text, len, true);
        if (!at)
            continue;
        struct br_yaml place = {
            .file = builder->file, .line = (int)i + 1, .col = (int)(at - text) + 1};
        (void)yaml_refuse_template(builder, &place, at, len - (size_t)(at - text));
        return true;
    }
    return false;
}

static bool yaml_explain_quote(struct builder *builder, size_t line)
{
    size_t len, quote_len = 0;
    const char *text = yaml_line_of(builder, line, &len);
    const char *quote = yaml_find_quote(text, len, &quote_len);
    if (!quote)
        return false;
    struct br_yaml place = {.file = builder->file, .line = (int)line + 1, .col = 1};
    for (const char *p = text; p < quote; p++)
        place.col += ((unsigned char)*p & 0xc0) != 0x80;
    (void)yaml_refuse_quote(builder, &place, quote, quote_len);
    return true;
}

/* Reports a text that starts with a character which has a special meaning in YAML. */
static bool yaml_explain_indicator(struct builder *builder, const char *problem,
                                   const char *context)
{
    const yaml_mark_t *mark = &builder->parser.problem_mark;
    const char *means = "";
    char letter = yaml_char_at(builder, mark);
    if (strstr(context, "scanning an alias") || strstr(context, "scanning an anchor")) {
        mark = &builder->parser.context_mark;
        letter = yaml_char_at(builder, mark);
        means =
            letter == '*' ? "; without them * names an anchor" : "; without them & makes an anchor";
    } else if (!strstr(problem, "cannot start any token") || !strchr("@`%", letter) || !letter) {
        return false;
    }
    struct br_yaml at = yaml_place(builder, mark);
    br_errs_add(builder->errs, &at, NULL, "a text that starts with %c needs quotes%s", letter,
                means);
    return true;
}

/* Reports a second colon in a line: in "key: a: b", the second colon is a part of the text. */
static bool yaml_explain_colon(struct builder *builder)
{
    const yaml_mark_t *mark = &builder->parser.problem_mark;
    size_t len, start = 0;
    const char *line = yaml_line_of(builder, mark->line, &len);
    while (start < len && strchr(" -", line[start]))
        start++;
    size_t end = start;
    while (end < len && (isalnum((unsigned char)line[end]) || strchr("_/.-", line[end])))
        end++;
    bool key = end > start && end + 1 < len && line[end] == ':' && line[end + 1] == ' ';
    if (!key || mark->column <= end)
        return false;
    struct br_yaml at = yaml_place(builder, mark);
    br_errs_add(builder->errs, &at, NULL,
                "a text with a colon before a blank, or at its end, needs quotes");
    return true;
}

static int yaml_bad_syntax(struct builder *builder)
{
    const yaml_parser_t *p = &builder->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return br_errs_no_memory(builder->errs);
    if (p->error == YAML_READER_ERROR)
        return yaml_bad_bytes(builder);
    struct br_yaml at = yaml_place(builder, &p->problem_mark);
    const char *problem = p->problem ? p->problem : "unknown problem";
    const char *context = p->context ? p->context : "";
    if (strstr(problem, "tab character") || yaml_char_at(builder, &p->problem_mark) == '\t')
        return br_errs_add(builder->errs, &at, NULL,
                           "the indentation contains a tab; YAML requires spaces");
    if (strstr(context, "quoted scalar") &&
        (strstr(problem, "end of stream") || strstr(problem, "document indicator"))) {
        at = yaml_place(builder, &p->context_mark);
        return br_errs_add(builder->errs, &at, NULL, "the quote that opens here is never closed");
    }
    if (yaml_explain_template(builder, p->problem_mark.line) ||
        yaml_explain_quote(builder, p->problem_mark.line) ||
        yaml_explain_indicator(builder, problem, context))
        return BR_EINVAL;
    bool value = strstr(problem, "mapping values") != NULL;
    if (value && yaml_explain_colon(builder))
        return BR_EINVAL;
    if ((value || strstr(problem, "expected ':'")) && yaml_explain_slip(builder))
        return BR_EINVAL;
    if (!*context || p->context_mark.line == p->problem_mark.line)
        return br_errs_add(builder->errs, &at, NULL, "not valid YAML: %s%s%s", problem,
                           *context ? " " : "", context);
    return br_errs_add(builder->errs, &at, NULL, "not valid YAML: %s %s that starts at line %zu",
                       problem, context, p->context_mark.line + 1);
}

static int yaml_too_deep(struct builder *builder, const struct br_yaml *at)
{
    br_errs_add(builder->errs, at, NULL, "maps and lists are nested over %d levels",
                BR_YAML_DEPTH_MAX);
    return BR_ETOOBIG;
}

static int yaml_count_node(struct builder *builder, const struct br_yaml *at)
{
    if (++builder->n_nodes <= NODES_MAX)
        return 0;
    br_errs_add(builder->errs, at, NULL, "more than %d values, including those that aliases repeat",
                NODES_MAX);
    return BR_ETOOBIG;
}

static struct br_yaml_span yaml_span_of(const yaml_event_t *event)
{
    return (struct br_yaml_span){(int)event->start_mark.line + 1, (int)event->start_mark.column + 1,
                                 (int)event->end_mark.line + 1, (int)event->end_mark.column + 1};
}

/* Returns a new node at the position of the event, and counts the node. */
static int yaml_make_node(struct builder *builder, enum br_yaml_type type,
                          const yaml_event_t *event, struct br_yaml **ret)
{
    struct br_yaml at = yaml_place(builder, &event->start_mark);
    int rc = yaml_count_node(builder, &at);
    if (rc)
        return rc;
    *ret = br_yaml_new(builder->arena, type, &at);
    if (!*ret)
        return br_errs_no_memory(builder->errs);
    (*ret)->span = yaml_span_of(event);
    return 0;
}

static int yaml_remember(struct builder *builder, const yaml_char_t *name, struct br_yaml *node)
{
    if (!name)
        return 0;
    struct anchor *left = br_arena_alloc(builder->arena, sizeof *left);
    if (!left)
        return br_errs_no_memory(builder->errs);
    *left = (struct anchor){
        builder->anchors,
        br_arena_strndup(builder->arena, (const char *)name, strlen((const char *)name)), node};
    if (!left->name)
        return br_errs_no_memory(builder->errs);
    builder->anchors = left;
    return 0;
}

/* Adds a node to the innermost map or list that is not complete. The node may still be empty:
 * its content may be added later. */
static int yaml_attach(struct builder *builder, struct br_yaml *node)
{
    if (builder->depth == 0) {
        builder->root = node;
        return 0;
    }
    struct frame *top = &builder->stack[builder->depth - 1];
    if (top->node->type == BR_YAML_MAP && !top->key) {
        if ((node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ) &&
            yaml_explain_template(builder, (size_t)node->line - 1))
            return BR_EINVAL;
        if (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ)
            return br_errs_add(builder->errs, node, NULL,
                               "a key must be text, not a map or a list");
        if (!node->text || !*node->text)
            return br_errs_add(builder->errs, node, NULL, "a key is missing before the \":\"");
        top->key = node;
        return 0;
    }
    node->own_line = top->key && top->key->span.line != node->span.line;
    if (br_yaml_append(builder->arena, top->node, top->key, node) != 0)
        return br_errs_no_memory(builder->errs);
    top->key = NULL;
    return 0;
}

struct key_at {
    const char *text;
    size_t index;
};

static int yaml_by_text_then_index(const void *left, const void *right)
{
    const struct key_at *key_at = left, *y = right;
    int order = strcmp(key_at->text, y->text);
    if (order)
        return order;
    return (key_at->index > y->index) - (key_at->index < y->index);
}

static int yaml_check_duplicates(struct builder *builder, const struct br_yaml *map)
{
    struct key_at *keys = br_arena_calloc(builder->arena, map->count, sizeof *keys);
    if (!keys)
        return br_errs_no_memory(builder->errs);
    for (size_t i = 0; i < map->count; i++)
        keys[i] = (struct key_at){map->keys[i]->text, i};
    qsort(keys, map->count, sizeof *keys, yaml_by_text_then_index);
    size_t first = 0, second = map->count;
    for (size_t i = 1; i < map->count; i++) {
        if (strcmp(keys[i - 1].text, keys[i].text) == 0 && keys[i].index < second) {
            first = keys[i - 1].index;
            second = keys[i].index;
        }
    }
    if (second == map->count)
        return 0;
    char shown[BR_SHOWN_SIZE];
    return br_errs_add(builder->errs, map->keys[second], NULL,
                       "the key %s is defined twice; the first is at line %d, column %d",
                       br_text_show(map->keys[second]->text, shown), map->keys[first]->line,
                       map->keys[first]->col);
}

static int yaml_merge_one(struct builder *builder, struct br_yaml *into, const struct br_yaml *from)
{
    if (from->type != BR_YAML_MAP)
        return br_errs_add(builder->errs, from, NULL,
                           "the merge key \"<<\" requires a map or a list of maps");
    for (size_t i = 0; i < from->count; i++) {
        if (br_yaml_index(into, from->keys[i]->text) < into->count)
            continue;
        if (br_yaml_append(builder->arena, into, from->keys[i], from->items[i]) != 0)
            return br_errs_no_memory(builder->errs);
    }
    return 0;
}

/* Merges the maps of a merge key into a map. The keys of the map have precedence over merged
 * keys, and earlier merged maps have precedence over later ones. */
static int yaml_apply_merge_key(struct builder *builder, struct br_yaml *map)
{
    size_t at = br_yaml_index(map, "<<");
    if (at == map->count || map->keys[at]->quoted)
        return 0;
    const struct br_yaml *value = map->items[at];
    struct br_yaml own = *map;
    map->count = 0;
    map->items = map->keys = NULL;
    int rc = 0;
    for (size_t i = 0; i < own.count && rc == 0; i++)
        if (i != at && br_yaml_append(builder->arena, map, own.keys[i], own.items[i]) != 0)
            rc = br_errs_no_memory(builder->errs);
    if (rc == 0 && value->type != BR_YAML_SEQ)
        rc = yaml_merge_one(builder, map, value);
    for (size_t i = 0; value->type == BR_YAML_SEQ && i < value->count && rc == 0; i++)
        rc = yaml_merge_one(builder, map, value->items[i]);
    return rc;
}

static bool yaml_is_tag(const yaml_char_t *tag, const char *name)
{
    static const char prefix[] = "tag:yaml.org,2002:";
    return tag && strncmp((const char *)tag, prefix, sizeof prefix - 1) == 0 &&
           strcmp((const char *)tag + sizeof prefix - 1, name) == 0;
}

static int yaml_bad_tag(struct builder *builder, const yaml_event_t *event, const yaml_char_t *tag)
{
    char shown[BR_SHOWN_SIZE];
    struct br_yaml at = yaml_place(builder, &event->start_mark);
    return br_errs_add(builder->errs, &at, NULL, "the tag %s has no meaning here; remove it",
                       br_text_show((const char *)tag, shown));
}

/* Determines whether a scalar is a text although it looks like a number or boolean. */
static int yaml_scalar_quoted(struct builder *builder, const yaml_event_t *event, bool *ret)
{
    const yaml_char_t *tag = event->data.scalar.tag;
    *ret = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (!tag)
        return 0;
    *ret = yaml_is_tag(tag, "str") || strcmp((const char *)tag, "!") == 0;
    if (*ret || yaml_is_tag(tag, "int") || yaml_is_tag(tag, "float") || yaml_is_tag(tag, "bool") ||
        yaml_is_tag(tag, "null"))
        return 0;
    return yaml_bad_tag(builder, event, tag);
}

static int yaml_on_scalar(struct builder *builder, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t len = event->data.scalar.length;
    struct br_yaml *node;
    bool quoted;
    int rc = yaml_scalar_quoted(builder, event, &quoted);
    if (rc == 0)
        rc = yaml_make_node(builder, BR_YAML_SCALAR, event, &node);
    if (rc)
        return rc;
    if (memchr(text, '\0', len))
        return br_errs_add(builder->errs, node, NULL, "text must not contain a NUL character");
    const char *odd = quoted ? NULL : strstr(text, "\xc2\xa0");
    bool is_key = builder->depth && builder->stack[builder->depth - 1].node->type == BR_YAML_MAP &&
                  !builder->stack[builder->depth - 1].key;
    bool at_end = odd && (odd == text || strcmp(text + len - 2, "\xc2\xa0") == 0);
    if (at_end && odd != text)
        odd = text + len - 2;
    if (odd && (is_key || at_end)) {
        node->col += (int)(odd - text);
        return br_errs_add(builder->errs, node, NULL,
                           "this is a no-break space; YAML requires a plain one");
    }
    size_t quote_len = 0;
    if (!quoted && yaml_find_quote(text, len < 3 ? len : 3, &quote_len) == text)
        return yaml_refuse_quote(builder, node, text, quote_len);
    const char *template = yaml_find_template(text, len, false);
    if (template)
        return yaml_refuse_template(builder, node, template, len - (size_t)(template - text));
    if (!quoted && !is_key && br_yaml_look(text) == BR_LOOK_NULL) {
        node->type = BR_YAML_NULL;
    } else {
        node->quoted = quoted;
        node->len = len;
        node->text = br_arena_strndup(builder->arena, text, len);
        if (!node->text)
            return br_errs_no_memory(builder->errs);
    }
    rc = yaml_remember(builder, event->data.scalar.anchor, node);
    return rc ? rc : yaml_attach(builder, node);
}

static int yaml_on_open(struct builder *builder, const yaml_event_t *event, enum br_yaml_type type)
{
    bool map = type == BR_YAML_MAP;
    const yaml_char_t *tag = map ? event->data.mapping_start.tag : event->data.sequence_start.tag;
    if (tag && !yaml_is_tag(tag, map ? "map" : "seq"))
        return yaml_bad_tag(builder, event, tag);
    struct br_yaml *node;
    int rc = yaml_make_node(builder, type, event, &node);
    if (rc)
        return rc;
    node->flow = map ? event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE
                     : event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    if (builder->depth == BR_YAML_DEPTH_MAX)
        return yaml_too_deep(builder, node);
    rc = yaml_remember(
        builder, map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor, node);
    if (rc == 0)
        rc = yaml_attach(builder, node);
    if (rc == 0)
        builder->stack[builder->depth++] = (struct frame){node, NULL};
    return rc;
}

static int yaml_on_close(struct builder *builder, const yaml_event_t *event)
{
    struct br_yaml *node = builder->stack[--builder->depth].node;
    struct br_yaml_span end = yaml_span_of(event);
    node->span.end_line = end.end_line;
    node->span.end_col = end.end_col;
    if (node->type != BR_YAML_MAP)
        return 0;
    int rc = yaml_check_duplicates(builder, node);
    return rc || builder->plain ? rc : yaml_apply_merge_key(builder, node);
}

/* Copies a tree. The copies keep the file position of the original nodes, where a mistake must
 * be corrected. */
static int yaml_copy_tree(struct builder *builder, const struct br_yaml *from, size_t depth,
                          const struct br_yaml *at, struct br_yaml **ret)
{
    int rc = yaml_count_node(builder, at);
    if (rc)
        return rc;
    bool opens = from->type == BR_YAML_SEQ || from->type == BR_YAML_MAP;
    if (opens && depth >= BR_YAML_DEPTH_MAX)
        return yaml_too_deep(builder, at);
    struct br_yaml *copy = br_yaml_new(builder->arena, from->type, from);
    if (!copy)
        return br_errs_no_memory(builder->errs);
    copy->quoted = from->quoted;
    copy->text = from->text;
    copy->len = from->len;
    for (size_t i = 0; i < from->count; i++) {
        struct br_yaml *child;
        rc = yaml_copy_tree(builder, from->items[i], depth + 1, at, &child);
        if (rc)
            return rc;
        if (br_yaml_append(builder->arena, copy, from->keys ? from->keys[i] : NULL, child) != 0)
            return br_errs_no_memory(builder->errs);
    }
    *ret = copy;
    return 0;
}

static int yaml_on_alias(struct builder *builder, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    struct br_yaml at = yaml_place(builder, &event->start_mark);
    char shown[BR_SHOWN_SIZE];
    const struct anchor *left = builder->anchors;
    while (left && strcmp(left->name, name) != 0)
        left = left->next;
    if (!left)
        return br_errs_add(
            builder->errs, &at, NULL,
            "the alias %s has no anchor above it; a text that starts with * needs quotes",
            br_text_show(name, shown));
    for (size_t i = 0; i < builder->depth; i++)
        if (builder->stack[i].node == left->node)
            return br_errs_add(builder->errs, &at, NULL,
                               "the alias %s is inside the anchor that it refers to",
                               br_text_show(name, shown));
    struct br_yaml *copy;
    int rc = yaml_copy_tree(builder, left->node, builder->depth, &at, &copy);
    if (rc)
        return rc;
    copy->alias = true;
    copy->span = yaml_span_of(event);
    return yaml_attach(builder, copy);
}

static int yaml_on_event(struct builder *builder, const yaml_event_t *event)
{
    struct br_yaml at = yaml_place(builder, &event->start_mark);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (builder->n_documents++)
            return br_errs_add(builder->errs, &at, NULL,
                               "a second document starts here; a configuration is one document");
        return 0;
    case YAML_SCALAR_EVENT:
        return yaml_on_scalar(builder, event);
    case YAML_ALIAS_EVENT:
        return yaml_on_alias(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        return yaml_on_open(builder, event, BR_YAML_SEQ);
    case YAML_MAPPING_START_EVENT:
        return yaml_on_open(builder, event, BR_YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return yaml_on_close(builder, event);
    default:
        return 0;
    }
}

static int yaml_build(struct builder *builder)
{
    yaml_parser_set_input_string(&builder->parser, (const unsigned char *)builder->text,
                                 builder->len);
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&builder->parser, &event))
            return yaml_bad_syntax(builder);
        int rc = yaml_on_event(builder, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (rc)
            return rc;
    }
    return 0;
}

static int yaml_parse(const char *text, size_t len, const char *file, bool plain,
                      struct br_arena *arena, struct br_yaml **ret, struct br_errs *errs)
{
    struct br_yaml top = {.line = 1, .col = 1};
    top.file = br_arena_strndup(arena, file, strlen(file));
    struct builder *builder = br_arena_calloc(arena, 1, sizeof *builder);
    if (!top.file || !builder)
        return br_errs_no_memory(errs);
    if (len > BR_YAML_SIZE_MAX) {
        br_errs_add(errs, &top, NULL, "larger than %u KiB", BR_YAML_SIZE_MAX >> 10);
        return BR_ETOOBIG;
    }
    builder->arena = arena;
    builder->errs = errs;
    builder->text = text;
    builder->len = len;
    builder->file = top.file;
    builder->plain = plain;
    if (!yaml_parser_initialize(&builder->parser))
        return br_errs_no_memory(errs);
    int rc = yaml_build(builder);
    yaml_parser_delete(&builder->parser);
    if (rc)
        return rc;
    if (!builder->root)
        builder->root = br_yaml_new(arena, BR_YAML_NULL, &top);
    if (!builder->root)
        return br_errs_no_memory(errs);
    *ret = builder->root;
    return 0;
}

int br_yaml_parse(const char *text, size_t len, const char *file, struct br_arena *arena,
                  struct br_yaml **ret, struct br_errs *errs)
{
    return yaml_parse(text, len, file, false, arena, ret, errs);
}

int br_yaml_parse_plain(const char *text, size_t len, const char *file, struct br_arena *arena,
                        struct br_yaml **ret, struct br_errs *errs)
{
    return yaml_parse(text, len, file, true, arena, ret, errs);
}
