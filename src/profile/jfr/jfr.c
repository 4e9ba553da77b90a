/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "profile/jfr/convert.h"

#define NS_PER_S 1e9
#define EVENT_MAX 4096 /* bytes of what async-profiler says it was asked to sample */
#define DEFAULT_RATE 100.0

/* What a note on a thread's state says. */
enum { STATE_NEW, STATE_OTHER, STATE_RUNNABLE, STATE_SLEEPING };

struct recording {
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_jfr_chunk chunk;
    struct br_jfr_labels labels;
    struct br_jfr_samples samples;
    struct br_jfr_stacks stacks;
    char event_text[EVENT_MAX + 1];
    struct br_str event, text;
    uint64_t event_at; /* the last such text of the chunk; 0: there is none */
    bool has_event, wall;
    struct br_jfr_ids names; /* where a pooled string begins, to its attribute + 1 of threads */
    int64_t period_ns, wall_ns; /* as the recording's settings say; 0: they do not */
    int64_t cpu_time_ns;        /* what the last jdk.CPUTimeSample stood for */
    uint64_t start_ns, end_ns;
    uint32_t thread_name, thread_id; /* keys */
};

/* As much of a text as has to be looked at to know whether it is one of ours: peers choose how long
 * it is, and how often it is referred to. */
struct short_text {
    char data[64];
    size_t len; /* 0: also of one that is longer */
    bool empty;
};

static struct short_text read_short(const struct recording *r, uint64_t at)
{
    struct short_text text = {.empty = true};
    struct br_str s = {.data = text.data, .cap = sizeof text.data, .fixed = true};
    if (at)
        br_jfr_text(&r->chunk, at, &s);
    text.len = s.failed ? 0 : s.len;
    text.empty = s.len == 0;
    text.data[text.len] = '\0';
    return text;
}

static bool text_is(const struct short_text *t, const char *text)
{
    return t->len == strlen(text) && memcmp(t->data, text, t->len) == 0;
}

static int read_text(struct recording *r, uint64_t at, struct br_str *out)
{
    br_str_clear(out);
    br_str_puts(out, ""); /* data is not NULL from here on */
    if (at)
        br_jfr_text(&r->chunk, at, out);
    return out->failed ? BR_ENOMEM : 0;
}

/* "20 ms", "10000000"; 0: anything else. */
static int64_t duration_of(const char *s)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"", 1},    {"ns", 1},   {"us", 1e3},   {"ms", 1e6},
                 {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
    double n = 0;
    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (*s - '0');
    if (*s == ' ')
        s++;
    for (size_t i = 0; i < BR_COUNT(units); i++)
        if (strcmp(s, units[i].unit) == 0 && n * units[i].ns < 1e18)
            return (int64_t)(n * units[i].ns);
    return 0;
}

static void on_setting(struct recording *r, const uint64_t *v)
{
    struct short_text name = read_short(r, v[BR_JFR_NAME]);
    uint32_t class = r->chunk.class_of[BR_JFR_EXECUTION_SAMPLE];
    bool of_samples =
        class != BR_JFR_NO_CLASS && r->chunk.classes[class].id == (int64_t)v[BR_JFR_ID];
    if (text_is(&name, "event")) {
        struct short_text value = read_short(r, v[BR_JFR_VALUE]);
        r->event_at = v[BR_JFR_VALUE];
        r->has_event = !value.empty; /* the profiler writes null where it was not asked */
        r->wall = text_is(&value, "wall");
    } else if (of_samples && (text_is(&name, "period") || text_is(&name, "interval"))) {
        struct short_text value = read_short(r, v[BR_JFR_VALUE]);
        int64_t period_ns = duration_of(value.data);
        if (period_ns)
            r->period_ns = period_ns;
    } else if (of_samples && text_is(&name, "wall")) {
        /* async-profiler can sample CPU and wall time in one recording, each at an interval of its own. */
        struct short_text value = read_short(r, v[BR_JFR_VALUE]);
        r->wall_ns = duration_of(value.data);
    }
}

/* The events of a chunk may say it as often as they like; what the last one says counts. */
static int read_event_name(struct recording *r, struct br_err *err)
{
    int rc = r->event_at && r->has_event ? read_text(r, r->event_at, &r->event) : 0;
    r->event_at = 0;
    return rc ? br_err_set(err, BR_EINVAL, "what was sampled has a name of more than %d bytes",
                           EVENT_MAX)
              : 0;
}

static uint32_t state_of(struct recording *r, uint64_t id)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *e = br_jfr_ids_find(&r->chunk.pools[BR_JFR_THREAD_STATE], id);
    if (e && e->note == STATE_NEW) {
        (void)br_jfr_constant(&r->chunk, BR_JFR_THREAD_STATE, id, v);
        struct short_text name = read_short(r, v[BR_JFR_NAME]);
        e->note = text_is(&name, "STATE_RUNNABLE")   ? STATE_RUNNABLE
                  : text_is(&name, "STATE_SLEEPING") ? STATE_SLEEPING
                                                     : STATE_OTHER;
    }
    return e ? e->note : STATE_NEW;
}

/* The attribute of a thread's name; 0: it has none. A string of the pool is read once. */
static int name_of(struct recording *r, uint64_t at, uint32_t *ret)
{
    const struct br_jfr_entry *pooled = at ? br_jfr_pooled(&r->chunk, at) : NULL;
    const struct br_jfr_entry *known = pooled ? br_jfr_ids_find(&r->names, pooled->at) : NULL;
    *ret = known ? known->at - 1 : 0;
    if (!at || known)
        return 0;
    int rc = read_text(r, at, &r->text);
    if (!rc && r->text.len)
        *ret = br_build_attribute_text(r->build, r->thread_name, r->text.data, r->text.len);
    if (!rc && pooled)
        rc = br_jfr_ids_put(&r->names, pooled->at, *ret + 1);
    return rc;
}

static int read_thread(struct recording *r, const uint64_t *v, struct br_jfr_thread *ret)
{
    uint32_t name;
    if (!r->thread_name) {
        r->thread_name = br_build_string(r->build, "thread.name", 11);
        r->thread_id = br_build_string(r->build, "thread.id", 9);
    }
    int rc = name_of(r, v[BR_JFR_JAVA_NAME], &name);
    if (!rc && !name)
        rc = name_of(r, v[BR_JFR_OS_NAME], &name);
    if (rc)
        return rc;
    if (name)
        ret->attributes[ret->n++] = name;
    int64_t id = (int64_t)v[BR_JFR_JAVA_ID];
    if (id > 0)
        ret->attributes[ret->n++] = br_build_attribute_int(r->build, r->thread_id, id, 0);
    return 0;
}

static int thread_of(struct recording *r, uint64_t id, uint32_t *ret)
{
    struct br_jfr_samples *s = &r->samples;
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *e = br_jfr_ids_find(&r->chunk.pools[BR_JFR_THREAD], id);
    if (!e)
        return 0;
    if (!e->note) {
        struct br_jfr_thread thread = {0};
        (void)br_jfr_constant(&r->chunk, BR_JFR_THREAD, id, v);
        int rc = read_thread(r, v, &thread);
        if (!rc)
            rc = br_grow(&s->threads, &s->threads_cap, (size_t)s->n_threads + 1, sizeof *s->threads,
                         UINT32_MAX);
        if (rc)
            return rc;
        s->threads[s->n_threads] = thread;
        e->note = s->n_threads++;
    }
    *ret = e->note;
    return 0;
}

static int tags_of(struct recording *r, const uint64_t *v, uint32_t *ret)
{
    const struct br_jfr_tags tags = {
        .span_id = v[BR_JFR_SPAN_ID],
        .span_name = br_jfr_string_of(&r->labels, v[BR_JFR_SPAN_NAME]),
        .trace_hi = v[BR_JFR_TRACE_HI],
        .trace_lo = v[BR_JFR_TRACE_LO],
        .context = v[BR_JFR_CONTEXT_ID] ? br_jfr_context_of(&r->labels, v[BR_JFR_CONTEXT_ID]) : 0};
    return br_jfr_tags_add(&r->samples, &tags, ret);
}

/* What the events of a type are; CPU and wall time depend on more (on_time). */
static bool plain_kind(int type, const struct br_jfr_chunk *c, const uint64_t *v,
                       enum br_jfr_kind *kind, int64_t *value)
{
    switch (type) {
    case BR_JFR_ALLOC_IN_NEW_TLAB:
        *kind = BR_JFR_IN_TLAB;
        *value = (int64_t)v[BR_JFR_TLAB_SIZE];
        return true;
    case BR_JFR_ALLOC_OUTSIDE_TLAB:
        *kind = BR_JFR_OUT_TLAB;
        *value = (int64_t)v[BR_JFR_ALLOCATION_SIZE];
        return true;
    case BR_JFR_ALLOC_SAMPLE:
        *kind = BR_JFR_ALLOC;
        *value = (int64_t)v[BR_JFR_WEIGHT];
        return true;
    case BR_JFR_MONITOR_ENTER:
        *kind = BR_JFR_MUTEX;
        *value = br_jfr_ticks_ns(c, v[BR_JFR_DURATION]);
        return true;
    case BR_JFR_THREAD_PARK:
        *kind = BR_JFR_BLOCK;
        *value = br_jfr_ticks_ns(c, v[BR_JFR_DURATION]);
        return true;
    case BR_JFR_LIVE_OBJECT:
        *kind = BR_JFR_LIVE;
        return true;
    case BR_JFR_MALLOC:
        *kind = BR_JFR_MEMORY;
        *value = (int64_t)v[BR_JFR_SIZE];
        return true;
    default:
        return false;
    }
}

/* Each says how much CPU time it stands for. */
static int on_cpu_time(struct recording *r, const uint64_t *v, struct br_jfr_sample *sample)
{
    r->cpu_time_ns = br_jfr_ticks_ns(&r->chunk, v[BR_JFR_SAMPLING_PERIOD]);
    sample->values[0] = r->cpu_time_ns;
    return br_jfr_sample_add(&r->samples, BR_JFR_CPU_TIME, sample);
}

/* Samples of a running thread are CPU time; asked for wall time, the profiler samples all threads.
 */
static int on_time(struct recording *r, int type, const uint64_t *v, struct br_jfr_sample *sample)
{
    uint32_t state = state_of(r, v[BR_JFR_STATE]);
    int rc = 0;
    bool counted = type == BR_JFR_WALL_CLOCK_SAMPLE;
    bool cpu = counted ? state == STATE_RUNNABLE && r->wall
                       : state != STATE_NEW && state != STATE_SLEEPING;
    if (counted)
        sample->values[0] = (int64_t)v[BR_JFR_SAMPLES];
    if (cpu)
        rc = br_jfr_sample_add(&r->samples, BR_JFR_CPU, sample);
    if (!rc && (counted || r->wall))
        rc = br_jfr_sample_add(&r->samples, BR_JFR_WALL, sample);
    return rc;
}

static int on_event(struct recording *r, int type, const uint64_t *v, struct br_err *err)
{
    if (type == BR_JFR_ACTIVE_SETTING) {
        on_setting(r, v);
        return 0;
    }
    struct br_jfr_sample sample = {.values = {1, 0}};
    int rc = br_jfr_stack(&r->stacks, &r->chunk, v[BR_JFR_STACK], &sample.key.stack, err);
    if (rc < 0 || (!rc && r->samples.fold))
        return rc;
    rc = tags_of(r, v, &sample.key.tags);
    if (!rc && !r->samples.fold) {
        sample.time_ns = br_jfr_time(&r->chunk, v[BR_JFR_START]);
        rc = thread_of(r, v[BR_JFR_BY_THREAD], &sample.key.thread);
    }
    if (rc)
        return rc;
    enum br_jfr_kind kind;
    if (plain_kind(type, &r->chunk, v, &kind, &sample.values[1]))
        return br_jfr_sample_add(&r->samples, kind, &sample);
    if (type == BR_JFR_CPU_TIME_SAMPLE)
        return on_cpu_time(r, v, &sample);
    return on_time(r, type, v, &sample);
}

static int read_chunk(struct recording *r, size_t at, struct br_err *err)
{
    const struct br_profile_source *s = r->source;
    uint64_t v[BR_JFR_N_SLOTS];
    int type, rc = br_jfr_chunk_open(&r->chunk, s->data + at, s->len - at, err);
    if (rc)
        return rc;
    br_jfr_stacks_begin(&r->stacks);
    br_jfr_ids_clear(&r->names);
    if (!at)
        r->start_ns = r->chunk.start_ns;
    if (__builtin_add_overflow(r->chunk.start_ns, r->chunk.duration_ns, &r->end_ns))
        r->end_ns = r->chunk.start_ns;
    uint32_t next = BR_JFR_HEADER;
    while ((type = br_jfr_event(&r->chunk, &next, v, err)) > 0) {
        rc = on_event(r, type, v, err);
        if (!rc)
            rc = br_build_rc(r->build);
        if (rc)
            return rc;
    }
    return type ? type : read_event_name(r, err);
}

/* A program that was killed leaves a last chunk that was never finished: what is whole before it counts. */
static bool is_torn(const struct recording *r, size_t at)
{
    const struct br_profile_source *s = r->source;
    struct br_profile_lost *lost = s->lost;
    if (!br_jfr_is_torn(s->data + at, s->len - at))
        return false;
    if (lost && !lost->n)
        (void)br_err_set(&lost->first, BR_EINVAL,
                         "JFR chunk at byte %zu: it was never finished, of %zu bytes", at, s->len - at);
    if (lost)
        lost->n++;
    return true;
}

static int64_t period_of(const struct recording *r)
{
    double rate = r->source->sample_rate;
    /* What a Pyroscope client sent is counted in the rate it gave, whatever it recorded with. */
    if (!(rate > 0) && !r->source->from_pyroscope && r->period_ns)
        return r->period_ns;
    double ns = NS_PER_S / (rate > 0 ? rate : DEFAULT_RATE);
    return ns < 9e18 ? (int64_t)ns : INT64_MAX;
}

static int64_t wall_of(const struct recording *r, int64_t period_ns)
{
    return !r->source->from_pyroscope && r->wall_ns ? r->wall_ns : period_ns;
}

static int write(struct recording *r, struct br_arena *scratch)
{
    const struct br_profile_source *s = r->source;
    /* A Pyroscope client says when; of any other file the recording itself knows best. */
    bool given = s->start_ns && (s->from_pyroscope || !r->start_ns);
    uint64_t start = given ? s->start_ns : r->start_ns;
    uint64_t end = given ? s->end_ns : r->end_ns;
    int64_t period_ns = period_of(r);
    const struct br_jfr_result result = {.samples = &r->samples,
                                         .labels = &r->labels,
                                         .event = r->has_event ? r->event.data : NULL,
                                         .period_ns = {[BR_JFR_CPU] = period_ns,
                                                       [BR_JFR_CPU_TIME] = r->cpu_time_ns,
                                                       [BR_JFR_WALL] = wall_of(r, period_ns)},
                                         .start_ns = start,
                                         .duration_ns = end > start ? end - start : 0};
    /* What is written shares the builder's limit with the samples that it is written from. */
    br_jfr_samples_settle(&r->samples);
    size_t own = br_jfr_samples_size(&r->samples), limit = br_build_limit(r->build, SIZE_MAX);
    (void)br_build_limit(r->build, limit > own ? limit - own : 0);
    int rc = br_jfr_write(r->build, s, &result, scratch);
    (void)br_build_limit(r->build, limit);
    return rc;
}

static int read_all(struct recording *r, struct br_arena *scratch, struct br_err *err)
{
    const struct br_profile_source *s = r->source;
    int rc = br_jfr_samples_init(&r->samples, s->from_pyroscope);
    if (!rc)
        rc = br_jfr_labels_begin(&r->labels, r->build, br_profile_text_max(s));
    if (!rc && s->labels)
        rc = br_jfr_labels_read(&r->labels, s->labels, s->labels_len, scratch, err);
    for (size_t at = 0; at < s->len && !rc; at += r->chunk.size) {
        if (at && is_torn(r, at))
            break;
        rc = read_chunk(r, at, err);
        if (rc == BR_EINVAL) {
            br_err_prefix(err, "JFR chunk at byte %zu: ", at);
            return rc;
        }
    }
    br_jfr_chunk_release(&r->chunk); /* what is written has no more need of it */
    br_jfr_stacks_release(&r->stacks);
    return rc ? rc : write(r, scratch);
}

int br_jfr_read(struct br_build *b, const struct br_profile_source *s, struct br_arena *scratch,
                struct br_err *err)
{
    struct recording r = {.source = s, .build = b};
    r.event = (struct br_str){.data = r.event_text, .cap = sizeof r.event_text, .fixed = true};
    r.stacks.build = b;
    r.stacks.lines_signed = !s->from_pyroscope;
    r.stacks.name_bytes_max = br_profile_text_max(s);
    r.stacks.name.max = r.stacks.name_bytes_max + 1;
    r.stacks.converted.max = r.text.max = 2 * s->len + 64; /* Latin-1 is twice as much in UTF-8 */
    int rc = read_all(&r, scratch, err);
    br_jfr_stacks_release(&r.stacks);
    br_jfr_samples_release(&r.samples);
    br_jfr_labels_release(&r.labels);
    br_jfr_chunk_release(&r.chunk);
    br_jfr_ids_release(&r.names);
    br_str_release(&r.text);
    if (!rc)
        rc = br_build_rc(b);
    if (rc == BR_ETOOBIG)
        return br_err_set(err, BR_EINVAL, "the labels are too large for their recording");
    if (rc == BR_EFULL)
        return br_err_set(err, rc, "the recording is too large when converted");
    return rc == BR_ENOMEM ? br_err_set(err, rc, "%s", br_strerror(rc)) : rc;
}
