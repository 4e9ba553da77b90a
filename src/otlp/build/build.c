/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/build/build.h"

#include "base/err.h"
#include "base/mem.h"
#include "core/host.h"
#include "opentelemetry/proto/common/v1/common.pb-c.h"
#include "opentelemetry/proto/resource/v1/resource.pb-c.h"
#include "otlp/build/internal.h"
#include "otlp/fields.h"
#include "otlp/scan.h"
#include "otlp/walk/internal.h"

/* Expected size of a message in bytes, for which three bytes are reserved for the length. A
 * message whose length needs fewer or more bytes is moved when it is closed. */
#define LIKELY_LEN 16384u

/* Limit in bytes for the memory of a builder. A builder that uses more memory frees its lookup
 * tables before it copies the entries. The tables of a builder that used more memory are not
 * kept for the next request. */
#define STRIPPED_MIN (1u << 20)

/* Largest number of bytes that all fields of a Profile (PROFILE_FIXED) or Sample (SAMPLE_FIXED)
 * take together, except repeated fields. */
#define PROFILE_FIXED 160u
#define SAMPLE_FIXED 64u

enum { REQUEST, RESOURCE, SCOPE, PROFILE }; /* values of br_build.depth */

struct br_build *br_build_new(struct br_host *host, size_t max_bytes)
{
    struct br_build *build = br_calloc(1, sizeof *build);
    if (build)
        br_merger_init(&build->merge, host, max_bytes);
    return build;
}

void br_build_free(struct br_build *build)
{
    if (!build)
        return;
    br_merger_release(&build->merge);
    br_free(build);
}

void br_build_clear(struct br_build *build)
{
    br_merger_clear(&build->merge);
    build->mark = (struct br_merger_mark){0};
    build->depth = REQUEST;
}

void br_build_shrink(struct br_build *build)
{
    br_merger_release(&build->merge);
    br_build_clear(build);
}

size_t br_build_limit(struct br_build *build, size_t max_bytes)
{
    struct br_merge *merge = &build->merge;
    size_t before = merge->budget.max;
    size_t max = max_bytes < merge->max_bytes ? max_bytes : merge->max_bytes;
    merge->budget.max = max > merge->budget.used ? max : merge->budget.used;
    merge->budget.moves = max < merge->max_bytes;
    /* The output size expected from the previous request must leave enough memory for the tables
     * of this request. */
    if (merge->out_hint > (merge->budget.max - merge->budget.used) / 4)
        merge->out_hint = 0;
    return before;
}

size_t br_build_made(const struct br_build *build)
{
    size_t made = build->merge.out ? build->merge.out->len : 0;
    for (unsigned t = 0; t < BR_TABLES; t++)
        made += build->merge.tables[t].len;
    return made;
}

size_t br_build_take_size(const struct br_build *build)
{
    size_t size = 0, stripped = 0;
    for (unsigned t = 0; t < BR_TABLES; t++) {
        size += build->merge.tables[t].len;
        stripped += br_intern_strippable(&build->merge.tables[t]);
    }
    if (build->merge.budget.used <= STRIPPED_MIN)
        return size;
    return size > stripped ? size - stripped : 0;
}

const uint64_t *br_build_secret(struct br_build *build)
{
    (void)br_build_ready(build);
    return build->merge.tables[BR_TABLE_STRING].secret;
}

int br_build_rc(const struct br_build *build)
{
    return build->merge.rc;
}

uint32_t br_build_records(const struct br_build *build)
{
    return build->merge.n_records;
}

bool br_build_start(struct br_build *build)
{
    if (!build->merge.rc && !build->merge.tables[BR_TABLES - 1].count)
        br_merger_fail(&build->merge, br_merger_begin(&build->merge));
    return !build->merge.rc;
}

static void build_close_to(struct br_build *build, unsigned depth)
{
    while (build->depth > depth) {
        build->depth--;
        if (build->depth == REQUEST)
            br_merger_close_part(&build->merge, build->open[0]);
        else
            br_merger_close(&build->merge, build->open[build->depth]);
    }
}

/* Closes the open messages below the level `parent`. Fails with BR_EINVAL if no message at that
 * level is open. */
static bool build_enter(struct br_build *build, unsigned parent)
{
    if (!br_build_ready(build))
        return false;
    if (build->depth < parent) {
        br_merger_fail(&build->merge, BR_EINVAL);
        return false;
    }
    build_close_to(build, parent);
    return !build->merge.rc;
}

/* --- Resource and scope ----------------------------------------------------------------------- */

/* Prepares the scratch buffer, in which messages encoded by the caller are assembled. A br_buf
 * is used because a walk may read bytes after the end of a message (BR_BUF_SLACK). */
static bool build_begin_encoded(struct br_build *build)
{
    if (!build->merge.scratch)
        build->merge.scratch = br_buf_new(build->merge.host->pool, 0);
    if (!build->merge.scratch) {
        br_merger_fail(&build->merge, BR_ENOMEM);
        return false;
    }
    build->merge.scratch->len = 0;
    return true;
}

static void build_put_encoded(struct br_build *build, const void *data, size_t len)
{
    int rc = br_buf_append(&build->merge.scratch, data, len, build->merge.max_bytes);
    br_merger_fail(&build->merge, rc);
}

static void build_put_encoded_text(struct br_build *build, uint32_t field, const char *text)
{
    if (!text || !*text)
        return;
    uint8_t head[2 * BR_VARINT_MAX];
    size_t len = strlen(text);
    uint8_t *o = br_put_varint(head, BR_SCAN_LEN(field));
    build_put_encoded(build, head, (size_t)(br_put_varint(o, len) - head));
    build_put_encoded(build, text, len);
}

typedef bool walk_fn(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                     unsigned depth);

/* Validates the message in the scratch buffer and repairs its strings. */
static void build_end_encoded(struct br_build *build, walk_fn *walk,
                              const ProtobufCMessageDescriptor *desc)
{
    static const struct br_walk_options options = {.utf8 = BR_UTF8_REPAIR};
    struct br_walker walker = {.options = &options, .max_depth = BR_WALK_DEPTH};
    struct br_buf *buf = build->merge.scratch, *fixed;
    uint32_t n_repaired;
    if (build->merge.rc)
        return;
    for (unsigned t = 0; t < BR_TABLES; t++)
        walker.n_tables[t + 1] = build->merge.tables[t].count;
    if (!walk(&walker, buf->data, buf->data + buf->len, 3) || !br_walk_indices_fit(&walker)) {
        br_merger_fail(&build->merge, BR_EINVAL);
        return;
    }
    if (!walker.bad_utf8)
        return;
    int rc = br_utf8_repair(desc, buf->data, buf->len, buf->pool, &fixed, &n_repaired);
    br_merger_fail(&build->merge, rc);
    if (rc)
        return;
    br_buf_unref(buf);
    build->merge.scratch = fixed;
}

void br_build_resource(struct br_build *build, const struct br_addition *attributes)
{
    struct br_part from = {.kind = BR_PART_RESOURCE};
    if (!build_enter(build, REQUEST))
        return;
    if (attributes && attributes->len) {
        if (!build_begin_encoded(build))
            return;
        build_put_encoded(build, attributes->data, attributes->len);
        build_end_encoded(build, br_walk_resource,
                          &opentelemetry__proto__resource__v1__resource__descriptor);
        from.new_resource = build->merge.scratch->data;
        from.new_resource_len = build->merge.scratch->len;
    }
    build->open[REQUEST] = br_merger_open_part(&build->merge, &from, LIKELY_LEN, false);
    build->depth = RESOURCE;
}

void br_build_scope(struct br_build *build, const char *name, const char *version,
                    const struct br_addition *attributes)
{
    if (!build_enter(build, RESOURCE) || !build_begin_encoded(build))
        return;
    build_put_encoded_text(build, BR_SCOPE_NAME, name);
    build_put_encoded_text(build, BR_SCOPE_VERSION, version);
    if (attributes)
        build_put_encoded(build, attributes->data, attributes->len);
    build_end_encoded(build, br_walk_scope,
                      &opentelemetry__proto__common__v1__instrumentation_scope__descriptor);
    build->open[RESOURCE] = br_merger_open(&build->merge, BR_RESOURCES_SCOPES, LIKELY_LEN);
    build->depth = SCOPE;
    if (build->merge.scratch->len)
        br_merger_put_field(&build->merge, BR_SCOPES_SCOPE, build->merge.scratch->data,
                            build->merge.scratch->len);
}

/* --- Profile and samples ---------------------------------------------------------------------- */

static uint8_t *build_put_value_type(uint8_t *out, uint32_t field, uint32_t type, uint32_t unit)
{
    if (!type && !unit)
        return out;
    *out++ = (uint8_t)BR_SCAN_LEN(field);
    uint8_t *body = ++out;
    out = br_merger_put_scalar(out, BR_VALUE_TYPE_TYPE, type);
    out = br_merger_put_scalar(out, BR_VALUE_TYPE_UNIT, unit);
    return br_put_length_before(body, out);
}

static uint8_t *build_put_fixed64(uint8_t *out, uint32_t field, uint64_t value)
{
    if (value == 0)
        return out;
    *out++ = (uint8_t)BR_TAG(field, BR_WIRE_I64);
    return br_put_bytes(out, &value, sizeof value); /* the value is little-endian, as on the wire */
}

void br_build_profile(struct br_build *build, const struct br_build_profile *profile)
{
    const uint32_t strings[] = {profile->type, profile->unit, profile->period_type,
                                profile->period_unit};
    if (!build_enter(build, SCOPE) || !br_build_check(build, BR_TABLE_STRING, strings, 4) ||
        !br_build_check(build, BR_TABLE_ATTRIBUTE, profile->attributes, profile->n_attributes))
        return;
    build->open[SCOPE] = br_merger_open(&build->merge, BR_SCOPES_RECORDS, LIKELY_LEN);
    build->depth = PROFILE;
    uint8_t *o = br_merger_room(&build->merge, PROFILE_FIXED + 5 * profile->n_attributes);
    if (!o)
        return;
    o = build_put_value_type(o, BR_PROFILE_SAMPLE_TYPE, profile->type, profile->unit);
    o = build_put_fixed64(o, BR_PROFILE_TIME, profile->time_ns);
    o = br_merger_put_scalar(o, BR_PROFILE_DURATION, profile->duration_ns);
    o = build_put_value_type(o, BR_PROFILE_PERIOD_TYPE, profile->period_type, profile->period_unit);
    o = br_merger_put_scalar(o, BR_PROFILE_PERIOD, (uint64_t)profile->period);
    if (profile->profile_id)
        o = br_put_len(o, BR_PROFILE_PROFILE_ID, profile->profile_id, 16);
    o = br_build_put_list(o, BR_PROFILE_ATTRIBUTES, profile->attributes, profile->n_attributes);
    br_merger_wrote(&build->merge, o);
}

static uint8_t *build_put_values(uint8_t *out, const int64_t *values, size_t count)
{
    if (count == 0)
        return out;
    *out++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_VALUES);
    uint8_t *list = ++out;
    for (size_t i = 0; i < count; i++)
        out = br_put_varint(out, (uint64_t)values[i]);
    return br_put_length_before(list, out);
}

static uint8_t *build_put_times(uint8_t *out, const uint64_t *times_ns, size_t count)
{
    return count ? br_put_len(out, BR_SAMPLE_TIMES, times_ns, count * sizeof *times_ns) : out;
}

/* Returns true if all entries to which the sample's indices refer exist. Otherwise records
 * BR_EINVAL. */
static bool build_refers_well(struct br_build *build, const struct br_build_sample *sample)
{
    if (__builtin_expect(sample->stack < build->merge.tables[BR_TABLE_STACK].count &&
                             sample->link < build->merge.tables[BR_TABLE_LINK].count,
                         1))
        return sample->n_attributes == 0 ||
               br_build_check(build, BR_TABLE_ATTRIBUTE, sample->attributes, sample->n_attributes);
    br_merger_fail(&build->merge, BR_EINVAL);
    return false;
}

/* Checks the rules that br_walk enforces for the samples of received requests. Records BR_EINVAL if
 * a rule is violated. */
static bool build_is_sample(struct br_build *build, const struct br_build_sample *sample)
{
    bool counts = sample->n_values ? !sample->n_times || sample->n_times == sample->n_values
                                   : sample->n_times > 0;
    if (__builtin_expect(build->depth == PROFILE && counts, 1))
        return build_refers_well(build, sample);
    br_merger_fail(&build->merge, BR_EINVAL);
    return false;
}

uint8_t *br_build_prefix(struct br_build *build, const struct br_build_sample *sample, uint8_t *out)
{
    if (!br_build_ready(build) || !build_refers_well(build, sample))
        return out;
    out = br_merger_put_scalar(out, BR_SAMPLE_STACK, sample->stack);
    out = br_build_put_list(out, BR_SAMPLE_ATTRIBUTES, sample->attributes, sample->n_attributes);
    return br_merger_put_scalar(out, BR_SAMPLE_LINK, sample->link);
}

void br_build_prefixed(struct br_build *build, const uint8_t *prefix, size_t len, int64_t value)
{
    uint8_t *o = build->depth == PROFILE ? br_merger_room(&build->merge, SAMPLE_FIXED + len) : NULL;
    if (!o)
        return;
    size_t size = br_varint_size((uint64_t)value);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    o = br_put_varint(o, len + 2 + size);
    o = br_put_bytes(o, prefix, len);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_SAMPLE_VALUES);
    *o++ = (uint8_t)size;
    br_merger_wrote(&build->merge, br_put_varint(o, (uint64_t)value));
    build->merge.n_records++;
}

void br_build_reserve(struct br_build *build, size_t len)
{
    if (br_build_ready(build))
        (void)br_merger_room(&build->merge, len);
}

void br_build_sample(struct br_build *build, const struct br_build_sample *sample)
{
    if (!br_build_ready(build) || !build_is_sample(build, sample))
        return;
    uint8_t *o = br_merger_room(&build->merge, SAMPLE_FIXED + 5 * sample->n_attributes +
                                                   BR_VARINT_MAX * sample->n_values +
                                                   sizeof *sample->times_ns * sample->n_times);
    if (!o)
        return;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_PROFILE_SAMPLES);
    uint8_t *body = ++o;
    o = br_merger_put_scalar(o, BR_SAMPLE_STACK, sample->stack);
    o = br_build_put_list(o, BR_SAMPLE_ATTRIBUTES, sample->attributes, sample->n_attributes);
    o = br_merger_put_scalar(o, BR_SAMPLE_LINK, sample->link);
    o = build_put_values(o, sample->values, sample->n_values);
    o = build_put_times(o, sample->times_ns, sample->n_times);
    br_merger_wrote(&build->merge, br_put_length_before(body, o));
    build->merge.n_records++;
}

void br_build_mark(struct br_build *build)
{
    build_close_to(build, REQUEST);
    if (br_build_start(build))
        br_merger_mark(&build->merge, &build->mark);
    else
        build->mark = (struct br_merger_mark){0};
}

void br_build_undo(struct br_build *build)
{
    build->depth = REQUEST;
    if (build->mark.count[0])
        br_merger_restore(&build->merge, &build->mark);
}

size_t br_build_memory(const struct br_build *build)
{
    return build->merge.budget.used;
}

int br_build_take(struct br_build *build, struct br_item *into)
{
    build_close_to(build, REQUEST);
    build->mark = (struct br_merger_mark){0};
    if (build->merge.budget.used > STRIPPED_MIN)
        for (unsigned t = 0; t < BR_TABLES; t++)
            br_intern_strip(&build->merge.tables[t], &build->merge.budget);
    if (!build->merge.rc)
        br_merger_fail(&build->merge, br_merger_take(&build->merge, into, true));
    if (build->merge.rc)
        return build->merge.rc;
    /* br_merger_take has already cleared the builder if it produced parts. */
    if (!into->n_parts)
        br_build_clear(build);
    return 0;
}
