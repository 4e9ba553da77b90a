/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/text/stacks.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "profile/name.h"

#define SLOTS_MIN 64u
#define RATE_DEFAULT 100.0
#define NS_PER_S 1e9

/* --- The tree --------------------------------------------------------------------------------- */

int br_stacks_init(struct br_stacks *s, struct br_build *b, const struct br_profile_source *source,
                   struct br_err *err)
{
    *s = (struct br_stacks){.build = b, .n_slots = SLOTS_MIN};
    s->text_left = s->path_left = br_profile_text_max(source);
    s->n_max = s->text_left / BR_STACKS_NODE_BYTES < BR_STACKS_NODES_MAX
                   ? (uint32_t)(s->text_left / BR_STACKS_NODE_BYTES)
                   : BR_STACKS_NODES_MAX;
    br_random_bytes(&s->secret, sizeof s->secret);
    s->secret |= 1;
    s->slots = br_calloc(s->n_slots, sizeof *s->slots);
    if (!s->slots || br_grow(&s->nodes, &s->cap, SLOTS_MIN, sizeof *s->nodes, BR_STACKS_NODES_MAX))
        return br_err_set(err, BR_ENOMEM, "no memory for frames");
    s->nodes[s->n++] = (struct br_stack_node){0};
    return 0;
}

void br_stacks_release(struct br_stacks *s)
{
    br_free(s->nodes);
    br_free(s->slots);
    *s = (struct br_stacks){0};
}

/* Multiplying by a secret odd number and taking the upper bits: no input can be made to collide. */
static uint32_t first_slot(const struct br_stacks *s, uint32_t parent, uint32_t key)
{
    uint64_t h = ((uint64_t)parent << 32 | key) * s->secret;
    return (uint32_t)(h >> 32) & (s->n_slots - 1);
}

/* The slot of the node, or the empty one where it belongs. */
static uint32_t *find_slot(const struct br_stacks *s, uint32_t parent, uint32_t key)
{
    for (uint32_t i = first_slot(s, parent, key);; i++) {
        uint32_t *slot = &s->slots[i & (s->n_slots - 1)];
        const struct br_stack_node *node = &s->nodes[*slot];
        if (*slot == 0 || (node->parent == parent && node->key == key))
            return slot;
    }
}

static int grow_slots(struct br_stacks *s)
{
    uint32_t *old = s->slots, *slots = br_calloc(2 * (size_t)s->n_slots, sizeof *slots);
    if (!slots)
        return BR_ENOMEM;
    s->slots = slots;
    s->n_slots *= 2;
    for (uint32_t i = 1; i < s->n; i++)
        *find_slot(s, s->nodes[i].parent, s->nodes[i].key) = i;
    br_free(old);
    return 0;
}

static uint32_t add_node(struct br_stacks *s, uint32_t parent, uint32_t key, uint32_t location)
{
    int rc = br_grow(&s->nodes, &s->cap, (size_t)s->n + 1, sizeof *s->nodes, s->n_max);
    if (rc == 0 && s->n >= s->n_slots / 2)
        rc = grow_slots(s);
    if (rc != 0) {
        s->rc = rc;
        return BR_STACKS_ROOT;
    }
    *find_slot(s, parent, key) = s->n;
    s->nodes[s->n] = (struct br_stack_node){parent, key, location, 0};
    return s->n++;
}

uint32_t br_stacks_child(struct br_stacks *s, uint32_t parent, uint32_t location)
{
    if (s->rc != 0)
        return BR_STACKS_ROOT;
    uint32_t node = *find_slot(s, parent, location);
    return node ? node : add_node(s, parent, location, location);
}

uint32_t br_stacks_frame(struct br_stacks *s, uint32_t parent, const char *name, size_t len)
{
    if (s->rc != 0)
        return BR_STACKS_ROOT;
    if (len > s->text_left) {
        s->rc = BR_ETOOBIG;
        return BR_STACKS_ROOT;
    }
    s->text_left -= len;
    uint32_t string = br_build_string(s->build, name, len);
    uint32_t node = *find_slot(s, parent, string);
    if (node)
        return node;
    struct br_build_line line = {.function = br_build_function(s->build, string, 0, 0, 0)};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    return add_node(s, parent, string, br_build_location(s->build, &location));
}

uint32_t br_stacks_path(struct br_stacks *s, uint32_t parent, const char *text, size_t len)
{
    const char *end = text + len, *semicolon;
    while (text < end && (semicolon = memchr(text, ';', (size_t)(end - text))) != NULL) {
        parent = br_stacks_frame(s, parent, text, (size_t)(semicolon - text));
        text = semicolon + 1;
    }
    return text < end ? br_stacks_frame(s, parent, text, (size_t)(end - text)) : parent;
}

int br_stacks_add(struct br_stacks *s, uint32_t node, int64_t value, struct br_err *err)
{
    int64_t *sum = &s->nodes[node].value;
    if (__builtin_add_overflow(*sum, value, sum))
        return br_err_set(err, BR_EINVAL, "numbers whose sum is too large");
    return 0;
}

/* --- What the numbers are --------------------------------------------------------------------- */

static int64_t period_ns(double rate)
{
    /* A whole number of ns, rounded down, as in Pyroscope; at least one, at most an hour. */
    double period = NS_PER_S / (rate > 0 ? rate : RATE_DEFAULT);
    return period >= 3600 * NS_PER_S ? (int64_t)(3600 * NS_PER_S)
           : period >= 1             ? (int64_t)period
                                     : 1;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

static const char *unit_of(const char *type)
{
    if (ends_with(type, "_space") || ends_with(type, "bytes"))
        return "bytes";
    return ends_with(type, "delay") || ends_with(type, "_duration") ? "nanoseconds" : "count";
}

/* The name that a type would have as the last part of an application's name. */
static const char *pyroscope_name(const char *type)
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

void br_text_type_init(struct br_text_type *t, const struct br_profile_source *s)
{
    const char *type = s->type ? s->type : "cpu", *units = s->units;
    bool time = strcmp(type, "cpu") == 0 || strcmp(type, "wall") == 0;
    bool counts = !units || strcmp(units, "count") == 0 || strcmp(units, "samples") == 0;
    *t = (struct br_text_type){.name = s->pyroscope_name, .type = type, .scale = 1};
    if (!t->name && s->from_pyroscope)
        t->name = pyroscope_name(type);
    t->unit = time && counts ? "nanoseconds" : units ? units : unit_of(type);
    if (time)
        t->period_ns = period_ns(s->sample_rate);
    if (time && counts)
        t->scale = t->period_ns;
}

int br_text_scale(const struct br_text_type *t, int64_t number, int64_t *ret, struct br_err *err)
{
    if (number < 0)
        return br_err_set(err, BR_EINVAL, "a negative number");
    if (__builtin_mul_overflow(number, t->scale, ret))
        return br_err_set(err, BR_EINVAL, "a number too large for its unit");
    return 0;
}

/* --- The profile ------------------------------------------------------------------------------ */

static uint32_t string(struct br_build *b, const char *text)
{
    return br_build_string(b, text, strlen(text));
}

static int open_profile(struct br_build *b, const struct br_profile_source *source,
                        const struct br_text_type *t, struct br_arena *scratch, struct br_err *err)
{
    struct br_addition scope = {0};
    if (t->name &&
        br_add_string(scratch, &scope, 3, BR_SCOPE_PYROSCOPE_NAME, t->name, strlen(t->name)) != 0)
        return br_err_set(err, BR_ENOMEM, "no memory for a profile");
    struct br_build_profile profile = {
        .type = string(b, t->type),
        .unit = string(b, t->unit),
        .time_ns = source->start_ns,
        .duration_ns = source->end_ns > source->start_ns ? source->end_ns - source->start_ns : 0,
        .profile_id = source->profile_id,
    };
    if (t->period_ns > 0) {
        profile.period_type = string(b, "cpu");
        profile.period_unit = string(b, "nanoseconds");
        profile.period = t->period_ns;
    }
    br_build_resource(b, source->resource);
    br_build_scope(b, NULL, NULL, &scope);
    br_build_profile(b, &profile);
    return 0;
}

/* `path` has room for the deepest stack. */
static void emit_sample(struct br_stacks *s, uint32_t node, uint32_t *path)
{
    uint32_t depth = 0;
    for (uint32_t i = node; i != BR_STACKS_ROOT; i = s->nodes[i].parent)
        path[depth++] = s->nodes[i].location;
    br_steps_add(depth);
    if (depth > s->path_left) {
        s->rc = BR_ETOOBIG;
        return;
    }
    s->path_left -= depth;
    struct br_build_sample sample = {.stack = br_build_stack(s->build, path, depth),
                                     .values = &s->nodes[node].value,
                                     .n_values = 1};
    br_build_sample(s->build, &sample);
}

/* The failure of the tree or of the builder, with its sentence. */
static int check(const struct br_stacks *s, struct br_err *err)
{
    int rc = s->rc ? s->rc : br_build_rc(s->build);
    if (rc == BR_ETOOBIG)
        return br_err_set(err, BR_EINVAL, "stacks that are too large for what was sent");
    if (rc == BR_EFULL)
        return br_err_set(err, rc, s->rc ? "more than %u frames" : "too large when converted",
                          s->n_max);
    return rc ? br_err_set(err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}

int br_stacks_emit(struct br_stacks *s, const struct br_profile_source *source,
                   const struct br_text_type *t, struct br_arena *scratch, struct br_err *err)
{
    uint32_t first = 0;
    int rc = check(s, err);
    while (first < s->n && s->nodes[first].value == 0)
        first++;
    if (rc != 0 || first == s->n)
        return rc;
    uint32_t *path = br_malloc((size_t)s->n * sizeof *path);
    if (!path)
        return br_err_set(err, BR_ENOMEM, "no memory for a stack");
    rc = open_profile(s->build, source, t, scratch, err);
    for (uint32_t i = first; rc == 0 && i < s->n; i++) {
        if (s->nodes[i].value == 0)
            continue;
        emit_sample(s, i, path);
        rc = check(s, err);
    }
    br_free(path);
    return rc;
}
