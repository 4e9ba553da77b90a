/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tree.h"

#include <string.h>

#include "base/mem.h"
#include "storage/stacks.h"

#define TEXT_MAX (2 * BR_FUNCTION_BYTES_MAX)

void br_store_tree_free(struct br_store_tree *tree)
{
    if (!tree)
        return;
    br_free(tree->parents);
    br_free(tree->functions);
    br_free(tree->names);
    br_free(tree->text);
    br_free(tree);
}

const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function)
{
    return tree->text + tree->names[function];
}

const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function)
{
    const char *name = br_store_tree_name(tree, function);
    return name + strlen(name) + 1;
}

static void tree_put_text(struct br_store_tree *tree, const void *data, size_t len)
{
    char *out = tree->text + tree->text_len;
    if (len)
        memcpy(out, data, len);
    for (size_t i = 0; i < len; i++)
        out[i] = out[i] ? out[i] : ' ';
    out[len] = '\0';
    tree->text_len += (uint32_t)len + 1;
}

static int tree_on_function(void *arg, const void *name, size_t name_len, const void *file,
                            size_t file_len)
{
    struct br_store_tree *tree = arg;
    int rc = br_grow(&tree->names, &tree->cap_functions, (size_t)tree->n_functions + 1,
                     sizeof *tree->names, BR_FUNCTIONS_MAX);
    if (!rc)
        rc = br_grow(&tree->text, &tree->cap_text, tree->text_len + name_len + file_len + 2, 1,
                     TEXT_MAX);
    if (rc)
        return rc;
    tree->names[tree->n_functions++] = tree->text_len;
    tree_put_text(tree, name, name_len);
    tree_put_text(tree, file, file_len);
    return 0;
}

static int tree_add_node(struct br_store_tree *tree, uint32_t parent, uint32_t function)
{
    size_t need = (size_t)tree->n_nodes + 1;
    int rc = br_grow(&tree->parents, &tree->cap_nodes, need, sizeof *tree->parents,
                     BR_STACK_NODES_MAX + 1u);
    if (!rc)
        rc = br_grow(&tree->functions, &tree->cap_node_functions, need, sizeof *tree->functions,
                     BR_STACK_NODES_MAX + 1u);
    if (rc)
        return rc;
    tree->parents[tree->n_nodes] = parent;
    tree->functions[tree->n_nodes++] = function;
    return 0;
}

static int tree_on_node(void *arg, uint32_t back, uint32_t function)
{
    struct br_store_tree *tree = arg;
    if (!back || back > tree->n_nodes || function >= tree->n_functions)
        return BR_EPROTO;
    return tree_add_node(tree, tree->n_nodes - back, function);
}

size_t br_store_tree_size(const struct br_store_tree *tree)
{
    return tree ? ((size_t)tree->cap_nodes + tree->cap_node_functions + tree->cap_functions) *
                          sizeof *tree->parents +
                      tree->cap_text
                : 0;
}

static int tree_read(struct br_store_query *query, struct br_store_view *view, enum br_sql_id id,
                     struct br_err *err)
{
    struct br_store_reading *reading = br_store_reading_of(query);
    struct br_store_tree *tree = view->reader->tree;
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_take(sql, id);
    int rc = 0, sql_rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1,
                                 id == BR_SQL_NODES ? tree->n_nodes - 1 : tree->n_functions);
    while (!rc && br_sql_row(sql, statement, &sql_rc, err)) {
        rc = br_store_view_blob(query, statement, 2, err);
        if (!rc)
            rc = id == BR_SQL_NODES
                     ? br_stack_tree_read_nodes(reading->plain.data, reading->plain.len,
                                                tree_on_node, tree)
                     : br_stack_tree_read_functions(reading->plain.data, reading->plain.len,
                                                    tree_on_function, tree);
    }
    if (statement)
        (void)sqlite3_reset(statement);
    return rc ? rc : sql_rc;
}

int br_store_tree_load(struct br_store_query *query, struct br_store_view *view, struct br_err *err)
{
    struct br_err why = {.code = 0};
    struct br_store_tree *tree = view->reader->tree;
    size_t before = br_store_tree_size(tree);
    int rc = 0;
    if (!tree) {
        tree = view->reader->tree = br_calloc(1, sizeof *tree);
        rc = tree ? tree_add_node(tree, 0, 0) : BR_ENOMEM;
    }
    if (!rc)
        rc = tree_read(query, view, BR_SQL_FUNCTIONS, &why);
    if (!rc)
        rc = tree_read(query, view, BR_SQL_NODES, &why);
    if (!rc) {
        br_store_query_hold(query, (int64_t)(br_store_tree_size(tree) - before));
        return 0;
    }
    br_store_tree_free(tree);
    view->reader->tree = NULL;
    if (rc == BR_EFULL)
        rc = BR_EPROTO; /* more than is ever written */
    rc = br_store_view_failed(query, view, rc, &why);
    if (rc)
        return br_err_set(err, rc, "%s", *why.text ? why.text : br_strerror(rc));
    return 0;
}
