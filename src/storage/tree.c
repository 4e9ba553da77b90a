/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/tree.h"

#include <string.h>

#include "base/mem.h"
#include "storage/stacks.h"

#define TEXT_MAX (2 * BR_FUNCTION_BYTES_MAX)
#define NOT_READ UINT32_MAX /* value of a parent or a name offset that has not been read */

struct tree_nodes {
    uint32_t parents[BR_STACK_PACK_NODES], functions[BR_STACK_PACK_NODES];
};

struct tree_names {
    uint32_t at[BR_STACK_PACK_FUNCTIONS]; /* offset of each function's name in `text` */
};

/* --- Allocation ------------------------------------------------------------------------------ */

static struct br_store_tree *tree_new(void)
{
    struct br_store_tree *tree = br_calloc_for(BR_HOLDER_STORE, 1, sizeof *tree);
    if (tree)
        tree->bytes = sizeof *tree;
    return tree;
}

void br_store_tree_free(struct br_store_tree *tree)
{
    if (!tree)
        return;
    for (uint32_t i = 0; i < tree->n_nodes; i++)
        br_free_for(BR_HOLDER_STORE, tree->nodes[i]);
    for (uint32_t i = 0; i < tree->n_functions; i++)
        br_free_for(BR_HOLDER_STORE, tree->functions[i]);
    br_free_for(BR_HOLDER_STORE, tree->nodes);
    br_free_for(BR_HOLDER_STORE, tree->functions);
    br_free_for(BR_HOLDER_STORE, tree->text);
    br_free_for(BR_HOLDER_STORE, tree);
}

size_t br_store_tree_size(const struct br_store_tree *tree)
{
    return tree ? tree->bytes : 0;
}

/* Returns the block `index` of a list. Creates the block if needed, with all entries set to
 * NOT_READ. */
static void *tree_block(struct br_store_tree *tree, void ***list, uint32_t *count, uint32_t index,
                        size_t size)
{
    if (index >= *count) {
        uint32_t more = index + 64;
        void **blocks = br_realloc_for(BR_HOLDER_STORE, *list, more * sizeof *blocks);
        if (!blocks)
            return NULL;
        for (uint32_t i = *count; i < more; i++)
            blocks[i] = NULL;
        tree->bytes += (more - *count) * sizeof *blocks;
        *list = blocks;
        *count = more;
    }
    void **block = &(*list)[index];
    if (!*block && (*block = br_malloc_for(BR_HOLDER_STORE, size))) {
        memset(*block, 0xff, size);
        tree->bytes += size;
    }
    return *block;
}

/* --- Packs ----------------------------------------------------------------------------------- */

struct tree_reading {
    struct br_store_tree *tree;
    /* index of the next entry in the pack: the number of a function, or the number of a node
     * minus 1 */
    uint32_t at;
};

static int tree_put_text(struct br_store_tree *tree, const void *data, size_t len)
{
    size_t need = (size_t)tree->text_len + len + 1;
    if (need > TEXT_MAX)
        return BR_EPROTO; /* the partition is damaged: the store never writes so many texts */
    if (need > tree->cap_text) {
        uint32_t cap = (uint32_t)(need < TEXT_MAX / 2 ? 2 * need : TEXT_MAX);
        char *text = br_realloc_for(BR_HOLDER_STORE, tree->text, cap);
        if (!text)
            return BR_ENOMEM;
        tree->bytes += cap - tree->cap_text;
        tree->text = text;
        tree->cap_text = cap;
    }
    char *out = tree->text + tree->text_len;
    if (len)
        memcpy(out, data, len);
    for (size_t i = 0; i < len; i++)
        out[i] = out[i] ? out[i] : ' ';
    out[len] = '\0';
    tree->text_len += (uint32_t)len + 1;
    return 0;
}

static int tree_on_function(void *arg, const void *name, size_t name_len, const void *file,
                            size_t file_len)
{
    struct tree_reading *reading = arg;
    struct br_store_tree *tree = reading->tree;
    uint32_t number = reading->at++, at = tree->text_len;
    if (number >= BR_FUNCTIONS_MAX)
        return BR_EPROTO;
    struct tree_names *block = tree_block(tree, &tree->functions, &tree->n_functions,
                                          number / BR_STACK_PACK_FUNCTIONS, sizeof *block);
    if (!block)
        return BR_ENOMEM;
    uint32_t *place = &block->at[number % BR_STACK_PACK_FUNCTIONS];
    if (*place != NOT_READ)
        return 0; /* the function was read earlier, from a pack with fewer functions */
    int rc = tree_put_text(tree, name, name_len);
    if (!rc)
        rc = tree_put_text(tree, file, file_len);
    if (!rc)
        *place = at;
    return rc;
}

static int tree_on_node(void *arg, uint32_t back, uint32_t function)
{
    struct tree_reading *reading = arg;
    struct br_store_tree *tree = reading->tree;
    uint32_t index = reading->at++;
    if (index >= BR_STACK_NODES_MAX || !back || back > index + 1)
        return BR_EPROTO;
    struct tree_nodes *block =
        tree_block(tree, &tree->nodes, &tree->n_nodes, index / BR_STACK_PACK_NODES, sizeof *block);
    if (!block)
        return BR_ENOMEM;
    block->parents[index % BR_STACK_PACK_NODES] = index + 1 - back;
    block->functions[index % BR_STACK_PACK_NODES] = function;
    return 0;
}

/* Reads the pack that contains the entry `wanted`: the number of a function, or the number of a
 * node minus 1. */
static int tree_read_pack(struct br_store_query *query, struct br_store_view *view,
                          enum br_sql_id id, uint32_t wanted, struct br_err *err)
{
    struct br_store_query_state *reading = br_store_query_state_of(query);
    struct tree_reading pack = {.tree = view->reader->tree};
    struct br_sql *sql = &view->reader->sql;
    sqlite3_stmt *statement = br_sql_statement(sql, id);
    int rc = 0;
    if (statement)
        (void)sqlite3_bind_int64(statement, 1, wanted);
    if (!br_sql_row(sql, statement, &rc, err))
        return rc ? rc : br_err_set(err, BR_EPROTO, "a stack is missing");
    int64_t first = sqlite3_column_int64(statement, 0);
    rc = first < 0 ? br_err_set(err, BR_EPROTO, "a stack is missing")
                   : br_store_view_blob(query, statement, 2, err);
    pack.at = (uint32_t)first;
    if (!rc)
        rc = id == BR_SQL_NODES_AT
                 ? br_stack_tree_read_nodes(reading->plain.data, reading->plain.len, tree_on_node,
                                            &pack)
                 : br_stack_tree_read_functions(reading->plain.data, reading->plain.len,
                                                tree_on_function, &pack);
    (void)sqlite3_reset(statement);
    if (!rc && pack.at <= wanted)
        rc = br_err_set(err, BR_EPROTO, "a stack is missing");
    return rc;
}

/* --- Nodes and functions --------------------------------------------------------------------- */

static bool tree_has_node(const struct br_store_tree *tree, uint32_t node)
{
    uint32_t index = (node - 1) / BR_STACK_PACK_NODES;
    const struct tree_nodes *block = index < tree->n_nodes ? tree->nodes[index] : NULL;
    return block && block->parents[(node - 1) % BR_STACK_PACK_NODES] != NOT_READ;
}

static bool tree_has_function(const struct br_store_tree *tree, uint32_t function)
{
    uint32_t index = function / BR_STACK_PACK_FUNCTIONS;
    const struct tree_names *block = index < tree->n_functions ? tree->functions[index] : NULL;
    return block && block->at[function % BR_STACK_PACK_FUNCTIONS] != NOT_READ;
}

void br_store_tree_node(const struct br_store_tree *tree, uint32_t node, uint32_t *ret_parent,
                        uint32_t *ret_function)
{
    const struct tree_nodes *block = tree->nodes[(node - 1) / BR_STACK_PACK_NODES];
    *ret_parent = block->parents[(node - 1) % BR_STACK_PACK_NODES];
    *ret_function = block->functions[(node - 1) % BR_STACK_PACK_NODES];
}

const char *br_store_tree_name(const struct br_store_tree *tree, uint32_t function)
{
    const struct tree_names *block = tree->functions[function / BR_STACK_PACK_FUNCTIONS];
    return tree->text + block->at[function % BR_STACK_PACK_FUNCTIONS];
}

const char *br_store_tree_file(const struct br_store_tree *tree, uint32_t function)
{
    const char *name = br_store_tree_name(tree, function);
    return name + strlen(name) + 1;
}

static int tree_load_node(struct br_store_query *query, struct br_store_view *view, uint32_t node,
                          uint32_t *ret_parent, struct br_err *err)
{
    const struct br_store_tree *tree = view->reader->tree;
    uint32_t function;
    int rc =
        tree_has_node(tree, node) ? 0 : tree_read_pack(query, view, BR_SQL_NODES_AT, node - 1, err);
    if (rc)
        return rc;
    br_store_tree_node(tree, node, ret_parent, &function);
    return tree_has_function(tree, function)
               ? 0
               : tree_read_pack(query, view, BR_SQL_FUNCTIONS_AT, function, err);
}

/* Loads all nodes of a set, from the highest number down. Adds the parent of each node to the
 * set; the loop reaches the parent later, because its number is lower. */
static int tree_load_set(struct br_store_query *query, struct br_store_view *view,
                         const struct br_store_node_set *set, struct br_err *err)
{
    uint32_t parent;
    int rc = 0;
    for (uint32_t word = set->n_words; word-- > 0 && !rc;) {
        uint64_t below = UINT64_MAX, left;
        while (!rc && (left = set->words[word] & below)) {
            unsigned bit = 63 - (unsigned)__builtin_clzll(left);
            uint32_t node = 64 * word + bit;
            below = (UINT64_C(1) << bit) - 1;
            rc = node ? tree_load_node(query, view, node, &parent, err) : 0;
            if (!rc && node && parent)
                set->words[parent / 64] |= UINT64_C(1) << parent % 64;
        }
    }
    return rc;
}

int br_store_tree_load(struct br_store_query *query, struct br_store_view *view,
                       const struct br_store_node_set *set, bool *ret, struct br_err *err)
{
    struct br_err why = {.code = 0};
    struct br_store_reader *reader = view->reader;
    *ret = false;
    if (!reader->tree && !(reader->tree = tree_new()))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    size_t before = reader->tree->bytes;
    int rc = tree_load_set(query, view, set, &why);
    br_store_query_count_bytes(query, (int64_t)(reader->tree->bytes - before));
    *ret = rc == 0;
    rc = rc ? br_store_view_failed(query, view, rc, &why) : 0;
    if (rc)
        return br_err_set(err, rc, "%s", *why.text ? why.text : br_strerror(rc));
    return 0;
}
