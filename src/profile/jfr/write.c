/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/convert.h"

/* What jfr-parser makes of each kind: the metric's name, which is Pyroscope's `__name__`, one or
 * two sample types, the period's type. */
struct profile {
    const char *metric;
    struct {
        const char *type, *unit;
    } values[2], period;
    bool by_period; /* the value is a number of periods */
};

static const struct profile PROFILES[BR_JFR_N_KINDS] = {
    [BR_JFR_CPU] = {"process_cpu", {{"cpu", "nanoseconds"}}, {"cpu", "nanoseconds"}, true},
    [BR_JFR_CPU_TIME] = {"process_cpu",
                         {{"cpu", "nanoseconds"}},
                         {"cpu", "nanoseconds"},
                         false},
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
    const struct br_jfr_result *r;
    struct br_arena *scratch;
    bool has_cpu_time;
    uint32_t profile_id, span_name, trace_id; /* the labels' keys */
    uint32_t *attributes;                     /* of the sample being written */
};

static uint32_t text(struct br_build *b, const char *s)
{
    return s ? br_build_string(b, s, strlen(s)) : 0;
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (56 - 8 * i));
}

static uint32_t hex_attribute(struct writer *w, uint32_t key, const uint8_t *id, size_t len)
{
    char hex[33];
    struct br_str s = {.data = hex, .cap = sizeof hex, .fixed = true};
    br_str_hex(&s, id, len);
    return br_build_attribute_text(w->build, key, s.data, s.len);
}

/* The attributes of the tags, which stand in front of the thread's, and how many they are. */
static int tag_attributes(struct writer *w, const struct br_jfr_tags *t, uint32_t *ret_link,
                          size_t *ret_n)
{
    struct br_jfr_labels *l = w->r->labels;
    uint8_t trace[16], span[8];
    uint32_t own[3][2] = {{w->profile_id, 0}, {w->span_name, 0}, {w->trace_id, 0}};
    size_t n = 0;
    int rc = t->span_name ? br_jfr_label_attribute(l, own[1][0], t->span_name, &own[1][1]) : 0;
    if (rc)
        return rc;
    put64(trace, t->trace_hi);
    put64(trace + 8, t->trace_lo);
    put64(span, t->span_id);
    bool traced = t->trace_hi || t->trace_lo;
    if (t->span_id)
        own[0][1] = hex_attribute(w, own[0][0], span, sizeof span);
    if (traced)
        own[2][1] = hex_attribute(w, own[2][0], trace, sizeof trace);
    const struct br_jfr_context *c = t->context ? &l->contexts[t->context - 1] : NULL;
    const uint8_t *trace_id = traced ? trace : c && c->has_trace ? c->trace_id : NULL;
    const uint8_t *span_id = t->span_id ? span : c && c->has_span ? c->span_id : NULL;
    *ret_link = span_id ? br_build_link(w->build, trace_id, span_id) : 0;
    for (uint32_t i = 0; c && i < c->n; i++) {
        bool said = false; /* a key stands once in a sample */
        for (int k = 0; k < 3; k++)
            said |= own[k][1] && own[k][0] == c->v[i].key;
        if (!said)
            w->attributes[n++] = c->v[i].attribute;
    }
    for (int k = 0; k < 3; k++)
        if (own[k][1])
            w->attributes[n++] = own[k][1];
    *ret_n = n;
    return 0;
}

static int write_samples(struct writer *w, const struct br_jfr_table *t, int which,
                         int64_t multiplier)
{
    const struct br_jfr_samples *s = w->r->samples;
    struct br_jfr_cursor at = {.table = t};
    struct br_jfr_sample e;
    uint32_t tags = 0, link = 0;
    size_t n_tag_attributes = 0;
    while (br_jfr_sample_next(&at, &e)) {
        if (e.key.tags != tags) { /* what follows each other is mostly of one span */
            int rc = tag_attributes(w, &s->tags[e.key.tags], &link, &n_tag_attributes);
            if (rc)
                return rc;
            tags = e.key.tags;
        }
        const struct br_jfr_thread *thread = &s->threads[e.key.thread];
        memcpy(w->attributes + n_tag_attributes, thread->attributes, sizeof thread->attributes);
        int64_t value = (int64_t)((uint64_t)e.values[which] * (uint64_t)multiplier);
        const struct br_build_sample sample = {.stack = e.key.stack,
                                               .link = link,
                                               .attributes = w->attributes,
                                               .n_attributes = n_tag_attributes + thread->n,
                                               .values = &value,
                                               .n_values = 1,
                                               .times_ns = &e.time_ns,
                                               .n_times = e.time_ns != 0};
        br_build_sample(w->build, &sample);
        if (br_build_rc(w->build))
            return br_build_rc(w->build);
    }
    return 0;
}

static int write_scope(struct writer *w, const char *metric)
{
    const char *name = w->source->pyroscope_name ? w->source->pyroscope_name : metric;
    bool labelled = w->source->pyroscope_name || w->source->from_pyroscope;
    const char *key = labelled ? BR_SCOPE_PYROSCOPE_NAME : BR_SCOPE_PYROSCOPE_METRIC;
    struct br_addition attributes = {0};
    if (br_add_string(w->scratch, &attributes, 3, key, name, strlen(name)))
        return BR_ENOMEM;
    br_build_scope(w->build, NULL, NULL, &attributes);
    return 0;
}

/* A recording may have samples of the CPU in two ways, of the same time. */
static const struct profile *profile_of(const struct writer *w, enum br_jfr_kind kind)
{
    static const struct profile execution = {"execution",
                                             {{"execution", "nanoseconds"}},
                                             {"execution", "nanoseconds"},
                                             true};
    return kind == BR_JFR_CPU && w->has_cpu_time ? &execution : &PROFILES[kind];
}

static int write_kind(struct writer *w, enum br_jfr_kind kind)
{
    struct br_jfr_table *t = &w->r->samples->tables[kind];
    const struct profile *p = profile_of(w, kind);
    int64_t period_ns = w->r->period_ns[kind];
    struct br_build *b = w->build;
    int rc = t->n ? write_scope(w, p->metric) : 0;
    for (int i = 0; i < 2 && t->n && p->values[i].type && !rc; i++) {
        const struct br_build_profile profile = {.type = text(b, p->values[i].type),
                                                 .unit = text(b, p->values[i].unit),
                                                 .period_type = text(b, p->period.type),
                                                 .period_unit = text(b, p->period.unit),
                                                 .period = period_ns,
                                                 .time_ns = w->r->start_ns,
                                                 .duration_ns = w->r->duration_ns,
                                                 .profile_id = w->source->profile_id};
        br_build_profile(b, &profile);
        rc = write_samples(w, t, i, p->by_period ? period_ns : 1);
    }
    br_jfr_table_release(t);
    return rc;
}

/* The source's resource, and the event as a label: an empty one too for Pyroscope, which has it on
 * every series that was a recording. */
static int write_resource(struct writer *w)
{
    const char *event = w->r->event;
    struct br_addition attributes = {0};
    if (w->source->resource && w->source->resource->len) {
        uint8_t *copy = br_arena_alloc(w->scratch, w->source->resource->len);
        if (!copy)
            return BR_ENOMEM;
        memcpy(copy, w->source->resource->data, w->source->resource->len);
        attributes = (struct br_addition){copy, w->source->resource->len};
    }
    if (!event && w->source->from_pyroscope)
        event = "";
    if (event && br_add_string(w->scratch, &attributes, 1, "jfr_event", event, strlen(event)))
        return BR_ENOMEM;
    br_build_resource(w->build, attributes.len ? &attributes : NULL);
    return 0;
}

int br_jfr_write(struct br_build *b, const struct br_profile_source *source,
                 const struct br_jfr_result *r, struct br_arena *scratch)
{
    struct writer w = {.build = b,
                       .source = source,
                       .r = r,
                       .scratch = scratch,
                       .has_cpu_time = r->samples->tables[BR_JFR_CPU_TIME].n != 0};
    size_t most = 3 + 2;
    bool empty = true;
    for (unsigned i = 0; i < BR_JFR_N_KINDS; i++)
        empty &= !r->samples->tables[i].n;
    if (empty)
        return 0;
    for (uint32_t i = 0; i < r->labels->n_contexts; i++)
        if (most < r->labels->contexts[i].n + 5u)
            most = r->labels->contexts[i].n + 5u;
    w.attributes = br_calloc(most, sizeof *w.attributes);
    if (!w.attributes)
        return BR_ENOMEM;
    w.profile_id = text(b, "profile_id");
    w.span_name = text(b, "span_name");
    w.trace_id = text(b, "trace_id");
    int rc = write_resource(&w);
    for (unsigned i = 0; i < BR_JFR_N_KINDS && !rc; i++)
        rc = write_kind(&w, i);
    br_free(w.attributes);
    return rc;
}
