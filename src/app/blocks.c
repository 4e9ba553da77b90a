/* SPDX-License-Identifier: Apache-2.0 */
#include "app/blocks.h"

#include <string.h>

#include "base/err.h"

struct visit {
    struct br_arena *arena;
    br_block_fn *fn;
    void *arg;
};

static int blocks_visit_table(const struct visit *visit, const struct br_block *in);

static int blocks_visit_map(const struct visit *visit, const struct br_block *block)
{
    int rc = 0;
    if (visit->fn(block, visit->arg, &rc) || rc == BR_ENOMEM)
        return rc;
    int inner = blocks_visit_table(visit, block);
    return inner ? inner : rc;
}

/* Visits the value of one option. The value is a map or a list of maps. */
static int blocks_visit_row(const struct visit *visit, const struct br_option *option,
                            const char *field, const struct br_yaml *node, const char *path)
{
    struct br_structs list;
    const void *map = field;
    int rc = 0;
    if (option->kind == BR_OPT_PRESENT)
        memcpy(&map, field, sizeof map);
    if (option->kind != BR_OPT_LIST) {
        struct br_block block = {option->sub, map, node, path};
        return map ? blocks_visit_map(visit, &block) : 0;
    }
    memcpy(&list, field, sizeof list);
    for (size_t i = 0; i < list.count && rc != BR_ENOMEM; i++) {
        struct br_block block = {option->sub, (const char *)list.items + i * option->size,
                                 node->items[i], br_arena_printf(visit->arena, "%s[%zu]", path, i)};
        int one = block.path ? blocks_visit_map(visit, &block) : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}

static int blocks_visit_table(const struct visit *visit, const struct br_block *in)
{
    int rc = 0;
    for (const struct br_option *option = in->table; option && option->name && rc != BR_ENOMEM;
         option++) {
        bool nests = option->kind == BR_OPT_STRUCT || option->kind == BR_OPT_PRESENT ||
                     option->kind == BR_OPT_LIST;
        const struct br_yaml *value = nests ? br_yaml_get(in->node, option->name) : NULL;
        const char *name = option->name;
        if (nests && !value && option->alias) {
            name = option->alias;
            value = br_yaml_get(in->node, name);
        }
        if (!value)
            continue;
        const char *path = br_arena_printf(visit->arena, "%s::%s", in->path, name);
        const char *field = (const char *)in->config + option->offset;
        int one = path ? blocks_visit_row(visit, option, field, value, path) : BR_ENOMEM;
        rc = one ? one : rc;
    }
    return rc;
}

int br_blocks_visit(const struct br_option *table, const void *config, const struct br_yaml *node,
                    const char *path, struct br_arena *arena, br_block_fn *visit, void *arg)
{
    struct visit how = {arena, visit, arg};
    struct br_block root = {table, config, node, path};
    return blocks_visit_table(&how, &root);
}
