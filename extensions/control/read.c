/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "extensions/control/control.h"
#include "otlp/json/tree.h"

#define DEPTH_MAX 3
#define SERVICE_MAX 255 /* maximum number of bytes of a service name, as in the join processor */
#define TYPES_MAX 16
#define TYPE_MAX 64
#define NUMBER_MAX 40
#define ARENA_MAX (4 * CONTROL_BODY_MAX)
#define NS_PER_MS 1000000u
#define SHORTEST_NS 1000000000u

struct reading {
    struct br_json_tree tree;
    struct control_override *override;
    uint64_t max_duration_ns;
    struct br_err *err;
};

/* Copies a string of 1 to `max` bytes without control characters into the override's arena. */
static int control_read_text(struct reading *reading, const struct br_json_node *node, size_t max,
                             const char **ret)
{
    if (node->type != BR_JSON_STRING)
        return br_err_set(reading->err, BR_EINVAL, "must be a string");
    char *text = br_arena_alloc(&reading->override->arena, (size_t)node->len + 1);
    if (!text)
        return br_err_set(reading->err, BR_ENOMEM, "out of memory");
    size_t len = br_json_unescape(&reading->tree, node, text);
    text[len] = '\0';
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return br_err_set(reading->err, BR_EINVAL, "must not contain control characters");
    if (len == 0 || len > max)
        return br_err_set(reading->err, BR_EINVAL, "must have 1 to %zu bytes, got %zu", max, len);
    *ret = text;
    return 0;
}

static int control_read_duration(struct reading *reading, const struct br_json_node *node,
                                 const char *example, uint64_t *ret_ns)
{
    const char *text;
    int rc = node->type == BR_JSON_STRING ? control_read_text(reading, node, NUMBER_MAX, &text)
                                          : BR_EINVAL;
    if (rc == BR_ENOMEM)
        return rc;
    if (rc || !br_duration_parse(text, ret_ns))
        return br_err_set(reading->err, BR_EINVAL, "must be a duration in a string, such as \"%s\"",
                          example);
    return 0;
}

static int control_read_service(struct reading *reading, const struct br_json_node *node)
{
    return control_read_text(reading, node, SERVICE_MAX, &reading->override->base.service);
}

static int control_read_target(struct reading *reading, const struct br_json_node *node)
{
    return control_read_text(reading, node, BR_OVERRIDE_TEXT_MAX, &reading->override->base.target);
}

static int control_read_types(struct reading *reading, const struct br_json_node *node)
{
    struct br_override *override = &reading->override->base;
    if (node->type != BR_JSON_ARRAY || node->len == 0 || node->len > TYPES_MAX)
        return br_err_set(reading->err, BR_EINVAL, "must be a list of 1 to %d strings", TYPES_MAX);
    const char **types = br_arena_calloc(&reading->override->arena, node->len, sizeof *types);
    if (!types)
        return br_err_set(reading->err, BR_ENOMEM, "out of memory");
    size_t n = node->len;
    for (uint32_t at = node->at; at; at = reading->tree.nodes[at].prev) {
        int rc = control_read_text(reading, &reading->tree.nodes[at], TYPE_MAX, &types[--n]);
        if (rc)
            return rc;
    }
    override->types = types;
    override->n_types = node->len;
    return 0;
}

static int control_read_override_duration(struct reading *reading, const struct br_json_node *node)
{
    uint64_t ns;
    int rc = control_read_duration(reading, node, "5m", &ns);
    if (!rc && (ns < SHORTEST_NS || ns > reading->max_duration_ns))
        rc = br_err_set(reading->err, BR_EINVAL, "must be from 1s to %llus, which is max_duration",
                        (unsigned long long)(reading->max_duration_ns / 1000000000));
    if (!rc)
        reading->override->duration_ms = ns / NS_PER_MS;
    return rc;
}

static int control_read_interval(struct reading *reading, const struct br_json_node *node)
{
    uint64_t ns;
    int rc = control_read_duration(reading, node, "5s", &ns);
    if (!rc && (ns < SHORTEST_NS || ns > reading->max_duration_ns))
        rc = br_err_set(reading->err, BR_EINVAL, "must be from 1s to %llus",
                        (unsigned long long)(reading->max_duration_ns / 1000000000));
    if (!rc)
        reading->override->base.interval_ms = ns / NS_PER_MS;
    return rc;
}

static int control_read_percentage(struct reading *reading, const struct br_json_node *node)
{
    char text[NUMBER_MAX + 1];
    double value = 0;
    if (node->type == BR_JSON_NUMBER && node->len <= NUMBER_MAX) {
        memcpy(text, reading->tree.text + node->at, node->len);
        text[node->len] = '\0';
        value = strtod(text, NULL);
    }
    if (!(value > 0 && value <= 100))
        return br_err_set(reading->err, BR_EINVAL,
                          "must be a number greater than 0 and at most 100");
    reading->override->base.keep = true;
    reading->override->base.sampling_percentage = value;
    return 0;
}

static int control_read_threshold(struct reading *reading, const struct br_json_node *node)
{
    uint64_t ns;
    int rc = control_read_duration(reading, node, "500ms", &ns);
    if (!rc && ns == 0)
        rc = br_err_set(reading->err, BR_EINVAL,
                        "must be greater than 0; for all spans set sampling_percentage to 100");
    if (rc)
        return rc;
    reading->override->base.keep = true;
    reading->override->base.slow_threshold_ns = ns;
    return 0;
}

/* --- The object ------------------------------------------------------------------------------ */

static const struct field {
    const char *name;
    int (*read)(struct reading *reading, const struct br_json_node *node);
} fields[] = {
    {"service", control_read_service},
    {"target", control_read_target},
    {"profile_types", control_read_types},
    {"interval", control_read_interval},
    {"duration", control_read_override_duration},
    {"sampling_percentage", control_read_percentage},
    {"slow_threshold", control_read_threshold},
};

static int control_read_unknown(struct reading *reading, const struct br_json_node *key)
{
    const char *names[BR_COUNT(fields)], *near = NULL;
    char name[TYPE_MAX + 1] = "";
    for (size_t i = 0; i < BR_COUNT(fields); i++)
        names[i] = fields[i].name;
    if (key->len <= TYPE_MAX) {
        name[br_json_unescape(&reading->tree, key, name)] = '\0';
        near = br_str_nearest(name, names, BR_COUNT(fields));
    }
    return br_err_set(reading->err, BR_EINVAL, "unknown field \"%s\"%s%s%s", name,
                      near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static int control_read_field(struct reading *reading, const struct br_json_node *key,
                              const struct br_json_node *value, unsigned *seen)
{
    for (size_t i = 0; i < BR_COUNT(fields); i++) {
        if (!br_json_string_is(&reading->tree, key, fields[i].name))
            continue;
        int rc = *seen & 1u << i ? br_err_set(reading->err, BR_EINVAL, "is defined more than once")
                                 : fields[i].read(reading, value);
        *seen |= 1u << i;
        if (rc)
            (void)snprintf(reading->err->path, sizeof reading->err->path, "%s", fields[i].name);
        return rc;
    }
    return control_read_unknown(reading, key);
}

static int control_read_missing(struct reading *reading, const char *field, const char *why)
{
    (void)snprintf(reading->err->path, sizeof reading->err->path, "%s", field);
    return br_err_set(reading->err, BR_EINVAL, "%s", why);
}

static int control_read_object(struct reading *reading)
{
    const struct br_json_node *nodes = reading->tree.nodes;
    unsigned seen = 0;
    if (nodes[0].type != BR_JSON_OBJECT)
        return br_err_set(reading->err, BR_EINVAL, "the body must be a JSON object");
    for (uint32_t value = nodes[0].at, key; value; value = nodes[key].prev) {
        key = nodes[value].prev;
        int rc = control_read_field(reading, &nodes[key], &nodes[value], &seen);
        if (rc)
            return rc;
    }
    if (!reading->override->base.service)
        return control_read_missing(reading, "service",
                                    "is missing: the service.name that the override is for");
    if (!reading->override->duration_ms)
        return control_read_missing(reading, "duration",
                                    "is missing: every override ends, such as after \"5m\"");
    if (reading->override->base.sampling_percentage > 0 &&
        reading->override->base.slow_threshold_ns)
        return control_read_missing(reading, "slow_threshold",
                                    "and sampling_percentage exclude each other");
    return 0;
}

int control_read(const char *text, size_t len, uint64_t max_duration_ns,
                 struct control_override **ret, struct br_err *err)
{
    struct reading reading = {.max_duration_ns = max_duration_ns, .err = err};
    int rc = br_json_parse(&reading.tree, text, len, DEPTH_MAX, 0, err);
    if (rc) {
        br_err_prefix(err, "the body: ");
        return rc == BR_ENOMEM ? rc : BR_EINVAL;
    }
    reading.override = br_calloc(1, sizeof *reading.override);
    if (reading.override) {
        br_list_init(&reading.override->link);
        br_arena_init(&reading.override->arena, ARENA_MAX);
        rc = control_read_object(&reading);
    } else {
        rc = br_err_set(err, BR_ENOMEM, "out of memory");
    }
    br_json_tree_release(&reading.tree);
    if (rc)
        control_override_free(reading.override);
    else
        *ret = reading.override;
    return rc;
}
