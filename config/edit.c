/* SPDX-License-Identifier: Apache-2.0 */
#include "config/edit.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/parts.h"

#define COMMENT_COLUMNS 100

int br_edits_add(struct br_edits *edits, enum br_edit_kind kind, const struct br_yaml *at,
                 const char *key, const char *text)
{
    if (br_grow(&edits->v, &edits->cap, edits->n + 1, sizeof *edits->v, BR_EDITS_MAX))
        return BR_ENOMEM;
    edits->v[edits->n++] = (struct br_edit){kind, at->line, at->col, key, text};
    return 0;
}

void br_edits_release(struct br_edits *edits)
{
    br_free(edits->v);
    *edits = (struct br_edits){0};
}

/* The bytes from..to become `with`; `order` keeps equal places in the order of the edits. */
struct change {
    size_t from, to, order;
    char *with; /* owned; NULL is nothing */
};

struct editor {
    const char *text;
    size_t len;
    size_t *lines; /* where each starts */
    uint32_t n_lines, cap_lines;
    const struct br_edits *edits;
    struct change *changes;
    uint32_t n_changes, cap_changes;
    bool no_memory;
};

/* --- Places ---------------------------------------------------------------------------------- */

/* The bytes of a line's end, as YAML 1.1 has them; 0 when there is none. */
static size_t edit_break(const struct editor *e, size_t at)
{
    const unsigned char *p = (const unsigned char *)e->text + at;
    size_t left = e->len - at;
    if (left >= 2 && p[0] == '\r' && p[1] == '\n')
        return 2;
    if (left >= 1 && (p[0] == '\n' || p[0] == '\r'))
        return 1;
    if (left >= 2 && p[0] == 0xc2 && p[1] == 0x85)
        return 2;
    return left >= 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9) ? 3 : 0;
}

static void edit_add_line(struct editor *e, size_t start)
{
    if (br_grow(&e->lines, &e->cap_lines, e->n_lines + 1, sizeof *e->lines, BR_YAML_SIZE_MAX + 2))
        e->no_memory = true;
    else
        e->lines[e->n_lines++] = start;
}

static void edit_find_lines(struct editor *e)
{
    bool bom = e->len >= 3 && memcmp(e->text, "\xef\xbb\xbf", 3) == 0;
    edit_add_line(e, bom ? 3 : 0);
    for (size_t i = bom ? 3 : 0; i < e->len && !e->no_memory;) {
        size_t n = edit_break(e, i);
        i += n ? n : 1;
        if (n)
            edit_add_line(e, i);
    }
}

/* Columns are characters. */
static size_t edit_offset(const struct editor *e, int line, int col)
{
    if (line < 1 || (uint32_t)line > e->n_lines)
        return e->len;
    size_t at = e->lines[line - 1];
    for (int i = 1; i < col && at < e->len; i++)
        do
            at++;
        while (at < e->len && ((unsigned char)e->text[at] & 0xc0) == 0x80);
    return at;
}

static size_t edit_line_start(const struct editor *e, size_t at)
{
    uint32_t low = 0, high = e->n_lines;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (e->lines[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return e->lines[low];
}

/* Where the line after this place starts. */
static size_t edit_next_line(const struct editor *e, size_t at)
{
    while (at < e->len) {
        size_t n = edit_break(e, at);
        if (n)
            return at + n;
        at++;
    }
    return e->len;
}

static size_t edit_start(const struct editor *e, const struct br_yaml *node)
{
    return edit_offset(e, node->span.line, node->span.col);
}

/* Just behind a node. A block's own end mark stands where the next thing starts. */
static size_t edit_end(const struct editor *e, const struct br_yaml *node)
{
    bool block = (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ) && !node->flow;
    if (block && !node->alias && node->n) {
        size_t end = edit_end(e, node->items[node->n - 1]);
        size_t key = node->keys ? edit_end(e, node->keys[node->n - 1]) : 0;
        return end > key ? end : key;
    }
    size_t end = edit_offset(e, node->span.end_line, node->span.end_col);
    /* A literal block ends at the start of the line after it. */
    while (end > edit_start(e, node) && strchr(" \r\n", e->text[end - 1]))
        end--;
    return end;
}

static size_t edit_count_blanks(const struct editor *e, size_t at)
{
    size_t n = 0;
    while (at + n < e->len && e->text[at + n] == ' ')
        n++;
    return n;
}

/* --- Changes --------------------------------------------------------------------------------- */

/* Takes `with`. */
static void edit_change(struct editor *e, size_t from, size_t to, struct br_str *with)
{
    struct change c = {from, to, e->n_changes, with->data};
    if (with->failed ||
        br_grow(&e->changes, &e->cap_changes, e->n_changes + 1, sizeof *e->changes, BR_EDITS_MAX)) {
        e->no_memory = true;
        br_str_release(with);
        return;
    }
    e->changes[e->n_changes++] = c;
}

/* `note` as comment lines, wrapped at words. */
static void edit_comment(struct br_str *out, const char *note, size_t indent)
{
    const char *p = note;
    size_t width = indent + 20 < COMMENT_COLUMNS ? COMMENT_COLUMNS - indent - 2 : 20;
    while (*p) {
        size_t len = strcspn(p, "\n"), cut = len;
        if (len > width) {
            cut = width;
            while (cut && p[cut] != ' ')
                cut--;
            if (!cut)
                cut = strcspn(p, " \n");
        }
        br_str_printf(out, "%*s# %.*s\n", (int)indent, "", (int)cut, p);
        p += cut;
        p += strspn(p, " \n");
    }
}

/* Comments below an entry that stand deeper than it does are about what was in it. */
static size_t edit_past_comments(const struct editor *e, size_t at, size_t indent)
{
    while (at < e->len) {
        size_t blanks = edit_count_blanks(e, at);
        if (blanks <= indent || at + blanks >= e->len || e->text[at + blanks] != '#')
            break;
        at = edit_next_line(e, at);
    }
    return at;
}

static const struct br_edit *edit_of(const struct editor *e, const struct br_yaml *node,
                                     enum br_edit_kind kind)
{
    for (size_t i = 0; i < e->edits->n; i++) {
        const struct br_edit *edit = &e->edits->v[i];
        if (edit->kind == kind && edit->line == node->line && edit->col == node->col)
            return edit;
    }
    return NULL;
}

static const struct br_yaml *edit_head(const struct br_yaml *parent, size_t i)
{
    return parent->keys ? parent->keys[i] : parent->items[i];
}

static const struct br_edit *edit_cut_of(const struct editor *e, const struct br_yaml *parent,
                                         size_t i)
{
    return edit_of(e, edit_head(parent, i), parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP);
}

/* Where the run of pairs or items that go ends, which starts at `i`. */
static size_t edit_run_end(const struct editor *e, const struct br_yaml *parent, size_t i)
{
    while (i < parent->n && edit_cut_of(e, parent, i))
        i++;
    return i;
}

/* The end of a pair or an item: a key may have nothing behind it. */
static size_t edit_end_of(const struct editor *e, const struct br_yaml *parent, size_t i)
{
    size_t key = edit_end(e, edit_head(parent, i)), value = edit_end(e, parent->items[i]);
    return value > key ? value : key;
}

/* In braces or brackets: a run, with the comma that parts it from a neighbour that stays. */
static void edit_cut_flow(struct editor *e, const struct br_yaml *parent, size_t i, size_t end)
{
    struct br_str nothing = {0};
    size_t from = edit_start(e, edit_head(parent, i));
    size_t to = end < parent->n ? edit_start(e, edit_head(parent, end))
                                : edit_end_of(e, parent, parent->n - 1);
    if (end == parent->n && i > 0)
        from = edit_end_of(e, parent, i - 1);
    edit_change(e, from, to > from ? to : from, &nothing);
}

/* True when nothing but blanks, and a list's dash, stands before it on its line. */
static bool edit_is_first(const struct editor *e, size_t start, bool dash)
{
    size_t at = edit_line_start(e, start);
    at += edit_count_blanks(e, at);
    if (dash && at < start && e->text[at] == '-')
        at += 1 + edit_count_blanks(e, at + 1);
    return at == start;
}

/* Where a pair starts, or the dash of an item. */
static size_t edit_dash(const struct editor *e, const struct br_yaml *parent, size_t i)
{
    size_t at = edit_start(e, edit_head(parent, i));
    if (parent->keys)
        return at;
    size_t dash = at;
    while (dash > 0 && strchr(" -", e->text[dash - 1]) && e->text[dash] != '-')
        dash--;
    return dash < at && e->text[dash] == '-' ? dash : at;
}

/* One of a run that ends before `run_end`. */
static void edit_cut_block(struct editor *e, const struct br_yaml *parent, size_t i, size_t run_end)
{
    struct br_str with = {0};
    const char *note = edit_cut_of(e, parent, i)->text;
    size_t start = edit_start(e, edit_head(parent, i)), end = edit_end_of(e, parent, i);
    size_t line = edit_line_start(e, start), indent = edit_count_blanks(e, line);
    if (edit_is_first(e, start, !parent->keys)) {
        if (note)
            edit_comment(&with, note, indent);
        size_t to = edit_past_comments(e, edit_next_line(e, end), indent);
        edit_change(e, line, to, &with);
        return;
    }
    if (run_end < parent->n)
        end = edit_dash(e, parent, run_end);
    start = edit_dash(e, parent, i);
    edit_change(e, start, end > start ? end : start, &with);
}

static void edit_cut(struct editor *e, const struct br_yaml *parent, size_t i, size_t end)
{
    if (parent->flow)
        edit_cut_flow(e, parent, i, end);
    for (; i < end && !parent->flow; i++)
        edit_cut_block(e, parent, i, end);
}

static void edit_set(struct editor *e, const struct br_yaml *value, const struct br_edit *edit)
{
    struct br_str with = {0};
    size_t from = edit_start(e, value), to = edit_end(e, value);
    bool glued = from && e->text[from - 1] == ':';
    br_str_printf(&with, "%s%s", glued ? " " : "", edit->text);
    edit_change(e, from, to > from ? to : from, &with);
}

static void edit_put(struct editor *e, const struct br_yaml *key, const struct br_yaml *value,
                     const struct br_edit *edit)
{
    struct br_str with = {0};
    size_t from = edit_start(e, value), to = from;
    if (value->alias)
        return;
    if (value->type == BR_YAML_NULL) {
        from = edit_end(e, key);
        while (from < e->len && e->text[from] != ':')
            from++;
        from += from < e->len;
        to = edit_end(e, value) > from ? edit_end(e, value) : from;
        br_str_printf(&with, " {%s: %s}", edit->key, edit->text);
    } else if (value->type == BR_YAML_MAP && value->flow) {
        from = to = from + 1;
        br_str_printf(&with, "%s: %s%s", edit->key, edit->text, value->n ? ", " : "");
    } else if (value->type == BR_YAML_MAP && value->n) {
        size_t indent = from - edit_line_start(e, from);
        br_str_printf(&with, "%s: %s\n%*s", edit->key, edit->text, (int)indent, "");
    } else {
        return;
    }
    edit_change(e, from, to, &with);
}

/* What stands inside an alias stands elsewhere, and is found there. */
static void edit_walk(struct editor *e, const struct br_yaml *node)
{
    for (size_t i = 0; i < node->n && !node->alias && !e->no_memory; i++) {
        size_t end = edit_run_end(e, node, i);
        if (end > i) {
            edit_cut(e, node, i, end);
            i = end - 1;
            continue;
        }
        const struct br_yaml *head = edit_head(node, i), *value = node->items[i];
        const struct br_edit *set = node->keys ? edit_of(e, head, BR_EDIT_SET) : NULL;
        const struct br_edit *put = node->keys ? edit_of(e, head, BR_EDIT_PUT) : NULL;
        if (set)
            edit_set(e, value, set);
        if (put)
            edit_put(e, head, value, put);
        edit_walk(e, value);
    }
}

static int edit_by_place(const void *a, const void *b)
{
    const struct change *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Changes that overlap take away together what each would. */
static void edit_write(const struct editor *e, struct br_str *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < e->n_changes; i++) {
        const struct change *c = &e->changes[i];
        if (c->from > at)
            br_str_add(out, e->text + at, c->from - at);
        if (c->from >= at && c->with)
            br_str_puts(out, c->with);
        at = c->to > at ? c->to : at;
    }
    br_str_add(out, e->text + at, e->len - at);
}

int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out)
{
    struct editor e = {.text = text, .len = len, .edits = edits};
    edit_find_lines(&e);
    if (!e.no_memory)
        edit_walk(&e, plain);
    if (e.n_changes)
        qsort(e.changes, e.n_changes, sizeof *e.changes, edit_by_place);
    if (!e.no_memory)
        edit_write(&e, out);
    for (uint32_t i = 0; i < e.n_changes; i++)
        br_free(e.changes[i].with);
    br_free(e.changes);
    br_free(e.lines);
    return e.no_memory || out->failed ? BR_ENOMEM : 0;
}
