/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads speedscope's JSON (file-format-schema.json) and converts it like Pyroscope's
 * pkg/og/convert/speedscope: profiles with equal name, type, unit and start are merged. If several
 * profiles remain, the type of each depends on its unit, and its name becomes the label
 * `profile_name`.
 *
 * Values differ from those of Pyroscope where Pyroscope counts incorrectly:
 * - for values in seconds with a fraction, as in files of py-spy
 * - for values in nanoseconds (Pyroscope stores 0)
 * - for the time before a frame opens (Pyroscope stores a hundredth of it)
 * - for rounding: the period of a sampling rate such as 99 Hz is not a whole number of nanoseconds
 */
#include <math.h>

#include "base/bytes.h"
#include "base/map.h"
#include "base/mem.h"
#include "otlp/json/parts.h"
#include "otlp/keyvalue.h"
#include "profile/text/stacks.h"
#include "wire/protobuf.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"
#define DEPTH_MAX 64
#define PROFILES_MAX 4096
#define VALUE_MAX 9.2e18
#define NO_OBJECT UINT32_MAX

/* Indices of `units`. */
enum unit { NONE, NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, BYTES, N_UNITS };
static const struct {
    const char *name;
    double ns; /* nanoseconds per unit; 0: the unit is not a unit of time */
} units[N_UNITS] = {{"none", 0},           {"nanoseconds", 1}, {"microseconds", 1e3},
                    {"milliseconds", 1e6}, {"seconds", 1e9},   {"bytes", 0}};

struct profile {
    /* name of the profile, which may be a JSON value other than a string */
    struct br_json_token name;
    struct br_json_part events, samples, weights;
    bool evented;
    enum unit unit;
    double start;
    /* index + 1 of the next profile that is merged with this profile; 0: this is the last
     * profile */
    uint32_t next;
    bool first; /* this is the first of the profiles that are merged */
};

/* Profiles with equal keys are merged. */
struct group_key {
    uint64_t evented, unit, name_hash;
    double start;
};

/* A frame is read at its first use in each part. A part is a section of the profile that becomes a
 * separate request. */
struct known_frame {
    uint32_t at; /* offset of the frame in the JSON text, or NO_OBJECT */
    uint32_t part, location;
};

struct reader {
    struct br_json_scan scan; /* scan at the start of the JSON text, whose syntax was checked */
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_err *err;
    uint8_t secret[16];
    struct br_json_part shared, frame_list, profile_list;
    bool known; /* the file declares the schema of speedscope */
    struct profile *profiles;
    uint32_t n_profiles, cap_profiles;
    struct br_map *groups; /* maps struct group_key to the index of the last profile + 1 */
    struct known_frame *frames;
    uint32_t n_frames, cap_frames;
    uint32_t part;     /* number of the current part, from 1 */
    size_t frame_left; /* maximum number of bytes of frames that may still be read */
    char *text;        /* buffer for an unescaped string */
    uint32_t cap_text;
    /* maximum total number of frames in the stacks that are added from now on, for all profiles;
     * see br_stacks.path_left */
    size_t path_left;
    /* The fields below are the state of the current group of merged profiles. */
    struct br_profile_source group_source;
    struct br_arena *group_arena;
    struct br_stacks stacks;
    struct br_text_type type;
    double scale;   /* factor by which the values in the file are multiplied */
    double last_at; /* time of the last event */
    uint32_t node;  /* node of the last frame that was read for the current sample */
    uint32_t *open; /* nodes of the open frames; their indices are in open_frames */
    uint32_t *open_frames;
    uint32_t n_open, cap_open, cap_open_frames;
};

/* --- JSON ------------------------------------------------------------------------------------- */

static int speedscope_no_memory(struct reader *reader)
{
    return br_err_set(reader->err, BR_ENOMEM, "no memory for a speedscope file");
}

static int speedscope_fail(struct reader *reader, const char *what)
{
    return br_err_set(reader->err, BR_EINVAL, "not a speedscope file: %s", what);
}

/* Returns the text of a string without a terminating NUL; "" for other types. Returns NULL if
 * there is not enough memory. */
static const char *speedscope_string(struct reader *reader, const struct br_json_token *token,
                                     size_t *ret_len)
{
    *ret_len = 0;
    if (token->type != BR_JSON_STRING)
        return "";
    *ret_len = token->len;
    if (!token->escaped)
        return token->text;
    if (br_grow(&reader->text, &reader->cap_text, token->len, 1, UINT32_MAX) != 0)
        return NULL;
    *ret_len = br_json_plain(token->text, token->len, reader->text);
    return reader->text;
}

/* --- Frames ----------------------------------------------------------------------------------- */

struct frame {
    struct br_json_token name, file, line, column;
};

static void speedscope_on_frame(void *arg, const struct br_json_scan *scan,
                                const struct br_json_token *name, const struct br_json_token *value)
{
    struct frame *frame = arg;
    (void)scan;
    if (br_json_part_is(name, "name"))
        frame->name = *value;
    else if (br_json_part_is(name, "file"))
        frame->file = *value;
    else if (br_json_part_is(name, "line"))
        frame->line = *value;
    else if (br_json_part_is(name, "col"))
        frame->column = *value;
}

static int64_t speedscope_whole(const struct br_json_token *token)
{
    double v;
    return br_json_part_number(token, &v) && v > 0 && v < 1e9 ? (int64_t)v : 0;
}

static const char *speedscope_text(const struct reader *reader)
{
    return (const char *)reader->source->data;
}

static int speedscope_add_frame(void *arg, struct br_json_scan *scan)
{
    struct reader *reader = arg;
    struct br_json_token value;
    int rc = br_json_scan_value(scan, &value);
    if (rc)
        return rc;
    if (br_grow(&reader->frames, &reader->cap_frames, (size_t)reader->n_frames + 1,
                sizeof *reader->frames, UINT32_MAX) != 0)
        return speedscope_no_memory(reader);
    bool object = value.type == BR_JSON_OBJECT;
    reader->frames[reader->n_frames++] = (struct known_frame){
        .at = object ? (uint32_t)(scan->at - speedscope_text(reader)) : NO_OBJECT};
    return br_json_scan_skip(scan, &value);
}

static int speedscope_make_frame(struct reader *reader, const struct frame *from, uint32_t *ret)
{
    size_t len;
    const char *text = speedscope_string(reader, &from->name, &len);
    if (!text)
        return speedscope_no_memory(reader);
    uint32_t name = br_build_string(reader->build, text, len);
    text = speedscope_string(reader, &from->file, &len);
    if (!text)
        return speedscope_no_memory(reader);
    uint32_t file = br_build_string(reader->build, text, len);
    struct br_build_line line = {.function = br_build_function(reader->build, name, 0, file, 0),
                                 .line = speedscope_whole(&from->line),
                                 .column = speedscope_whole(&from->column)};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    *ret = br_build_location(reader->build, &location);
    int rc = br_build_rc(reader->build);
    return rc ? br_err_set(reader->err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}

static int speedscope_read_frame(struct reader *reader, uint32_t at, uint32_t *ret)
{
    struct frame frame = {.name = {.type = BR_JSON_NULL}};
    if (at == NO_OBJECT)
        return speedscope_make_frame(reader, &frame, ret);
    const struct br_json_part part = {speedscope_text(reader) + at};
    struct br_json_scan scan = br_json_part_scan(&reader->scan, part);
    int rc = br_json_members(&scan, speedscope_on_frame, &frame);
    if (rc)
        return rc;
    size_t len = (size_t)(scan.at - part.at);
    if (len > reader->frame_left)
        return br_err_set(reader->err, BR_EINVAL,
                          "frames are too large for the size of the upload");
    reader->frame_left -= len;
    return speedscope_make_frame(reader, &frame, ret);
}

/* Returns in `ret` the location of a frame in the current part. */
static int speedscope_location(struct reader *reader, uint32_t number, uint32_t *ret)
{
    struct known_frame *known = &reader->frames[number];
    if (known->part != reader->part) {
        int rc = speedscope_read_frame(reader, known->at, &known->location);
        if (rc)
            return rc;
        known->part = reader->part;
    }
    *ret = known->location;
    return 0;
}

static bool speedscope_frame_index(const struct reader *reader, const struct br_json_token *token,
                                   uint32_t *ret)
{
    double v;
    if (!br_json_part_number(token, &v) || v < 0 || v >= reader->n_frames || v != floor(v))
        return false;
    *ret = (uint32_t)v;
    return true;
}

/* --- Stacks ----------------------------------------------------------------------------------- */

static int speedscope_add_value(struct reader *reader, uint32_t node, double value)
{
    value = round(value * reader->scale);
    if (value < 0)
        return speedscope_fail(reader, "a negative weight");
    if (value > VALUE_MAX)
        return speedscope_fail(reader, "a weight too large for its unit");
    return value > 0 ? br_stacks_add(&reader->stacks, node, (int64_t)value, reader->err) : 0;
}

static int speedscope_add_to_path(void *arg, struct br_json_scan *scan)
{
    struct reader *reader = arg;
    struct br_json_token value;
    uint32_t frame, location;
    int rc = br_json_scan_value(scan, &value);
    if (rc)
        return rc;
    if (!speedscope_frame_index(reader, &value, &frame))
        return speedscope_fail(reader, "a sample refers to an unknown frame");
    rc = speedscope_location(reader, frame, &location);
    if (rc == 0)
        reader->node = br_stacks_child(&reader->stacks, reader->node, location);
    return rc;
}

/* If the current part is large enough for a separate request, completes the part and continues with
 * an empty tree. Open frames stay open. */
static int speedscope_divide(struct reader *reader)
{
    uint32_t n_open = reader->n_open, parent = BR_STACKS_ROOT, location;
    bool divided;
    int rc = br_stacks_divide(&reader->stacks, &reader->group_source, &reader->type,
                              reader->group_arena, &divided, reader->err);
    if (rc || !divided)
        return rc;
    reader->part++;
    for (uint32_t i = 0; i < n_open && rc == 0; i++) {
        rc = speedscope_location(reader, reader->open_frames[i], &location);
        if (rc == 0)
            parent = reader->open[i] = br_stacks_child(&reader->stacks, parent, location);
    }
    br_stacks_keep(&reader->stacks);
    return rc;
}

/* Reads the next sample in `samples`, which has the weight `weight`. */
static int speedscope_read_sample(struct reader *reader, struct br_json_scan *samples,
                                  const struct br_json_token *weight)
{
    struct br_json_token sample;
    double v;
    int rc = br_json_scan_value(samples, &sample);
    if (rc)
        return rc;
    if (!br_json_part_number(weight, &v))
        return speedscope_fail(reader, "a weight is not a number");
    if (sample.type != BR_JSON_ARRAY)
        return speedscope_fail(reader, "a sample is not an array");
    reader->node = BR_STACKS_ROOT;
    rc = br_json_elements_here(samples, speedscope_add_to_path, reader);
    return rc ? rc : speedscope_add_value(reader, reader->node, v);
}

static int speedscope_read_sampled(struct reader *reader, const struct profile *profile)
{
    struct br_json_list samples, weights;
    int rc = br_json_list_open(&samples, &reader->scan, profile->samples);
    if (!rc)
        rc = br_json_list_open(&weights, &reader->scan, profile->weights);
    while (!rc && br_stacks_ok(&reader->stacks)) {
        struct br_json_token weight;
        bool has_sample, has_weight;
        rc = br_json_list_more(&samples, &has_sample);
        if (!rc)
            rc = br_json_list_next(&weights, &weight, &has_weight);
        if (rc)
            return rc;
        if (has_sample != has_weight)
            return speedscope_fail(reader, "samples and weights differ in length");
        if (!has_sample)
            return 0;
        rc = speedscope_read_sample(reader, &samples.scan, &weight);
        if (!rc)
            rc = speedscope_divide(reader);
    }
    return rc;
}

static int speedscope_open_frame(struct reader *reader, uint32_t frame)
{
    size_t need = (size_t)reader->n_open + 1;
    uint32_t location;
    int rc = speedscope_location(reader, frame, &location);
    if (rc)
        return rc;
    if (br_grow(&reader->open, &reader->cap_open, need, sizeof *reader->open, UINT32_MAX) != 0 ||
        br_grow(&reader->open_frames, &reader->cap_open_frames, need, sizeof *reader->open_frames,
                UINT32_MAX) != 0)
        return speedscope_no_memory(reader);
    uint32_t parent = reader->n_open ? reader->open[reader->n_open - 1] : BR_STACKS_ROOT;
    reader->open[reader->n_open] = br_stacks_child(&reader->stacks, parent, location);
    reader->open_frames[reader->n_open++] = frame;
    return 0;
}

struct event {
    struct br_json_token type, at, frame;
};

static void speedscope_on_event(void *arg, const struct br_json_scan *scan,
                                const struct br_json_token *name, const struct br_json_token *value)
{
    struct event *event = arg;
    (void)scan;
    if (br_json_part_is(name, "type"))
        event->type = *value;
    else if (br_json_part_is(name, "at"))
        event->at = *value;
    else if (br_json_part_is(name, "frame"))
        event->frame = *value;
}

static int speedscope_read_event(void *arg, struct br_json_scan *scan)
{
    struct reader *reader = arg;
    struct event event = {.type = {.type = BR_JSON_NULL}};
    double at;
    uint32_t frame;
    int rc = br_json_members(scan, speedscope_on_event, &event);
    if (rc || !br_stacks_ok(&reader->stacks))
        return rc;
    bool closes = br_json_part_is(&event.type, "C");
    if (!closes && !br_json_part_is(&event.type, "O"))
        return speedscope_fail(reader, "an event neither opens nor closes a frame");
    if (!br_json_part_number(&event.at, &at) || at < reader->last_at)
        return speedscope_fail(reader, "events out of order");
    if (!speedscope_frame_index(reader, &event.frame, &frame))
        return speedscope_fail(reader, "an event refers to an unknown frame");
    if (closes && (reader->n_open == 0 || reader->open_frames[reader->n_open - 1] != frame))
        return speedscope_fail(reader, "a frame is closed that was not the last one opened");
    rc = reader->n_open
             ? speedscope_add_value(reader, reader->open[reader->n_open - 1], at - reader->last_at)
             : 0;
    reader->last_at = at;
    if (rc != 0)
        return rc;
    if (!closes)
        return speedscope_open_frame(reader, frame);
    reader->n_open--;
    return speedscope_divide(reader);
}

static int speedscope_read_evented(struct reader *reader, const struct profile *profile)
{
    reader->last_at = profile->start;
    reader->n_open = 0;
    return br_json_elements(&reader->scan, profile->events, speedscope_read_event, reader);
}

/* --- Profiles --------------------------------------------------------------------------------- */

struct members {
    struct br_json_token type, unit, start;
    struct profile profile;
};

static void speedscope_on_member(void *arg, const struct br_json_scan *scan,
                                 const struct br_json_token *name,
                                 const struct br_json_token *value)
{
    struct members *members = arg;
    if (br_json_part_is(name, "type"))
        members->type = *value;
    else if (br_json_part_is(name, "unit"))
        members->unit = *value;
    else if (br_json_part_is(name, "startValue"))
        members->start = *value;
    else if (br_json_part_is(name, "name"))
        members->profile.name = *value;
    else if (br_json_part_is(name, "events"))
        members->profile.events = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "samples"))
        members->profile.samples = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "weights"))
        members->profile.weights = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

/* Adds the last profile read to the group of profiles with the same key, or starts a group. */
static int speedscope_group_profile(struct reader *reader)
{
    uint32_t i = reader->n_profiles - 1;
    struct profile *p = &reader->profiles[i];
    struct group_key group_key = {.evented = p->evented, .unit = p->unit, .start = p->start + 0.0};
    if (p->name.type == BR_JSON_STRING)
        group_key.name_hash = br_siphash(reader->secret, p->name.text, p->name.len);
    void *before = NULL;
    int rc = br_map_put(reader->groups, &group_key, sizeof group_key, (void *)(uintptr_t)(i + 1),
                        &before);
    if (rc)
        return speedscope_no_memory(reader);
    p->first = !before;
    if (before)
        reader->profiles[(uintptr_t)before - 1].next = i + 1;
    return 0;
}

static int speedscope_add_profile(void *arg, struct br_json_scan *scan)
{
    struct reader *reader = arg;
    struct members members = {.profile = {.unit = N_UNITS}};
    int rc = br_json_members(scan, speedscope_on_member, &members);
    if (rc)
        return rc;
    (void)br_json_part_number(&members.start, &members.profile.start);
    for (unsigned u = 0; u < N_UNITS; u++)
        if (br_json_part_is(&members.unit, units[u].name))
            members.profile.unit = (enum unit)u;
    if (members.profile.unit == N_UNITS)
        return speedscope_fail(reader, "an unknown unit");
    members.profile.evented = br_json_part_is(&members.type, "evented");
    if (!members.profile.evented && !br_json_part_is(&members.type, "sampled"))
        return speedscope_fail(reader, "a profile is neither evented nor sampled");
    if (reader->n_profiles == PROFILES_MAX)
        return speedscope_fail(reader, "more than 4096 profiles");
    if (br_grow(&reader->profiles, &reader->cap_profiles, (size_t)reader->n_profiles + 1,
                sizeof members.profile, PROFILES_MAX))
        return speedscope_no_memory(reader);
    reader->profiles[reader->n_profiles++] = members.profile;
    return speedscope_group_profile(reader);
}

static void speedscope_choose_type(struct reader *reader, enum unit unit, bool several)
{
    const struct br_profile_source *source = reader->source;
    struct br_text_type *type = &reader->type;
    struct br_profile_source by_unit = *source;
    br_text_type_init(type, source);
    bool time = type->period_ns > 0;
    if (several && source->from_pyroscope && units[unit].ns > 0) {
        by_unit.type = "wall";
        by_unit.units = by_unit.pyroscope_name = NULL;
    } else if (unit == BYTES && (time || (several && source->from_pyroscope))) {
        /* values in bytes do not measure time, even if the application name has a type of time */
        by_unit.type = "samples";
        by_unit.units = "bytes";
        by_unit.pyroscope_name = source->pyroscope_name || source->from_pyroscope ? "memory" : NULL;
    }
    br_text_type_init(type, &by_unit);
    reader->scale = units[unit].ns > 0 ? units[unit].ns : (double)type->scale;
    if (units[unit].ns > 0)
        type->unit = "nanoseconds";
}

static bool speedscope_is_label(const struct br_field *attribute, const char *key)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(attribute->data, (size_t)attribute->value, &kv);
    return br_bytes_are(kv.key, kv.key_len, key);
}

/* Copies all attributes except those with a certain key. */
static int speedscope_without(struct reader *reader, const struct br_addition *from,
                              const char *key, struct br_arena *arena, struct br_addition *ret)
{
    uint8_t *out = br_arena_alloc(arena, from->len);
    const uint8_t *p = from->data, *end = from->len ? p + from->len : p;
    if (!out)
        return speedscope_no_memory(reader);
    *ret = (struct br_addition){out, 0};
    while (p < end) {
        struct br_field field;
        const uint8_t *next = br_field_next(p, end, &field);
        if (!next)
            return br_err_set(reader->err, BR_EINVAL, "labels are not encoded as attributes");
        if (field.wire != BR_WIRE_LEN || !speedscope_is_label(&field, key))
            out = br_put_bytes(out, p, (size_t)(next - p));
        p = next;
    }
    ret->len = (size_t)(out - ret->data);
    return 0;
}

/* Builds the attributes of the resource, with the name of the profile as label `profile_name`. */
static int speedscope_name_resource(struct reader *reader, const struct profile *profile,
                                    struct br_arena *arena, struct br_addition *ret)
{
    static const char label[] = "profile_name";
    const struct br_addition *from = reader->source->resource;
    size_t len;
    const char *name = speedscope_string(reader, &profile->name, &len);
    if (!name)
        return speedscope_no_memory(reader);
    *ret = (struct br_addition){0};
    int rc = from ? speedscope_without(reader, from, label, arena, ret) : 0;
    if (rc == 0 && len > 0 && br_add_string(arena, ret, 1, label, name, len) != 0)
        rc = speedscope_no_memory(reader);
    return rc;
}

static int speedscope_read_profiles(struct reader *reader, uint32_t first, bool several,
                                    struct br_arena *arena)
{
    struct br_addition resource;
    int rc = br_stacks_init(&reader->stacks, reader->build, reader->source, reader->err);
    reader->stacks.path_left = reader->path_left;
    reader->n_open = 0;
    speedscope_choose_type(reader, reader->profiles[first].unit, several);
    if (rc == 0)
        rc = speedscope_name_resource(reader, &reader->profiles[first], arena, &resource);
    reader->group_source.resource = &resource;
    reader->group_arena = arena;
    for (uint32_t i = first + 1; rc == 0 && i > 0; i = reader->profiles[i - 1].next) {
        const struct profile *p = &reader->profiles[i - 1];
        rc = p->evented ? speedscope_read_evented(reader, p) : speedscope_read_sampled(reader, p);
    }
    if (rc == 0)
        rc = br_stacks_emit(&reader->stacks, &reader->group_source, &reader->type, arena,
                            reader->err);
    reader->path_left = reader->stacks.path_left;
    br_stacks_release(&reader->stacks);
    return rc;
}

/* Reads a group of merged profiles. The memory of the group is freed before the next group is
 * read. */
static int speedscope_read_group(struct reader *reader, uint32_t first, bool several)
{
    struct br_arena arena;
    br_arena_init(&arena, reader->scratch->max);
    int rc = speedscope_read_profiles(reader, first, several, &arena);
    br_arena_release(&arena);
    return rc;
}

/* --- File ------------------------------------------------------------------------------------- */

static void speedscope_on_shared(void *arg, const struct br_json_scan *scan,
                                 const struct br_json_token *name,
                                 const struct br_json_token *value)
{
    struct reader *reader = arg;
    if (br_json_part_is(name, "frames"))
        reader->frame_list = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

static void speedscope_on_root(void *arg, const struct br_json_scan *scan,
                               const struct br_json_token *name, const struct br_json_token *value)
{
    struct reader *reader = arg;
    if (br_json_part_is(name, "$schema"))
        reader->known = br_json_part_is(value, SCHEMA);
    else if (br_json_part_is(name, "shared"))
        reader->shared = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "profiles"))
        reader->profile_list = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

/* Checks the syntax of the whole text and records the position of its parts. */
static int speedscope_find_parts(struct reader *reader)
{
    struct br_json_scan scan = reader->scan;
    int rc = br_json_members(&scan, speedscope_on_root, reader);
    if (!rc)
        rc = br_json_scan_end(&scan);
    if (rc || !reader->shared.at)
        return rc;
    scan = br_json_part_scan(&reader->scan, reader->shared);
    return br_json_members(&scan, speedscope_on_shared, reader);
}

static int speedscope_read_file(struct reader *reader)
{
    int rc = speedscope_find_parts(reader);
    if (!rc && !reader->known)
        return speedscope_fail(reader, "unknown schema");
    if (!rc)
        rc = br_json_elements(&reader->scan, reader->frame_list, speedscope_add_frame, reader);
    if (!rc)
        rc = br_json_elements(&reader->scan, reader->profile_list, speedscope_add_profile, reader);
    bool several = br_map_count(reader->groups) > 1;
    for (uint32_t i = 0; rc == 0 && i < reader->n_profiles; i++)
        if (reader->profiles[i].first)
            rc = speedscope_read_group(reader, i, several);
    return rc;
}

int br_speedscope_read(struct br_build *build, const struct br_profile_source *source,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader reader = {.source = source, .build = build, .scratch = scratch, .err = err};
    int rc = br_json_scan_init(&reader.scan, source->len ? (const char *)source->data : "",
                               source->len, DEPTH_MAX, err);
    if (rc != 0)
        return rc == BR_ETOOBIG ? BR_EINVAL : rc;
    br_random_bytes(reader.secret, sizeof reader.secret);
    reader.path_left = reader.frame_left = br_profile_text_max(source);
    reader.group_source = *source;
    reader.part = 1;
    reader.groups = br_map_new(PROFILES_MAX);
    rc = reader.groups ? speedscope_read_file(&reader) : speedscope_no_memory(&reader);
    br_map_free(reader.groups, NULL);
    br_free(reader.profiles);
    br_free(reader.frames);
    br_free(reader.text);
    br_free(reader.open);
    br_free(reader.open_frames);
    return rc;
}
