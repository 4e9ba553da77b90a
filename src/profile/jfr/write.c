/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/convert.h"

/* Description of the profile written for each kind, as in jfr-parser: the value of Pyroscope's
 * `__name__`, one or two sample types, and the period type. */
struct profile {
    const char *metric;
    struct {
        const char *type, *unit;
    } values[2], period;
    bool by_period; /* true: the values are numbers of sampling periods */
};

static const struct profile PROFILES[BR_JFR_N_KINDS] = {
    [BR_JFR_CPU] = {"process_cpu", {{"cpu", "nanoseconds"}}, {"cpu", "nanoseconds"}, true},
    [BR_JFR_CPU_TIME] = {"process_cpu", {{"cpu", "nanoseconds"}}, {"cpu", "nanoseconds"}, false},
    [BR_JFR_WALL] = {"wall", {{"wall", "nanoseconds"}}, {"wall", "nanoseconds"}, true},
    [BR_JFR_IN_TLAB] = {"memory",
                        {{"alloc_in_new_tlab_objects", "count"},
                         {"alloc_in_new_tlab_bytes", "bytes"}},
                        {"space", "bytes"},
                        false},
    [BR_JFR_OUT_TLAB] = {"memory",
                         {{"alloc_outside_tlab_objects", "count"},
                          {"alloc_outside_tlab_bytes", "bytes"}},
                         {"space", "bytes"},
                         false},
    [BR_JFR_ALLOC] = {"memory",
                      {{"alloc_sample_objects", "count"}, {"alloc_sample_bytes", "bytes"}},
                      {"space", "bytes"},
                      false},
    [BR_JFR_MUTEX] = {"mutex",
                      {{"contentions", "count"}, {"delay", "nanoseconds"}},
                      {"mutex", "count"},
                      false},
    [BR_JFR_BLOCK] = {"block",
                      {{"contentions", "count"}, {"delay", "nanoseconds"}},
                      {"block", "count"},
                      false},
    [BR_JFR_LIVE] = {"memory", {{"live", "count"}}, {"objects", "count"}, false},
    [BR_JFR_MEMORY] = {"memory",
                       {{"malloc_objects", "count"}, {"malloc_bytes", "bytes"}},
                       {NULL, NULL},
                       false},
};

struct writer {
    struct br_build *build;
    const struct br_profile_source *source;
    const struct br_jfr_result *result;
    struct br_arena *scratch;
    bool has_cpu_time;
    /* keys of labels, as indices of strings in the builder */
    uint32_t profile_id, span_name, trace_id;
    uint32_t *attributes; /* attributes of the current sample */
};

static uint32_t jfr_write_text(struct br_build *build, const char *text)
{
    return text ? br_build_string(build, text, strlen(text)) : 0;
}

static void jfr_write_put64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (56 - 8 * i));
}

static uint32_t jfr_write_hex_attribute(struct writer *writer, uint32_t key, const uint8_t *id,
                                        size_t len)
{
    char hex[33];
    struct br_str str = {.data = hex, .cap = sizeof hex, .fixed = true};
    br_str_hex(&str, id, len);
    return br_build_attribute_text(writer->build, key, str.data, str.len);
}

/* Builds the attributes for the tags of a sample at the start of `writer->attributes`. Returns
 * the number of attributes in `ret_n`, and the link to the span in `ret_link`. */
static int jfr_write_tag_attributes(struct writer *writer, const struct br_jfr_tags *tags,
                                    uint32_t *ret_link, size_t *ret_n)
{
    struct br_jfr_labels *labels = writer->result->labels;
    uint8_t trace[16], span[8];
    /* one row each for the profile ID, the span name and the trace ID: the key, and the index of
     * its attribute, which is 0 if the tags do not contain the key */
    uint32_t ids[3][2] = {{writer->profile_id, 0}, {writer->span_name, 0}, {writer->trace_id, 0}};
    size_t n = 0;
    int rc = tags->span_name
                 ? br_jfr_label_attribute(labels, ids[1][0], tags->span_name, &ids[1][1])
                 : 0;
    if (rc)
        return rc;
    jfr_write_put64(trace, tags->trace_hi);
    jfr_write_put64(trace + 8, tags->trace_lo);
    jfr_write_put64(span, tags->span_id);
    bool traced = tags->trace_hi || tags->trace_lo;
    if (tags->span_id)
        ids[0][1] = jfr_write_hex_attribute(writer, ids[0][0], span, sizeof span);
    if (traced)
        ids[2][1] = jfr_write_hex_attribute(writer, ids[2][0], trace, sizeof trace);
    const struct br_jfr_context *context =
        tags->context ? &labels->contexts[tags->context - 1] : NULL;
    const uint8_t *trace_id = context && context->has_trace ? context->trace_id : NULL;
    const uint8_t *span_id = context && context->has_span ? context->span_id : NULL;
    if (traced)
        trace_id = trace;
    if (tags->span_id)
        span_id = span;
    *ret_link = span_id ? br_build_link(writer->build, trace_id, span_id) : 0;
    for (uint32_t i = 0; context && i < context->count; i++) {
        bool repeated = false; /* A sample must not have two attributes with the same key. */
        for (int k = 0; k < 3; k++)
            repeated |= ids[k][1] && ids[k][0] == context->labels[i].key;
        if (!repeated)
            writer->attributes[n++] = context->labels[i].attribute;
    }
    for (int k = 0; k < 3; k++)
        if (ids[k][1])
            writer->attributes[n++] = ids[k][1];
    *ret_n = n;
    return 0;
}

/* Attributes of the sample written last. The next sample usually has the same attributes. */
struct written_tags {
    uint32_t tags, link;
    size_t count; /* number of attributes for `tags` */
};

/* Writes `count` samples with the same key as one OTLP sample. The OTLP sample contains the
 * values of the samples and, unless `times_ns` is NULL, their times. */
static int jfr_write_sample(struct writer *writer, struct written_tags *last,
                            const struct br_jfr_key *key, const int64_t *values,
                            const uint64_t *times_ns, size_t count)
{
    const struct br_jfr_samples *samples = writer->result->samples;
    if (key->tags != last->tags) {
        int rc =
            jfr_write_tag_attributes(writer, &samples->tags[key->tags], &last->link, &last->count);
        if (rc)
            return rc;
        last->tags = key->tags;
    }
    const struct br_jfr_thread *thread = &samples->threads[key->thread];
    memcpy(writer->attributes + last->count, thread->attributes, sizeof thread->attributes);
    const struct br_build_sample sample = {.stack = key->stack,
                                           .link = last->link,
                                           .attributes = writer->attributes,
                                           .n_attributes = last->count + thread->count,
                                           .values = values,
                                           .n_values = count,
                                           .times_ns = times_ns,
                                           .n_times = times_ns ? count : 0};
    br_build_sample(writer->build, &sample);
    return br_build_rc(writer->build);
}

static int64_t jfr_write_times(int64_t value, int64_t multiplier)
{
    return (int64_t)((uint64_t)value * (uint64_t)multiplier);
}

static int jfr_write_samples(struct writer *writer, const struct br_jfr_table *table, int which,
                             int64_t multiplier)
{
    struct br_jfr_cursor at = {.table = table};
    struct br_jfr_sample sample;
    struct written_tags last = {0};
    int rc = 0;
    while (!rc && br_jfr_sample_next(&at, &sample)) {
        int64_t value = jfr_write_times(sample.values[which], multiplier);
        rc = jfr_write_sample(writer, &last, &sample.key, &value,
                              sample.time_ns ? &sample.time_ns : NULL, 1);
    }
    return rc;
}

/* Writes one sample per group. A group consists of the samples with the same stack, tags and
 * thread. */
static int jfr_write_groups(struct writer *writer, const struct br_jfr_table *table, int which,
                            int64_t multiplier)
{
    struct br_jfr_groups groups;
    struct written_tags last = {0};
    int rc = br_jfr_groups_make(&groups, table, which);
    for (uint32_t i = 0; i < table->count && !rc; i++)
        groups.values[i] = jfr_write_times(groups.values[i], multiplier);
    for (uint32_t i = 0; i < groups.count && !rc; i++) {
        const struct br_jfr_group *group = &groups.groups[i];
        rc = jfr_write_sample(writer, &last, &group->key, groups.values + group->first,
                              groups.times + group->first, group->count);
    }
    br_jfr_groups_release(&groups);
    return rc;
}

static int jfr_write_scope(struct writer *writer, const char *metric)
{
    const char *name = writer->source->pyroscope_name ? writer->source->pyroscope_name : metric;
    bool labelled = writer->source->pyroscope_name || writer->source->from_pyroscope;
    const char *key = labelled ? BR_SCOPE_PYROSCOPE_NAME : BR_SCOPE_PYROSCOPE_METRIC;
    struct br_addition attributes = {0};
    if (br_add_string(writer->scratch, &attributes, 3, key, name, strlen(name)))
        return BR_ENOMEM;
    br_build_scope(writer->build, NULL, NULL, &attributes);
    return 0;
}

/* Returns the description of the profile for a kind. If a recording samples CPU time in two
 * ways, the execution samples get a separate sample type, because both kinds of samples cover
 * the same time. */
static const struct profile *jfr_write_profile_of(const struct writer *writer,
                                                  enum br_jfr_kind kind)
{
    static const struct profile execution = {
        "execution", {{"execution", "nanoseconds"}}, {"execution", "nanoseconds"}, true};
    return kind == BR_JFR_CPU && writer->has_cpu_time ? &execution : &PROFILES[kind];
}

static int jfr_write_kind(struct writer *writer, enum br_jfr_kind kind)
{
    struct br_jfr_table *table = &writer->result->samples->tables[kind];
    const struct profile *p = jfr_write_profile_of(writer, kind);
    int64_t period_ns = writer->result->period_ns[kind];
    struct br_build *build = writer->build;
    int rc = table->count ? jfr_write_scope(writer, p->metric) : 0;
    for (int i = 0; i < 2 && table->count && p->values[i].type && !rc; i++) {
        const struct br_build_profile profile = {
            .type = jfr_write_text(build, p->values[i].type),
            .unit = jfr_write_text(build, p->values[i].unit),
            .period_type = jfr_write_text(build, p->period.type),
            .period_unit = jfr_write_text(build, p->period.unit),
            .period = period_ns,
            .time_ns = writer->result->start_ns,
            .duration_ns = writer->result->duration_ns,
            .profile_id = writer->source->profile_id};
        br_build_profile(build, &profile);
        bool grouped = writer->source->from_pyroscope && writer->source->keeps_times;
        rc = (grouped ? jfr_write_groups : jfr_write_samples)(writer, table, i,
                                                              p->by_period ? period_ns : 1);
    }
    br_jfr_table_release(table);
    return rc;
}

/* Writes the resource of the source with the label jfr_event. In Pyroscope every series from a
 * recording has the label jfr_event, even if the label is empty. */
static int jfr_write_resource(struct writer *writer)
{
    const char *event = writer->result->event;
    struct br_addition attributes = {0};
    if (writer->source->resource && writer->source->resource->len) {
        uint8_t *copy = br_arena_alloc(writer->scratch, writer->source->resource->len);
        if (!copy)
            return BR_ENOMEM;
        memcpy(copy, writer->source->resource->data, writer->source->resource->len);
        attributes = (struct br_addition){copy, writer->source->resource->len};
    }
    if (!event && writer->source->from_pyroscope)
        event = "";
    if (event && br_add_string(writer->scratch, &attributes, 1, "jfr_event", event, strlen(event)))
        return BR_ENOMEM;
    br_build_resource(writer->build, attributes.len ? &attributes : NULL);
    return 0;
}

int br_jfr_write(struct br_build *build, const struct br_profile_source *source,
                 const struct br_jfr_result *result, struct br_arena *scratch)
{
    struct writer writer = {.build = build,
                            .source = source,
                            .result = result,
                            .scratch = scratch,
                            .has_cpu_time = result->samples->tables[BR_JFR_CPU_TIME].count != 0};
    size_t most = 3 + 2;
    bool empty = true;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++)
        empty &= !result->samples->tables[i].count;
    if (empty)
        return 0;
    for (uint32_t i = 0; i < result->labels->n_contexts; i++)
        if (most < result->labels->contexts[i].count + 5u)
            most = result->labels->contexts[i].count + 5u;
    writer.attributes = br_calloc(most, sizeof *writer.attributes);
    if (!writer.attributes)
        return BR_ENOMEM;
    writer.profile_id = jfr_write_text(build, "profile_id");
    writer.span_name = jfr_write_text(build, "span_name");
    writer.trace_id = jfr_write_text(build, "trace_id");
    int rc = jfr_write_resource(&writer);
    for (unsigned i = 0; i < BR_JFR_N_KINDS && !rc; i++)
        rc = jfr_write_kind(&writer, i);
    br_free(writer.attributes);
    return rc;
}
