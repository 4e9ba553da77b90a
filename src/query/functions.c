/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sum.h"
#include "query/flame_output.h"

#include <stdlib.h>
#include <string.h>

struct functions {
    const struct br_flame *flame;
    enum br_function_order order;
    struct br_function *by_name;
    /* open[i] is the number of frames with the name i on the path to the current node */
    uint32_t *open;
};

static void functions_enter(struct functions *functions, uint32_t at)
{
    const struct br_flame_node *node = &functions->flame->nodes[at];
    struct br_function *function = &functions->by_name[node->name];
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        function->self[side] = br_sum(function->self[side], node->self[side]);
        if (!functions->open[node->name])
            function->total[side] = br_sum(function->total[side], node->total[side]);
    }
    functions->open[node->name]++;
}

/* Visits nodes depth first. After a leaf, continues with its next sibling. After the last child,
 * continues with the next sibling of the nearest ancestor that has a next sibling. */
static void functions_walk(struct functions *functions)
{
    const struct br_flame_node *nodes = functions->flame->nodes;
    for (uint32_t at = nodes[0].first_child; at;) {
        functions_enter(functions, at);
        if (nodes[at].first_child) {
            at = nodes[at].first_child;
            continue;
        }
        functions->open[nodes[at].name]--;
        while (at && !nodes[at].next) {
            at = nodes[at].parent;
            if (at)
                functions->open[nodes[at].name]--;
        }
        at = at ? nodes[at].next : 0;
    }
}

static uint64_t functions_distance(const struct br_function *function)
{
    uint64_t left = (uint64_t)function->self[0], right = (uint64_t)function->self[1];
    return function->self[0] < function->self[1] ? right - left : left - right;
}

static uint64_t functions_key(const struct br_function *function, enum br_function_order order)
{
    uint64_t sign = (uint64_t)1 << 63;
    switch (order) {
    case BR_FUNCTIONS_BY_SELF:
        return (uint64_t)function->self[0] ^ sign;
    case BR_FUNCTIONS_BY_TOTAL:
        return (uint64_t)function->total[0] ^ sign;
    case BR_FUNCTIONS_BY_DELTA:
        break;
    }
    return functions_distance(function);
}

static int functions_compare(const void *first, const void *second, void *arg)
{
    const struct functions *functions = arg;
    const struct br_function *a = first, *b = second;
    uint64_t first_key = functions_key(a, functions->order);
    uint64_t second_key = functions_key(b, functions->order);
    if (first_key != second_key)
        return first_key > second_key ? -1 : 1;
    int order = strcmp(functions->flame->names[a->name], functions->flame->names[b->name]);
    if (!order)
        order = strcmp(functions->flame->files[a->name], functions->flame->files[b->name]);
    return order;
}

int br_functions_make(const struct br_flame *flame, enum br_function_order order,
                      struct br_arena *arena, struct br_function **ret, uint32_t *ret_n)
{
    struct functions functions = {.flame = flame, .order = order};
    functions.by_name = br_arena_calloc(arena, flame->n_names, sizeof *functions.by_name);
    functions.open = br_arena_calloc(arena, flame->n_names, sizeof *functions.open);
    if (!functions.by_name || !functions.open)
        return br_arena_why(arena);
    functions_walk(&functions);
    for (unsigned side = 0; side < BR_FLAME_SIDES; side++) {
        functions.by_name[0].self[side] =
            br_sum(functions.by_name[0].self[side], flame->nodes[0].self[side]);
        functions.by_name[0].total[side] =
            br_sum(functions.by_name[0].total[side], functions.by_name[0].self[side]);
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < flame->n_names; i++) {
        struct br_function function = functions.by_name[i];
        function.name = i;
        if (function.total[0] || function.total[1] || function.self[0] || function.self[1])
            functions.by_name[count++] = function;
    }
    qsort_r(functions.by_name, count, sizeof *functions.by_name, functions_compare, &functions);
    *ret = functions.by_name;
    *ret_n = count;
    return 0;
}
