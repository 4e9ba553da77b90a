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
#include "otlp/json/number.h"
#include "otlp/json/scan.h"
#include "otlp/keyvalue.h"
#include "profile/text/stacks.h"
#include "wire/protobuf.h"

#define SCHEMA "https://www.speedscope.app/file-format-schema.json"
#define DEPTH_MAX 64
#define NAME_MAX_ESCAPED 384u /* six bytes for each of the longest name we look for */
#define PROFILES_MAX 4096
#define VALUE_MAX 9.2e18

/* In the order of `units`. */
enum unit { NONE, NANOSECONDS, MICROSECONDS, MILLISECONDS, SECONDS, BYTES, N_UNITS };
static const struct {
    const char *name;
    double ns; /* 0: no time */
} units[N_UNITS] = {{"none", 0},           {"nanoseconds", 1}, {"microseconds", 1e3},
                    {"milliseconds", 1e6}, {"seconds", 1e9},   {"bytes", 0}};

/* An object, an array, or none: where it begins, and is read when its turn comes. */
struct place {
    const char *at; /* NULL: there is none */
};

struct profile {
    struct br_json_token name; /* a string, or not */
    struct place events, samples, weights;
    bool evented;
    enum unit unit;
    double start;
    uint32_t next; /* the next one that is filed with it, + 1; 0: it is the last */
    bool first;    /* of those that are filed together */
};

/* What profiles have in common that are filed as one. */
struct filing {
    uint64_t evented, unit, name_hash;
    double start;
};

struct reader {
    struct br_json_scan scan; /* at the beginning of the text, which has been checked */
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_arena *scratch;
    struct br_err *err;
    uint8_t secret[16];
    struct place frame_list, profile_list;
    bool known; /* the schema */
    struct profile *profiles;
    uint32_t n_profiles, cap_profiles;
    struct br_map *filed; /* struct filing to the last profile's number + 1 */
    uint32_t *frames;     /* locations */
    uint32_t n_frames, cap_frames;
    char *text; /* a string without its escapes */
    uint32_t cap_text;
    size_t path_left; /* of all profiles; see br_stacks */
    /* Of the profile that is being read: */
    struct br_stacks stacks;
    struct br_text_type type;
    double scale;   /* of the file's numbers */
    uint32_t *open; /* nodes of the frames that are open, and which frames these are */
    uint32_t *open_frames;
    uint32_t n_open, cap_open, cap_open_frames;
};

/* --- The JSON --------------------------------------------------------------------------------- */

static int speedscope_no_memory(struct reader *reader)
{
    return br_err_set(reader->err, BR_ENOMEM, "no memory for a speedscope file");
}

static int speedscope_fail(struct reader *reader, const char *what)
{
    return br_err_set(reader->err, BR_EINVAL, "not a speedscope file: %s", what);
}

static bool speedscope_is_text(const struct br_json_token *token, const char *text)
{
    char plain[NAME_MAX_ESCAPED];
    const char *p = token->text;
    size_t len = token->len;
    if (token->type != BR_JSON_STRING || (token->escaped && len > sizeof plain))
        return false;
    if (token->escaped) {
        len = br_json_plain(p, len, plain);
        p = plain;
    }
    return len == strlen(text) && memcmp(p, text, len) == 0;
}

static struct place speedscope_place_of(const struct br_json_scan *scan,
                                        const struct br_json_token *value, enum br_json_type type)
{
    return (struct place){value->type == type ? scan->at : NULL};
}

static struct br_json_scan speedscope_scan_from(const struct reader *reader, struct place place)
{
    struct br_json_scan scan = reader->scan;
    scan.at = place.at;
    return scan;
}

/* Takes note of a member; the last one counts where there are several. `s` stands before the inside
 * of an object or an array, and stays there. */
typedef void member_fn(struct reader *reader, const struct br_json_scan *scan,
                       const struct br_json_token *name, const struct br_json_token *value,
                       void *arg);

/* Passes the value that comes next, and its members if it is an object. */
static int speedscope_each_member(struct reader *reader, struct br_json_scan *scan, member_fn *fn,
                                  void *arg)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_value(scan, &value);
    if (rc || value.type != BR_JSON_OBJECT)
        return rc ? rc : br_json_scan_skip(scan, &value);
    rc = br_json_scan_enter(scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(scan, '}', first, &more);
        if (rc || !more)
            break;
        rc = br_json_scan_name(scan, &name);
        if (!rc)
            rc = br_json_scan_value(scan, &value);
        if (rc)
            break;
        fn(reader, scan, &name, &value, arg);
        rc = br_json_scan_skip(scan, &value);
    }
    return rc;
}

typedef int element_fn(struct reader *reader, struct br_json_scan *scan, void *arg);

/* Hands each element of the array that `scan` stands before to `fn`, which passes it. */
static int speedscope_each_element(struct reader *reader, struct br_json_scan *scan, element_fn *fn,
                                   void *arg)
{
    bool more = true;
    int rc = br_json_scan_enter(scan);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(scan, ']', first, &more);
        if (rc || !more)
            break;
        rc = fn(reader, scan, arg);
    }
    return rc;
}

static int speedscope_each_of(struct reader *reader, struct place array, element_fn *fn, void *arg)
{
    struct br_json_scan scan = speedscope_scan_from(reader, array);
    return array.at ? speedscope_each_element(reader, &scan, fn, arg) : 0;
}

static bool speedscope_number(const struct br_json_token *token, double *ret)
{
    return token->type == BR_JSON_NUMBER && br_number_double(token->text, ret);
}

/* The text of a string, terminated nowhere; "" for what is none. NULL without memory. */
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

static void speedscope_note_frame(struct reader *reader, const struct br_json_scan *scan,
                                  const struct br_json_token *name,
                                  const struct br_json_token *value, void *arg)
{
    struct frame *frame = arg;
    (void)reader;
    (void)scan;
    if (speedscope_is_text(name, "name"))
        frame->name = *value;
    else if (speedscope_is_text(name, "file"))
        frame->file = *value;
    else if (speedscope_is_text(name, "line"))
        frame->line = *value;
    else if (speedscope_is_text(name, "col"))
        frame->column = *value;
}

static int64_t speedscope_whole(const struct br_json_token *token)
{
    double v;
    return speedscope_number(token, &v) && v > 0 && v < 1e9 ? (int64_t)v : 0;
}

static int speedscope_add_frame(struct reader *reader, struct br_json_scan *scan, void *arg)
{
    struct frame frame = {.name = {.type = BR_JSON_NULL}};
    size_t len;
    (void)arg;
    int rc = speedscope_each_member(reader, scan, speedscope_note_frame, &frame);
    if (rc)
        return rc;
    const char *text = speedscope_string(reader, &frame.name, &len);
    if (!text)
        return speedscope_no_memory(reader);
    uint32_t name = br_build_string(reader->build, text, len);
    text = speedscope_string(reader, &frame.file, &len);
    if (!text || br_grow(&reader->frames, &reader->cap_frames, (size_t)reader->n_frames + 1,
                         sizeof *reader->frames, UINT32_MAX) != 0)
        return speedscope_no_memory(reader);
    uint32_t file = br_build_string(reader->build, text, len);
    struct br_build_line line = {.function = br_build_function(reader->build, name, 0, file, 0),
                                 .line = speedscope_whole(&frame.line),
                                 .column = speedscope_whole(&frame.column)};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    reader->frames[reader->n_frames++] = br_build_location(reader->build, &location);
    rc = br_build_rc(reader->build);
    return rc ? br_err_set(reader->err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}

static bool speedscope_frame_index(const struct reader *reader, const struct br_json_token *token,
                                   uint32_t *ret)
{
    double v;
    if (!speedscope_number(token, &v) || v < 0 || v >= reader->n_frames || v != floor(v))
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

static int speedscope_add_to_path(struct reader *reader, struct br_json_scan *scan, void *arg)
{
    struct br_json_token value;
    uint32_t frame, *node = arg;
    int rc = br_json_scan_value(scan, &value);
    if (rc)
        return rc;
    if (!speedscope_frame_index(reader, &value, &frame))
        return speedscope_fail(reader, "a sample of a frame that there is not");
    *node = br_stacks_child(&reader->stacks, *node, reader->frames[frame]);
    return 0;
}

static int speedscope_read_sample(struct reader *reader, struct br_json_scan *samples,
                                  struct br_json_scan *weights)
{
    struct br_json_token sample, weight;
    uint32_t node = BR_STACKS_ROOT;
    double v;
    int rc = br_json_scan_value(weights, &weight);
    if (!rc)
        rc = br_json_scan_value(samples, &sample);
    if (rc)
        return rc;
    if (!speedscope_number(&weight, &v))
        return speedscope_fail(reader, "a weight that is no number");
    if (sample.type != BR_JSON_ARRAY)
        return speedscope_fail(reader, "a sample that is no array");
    rc = speedscope_each_element(reader, samples, speedscope_add_to_path, &node);
    return rc ? rc : speedscope_add_value(reader, node, v);
}

/* An array that is read beside another one. */
struct list {
    struct br_json_scan scan;
    bool inside, first;
};

static int speedscope_open_list(struct reader *reader, struct place array, struct list *ret)
{
    *ret = (struct list){speedscope_scan_from(reader, array), array.at != NULL, true};
    return array.at ? br_json_scan_enter(&ret->scan) : 0;
}

static int speedscope_next_of(struct list *list, bool *ret)
{
    *ret = false;
    int rc = list->inside ? br_json_scan_more(&list->scan, ']', list->first, ret) : 0;
    list->inside = *ret;
    list->first = false;
    return rc;
}

static int speedscope_read_sampled(struct reader *reader, const struct profile *profile)
{
    struct list samples, weights;
    int rc = speedscope_open_list(reader, profile->samples, &samples);
    if (!rc)
        rc = speedscope_open_list(reader, profile->weights, &weights);
    while (!rc && br_stacks_ok(&reader->stacks)) {
        bool sample, weight;
        rc = speedscope_next_of(&samples, &sample);
        if (!rc)
            rc = speedscope_next_of(&weights, &weight);
        if (rc)
            return rc;
        if (sample != weight)
            return speedscope_fail(reader, "samples and weights of unequal number");
        if (!sample)
            return 0;
        rc = speedscope_read_sample(reader, &samples.scan, &weights.scan);
    }
    return rc;
}

static int speedscope_open_frame(struct reader *reader, uint32_t frame)
{
    size_t need = (size_t)reader->n_open + 1;
    if (br_grow(&reader->open, &reader->cap_open, need, sizeof *reader->open, UINT32_MAX) != 0 ||
        br_grow(&reader->open_frames, &reader->cap_open_frames, need, sizeof *reader->open_frames,
                UINT32_MAX) != 0)
        return speedscope_no_memory(reader);
    uint32_t parent = reader->n_open ? reader->open[reader->n_open - 1] : BR_STACKS_ROOT;
    reader->open[reader->n_open] = br_stacks_child(&reader->stacks, parent, reader->frames[frame]);
    reader->open_frames[reader->n_open++] = frame;
    return 0;
}

struct event {
    struct br_json_token type, at, frame;
};

static void speedscope_note_event(struct reader *reader, const struct br_json_scan *scan,
                                  const struct br_json_token *name,
                                  const struct br_json_token *value, void *arg)
{
    struct event *event = arg;
    (void)reader;
    (void)scan;
    if (speedscope_is_text(name, "type"))
        event->type = *value;
    else if (speedscope_is_text(name, "at"))
        event->at = *value;
    else if (speedscope_is_text(name, "frame"))
        event->frame = *value;
}

static int speedscope_read_event(struct reader *reader, struct br_json_scan *scan, void *arg)
{
    struct event event = {.type = {.type = BR_JSON_NULL}};
    double at, *last = arg;
    uint32_t frame;
    int rc = speedscope_each_member(reader, scan, speedscope_note_event, &event);
    if (rc || !br_stacks_ok(&reader->stacks))
        return rc;
    bool closes = speedscope_is_text(&event.type, "C");
    if (!closes && !speedscope_is_text(&event.type, "O"))
        return speedscope_fail(reader, "an event that neither opens nor closes a frame");
    if (!speedscope_number(&event.at, &at) || at < *last)
        return speedscope_fail(reader, "events out of order");
    if (!speedscope_frame_index(reader, &event.frame, &frame))
        return speedscope_fail(reader, "an event of a frame that there is not");
    if (closes && (reader->n_open == 0 || reader->open_frames[reader->n_open - 1] != frame))
        return speedscope_fail(reader, "a frame that is closed and not the last one opened");
    rc = reader->n_open ? speedscope_add_value(reader, reader->open[reader->n_open - 1], at - *last)
                        : 0;
    *last = at;
    if (rc != 0)
        return rc;
    if (!closes)
        return speedscope_open_frame(reader, frame);
    reader->n_open--;
    return 0;
}

static int speedscope_read_evented(struct reader *reader, const struct profile *profile)
{
    double last = profile->start;
    reader->n_open = 0;
    return speedscope_each_of(reader, profile->events, speedscope_read_event, &last);
}

/* --- Profiles --------------------------------------------------------------------------------- */

struct noted {
    struct br_json_token type, unit, start;
    struct profile profile;
};

static void speedscope_note_member(struct reader *reader, const struct br_json_scan *scan,
                                   const struct br_json_token *name,
                                   const struct br_json_token *value, void *arg)
{
    struct noted *noted = arg;
    (void)reader;
    if (speedscope_is_text(name, "type"))
        noted->type = *value;
    else if (speedscope_is_text(name, "unit"))
        noted->unit = *value;
    else if (speedscope_is_text(name, "startValue"))
        noted->start = *value;
    else if (speedscope_is_text(name, "name"))
        noted->profile.name = *value;
    else if (speedscope_is_text(name, "events"))
        noted->profile.events = speedscope_place_of(scan, value, BR_JSON_ARRAY);
    else if (speedscope_is_text(name, "samples"))
        noted->profile.samples = speedscope_place_of(scan, value, BR_JSON_ARRAY);
    else if (speedscope_is_text(name, "weights"))
        noted->profile.weights = speedscope_place_of(scan, value, BR_JSON_ARRAY);
}

/* Files the last profile with those that are the same. */
static int speedscope_file_profile(struct reader *reader)
{
    uint32_t i = reader->n_profiles - 1;
    struct profile *p = &reader->profiles[i];
    struct filing filing = {.evented = p->evented, .unit = p->unit, .start = p->start + 0.0};
    if (p->name.type == BR_JSON_STRING)
        filing.name_hash = br_siphash(reader->secret, p->name.text, p->name.len);
    void *before = NULL;
    int rc = br_map_put(reader->filed, &filing, sizeof filing, (void *)(uintptr_t)(i + 1), &before);
    if (rc)
        return speedscope_no_memory(reader);
    p->first = !before;
    if (before)
        reader->profiles[(uintptr_t)before - 1].next = i + 1;
    return 0;
}

static int speedscope_note_profile(struct reader *reader, struct br_json_scan *scan, void *arg)
{
    struct noted noted = {.profile = {.unit = N_UNITS}};
    (void)arg;
    int rc = speedscope_each_member(reader, scan, speedscope_note_member, &noted);
    if (rc)
        return rc;
    (void)speedscope_number(&noted.start, &noted.profile.start);
    for (unsigned u = 0; u < N_UNITS; u++)
        if (speedscope_is_text(&noted.unit, units[u].name))
            noted.profile.unit = (enum unit)u;
    if (noted.profile.unit == N_UNITS)
        return speedscope_fail(reader, "an unknown unit");
    noted.profile.evented = speedscope_is_text(&noted.type, "evented");
    if (!noted.profile.evented && !speedscope_is_text(&noted.type, "sampled"))
        return speedscope_fail(reader, "a profile neither evented nor sampled");
    if (reader->n_profiles == PROFILES_MAX)
        return speedscope_fail(reader, "more than 4096 profiles");
    if (br_grow(&reader->profiles, &reader->cap_profiles, (size_t)reader->n_profiles + 1,
                sizeof noted.profile, PROFILES_MAX))
        return speedscope_no_memory(reader);
    reader->profiles[reader->n_profiles++] = noted.profile;
    return speedscope_file_profile(reader);
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
        by_unit.type = "samples"; /* bytes are no time, whatever the name says */
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
    return kv.key_len == strlen(key) && memcmp(kv.key, key, kv.key_len) == 0;
}

/* The attributes but those of this key. */
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
            return br_err_set(reader->err, BR_EINVAL, "labels that are not encoded as attributes");
        if (field.wire != BR_WIRE_LEN || !speedscope_is_label(&field, key))
            out = br_put_bytes(out, p, (size_t)(next - p));
        p = next;
    }
    ret->len = (size_t)(out - ret->data);
    return 0;
}

/* The resource with the profile's name as a label, instead of one that is there. */
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

static int speedscope_read_filed(struct reader *reader, uint32_t first, bool several,
                                 struct br_arena *arena)
{
    struct br_addition resource;
    struct br_profile_source source = *reader->source;
    int rc = br_stacks_init(&reader->stacks, reader->build, reader->source, reader->err);
    reader->stacks.path_left = reader->path_left;
    speedscope_choose_type(reader, reader->profiles[first].unit, several);
    for (uint32_t i = first + 1; rc == 0 && i > 0; i = reader->profiles[i - 1].next) {
        const struct profile *p = &reader->profiles[i - 1];
        rc = p->evented ? speedscope_read_evented(reader, p) : speedscope_read_sampled(reader, p);
    }
    if (rc == 0)
        rc = speedscope_name_resource(reader, &reader->profiles[first], arena, &resource);
    source.resource = &resource;
    if (rc == 0)
        rc = br_stacks_emit(&reader->stacks, &source, &reader->type, arena, reader->err);
    reader->path_left = reader->stacks.path_left;
    br_stacks_release(&reader->stacks);
    return rc;
}

/* Reads a profile and those that are the same. What that takes is given back for the next ones. */
static int speedscope_read_group(struct reader *reader, uint32_t first, bool several)
{
    struct br_arena arena;
    br_arena_init(&arena, reader->scratch->max);
    int rc = speedscope_read_filed(reader, first, several, &arena);
    br_arena_release(&arena);
    return rc;
}

/* --- The file --------------------------------------------------------------------------------- */

static void speedscope_note_shared(struct reader *reader, const struct br_json_scan *scan,
                                   const struct br_json_token *name,
                                   const struct br_json_token *value, void *arg)
{
    (void)arg;
    if (speedscope_is_text(name, "frames"))
        reader->frame_list = speedscope_place_of(scan, value, BR_JSON_ARRAY);
}

static void speedscope_note_root(struct reader *reader, const struct br_json_scan *scan,
                                 const struct br_json_token *name,
                                 const struct br_json_token *value, void *arg)
{
    struct place *shared = arg;
    if (speedscope_is_text(name, "$schema"))
        reader->known = speedscope_is_text(value, SCHEMA);
    else if (speedscope_is_text(name, "shared"))
        *shared = speedscope_place_of(scan, value, BR_JSON_OBJECT);
    else if (speedscope_is_text(name, "profiles"))
        reader->profile_list = speedscope_place_of(scan, value, BR_JSON_ARRAY);
}

/* Checks the text, and finds where its parts are. */
static int speedscope_find_parts(struct reader *reader)
{
    struct place shared = {NULL};
    struct br_json_scan scan = reader->scan;
    int rc = speedscope_each_member(reader, &scan, speedscope_note_root, &shared);
    if (!rc)
        rc = br_json_scan_end(&scan);
    if (rc || !shared.at)
        return rc;
    scan = speedscope_scan_from(reader, shared);
    return speedscope_each_member(reader, &scan, speedscope_note_shared, NULL);
}

static int speedscope_read_file(struct reader *reader)
{
    int rc = speedscope_find_parts(reader);
    if (!rc && !reader->known)
        return speedscope_fail(reader, "unknown schema");
    if (!rc)
        rc = speedscope_each_of(reader, reader->frame_list, speedscope_add_frame, NULL);
    if (!rc)
        rc = speedscope_each_of(reader, reader->profile_list, speedscope_note_profile, NULL);
    bool several = br_map_count(reader->filed) > 1;
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
    reader.path_left = br_profile_text_max(source);
    reader.filed = br_map_new(PROFILES_MAX);
    rc = reader.filed ? speedscope_read_file(&reader) : speedscope_no_memory(&reader);
    br_map_free(reader.filed, NULL);
    br_free(reader.profiles);
    br_free(reader.frames);
    br_free(reader.text);
    br_free(reader.open);
    br_free(reader.open_frames);
    return rc;
}
