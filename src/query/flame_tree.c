/* SPDX-License-Identifier: Apache-2.0 */
#include "query/flame_output.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "wire/protobuf.h"

struct tree_child {
    const char *name;
    uint32_t node;
};

static int tree_compare(const void *first, const void *second)
{
    const struct tree_child *a = first, *b = second;
    return strcmp(a->name, b->name);
}

static void tree_put_varint(struct br_str *out, uint64_t value)
{
    uint8_t bytes[BR_VARINT_MAX];
    const uint8_t *end = br_put_varint(bytes, value);
    br_str_add(out, (const char *)bytes, (size_t)(end - bytes));
}

static void tree_put_node(struct br_str *out, const struct tree_child *node, int64_t self,
                          size_t n_children)
{
    size_t len = strlen(node->name);
    tree_put_varint(out, len);
    br_str_add(out, node->name, len);
    tree_put_varint(out, (uint64_t)self);
    tree_put_varint(out, n_children);
}

int br_flame_tree_write(struct br_str *out, const struct br_flame *flame)
{
    struct tree_child *stack = br_calloc(flame->n_nodes, sizeof *stack);
    size_t height = 0;
    if (!stack)
        return BR_ENOMEM;
    if (flame->n_nodes > 1)
        stack[height++] = (struct tree_child){"", 0};
    while (height > 0) {
        struct tree_child last = stack[--height];
        const struct br_flame_node *node = &flame->nodes[last.node];
        size_t first = height;
        for (uint32_t child = node->first_child; child; child = flame->nodes[child].next)
            if (flame->nodes[child].total[0])
                stack[height++] =
                    (struct tree_child){flame->names[flame->nodes[child].name], child};
        qsort(stack + first, height - first, sizeof *stack, tree_compare);
        tree_put_node(out, &last, last.node ? node->self[0] : 0, height - first);
    }
    br_free(stack);
    return out->failed ? BR_ENOMEM : 0;
}
