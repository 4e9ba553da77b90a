/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/flame.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/index.h"
#include "base/mem.h"
#include "base/sum.h"

struct flame_lookup {
    struct br_index names; /* index of `names` and `files`, by name and file */
    /* index of `nodes`, by parent and function */
    struct br_index children;
    struct br_arena texts;
};

struct flame_function {
    const char *name, *file;
};

struct flame_edge {
    uint32_t parent, name;
};

static uint64_t flame_hash_function(const struct br_index *index, const char *name,
                                    const char *file)
{
    return br_hash_mix(br_index_hash(index, name, strlen(name)) ^ index->secret[0],
                       br_index_hash(index, file, strlen(file)) ^ index->secret[1]);
}

static uint64_t flame_hash_name(const void *entries, uint32_t place)
{
    const struct br_flame *flame = entries;
    const struct flame_lookup *lookup = flame->impl;
    return flame_hash_function(&lookup->names, flame->names[place], flame->files[place]);
}

static bool flame_equal_name(const void *entries, uint32_t place, const void *key)
{
    const struct br_flame *flame = entries;
    const struct flame_function *function = key;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): not NULL if `place` exists. */
    return strcmp(flame->names[place], function->name) == 0 &&
           strcmp(flame->files[place], function->file) == 0;
}

static uint64_t flame_hash_edge(const struct br_index *index, struct flame_edge edge)
{
    return br_index_hash(index, &edge, sizeof edge);
}

static uint64_t flame_hash_node(const void *entries, uint32_t place)
{
    const struct br_flame *flame = entries;
    const struct flame_lookup *lookup = flame->impl;
    const struct br_flame_node *node = &flame->nodes[place];
    return flame_hash_edge(&lookup->children, (struct flame_edge){node->parent, node->name});
}

/* Returns true if the node with the number `place` is the child that is searched for. The root
 * is not a child, although its parent and name may equal those of a child. */
static bool flame_equal_node(const void *entries, uint32_t place, const void *key)
{
    const struct br_flame *flame = entries;
    const struct flame_edge *edge = key;
    return place && flame->nodes[place].parent == edge->parent &&
           flame->nodes[place].name == edge->name;
}

static int flame_grow_names(struct br_flame *flame)
{
    uint32_t cap = flame->cap_names, cap_files = flame->cap_names;
    size_t need = (size_t)flame->n_names + 1;
    int rc = br_grow(&flame->names, &cap, need, sizeof *flame->names, flame->max_nodes);
    if (!rc)
        rc = br_grow(&flame->files, &cap_files, need, sizeof *flame->files, flame->max_nodes);
    if (!rc)
        flame->cap_names = cap;
    return rc;
}

int br_flame_name(struct br_flame *flame, const char *name, const char *file, uint32_t *ret)
{
    struct flame_lookup *lookup = flame->impl;
    struct flame_function key = {name, file ? file : ""};
    uint64_t hash = flame_hash_function(&lookup->names, key.name, key.file);
    uint32_t found = br_index_find(&lookup->names, hash, flame_equal_name, flame, &key);
    if (found != BR_INDEX_NONE) {
        *ret = found;
        return 0;
    }
    int rc = flame_grow_names(flame);
    if (rc)
        return rc;
    const char *name_copy = br_arena_strndup(&lookup->texts, key.name, strlen(key.name));
    const char *file_copy =
        *key.file ? br_arena_strndup(&lookup->texts, key.file, strlen(key.file)) : "";
    if (!name_copy || !file_copy)
        return br_arena_why(&lookup->texts);
    rc = br_index_add(&lookup->names, hash, flame->n_names, flame_hash_name, flame);
    if (rc)
        return rc;
    flame->names[flame->n_names] = name_copy;
    flame->files[flame->n_names] = file_copy;
    *ret = flame->n_names++;
    return 0;
}

/* Adds a node, which may be the root, and stores its number in `*ret`. */
static int flame_make(struct br_flame *flame, struct flame_edge edge, uint64_t hash, uint32_t *ret)
{
    struct flame_lookup *lookup = flame->impl;
    int rc = br_grow(&flame->nodes, &flame->cap_nodes, (size_t)flame->n_nodes + 1,
                     sizeof *flame->nodes, flame->max_nodes);
    if (!rc)
        rc = br_index_add(&lookup->children, hash, flame->n_nodes, flame_hash_node, flame);
    if (rc)
        return rc;
    flame->nodes[flame->n_nodes] = (struct br_flame_node){.parent = edge.parent, .name = edge.name};
    *ret = flame->n_nodes++;
    return 0;
}

int br_flame_child(struct br_flame *flame, uint32_t parent, uint32_t name, uint32_t *ret)
{
    const struct flame_lookup *lookup = flame->impl;
    struct flame_edge edge = {parent, name};
    uint64_t hash = flame_hash_edge(&lookup->children, edge);
    uint32_t found = br_index_find(&lookup->children, hash, flame_equal_node, flame, &edge);
    if (found != BR_INDEX_NONE) {
        *ret = found;
        return 0;
    }
    int rc = flame_make(flame, edge, hash, ret);
    if (rc)
        return rc;
    flame->nodes[*ret].next = flame->nodes[parent].first_child;
    flame->nodes[parent].first_child = *ret;
    return 0;
}

int br_flame_init(struct br_flame *flame, uint32_t max_nodes)
{
    uint32_t ignored;
    *flame = (struct br_flame){.max_nodes = max_nodes ? max_nodes : 1};
    struct flame_lookup *lookup = br_calloc(1, sizeof *lookup);
    if (!lookup)
        return BR_ENOMEM;
    flame->impl = lookup;
    br_index_init(&lookup->names, flame->max_nodes, BR_HOLDER_PROCESS);
    br_index_init(&lookup->children, flame->max_nodes, BR_HOLDER_PROCESS);
    br_arena_init(&lookup->texts, BR_FLAME_TEXTS_MAX(flame->max_nodes));
    struct flame_edge root = {0, 0};
    int rc = br_flame_name(flame, "total", NULL, &ignored);
    if (!rc)
        rc = flame_make(flame, root, flame_hash_edge(&lookup->children, root), &ignored);
    if (rc)
        br_flame_release(flame);
    return rc;
}

void br_flame_release(struct br_flame *flame)
{
    struct flame_lookup *lookup = flame->impl;
    if (lookup) {
        br_index_release(&lookup->names);
        br_index_release(&lookup->children);
        br_arena_release(&lookup->texts);
    }
    br_free(lookup);
    br_free(flame->nodes);
    br_free(flame->names);
    br_free(flame->files);
    *flame = (struct br_flame){0};
}

void br_flame_add(struct br_flame *flame, uint32_t node, int64_t value)
{
    flame->nodes[node].self[flame->side] = br_sum(flame->nodes[node].self[flame->side], value);
}

/* Adds the values of children to their parents. Children have higher numbers than their parents,
 * so the loop runs from the last node to the first. */
void br_flame_total(struct br_flame *flame)
{
    for (uint32_t i = 0; i < flame->n_nodes; i++)
        memcpy(flame->nodes[i].total, flame->nodes[i].self, sizeof flame->nodes[i].total);
    for (uint32_t i = flame->n_nodes; i-- > 1;) {
        struct br_flame_node *parent = &flame->nodes[flame->nodes[i].parent];
        for (unsigned side = 0; side < BR_FLAME_SIDES; side++)
            parent->total[side] = br_sum(parent->total[side], flame->nodes[i].total[side]);
    }
}

/* --- Merging --------------------------------------------------------------------------------- */

static int flame_copy_child(struct br_flame *flame, uint32_t parent, const struct br_flame *from,
                            uint32_t node, bool files, uint32_t *ret)
{
    uint32_t name = from->nodes[node].name;
    int rc = br_flame_name(flame, from->names[name], files ? from->files[name] : NULL, &name);
    return rc ? rc : br_flame_child(flame, parent, name, ret);
}

int br_flame_merge(struct br_flame *flame, const struct br_flame *from, bool files,
                   uint64_t divisor)
{
    uint32_t *map = br_calloc(from->n_nodes, sizeof *map);
    int64_t carried[BR_FLAME_SIDES] = {0};
    int rc = map ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < from->n_nodes && !rc; i++) {
        if (i)
            rc = flame_copy_child(flame, map[from->nodes[i].parent], from, i, files, &map[i]);
        for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++) {
            int64_t value = from->nodes[i].self[side], by = (int64_t)divisor;
            carried[side] += value % by;
            flame->nodes[map[i]].self[side] =
                br_sum(flame->nodes[map[i]].self[side], value / by + carried[side] / by);
            carried[side] %= by;
        }
    }
    br_free(map);
    return rc;
}

int br_flame_keep_innermost(struct br_flame *flame, const struct br_flame *from, uint32_t n_frames)
{
    uint32_t *frames = br_calloc((size_t)n_frames + 1, sizeof *frames);
    int rc = frames ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < from->n_nodes && !rc; i++) {
        const struct br_flame_node *node = &from->nodes[i];
        uint32_t count = 0, at = 0;
        if (!node->self[0] && !node->self[1])
            continue;
        for (uint32_t frame = i; frame && count < n_frames; frame = from->nodes[frame].parent)
            frames[count++] = frame;
        while (count > 0 && !rc)
            rc = flame_copy_child(flame, at, from, frames[--count], true, &at);
        for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++)
            flame->nodes[at].self[side] = br_sum(flame->nodes[at].self[side], node->self[side]);
    }
    br_free(frames);
    return rc;
}

/* --- Pruning --------------------------------------------------------------------------------- */

static uint64_t flame_weight(const struct br_flame_node *node)
{
    uint64_t weight = 0;
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        int64_t total = node->total[side];
        uint64_t size = total < 0 ? -(uint64_t)total : (uint64_t)total;
        weight = br_sum_unsigned(weight, size);
    }
    return weight;
}

static int flame_compare_weights(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

/* Finds a weight that at most `keep` nodes exceed. Returns 0 or BR_ENOMEM. */
static int flame_threshold(const struct br_flame *flame, uint32_t keep, uint64_t *ret)
{
    uint64_t *weights = br_malloc(flame->n_nodes * sizeof *weights);
    if (!weights)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < flame->n_nodes; i++)
        weights[i] = flame_weight(&flame->nodes[i]);
    qsort(weights, flame->n_nodes, sizeof *weights, flame_compare_weights);
    *ret = keep < flame->n_nodes ? weights[flame->n_nodes - keep - 1] : 0;
    br_free(weights);
    return 0;
}

struct flame_pruning {
    const struct br_flame *from;
    struct br_flame to;
    uint32_t *map;
    bool *folded; /* folded[i] is true if node i is merged into another node */
    uint64_t threshold;
    uint32_t other; /* index of the name BR_FLAME_OTHER */
};

static int flame_move(struct flame_pruning *pruning, uint32_t index)
{
    const struct br_flame_node *node = &pruning->from->nodes[index];
    uint32_t parent = pruning->map[node->parent], name = pruning->other;
    bool stays = !pruning->folded[node->parent] && flame_weight(node) > pruning->threshold;
    int rc = 0;
    pruning->folded[index] = !stays;
    if (stays)
        rc = br_flame_name(&pruning->to, pruning->from->names[node->name],
                           pruning->from->files[node->name], &name);
    if (pruning->folded[node->parent])
        pruning->map[index] = parent;
    else if (!rc)
        rc = br_flame_child(&pruning->to, parent, name, &pruning->map[index]);
    return rc;
}

static int flame_move_all(struct flame_pruning *pruning)
{
    int rc = br_flame_name(&pruning->to, BR_FLAME_OTHER, NULL, &pruning->other);
    for (uint32_t i = 0; i < pruning->from->n_nodes && !rc; i++) {
        rc = i ? flame_move(pruning, i) : 0;
        struct br_flame_node *to = &pruning->to.nodes[pruning->map[i]];
        for (unsigned side = 0; side < BR_FLAME_SIDES && !rc; side++)
            to->self[side] = br_sum(to->self[side], pruning->from->nodes[i].self[side]);
    }
    return rc;
}

int br_flame_prune(struct br_flame *flame, uint32_t keep, uint32_t **ret_map)
{
    struct flame_pruning pruning = {.from = flame};
    br_flame_total(flame);
    pruning.map = br_calloc(flame->n_nodes, sizeof *pruning.map);
    pruning.folded = br_calloc(flame->n_nodes, sizeof *pruning.folded);
    int rc = pruning.map && pruning.folded ? flame_threshold(flame, keep, &pruning.threshold)
                                           : BR_ENOMEM;
    if (!rc)
        rc = br_flame_init(&pruning.to, flame->max_nodes);
    if (!rc)
        rc = flame_move_all(&pruning);
    br_free(pruning.folded);
    if (rc) {
        br_flame_release(&pruning.to);
        br_free(pruning.map);
        return rc;
    }
    pruning.to.side = flame->side;
    br_flame_release(flame);
    *flame = pruning.to;
    *ret_map = pruning.map;
    return 0;
}
