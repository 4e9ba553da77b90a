/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/control/control.h"
#include "otlp/json/tree.h"

#define DEPTH_MAX 3
#define SERVICE_MAX 255 /* bytes, as the join compares */
#define TYPES_MAX 16
#define TYPE_MAX 64
#define NUMBER_MAX 40
#define ARENA_MAX (4 * CONTROL_BODY_MAX)
#define NS_PER_MS 1000000u
#define SHORTEST_NS 1000000000u

struct reading {
    struct br_json_tree tree;
    struct control_override *rule;
    uint64_t max_duration_ns;
    struct br_err *err;
};

/* A string without control characters, of 1 to `max` bytes, in the rule's arena. */
static int read_text(struct reading *x, const struct br_json_node *v, size_t max, const char **ret)
{
    if (v->type != BR_JSON_STRING)
        return br_err_set(x->err, BR_EINVAL, "must be a string");
    char *text = br_arena_alloc(&x->rule->arena, (size_t)v->len + 1);
    if (!text)
        return br_err_set(x->err, BR_ENOMEM, "out of memory");
    size_t len = br_json_unescape(&x->tree, v, text);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return br_err_set(x->err, BR_EINVAL, "must not have control characters");
    if (len == 0 || len > max)
        return br_err_set(x->err, BR_EINVAL, "must have 1 to %zu bytes, has %zu", max, len);
    *ret = text;
    return 0;
}

static int read_duration(struct reading *x, const struct br_json_node *v, const char *example,
                         uint64_t *ret_ns)
{
    const char *text;
    int rc = v->type == BR_JSON_STRING ? read_text(x, v, NUMBER_MAX, &text) : BR_EINVAL;
    if (rc == BR_ENOMEM)
        return rc;
    if (rc || !br_duration_parse(text, ret_ns))
        return br_err_set(x->err, BR_EINVAL, "must be a duration in a string, such as \"%s\"",
                          example);
    return 0;
}

static int read_service(struct reading *x, const struct br_json_node *v)
{
    return read_text(x, v, SERVICE_MAX, &x->rule->rule.service);
}

static int read_target(struct reading *x, const struct br_json_node *v)
{
    return read_text(x, v, BR_OVERRIDE_TEXT_MAX, &x->rule->rule.target);
}

static int read_types(struct reading *x, const struct br_json_node *v)
{
    struct br_override *rule = &x->rule->rule;
    if (v->type != BR_JSON_ARRAY || v->len == 0 || v->len > TYPES_MAX)
        return br_err_set(x->err, BR_EINVAL, "must be a list of 1 to %d strings", TYPES_MAX);
    const char **types = br_arena_calloc(&x->rule->arena, v->len, sizeof *types);
    if (!types)
        return br_err_set(x->err, BR_ENOMEM, "out of memory");
    size_t n = v->len;
    for (uint32_t at = v->at; at; at = x->tree.nodes[at].prev) {
        int rc = read_text(x, &x->tree.nodes[at], TYPE_MAX, &types[--n]);
        if (rc)
            return rc;
    }
    rule->types = types;
    rule->n_types = v->len;
    return 0;
}

static int read_rule_duration(struct reading *x, const struct br_json_node *v)
{
    uint64_t ns;
    int rc = read_duration(x, v, "5m", &ns);
    if (!rc && (ns < SHORTEST_NS || ns > x->max_duration_ns))
        rc = br_err_set(x->err, BR_EINVAL, "must be from 1s to %llus, which is max_duration",
                        (unsigned long long)(x->max_duration_ns / 1000000000));
    if (!rc)
        x->rule->duration_ms = ns / NS_PER_MS;
    return rc;
}

static int read_interval(struct reading *x, const struct br_json_node *v)
{
    uint64_t ns;
    int rc = read_duration(x, v, "5s", &ns);
    if (!rc && (ns < SHORTEST_NS || ns > x->max_duration_ns))
        rc = br_err_set(x->err, BR_EINVAL, "must be from 1s to %llus",
                        (unsigned long long)(x->max_duration_ns / 1000000000));
    if (!rc)
        x->rule->rule.interval_ms = ns / NS_PER_MS;
    return rc;
}

static int read_percentage(struct reading *x, const struct br_json_node *v)
{
    char text[NUMBER_MAX + 1];
    double value = 0;
    if (v->type == BR_JSON_NUMBER && v->len <= NUMBER_MAX) {
        memcpy(text, x->tree.text + v->at, v->len);
        text[v->len] = '\0';
        value = strtod(text, NULL);
    }
    if (!(value > 0 && value <= 100))
        return br_err_set(x->err, BR_EINVAL, "must be a number over 0 and up to 100");
    x->rule->rule.keep = true;
    x->rule->rule.sampling_percentage = value;
    return 0;
}

static int read_threshold(struct reading *x, const struct br_json_node *v)
{
    uint64_t ns;
    int rc = read_duration(x, v, "500ms", &ns);
    if (!rc && ns == 0)
        rc = br_err_set(x->err, BR_EINVAL,
                        "must be more than nothing; for all spans say sampling_percentage 100");
    if (rc)
        return rc;
    x->rule->rule.keep = true;
    x->rule->rule.slow_threshold_ns = ns;
    return 0;
}

/* --- The object ------------------------------------------------------------------------------- */

static const struct field {
    const char *name;
    int (*read)(struct reading *x, const struct br_json_node *v);
} fields[] = {
    {"service", read_service},
    {"target", read_target},
    {"profile_types", read_types},
    {"interval", read_interval},
    {"duration", read_rule_duration},
    {"sampling_percentage", read_percentage},
    {"slow_threshold", read_threshold},
};

static int unknown(struct reading *x, const struct br_json_node *key)
{
    const char *names[BR_COUNT(fields)], *near = NULL;
    char name[TYPE_MAX + 1] = "";
    for (size_t i = 0; i < BR_COUNT(fields); i++)
        names[i] = fields[i].name;
    if (key->len <= TYPE_MAX) {
        name[br_json_unescape(&x->tree, key, name)] = '\0';
        near = br_str_nearest(name, names, BR_COUNT(fields));
    }
    return br_err_set(x->err, BR_EINVAL, "there is no field of the name \"%s\"%s%s%s", name,
                      near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int read_field(struct reading *x, const struct br_json_node *key,
                      const struct br_json_node *value, unsigned *seen)
{
    for (size_t i = 0; i < BR_COUNT(fields); i++) {
        if (!br_json_string_is(&x->tree, key, fields[i].name))
            continue;
        int rc = *seen & 1u << i ? br_err_set(x->err, BR_EINVAL, "is there more than once")
                                 : fields[i].read(x, value);
        *seen |= 1u << i;
        if (rc)
            (void)snprintf(x->err->path, sizeof x->err->path, "%s", fields[i].name);
        return rc;
    }
    return unknown(x, key);
}

static int missing(struct reading *x, const char *field, const char *why)
{
    (void)snprintf(x->err->path, sizeof x->err->path, "%s", field);
    return br_err_set(x->err, BR_EINVAL, "%s", why);
}

static int read_object(struct reading *x)
{
    const struct br_json_node *nodes = x->tree.nodes;
    unsigned seen = 0;
    if (nodes[0].type != BR_JSON_OBJECT)
        return br_err_set(x->err, BR_EINVAL, "the body must be a JSON object");
    for (uint32_t value = nodes[0].at, key; value; value = nodes[key].prev) {
        key = nodes[value].prev;
        int rc = read_field(x, &nodes[key], &nodes[value], &seen);
        if (rc)
            return rc;
    }
    if (!x->rule->rule.service)
        return missing(x, "service", "is missing: the service.name that the rule is for");
    if (!x->rule->duration_ms)
        return missing(x, "duration", "is missing: every rule ends, such as after \"5m\"");
    if (x->rule->rule.sampling_percentage > 0 && x->rule->rule.slow_threshold_ns)
        return missing(x, "slow_threshold", "and sampling_percentage exclude each other");
    return 0;
}

int control_read(const char *text, size_t len, uint64_t max_duration_ns, struct control_override **ret,
                 struct br_err *err)
{
    struct reading x = {.max_duration_ns = max_duration_ns, .err = err};
    int rc = br_json_parse(&x.tree, text, len, DEPTH_MAX, 0, err);
    if (rc) {
        br_err_prefix(err, "the body: ");
        return rc == BR_ENOMEM ? rc : BR_EINVAL;
    }
    x.rule = br_calloc(1, sizeof *x.rule);
    if (x.rule) {
        br_list_init(&x.rule->link);
        br_arena_init(&x.rule->arena, ARENA_MAX);
        rc = read_object(&x);
    } else {
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    }
    br_json_tree_release(&x.tree);
    if (rc)
        control_override_free(x.rule);
    else
        *ret = x.rule;
    return rc;
}
