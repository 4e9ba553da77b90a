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

static int no_memory(struct reader *r)
{
    return br_err_set(r->err, BR_ENOMEM, "no memory for a speedscope file");
}

static int fail(struct reader *r, const char *what)
{
    return br_err_set(r->err, BR_EINVAL, "not a speedscope file: %s", what);
}

static bool is_text(const struct br_json_token *token, const char *text)
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

static struct place place_of(const struct br_json_scan *s, const struct br_json_token *value,
                             enum br_json_type type)
{
    return (struct place){value->type == type ? s->at : NULL};
}

static struct br_json_scan scan_from(const struct reader *r, struct place place)
{
    struct br_json_scan s = r->scan;
    s.at = place.at;
    return s;
}

/* Takes note of a member; the last one counts where there are several. `s` stands before the inside
 * of an object or an array, and stays there. */
typedef void member_fn(struct reader *r, const struct br_json_scan *s,
                       const struct br_json_token *name, const struct br_json_token *value,
                       void *arg);

/* Passes the value that comes next, and its members if it is an object. */
static int each_member(struct reader *r, struct br_json_scan *s, member_fn *fn, void *arg)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_value(s, &value);
    if (rc || value.type != BR_JSON_OBJECT)
        return rc ? rc : br_json_scan_skip(s, &value);
    rc = br_json_scan_enter(s);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(s, '}', first, &more);
        if (rc || !more)
            break;
        rc = br_json_scan_name(s, &name);
        if (!rc)
            rc = br_json_scan_value(s, &value);
        if (rc)
            break;
        fn(r, s, &name, &value, arg);
        rc = br_json_scan_skip(s, &value);
    }
    return rc;
}

typedef int element_fn(struct reader *r, struct br_json_scan *s, void *arg);

/* Hands each element of the array that `s` stands before to `fn`, which passes it. */
static int each_element(struct reader *r, struct br_json_scan *s, element_fn *fn, void *arg)
{
    bool more = true;
    int rc = br_json_scan_enter(s);
    for (bool first = true; !rc; first = false) {
        rc = br_json_scan_more(s, ']', first, &more);
        if (rc || !more)
            break;
        rc = fn(r, s, arg);
    }
    return rc;
}

static int each_of(struct reader *r, struct place array, element_fn *fn, void *arg)
{
    struct br_json_scan s = scan_from(r, array);
    return array.at ? each_element(r, &s, fn, arg) : 0;
}

static bool number(const struct br_json_token *token, double *ret)
{
    return token->type == BR_JSON_NUMBER && br_number_double(token->text, ret);
}

/* The text of a string, terminated nowhere; "" for what is none. NULL without memory. */
static const char *string(struct reader *r, const struct br_json_token *token, size_t *ret_len)
{
    *ret_len = 0;
    if (token->type != BR_JSON_STRING)
        return "";
    *ret_len = token->len;
    if (!token->escaped)
        return token->text;
    if (br_grow(&r->text, &r->cap_text, token->len, 1, UINT32_MAX) != 0)
        return NULL;
    *ret_len = br_json_plain(token->text, token->len, r->text);
    return r->text;
}

/* --- Frames ----------------------------------------------------------------------------------- */

struct frame {
    struct br_json_token name, file, line, column;
};

static void note_frame(struct reader *r, const struct br_json_scan *s,
                       const struct br_json_token *name, const struct br_json_token *value,
                       void *arg)
{
    struct frame *f = arg;
    (void)r;
    (void)s;
    if (is_text(name, "name"))
        f->name = *value;
    else if (is_text(name, "file"))
        f->file = *value;
    else if (is_text(name, "line"))
        f->line = *value;
    else if (is_text(name, "col"))
        f->column = *value;
}

static int64_t whole(const struct br_json_token *token)
{
    double v;
    return number(token, &v) && v > 0 && v < 1e9 ? (int64_t)v : 0;
}

static int add_frame(struct reader *r, struct br_json_scan *s, void *arg)
{
    struct frame f = {.name = {.type = BR_JSON_NULL}};
    size_t len;
    (void)arg;
    int rc = each_member(r, s, note_frame, &f);
    if (rc)
        return rc;
    const char *text = string(r, &f.name, &len);
    if (!text)
        return no_memory(r);
    uint32_t name = br_build_string(r->build, text, len);
    text = string(r, &f.file, &len);
    if (!text || br_grow(&r->frames, &r->cap_frames, (size_t)r->n_frames + 1, sizeof *r->frames,
                         UINT32_MAX) != 0)
        return no_memory(r);
    uint32_t file = br_build_string(r->build, text, len);
    struct br_build_line line = {.function = br_build_function(r->build, name, 0, file, 0),
                                 .line = whole(&f.line),
                                 .column = whole(&f.column)};
    struct br_build_location location = {.lines = &line, .n_lines = 1};
    r->frames[r->n_frames++] = br_build_location(r->build, &location);
    rc = br_build_rc(r->build);
    return rc ? br_err_set(r->err, rc, "cannot be converted: %s", br_strerror(rc)) : 0;
}

static bool frame_index(const struct reader *r, const struct br_json_token *token, uint32_t *ret)
{
    double v;
    if (!number(token, &v) || v < 0 || v >= r->n_frames || v != floor(v))
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

static int add_to_path(struct reader *r, struct br_json_scan *s, void *arg)
{
    struct br_json_token value;
    uint32_t frame, *node = arg;
    int rc = br_json_scan_value(s, &value);
    if (rc)
        return rc;
    if (!frame_index(r, &value, &frame))
        return fail(r, "a sample of a frame that there is not");
    *node = br_stacks_child(&r->stacks, *node, r->frames[frame]);
    return 0;
}

static int read_sample(struct reader *r, struct br_json_scan *samples, struct br_json_scan *weights)
{
    struct br_json_token sample, weight;
    uint32_t node = BR_STACKS_ROOT;
    double v;
    int rc = br_json_scan_value(weights, &weight);
    if (!rc)
        rc = br_json_scan_value(samples, &sample);
    if (rc)
        return rc;
    if (!number(&weight, &v))
        return fail(r, "a weight that is no number");
    if (sample.type != BR_JSON_ARRAY)
        return fail(r, "a sample that is no array");
    rc = each_element(r, samples, add_to_path, &node);
    return rc ? rc : add_value(r, node, v);
}

/* An array that is read beside another one. */
struct list {
    struct br_json_scan scan;
    bool inside, first;
};

static int open_list(struct reader *r, struct place array, struct list *ret)
{
    *ret = (struct list){scan_from(r, array), array.at != NULL, true};
    return array.at ? br_json_scan_enter(&ret->scan) : 0;
}

static int next_of(struct list *l, bool *ret)
{
    *ret = false;
    int rc = l->inside ? br_json_scan_more(&l->scan, ']', l->first, ret) : 0;
    l->inside = *ret;
    l->first = false;
    return rc;
}

static int read_sampled(struct reader *r, const struct profile *p)
{
    struct list samples, weights;
    int rc = open_list(r, p->samples, &samples);
    if (!rc)
        rc = open_list(r, p->weights, &weights);
    while (!rc && br_stacks_ok(&r->stacks)) {
        bool sample, weight;
        rc = next_of(&samples, &sample);
        if (!rc)
            rc = next_of(&weights, &weight);
        if (rc)
            return rc;
        if (sample != weight)
            return fail(r, "samples and weights of unequal number");
        if (!sample)
            return 0;
        rc = read_sample(r, &samples.scan, &weights.scan);
    }
    return rc;
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

struct event {
    struct br_json_token type, at, frame;
};

static void note_event(struct reader *r, const struct br_json_scan *s,
                       const struct br_json_token *name, const struct br_json_token *value,
                       void *arg)
{
    struct event *e = arg;
    (void)r;
    (void)s;
    if (is_text(name, "type"))
        e->type = *value;
    else if (is_text(name, "at"))
        e->at = *value;
    else if (is_text(name, "frame"))
        e->frame = *value;
}

static int read_event(struct reader *r, struct br_json_scan *s, void *arg)
{
    struct event e = {.type = {.type = BR_JSON_NULL}};
    double at, *last = arg;
    uint32_t frame;
    int rc = each_member(r, s, note_event, &e);
    if (rc || !br_stacks_ok(&r->stacks))
        return rc;
    bool closes = is_text(&e.type, "C");
    if (!closes && !is_text(&e.type, "O"))
        return fail(r, "an event that neither opens nor closes a frame");
    if (!number(&e.at, &at) || at < *last)
        return fail(r, "events out of order");
    if (!frame_index(r, &e.frame, &frame))
        return fail(r, "an event of a frame that there is not");
    if (closes && (r->n_open == 0 || r->open_frames[r->n_open - 1] != frame))
        return fail(r, "a frame that is closed and not the last one opened");
    rc = r->n_open ? add_value(r, r->open[r->n_open - 1], at - *last) : 0;
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
    r->n_open = 0;
    return each_of(r, p->events, read_event, &last);
}

/* --- Profiles --------------------------------------------------------------------------------- */

struct noted {
    struct br_json_token type, unit, start;
    struct profile profile;
};

static void note_member(struct reader *r, const struct br_json_scan *s,
                        const struct br_json_token *name, const struct br_json_token *value,
                        void *arg)
{
    struct noted *n = arg;
    (void)r;
    if (is_text(name, "type"))
        n->type = *value;
    else if (is_text(name, "unit"))
        n->unit = *value;
    else if (is_text(name, "startValue"))
        n->start = *value;
    else if (is_text(name, "name"))
        n->profile.name = *value;
    else if (is_text(name, "events"))
        n->profile.events = place_of(s, value, BR_JSON_ARRAY);
    else if (is_text(name, "samples"))
        n->profile.samples = place_of(s, value, BR_JSON_ARRAY);
    else if (is_text(name, "weights"))
        n->profile.weights = place_of(s, value, BR_JSON_ARRAY);
}

/* Files the last profile with those that are the same. */
static int file_profile(struct reader *r)
{
    uint32_t i = r->n_profiles - 1;
    struct profile *p = &r->profiles[i];
    struct filing filing = {.evented = p->evented, .unit = p->unit, .start = p->start + 0.0};
    if (p->name.type == BR_JSON_STRING)
        filing.name_hash = br_siphash(r->secret, p->name.text, p->name.len);
    void *before = NULL;
    int rc = br_map_put(r->filed, &filing, sizeof filing, (void *)(uintptr_t)(i + 1), &before);
    if (rc)
        return no_memory(r);
    p->first = !before;
    if (before)
        r->profiles[(uintptr_t)before - 1].next = i + 1;
    return 0;
}

static int note_profile(struct reader *r, struct br_json_scan *s, void *arg)
{
    struct noted n = {.profile = {.unit = N_UNITS}};
    (void)arg;
    int rc = each_member(r, s, note_member, &n);
    if (rc)
        return rc;
    (void)number(&n.start, &n.profile.start);
    for (unsigned u = 0; u < N_UNITS; u++)
        if (is_text(&n.unit, units[u].name))
            n.profile.unit = (enum unit)u;
    if (n.profile.unit == N_UNITS)
        return fail(r, "an unknown unit");
    n.profile.evented = is_text(&n.type, "evented");
    if (!n.profile.evented && !is_text(&n.type, "sampled"))
        return fail(r, "a profile neither evented nor sampled");
    if (r->n_profiles == PROFILES_MAX)
        return fail(r, "more than 4096 profiles");
    if (br_grow(&r->profiles, &r->cap_profiles, (size_t)r->n_profiles + 1, sizeof n.profile,
                PROFILES_MAX))
        return no_memory(r);
    r->profiles[r->n_profiles++] = n.profile;
    return file_profile(r);
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
    struct br_keyvalue kv;
    (void)br_keyvalue_read(attribute->data, (size_t)attribute->value, &kv);
    return kv.key_len == strlen(key) && memcmp(kv.key, key, kv.key_len) == 0;
}

/* The attributes but those of this key. */
static int without(struct reader *r, const struct br_addition *from, const char *key,
                   struct br_arena *arena, struct br_addition *ret)
{
    uint8_t *out = br_arena_alloc(arena, from->len);
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
static int name_resource(struct reader *r, const struct profile *p, struct br_arena *arena,
                         struct br_addition *ret)
{
    static const char label[] = "profile_name";
    const struct br_addition *from = r->source->resource;
    size_t len;
    const char *name = string(r, &p->name, &len);
    if (!name)
        return no_memory(r);
    *ret = (struct br_addition){0};
    int rc = from ? without(r, from, label, arena, ret) : 0;
    if (rc == 0 && len > 0 && br_add_string(arena, ret, 1, label, name, len) != 0)
        rc = no_memory(r);
    return rc;
}

static int read_filed(struct reader *r, uint32_t first, bool several, struct br_arena *arena)
{
    struct br_addition resource;
    struct br_profile_source source = *r->source;
    int rc = br_stacks_init(&r->stacks, r->build, r->source, r->err);
    r->stacks.path_left = r->path_left;
    choose_type(r, r->profiles[first].unit, several);
    for (uint32_t i = first + 1; rc == 0 && i > 0; i = r->profiles[i - 1].next) {
        const struct profile *p = &r->profiles[i - 1];
        rc = p->evented ? read_evented(r, p) : read_sampled(r, p);
    }
    if (rc == 0)
        rc = name_resource(r, &r->profiles[first], arena, &resource);
    source.resource = &resource;
    if (rc == 0)
        rc = br_stacks_emit(&r->stacks, &source, &r->type, arena, r->err);
    r->path_left = r->stacks.path_left;
    br_stacks_release(&r->stacks);
    return rc;
}

/* Reads a profile and those that are the same. What that takes is given back for the next ones. */
static int read_group(struct reader *r, uint32_t first, bool several)
{
    struct br_arena arena;
    br_arena_init(&arena, r->scratch->max);
    int rc = read_filed(r, first, several, &arena);
    br_arena_release(&arena);
    return rc;
}

/* --- The file --------------------------------------------------------------------------------- */

static void note_shared(struct reader *r, const struct br_json_scan *s,
                        const struct br_json_token *name, const struct br_json_token *value,
                        void *arg)
{
    (void)arg;
    if (is_text(name, "frames"))
        r->frame_list = place_of(s, value, BR_JSON_ARRAY);
}

static void note_root(struct reader *r, const struct br_json_scan *s,
                      const struct br_json_token *name, const struct br_json_token *value,
                      void *arg)
{
    struct place *shared = arg;
    if (is_text(name, "$schema"))
        r->known = is_text(value, SCHEMA);
    else if (is_text(name, "shared"))
        *shared = place_of(s, value, BR_JSON_OBJECT);
    else if (is_text(name, "profiles"))
        r->profile_list = place_of(s, value, BR_JSON_ARRAY);
}

/* Checks the text, and finds where its parts are. */
static int find_parts(struct reader *r)
{
    struct place shared = {NULL};
    struct br_json_scan s = r->scan;
    int rc = each_member(r, &s, note_root, &shared);
    if (!rc)
        rc = br_json_scan_end(&s);
    if (rc || !shared.at)
        return rc;
    s = scan_from(r, shared);
    return each_member(r, &s, note_shared, NULL);
}

static int read_file(struct reader *r)
{
    int rc = find_parts(r);
    if (!rc && !r->known)
        return fail(r, "unknown schema");
    if (!rc)
        rc = each_of(r, r->frame_list, add_frame, NULL);
    if (!rc)
        rc = each_of(r, r->profile_list, note_profile, NULL);
    bool several = br_map_count(r->filed) > 1;
    for (uint32_t i = 0; rc == 0 && i < r->n_profiles; i++)
        if (r->profiles[i].first)
            rc = read_group(r, i, several);
    return rc;
}

int br_speedscope_read(struct br_build *b, const struct br_profile_source *s,
                       struct br_arena *scratch, struct br_err *err)
{
    struct reader r = {.source = s, .build = b, .scratch = scratch, .err = err};
    int rc =
        br_json_scan_init(&r.scan, s->len ? (const char *)s->data : "", s->len, DEPTH_MAX, err);
    if (rc != 0)
        return rc == BR_ETOOBIG ? BR_EINVAL : rc;
    br_random_bytes(r.secret, sizeof r.secret);
    r.path_left = br_profile_text_max(s);
    r.filed = br_map_new(PROFILES_MAX);
    rc = r.filed ? read_file(&r) : no_memory(&r);
    br_map_free(r.filed, NULL);
    br_free(r.profiles);
    br_free(r.frames);
    br_free(r.text);
    br_free(r.open);
    br_free(r.open_frames);
    return rc;
}
