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
    if (br_grow(&edits->items, &edits->cap, edits->count + 1, sizeof *edits->items, BR_EDITS_MAX))
        return BR_ENOMEM;
    edits->items[edits->count++] = (struct br_edit){kind, at->line, at->col, key, text};
    return 0;
}

void br_edits_release(struct br_edits *edits)
{
    br_free(edits->items);
    *edits = (struct br_edits){0};
}

/* A change of the text: replaces the bytes from offset `from` to `to` by `with`. Changes at the
 * same offset are applied in the order of `order`, which is the order of the edits. */
struct change {
    size_t from, to, order;
    char *with; /* the new text, owned by the change; NULL: the bytes are removed */
};

struct editor {
    const char *text;
    size_t len;
    size_t *lines; /* offset of each line in the text */
    uint32_t n_lines, cap_lines;
    const struct br_edits *edits;
    struct change *changes;
    uint32_t n_changes, cap_changes;
    bool no_memory;
};

/* --- Places ---------------------------------------------------------------------------------- */

/* Returns the length in bytes of the line break at offset `at` (as in YAML 1.1), or 0 if another
 * character is there. */
static size_t edit_break(const struct editor *editor, size_t at)
{
    const unsigned char *p = (const unsigned char *)editor->text + at;
    size_t left = editor->len - at;
    if (left >= 2 && p[0] == '\r' && p[1] == '\n')
        return 2;
    if (left >= 1 && (p[0] == '\n' || p[0] == '\r'))
        return 1;
    if (left >= 2 && p[0] == 0xc2 && p[1] == 0x85)
        return 2;
    return left >= 3 && p[0] == 0xe2 && p[1] == 0x80 && (p[2] == 0xa8 || p[2] == 0xa9) ? 3 : 0;
}

static void edit_add_line(struct editor *editor, size_t start)
{
    if (br_grow(&editor->lines, &editor->cap_lines, editor->n_lines + 1, sizeof *editor->lines,
                BR_YAML_SIZE_MAX + 2))
        editor->no_memory = true;
    else
        editor->lines[editor->n_lines++] = start;
}

static void edit_find_lines(struct editor *editor)
{
    bool bom = editor->len >= 3 && memcmp(editor->text, "\xef\xbb\xbf", 3) == 0;
    edit_add_line(editor, bom ? 3 : 0);
    for (size_t i = bom ? 3 : 0; i < editor->len && !editor->no_memory;) {
        size_t n = edit_break(editor, i);
        i += n ? n : 1;
        if (n)
            edit_add_line(editor, i);
    }
}

/* Returns the offset of a line and column. Columns count characters, not bytes. */
static size_t edit_offset(const struct editor *editor, int line, int col)
{
    if (line < 1 || (uint32_t)line > editor->n_lines)
        return editor->len;
    size_t at = editor->lines[line - 1];
    for (int i = 1; i < col && at < editor->len; i++)
        do
            at++;
        while (at < editor->len && ((unsigned char)editor->text[at] & 0xc0) == 0x80);
    return at;
}

static size_t edit_line_start(const struct editor *editor, size_t at)
{
    uint32_t low = 0, high = editor->n_lines;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (editor->lines[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return editor->lines[low];
}

/* Returns the offset of the next line. */
static size_t edit_next_line(const struct editor *editor, size_t at)
{
    while (at < editor->len) {
        size_t n = edit_break(editor, at);
        if (n)
            return at + n;
        at++;
    }
    return editor->len;
}

static size_t edit_start(const struct editor *editor, const struct br_yaml *node)
{
    return edit_offset(editor, node->span.line, node->span.col);
}

/* Returns the offset after a node. libyaml's end mark of a block node is the start of the next
 * token. */
static size_t edit_end(const struct editor *editor, const struct br_yaml *node)
{
    bool block = (node->type == BR_YAML_MAP || node->type == BR_YAML_SEQ) && !node->flow;
    if (block && !node->alias && node->count) {
        size_t end = edit_end(editor, node->items[node->count - 1]);
        size_t key = node->keys ? edit_end(editor, node->keys[node->count - 1]) : 0;
        return end > key ? end : key;
    }
    size_t end = edit_offset(editor, node->span.end_line, node->span.end_col);
    /* The end mark of a literal block is the start of the line after the block, so skip white space
     * backwards. */
    while (end > edit_start(editor, node) && strchr(" \r\n", editor->text[end - 1]))
        end--;
    return end;
}

static size_t edit_count_blanks(const struct editor *editor, size_t at)
{
    size_t n = 0;
    while (at + n < editor->len && editor->text[at + n] == ' ')
        n++;
    return n;
}

/* --- Changes --------------------------------------------------------------------------------- */

/* Adds a change, and takes ownership of the text of `with`. */
static void edit_change(struct editor *editor, size_t from, size_t to, struct br_str *with)
{
    struct change change = {from, to, editor->n_changes, with->data};
    if (with->failed || br_grow(&editor->changes, &editor->cap_changes, editor->n_changes + 1,
                                sizeof *editor->changes, BR_EDITS_MAX)) {
        editor->no_memory = true;
        br_str_release(with);
        return;
    }
    editor->changes[editor->n_changes++] = change;
}

/* Writes `note` as comment lines, wrapped at words. */
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

/* Returns the offset directly after the comments that follow an entry. Comments that are
 * indented more than the entry describe its content and are removed with the entry. */
static size_t edit_past_comments(const struct editor *editor, size_t at, size_t indent)
{
    while (at < editor->len) {
        size_t blanks = edit_count_blanks(editor, at);
        if (blanks <= indent || at + blanks >= editor->len || editor->text[at + blanks] != '#')
            break;
        at = edit_next_line(editor, at);
    }
    return at;
}

static const struct br_edit *edit_of(const struct editor *editor, const struct br_yaml *node,
                                     enum br_edit_kind kind)
{
    for (size_t i = 0; i < editor->edits->count; i++) {
        const struct br_edit *edit = &editor->edits->items[i];
        if (edit->kind == kind && edit->line == node->line && edit->col == node->col)
            return edit;
    }
    return NULL;
}

static const struct br_yaml *edit_head(const struct br_yaml *parent, size_t index)
{
    return parent->keys ? parent->keys[index] : parent->items[index];
}

static const struct br_edit *edit_cut_of(const struct editor *editor, const struct br_yaml *parent,
                                         size_t index)
{
    return edit_of(editor, edit_head(parent, index), parent->keys ? BR_EDIT_CUT : BR_EDIT_DROP);
}

/* Returns the index of the first entry after the run of removed entries that starts at `index`. An
 * entry is a pair of a map or an item of a list. */
static size_t edit_run_end(const struct editor *editor, const struct br_yaml *parent, size_t index)
{
    while (index < parent->count && edit_cut_of(editor, parent, index))
        index++;
    return index;
}

/* Returns the offset after a pair of a map or an item of a list. A pair may consist of a key
 * without a value. */
static size_t edit_end_of(const struct editor *editor, const struct br_yaml *parent, size_t index)
{
    size_t key = edit_end(editor, edit_head(parent, index)),
           value = edit_end(editor, parent->items[index]);
    return value > key ? value : key;
}

/* Removes a run of entries inside braces or brackets, with the comma that separates the run from
 * a remaining neighbour. */
static void edit_cut_flow(struct editor *editor, const struct br_yaml *parent, size_t index,
                          size_t end)
{
    struct br_str nothing = {0};
    size_t from = edit_start(editor, edit_head(parent, index));
    size_t to = end < parent->count ? edit_start(editor, edit_head(parent, end))
                                    : edit_end_of(editor, parent, parent->count - 1);
    if (end == parent->count && index > 0)
        from = edit_end_of(editor, parent, index - 1);
    edit_change(editor, from, to > from ? to : from, &nothing);
}

/* Returns true if only blanks precede the offset `start` in its line. If `dash` is set, a dash
 * may also precede `start`. */
static bool edit_is_first(const struct editor *editor, size_t start, bool dash)
{
    size_t at = edit_line_start(editor, start);
    at += edit_count_blanks(editor, at);
    if (dash && at < start && editor->text[at] == '-')
        at += 1 + edit_count_blanks(editor, at + 1);
    return at == start;
}

/* Returns the offset of a map's pair, or of the dash of a list's item. */
static size_t edit_dash(const struct editor *editor, const struct br_yaml *parent, size_t index)
{
    size_t at = edit_start(editor, edit_head(parent, index));
    if (parent->keys)
        return at;
    size_t dash = at;
    while (dash > 0 && strchr(" -", editor->text[dash - 1]) && editor->text[dash] != '-')
        dash--;
    return dash < at && editor->text[dash] == '-' ? dash : at;
}

/* Removes one entry of a run of adjacent removed entries. `run_end` is the index after the run. */
static void edit_cut_block(struct editor *editor, const struct br_yaml *parent, size_t index,
                           size_t run_end)
{
    struct br_str with = {0};
    const char *note = edit_cut_of(editor, parent, index)->text;
    size_t start = edit_start(editor, edit_head(parent, index)),
           end = edit_end_of(editor, parent, index);
    size_t line = edit_line_start(editor, start), indent = edit_count_blanks(editor, line);
    if (edit_is_first(editor, start, !parent->keys)) {
        if (note)
            edit_comment(&with, note, indent);
        size_t to = edit_past_comments(editor, edit_next_line(editor, end), indent);
        edit_change(editor, line, to, &with);
        return;
    }
    if (run_end < parent->count)
        end = edit_dash(editor, parent, run_end);
    start = edit_dash(editor, parent, index);
    edit_change(editor, start, end > start ? end : start, &with);
}

static void edit_cut(struct editor *editor, const struct br_yaml *parent, size_t index, size_t end)
{
    if (parent->flow)
        edit_cut_flow(editor, parent, index, end);
    for (; index < end && !parent->flow; index++)
        edit_cut_block(editor, parent, index, end);
}

/* Returns the offset after the colon that follows a key. */
static size_t edit_past_colon(const struct editor *editor, const struct br_yaml *key)
{
    size_t at = edit_end(editor, key);
    while (at < editor->len && editor->text[at] != ':')
        at++;
    return at + (at < editor->len);
}

static void edit_set(struct editor *editor, const struct br_yaml *key, const struct br_yaml *value,
                     const struct br_edit *edit)
{
    struct br_str with = {0};
    size_t from = value->own_line ? edit_past_colon(editor, key) : edit_start(editor, value);
    size_t to = edit_end(editor, value);
    bool glued = from && editor->text[from - 1] == ':';
    br_str_printf(&with, "%s%s", glued ? " " : "", edit->text);
    edit_change(editor, from, to > from ? to : from, &with);
}

/* Appends the pairs that are to be added to a map: one per line with `indent`, or separated by
 * commas. */
static size_t edit_pairs(const struct editor *editor, const struct br_yaml *key, bool lines,
                         size_t indent, struct br_str *out)
{
    size_t count = 0;
    for (size_t i = 0; i < editor->edits->count; i++) {
        const struct br_edit *edit = &editor->edits->items[i];
        if (edit->kind != BR_EDIT_PUT || edit->line != key->line || edit->col != key->col)
            continue;
        if (lines)
            br_str_printf(out, "%*s%s: %s\n", (int)indent, "", edit->key, edit->text);
        else
            br_str_printf(out, "%s%s: %s", count ? ", " : "", edit->key, edit->text);
        count++;
    }
    return count;
}

static void edit_put(struct editor *editor, const struct br_yaml *key, const struct br_yaml *value)
{
    struct br_str with = {0}, pairs = {0};
    size_t from = edit_start(editor, value), to = from;
    bool block = value->type == BR_YAML_MAP && !value->flow && value->count;
    size_t first = block ? edit_start(editor, value->keys[0]) : from;
    size_t indent = first - edit_line_start(editor, first);
    if (!edit_pairs(editor, key, block, indent, &pairs) || value->alias) {
        br_str_release(&pairs);
        return;
    }
    const char *text = pairs.data ? pairs.data : "";
    if (value->type == BR_YAML_NULL) {
        from = edit_past_colon(editor, key);
        to = edit_end(editor, value) > from ? edit_end(editor, value) : from;
        br_str_printf(&with, " {%s}", text);
    } else if (value->type == BR_YAML_MAP && value->flow) {
        from = to = from + 1;
        bool alone = edit_run_end(editor, value, 0) == value->count;
        br_str_printf(&with, "%s%s", text, alone ? "" : ", ");
    } else if (block) {
        /* Comments above the first pair stay next to that pair. */
        from = to = edit_next_line(editor, edit_past_colon(editor, key));
        br_str_puts(&with, text);
    }
    with.failed = with.failed || pairs.failed;
    br_str_release(&pairs);
    edit_change(editor, from, to, &with);
}

/* Collects the changes to be made to the nodes below `node`. Skips the content of an alias,
 * which is edited at its anchor. */
static void edit_walk(struct editor *editor, const struct br_yaml *node)
{
    for (size_t i = 0; i < node->count && !node->alias && !editor->no_memory; i++) {
        size_t end = edit_run_end(editor, node, i);
        if (end > i) {
            edit_cut(editor, node, i, end);
            i = end - 1;
            continue;
        }
        const struct br_yaml *head = edit_head(node, i), *value = node->items[i];
        const struct br_edit *set = node->keys ? edit_of(editor, head, BR_EDIT_SET) : NULL;
        if (set)
            edit_set(editor, head, value, set);
        if (node->keys)
            edit_put(editor, head, value);
        edit_walk(editor, value);
    }
}

static int edit_by_place(const void *left, const void *right)
{
    const struct change *change = left, *y = right;
    if (change->from != y->from)
        return change->from < y->from ? -1 : 1;
    return change->order < y->order ? -1 : change->order > y->order;
}

/* Writes the changed text. If changes overlap, a byte is removed if any of the changes removes
 * it. */
static void config_edit_write(const struct editor *editor, struct br_str *out)
{
    size_t at = 0;
    for (uint32_t i = 0; i < editor->n_changes; i++) {
        const struct change *change = &editor->changes[i];
        if (change->from > at)
            br_str_add(out, editor->text + at, change->from - at);
        if (change->from >= at && change->with)
            br_str_puts(out, change->with);
        at = change->to > at ? change->to : at;
    }
    br_str_add(out, editor->text + at, editor->len - at);
}

int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out)
{
    struct editor editor = {.text = text, .len = len, .edits = edits};
    edit_find_lines(&editor);
    if (!editor.no_memory)
        edit_walk(&editor, plain);
    if (editor.n_changes)
        qsort(editor.changes, editor.n_changes, sizeof *editor.changes, edit_by_place);
    if (!editor.no_memory)
        config_edit_write(&editor, out);
    for (uint32_t i = 0; i < editor.n_changes; i++)
        br_free(editor.changes[i].with);
    br_free(editor.changes);
    br_free(editor.lines);
    return editor.no_memory || out->failed ? BR_ENOMEM : 0;
}
