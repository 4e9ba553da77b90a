/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "otlp/edit/edit.h"
#include "profile/pprof/internal.h"

#define NAME_MAX_LEN 256
#define COMPOSE_SPARE (64u << 10)
#define PROFILE_SIZE 512 /* largest encoded size of a Profile without its samples, in bytes */

struct types {
    uint32_t count;
    uint32_t type[BR_PPROF_READ_TYPES_MAX],
        /* type and unit of each sample type, as indices of strings in the builder */
        unit[BR_PPROF_READ_TYPES_MAX];
    const char *names[BR_PPROF_READ_TYPES_MAX];
    /* Datadog: value of `__name__` for each sample type; NULL: the name of the sample type is
     * used */
    const char *metrics[BR_PPROF_READ_TYPES_MAX];
};

/* Datadog's sample types and the names that other profilers use for them. Counts of samples keep
 * their own names: together with a period of CPU time, "samples" would be read as CPU time. */
static const struct {
    const char *name, *type, *metric;
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

static size_t pprof_read_datadog_type(const struct br_pprof *pprof, uint64_t index)
{
    size_t len, k = 0;
    const uint8_t *text = br_pprof_text(pprof, index, &len);
    while (k < BR_COUNT(datadog_types) &&
           (len != strlen(datadog_types[k].name) || memcmp(text, datadog_types[k].name, len) != 0))
        k++;
    return k;
}

static int pprof_read_invalid(struct br_pprof *pprof, const char *what)
{
    return br_err_set(pprof->err, BR_EINVAL, "pprof: %s", what);
}

/* --- Fields of Profile ------------------------------------------------------------------------ */

static bool pprof_read_is_nested(uint32_t number)
{
    return number <= BR_PPROF_STRING || number == BR_PPROF_PERIOD_TYPE;
}

/* Records the position of a field. Also records and skips the following fields that have the
 * same number, are length-delimited and are shorter than 128 bytes, as most fields are. Returns
 * the position after the last recorded or skipped field. */
static const uint8_t *pprof_read_note(struct br_pprof *pprof, const struct br_field *field,
                                      const uint8_t *next, const uint8_t *end)
{
    struct br_pprof_range *range = &pprof->ranges[field->number];
    uint32_t count = range->count + 1, tag = br_scan_tag(field);
    if (!range->count)
        range->start = field->at;
    if (field->wire == BR_WIRE_VARINT)
        pprof->scalars[field->number] = field->value;
    else
        for (; end - next >= 2 && next[0] == tag && next[1] < 0x80 && next[1] <= end - next - 2;
             count++)
            next += 2 + next[1];
    range->count = count;
    range->end = next;
    return next;
}

static int pprof_read_top(struct br_pprof *pprof)
{
    const uint8_t *at = pprof->source->data, *end = at + pprof->source->len;
    struct br_field field;
    if (pprof->source->len > UINT32_MAX)
        return br_err_set(pprof->err, BR_ETOOBIG, "pprof: 4 GiB or more");
    while (at < end) {
        const uint8_t *start = at;
        at = br_scan(at, end, &field);
        if (!at)
            return br_err_set(pprof->err, BR_EINVAL, "pprof: malformed protobuf at byte %zu",
                              (size_t)(start - pprof->source->data));
        if (field.number >= BR_PPROF_FIELDS)
            continue;
        enum br_wire wire = pprof_read_is_nested(field.number) ? BR_WIRE_LEN : BR_WIRE_VARINT;
        if (field.wire != wire && !(field.number == BR_PPROF_COMMENT && field.wire == BR_WIRE_LEN))
            return br_err_set(pprof->err, BR_EINVAL, "pprof: field %u has the wrong wire type",
                              field.number);
        at = pprof_read_note(pprof, &field, at, end);
    }
    return 0;
}

/* --- Sample types ----------------------------------------------------------------------------- */

static int pprof_read_value_type(struct br_pprof *pprof, const struct br_field *field,
                                 uint64_t *type, uint64_t *unit)
{
    uint64_t v[3] = {0};
    if (!br_pprof_scalars(field->data, field->data + field->value, v, 2))
        return pprof_read_invalid(pprof, "a value type is malformed");
    *type = v[1];
    *unit = v[2];
    return 0;
}

static bool pprof_read_is_dotnet(const struct br_pprof *pprof)
{
    const struct br_profile_source *source = pprof->source;
    if (source->spy_name && strcmp(source->spy_name, "unknown") != 0)
        return strcmp(source->spy_name, "dotnetspy") == 0;
    for (size_t i = 0; source->from_pyroscope && i < source->n_types; i++)
        if (source->types[i].type && !strcmp(source->types[i].type, "inuse-space"))
            return true;
    return false;
}

/* Returns in `ret` the name of a sample type, which is allocated in the arena. For .NET and
 * Datadog each '-' becomes '_', as in "inuse_space". */
static int pprof_read_name(struct br_pprof *pprof, uint64_t index, const char **ret)
{
    size_t len;
    const uint8_t *text = br_pprof_text(pprof, index, &len);
    if (!text)
        return br_pprof_no_string(pprof, index, "sample type");
    if (len > BR_PPROF_NAME_MAX)
        return br_err_set(pprof->err, BR_EINVAL,
                          "pprof: a sample type's name has more than %u bytes", BR_PPROF_NAME_MAX);
    char *name = br_arena_strndup(pprof->arena, (const char *)text, len);
    for (char *c = name; c && *c && (pprof->dotnet || pprof->datadog); c++)
        if (*c == '-')
            *c = '_';
    *ret = name;
    return name ? 0 : br_pprof_no_memory(pprof);
}

static int pprof_read_type(struct br_pprof *pprof, struct types *types,
                           const struct br_field *field)
{
    uint64_t type = 0, unit = 0;
    int rc = pprof_read_value_type(pprof, field, &type, &unit);
    size_t datadog_index =
        !rc && pprof->datadog ? pprof_read_datadog_type(pprof, type) : BR_COUNT(datadog_types);
    if (!rc)
        rc = pprof_read_name(pprof, type, &types->names[types->count]);
    if (rc)
        return rc;
    types->metrics[types->count] = NULL;
    if (datadog_index < BR_COUNT(datadog_types)) {
        types->names[types->count] = datadog_types[datadog_index].type;
        types->metrics[types->count] = datadog_types[datadog_index].metric;
    }
    const char *name = types->names[types->count];
    if (pprof->dotnet || pprof->datadog)
        types->type[types->count] = br_build_string(pprof->build, name, strlen(name));
    else if (!br_pprof_string(pprof, type, "sample type", &types->type[types->count]))
        return BR_EINVAL;
    return br_pprof_string(pprof, unit, "sample type", &types->unit[types->count]) ? 0 : BR_EINVAL;
}

/* Returns true if a sample type has one of the names that Datadog's profilers use. Datadog's Go
 * profiler does not use these names, because it sends the pprofs of Go's runtime. */
static bool pprof_read_is_datadog(const struct br_pprof *pprof)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_SAMPLE_TYPE];
    const uint8_t *at = range->start;
    struct br_field field;
    uint64_t v[3];
    while (pprof->source->datadog &&
           br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_SAMPLE_TYPE), &field)) {
        v[1] = 0;
        if (br_pprof_scalars(field.data, field.data + field.value, v, 2) &&
            v[1] < pprof->n_strings &&
            pprof_read_datadog_type(pprof, v[1]) < BR_COUNT(datadog_types))
            return true;
    }
    return false;
}

static int pprof_read_types(struct br_pprof *pprof, struct types *types)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_SAMPLE_TYPE];
    const uint8_t *at = range->start;
    struct br_field field;
    int rc = 0;
    if (range->count == 0)
        return pprof_read_invalid(pprof, "there are samples but no sample types");
    if (range->count > BR_PPROF_READ_TYPES_MAX)
        return br_err_set(pprof->err, BR_EINVAL, "pprof: more than %u sample types",
                          BR_PPROF_READ_TYPES_MAX);
    pprof->datadog = pprof_read_is_datadog(pprof);
    for (; !rc && br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_SAMPLE_TYPE), &field);
         types->count++)
        rc = pprof_read_type(pprof, types, &field);
    return rc;
}

/* --- The scope -------------------------------------------------------------------------------- */

static int pprof_read_add_order(struct br_pprof *pprof, struct br_addition *addition,
                                uint32_t count)
{
    int64_t order[BR_PPROF_READ_TYPES_MAX];
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    return br_add_ints(pprof->arena, addition, 3, BR_SCOPE_SAMPLE_TYPE_ORDER, order, count);
}

static int pprof_read_add_name(struct br_pprof *pprof, struct br_addition *addition,
                               const struct types *types)
{
    const struct br_profile_source *source = pprof->source;
    char found[NAME_MAX_LEN];
    const char *name = source->pyroscope_name;
    if (!name && !source->from_pyroscope)
        return 0;
    if (!name) {
        br_pyroscope_name(types->names, types->count, source->types, source->n_types, found,
                          sizeof found);
        name = found;
    }
    return br_add_string(pprof->arena, addition, 3, BR_SCOPE_PYROSCOPE_NAME, name, strlen(name));
}

/* Returns the string of a field of Profile, or the empty string if the field is absent. */
static const uint8_t *pprof_read_top_text(struct br_pprof *pprof, uint32_t field, const char *what,
                                          size_t *ret_len)
{
    *ret_len = 0;
    return pprof->ranges[field].count
               ? br_pprof_text_or_empty(pprof, pprof->scalars[field], what, ret_len)
               : (const uint8_t *)"";
}

static int pprof_read_open_scope(struct br_pprof *pprof, const struct types *types)
{
    struct br_addition addition = {0};
    size_t len;
    const uint8_t *text =
        pprof_read_top_text(pprof, BR_PPROF_DEFAULT_TYPE, "default_sample_type", &len);
    if (len > BR_PPROF_NAME_MAX)
        return br_err_set(pprof->err, BR_EINVAL,
                          "pprof: default_sample_type has more than %u bytes", BR_PPROF_NAME_MAX);
    int rc = 0;
    if (len)
        rc = br_add_string(pprof->arena, &addition, 3, BR_SCOPE_DEFAULT_SAMPLE_TYPE, text, len);
    if (!rc && !pprof->datadog)
        rc = pprof_read_add_order(pprof, &addition, types->count);
    if (!rc)
        rc = pprof_read_add_name(pprof, &addition, types);
    if (rc)
        return br_pprof_no_memory(pprof);
    br_build_resource(pprof->build, pprof->source->resource);
    if (!pprof->datadog)
        br_build_scope(pprof->build, NULL, NULL, &addition);
    return 0;
}

/* --- Profiles --------------------------------------------------------------------------------- */

enum { ATTRIBUTES_MAX = 5 };

static uint32_t pprof_read_key_of(struct br_pprof *pprof, const char *name)
{
    return br_build_string(pprof->build, name, strlen(name));
}

/* State while the comments of a pprof are read. The comments are read twice: the first pass
 * counts them, the second pass stores them. */
struct comments {
    /* array of all comments; NULL: first pass, which only counts the comments */
    struct br_addition *comments;
    uint32_t count;
};

static int pprof_read_add_comment(struct br_pprof *pprof, struct comments *comments, uint64_t index)
{
    struct br_addition text;
    text.data = br_pprof_text(pprof, index, &text.len);
    if (!text.data) {
        if (!comments->comments)
            (void)br_pprof_text_or_empty(pprof, index, "comment", &text.len);
        return 0;
    }
    if (comments->comments)
        comments->comments[comments->count] = text;
    comments->count++;
    return comments->comments ? 0 : br_pprof_compose(pprof, sizeof text + text.len);
}

/* Reads one comment field, which may be packed. */
static int pprof_read_comment(struct br_pprof *pprof, struct comments *comments,
                              const struct br_field *field)
{
    if (field->wire == BR_WIRE_VARINT)
        return pprof_read_add_comment(pprof, comments, field->value);
    int rc = 0;
    for (const uint8_t *at = field->data, *end = at + field->value; at < end && !rc;) {
        uint64_t i;
        at = br_varint(at, end, &i);
        if (!at)
            return pprof_read_invalid(pprof, "comments are malformed");
        rc = pprof_read_add_comment(pprof, comments, i);
    }
    return rc;
}

static int pprof_read_comments(struct br_pprof *pprof, struct comments *comments)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_COMMENT];
    struct br_field field;
    int rc = 0;
    comments->count = 0;
    for (const uint8_t *at = range->start; at < range->end && !rc;) {
        at = br_scan(at, range->end, &field);
        if (field.number == BR_PPROF_COMMENT)
            rc = pprof_read_comment(pprof, comments, &field);
    }
    return rc;
}

/* Adds all comments as one attribute. */
static int pprof_read_put_comments(struct br_pprof *pprof, uint32_t *attributes, size_t *count)
{
    struct comments comments = {0};
    int rc = pprof_read_comments(pprof, &comments);
    if (rc || comments.count == 0)
        return rc;
    comments.comments = br_pprof_alloc(pprof, comments.count, sizeof *comments.comments);
    if (!comments.comments)
        return br_pprof_no_memory(pprof);
    (void)pprof_read_comments(pprof, &comments);
    attributes[(*count)++] =
        br_build_attribute_texts(pprof->build, pprof_read_key_of(pprof, BR_PROFILE_COMMENT),
                                 comments.comments, comments.count);
    return 0;
}

/* Builds the attributes that are the same for all Profiles made from this pprof. */
static int pprof_read_attributes(struct br_pprof *pprof, uint32_t *attributes, size_t *count)
{
    static const struct {
        uint32_t field;
        const char *name;
    } texts[] = {{BR_PPROF_DROP_FRAMES, BR_PROFILE_DROP_FRAMES},
                 {BR_PPROF_KEEP_FRAMES, BR_PROFILE_KEEP_FRAMES},
                 {BR_PPROF_DOC_URL, BR_PROFILE_DOC_URL}};
    for (size_t i = 0; i < BR_COUNT(texts); i++) {
        size_t len;
        const uint8_t *text = pprof_read_top_text(pprof, texts[i].field, texts[i].name, &len);
        if (len)
            attributes[(*count)++] = br_build_attribute_text(
                pprof->build, pprof_read_key_of(pprof, texts[i].name), text, len);
    }
    return pprof_read_put_comments(pprof, attributes, count);
}

/* Returns true if `type` is a sample type whose values are counters of the Go runtime, which are
 * never reset. */
static bool pprof_read_is_go_counter(const char *type)
{
    static const char *const counted[] = {"alloc_objects", "alloc_space", "contentions", "delay"};
    size_t i = 0;
    while (i < BR_COUNT(counted) && strcmp(counted[i], type) != 0)
        i++;
    return i < BR_COUNT(counted);
}

/* Only counters can be totals since the process began. The amount of memory in use is a
 * momentary value. */
static bool pprof_read_is_cumulative(const struct br_pprof *pprof, const char *type)
{
    const struct br_profile_source *source = pprof->source;
    /* The Go runtime writes a duration only into the difference between two profiles
     * (?seconds=). */
    if ((source->go_totals || (source->from_file && pprof->scalars[BR_PPROF_DURATION] == 0)) &&
        pprof_read_is_go_counter(type))
        return true;
    for (size_t i = 0; i < source->n_types; i++)
        if (source->types[i].type && !strcmp(source->types[i].type, type) &&
            source->types[i].cumulative)
            return true;
    return source->cumulative && !br_text_starts(type, "inuse_");
}

static int pprof_read_period(struct br_pprof *pprof, struct br_build_profile *profile)
{
    const struct br_pprof_range *range = &pprof->ranges[BR_PPROF_PERIOD_TYPE];
    const uint8_t *at = range->start;
    struct br_field field;
    while (br_pprof_next(&at, range->end, BR_SCAN_LEN(BR_PPROF_PERIOD_TYPE), &field)) {
        uint64_t type = 0, unit = 0;
        int rc = pprof_read_value_type(pprof, &field, &type, &unit);
        if (rc)
            return rc;
        size_t datadog_index =
            pprof->datadog ? pprof_read_datadog_type(pprof, type) : BR_COUNT(datadog_types);
        if (datadog_index < BR_COUNT(datadog_types))
            profile->period_type = pprof_read_key_of(pprof, datadog_types[datadog_index].type);
        else
            profile->period_type = br_pprof_string_or_empty(pprof, type, "period type");
        profile->period_unit = br_pprof_string_or_empty(pprof, unit, "period type");
    }
    profile->period = (int64_t)pprof->scalars[BR_PPROF_PERIOD];
    return 0;
}

static uint64_t pprof_read_time_of(const struct br_pprof *pprof)
{
    int64_t time = (int64_t)pprof->scalars[BR_PPROF_TIME];
    if (time >= (int64_t)BR_TIME_MIN_NS || (time > 0 && !pprof->source->start_ns))
        return (uint64_t)time;
    return pprof->source->start_ns;
}

/* Returns the largest size of a buffer that is allocated for `len` bytes, because an allocated
 * buffer may be a quarter larger than requested. */
static size_t pprof_read_buffer_size(size_t len)
{
    return len + len / 4;
}

/* Opens a scope for a sample type of Datadog. Each sample type of Datadog has a scope with a
 * different `__name__`. */
static bool pprof_read_open_type_scope(struct br_pprof *pprof, const char *metric)
{
    struct br_addition addition = {0};
    if (br_add_string(pprof->arena, &addition, 3, BR_SCOPE_PYROSCOPE_METRIC, metric,
                      strlen(metric)) != 0)
        return false;
    br_build_scope(pprof->build, NULL, NULL, &addition);
    return true;
}

static int pprof_read_put_profiles(struct br_pprof *pprof, const struct types *types)
{
    uint32_t attributes[ATTRIBUTES_MAX];
    size_t n = 0;
    int64_t duration = (int64_t)pprof->scalars[BR_PPROF_DURATION];
    struct br_build_profile profile = {.time_ns = pprof_read_time_of(pprof),
                                       .duration_ns = duration > 0 ? (uint64_t)duration : 0,
                                       .profile_id = pprof->source->profile_id,
                                       .attributes = attributes};
    int rc = pprof_read_attributes(pprof, attributes, &n);
    if (!rc)
        rc = pprof_read_period(pprof, &profile);
    size_t size = pprof->records.size + (size_t)types->count * PROFILE_SIZE;
    if (!rc && !br_pprof_fits(pprof, pprof_read_buffer_size(size)))
        return br_pprof_no_memory(pprof);
    if (!rc)
        br_build_reserve(pprof->build, size);
    for (uint32_t i = 0; i < types->count && !rc; i++) {
        if (pprof->datadog && !(pprof->nonzero >> i & 1))
            continue;
        if (pprof->datadog && !pprof_read_open_type_scope(
                                  pprof, types->metrics[i] ? types->metrics[i] : types->names[i]))
            return br_pprof_no_memory(pprof);
        profile.type = types->type[i];
        profile.unit = types->unit[i];
        profile.n_attributes = n;
        if (pprof_read_is_cumulative(pprof, types->names[i]))
            attributes[profile.n_attributes++] = br_build_attribute_bool(
                pprof->build, pprof_read_key_of(pprof, BR_PROFILE_CUMULATIVE), true);
        br_build_profile(pprof->build, &profile);
        /* Only the first Profile made from the pprof contains the profile ID. */
        profile.profile_id = NULL;
        br_pprof_put_samples(pprof, i);
        if (br_build_rc(pprof->build))
            rc = br_pprof_no_memory(pprof);
    }
    return rc;
}

/* Returns true if there is enough memory to take the finished request out of the builder. The
 * arena is freed before the request is taken out, so the memory of the arena does not count. */
static bool pprof_read_fits_request(struct br_pprof *pprof)
{
    size_t built =
        br_build_memory(pprof->build) + pprof_read_buffer_size(br_build_take_size(pprof->build));
    pprof->full = built + pprof->records.size / 4 > pprof->built + pprof->max_bytes;
    return !pprof->full;
}

static int pprof_read_whole(struct br_pprof *pprof)
{
    struct types types;
    /* Only the count of `types` is cleared, because entries beyond the count are not read. */
    types.count = 0;
    int rc = br_pprof_read_strings(pprof);
    if (!rc)
        rc = pprof_read_types(pprof, &types);
    if (!rc)
        rc = br_pprof_read_tables(pprof);
    if (!rc)
        rc = br_pprof_read_samples(pprof, types.count);
    if (!rc)
        rc = pprof_read_open_scope(pprof, &types);
    if (!rc)
        rc = pprof_read_put_profiles(pprof, &types);
    return rc || pprof_read_fits_request(pprof) ? rc : br_pprof_no_memory(pprof);
}

static void pprof_read_report_strays(const struct br_pprof *pprof)
{
    struct br_profile_lost *into = pprof->source->lost;
    if (!into)
        return;
    if (!into->strays)
        into->first_stray = pprof->lost.first_stray;
    into->strays += pprof->lost.strays;
}

int br_pprof_read(struct br_build *build, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err)
{
    struct br_err ignored = {0};
    struct br_pprof p = {
        .build = build, .source = source, .arena = scratch, .err = err ? err : &ignored};
    int rc = pprof_read_top(&p);
    if (rc || !p.ranges[BR_PPROF_SAMPLE].count)
        return rc;
    p.dotnet = pprof_read_is_dotnet(&p);
    p.max_bytes = BR_PPROF_GROWTH * source->len + BR_PPROF_SPARE;
    p.compose = BR_PPROF_GROWTH * source->len + COMPOSE_SPARE;
    p.built = br_build_memory(build);
    p.arena_before = scratch->used;
    p.build_limit = br_build_limit(build, p.built + p.max_bytes);
    br_pprof_limit_builder(&p);
    rc = pprof_read_whole(&p);
    br_pprof_release_labels(&p);
    if (!rc)
        pprof_read_report_strays(&p);
    (void)br_build_limit(build, p.build_limit);
    return rc;
}
