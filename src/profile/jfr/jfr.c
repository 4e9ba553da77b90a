/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "profile/jfr/convert.h"

#define NS_PER_S 1e9
#define EVENT_MAX 4096 /* longest accepted name of the sampled event, in bytes */
#define DEFAULT_RATE 100.0

/* Values of br_jfr_entry.note for thread states. */
enum { STATE_NEW, STATE_OTHER, STATE_RUNNABLE, STATE_SLEEPING };

struct recording {
    const struct br_profile_source *source;
    struct br_build *build;
    struct br_jfr_chunk chunk;
    struct br_jfr_events events; /* current position in the events of the chunk */
    struct br_jfr_labels labels;
    struct br_jfr_samples samples;
    struct br_jfr_stacks stacks;
    char event_text[EVENT_MAX + 1];
    struct br_str event, text;
    /* offset in the chunk of the last text with the name of the sampled event; 0: no such text
     * was found */
    uint64_t event_at;
    bool has_event, wall;
    /* maps the offset of a pooled string to the attribute index of the thread name + 1 */
    struct br_jfr_ids names;
    /* sampling intervals of CPU time and wall time in the settings of the recording; 0: the
     * recording does not contain the interval */
    int64_t period_ns, wall_ns;
    int64_t cpu_time_ns; /* CPU time in ns that the last jdk.CPUTimeSample represents */
    uint64_t start_ns, end_ns;
    /* keys of thread attributes, as indices of strings in the builder */
    uint32_t thread_name, thread_id;
};

/* Beginning of a text of the recording, to be compared with known texts. The text is never
 * copied as a whole, because the sender controls its length and the number of references to it. */
struct short_text {
    char data[64];
    size_t len; /* number of bytes in `data`; 0 if the text is empty or does not fit into `data` */
    bool empty;
};

static struct short_text jfr_read_short(const struct recording *recording, uint64_t at)
{
    struct short_text text = {.empty = true};
    struct br_str str = {.data = text.data, .cap = sizeof text.data, .fixed = true};
    if (at)
        br_jfr_text(&recording->chunk, at, &str);
    text.len = str.failed ? 0 : str.len;
    text.empty = str.len == 0;
    text.data[text.len] = '\0';
    return text;
}

static bool jfr_text_is(const struct short_text *short_text, const char *text)
{
    return br_bytes_are(short_text->data, short_text->len, text);
}

static int jfr_read_text(struct recording *recording, uint64_t at, struct br_str *out)
{
    br_str_clear(out);
    br_str_puts(out, ""); /* ensures that out->data is not NULL */
    if (at)
        br_jfr_text(&recording->chunk, at, out);
    return out->failed ? BR_ENOMEM : 0;
}

/* Parses a duration such as "20 ms", or a number of nanoseconds such as "10000000". Returns the
 * duration in nanoseconds, or 0 for any other text. */
static int64_t jfr_duration_of(const char *text)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"", 1},    {"ns", 1},   {"us", 1e3},   {"ms", 1e6},
                 {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}, {"d", 86400e9}};
    uint64_t n;
    if (!br_decimal_read(&text, text + strlen(text), INT64_MAX, &n))
        return 0;
    if (*text == ' ')
        text++;
    for (size_t i = 0; i < BR_COUNT(units); i++)
        if (strcmp(text, units[i].unit) == 0 && (double)n * units[i].ns < 1e18)
            return (int64_t)((double)n * units[i].ns);
    return 0;
}

static void jfr_on_setting(struct recording *recording, const uint64_t *values)
{
    struct short_text name = jfr_read_short(recording, values[BR_JFR_NAME]);
    uint32_t class = recording->chunk.class_of[BR_JFR_EXECUTION_SAMPLE];
    bool of_samples = class != BR_JFR_NO_CLASS &&
                      recording->chunk.classes[class].id == (int64_t)values[BR_JFR_ID];
    if (jfr_text_is(&name, "event")) {
        struct short_text value = jfr_read_short(recording, values[BR_JFR_VALUE]);
        recording->event_at = values[BR_JFR_VALUE];
        /* async-profiler writes null for an option that was not set */
        recording->has_event = !value.empty;
        recording->wall = jfr_text_is(&value, "wall");
    } else if (of_samples && (jfr_text_is(&name, "period") || jfr_text_is(&name, "interval"))) {
        struct short_text value = jfr_read_short(recording, values[BR_JFR_VALUE]);
        int64_t period_ns = jfr_duration_of(value.data);
        if (period_ns)
            recording->period_ns = period_ns;
    } else if (of_samples && jfr_text_is(&name, "wall")) {
        /* async-profiler can sample CPU and wall time in the same recording at different
         * intervals. */
        struct short_text value = jfr_read_short(recording, values[BR_JFR_VALUE]);
        recording->wall_ns = jfr_duration_of(value.data);
    }
}

/* Reads the name of the sampled event. Called after the last event of a chunk, because the
 * setting may be repeated and its last value counts. */
static int jfr_read_event_name(struct recording *recording, struct br_err *err)
{
    int rc = recording->event_at && recording->has_event
                 ? jfr_read_text(recording, recording->event_at, &recording->event)
                 : 0;
    recording->event_at = 0;
    return rc ? br_err_set(err, BR_EINVAL, "the name of the sampled event has more than %d bytes",
                           EVENT_MAX)
              : 0;
}

static uint32_t jfr_state_of(struct recording *recording, uint64_t id)
{
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *entry = br_jfr_ids_find(&recording->chunk.pools[BR_JFR_THREAD_STATE], id);
    if (entry && entry->note == STATE_NEW) {
        (void)br_jfr_constant(&recording->chunk, BR_JFR_THREAD_STATE, id, v);
        struct short_text name = jfr_read_short(recording, v[BR_JFR_NAME]);
        if (jfr_text_is(&name, "STATE_RUNNABLE"))
            entry->note = STATE_RUNNABLE;
        else if (jfr_text_is(&name, "STATE_SLEEPING"))
            entry->note = STATE_SLEEPING;
        else
            entry->note = STATE_OTHER;
    }
    return entry ? entry->note : STATE_NEW;
}

/* Returns in `ret` the builder's attribute for the name of a thread; 0 if the thread has no
 * name. A pooled string is read only at its first use. */
static int jfr_name_of(struct recording *recording, uint64_t at, uint32_t *ret)
{
    const struct br_jfr_entry *pooled = at ? br_jfr_pooled(&recording->chunk, at) : NULL;
    const struct br_jfr_entry *known =
        pooled ? br_jfr_ids_find(&recording->names, pooled->at) : NULL;
    *ret = known ? known->at - 1 : 0;
    if (!at || known)
        return 0;
    int rc = jfr_read_text(recording, at, &recording->text);
    if (!rc && recording->text.len)
        *ret = br_build_attribute_text(recording->build, recording->thread_name,
                                       recording->text.data, recording->text.len);
    if (!rc && pooled)
        rc = br_jfr_ids_put(&recording->names, pooled->at, *ret + 1);
    return rc;
}

static int jfr_read_thread(struct recording *recording, const uint64_t *values,
                           struct br_jfr_thread *ret)
{
    uint32_t name;
    if (!recording->thread_name) {
        recording->thread_name = br_build_string(recording->build, "thread.name", 11);
        recording->thread_id = br_build_string(recording->build, "thread.id", 9);
    }
    int rc = jfr_name_of(recording, values[BR_JFR_JAVA_NAME], &name);
    if (!rc && !name)
        rc = jfr_name_of(recording, values[BR_JFR_OS_NAME], &name);
    if (rc)
        return rc;
    if (name)
        ret->attributes[ret->count++] = name;
    int64_t id = (int64_t)values[BR_JFR_JAVA_ID];
    if (id > 0)
        ret->attributes[ret->count++] =
            br_build_attribute_int(recording->build, recording->thread_id, id, 0);
    return 0;
}

static int jfr_thread_of(struct recording *recording, uint64_t id, uint32_t *ret)
{
    struct br_jfr_samples *samples = &recording->samples;
    uint64_t v[BR_JFR_N_SLOTS];
    struct br_jfr_entry *entry = br_jfr_ids_find(&recording->chunk.pools[BR_JFR_THREAD], id);
    if (!entry)
        return 0;
    if (!entry->note) {
        struct br_jfr_thread thread = {0};
        (void)br_jfr_constant(&recording->chunk, BR_JFR_THREAD, id, v);
        int rc = jfr_read_thread(recording, v, &thread);
        if (!rc)
            rc = br_grow(&samples->threads, &samples->threads_cap, (size_t)samples->n_threads + 1,
                         sizeof *samples->threads, UINT32_MAX);
        if (rc)
            return rc;
        samples->threads[samples->n_threads] = thread;
        entry->note = samples->n_threads++;
    }
    *ret = entry->note;
    return 0;
}

static int jfr_tags_of(struct recording *recording, const uint64_t *values, uint32_t *ret)
{
    const struct br_jfr_tags tags = {
        .span_id = values[BR_JFR_SPAN_ID],
        .span_name = br_jfr_string_of(&recording->labels, values[BR_JFR_SPAN_NAME]),
        .trace_hi = values[BR_JFR_TRACE_HI],
        .trace_lo = values[BR_JFR_TRACE_LO],
        .context = values[BR_JFR_CONTEXT_ID]
                       ? br_jfr_context_of(&recording->labels, values[BR_JFR_CONTEXT_ID])
                       : 0};
    return br_jfr_tags_add(&recording->samples, &tags, ret);
}

/* Determines the kind and value of all events except samples of CPU and wall time (see
 * jfr_on_time). */
static bool jfr_plain_kind(int type, const struct br_jfr_chunk *chunk, const uint64_t *values,
                           enum br_jfr_kind *kind, int64_t *value)
{
    switch (type) {
    case BR_JFR_ALLOC_IN_NEW_TLAB:
        *kind = BR_JFR_IN_TLAB;
        *value = (int64_t)values[BR_JFR_TLAB_SIZE];
        return true;
    case BR_JFR_ALLOC_OUTSIDE_TLAB:
        *kind = BR_JFR_OUT_TLAB;
        *value = (int64_t)values[BR_JFR_ALLOCATION_SIZE];
        return true;
    case BR_JFR_ALLOC_SAMPLE:
        *kind = BR_JFR_ALLOC;
        *value = (int64_t)values[BR_JFR_WEIGHT];
        return true;
    case BR_JFR_MONITOR_ENTER:
        *kind = BR_JFR_MUTEX;
        *value = br_jfr_ticks_ns(chunk, values[BR_JFR_DURATION]);
        return true;
    case BR_JFR_THREAD_PARK:
        *kind = BR_JFR_BLOCK;
        *value = br_jfr_ticks_ns(chunk, values[BR_JFR_DURATION]);
        return true;
    case BR_JFR_LIVE_OBJECT:
        *kind = BR_JFR_LIVE;
        return true;
    case BR_JFR_MALLOC:
        *kind = BR_JFR_MEMORY;
        *value = (int64_t)values[BR_JFR_SIZE];
        return true;
    default:
        return false;
    }
}

/* Adds a sample for an event of the type jdk.CPUTimeSample. The event contains the CPU time that
 * it represents. */
static int jfr_on_cpu_time(struct recording *recording, const uint64_t *values,
                           struct br_jfr_sample *sample)
{
    recording->cpu_time_ns = br_jfr_ticks_ns(&recording->chunk, values[BR_JFR_SAMPLING_PERIOD]);
    sample->values[0] = recording->cpu_time_ns;
    return br_jfr_sample_add(&recording->samples, BR_JFR_CPU_TIME, sample);
}

/* Adds a sample of CPU time or wall time. An event for a running thread is a sample of CPU time.
 * If async-profiler was configured for wall time, it sampled all threads, whether running or
 * not. */
static int jfr_on_time(struct recording *recording, int type, const uint64_t *values,
                       struct br_jfr_sample *sample)
{
    uint32_t state = jfr_state_of(recording, values[BR_JFR_STATE]);
    int rc = 0;
    bool counted = type == BR_JFR_WALL_CLOCK_SAMPLE;
    bool cpu = counted ? state == STATE_RUNNABLE && recording->wall
                       : state != STATE_NEW && state != STATE_SLEEPING;
    if (counted)
        sample->values[0] = (int64_t)values[BR_JFR_SAMPLES];
    if (cpu)
        rc = br_jfr_sample_add(&recording->samples, BR_JFR_CPU, sample);
    if (!rc && (counted || recording->wall))
        rc = br_jfr_sample_add(&recording->samples, BR_JFR_WALL, sample);
    return rc;
}

static int jfr_on_event(struct recording *recording, int type, const uint64_t *values,
                        struct br_err *err)
{
    if (type == BR_JFR_ACTIVE_SETTING) {
        jfr_on_setting(recording, values);
        return 0;
    }
    struct br_jfr_sample sample = {.values = {1, 0}};
    int rc = br_jfr_stack(&recording->stacks, &recording->chunk, values[BR_JFR_STACK],
                          &sample.key.stack, err);
    if (rc < 0 || (!rc && recording->source->from_pyroscope))
        return rc;
    rc = jfr_tags_of(recording, values, &sample.key.tags);
    if (!rc && !recording->samples.fold) {
        sample.time_ns = br_jfr_time(&recording->chunk, values[BR_JFR_START]);
        rc = jfr_thread_of(recording, values[BR_JFR_BY_THREAD], &sample.key.thread);
    }
    if (rc)
        return rc;
    enum br_jfr_kind kind;
    if (jfr_plain_kind(type, &recording->chunk, values, &kind, &sample.values[1]))
        return br_jfr_sample_add(&recording->samples, kind, &sample);
    if (type == BR_JFR_CPU_TIME_SAMPLE)
        return jfr_on_cpu_time(recording, values, &sample);
    return jfr_on_time(recording, type, values, &sample);
}

static int jfr_read_chunk(struct recording *recording, size_t at, struct br_err *err)
{
    const struct br_profile_source *source = recording->source;
    uint64_t v[BR_JFR_N_SLOTS];
    int type, rc = br_jfr_chunk_open(&recording->chunk, source->data + at, source->len - at, err);
    if (rc)
        return rc;
    br_jfr_stacks_begin(&recording->stacks);
    br_jfr_ids_clear(&recording->names);
    if (!at)
        recording->start_ns = recording->chunk.start_ns;
    if (__builtin_add_overflow(recording->chunk.start_ns, recording->chunk.duration_ns,
                               &recording->end_ns))
        recording->end_ns = recording->chunk.start_ns;
    br_jfr_events_begin(&recording->events, &recording->chunk);
    while ((type = br_jfr_event(&recording->chunk, &recording->events, v, err)) > 0) {
        rc = jfr_on_event(recording, type, v, err);
        if (!rc)
            rc = br_build_rc(recording->build);
        if (rc)
            return rc;
    }
    return type ? type : jfr_read_event_name(recording, err);
}

/* Returns true if the chunk at `at` is incomplete, because the program was killed. The chunks
 * before an incomplete chunk are valid. */
static bool jfr_is_torn(const struct recording *recording, size_t at)
{
    const struct br_profile_source *source = recording->source;
    struct br_profile_lost *lost = source->lost;
    if (!br_jfr_is_torn(source->data + at, source->len - at))
        return false;
    if (lost && !lost->count)
        (void)br_err_set(&lost->first, BR_EINVAL,
                         "JFR chunk at byte %zu: it is incomplete, with %zu bytes", at,
                         source->len - at);
    if (lost)
        lost->count++;
    return true;
}

static int64_t jfr_period_of(const struct recording *recording)
{
    double rate = recording->source->sample_rate;
    /* The sampling rate that a Pyroscope client sends takes precedence over the rate in the
     * recording, as in Pyroscope. */
    if (!(rate > 0) && !recording->source->from_pyroscope && recording->period_ns)
        return recording->period_ns;
    double ns = NS_PER_S / (rate > 0 ? rate : DEFAULT_RATE);
    return ns < 9e18 ? (int64_t)ns : INT64_MAX;
}

static int64_t jfr_wall_of(const struct recording *recording, int64_t period_ns)
{
    return !recording->source->from_pyroscope && recording->wall_ns ? recording->wall_ns
                                                                    : period_ns;
}

static int jfr_write(struct recording *recording, struct br_arena *scratch)
{
    const struct br_profile_source *source = recording->source;
    /* The start and end that a Pyroscope client sends take precedence over the times in the
     * recording. */
    bool given = source->start_ns && (source->from_pyroscope || !recording->start_ns);
    uint64_t start = given ? source->start_ns : recording->start_ns;
    uint64_t end = given ? source->end_ns : recording->end_ns;
    int64_t period_ns = jfr_period_of(recording);
    const struct br_jfr_result result = {
        .samples = &recording->samples,
        .labels = &recording->labels,
        .event = recording->has_event ? recording->event.data : NULL,
        .period_ns = {[BR_JFR_CPU] = period_ns,
                      [BR_JFR_CPU_TIME] = recording->cpu_time_ns,
                      [BR_JFR_WALL] = jfr_wall_of(recording, period_ns)},
        .start_ns = start,
        .duration_ns = end > start ? end - start : 0};
    /* The builder's memory limit covers its output and the samples, which exist at the same
     * time. */
    br_jfr_samples_finish(&recording->samples);
    size_t samples_size = br_jfr_samples_size(&recording->samples),
           limit = br_build_limit(recording->build, SIZE_MAX);
    (void)br_build_limit(recording->build, limit > samples_size ? limit - samples_size : 0);
    int rc = br_jfr_write(recording->build, source, &result, scratch);
    (void)br_build_limit(recording->build, limit);
    return rc;
}

static int jfr_read_all(struct recording *recording, struct br_arena *scratch, struct br_err *err)
{
    const struct br_profile_source *source = recording->source;
    int rc =
        br_jfr_samples_init(&recording->samples, source->from_pyroscope && !source->keeps_times);
    if (!rc)
        rc = br_jfr_labels_begin(&recording->labels, recording->build, br_profile_text_max(source));
    if (!rc && source->labels)
        rc = br_jfr_labels_read(&recording->labels, source->labels, source->labels_len, scratch,
                                err);
    for (size_t at = 0; at < source->len && !rc; at += recording->chunk.size) {
        if (at && jfr_is_torn(recording, at))
            break;
        rc = jfr_read_chunk(recording, at, err);
        if (rc == BR_EINVAL) {
            br_err_prefix(err, "JFR chunk at byte %zu: ", at);
            return rc;
        }
    }
    br_jfr_chunk_release(&recording->chunk); /* the chunk is not needed for writing */
    br_jfr_stacks_release(&recording->stacks);
    return rc ? rc : jfr_write(recording, scratch);
}

int br_jfr_read(struct br_build *build, const struct br_profile_source *source,
                struct br_arena *scratch, struct br_err *err)
{
    struct recording *recording = br_calloc(1, sizeof *recording);
    if (!recording)
        return br_err_set(err, BR_ENOMEM, "%s", br_strerror(BR_ENOMEM));
    recording->source = source;
    recording->build = build;
    recording->event = (struct br_str){
        .data = recording->event_text, .cap = sizeof recording->event_text, .fixed = true};
    recording->stacks.build = build;
    recording->stacks.lines_signed = !source->from_pyroscope;
    recording->stacks.name_bytes_max = br_profile_text_max(source);
    recording->stacks.name.max = recording->stacks.name_bytes_max + 1;
    recording->stacks.converted.max = recording->text.max =
        2 * source->len + 64; /* Latin-1 text may double in size as UTF-8 */
    int rc = jfr_read_all(recording, scratch, err);
    br_jfr_stacks_release(&recording->stacks);
    br_jfr_samples_release(&recording->samples);
    br_jfr_labels_release(&recording->labels);
    br_jfr_chunk_release(&recording->chunk);
    br_jfr_ids_release(&recording->names);
    br_str_release(&recording->text);
    br_free(recording);
    if (!rc)
        rc = br_build_rc(build);
    if (rc == BR_ETOOBIG)
        return br_err_set(err, BR_EINVAL, "the labels are too large for the size of the recording");
    if (rc == BR_EFULL)
        return br_err_set(err, rc, "the converted recording is too large");
    return rc == BR_ENOMEM ? br_err_set(err, rc, "%s", br_strerror(rc)) : rc;
}
