/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/stacks.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"

#define LEVEL 1

struct function_key {
    const struct br_stack_tree *stacks;
    const void *name, *file;
    size_t name_len, file_len;
};

void br_stack_tree_init(struct br_stack_tree *stacks)
{
    *stacks = (struct br_stack_tree){.max_nodes = BR_STACK_NODES_MAX};
    br_index_init(&stacks->nodes_index, BR_STACK_NODES_MAX, BR_HOLDER_STORE);
    br_index_init(&stacks->functions_index, BR_FUNCTIONS_MAX, BR_HOLDER_STORE);
    br_random_bytes(stacks->nodes_index.secret, sizeof stacks->nodes_index.secret);
    br_random_bytes(stacks->functions_index.secret, sizeof stacks->functions_index.secret);
}

void br_stack_tree_release(struct br_stack_tree *stacks)
{
    br_free(stacks->nodes);
    br_free(stacks->functions);
    br_free(stacks->texts);
    br_index_release(&stacks->nodes_index);
    br_index_release(&stacks->functions_index);
    *stacks = (struct br_stack_tree){.nodes = NULL};
}

bool br_stack_tree_full(const struct br_stack_tree *stacks)
{
    return stacks->n_nodes >= BR_STACK_NODES_MAX / 2 ||
           stacks->n_functions >= BR_FUNCTIONS_MAX / 2 ||
           stacks->texts_len >= BR_FUNCTION_BYTES_MAX / 2;
}

/* --- Functions ------------------------------------------------------------------------------- */

static uint64_t stack_tree_function_hash(const struct br_stack_tree *stacks, const void *name,
                                         size_t name_len, const void *file, size_t file_len)
{
    br_steps_add(name_len + file_len);
    return br_hash_mix(br_index_hash(&stacks->functions_index, name, name_len) ^ 1,
                       br_index_hash(&stacks->functions_index, file, file_len));
}

static bool stack_tree_is_function(const void *entries, uint32_t place, const void *key)
{
    const struct function_key *wanted = key;
    const struct br_stack_tree *stacks = entries;
    const struct br_stack_function *function = &stacks->functions[place];
    const char *text = stacks->texts + function->at;
    if (function->name_len != wanted->name_len || function->file_len != wanted->file_len)
        return false;
    if (wanted->name_len && memcmp(text, wanted->name, wanted->name_len) != 0)
        return false;
    return !wanted->file_len ||
           memcmp(text + function->name_len, wanted->file, wanted->file_len) == 0;
}

static uint64_t stack_tree_rehash_function(const void *entries, uint32_t place)
{
    const struct br_stack_tree *stacks = entries;
    const struct br_stack_function *function = &stacks->functions[place];
    const char *text = stacks->texts + function->at;
    return stack_tree_function_hash(stacks, text, function->name_len, text + function->name_len,
                                    function->file_len);
}

static int stack_tree_add_function(struct br_stack_tree *stacks, const struct function_key *key,
                                   uint64_t hash)
{
    size_t more = key->name_len + key->file_len;
    int rc = br_grow(&stacks->texts, &stacks->cap_texts, stacks->texts_len + more + 1, 1,
                     BR_FUNCTION_BYTES_MAX);
    if (!rc)
        rc = br_grow(&stacks->functions, &stacks->cap_functions, (size_t)stacks->n_functions + 1,
                     sizeof *stacks->functions, BR_FUNCTIONS_MAX);
    if (rc)
        return rc;
    struct br_stack_function *function = &stacks->functions[stacks->n_functions];
    *function = (struct br_stack_function){stacks->texts_len, (uint32_t)key->name_len,
                                           (uint32_t)key->file_len};
    if (key->name_len)
        memcpy(stacks->texts + function->at, key->name, key->name_len);
    if (key->file_len)
        memcpy(stacks->texts + function->at + key->name_len, key->file, key->file_len);
    rc = br_index_add(&stacks->functions_index, hash, stacks->n_functions,
                      stack_tree_rehash_function, stacks);
    if (rc)
        return rc;
    stacks->texts_len += (uint32_t)more;
    stacks->n_functions++;
    return 0;
}

int br_stack_tree_function(struct br_stack_tree *stacks, const void *name, size_t name_len,
                           const void *file, size_t file_len, uint32_t *ret)
{
    if (name_len > BR_FUNCTION_NAME_MAX)
        name_len = br_utf8_valid(name, BR_FUNCTION_NAME_MAX);
    if (file_len > BR_FUNCTION_NAME_MAX)
        file_len = br_utf8_valid(file, BR_FUNCTION_NAME_MAX);
    struct function_key key = {stacks, name, file, name_len, file_len};
    uint64_t hash = stack_tree_function_hash(stacks, name, name_len, file, file_len);
    uint32_t place =
        br_index_find(&stacks->functions_index, hash, stack_tree_is_function, stacks, &key);
    if (place == BR_INDEX_NONE) {
        place = stacks->n_functions;
        int rc = stack_tree_add_function(stacks, &key, hash);
        if (rc)
            return rc;
    }
    *ret = place;
    return 0;
}

/* --- Nodes ----------------------------------------------------------------------------------- */

static uint64_t stack_tree_node_hash(const struct br_stack_tree *stacks,
                                     const struct br_stack_node *node)
{
    return br_hash_number(stacks->nodes_index.secret,
                          (uint64_t)node->parent << 32 | node->function);
}

static bool stack_tree_is_node(const void *entries, uint32_t place, const void *key)
{
    const struct br_stack_tree *stacks = entries;
    const struct br_stack_node *wanted = key, *node = &stacks->nodes[place];
    return node->parent == wanted->parent && node->function == wanted->function;
}

static uint64_t stack_tree_rehash_node(const void *entries, uint32_t place)
{
    const struct br_stack_tree *stacks = entries;
    return stack_tree_node_hash(stacks, &stacks->nodes[place]);
}

void br_stack_tree_allow(struct br_stack_tree *stacks, size_t count)
{
    size_t left = BR_STACK_NODES_MAX - stacks->n_nodes;
    stacks->max_nodes = stacks->n_nodes + (uint32_t)(count < left ? count : left);
}

int br_stack_tree_node(struct br_stack_tree *stacks, uint32_t parent, uint32_t function,
                       uint32_t *ret)
{
    struct br_stack_node node = {parent, function};
    br_steps_add(1);
    uint64_t hash = stack_tree_node_hash(stacks, &node);
    uint32_t place = br_index_find(&stacks->nodes_index, hash, stack_tree_is_node, stacks, &node);
    if (place == BR_INDEX_NONE) {
        place = stacks->n_nodes;
        if (place >= stacks->max_nodes)
            return BR_EFULL;
        int rc = br_grow(&stacks->nodes, &stacks->cap_nodes, (size_t)place + 1,
                         sizeof *stacks->nodes, BR_STACK_NODES_MAX);
        if (rc)
            return rc;
        stacks->nodes[place] = node;
        rc = br_index_add(&stacks->nodes_index, hash, place, stack_tree_rehash_node, stacks);
        if (rc)
            return rc;
        stacks->n_nodes++;
    }
    *ret = place + 1;
    return 0;
}

/* --- The database ---------------------------------------------------------------------------- */

static int stack_tree_insert(struct br_sql *sql, enum br_sql_id id, uint32_t first, uint32_t count,
                             struct br_pack_codec *codec, const struct br_pack *plain,
                             struct br_err *err)
{
    struct br_pack packed = {.data = NULL};
    int rc;
    if (plain->failed || !br_pack_compress(codec, LEVEL, plain, &packed)) {
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    } else {
        sqlite3_stmt *statement = br_sql_statement(sql, id);
        if (statement) {
            (void)sqlite3_bind_int64(statement, 1, first);
            (void)sqlite3_bind_int64(statement, 2, count);
            (void)sqlite3_bind_blob64(statement, 3, packed.data, packed.len, SQLITE_STATIC);
        }
        rc = br_sql_run(sql, statement, err);
    }
    br_pack_release(&packed);
    return rc;
}

static void stack_tree_pack_functions(const struct br_stack_tree *stacks, uint32_t first,
                                      uint32_t count, struct br_pack *plain)
{
    for (uint32_t i = first; i < first + count; i++) {
        const struct br_stack_function *function = &stacks->functions[i];
        br_pack_varint(plain, function->name_len);
        br_pack_varint(plain, function->file_len);
        br_pack_bytes(plain, stacks->texts + function->at,
                      (size_t)function->name_len + function->file_len);
    }
}

static void stack_tree_pack_nodes(const struct br_stack_tree *stacks, uint32_t first,
                                  uint32_t count, struct br_pack *plain)
{
    for (uint32_t i = first; i < first + count; i++) {
        /* In most cases a node directly follows its parent, so the distance to the parent is
         * small. */
        br_pack_varint(plain, i + 1 - stacks->nodes[i].parent);
        br_pack_varint(plain, stacks->nodes[i].function);
    }
}

/* Writes the functions and nodes added since the last call. If the last pack of the previous
 * call was not full, it is written again. */
int br_stack_tree_save(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_pack_codec *codec, struct br_err *err)
{
    struct br_pack plain = {.data = NULL};
    const uint32_t sizes[] = {BR_STACK_PACK_FUNCTIONS, BR_STACK_PACK_NODES};
    const uint32_t totals[] = {stacks->n_functions, stacks->n_nodes};
    const uint32_t saved[] = {stacks->saved_functions, stacks->saved_nodes};
    int rc = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t first = saved[i] / sizes[i] * sizes[i];
             !rc && saved[i] < totals[i] && first < totals[i]; first += sizes[i]) {
            uint32_t left = totals[i] - first, count = left < sizes[i] ? left : sizes[i];
            br_pack_clear(&plain);
            (i ? stack_tree_pack_nodes : stack_tree_pack_functions)(stacks, first, count, &plain);
            rc = stack_tree_insert(sql, i ? BR_SQL_NODES_ADD : BR_SQL_FUNCTIONS_ADD, first, count,
                                   codec, &plain, err);
        }
    br_pack_release(&plain);
    if (!rc) {
        stacks->saved_functions = stacks->n_functions;
        stacks->saved_nodes = stacks->n_nodes;
    }
    return rc;
}

int br_stack_tree_read_functions(const uint8_t *data, size_t len, br_stack_tree_function_fn *fn,
                                 void *arg)
{
    struct br_unpack unpack = {.p = data, .end = br_mem_end(data, len)};
    int rc = 0;
    while (!rc && unpack.p < unpack.end) {
        size_t name_len = (size_t)br_unpack_varint(&unpack);
        size_t file_len = (size_t)br_unpack_varint(&unpack);
        const uint8_t *name = br_unpack_bytes(&unpack, name_len);
        const uint8_t *file = br_unpack_bytes(&unpack, file_len);
        if (unpack.failed)
            return BR_EPROTO;
        rc = fn(arg, name, name_len, file, file_len);
    }
    return rc;
}

int br_stack_tree_read_nodes(const uint8_t *data, size_t len, br_stack_tree_node_fn *fn, void *arg)
{
    struct br_unpack unpack = {.p = data, .end = br_mem_end(data, len)};
    int rc = 0;
    while (!rc && unpack.p < unpack.end) {
        uint64_t back = br_unpack_varint(&unpack), function = br_unpack_varint(&unpack);
        if (unpack.failed || back > UINT32_MAX || function > UINT32_MAX)
            return BR_EPROTO;
        rc = fn(arg, (uint32_t)back, (uint32_t)function);
    }
    return rc;
}

static int stack_tree_on_function(void *arg, const void *name, size_t name_len, const void *file,
                                  size_t file_len)
{
    uint32_t number;
    struct br_stack_tree *stacks = arg;
    uint32_t expected = stacks->n_functions;
    int rc = br_stack_tree_function(stacks, name, name_len, file, file_len, &number);
    if (!rc && number != expected)
        rc = BR_EPROTO;
    return rc;
}

static int stack_tree_on_node(void *arg, uint32_t back, uint32_t function)
{
    struct br_stack_tree *stacks = arg;
    uint32_t number, expected = stacks->n_nodes + 1;
    if (back > expected || !back || function >= stacks->n_functions)
        return BR_EPROTO;
    int rc = br_stack_tree_node(stacks, expected - back, function, &number);
    if (!rc && number != expected)
        rc = BR_EPROTO;
    return rc;
}

int br_stack_tree_load(struct br_stack_tree *stacks, struct br_sql *sql,
                       struct br_pack_codec *codec, struct br_err *err)
{
    struct br_pack plain = {.data = NULL};
    int rc = 0, sql_rc = 0;
    for (int i = 0; i < 2 && !rc && !sql_rc; i++) {
        sqlite3_stmt *statement = br_sql_statement(sql, i ? BR_SQL_NODES : BR_SQL_FUNCTIONS);
        if (statement)
            (void)sqlite3_bind_int64(statement, 1, 0);
        while (!rc && br_sql_row(sql, statement, &sql_rc, err)) {
            rc = br_pack_decompress(codec, sqlite3_column_blob(statement, 2),
                                    (size_t)sqlite3_column_bytes(statement, 2), &plain);
            if (!rc)
                rc = i ? br_stack_tree_read_nodes(plain.data, plain.len, stack_tree_on_node, stacks)
                       : br_stack_tree_read_functions(plain.data, plain.len, stack_tree_on_function,
                                                      stacks);
        }
        if (statement)
            (void)sqlite3_reset(statement);
    }
    br_pack_release(&plain);
    stacks->saved_functions = stacks->n_functions;
    stacks->saved_nodes = stacks->n_nodes;
    if (rc)
        return br_err_set(err, rc == BR_ENOMEM ? rc : BR_EPROTO, "its stacks cannot be read: %s",
                          br_strerror(rc));
    return sql_rc;
}
