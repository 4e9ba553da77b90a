/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/tree.h"

#include "base/bytes.h"
#include "base/mem.h"

/* maximum number of bytes of a known object member's name: 64 characters, each as an escape of
 * six bytes */
#define NAME_MAX_ESCAPED 384u

struct parser {
    struct br_json_tree *tree;
    struct br_json_scan scan;
    size_t max_nodes;
};

static int json_tree_add(struct parser *ps, struct br_json_node node)
{
    struct br_json_tree *tree = ps->tree;
    int rc = br_grow(&tree->nodes, &tree->cap, (size_t)tree->count + 1, sizeof *tree->nodes,
                     ps->max_nodes);
    if (rc == BR_EFULL && ps->max_nodes > (size_t)(ps->scan.end - tree->text) / 2)
        /* Each value needs at least two bytes of text, so the rest of the text is too short to
         * close all brackets. */
        return br_json_scan_fail(&ps->scan, "unexpected end of text");
    if (rc == BR_EFULL)
        return br_err_set(ps->scan.err, rc, "JSON with more than %zu values", ps->max_nodes);
    if (rc != 0)
        return br_err_set(ps->scan.err, BR_ENOMEM, "no memory for JSON");
    tree->nodes[tree->count++] = node;
    return 0;
}

static int json_tree_add_token(struct parser *ps, const struct br_json_token *token)
{
    struct br_json_node node = {.len = token->len, .type = token->type, .escaped = token->escaped};
    if (token->text)
        node.at = (uint32_t)(token->text - ps->tree->text);
    return json_tree_add(ps, node);
}

static int json_tree_parse_value(struct parser *ps);

/* Makes node `child` the last child of `parent`. */
static void json_tree_link_child(struct parser *ps, uint32_t parent, uint32_t child)
{
    struct br_json_node *nodes = ps->tree->nodes;
    nodes[child].prev = nodes[parent].at;
    nodes[parent].at = child;
}

static int json_tree_parse_key(struct parser *ps, uint32_t object)
{
    struct br_json_token name;
    int rc = br_json_scan_name(&ps->scan, &name);
    rc = rc ? rc : json_tree_add_token(ps, &name);
    if (rc)
        return rc;
    json_tree_link_child(ps, object, ps->tree->count - 1);
    return 0;
}

static int json_tree_parse_children(struct parser *ps, uint32_t self, bool object)
{
    bool more = true;
    int rc = br_json_scan_enter(&ps->scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(&ps->scan, object ? '}' : ']', first, &more);
        if (rc || !more)
            break;
        rc = object ? json_tree_parse_key(ps, self) : 0;
        uint32_t child = ps->tree->count;
        rc = rc ? rc : json_tree_parse_value(ps);
        if (rc)
            break;
        json_tree_link_child(ps, self, child);
        ps->tree->nodes[self].len++;
    }
    return rc;
}

static int json_tree_parse_value(struct parser *ps)
{
    struct br_json_token token;
    uint32_t self = ps->tree->count;
    int rc = br_json_scan_value(&ps->scan, &token);
    rc = rc ? rc : json_tree_add_token(ps, &token);
    if (rc || (token.type != BR_JSON_OBJECT && token.type != BR_JSON_ARRAY))
        return rc;
    return json_tree_parse_children(ps, self, token.type == BR_JSON_OBJECT);
}

int br_json_parse(struct br_json_tree *tree, const char *text, size_t len, unsigned max_depth,
                  size_t max_nodes, struct br_err *err)
{
    struct parser ps = {.tree = tree, .max_nodes = len / 2 + 1};
    if (max_nodes && max_nodes < ps.max_nodes)
        ps.max_nodes = max_nodes;
    *tree = (struct br_json_tree){.text = text};
    int rc = br_json_scan_init(&ps.scan, text, len, max_depth, err);
    rc = rc ? rc : json_tree_parse_value(&ps);
    rc = rc ? rc : br_json_scan_end(&ps.scan);
    if (rc)
        br_json_tree_release(tree);
    return rc;
}

void br_json_tree_release(struct br_json_tree *tree)
{
    br_free(tree->nodes);
    *tree = (struct br_json_tree){0};
}

size_t br_json_unescape(const struct br_json_tree *tree, const struct br_json_node *node, char *out)
{
    return br_json_plain(tree->text + node->at, node->len, out);
}

bool br_json_string_is(const struct br_json_tree *tree, const struct br_json_node *node,
                       const char *name)
{
    char plain[NAME_MAX_ESCAPED];
    const char *text = tree->text + node->at;
    size_t len = node->len;
    if (node->escaped) {
        if (len > sizeof plain)
            return false;
        len = br_json_unescape(tree, node, plain);
        text = plain;
    }
    return br_bytes_are(text, len, name);
}
