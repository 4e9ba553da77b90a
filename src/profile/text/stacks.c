/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/text/stacks.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/steps.h"
#include "profile/name.h"

#define NODES_MIN 64u
#define RATE_DEFAULT 100.0
#define NS_PER_S 1e9

/* --- Tree ------------------------------------------------------------------------------------- */

static int stacks_root(struct br_stacks *stacks, struct br_err *err)
{
    if (br_grow(&stacks->nodes, &stacks->cap, NODES_MIN, sizeof *stacks->nodes,
                BR_STACKS_NODES_MAX))
        return br_err_set(err, BR_ENOMEM, "no memory for frames");
    stacks->nodes[stacks->count++] = (struct br_stack_node){0};
    return 0;
}

int br_stacks_init(struct br_stacks *stacks, struct br_build *build,
                   const struct br_profile_source *source, struct br_err *err)
{
    *stacks = (struct br_stacks){.build = build};
    stacks->text_left = stacks->path_left = br_profile_text_max(source);
    stacks->n_max = stacks->text_left / BR_STACKS_NODE_BYTES < BR_STACKS_NODES_MAX
                        ? (uint32_t)(stacks->text_left / BR_STACKS_NODE_BYTES)
                        : BR_STACKS_NODES_MAX;
    br_index_init(&stacks->index, stacks->n_max, BR_HOLDER_REQUESTS);
    return stacks_root(stacks, err);
}

void br_stacks_release(struct br_stacks *stacks)
{
    br_free(stacks->nodes);
    br_index_release(&stacks->index);
    *stacks = (struct br_stacks){0};
}

static uint64_t stacks_node_hash(const struct br_stacks *stacks, uint32_t parent, uint32_t key)
{
    return br_index_hash(&stacks->index, (const uint32_t[]){parent, key}, 2 * sizeof key);
}

static uint64_t stacks_hash_node(const void *entries, uint32_t place)
{
    const struct br_stacks *stacks = entries;
    const struct br_stack_node *node = &stacks->nodes[place + 1];
    return stacks_node_hash(stacks, node->parent, node->key);
}

static bool stacks_is_node(const void *entries, uint32_t place, const void *key)
{
    const struct br_stack_node *node = (const struct br_stack_node *)entries + place;
    const struct br_stack_node *wanted = key;
    return node->parent == wanted->parent && node->key == wanted->key;
}

/* Returns the child of `parent` with this key, or the root if that child does not exist. */
static uint32_t stacks_find(const struct br_stacks *stacks, uint32_t parent, uint32_t key)
{
    const struct br_stack_node wanted = {.parent = parent, .key = key};
    uint32_t place = br_index_find(&stacks->index, stacks_node_hash(stacks, parent, key),
                                   stacks_is_node, stacks->nodes + 1, &wanted);
    return place == BR_INDEX_NONE ? BR_STACKS_ROOT : place + 1;
}

static uint32_t stacks_add_node(struct br_stacks *stacks, uint32_t parent, uint32_t key,
                                uint32_t location)
{
    int rc = br_grow(&stacks->nodes, &stacks->cap, (size_t)stacks->count + 1, sizeof *stacks->nodes,
                     stacks->n_max);
    if (rc == 0)
        rc = br_index_add(&stacks->index, stacks_node_hash(stacks, parent, key), stacks->count - 1,
                          stacks_hash_node, stacks);
    if (rc != 0) {
        stacks->rc = rc;
        return BR_STACKS_ROOT;
    }
    stacks->nodes[stacks->count] = (struct br_stack_node){parent, key, location, 0};
    return stacks->count++;
}

uint32_t br_stacks_child(struct br_stacks *stacks, uint32_t parent, uint32_t location)
{
    if (stacks->rc != 0)
        return BR_STACKS_ROOT;
    uint32_t node = stacks_find(stacks, parent, location);
    return node ? node : stacks_add_node(stacks, parent, location, location);
}

uint32_t br_stacks_frame(struct br_stacks *stacks, uint32_t parent, const char *name, size_t len)
{
    if (stacks->rc != 0)
        return BR_STACKS_ROOT;
    if (len > stacks->text_left) {
        stacks->rc = BR_ETOOBIG;
        return BR_STACKS_ROOT;
    }
    stacks->text_left -= len;
    uint32_t string = br_build_string(stacks->build, name, len);
    uint32_t node = stacks_find(stacks, parent, string);
    if (node)
        return node;
    struct br_build_line line = {.function = br_build_function(stacks->build, string, 0, 0, 0)};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    return stacks_add_node(stacks, parent, string, br_build_location(stacks->build, &location));
}

uint32_t br_stacks_path(struct br_stacks *stacks, uint32_t parent, const char *text, size_t len)
{
    const char *end = br_mem_end(text, len), *semicolon;
    while (text < end && (semicolon = memchr(text, ';', (size_t)(end - text))) != NULL) {
        parent = br_stacks_frame(stacks, parent, text, (size_t)(semicolon - text));
        text = semicolon + 1;
    }
    return text < end ? br_stacks_frame(stacks, parent, text, (size_t)(end - text)) : parent;
}

int br_stacks_add(struct br_stacks *stacks, uint32_t node, int64_t value, struct br_err *err)
{
    int64_t *sum = &stacks->nodes[node].value;
    if (__builtin_add_overflow(*sum, value, sum))
        return br_err_set(err, BR_EINVAL, "the sum of the values is too large");
    return 0;
}

/* --- Types and units -------------------------------------------------------------------------- */

static int64_t stacks_period_ns(double rate)
{
    /* The period is rounded down to whole ns, as in Pyroscope. The period is at least 1 ns and
     * at most one hour. */
    double period = NS_PER_S / (rate > 0 ? rate : RATE_DEFAULT);
    if (period >= 3600 * NS_PER_S)
        return (int64_t)(3600 * NS_PER_S);
    return period >= 1 ? (int64_t)period : 1;
}

static const char *stacks_unit_of(const char *type)
{
    if (br_text_ends(type, "_space") || br_text_ends(type, "bytes"))
        return "bytes";
    return br_text_ends(type, "delay") || br_text_ends(type, "_duration") ? "nanoseconds" : "count";
}

/* Returns the `__name__` of an application whose name has this type as its suffix. */
static const char *stacks_pyroscope_name(const char *type)
{
    char app[128] = "a.";
    struct br_app_type found;
    size_t len = strlen(type);
    if (strcmp(type, "contentions") == 0 || strcmp(type, "delay") == 0)
        return "mutex";
    if (len > sizeof app - 2 || strchr(type, '.'))
        return type;
    memcpy(app + 2, type, len);
    return br_app_type_find(app, len + 2, &found, NULL) == 0 ? found.name : type;
}

void br_text_type_init(struct br_text_type *text_type, const struct br_profile_source *source)
{
    const char *type = source->type ? source->type : "cpu", *units = source->units;
    bool time = strcmp(type, "cpu") == 0 || strcmp(type, "wall") == 0;
    bool counts = !units || strcmp(units, "count") == 0 || strcmp(units, "samples") == 0;
    *text_type = (struct br_text_type){.name = source->pyroscope_name, .type = type, .scale = 1};
    if (!text_type->name && source->from_pyroscope)
        text_type->name = stacks_pyroscope_name(type);
    text_type->unit = units ? units : stacks_unit_of(type);
    if (time)
        text_type->period_ns = stacks_period_ns(source->sample_rate);
    if (time && counts) {
        text_type->unit = "nanoseconds";
        text_type->scale = text_type->period_ns;
    }
}

int br_text_scale(const struct br_text_type *type, int64_t number, int64_t *ret, struct br_err *err)
{
    if (number < 0)
        return br_err_set(err, BR_EINVAL, "a negative number");
    if (__builtin_mul_overflow(number, type->scale, ret))
        return br_err_set(err, BR_EINVAL, "a number too large for its unit");
    return 0;
}

/* --- Profile ---------------------------------------------------------------------------------- */

static uint32_t stacks_string(struct br_build *build, const char *text)
{
    return br_build_string(build, text, strlen(text));
}

static int stacks_open_profile(struct br_build *build, const struct br_profile_source *source,
                               const struct br_text_type *type, struct br_arena *scratch,
                               struct br_err *err)
{
    struct br_addition scope = {0};
    if (type->name && br_add_string(scratch, &scope, 3, BR_SCOPE_PYROSCOPE_NAME, type->name,
                                    strlen(type->name)) != 0)
        return br_err_set(err, BR_ENOMEM, "no memory for a profile");
    struct br_build_profile profile = {
        .type = stacks_string(build, type->type),
        .unit = stacks_string(build, type->unit),
        .time_ns = source->start_ns,
        .duration_ns = source->end_ns > source->start_ns ? source->end_ns - source->start_ns : 0,
        .profile_id = source->profile_id,
    };
    if (type->period_ns > 0) {
        profile.period_type = stacks_string(build, "cpu");
        profile.period_unit = stacks_string(build, "nanoseconds");
        profile.period = type->period_ns;
    }
    br_build_resource(build, source->resource);
    br_build_scope(build, NULL, NULL, &scope);
    br_build_profile(build, &profile);
    return 0;
}

/* Writes the sample of a node. `path` has room for the deepest stack. */
static void stacks_emit_sample(struct br_stacks *stacks, uint32_t node, uint32_t *path)
{
    uint32_t depth = 0;
    for (uint32_t i = node; i != BR_STACKS_ROOT; i = stacks->nodes[i].parent)
        path[depth++] = stacks->nodes[i].location;
    br_steps_add(depth);
    if (depth > stacks->path_left) {
        stacks->rc = BR_ETOOBIG;
        return;
    }
    stacks->path_left -= depth;
    struct br_build_sample sample = {.stack = br_build_stack(stacks->build, path, depth),
                                     .values = &stacks->nodes[node].value,
                                     .n_values = 1};
    br_build_sample(stacks->build, &sample);
}

/* Returns the error of the tree or the builder, and sets its message. */
static int stacks_check(const struct br_stacks *stacks, struct br_err *err)
{
    int rc = stacks->rc ? stacks->rc : br_build_rc(stacks->build);
    if (rc == BR_ETOOBIG)
        return br_err_set(err, BR_EINVAL, "stacks are too large for the size of the upload");
    if (rc == BR_EFULL)
        return br_err_set(err, rc, stacks->rc ? "more than %u frames" : "too large when converted",
                          stacks->n_max);
    return rc ? br_err_set(err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}

int br_stacks_emit(struct br_stacks *stacks, const struct br_profile_source *source,
                   const struct br_text_type *type, struct br_arena *scratch, struct br_err *err)
{
    uint32_t first = 0;
    int rc = stacks_check(stacks, err);
    while (first < stacks->count && stacks->nodes[first].value == 0)
        first++;
    if (rc != 0 || first == stacks->count)
        return rc;
    uint32_t *path = br_malloc((size_t)stacks->count * sizeof *path);
    if (!path)
        return br_err_set(err, BR_ENOMEM, "no memory for a stack");
    rc = stacks_open_profile(stacks->build, source, type, scratch, err);
    for (uint32_t i = first; rc == 0 && i < stacks->count; i++) {
        if (stacks->nodes[i].value == 0)
            continue;
        stacks_emit_sample(stacks, i, path);
        rc = stacks_check(stacks, err);
    }
    br_free(path);
    return rc;
}

/* --- Parts ------------------------------------------------------------------------------------ */

static bool stacks_part_due(const struct br_stacks *stacks, const struct br_profile_source *source)
{
    uint32_t n_stacks = stacks->count - stacks->n_kept;
    if (!source->parts || br_build_rc(stacks->build) || stacks->rc)
        return false;
    if (n_stacks >= source->parts->stacks && n_stacks >= stacks->n_kept)
        return true;
    size_t bytes = br_build_made(stacks->build) - stacks->bytes_kept;
    return bytes >= source->parts->bytes && bytes >= stacks->bytes_kept;
}

/* Removes all nodes except the root. The limits of names and stacks are not reset. */
static void stacks_empty(struct br_stacks *stacks)
{
    br_free(stacks->nodes);
    stacks->nodes = NULL;
    stacks->count = stacks->cap = stacks->n_kept = 0;
    stacks->bytes_kept = 0;
    br_index_release(&stacks->index);
}

int br_stacks_divide(struct br_stacks *stacks, struct br_profile_source *source,
                     const struct br_text_type *type, struct br_arena *scratch, bool *ret_divided,
                     struct br_err *err)
{
    *ret_divided = false;
    if (!stacks_part_due(stacks, source))
        return 0;
    int rc = br_stacks_emit(stacks, source, type, scratch, err);
    if (rc)
        return rc;
    stacks_empty(stacks);
    if (br_build_records(stacks->build))
        rc = source->parts->take(source->parts->arg);
    else
        br_build_clear(stacks->build); /* the part is empty, because no sample had a value */
    if (rc)
        return br_err_set(err, rc, "a part cannot be converted: %s", br_strerror(rc));
    source->profile_id = NULL;
    *ret_divided = true;
    return stacks_root(stacks, err);
}

void br_stacks_keep(struct br_stacks *stacks)
{
    stacks->n_kept = stacks->count;
    stacks->bytes_kept = br_build_made(stacks->build);
}
