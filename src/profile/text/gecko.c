/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads profiles of profiler.firefox.com. There are two formats: the processed format up to version
 * 75 (samply, vernier, files saved by the profiler) and the Gecko format (`perf script gecko`,
 * Firefox).
 *
 * A sample represents `weight` intervals of time, as in the profiler's call tree. If the file
 * contains CPU time deltas, the sample also represents the CPU time since the previous sample.
 * Markers, counters and allocation tables are ignored.
 */
#include <math.h>
#include <string.h>

#include "base/decimal.h"
#include "base/mem.h"
#include "profile/text/gecko.h"
#include "profile/timed.h"

#define DEPTH_MAX 64
#define NS_PER_MS 1e6
#define NS_PER_S 1e9
#define TIME_MAX 9.2e12 /* largest valid time, in ms */
#define VALUE_MAX 9.2e18
#define DEFAULT_RATE 1000.0

enum type { WALL, CPU, BYTES, N_TYPES };

/* The threads of one process. The file contains the threads of its main process, and may contain
 * other processes in `processes`. */
struct process {
    struct br_json_part threads;
    double start_ms; /* start in ms since 1970; the times of samples are relative to this start */
};

struct gecko {
    struct br_gecko_reading reading;
    const struct br_profile_source *source;
    struct br_timed timed;
    struct br_gecko_parts shared_parts;
    struct br_gecko_stacks shared;
    struct br_json_part processes;
    struct process process;
    /* `interval_ns`: nanoseconds per unit of a weight; `cpu_ns`: per unit of threadCPUDelta, or 0
     * if the delta is not a time; `time_ns`: per unit of a sample's time */
    double interval_ns, cpu_ns, time_ns;
    uint32_t thread_name, thread_id, pid; /* attribute keys, as indices of strings in the builder */
};

/* --- Samples ---------------------------------------------------------------------------------- */

/* State while the samples of one thread are read. */
struct thread {
    struct br_gecko_parts parts;
    struct br_json_part samples;
    struct br_json_token name, tid, pid, weight_type;
    struct br_timed_sample sample; /* the current sample; its attributes are those of the thread */
    double ms;                     /* time of the last sample, in ms */
    bool any;
};

enum sample_column { STACK, TIME, DELTA, WEIGHT, CPU_DELTA, N_SAMPLE_COLUMNS };

static int gecko_add(struct gecko *gecko, struct thread *thread, enum type type, double value)
{
    if (value < 0)
        return br_gecko_fail(&gecko->reading, "a negative weight");
    if (value > VALUE_MAX)
        return br_gecko_fail(&gecko->reading, "a weight is too large");
    thread->sample.type = type;
    thread->sample.value = (int64_t)round(value);
    if (thread->sample.value == 0)
        return 0;
    return br_timed_add(&gecko->timed, &thread->sample) ? br_gecko_no_memory(&gecko->reading) : 0;
}

static int gecko_add_weight(struct gecko *gecko, struct thread *thread,
                            const struct br_json_token *token)
{
    double weight = 1;
    if (token->type != BR_JSON_NULL && !br_json_part_number(token, &weight))
        return br_gecko_fail(&gecko->reading, "a weight is not a number");
    if (br_json_part_is(&thread->weight_type, "bytes"))
        return gecko_add(gecko, thread, BYTES, weight);
    if (br_json_part_is(&thread->weight_type, "tracing-ms"))
        return gecko_add(gecko, thread, WALL, weight * NS_PER_MS);
    return gecko_add(gecko, thread, WALL, weight * gecko->interval_ns);
}

/* Converts a time to ns since 1970. Whole milliseconds are added as integers, because a double
 * cannot represent today's time in nanoseconds. */
static uint64_t gecko_time_ns(const struct gecko *gecko, double ms)
{
    double whole = floor(gecko->process.start_ms);
    double offset_ns = (gecko->process.start_ms - whole) * NS_PER_MS + ms * gecko->time_ns;
    uint64_t start = (uint64_t)whole * (uint64_t)NS_PER_MS;
    if (offset_ns >= 0)
        return start + (uint64_t)round(offset_ns);
    return start > (uint64_t)round(-offset_ns) ? start - (uint64_t)round(-offset_ns) : 0;
}

static int gecko_read_time(struct gecko *gecko, struct thread *thread,
                           const struct br_json_token *row)
{
    double ms;
    if (br_json_part_number(&row[TIME], &ms))
        thread->ms = ms;
    else if (br_json_part_number(&row[DELTA], &ms))
        thread->ms += ms;
    else
        return br_gecko_fail(&gecko->reading, "a sample has no time");
    if (!(fabs(thread->ms) < TIME_MAX))
        return br_gecko_fail(&gecko->reading, "a time is not a number of milliseconds");
    thread->sample.time_ns = gecko_time_ns(gecko, thread->ms);
    return 0;
}

/* Reads a sample. A sample without a stack is ignored. The CPU time of the first sample is
 * ignored, because the thread used it before the recording. */
static int gecko_read_sample(struct gecko *gecko, struct thread *thread,
                             struct br_gecko_stacks *stacks, const struct br_json_token *row)
{
    double cpu;
    bool first = !thread->any;
    int rc = gecko_read_time(gecko, thread, row);
    thread->any = true;
    if (rc || row[STACK].type == BR_JSON_NULL)
        return rc;
    rc = br_gecko_stack(stacks, &row[STACK], &thread->sample.stack);
    if (!rc)
        rc = gecko_add_weight(gecko, thread, &row[WEIGHT]);
    if (!rc && gecko->cpu_ns > 0 && !first && br_json_part_number(&row[CPU_DELTA], &cpu))
        rc = gecko_add(gecko, thread, CPU, cpu * gecko->cpu_ns);
    return rc;
}

static int gecko_read_samples(struct gecko *gecko, struct thread *thread,
                              struct br_gecko_stacks *stacks)
{
    static const char *const names[N_SAMPLE_COLUMNS] = {[STACK] = "stack",
                                                        [TIME] = "time",
                                                        [DELTA] = "timeDeltas",
                                                        [WEIGHT] = "weight",
                                                        [CPU_DELTA] = "threadCPUDelta"};
    struct br_json_token row[N_SAMPLE_COLUMNS];
    struct br_gecko_table table;
    bool more = true;
    int rc =
        br_gecko_table_open(&table, &gecko->reading.scan, thread->samples, names, N_SAMPLE_COLUMNS);
    while (!rc && (rc = br_gecko_table_next(&table, row, &more)) == 0 && more)
        rc = gecko_read_sample(gecko, thread, stacks, row);
    return rc;
}

/* --- Threads ---------------------------------------------------------------------------------- */

static void gecko_on_samples(void *arg, const struct br_json_scan *scan,
                             const struct br_json_token *name, const struct br_json_token *value)
{
    struct thread *thread = arg;
    (void)scan;
    if (br_json_part_is(name, "weightType"))
        thread->weight_type = *value;
}

static void gecko_on_thread(void *arg, const struct br_json_scan *scan,
                            const struct br_json_token *name, const struct br_json_token *value)
{
    struct thread *thread = arg;
    if (br_json_part_is(name, "samples"))
        thread->samples = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "name"))
        thread->name = *value;
    else if (br_json_part_is(name, "tid"))
        thread->tid = *value;
    else if (br_json_part_is(name, "pid"))
        thread->pid = *value;
    else
        br_gecko_on_part(&thread->parts, scan, name, value);
}

/* Builds an attribute with a process or thread number. The number may be a text that also
 * contains a serial number after a point ("123.1"). Returns 0 if the number is invalid. */
static uint32_t gecko_number_attribute(struct gecko *gecko, uint32_t key,
                                       const struct br_json_token *token)
{
    double number;
    uint64_t v;
    if (br_json_part_number(token, &number) && number >= 0 && number <= UINT32_MAX)
        return br_build_attribute_int(gecko->reading.build, key, (int64_t)number, 0);
    const char *p = token->text, *end = br_mem_end(p, token->len);
    return token->type == BR_JSON_STRING && br_decimal_read(&p, end, UINT32_MAX, &v) &&
                   (p == end || *p == '.')
               ? br_build_attribute_int(gecko->reading.build, key, (int64_t)v, 0)
               : 0;
}

static int gecko_describe_thread(struct gecko *gecko, struct thread *thread)
{
    const char *text;
    size_t len;
    if (!br_gecko_text(&gecko->reading, &thread->name, &text, &len))
        return br_gecko_no_memory(&gecko->reading);
    if (len)
        thread->sample.attributes[0] =
            br_build_attribute_text(gecko->reading.build, gecko->thread_name, text, len);
    thread->sample.attributes[1] = gecko_number_attribute(gecko, gecko->thread_id, &thread->tid);
    thread->sample.attributes[2] = gecko_number_attribute(gecko, gecko->pid, &thread->pid);
    return br_build_rc(gecko->reading.build);
}

static int gecko_read_own_tables(struct gecko *gecko, struct thread *thread)
{
    struct br_gecko_stacks stacks;
    int rc = br_gecko_stacks_read(&stacks, &gecko->reading, &thread->parts, &gecko->shared);
    if (!rc)
        rc = gecko_read_samples(gecko, thread, &stacks);
    br_gecko_stacks_release(&stacks);
    return rc;
}

static int gecko_read_thread(void *arg, struct br_json_scan *scan)
{
    struct gecko *gecko = arg;
    struct thread thread = {.any = false};
    int rc = br_json_members(scan, gecko_on_thread, &thread);
    if (rc || !thread.samples.at)
        return rc;
    struct br_json_scan samples = br_json_part_scan(&gecko->reading.scan, thread.samples);
    rc = br_json_members(&samples, gecko_on_samples, &thread);
    if (!rc)
        rc = gecko_describe_thread(gecko, &thread);
    if (rc)
        return rc;
    return thread.parts.stacks.at ? gecko_read_own_tables(gecko, &thread)
                                  : gecko_read_samples(gecko, &thread, &gecko->shared);
}

/* --- File ------------------------------------------------------------------------------------- */

struct members {
    struct br_json_part meta, units, shared, threads, processes;
    struct br_json_token start, interval, cpu_unit, time_unit;
};

static void gecko_on_root(void *arg, const struct br_json_scan *scan,
                          const struct br_json_token *name, const struct br_json_token *value)
{
    struct members *members = arg;
    if (br_json_part_is(name, "meta"))
        members->meta = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "shared"))
        members->shared = br_json_part_of(scan, value, BR_JSON_OBJECT);
    else if (br_json_part_is(name, "threads"))
        members->threads = br_json_part_of(scan, value, BR_JSON_ARRAY);
    else if (br_json_part_is(name, "processes"))
        members->processes = br_json_part_of(scan, value, BR_JSON_ARRAY);
}

static void gecko_on_meta(void *arg, const struct br_json_scan *scan,
                          const struct br_json_token *name, const struct br_json_token *value)
{
    struct members *members = arg;
    if (br_json_part_is(name, "startTime"))
        members->start = *value;
    else if (br_json_part_is(name, "interval"))
        members->interval = *value;
    else if (br_json_part_is(name, "sampleUnits"))
        members->units = br_json_part_of(scan, value, BR_JSON_OBJECT);
}

static void gecko_on_units(void *arg, const struct br_json_scan *scan,
                           const struct br_json_token *name, const struct br_json_token *value)
{
    struct members *members = arg;
    (void)scan;
    if (br_json_part_is(name, "threadCPUDelta"))
        members->cpu_unit = *value;
    else if (br_json_part_is(name, "time"))
        members->time_unit = *value;
}

static void gecko_on_shared(void *arg, const struct br_json_scan *scan,
                            const struct br_json_token *name, const struct br_json_token *value)
{
    struct gecko *gecko = arg;
    br_gecko_on_part(&gecko->shared_parts, scan, name, value);
}

/* Calls `fn` for each member of the object `part`. Does nothing if the profile lacks the object. */
static int gecko_read_members(struct gecko *gecko, struct br_json_part part, br_json_member_fn *fn,
                              void *arg)
{
    struct br_json_scan scan = br_json_part_scan(&gecko->reading.scan, part);
    return part.at ? br_json_members(&scan, fn, arg) : 0;
}

/* Reads the members of the next process in `scan`, and of its `meta`. */
static int gecko_read_process_members(struct gecko *gecko, struct br_json_scan *scan,
                                      struct members *members)
{
    double start;
    int rc = br_json_members(scan, gecko_on_root, members);
    if (!rc)
        rc = gecko_read_members(gecko, members->meta, gecko_on_meta, members);
    bool starts = br_json_part_number(&members->start, &start) && start >= 0 && start < TIME_MAX;
    gecko->process = (struct process){members->threads, starts ? start : 0};
    return rc;
}

static int gecko_read_process(void *arg, struct br_json_scan *scan)
{
    struct gecko *gecko = arg;
    struct members members = {.meta.at = NULL};
    int rc = gecko_read_process_members(gecko, scan, &members);
    return rc ? rc
              : br_json_elements(&gecko->reading.scan, gecko->process.threads, gecko_read_thread,
                                 gecko);
}

static void gecko_set_types(struct gecko *gecko)
{
    const int64_t period = (int64_t)gecko->interval_ns;
    struct br_timed *timed = &gecko->timed;
    timed->types[WALL] = (struct br_timed_type){.metric = "wall",
                                                .type = "wall",
                                                .unit = "nanoseconds",
                                                .period_type = "wall",
                                                .period_unit = "nanoseconds",
                                                .period = period};
    timed->types[CPU] = (struct br_timed_type){.metric = "process_cpu",
                                               .type = "cpu",
                                               .unit = "nanoseconds",
                                               .period_type = "cpu",
                                               .period_unit = "nanoseconds",
                                               .period = period};
    timed->types[BYTES] =
        (struct br_timed_type){.metric = "memory", .type = "samples", .unit = "bytes"};
    timed->n_types = N_TYPES;
}

static void gecko_set_units(struct gecko *gecko, const struct members *members)
{
    double ms, rate = gecko->source->sample_rate > 0 ? gecko->source->sample_rate : DEFAULT_RATE;
    bool known = br_json_part_number(&members->interval, &ms) && ms > 0 && ms < TIME_MAX;
    gecko->interval_ns = known ? ms * NS_PER_MS : NS_PER_S / rate;
    gecko->cpu_ns = 0;
    if (br_json_part_is(&members->cpu_unit, "ns"))
        gecko->cpu_ns = 1;
    /* microseconds, written with the micro sign U+00B5 */
    else if (br_json_part_is(&members->cpu_unit, "\xc2\xb5s"))
        gecko->cpu_ns = 1e3;
    gecko->time_ns = br_json_part_is(&members->time_unit, "bytes") ? 0 : NS_PER_MS;
}

static int gecko_read_file(struct gecko *gecko)
{
    struct br_json_scan scan = gecko->reading.scan;
    struct members members = {.meta.at = NULL};
    int rc = gecko_read_process_members(gecko, &scan, &members);
    if (!rc)
        rc = br_json_scan_end(&scan);
    if (!rc && (!members.meta.at || !members.threads.at))
        rc = br_gecko_fail(&gecko->reading, "\"meta\" or \"threads\" is missing");
    if (!rc)
        rc = gecko_read_members(gecko, members.units, gecko_on_units, &members);
    if (!rc)
        rc = gecko_read_members(gecko, members.shared, gecko_on_shared, gecko);
    if (rc)
        return rc;
    gecko_set_units(gecko, &members);
    gecko_set_types(gecko);
    rc = br_gecko_stacks_read(&gecko->shared, &gecko->reading, &gecko->shared_parts, NULL);
    if (!rc)
        rc = br_json_elements(&gecko->reading.scan, members.threads, gecko_read_thread, gecko);
    return rc ? rc
              : br_json_elements(&gecko->reading.scan, members.processes, gecko_read_process,
                                 gecko);
}

int br_gecko_read(struct br_build *build, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err)
{
    struct br_err ignored = {0};
    struct gecko gecko = {.reading = {.build = build, .err = err ? err : &ignored},
                          .source = source,
                          .timed = {.build = build, .n_types = N_TYPES}};
    gecko.reading.path_left = br_profile_text_max(source);
    gecko.thread_name = br_build_string(build, "thread.name", 11);
    gecko.thread_id = br_build_string(build, "thread.id", 9);
    gecko.pid = br_build_string(build, "process.pid", 11);
    int rc = br_json_scan_init(&gecko.reading.scan, source->len ? (const char *)source->data : "",
                               source->len, DEPTH_MAX, gecko.reading.err);
    if (!rc)
        rc = gecko_read_file(&gecko);
    br_gecko_stacks_release(&gecko.shared);
    br_gecko_reading_release(&gecko.reading);
    if (rc) {
        br_timed_release(&gecko.timed);
        if (!gecko.reading.err->code)
            (void)br_err_set(gecko.reading.err, rc, "cannot be converted: %s", br_strerror(rc));
        return rc == BR_ETOOBIG ? BR_EINVAL : rc;
    }
    return br_timed_emit(&gecko.timed, source, scratch, gecko.reading.err);
}
