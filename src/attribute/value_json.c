/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts JSON to values, as the Collector's ParseJSON does: numbers become floats, and of equal
 * names in an object, the last one counts. The children of a node of the tree are linked backwards,
 * so the value is written from its end to its beginning. Therefore the length of a message is known
 * when its head is written.
 */
#include <string.h>

#include "attribute/expression.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/json/number.h"
#include "otlp/json/tree.h"

#define DEPTH_MAX 64
#define NODES_MAX (1u << 20)
/* bytes of a value besides its text: the heads of its AnyValue, KeyValue and element, and a float
 */
#define NODE_SIZE 48

struct json_writer {
    const struct br_json_tree *tree;
    /* the first byte written so far: the value is written from its end to its beginning */
    uint8_t *at;
    int rc;
};

static uint8_t *value_json_head(uint8_t *at, uint32_t field, size_t len)
{
    uint8_t head[2 * BR_VARINT_MAX], *end = br_put_varint(head, BR_TAG(field, BR_WIRE_LEN));
    end = br_put_varint(end, len);
    size_t size = (size_t)(end - head);
    memcpy(at - size, head, size);
    return at - size;
}

/* Writes a string's text, without a head. */
static void value_json_text(struct json_writer *writer, const struct br_json_node *node)
{
    /* `len` bytes are reserved, because the text without escapes is not longer */
    uint8_t *start = writer->at - node->len;
    size_t len = br_json_unescape(writer->tree, node, (char *)start);
    memmove(writer->at - len, start, len);
    writer->at -= len;
}

static void value_json_number(struct json_writer *writer, const struct br_json_node *node)
{
    double v = 0;
    if (!br_number_double(writer->tree->text + node->at, &v))
        writer->rc = BR_EINVAL;
    writer->at -= sizeof v;
    memcpy(writer->at, &v, sizeof v);
    *--writer->at = BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64);
}

static void value_json_write(struct json_writer *writer, const struct br_json_node *node);

static void value_json_list(struct json_writer *writer, const struct br_json_node *list)
{
    for (uint32_t i = list->at; i && !writer->rc; i = writer->tree->nodes[i].prev) {
        const uint8_t *end = writer->at;
        value_json_write(writer, &writer->tree->nodes[i]);
        writer->at = value_json_head(writer->at, BR_LIST_VALUES, (size_t)(end - writer->at));
    }
}

/* Returns true if a name occurs again after the member, which then does not count. `seen` contains
 * the names of the later members. */
static bool value_json_is_seen(struct json_writer *writer, struct br_map **seen,
                               const uint8_t *text, size_t len)
{
    if (!*seen && !(*seen = br_map_new(NODES_MAX))) {
        writer->rc = BR_ENOMEM;
        return true;
    }
    if (br_map_get(*seen, text, len))
        return true;
    if (br_map_put(*seen, text, len, writer, NULL))
        writer->rc = BR_ENOMEM;
    return false;
}

static void value_json_map(struct json_writer *writer, const struct br_json_node *map)
{
    const struct br_json_node *nodes = writer->tree->nodes;
    struct br_map *seen = NULL;
    for (uint32_t i = map->at; i && !writer->rc; i = nodes[nodes[i].prev].prev) {
        const struct br_json_node *name = &nodes[nodes[i].prev];
        uint8_t *end = writer->at;
        value_json_write(writer, &nodes[i]);
        writer->at = value_json_head(writer->at, BR_KEYVALUE_VALUE, (size_t)(end - writer->at));
        const uint8_t *name_end = writer->at;
        value_json_text(writer, name);
        size_t len = (size_t)(name_end - writer->at);
        if (map->len > 1 && value_json_is_seen(writer, &seen, writer->at, len)) {
            writer->at = end;
            continue;
        }
        writer->at = value_json_head(writer->at, BR_KEYVALUE_KEY, len);
        writer->at = value_json_head(writer->at, BR_LIST_VALUES, (size_t)(end - writer->at));
    }
    br_map_free(seen, NULL);
}

/* Writes an AnyValue. The depth of the recursion is at most DEPTH_MAX. */
static void value_json_write(struct json_writer *writer, const struct br_json_node *node)
{
    const uint8_t *end = writer->at;
    enum br_value_type type = BR_VALUE_STRING;
    switch (node->type) {
    case BR_JSON_NULL:
        return;
    case BR_JSON_FALSE:
    case BR_JSON_TRUE:
        *--writer->at = node->type == BR_JSON_TRUE;
        *--writer->at = BR_TAG(BR_VALUE_BOOL, BR_WIRE_VARINT);
        return;
    case BR_JSON_NUMBER:
        value_json_number(writer, node);
        return;
    case BR_JSON_ARRAY:
        value_json_list(writer, node);
        type = BR_VALUE_LIST;
        break;
    case BR_JSON_OBJECT:
        value_json_map(writer, node);
        type = BR_VALUE_MAP;
        break;
    default:
        value_json_text(writer, node);
        break;
    }
    writer->at = value_json_head(writer->at, type, (size_t)(end - writer->at));
}

static bool value_json_convert(struct br_conditions *conditions, const struct br_json_tree *tree,
                               size_t len, struct br_any *ret)
{
    size_t size = len + (size_t)tree->count * NODE_SIZE;
    uint8_t *memory =
        br_conditions_work(conditions, size) ? br_arena_alloc(&conditions->scratch, size) : NULL;
    if (!memory) {
        conditions->rc = conditions->rc ? conditions->rc : br_arena_why(&conditions->scratch);
        return false;
    }
    struct json_writer writer = {.tree = tree, .at = memory + size};
    value_json_write(&writer, &tree->nodes[0]);
    if (writer.rc == BR_EINVAL)
        return br_conditions_fail(conditions, "ParseJSON: a number is too large");
    conditions->rc = writer.rc;
    *ret = br_any_read((struct br_value){writer.at, (size_t)(memory + size - writer.at)});
    return !writer.rc;
}

bool br_conditions_parse_json(struct br_conditions *conditions, const struct br_any *text,
                              struct br_any *ret)
{
    struct br_json_tree tree;
    struct br_err err = {0};
    int rc = br_json_parse(&tree, (const char *)text->data, text->len, DEPTH_MAX, NODES_MAX, &err);
    if (rc == BR_ENOMEM) {
        conditions->rc = rc;
        return false;
    }
    if (rc)
        return br_conditions_fail(conditions, "ParseJSON: %s",
                                  rc == BR_EFULL ? "the text has too many values" : err.text);
    bool nested = tree.nodes[0].type == BR_JSON_OBJECT || tree.nodes[0].type == BR_JSON_ARRAY;
    bool ok =
        nested ? value_json_convert(conditions, &tree, text->len, ret)
               : br_conditions_fail(conditions, "ParseJSON: the text is not an object or an array");
    br_json_tree_release(&tree);
    return ok;
}
