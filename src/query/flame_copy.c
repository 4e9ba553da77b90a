/* SPDX-License-Identifier: Apache-2.0 */
#include "query/flame_copy.h"

#include <string.h>

#include "base/mem.h"

#define OUTSIDE UINT32_MAX

struct flame_place {
    uint32_t node;  /* of the copy; OUTSIDE: it is not selected */
    uint32_t depth; /* frames above it, itself included */
};

static int flame_copy_node(const struct br_flame *from, const struct br_flame_node *node,
                           const struct flame_place *parent, struct br_flame *to,
                           struct flame_place *ret)
{
    uint32_t name;
    int rc = br_flame_name(to, from->names[node->name], NULL, &name);
    ret->depth = parent->depth + 1;
    return rc ? rc : br_flame_child(to, parent->node, name, &ret->node);
}

static void flame_copy_add(const struct br_flame_node *node, uint32_t at, struct br_flame *to)
{
    unsigned side = to->side;
    for (to->side = 0; to->side < BR_FLAME_SIDES; to->side++)
        br_flame_add(to, at, node->self[to->side]);
    to->side = side;
}

int br_flame_copy(const struct br_flame *from, const char *const *call_site, size_t n_call_site,
                  struct br_flame *to)
{
    struct flame_place *places = br_calloc(from->n_nodes, sizeof *places);
    int rc = places ? 0 : BR_ENOMEM;
    for (uint32_t i = 0; i < from->n_nodes && !rc; i++) {
        const struct br_flame_node *node = &from->nodes[i];
        const struct flame_place *parent = &places[node->parent];
        if (i && (parent->node == OUTSIDE ||
                  (parent->depth < n_call_site &&
                   strcmp(from->names[node->name], call_site[parent->depth]) != 0))) {
            places[i].node = OUTSIDE;
            continue;
        }
        if (i)
            rc = flame_copy_node(from, node, parent, to, &places[i]);
        if (!rc && places[i].depth >= n_call_site)
            flame_copy_add(node, places[i].node, to);
    }
    br_free(places);
    return rc;
}
