/* SPDX-License-Identifier: Apache-2.0 */
/*
 * speedscope's JSON (file-format-schema.json), as Pyroscope's pkg/og/convert/speedscope files it:
 * profiles of the same name, type, unit and start are one; of several, the unit tells the type;
 * each has its name as label `profile_name`. What it counts wrongly is right here: seconds with a
 * fraction (py-spy's), nanoseconds (0 there), time before a frame opens (100 times too little
 * there), and a sampling rate other than 100 Hz, which times do not depend on.
 */
#include <math.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "otlp/json_number.h"
#include "otlp/json_tree.h"
#include "profile/stacks.h"
#include "wire/protobuf.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"
#define DEPTH_MAX 64
#define NODES_MAX (1u << 23) /* 16 bytes each */
#define PROFILES_MAX 4096
#define VALUE_MAX 9.2e18

/* In the order of `units`. */
enum unit { NONE, NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, BYTES, N_UNITS };
static const struct {
    const char *name;
    double ns; /* 0: no time */
} units[N_UNITS] = {{"none", 0},           {"nanoseconds", 1}, {"microseconds", 1e3},
                    {"milliseconds", 1e6}, {"seconds", 1e9},   {"bytes", 0}};

struct profile {
    const struct br_json_node *name, *list, *weights; /* list: events or samples; may be NULL */
    bool evented;
    enum unit unit;
    double start;
    uint64_t name_hash;
    bool done;
};

struct reader {
    struct br_json_tree tree;
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_err *err;
    uint8_t secret[16];
    struct profile *profiles;
    uint32_t n_profiles, cap_profiles;
    uint32_t *frames; /* locations */
    uint32_t n_frames, cap_frames;
    uint32_t *list; /* children of a container, first to last */
    uint32_t cap_list;
    char *text; /* a string without its escapes */
    uint32_t cap_text;
    /* Of the profile that is being read: */
    struct br_stacks stacks;
    struct br_text_type type;
    double scale;   /* of the file's numbers */
    uint32_t *open; /* nodes of the frames that are open, and which frames these are */
    uint32_t *open_frames;
    uint32_t n_open, cap_open, cap_open_frames;
};

/* --- The JSON --------------------------------------------------------------------------------- */

static int no_memory(struct reader *r)
{
    return br_err_set(r->err, BR_ENOMEM, "no memory for a speedscope file");
}

static int fail(struct reader *r, const char *what)
{
    return br_err_set(r->err, BR_EINVAL, "not a speedscope file: %s", what);
}

/* The member of an object, the last one where there are several; NULL when there is none, or
 * `object` is none. */
static const struct br_json_node *member(const struct reader *r, const struct br_json_node *object,
                                         const char *name)
{
    const struct br_json_node *nodes = r->tree.nodes;
    if (!object || object->type != BR_JSON_OBJECT)
        return NULL;
    for (uint32_t value = object->at; value != 0; value = nodes[nodes[value].prev].prev)
        if (br_json_string_is(&r->tree, &nodes[nodes[value].prev], name))
            return &nodes[value];
    return NULL;
}

static const struct br_json_node *typed(const struct br_json_node *node, enum br_json_type type)
{
    return node && node->type == type ? node : NULL;
}

/* Writes the elements into `*list`, grown to hold them, first to last. */
static int elements(struct reader *r, const struct br_json_node *array, uint32_t **list,
                    uint32_t *cap)
{
    int rc = br_grow(list, cap, array->len, sizeof **list, UINT32_MAX);
    if (rc != 0)
        return no_memory(r);
    uint32_t i = array->len;
    for (uint32_t at = array->at; at != 0; at = r->tree.nodes[at].prev)
        (*list)[--i] = at;
    return 0;
}

static bool number(const struct reader *r, const struct br_json_node *node, double *ret)
{
    return node && node->type == BR_JSON_NUMBER && br_number_double(r->tree.text + node->at, ret);
}

/* The text of a string, terminated nowhere; "" for what is none. NULL without memory. */
static const char *string(struct reader *r, const struct br_json_node *node, size_t *ret_len)
{
    *ret_len = 0;
    if (!typed(node, BR_JSON_STRING))
        return "";
    *ret_len = node->len;
    if (!node->escaped)
        return r->tree.text + node->at;
    if (br_grow(&r->text, &r->cap_text, node->len, 1, UINT32_MAX) != 0)
        return NULL;
    *ret_len = br_json_unescape(&r->tree, node, r->text);
    return r->text;
}

/* --- Frames ----------------------------------------------------------------------------------- */

static int64_t whole(const struct reader *r, const struct br_json_node *node)
{
    double v;
    return number(r, node, &v) && v > 0 && v < 1e9 ? (int64_t)v : 0;
}

static int add_frame(struct reader *r, const struct br_json_node *frame, uint32_t *ret)
{
    size_t len;
    const char *text = string(r, member(r, frame, "name"), &len);
    if (!text)
        return no_memory(r);
    uint32_t name = br_build_string(r->build, text, len);
    text = string(r, member(r, frame, "file"), &len);
    if (!text)
        return no_memory(r);
    uint32_t file = br_build_string(r->build, text, len);
    struct br_build_line line = {.function = br_build_function(r->build, name, 0, file, 0),
                                 .line = whole(r, member(r, frame, "line")),
                                 .column = whole(r, member(r, frame, "col"))};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    *ret = br_build_location(r->build, &location);
    return 0;
}

static int read_frames(struct reader *r)
{
    const struct br_json_node *shared = member(r, r->tree.nodes, "shared");
    const struct br_json_node *array = typed(member(r, shared, "frames"), BR_JSON_ARRAY);
    if (!array)
        return 0; /* good for profiles without samples */
    int rc = elements(r, array, &r->frames, &r->cap_frames);
    if (rc == 0)
        r->n_frames = array->len;
    for (uint32_t i = 0; rc == 0 && i < r->n_frames; i++)
        rc = add_frame(r, &r->tree.nodes[r->frames[i]], &r->frames[i]);
    return rc;
}

static bool frame_index(const struct reader *r, const struct br_json_node *node, uint32_t *ret)
{
    double v;
    if (!number(r, node, &v) || v < 0 || v >= r->n_frames || v != floor(v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static int add_value(struct reader *r, uint32_t node, double v)
{
    v = round(v * r->scale);
    if (v < 0)
        return fail(r, "a negative weight");
    if (v > VALUE_MAX)
        return fail(r, "a weight too large for its unit");
    return v > 0 ? br_stacks_add(&r->stacks, node, (int64_t)v, r->err) : 0;
}

/* A sample's elements lie backwards, and a stack begins with the first: so they are listed. */
static int read_sample(struct reader *r, const struct br_json_node *sample, double weight)
{
    uint32_t frame, node = BR_STACKS_ROOT;
    if (sample->type != BR_JSON_ARRAY)
        return fail(r, "a sample that is no array");
    int rc = elements(r, sample, &r->open, &r->cap_open);
    for (uint32_t i = 0; rc == 0 && i < sample->len; i++) {
        if (!frame_index(r, &r->tree.nodes[r->open[i]], &frame))
            return fail(r, "a sample of a frame that there is not");
        node = br_stacks_child(&r->stacks, node, r->frames[frame]);
    }
    return rc ? rc : add_value(r, node, weight);
}

static int read_sampled(struct reader *r, const struct profile *p)
{
    double weight;
    uint32_t n = p->list ? p->list->len : 0;
    if (n != (p->weights ? p->weights->len : 0))
        return fail(r, "samples and weights of unequal number");
    if (n == 0)
        return 0;
    const struct br_json_node *nodes = r->tree.nodes;
    uint32_t sample = p->list->at, w = p->weights->at;
    for (; sample != 0 && br_stacks_ok(&r->stacks);
         sample = nodes[sample].prev, w = nodes[w].prev) {
        if (!number(r, &nodes[w], &weight))
            return fail(r, "a weight that is no number");
        int rc = read_sample(r, &nodes[sample], weight);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static int open_frame(struct reader *r, uint32_t frame)
{
    size_t need = (size_t)r->n_open + 1;
    if (br_grow(&r->open, &r->cap_open, need, sizeof *r->open, UINT32_MAX) != 0 ||
        br_grow(&r->open_frames, &r->cap_open_frames, need, sizeof *r->open_frames, UINT32_MAX) !=
            0)
        return no_memory(r);
    uint32_t parent = r->n_open ? r->open[r->n_open - 1] : BR_STACKS_ROOT;
    r->open[r->n_open] = br_stacks_child(&r->stacks, parent, r->frames[frame]);
    r->open_frames[r->n_open++] = frame;
    return 0;
}

static int read_event(struct reader *r, const struct br_json_node *event, double *last)
{
    double at;
    uint32_t frame;
    size_t len;
    const char *type = string(r, member(r, event, "type"), &len);
    if (!type)
        return no_memory(r);
    if (len != 1 || (*type != 'O' && *type != 'C'))
        return fail(r, "an event that neither opens nor closes a frame");
    bool closes = *type == 'C';
    if (!number(r, member(r, event, "at"), &at) || at < *last)
        return fail(r, "events out of order");
    if (!frame_index(r, member(r, event, "frame"), &frame))
        return fail(r, "an event of a frame that there is not");
    if (closes && (r->n_open == 0 || r->open_frames[r->n_open - 1] != frame))
        return fail(r, "a frame that is closed and not the last one opened");
    int rc = r->n_open ? add_value(r, r->open[r->n_open - 1], at - *last) : 0;
    *last = at;
    if (rc != 0)
        return rc;
    if (!closes)
        return open_frame(r, frame);
    r->n_open--;
    return 0;
}

static int read_evented(struct reader *r, const struct profile *p)
{
    double last = p->start;
    int rc = p->list ? elements(r, p->list, &r->list, &r->cap_list) : 0;
    r->n_open = 0;
    for (uint32_t i = 0; rc == 0 && p->list && i < p->list->len && br_stacks_ok(&r->stacks); i++)
        rc = read_event(r, &r->tree.nodes[r->list[i]], &last);
    return rc;
}

/* --- Profiles --------------------------------------------------------------------------------- */

static int note_profile(struct reader *r, const struct br_json_node *node)
{
    const struct br_json_node *type = typed(member(r, node, "type"), BR_JSON_STRING);
    const struct br_json_node *unit = typed(member(r, node, "unit"), BR_JSON_STRING);
    struct profile p = {.name = typed(member(r, node, "name"), BR_JSON_STRING), .unit = N_UNITS};
    (void)number(r, member(r, node, "startValue"), &p.start);
    if (p.name)
        p.name_hash = br_siphash(r->secret, r->tree.text + p.name->at, p.name->len);
    for (unsigned u = 0; unit && u < N_UNITS; u++)
        if (br_json_string_is(&r->tree, unit, units[u].name))
            p.unit = (enum unit)u;
    if (p.unit == N_UNITS)
        return fail(r, "an unknown unit");
    p.evented = type && br_json_string_is(&r->tree, type, "evented");
    if (!p.evented && !(type && br_json_string_is(&r->tree, type, "sampled")))
        return fail(r, "a profile neither evented nor sampled");
    p.list = typed(member(r, node, p.evented ? "events" : "samples"), BR_JSON_ARRAY);
    p.weights = typed(member(r, node, "weights"), BR_JSON_ARRAY);
    if (br_grow(&r->profiles, &r->cap_profiles, (size_t)r->n_profiles + 1, sizeof p, PROFILES_MAX))
        return r->n_profiles == PROFILES_MAX ? fail(r, "more than 4096 profiles") : no_memory(r);
    r->profiles[r->n_profiles++] = p;
    return 0;
}

static bool same(const struct profile *a, const struct profile *b)
{
    return a->evented == b->evented && a->unit == b->unit && a->name_hash == b->name_hash &&
           !(a->start < b->start) && !(a->start > b->start);
}

static bool all_same(const struct reader *r)
{
    for (uint32_t i = 1; i < r->n_profiles; i++)
        if (!same(&r->profiles[0], &r->profiles[i]))
            return false;
    return true;
}

static void choose_type(struct reader *r, enum unit unit, bool several)
{
    const struct br_profile_source *s = r->source;
    struct br_text_type *t = &r->type;
    struct br_profile_source by_unit = *s;
    br_text_type_init(t, s);
    bool time = t->period_ns > 0;
    if (several && s->from_pyroscope && units[unit].ns > 0) {
        by_unit.type = "wall";
        by_unit.units = by_unit.pyroscope_name = NULL;
    } else if (unit == BYTES && (time || (several && s->from_pyroscope))) {
        by_unit.type = "samples"; /* bytes are no time, whatever the name says */
        by_unit.units = "bytes";
        by_unit.pyroscope_name = s->pyroscope_name || s->from_pyroscope ? "memory" : NULL;
    }
    br_text_type_init(t, &by_unit);
    r->scale = units[unit].ns > 0 ? units[unit].ns : (double)t->scale;
    if (units[unit].ns > 0)
        t->unit = "nanoseconds";
}

static bool is_label(const struct br_field *attribute, const char *key)
{
    struct br_field f;
    const uint8_t *p = attribute->data, *end = p + attribute->value;
    while (p && p < end) {
        p = br_field_next(p, end, &f);
        if (p && f.number == 1 && f.wire == BR_WIRE_LEN)
            return f.value == strlen(key) && memcmp(f.data, key, f.value) == 0;
    }
    return false;
}

/* The attributes but those of this key. */
static int without(struct reader *r, const struct br_addition *from, const char *key,
                   struct br_addition *ret)
{
    uint8_t *out = br_arena_alloc(r->scratch, from->len);
    const uint8_t *p = from->data, *end = from->len ? p + from->len : p;
    if (!out)
        return no_memory(r);
    *ret = (struct br_addition){out, 0};
    while (p < end) {
        struct br_field f;
        const uint8_t *next = br_field_next(p, end, &f);
        if (!next)
            return br_err_set(r->err, BR_EINVAL, "labels that are not encoded as attributes");
        if (f.wire != BR_WIRE_LEN || !is_label(&f, key))
            out = br_put_bytes(out, p, (size_t)(next - p));
        p = next;
    }
    ret->len = (size_t)(out - ret->data);
    return 0;
}

/* The resource with the profile's name as a label, instead of one that is there. */
static int name_resource(struct reader *r, const struct profile *p, struct br_addition *ret)
{
    static const char label[] = "profile_name";
    const struct br_addition *from = r->source->resource;
    size_t len;
    const char *name = string(r, p->name, &len);
    if (!name)
        return no_memory(r);
    *ret = (struct br_addition){0};
    int rc = from ? without(r, from, label, ret) : 0;
    if (rc == 0 && len > 0 && br_add_string(r->scratch, ret, 1, label, name, len) != 0)
        rc = no_memory(r);
    return rc;
}

/* Reads a profile and those that are the same. */
static int read_group(struct reader *r, uint32_t first, bool several)
{
    struct br_addition resource;
    struct br_profile_source source = *r->source;
    int rc = br_stacks_init(&r->stacks, r->build, r->source, r->err);
    choose_type(r, r->profiles[first].unit, several);
    for (uint32_t i = first; rc == 0 && i < r->n_profiles; i++) {
        struct profile *p = &r->profiles[i];
        if (p->done || (i > first && !same(&r->profiles[first], p)))
            continue;
        p->done = true;
        rc = p->evented ? read_evented(r, p) : read_sampled(r, p);
    }
    if (rc == 0)
        rc = name_resource(r, &r->profiles[first], &resource);
    source.resource = &resource;
    if (rc == 0)
        rc = br_stacks_emit(&r->stacks, &source, &r->type, r->scratch, r->err);
    br_stacks_release(&r->stacks);
    return rc;
}

static int read_file(struct reader *r)
{
    const struct br_json_node *schema = typed(member(r, r->tree.nodes, "$schema"), BR_JSON_STRING);
    const struct br_json_node *profiles =
        typed(member(r, r->tree.nodes, "profiles"), BR_JSON_ARRAY);
    if (!schema || !br_json_string_is(&r->tree, schema, SCHEMA))
        return fail(r, "unknown schema");
    int rc = read_frames(r);
    if (rc == 0 && profiles)
        rc = elements(r, profiles, &r->list, &r->cap_list);
    for (uint32_t i = 0; rc == 0 && profiles && i < profiles->len; i++)
        rc = note_profile(r, &r->tree.nodes[r->list[i]]);
    bool several = !all_same(r);
    for (uint32_t i = 0; rc == 0 && i < r->n_profiles; i++)
        if (!r->profiles[i].done)
            rc = read_group(r, i, several);
    return rc;
}

int br_speedscope_read(struct br_build *b, const struct br_profile_source *s,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.source = s, .build = b, .scratch = scratch, .err = err};
    int rc = br_json_parse(&r.tree, s->len ? (const char *)s->data : "", s->len, DEPTH_MAX,
                           NODES_MAX, err);
    if (rc != 0)
        return rc == BR_ETOOBIG ? BR_EINVAL : rc; /* brackets too deep for the schema */
    br_random_bytes(r.secret, sizeof r.secret);
    rc = read_file(&r);
    br_json_tree_release(&r.tree);
    br_free(r.profiles);
    br_free(r.frames);
    br_free(r.list);
    br_free(r.text);
    br_free(r.open);
    br_free(r.open_frames);
    return rc;
}
