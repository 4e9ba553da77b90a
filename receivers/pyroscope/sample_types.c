/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the field `sample_type_config` of a form in the same way as Go's encoding/json: member
 * names are case-insensitive, and null means absent. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "otlp/json/tree.h"
#include "receivers/pyroscope/pyroscope.h"

#define TYPES_MAX 64
#define DEPTH_MAX 16
#define NODES_MAX 4096
#define NAME_MAX_LEN 32
#define TEXT_MAX 1024

struct reader {
    struct br_json_tree tree;
    struct br_arena *arena;
    struct br_err *err;
};

static int sample_types_read_text(struct reader *reader, const struct br_json_node *node,
                                  const char **ret)
{
    if (node->type == BR_JSON_NULL)
        return 0;
    if (node->type != BR_JSON_STRING)
        return br_err_set(reader->err, BR_EINVAL, "sample_type_config: a string is expected");
    if (node->len > TEXT_MAX)
        return br_err_set(reader->err, BR_EINVAL,
                          "sample_type_config: a string has more than %d bytes", TEXT_MAX);
    char *out = br_arena_alloc(reader->arena, (size_t)node->len + 1);
    if (!out)
        return br_err_set(reader->err, BR_ENOMEM, "out of memory");
    size_t n = br_json_unescape(&reader->tree, node, out);
    out[n] = '\0';
    if (memchr(out, '\0', n))
        return br_err_set(reader->err, BR_EINVAL,
                          "sample_type_config: a string contains a NUL byte");
    *ret = out;
    return 0;
}

static int sample_types_read_bool(struct reader *reader, const struct br_json_node *node, bool *ret)
{
    if (node->type != BR_JSON_TRUE && node->type != BR_JSON_FALSE && node->type != BR_JSON_NULL)
        return br_err_set(reader->err, BR_EINVAL, "sample_type_config: true or false is expected");
    *ret = node->type == BR_JSON_TRUE;
    return 0;
}

static int sample_types_read_setting(struct reader *reader, const struct br_json_node *key,
                                     const struct br_json_node *node, struct br_sample_type *ret)
{
    const struct {
        const char *name;
        const char **text;
        bool *flag;
    } settings[] = {
        {"units", &ret->units, NULL},
        {"display-name", &ret->display_name, NULL},
        {"aggregation", &ret->aggregation, NULL},
        {"cumulative", NULL, &ret->cumulative},
        {"sampled", NULL, &ret->sampled},
    };
    char name[NAME_MAX_LEN];
    if (key->len >= sizeof name)
        return 0;
    size_t n = br_json_unescape(&reader->tree, key, name);
    name[n] = '\0';
    for (size_t i = 0; i < BR_COUNT(settings); i++) {
        if (strcasecmp(settings[i].name, name) != 0)
            continue;
        return settings[i].text ? sample_types_read_text(reader, node, settings[i].text)
                                : sample_types_read_bool(reader, node, settings[i].flag);
    }
    return 0;
}

static int sample_types_read_one(struct reader *reader, const struct br_json_node *key,
                                 const struct br_json_node *node, struct br_sample_type *ret)
{
    const struct br_json_node *nodes = reader->tree.nodes;
    int rc = sample_types_read_text(reader, key, &ret->type);
    if (rc || node->type == BR_JSON_NULL)
        return rc;
    if (node->type != BR_JSON_OBJECT)
        return br_err_set(reader->err, BR_EINVAL, "sample_type_config: an object is expected");
    for (uint32_t at = node->at; at && !rc; at = nodes[nodes[at].prev].prev)
        rc = sample_types_read_setting(reader, &nodes[nodes[at].prev], &nodes[at], ret);
    return rc;
}

static int sample_types_read_all(struct reader *reader, struct br_sample_type **ret, size_t *ret_n)
{
    const struct br_json_node *nodes = reader->tree.nodes;
    size_t n = nodes[0].len, i = n;
    if (nodes[0].type == BR_JSON_NULL) {
        *ret_n = 0;
        return 0;
    }
    if (nodes[0].type != BR_JSON_OBJECT || n > TYPES_MAX)
        return br_err_set(reader->err, BR_EINVAL,
                          "sample_type_config must be an object with at most %d types", TYPES_MAX);
    struct br_sample_type *types = br_arena_calloc(reader->arena, n + 1, sizeof *types);
    int rc = types ? 0 : br_err_set(reader->err, BR_ENOMEM, "out of memory");
    for (uint32_t at = nodes[0].at; at && !rc; at = nodes[nodes[at].prev].prev)
        rc = sample_types_read_one(reader, &nodes[nodes[at].prev], &nodes[at], &types[--i]);
    if (rc)
        return rc;
    *ret = types;
    *ret_n = n;
    return 0;
}

int pyroscope_sample_types(const char *text, size_t len, struct br_arena *arena,
                           struct br_sample_type **ret, size_t *ret_n, struct br_err *err)
{
    struct reader reader = {.arena = arena, .err = err};
    int rc = br_json_parse(&reader.tree, text, len, DEPTH_MAX, NODES_MAX, err);
    if (rc) {
        br_err_prefix(err, "sample_type_config: ");
        return rc == BR_ENOMEM ? rc : BR_EINVAL;
    }
    rc = sample_types_read_all(&reader, ret, ret_n);
    br_json_tree_release(&reader.tree);
    return rc;
}
