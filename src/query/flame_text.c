/* SPDX-License-Identifier: Apache-2.0 */
#include "query/flame_output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sum.h"

/* A path in a flame graph: the name indices of the nodes from the root to a node, without the
 * root. */
struct flame_path {
    uint32_t *names;
    uint32_t cap;
    size_t len;
};

static int flame_path_find(struct flame_path *path, const struct br_flame *flame, uint32_t node)
{
    path->len = 0;
    for (uint32_t at = node; at; at = flame->nodes[at].parent)
        path->len++;
    int rc = br_grow(&path->names, &path->cap, path->len, sizeof *path->names, UINT32_MAX);
    if (rc)
        return rc;
    size_t i = path->len;
    for (uint32_t at = node; at; at = flame->nodes[at].parent)
        path->names[--i] = flame->nodes[at].name;
    return 0;
}

/* --- Folded ----------------------------------------------------------------------------------- */

static void flame_folded_put_name(struct br_str *out, const char *name)
{
    for (; *name; name++) {
        bool control = (unsigned char)*name < ' ' || *name == '\x7f';
        if (*name == ';')
            br_str_putc(out, ',');
        else
            br_str_putc(out, control ? ' ' : *name);
    }
}

void br_flame_folded(struct br_str *out, const struct br_flame *flame)
{
    struct flame_path path = {0};
    for (uint32_t i = 0; i < flame->n_nodes && !out->failed; i++) {
        if (!flame->nodes[i].self[0])
            continue;
        if (flame_path_find(&path, flame, i)) {
            out->failed = true;
            break;
        }
        if (!path.len)
            flame_folded_put_name(out, flame->names[0]);
        for (size_t j = 0; j < path.len; j++) {
            if (j)
                br_str_putc(out, ';');
            flame_folded_put_name(out, flame->names[path.names[j]]);
        }
        br_str_printf(out, " %" PRId64 "\n", flame->nodes[i].self[0]);
    }
    br_free(path.names);
}

/* --- speedscope ------------------------------------------------------------------------------- */

static void flame_speedscope_put_text(struct br_str *out, const char *text)
{
    br_str_json(out, text, strlen(text));
}

static void flame_speedscope_put_frames(struct br_str *out, const struct br_flame *flame)
{
    for (uint32_t i = 0; i < flame->n_names; i++) {
        br_str_puts(out, i ? ",{\"name\":" : "{\"name\":");
        flame_speedscope_put_text(out, flame->names[i]);
        if (*flame->files[i]) {
            br_str_puts(out, ",\"file\":");
            flame_speedscope_put_text(out, flame->files[i]);
        }
        br_str_putc(out, '}');
    }
}

static int flame_speedscope_put_samples(struct br_str *out, const struct br_flame *flame)
{
    struct flame_path path = {0};
    bool more = false;
    int rc = 0;
    for (uint32_t i = 0; i < flame->n_nodes && !rc && !out->failed; i++) {
        if (flame->nodes[i].self[0] <= 0)
            continue;
        rc = flame_path_find(&path, flame, i);
        br_str_puts(out, more ? ",[" : "[");
        for (size_t j = 0; j < path.len && !rc; j++)
            br_str_printf(out, j ? ",%" PRIu32 : "%" PRIu32, path.names[j]);
        br_str_puts(out, path.len ? "]" : "0]");
        more = true;
    }
    br_free(path.names);
    return rc;
}

static int64_t flame_speedscope_put_weights(struct br_str *out, const struct br_flame *flame)
{
    int64_t sum = 0;
    bool more = false;
    for (uint32_t i = 0; i < flame->n_nodes; i++) {
        int64_t value = flame->nodes[i].self[0];
        if (value <= 0)
            continue;
        br_str_printf(out, more ? ",%" PRId64 : "%" PRId64, value);
        sum = br_sum(sum, value);
        more = true;
    }
    return sum;
}

int br_flame_speedscope(struct br_str *out, const struct br_flame *flame, const char *name,
                        const char *unit)
{
    bool known = !strcmp(unit, "nanoseconds") || !strcmp(unit, "bytes");
    br_str_puts(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\","
                     "\"shared\":{\"frames\":[");
    flame_speedscope_put_frames(out, flame);
    br_str_puts(out, "]},\"profiles\":[{\"type\":\"sampled\",\"name\":");
    flame_speedscope_put_text(out, name);
    br_str_puts(out, ",\"unit\":");
    flame_speedscope_put_text(out, known ? unit : "none");
    br_str_puts(out, ",\"startValue\":0,\"samples\":[");
    int rc = flame_speedscope_put_samples(out, flame);
    br_str_puts(out, "],\"weights\":[");
    int64_t sum = flame_speedscope_put_weights(out, flame);
    br_str_printf(out, "],\"endValue\":%" PRId64 "}],\"activeProfileIndex\":0,\"name\":", sum);
    flame_speedscope_put_text(out, name);
    br_str_puts(out, ",\"exporter\":\"braid\"}");
    return rc;
}

/* --- Tree ------------------------------------------------------------------------------------- */

struct flame_tree {
    const struct br_flame *flame;
    /* next[i] is the next sibling of node i in sorted order; 0: node i is the last child */
    uint32_t *next;
    uint32_t *first;
};

static int flame_tree_compare(const void *first, const void *second, void *arg)
{
    const struct br_flame *flame = arg;
    const struct br_flame_node *a = &flame->nodes[*(const uint32_t *)first];
    const struct br_flame_node *b = &flame->nodes[*(const uint32_t *)second];
    if (a->total[0] != b->total[0])
        return a->total[0] > b->total[0] ? -1 : 1;
    return strcmp(flame->names[a->name], flame->names[b->name]);
}

/* Links the children of each node in sorted order. `list` is scratch space for as many indices
 * as the flame graph has nodes. */
static void flame_tree_link(struct flame_tree *tree, uint32_t *list)
{
    const struct br_flame *flame = tree->flame;
    for (uint32_t parent = 0; parent < flame->n_nodes; parent++) {
        size_t count = 0;
        for (uint32_t i = flame->nodes[parent].first_child; i; i = flame->nodes[i].next)
            if (flame->nodes[i].total[0])
                list[count++] = i;
        qsort_r(list, count, sizeof *list, flame_tree_compare, (void *)flame);
        tree->first[parent] = count ? list[0] : 0;
        for (size_t i = 0; i < count; i++)
            tree->next[list[i]] = i + 1 < count ? list[i + 1] : 0;
    }
}

static void flame_tree_put_head(struct br_str *out, const struct br_flame *flame, uint32_t at)
{
    const struct br_flame_node *node = &flame->nodes[at];
    br_str_puts(out, "{\"name\":");
    flame_speedscope_put_text(out, flame->names[node->name]);
    if (*flame->files[node->name]) {
        br_str_puts(out, ",\"file\":");
        flame_speedscope_put_text(out, flame->files[node->name]);
    }
    br_str_printf(out, ",\"self\":%" PRId64 ",\"total\":%" PRId64 ",\"children\":[", node->self[0],
                  node->total[0]);
}

static int flame_tree_put(const struct flame_tree *tree, struct br_str *out)
{
    unsigned depth = 0;
    uint32_t at = 0;
    flame_tree_put_head(out, tree->flame, at);
    while (!out->failed) {
        if (tree->first[at]) {
            at = tree->first[at];
            if (++depth > BR_FLAME_TREE_DEPTH_MAX)
                return BR_ETOOBIG;
            flame_tree_put_head(out, tree->flame, at);
            continue;
        }
        while (at && !tree->next[at]) {
            br_str_puts(out, "]}");
            at = tree->flame->nodes[at].parent;
            depth--;
        }
        br_str_puts(out, "]}");
        if (!at)
            break;
        br_str_putc(out, ',');
        at = tree->next[at];
        flame_tree_put_head(out, tree->flame, at);
    }
    return 0;
}

int br_flame_tree(struct br_str *out, const struct br_flame *flame)
{
    struct flame_tree tree = {.flame = flame};
    tree.next = br_calloc(flame->n_nodes, sizeof *tree.next);
    tree.first = br_calloc(flame->n_nodes, sizeof *tree.first);
    uint32_t *list = br_calloc(flame->n_nodes, sizeof *list);
    int rc = BR_ENOMEM;
    if (tree.next && tree.first && list) {
        flame_tree_link(&tree, list);
        rc = flame_tree_put(&tree, out);
    }
    br_free(tree.next);
    br_free(tree.first);
    br_free(list);
    return rc;
}
