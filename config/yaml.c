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

/* An open map or list, and the key that waits for its value. */
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
    struct anchor *anchors; /* newest first, so that a later one of the same name wins */
    struct br_yaml *root;
    bool plain; /* merge keys stay */
    struct frame stack[BR_YAML_DEPTH_MAX];
};

static struct br_yaml place(const struct builder *b, const yaml_mark_t *mark)
{
    return (struct br_yaml){
        .file = b->file, .line = (int)mark->line + 1, .col = (int)mark->column + 1};
}

/* libyaml counts columns in characters. */
static char char_at(const struct builder *b, const yaml_mark_t *mark)
{
    const char *p = b->text, *end = b->text + b->len;
    for (size_t line = 0; line < mark->line && p < end; p++)
        line += *p == '\n';
    for (size_t col = 0; col < mark->column && p < end; col++)
        do
            p++;
        while (p < end && ((unsigned char)*p & 0xc0) == 0x80);
    return p < end ? *p : '\0';
}

static int bad_bytes(struct builder *b)
{
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < b->parser.problem_offset && i < b->len; i++) {
        mark.column++;
        if (b->text[i] == '\n') {
            mark.line++;
            mark.column = 0;
        }
    }
    struct br_yaml at = place(b, &mark);
    return br_errs_add(b->errs, &at, NULL,
                       "a byte that YAML does not allow (%s); the file must be UTF-8 text",
                       b->parser.problem);
}

/* The start and the length of a line, counted from 0. */
static const char *line_of(const struct builder *b, size_t line, size_t *ret_len)
{
    const char *p = b->text, *end = b->text + b->len;
    for (; line > 0 && p < end; p++)
        line -= *p == '\n';
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    *ret_len = (size_t)((stop ? stop : end) - p);
    return p;
}

/* What is wrong with a line by itself, "" when nothing is; `*ret_at` is the byte where. */
static const char *slip_of(const char *line, size_t len, size_t *ret_at)
{
    size_t start = 0;
    const char *odd = memmem(line, len, "\xc2\xa0", 2);
    *ret_at = odd ? (size_t)(odd - line) : 0;
    if (odd)
        return "a no-break space stands here; YAML wants a plain one";
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
        return "a colon is missing behind this key";
    bool glued = line[end] == ':' && end + 1 < len && !strchr(" \r", line[end + 1]);
    return glued ? "a space is missing behind this colon" : "";
}

/* The parser stumbles over a line that is right because one before it is not. */
static bool say_slip(struct builder *b)
{
    enum { LOOK_BACK = 8 };
    size_t line = b->parser.problem_mark.line, len, at;
    for (size_t i = line + 1; i-- > 0 && i + LOOK_BACK > line;) {
        const char *text = line_of(b, i, &len);
        const char *slip = slip_of(text, len, &at);
        if (!*slip)
            continue;
        struct br_yaml place = {.file = b->file, .line = (int)i + 1, .col = (int)at + 1};
        br_errs_add(b->errs, &place, NULL, "%s", slip);
        return true;
    }
    return false;
}

static int bad_syntax(struct builder *b)
{
    const yaml_parser_t *p = &b->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return br_errs_no_memory(b->errs);
    if (p->error == YAML_READER_ERROR)
        return bad_bytes(b);
    struct br_yaml at = place(b, &p->problem_mark);
    const char *problem = p->problem ? p->problem : "unknown problem";
    const char *context = p->context ? p->context : "";
    if (strstr(problem, "tab character") || char_at(b, &p->problem_mark) == '\t')
        return br_errs_add(b->errs, &at, NULL,
                           "a tab stands in the indentation; YAML wants spaces");
    if (strstr(context, "quoted scalar") &&
        (strstr(problem, "end of stream") || strstr(problem, "document indicator"))) {
        at = place(b, &p->context_mark);
        return br_errs_add(b->errs, &at, NULL, "the quote that opens here is never closed");
    }
    if ((strstr(problem, "mapping values") || strstr(problem, "expected ':'")) && say_slip(b))
        return BR_EINVAL;
    if (!*context || p->context_mark.line == p->problem_mark.line)
        return br_errs_add(b->errs, &at, NULL, "not valid YAML: %s%s%s", problem,
                           *context ? " " : "", context);
    return br_errs_add(b->errs, &at, NULL, "not valid YAML: %s %s that starts at line %zu", problem,
                       context, p->context_mark.line + 1);
}

static int too_deep(struct builder *b, const struct br_yaml *at)
{
    br_errs_add(b->errs, at, NULL, "maps and lists are nested over %d levels", BR_YAML_DEPTH_MAX);
    return BR_ETOOBIG;
}

static int count_node(struct builder *b, const struct br_yaml *at)
{
    if (++b->n_nodes <= NODES_MAX)
        return 0;
    br_errs_add(b->errs, at, NULL, "more than %d values, counting what aliases repeat", NODES_MAX);
    return BR_ETOOBIG;
}

static struct br_yaml_span span_of(const yaml_event_t *e)
{
    return (struct br_yaml_span){(int)e->start_mark.line + 1, (int)e->start_mark.column + 1,
                                 (int)e->end_mark.line + 1, (int)e->end_mark.column + 1};
}

/* A counted node where the event stands. */
static int make_node(struct builder *b, enum br_yaml_type type, const yaml_event_t *e,
                     struct br_yaml **ret)
{
    struct br_yaml at = place(b, &e->start_mark);
    int rc = count_node(b, &at);
    if (rc)
        return rc;
    *ret = br_yaml_new(b->arena, type, &at);
    if (!*ret)
        return br_errs_no_memory(b->errs);
    (*ret)->span = span_of(e);
    return 0;
}

static int remember(struct builder *b, const yaml_char_t *name, struct br_yaml *node)
{
    if (!name)
        return 0;
    struct anchor *a = br_arena_alloc(b->arena, sizeof *a);
    if (!a)
        return br_errs_no_memory(b->errs);
    *a = (struct anchor){b->anchors,
                         br_arena_strndup(b->arena, (const char *)name, strlen((const char *)name)),
                         node};
    if (!a->name)
        return br_errs_no_memory(b->errs);
    b->anchors = a;
    return 0;
}

/* Gives a finished value, or the start of one, to the map or list that is open. */
static int attach(struct builder *b, struct br_yaml *node)
{
    if (b->depth == 0) {
        b->root = node;
        return 0;
    }
    struct frame *top = &b->stack[b->depth - 1];
    if (top->node->type == BR_YAML_MAP && !top->key) {
        if (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ)
            return br_errs_add(b->errs, node, NULL, "a key must be text, not a map or a list");
        if (!node->text || !*node->text)
            return br_errs_add(b->errs, node, NULL, "a key is missing before the \":\"");
        top->key = node;
        return 0;
    }
    node->own_line = top->key && top->key->span.line != node->span.line;
    if (br_yaml_append(b->arena, top->node, top->key, node) != 0)
        return br_errs_no_memory(b->errs);
    top->key = NULL;
    return 0;
}

struct key_at {
    const char *text;
    size_t index;
};

static int by_text_then_index(const void *a, const void *b)
{
    const struct key_at *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    if (order)
        return order;
    return (x->index > y->index) - (x->index < y->index);
}

static int check_duplicates(struct builder *b, const struct br_yaml *map)
{
    struct key_at *keys = br_arena_calloc(b->arena, map->n, sizeof *keys);
    if (!keys)
        return br_errs_no_memory(b->errs);
    for (size_t i = 0; i < map->n; i++)
        keys[i] = (struct key_at){map->keys[i]->text, i};
    qsort(keys, map->n, sizeof *keys, by_text_then_index);
    size_t first = 0, second = map->n;
    for (size_t i = 1; i < map->n; i++) {
        if (strcmp(keys[i - 1].text, keys[i].text) == 0 && keys[i].index < second) {
            first = keys[i - 1].index;
            second = keys[i].index;
        }
    }
    if (second == map->n)
        return 0;
    char shown[BR_SHOWN_SIZE];
    return br_errs_add(b->errs, map->keys[second], NULL,
                       "the key %s is here a second time; the first is at line %d, column %d",
                       br_text_show(map->keys[second]->text, shown), map->keys[first]->line,
                       map->keys[first]->col);
}

static int merge_one(struct builder *b, struct br_yaml *into, const struct br_yaml *from)
{
    if (from->type != BR_YAML_MAP)
        return br_errs_add(b->errs, from, NULL,
                           "the merge key \"<<\" wants a map or a list of maps");
    for (size_t i = 0; i < from->n; i++) {
        if (br_yaml_index(into, from->keys[i]->text) < into->n)
            continue;
        if (br_yaml_append(b->arena, into, from->keys[i], from->items[i]) != 0)
            return br_errs_no_memory(b->errs);
    }
    return 0;
}

/* A map's own keys win over merged ones, and an earlier merged map over a later one. */
static int apply_merge_key(struct builder *b, struct br_yaml *map)
{
    size_t at = br_yaml_index(map, "<<");
    if (at == map->n || map->keys[at]->quoted)
        return 0;
    const struct br_yaml *value = map->items[at];
    struct br_yaml own = *map;
    map->n = 0;
    map->items = map->keys = NULL;
    int rc = 0;
    for (size_t i = 0; i < own.n && rc == 0; i++)
        if (i != at && br_yaml_append(b->arena, map, own.keys[i], own.items[i]) != 0)
            rc = br_errs_no_memory(b->errs);
    if (rc == 0 && value->type != BR_YAML_SEQ)
        rc = merge_one(b, map, value);
    for (size_t i = 0; value->type == BR_YAML_SEQ && i < value->n && rc == 0; i++)
        rc = merge_one(b, map, value->items[i]);
    return rc;
}

static bool is_tag(const yaml_char_t *tag, const char *name)
{
    static const char prefix[] = "tag:yaml.org,2002:";
    return tag && strncmp((const char *)tag, prefix, sizeof prefix - 1) == 0 &&
           strcmp((const char *)tag + sizeof prefix - 1, name) == 0;
}

static int bad_tag(struct builder *b, const yaml_event_t *e, const yaml_char_t *tag)
{
    char shown[BR_SHOWN_SIZE];
    struct br_yaml at = place(b, &e->start_mark);
    return br_errs_add(b->errs, &at, NULL, "the tag %s has no meaning here; remove it",
                       br_text_show((const char *)tag, shown));
}

/* Says whether the scalar is text whatever it looks like. */
static int scalar_quoted(struct builder *b, const yaml_event_t *e, bool *ret)
{
    const yaml_char_t *tag = e->data.scalar.tag;
    *ret = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (!tag)
        return 0;
    *ret = is_tag(tag, "str") || strcmp((const char *)tag, "!") == 0;
    if (*ret || is_tag(tag, "int") || is_tag(tag, "float") || is_tag(tag, "bool") ||
        is_tag(tag, "null"))
        return 0;
    return bad_tag(b, e, tag);
}

static int on_scalar(struct builder *b, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;
    struct br_yaml *node;
    bool quoted;
    int rc = scalar_quoted(b, e, &quoted);
    if (rc == 0)
        rc = make_node(b, BR_YAML_SCALAR, e, &node);
    if (rc)
        return rc;
    if (memchr(text, '\0', len))
        return br_errs_add(b->errs, node, NULL, "text must not contain a NUL character");
    const char *odd = quoted ? NULL : strstr(text, "\xc2\xa0");
    bool is_key =
        b->depth && b->stack[b->depth - 1].node->type == BR_YAML_MAP && !b->stack[b->depth - 1].key;
    if (odd && is_key) {
        node->col += (int)(odd - text);
        return br_errs_add(b->errs, node, NULL,
                           "a no-break space stands here; YAML wants a plain one");
    }
    if (!quoted && !is_key && br_yaml_look(text) == BR_LOOK_NULL) {
        node->type = BR_YAML_NULL;
    } else {
        node->quoted = quoted;
        node->len = len;
        node->text = br_arena_strndup(b->arena, text, len);
        if (!node->text)
            return br_errs_no_memory(b->errs);
    }
    rc = remember(b, e->data.scalar.anchor, node);
    return rc ? rc : attach(b, node);
}

static int on_open(struct builder *b, const yaml_event_t *e, enum br_yaml_type type)
{
    bool map = type == BR_YAML_MAP;
    const yaml_char_t *tag = map ? e->data.mapping_start.tag : e->data.sequence_start.tag;
    if (tag && !is_tag(tag, map ? "map" : "seq"))
        return bad_tag(b, e, tag);
    struct br_yaml *node;
    int rc = make_node(b, type, e, &node);
    if (rc)
        return rc;
    node->flow = map ? e->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE
                     : e->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    if (b->depth == BR_YAML_DEPTH_MAX)
        return too_deep(b, node);
    rc = remember(b, map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor, node);
    if (rc == 0)
        rc = attach(b, node);
    if (rc == 0)
        b->stack[b->depth++] = (struct frame){node, NULL};
    return rc;
}

static int on_close(struct builder *b, const yaml_event_t *e)
{
    struct br_yaml *node = b->stack[--b->depth].node;
    struct br_yaml_span end = span_of(e);
    node->span.end_line = end.end_line;
    node->span.end_col = end.end_col;
    if (node->type != BR_YAML_MAP)
        return 0;
    int rc = check_duplicates(b, node);
    return rc || b->plain ? rc : apply_merge_key(b, node);
}

/* Copies keep the place of what they repeat: that is where a mistake has to be mended. */
static int copy_tree(struct builder *b, const struct br_yaml *from, size_t depth,
                     const struct br_yaml *at, struct br_yaml **ret)
{
    int rc = count_node(b, at);
    if (rc)
        return rc;
    bool opens = from->type == BR_YAML_SEQ || from->type == BR_YAML_MAP;
    if (opens && depth >= BR_YAML_DEPTH_MAX)
        return too_deep(b, at);
    struct br_yaml *copy = br_yaml_new(b->arena, from->type, from);
    if (!copy)
        return br_errs_no_memory(b->errs);
    copy->quoted = from->quoted;
    copy->text = from->text;
    copy->len = from->len;
    for (size_t i = 0; i < from->n; i++) {
        struct br_yaml *child;
        rc = copy_tree(b, from->items[i], depth + 1, at, &child);
        if (rc)
            return rc;
        if (br_yaml_append(b->arena, copy, from->keys ? from->keys[i] : NULL, child) != 0)
            return br_errs_no_memory(b->errs);
    }
    *ret = copy;
    return 0;
}

static int on_alias(struct builder *b, const yaml_event_t *e)
{
    const char *name = (const char *)e->data.alias.anchor;
    struct br_yaml at = place(b, &e->start_mark);
    char shown[BR_SHOWN_SIZE];
    const struct anchor *a = b->anchors;
    while (a && strcmp(a->name, name) != 0)
        a = a->next;
    if (!a)
        return br_errs_add(b->errs, &at, NULL, "the alias %s has no anchor above it",
                           br_text_show(name, shown));
    for (size_t i = 0; i < b->depth; i++)
        if (b->stack[i].node == a->node)
            return br_errs_add(b->errs, &at, NULL, "the alias %s stands inside its own anchor",
                               br_text_show(name, shown));
    struct br_yaml *copy;
    int rc = copy_tree(b, a->node, b->depth, &at, &copy);
    if (rc)
        return rc;
    copy->alias = true;
    copy->span = span_of(e);
    return attach(b, copy);
}

static int on_event(struct builder *b, const yaml_event_t *e)
{
    struct br_yaml at = place(b, &e->start_mark);
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->n_documents++)
            return br_errs_add(b->errs, &at, NULL,
                               "a second document starts here; a configuration is one document");
        return 0;
    case YAML_SCALAR_EVENT:
        return on_scalar(b, e);
    case YAML_ALIAS_EVENT:
        return on_alias(b, e);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, e, BR_YAML_SEQ);
    case YAML_MAPPING_START_EVENT:
        return on_open(b, e, BR_YAML_MAP);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return on_close(b, e);
    default:
        return 0;
    }
}

static int build(struct builder *b)
{
    yaml_parser_set_input_string(&b->parser, (const unsigned char *)b->text, b->len);
    for (bool end = false; !end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event))
            return bad_syntax(b);
        int rc = on_event(b, &event);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        if (rc)
            return rc;
    }
    return 0;
}

static int parse(const char *text, size_t len, const char *file, bool plain, struct br_arena *arena,
                 struct br_yaml **ret, struct br_errs *errs)
{
    struct br_yaml top = {.line = 1, .col = 1};
    top.file = br_arena_strndup(arena, file, strlen(file));
    struct builder *b = br_arena_calloc(arena, 1, sizeof *b);
    if (!top.file || !b)
        return br_errs_no_memory(errs);
    if (len > BR_YAML_SIZE_MAX) {
        br_errs_add(errs, &top, NULL, "larger than %u KiB", BR_YAML_SIZE_MAX >> 10);
        return BR_ETOOBIG;
    }
    b->arena = arena;
    b->errs = errs;
    b->text = text;
    b->len = len;
    b->file = top.file;
    b->plain = plain;
    if (!yaml_parser_initialize(&b->parser))
        return br_errs_no_memory(errs);
    int rc = build(b);
    yaml_parser_delete(&b->parser);
    if (rc)
        return rc;
    if (!b->root)
        b->root = br_yaml_new(arena, BR_YAML_NULL, &top);
    if (!b->root)
        return br_errs_no_memory(errs);
    *ret = b->root;
    return 0;
}

int br_yaml_parse(const char *text, size_t len, const char *file, struct br_arena *arena,
                  struct br_yaml **ret, struct br_errs *errs)
{
    return parse(text, len, file, false, arena, ret, errs);
}

int br_yaml_parse_plain(const char *text, size_t len, const char *file, struct br_arena *arena,
                        struct br_yaml **ret, struct br_errs *errs)
{
    return parse(text, len, file, true, arena, ret, errs);
}
