/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/pprof/internal.h"

/* 1971-01-01. Some agents count microseconds, which end up in 1970. */
#define TIME_MIN (INT64_C(365) * 86400 * 1000000000)
#define NAME_MAX_LEN 256
#define COMPOSE_SPARE (64u << 10)
#define PROFILE_SIZE 512 /* bytes of a Profile beside its samples, at most */

struct types {
    uint32_t n;
    uint32_t type[BR_PPROF_MOST_TYPES], unit[BR_PPROF_MOST_TYPES]; /* strings of the builder */
    const char *names[BR_PPROF_MOST_TYPES];
    const char *metrics[BR_PPROF_MOST_TYPES]; /* Datadog's: Pyroscope's name; NULL: as the type's */
};

/* Datadog's types by the names that the same things have in other profilers' pprofs. Numbers of samples
 * keep theirs: beside a period of CPU time "samples" would be CPU time. */
static const struct {
    const char *theirs, *type, *metric;
} datadog_types[] = {
    {"cpu-time", "cpu", "process_cpu"},
    {"cpu-samples", "cpu_samples", "process_cpu"},
    {"wall-time", "wall", "wall"},
    {"wall-samples", "wall_samples", "wall"},
    {"alloc-space", "alloc_space", "memory"},
    {"alloc-samples", "alloc_objects", "memory"},
    {"heap-space", "inuse_space", "memory"},
    {"heap-live-samples", "inuse_objects", "memory"},
    {"lock-acquire-wait", "delay", "mutex"},
    {"lock-acquire", "contentions", "mutex"},
};

static size_t datadog_type(const struct br_pprof *p, uint64_t i)
{
    size_t len, k = 0;
    const uint8_t *text = br_pprof_text(p, i, &len);
    while (k < BR_COUNT(datadog_types) &&
           (len != strlen(datadog_types[k].theirs) || memcmp(text, datadog_types[k].theirs, len) != 0))
        k++;
    return k;
}

static int invalid(struct br_pprof *p, const char *what)
{
    return br_err_set(p->err, BR_EINVAL, "pprof: %s", what);
}

/* --- The top level ---------------------------------------------------------------------------- */

static bool is_nested(uint32_t number)
{
    return number <= BR_PPROF_STRING || number == BR_PPROF_PERIOD_TYPE;
}

static void note(struct br_pprof *p, const struct br_field *f, const uint8_t *next)
{
    struct br_pprof_range *r = &p->ranges[f->number];
    if (r->n++ == 0)
        r->start = f->at;
    r->end = next;
    if (f->wire == BR_WIRE_VARINT)
        p->scalars[f->number] = f->value;
}

static int read_top(struct br_pprof *p)
{
    const uint8_t *at = p->source->data, *end = at + p->source->len;
    struct br_field f;
    if (p->source->len > UINT32_MAX)
        return br_err_set(p->err, BR_ETOOBIG, "pprof: 4 GiB or more");
    while (at < end) {
        const uint8_t *start = at;
        at = br_scan(at, end, &f);
        if (!at)
            return br_err_set(p->err, BR_EINVAL, "pprof: malformed protobuf at byte %zu",
                              (size_t)(start - p->source->data));
        if (f.number >= BR_PPROF_FIELDS)
            continue;
        enum br_wire wire = is_nested(f.number) ? BR_WIRE_LEN : BR_WIRE_VARINT;
        if (f.wire != wire && !(f.number == BR_PPROF_COMMENT && f.wire == BR_WIRE_LEN))
            return br_err_set(p->err, BR_EINVAL, "pprof: field %u has the wrong wire type",
                              f.number);
        note(p, &f, at);
    }
    return 0;
}

/* --- Sample types ----------------------------------------------------------------------------- */

static int read_value_type(struct br_pprof *p, const struct br_field *f, uint64_t *type,
                           uint64_t *unit)
{
    uint64_t v[3] = {0};
    size_t len;
    if (!br_pprof_scalars(f->data, f->data + f->value, v, 2))
        return invalid(p, "a value type is malformed");
    for (unsigned i = 1; i <= 2; i++)
        if (!br_pprof_text(p, v[i], &len))
            return br_pprof_no_string(p, v[i], "value type");
    *type = v[1];
    *unit = v[2];
    return 0;
}

static bool is_dotnet(const struct br_pprof *p)
{
    const struct br_profile_source *s = p->source;
    if (s->spy_name && strcmp(s->spy_name, "unknown"))
        return !strcmp(s->spy_name, "dotnetspy");
    for (size_t i = 0; s->from_pyroscope && i < s->n_types; i++)
        if (s->types[i].type && !strcmp(s->types[i].type, "inuse-space"))
            return true;
    return false;
}

/* A terminated copy of a type's name, "inuse-space" as "inuse_space" where it comes from .NET or is
 * Datadog's. */
static int read_name(struct br_pprof *p, uint64_t i, const char **ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(p, i, &len);
    if (len > BR_PPROF_MOST_NAME)
        return br_err_set(p->err, BR_EINVAL, "pprof: a sample type's name has more than %u bytes",
                          BR_PPROF_MOST_NAME);
    char *name = br_arena_strndup(p->arena, (const char *)text, len);
    for (char *c = name; c && *c && (p->dotnet || p->datadog); c++)
        if (*c == '-')
            *c = '_';
    *ret = name;
    return name ? 0 : br_pprof_no_memory(p);
}

static int read_type(struct br_pprof *p, struct types *t, const struct br_field *f)
{
    uint64_t type, unit;
    int rc = read_value_type(p, f, &type, &unit);
    size_t theirs = !rc && p->datadog ? datadog_type(p, type) : BR_COUNT(datadog_types);
    if (!rc)
        rc = read_name(p, type, &t->names[t->n]);
    if (rc)
        return rc;
    t->metrics[t->n] = NULL;
    if (theirs < BR_COUNT(datadog_types)) {
        t->names[t->n] = datadog_types[theirs].type;
        t->metrics[t->n] = datadog_types[theirs].metric;
    }
    const char *name = t->names[t->n];
    if (p->dotnet || p->datadog)
        t->type[t->n] = br_build_string(p->b, name, strlen(name));
    else if (!br_pprof_string(p, type, "sample type", &t->type[t->n]))
        return BR_EINVAL;
    return br_pprof_string(p, unit, "sample type", &t->unit[t->n]) ? 0 : BR_EINVAL;
}

/* Their Go profiler's pprofs are Go's own. */
static bool is_datadog(const struct br_pprof *p)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_SAMPLE_TYPE];
    const uint8_t *at = r->start;
    struct br_field f;
    uint64_t v[3];
    while (p->source->datadog && br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_SAMPLE_TYPE), &f)) {
        v[1] = 0;
        if (br_pprof_scalars(f.data, f.data + f.value, v, 2) && v[1] < p->n_strings &&
            datadog_type(p, v[1]) < BR_COUNT(datadog_types))
            return true;
    }
    return false;
}

static int read_types(struct br_pprof *p, struct types *t)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_SAMPLE_TYPE];
    const uint8_t *at = r->start;
    struct br_field f;
    int rc = 0;
    if (r->n == 0)
        return invalid(p, "samples without sample types");
    if (r->n > BR_PPROF_MOST_TYPES)
        return br_err_set(p->err, BR_EINVAL, "pprof: more than %u sample types",
                          BR_PPROF_MOST_TYPES);
    p->datadog = is_datadog(p);
    for (; !rc && br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_SAMPLE_TYPE), &f); t->n++)
        rc = read_type(p, t, &f);
    return rc;
}

/* --- The scope -------------------------------------------------------------------------------- */

static int add_order(struct br_pprof *p, struct br_addition *a, uint32_t n)
{
    int64_t order[BR_PPROF_MOST_TYPES];
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    return br_add_ints(p->arena, a, 3, BR_SCOPE_SAMPLE_TYPE_ORDER, order, n);
}

static int add_name(struct br_pprof *p, struct br_addition *a, const struct types *t)
{
    const struct br_profile_source *s = p->source;
    char found[NAME_MAX_LEN];
    const char *name = s->pyroscope_name;
    if (!name && !s->from_pyroscope)
        return 0;
    if (!name) {
        br_pyroscope_name(t->names, t->n, s->types, s->n_types, found, sizeof found);
        name = found;
    }
    return br_add_string(p->arena, a, 3, BR_SCOPE_PYROSCOPE_NAME, name, strlen(name));
}

/* The text that a field of Profile refers to, empty where there is no such field. */
static const uint8_t *top_text(const struct br_pprof *p, uint32_t field, size_t *ret_len)
{
    static const uint8_t empty[1];
    *ret_len = 0;
    return p->ranges[field].n ? br_pprof_text(p, p->scalars[field], ret_len) : empty;
}

static int open_scope(struct br_pprof *p, const struct types *t)
{
    struct br_addition a = {0};
    size_t len;
    const uint8_t *text = top_text(p, BR_PPROF_DEFAULT_TYPE, &len);
    if (!text)
        return br_pprof_no_string(p, p->scalars[BR_PPROF_DEFAULT_TYPE], "default_sample_type");
    if (len > BR_PPROF_MOST_NAME)
        return br_err_set(p->err, BR_EINVAL, "pprof: default_sample_type has more than %u bytes",
                          BR_PPROF_MOST_NAME);
    int rc = 0;
    if (len)
        rc = br_add_string(p->arena, &a, 3, BR_SCOPE_DEFAULT_SAMPLE_TYPE, text, len);
    if (!rc && !p->datadog)
        rc = add_order(p, &a, t->n);
    if (!rc)
        rc = add_name(p, &a, t);
    if (rc)
        return br_pprof_no_memory(p);
    br_build_resource(p->b, p->source->resource);
    if (!p->datadog)
        br_build_scope(p->b, NULL, NULL, &a);
    return 0;
}

/* --- The profiles ----------------------------------------------------------------------------- */

enum { ATTRIBUTES_MAX = 5 };

static uint32_t key_of(struct br_pprof *p, const char *name)
{
    return br_build_string(p->b, name, strlen(name));
}

/* Comments, of which the places are there once they were counted. */
struct comments {
    struct br_addition *v; /* NULL: they are being counted */
    uint32_t n;
};

static int add_comment(struct br_pprof *p, struct comments *c, uint64_t i)
{
    struct br_addition text;
    text.data = br_pprof_text(p, i, &text.len);
    if (!text.data)
        return br_pprof_no_string(p, i, "comment");
    if (c->v)
        c->v[c->n] = text;
    c->n++;
    return c->v ? 0 : br_pprof_compose(p, sizeof text + text.len);
}

/* One field of it, packed or not. */
static int read_comment(struct br_pprof *p, struct comments *c, const struct br_field *f)
{
    if (f->wire == BR_WIRE_VARINT)
        return add_comment(p, c, f->value);
    int rc = 0;
    for (const uint8_t *at = f->data, *end = at + f->value; at < end && !rc;) {
        uint64_t i;
        at = br_varint(at, end, &i);
        if (!at)
            return invalid(p, "comments are malformed");
        rc = add_comment(p, c, i);
    }
    return rc;
}

static int read_comments(struct br_pprof *p, struct comments *c)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_COMMENT];
    struct br_field f;
    int rc = 0;
    c->n = 0;
    for (const uint8_t *at = r->start; at < r->end && !rc;) {
        at = br_scan(at, r->end, &f);
        if (f.number == BR_PPROF_COMMENT)
            rc = read_comment(p, c, &f);
    }
    return rc;
}

/* All of them, as one attribute. */
static int put_comments(struct br_pprof *p, uint32_t *attributes, size_t *n)
{
    struct comments c = {0};
    int rc = read_comments(p, &c);
    if (rc || c.n == 0)
        return rc;
    c.v = br_pprof_alloc(p, c.n, sizeof *c.v);
    if (!c.v)
        return br_pprof_no_memory(p);
    (void)read_comments(p, &c);
    attributes[(*n)++] =
        br_build_attribute_texts(p->b, key_of(p, BR_PROFILE_COMMENT), c.v, c.n);
    return 0;
}

/* What all profiles have in common. */
static int read_attributes(struct br_pprof *p, uint32_t *attributes, size_t *n)
{
    static const struct {
        uint32_t field;
        const char *name;
    } texts[] = {{BR_PPROF_DROP_FRAMES, BR_PROFILE_DROP_FRAMES},
                 {BR_PPROF_KEEP_FRAMES, BR_PROFILE_KEEP_FRAMES},
                 {BR_PPROF_DOC_URL, BR_PROFILE_DOC_URL}};
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        size_t len;
        const uint8_t *text = top_text(p, texts[i].field, &len);
        if (!text)
            return br_pprof_no_string(p, p->scalars[texts[i].field], texts[i].name);
        if (len)
            attributes[(*n)++] = br_build_attribute_text(p->b, key_of(p, texts[i].name), text, len);
    }
    return put_comments(p, attributes, n);
}

/* What Go's runtime counts and never begins anew. */
static bool goes_on(const char *type)
{
    static const char *const counted[] = {"alloc_objects", "alloc_space", "contentions", "delay"};
    size_t i = 0;
    while (i < BR_COUNT(counted) && strcmp(counted[i], type) != 0)
        i++;
    return i < BR_COUNT(counted);
}

/* Only what is counted; what is in use is so at one time. */
static bool is_cumulative(const struct br_pprof *p, const char *type)
{
    const struct br_profile_source *s = p->source;
    /* What it writes has a duration only where it is a difference (?seconds=). */
    if ((s->counts_on || (s->from_file && p->scalars[BR_PPROF_DURATION] == 0)) && goes_on(type))
        return true;
    for (size_t i = 0; i < s->n_types; i++)
        if (s->types[i].type && !strcmp(s->types[i].type, type) && s->types[i].cumulative)
            return true;
    return s->cumulative && strncmp(type, "inuse_", strlen("inuse_")) != 0;
}

static int read_period(struct br_pprof *p, struct br_build_profile *profile)
{
    const struct br_pprof_range *r = &p->ranges[BR_PPROF_PERIOD_TYPE];
    const uint8_t *at = r->start;
    struct br_field f;
    while (br_pprof_next(&at, r->end, BR_SCAN_LEN(BR_PPROF_PERIOD_TYPE), &f)) {
        uint64_t type, unit;
        int rc = read_value_type(p, &f, &type, &unit);
        if (rc)
            return rc;
        size_t theirs = p->datadog ? datadog_type(p, type) : BR_COUNT(datadog_types);
        if (theirs < BR_COUNT(datadog_types))
            profile->period_type = key_of(p, datadog_types[theirs].type);
        else if (!br_pprof_string(p, type, "period type", &profile->period_type))
            return BR_EINVAL;
        if (!br_pprof_string(p, unit, "period type", &profile->period_unit))
            return BR_EINVAL;
    }
    profile->period = (int64_t)p->scalars[BR_PPROF_PERIOD];
    return 0;
}

static uint64_t time_of(const struct br_pprof *p)
{
    int64_t time = (int64_t)p->scalars[BR_PPROF_TIME];
    if (time >= TIME_MIN || (time > 0 && !p->source->start_ns))
        return (uint64_t)time;
    return p->source->start_ns;
}

/* A buffer is larger than what was asked for by a quarter at most. */
static size_t buffer_size(size_t len)
{
    return len + len / 4;
}

/* What each of Datadog's types is is said of that type alone. */
static bool open_type_scope(struct br_pprof *p, const char *metric)
{
    struct br_addition a = {0};
    if (br_add_string(p->arena, &a, 3, BR_SCOPE_PYROSCOPE_METRIC, metric, strlen(metric)) != 0)
        return false;
    br_build_scope(p->b, NULL, NULL, &a);
    return true;
}

static int put_profiles(struct br_pprof *p, const struct types *t)
{
    uint32_t attributes[ATTRIBUTES_MAX];
    size_t n = 0;
    int64_t duration = (int64_t)p->scalars[BR_PPROF_DURATION];
    struct br_build_profile profile = {.time_ns = time_of(p),
                                       .duration_ns = duration > 0 ? (uint64_t)duration : 0,
                                       .profile_id = p->source->profile_id,
                                       .attributes = attributes};
    int rc = read_attributes(p, attributes, &n);
    if (!rc)
        rc = read_period(p, &profile);
    size_t size = p->records.size + (size_t)t->n * PROFILE_SIZE;
    if (!rc && !br_pprof_fits(p, buffer_size(size)))
        return br_pprof_no_memory(p);
    if (!rc)
        br_build_reserve(p->b, size);
    for (uint32_t i = 0; i < t->n && !rc; i++) {
        if (p->datadog && !(p->nonzero >> i & 1))
            continue;
        if (p->datadog && !open_type_scope(p, t->metrics[i] ? t->metrics[i] : t->names[i]))
            return br_pprof_no_memory(p);
        profile.type = t->type[i];
        profile.unit = t->unit[i];
        profile.n_attributes = n;
        if (is_cumulative(p, t->names[i]))
            attributes[profile.n_attributes++] =
                br_build_attribute_bool(p->b, key_of(p, BR_PROFILE_CUMULATIVE), true);
        br_build_profile(p->b, &profile);
        profile.profile_id = NULL; /* it is one's only */
        br_pprof_put_samples(p, i);
        if (br_build_rc(p->b))
            rc = br_pprof_no_memory(p);
    }
    return rc;
}

/* By then the arena is gone. */
static bool fits_taken(struct br_pprof *p)
{
    size_t built = br_build_memory(p->b) + buffer_size(br_build_take_size(p->b));
    p->full = built + p->records.size / 4 > p->built + p->max_bytes;
    return !p->full;
}

static int read_whole(struct br_pprof *p)
{
    struct types types = {.n = 0};
    int rc = br_pprof_read_strings(p);
    if (!rc)
        rc = read_types(p, &types);
    if (!rc)
        rc = br_pprof_read_tables(p);
    if (!rc)
        rc = br_pprof_read_samples(p, types.n);
    if (!rc)
        rc = open_scope(p, &types);
    if (!rc)
        rc = put_profiles(p, &types);
    return rc || fits_taken(p) ? rc : br_pprof_no_memory(p);
}

int br_pprof_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                  struct br_err *err)
{
    struct br_err nobody = {0};
    struct br_pprof p = {.b = b, .source = s, .arena = scratch, .err = err ? err : &nobody};
    int rc = read_top(&p);
    if (rc || !p.ranges[BR_PPROF_SAMPLE].n)
        return rc;
    p.dotnet = is_dotnet(&p);
    p.max_bytes = BR_PPROF_GROWTH * s->len + BR_PPROF_SPARE;
    p.compose = BR_PPROF_GROWTH * s->len + COMPOSE_SPARE;
    p.built = br_build_memory(b);
    p.arena_taken = scratch->used;
    p.build_limit = br_build_limit(b, p.built + p.max_bytes);
    br_pprof_share(&p);
    rc = read_whole(&p);
    br_pprof_release_labels(&p);
    (void)br_build_limit(b, p.build_limit);
    return rc;
}
