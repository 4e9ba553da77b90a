/* SPDX-License-Identifier: Apache-2.0 */
#include "query/flame_output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/heap.h"
#include "base/mem.h"
#include "base/sum.h"

#define OTHER "other"

struct bar {
    /* node of the bar; 0 for the root, and for a bar "other" that stands for omitted children */
    uint32_t node;
    uint32_t name;
    int64_t start[BR_FLAME_SIDES], total[BR_FLAME_SIDES], self[BR_FLAME_SIDES];
};

struct layout {
    const struct br_flame *flame;
    struct br_arena *arena;
    struct br_flamebearer *result;
    int64_t least;
    /* ranks[i] is the position of name i of the flame graph among the sorted names */
    uint32_t *ranks;
    /* renamed[i] is the index in the result of name i of the flame graph, plus 1; 0: the result
     * does not contain the name */
    uint32_t *renamed;
    uint32_t *children; /* node indices of the children of the current bar */
    struct bar *bars;   /* all bars, row by row */
    uint32_t n_bars, max_bars;
    uint32_t other; /* index of the name "other" in the result; 0: not added yet */
};

static int64_t flamebearer_weight(const struct br_flame_node *node)
{
    return node->total[0] > node->total[1] ? node->total[0] : node->total[1];
}

/* --- Selection of nodes ----------------------------------------------------------------------- */

/* Stores in `*ret` the `max_nodes`-th largest total of the nodes from index `first` on. Stores 0
 * if the flame graph has at most `max_nodes` nodes from `first` on. */
static int flamebearer_least(const struct br_flame *flame, uint32_t first, uint32_t max_nodes,
                             struct br_arena *arena, int64_t *ret)
{
    const struct br_flame_node *nodes = flame->nodes + first;
    uint32_t n_nodes = flame->n_nodes - first;
    *ret = 0;
    if (!max_nodes || n_nodes <= max_nodes)
        return 0;
    int64_t *heap = br_arena_calloc(arena, max_nodes, sizeof *heap);
    if (!heap)
        return br_arena_why(arena);
    for (uint32_t i = 0; i < max_nodes; i++)
        heap[i] = flamebearer_weight(&nodes[i]);
    for (size_t i = max_nodes / 2 + 1; i-- > 0;)
        br_heap_sink(br_heap_least, heap, max_nodes, i, NULL);
    for (uint32_t i = max_nodes; i < n_nodes; i++)
        if (flamebearer_weight(&nodes[i]) > heap[0]) {
            heap[0] = flamebearer_weight(&nodes[i]);
            br_heap_sink(br_heap_least, heap, max_nodes, 0, NULL);
        }
    *ret = heap[0];
    return 0;
}

/* --- Names ------------------------------------------------------------------------------------ */

static int flamebearer_compare_names(const void *first, const void *second, void *arg)
{
    const struct br_flame *flame = arg;
    uint32_t a = *(const uint32_t *)first, b = *(const uint32_t *)second;
    int order = strcmp(flame->names[a], flame->names[b]);
    return order ? order : strcmp(flame->files[a], flame->files[b]);
}

static int flamebearer_rank(struct layout *layout)
{
    const struct br_flame *flame = layout->flame;
    uint32_t *order = br_arena_calloc(layout->arena, flame->n_names, sizeof *order);
    layout->ranks = br_arena_calloc(layout->arena, flame->n_names, sizeof *layout->ranks);
    if (!order || !layout->ranks)
        return br_arena_why(layout->arena);
    for (uint32_t i = 0; i < flame->n_names; i++)
        order[i] = i;
    qsort_r(order, flame->n_names, sizeof *order, flamebearer_compare_names, (void *)flame);
    for (uint32_t i = 0; i < flame->n_names; i++)
        layout->ranks[order[i]] = i;
    return 0;
}

static uint32_t flamebearer_add_name(struct layout *layout, const char *name, const char *file)
{
    struct br_flamebearer *result = layout->result;
    result->names[result->n_names] = name;
    result->files[result->n_names] = file;
    return result->n_names++;
}

static uint32_t flamebearer_name_of(struct layout *layout, uint32_t name)
{
    if (!layout->renamed[name])
        layout->renamed[name] =
            flamebearer_add_name(layout, layout->flame->names[name], layout->flame->files[name]) +
            1;
    return layout->renamed[name] - 1;
}

/* --- Bars ------------------------------------------------------------------------------------- */

static int flamebearer_compare_nodes(const void *first, const void *second, void *arg)
{
    const struct layout *layout = arg;
    const struct br_flame_node *nodes = layout->flame->nodes;
    uint32_t a = layout->ranks[nodes[*(const uint32_t *)first].name];
    uint32_t b = layout->ranks[nodes[*(const uint32_t *)second].name];
    return a < b ? -1 : a > b;
}

/* Returns true if a node is drawn as a bar. As in Pyroscope, a node named "other" is merged into
 * the bar of the omitted nodes, except in a flame graph that shows a difference. */
static bool flamebearer_is_kept(const struct layout *layout, const struct br_flame_node *node)
{
    return flamebearer_weight(node) >= layout->least &&
           (layout->result->width == BR_FLAMEBEARER_DIFF ||
            strcmp(layout->flame->names[node->name], OTHER) != 0);
}

static void flamebearer_put_bar(struct layout *layout, struct bar bar, int64_t at[BR_FLAME_SIDES])
{
    memcpy(bar.start, at, sizeof bar.start);
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
        at[side] = br_sum(at[side], bar.total[side]);
    layout->bars[layout->n_bars++] = bar;
}

static uint32_t flamebearer_gather(struct layout *layout, uint32_t parent, struct bar *other)
{
    uint32_t count = 0;
    const struct br_flame_node *nodes = layout->flame->nodes;
    for (uint32_t i = nodes[parent].first_child; i; i = nodes[i].next) {
        if (flamebearer_is_kept(layout, &nodes[i])) {
            if (nodes[i].total[0] || nodes[i].total[1])
                layout->children[count++] = i;
            continue;
        }
        for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
            other->total[side] = br_sum(other->total[side], nodes[i].total[side]);
    }
    return count;
}

/* Adds the bars for the children of a bar to the next row. */
static void flamebearer_descend(struct layout *layout, struct bar parent)
{
    struct bar other = {0};
    int64_t at[BR_FLAME_SIDES];
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
        at[side] = br_sum(parent.start[side], parent.self[side]);
    uint32_t count = flamebearer_gather(layout, parent.node, &other);
    qsort_r(layout->children, count, sizeof *layout->children, flamebearer_compare_nodes, layout);
    for (uint32_t i = 0; i < count; i++) {
        const struct br_flame_node *node = &layout->flame->nodes[layout->children[i]];
        struct bar bar = {.node = layout->children[i],
                          .name = flamebearer_name_of(layout, node->name)};
        memcpy(bar.total, node->total, sizeof bar.total);
        memcpy(bar.self, node->self, sizeof bar.self);
        flamebearer_put_bar(layout, bar, at);
    }
    if (other.total[0] || other.total[1]) {
        if (!layout->other)
            layout->other = flamebearer_add_name(layout, OTHER, "");
        other.name = layout->other;
        memcpy(other.self, other.total, sizeof other.self);
        flamebearer_put_bar(layout, other, at);
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

static int64_t *flamebearer_put_side(int64_t *out, const struct bar *bar, unsigned side,
                                     int64_t end[BR_FLAME_SIDES])
{
    *out++ = br_difference(bar->start[side], end[side]);
    *out++ = bar->total[side];
    *out++ = bar->self[side];
    end[side] = br_sum(bar->start[side], bar->total[side]);
    return out;
}

static int flamebearer_put_level(struct layout *layout, uint32_t from, uint32_t until)
{
    struct br_flamebearer *result = layout->result;
    struct br_flamebearer_level *level = &result->levels[result->n_levels++];
    int64_t end[BR_FLAME_SIDES] = {0};
    level->n_values = (size_t)(until - from) * result->width;
    level->values = br_arena_calloc(layout->arena, level->n_values, sizeof *level->values);
    if (!level->values)
        return br_arena_why(layout->arena);
    int64_t *out = level->values;
    for (uint32_t i = from; i < until; i++) {
        const struct bar *bar = &layout->bars[i];
        for (unsigned side = 0; side < (result->width == BR_FLAMEBEARER_DIFF ? 2u : 1u); side++) {
            out = flamebearer_put_side(out, bar, side, end);
            if (bar->self[side] > result->max_self)
                result->max_self = bar->self[side];
        }
        *out++ = bar->name;
    }
    return 0;
}

static int flamebearer_lay_out(struct layout *layout)
{
    const struct br_flame_node *root = &layout->flame->nodes[0];
    struct bar first = {.name = flamebearer_name_of(layout, root->name)};
    int64_t at[BR_FLAME_SIDES] = {0};
    memcpy(first.total, root->total, sizeof first.total);
    memcpy(first.self, root->self, sizeof first.self);
    flamebearer_put_bar(layout, first, at);
    for (uint32_t from = 0; from < layout->n_bars;) {
        uint32_t until = layout->n_bars;
        int rc = flamebearer_put_level(layout, from, until);
        if (rc)
            return rc;
        for (; from < until; from++)
            if (layout->bars[from].node || from == 0)
                flamebearer_descend(layout, layout->bars[from]);
    }
    return 0;
}

/* Allocates the arrays and lays out the flame graph. The arrays are large enough because every
 * row contains at least one kept bar, except the last row, which may contain only "other". */
int br_flamebearer_make(const struct br_flame *flame, uint32_t max_nodes, bool diff,
                        struct br_arena *arena, struct br_flamebearer *ret)
{
    struct br_flamebearer result = {.width = diff ? BR_FLAMEBEARER_DIFF : BR_FLAMEBEARER_SINGLE};
    struct layout layout = {.flame = flame, .arena = arena, .result = &result};
    int rc = flamebearer_least(flame, diff ? 0 : 1, max_nodes, arena, &layout.least);
    if (rc)
        return rc;
    uint32_t n_kept = 1;
    for (uint32_t i = 1; i < flame->n_nodes; i++)
        n_kept += flamebearer_is_kept(&layout, &flame->nodes[i]);
    /* one bar for each kept node, and at most one bar "other" among the children of each kept
     * node */
    layout.max_bars = n_kept * 2;
    layout.bars = br_arena_calloc(arena, layout.max_bars, sizeof *layout.bars);
    layout.children = br_arena_calloc(arena, n_kept, sizeof *layout.children);
    layout.renamed = br_arena_calloc(arena, flame->n_names, sizeof *layout.renamed);
    result.levels = br_arena_calloc(arena, (size_t)n_kept + 1, sizeof *result.levels);
    result.names = br_arena_calloc(arena, (size_t)flame->n_names + 1, sizeof *result.names);
    result.files = br_arena_calloc(arena, (size_t)flame->n_names + 1, sizeof *result.files);
    bool no_layout = !layout.bars || !layout.children || !layout.renamed;
    bool no_result = !result.levels || !result.names || !result.files;
    if (no_layout || no_result)
        return br_arena_why(arena);
    rc = flamebearer_rank(&layout);
    if (!rc)
        rc = flamebearer_lay_out(&layout);
    if (rc)
        return rc;
    memcpy(result.ticks, flame->nodes[0].total, sizeof result.ticks);
    *ret = result;
    return 0;
}

/* --- JSON ------------------------------------------------------------------------------------- */

static void flamebearer_put_texts(struct br_str *out, const char *const *texts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i)
            br_str_putc(out, ',');
        br_str_json(out, texts[i], strlen(texts[i]));
    }
}

void br_flamebearer_json(struct br_str *out, const struct br_flamebearer *flamebearer, bool files)
{
    bool diff = flamebearer->width == BR_FLAMEBEARER_DIFF;
    int64_t ticks =
        diff ? br_sum(flamebearer->ticks[0], flamebearer->ticks[1]) : flamebearer->ticks[0];
    br_str_puts(out, "{\"names\":[");
    flamebearer_put_texts(out, flamebearer->names, flamebearer->n_names);
    if (files) {
        br_str_puts(out, "],\"files\":[");
        flamebearer_put_texts(out, flamebearer->files, flamebearer->n_names);
    }
    br_str_puts(out, "],\"levels\":[");
    for (uint32_t i = 0; i < flamebearer->n_levels; i++) {
        const struct br_flamebearer_level *level = &flamebearer->levels[i];
        br_str_puts(out, i ? ",[" : "[");
        for (size_t j = 0; j < level->n_values; j++)
            br_str_printf(out, j ? ",%" PRId64 : "%" PRId64, level->values[j]);
        br_str_putc(out, ']');
    }
    br_str_printf(out, "],\"numTicks\":%" PRId64 ",\"maxSelf\":%" PRId64, ticks,
                  flamebearer->max_self);
    if (diff)
        br_str_printf(out, ",\"leftTicks\":%" PRId64 ",\"rightTicks\":%" PRId64,
                      flamebearer->ticks[0], flamebearer->ticks[1]);
    br_str_putc(out, '}');
}
