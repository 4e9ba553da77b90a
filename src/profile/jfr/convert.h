/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a JFR recording to profiles. This header is private to src/profile/jfr.
 *
 * Each event of a recording becomes a sample, which is added to the table of the event's kind (enum
 * br_jfr_kind). Tables are written at the end, for two reasons: the series label `jfr_event` may be
 * anywhere in the recording, and an event may belong to two profiles. Dictionary entries are passed
 * to the builder immediately.
 *
 * There are three modes:
 * - Recordings of Pyroscope clients must produce the same result as in Pyroscope. In this first
 *   mode, samples with equal stack and labels are folded into one sample with the sum of their
 *   values. The first mode omits threads, times, and samples whose stack is missing from the
 *   recording.
 * - If keeps_times is set, recordings of Pyroscope clients also keep threads and times for the
 *   processor join, which removes them later. In this second mode, samples with equal stack, labels
 *   and thread become one sample with lists of times and values.
 * - All other recordings keep all samples, threads and times. In this third mode, each event
 *   becomes a sample with its time and the attributes `thread.name` and `thread.id`. A join can
 *   then find the span that was open at that time. `thread.id` is Java's thread number, which
 *   OpenTelemetry's Java agent writes to spans as well.
 *
 * Source: jfr-parser 0.18, pprof/. This code differs from jfr-parser where jfr-parser misinterprets
 * recordings:
 * - The number of samples in a profiler.WallClockSample applies only to that event.
 * - IDs of stack traces are valid only within their chunk.
 * - Durations are in the ticks of the chunk header.
 * - Profiles that measure time have a period, so that readers can recompute the number of samples.
 */
#pragma once

#include "base/arena.h"
#include "base/index.h"
#include "otlp/build/build.h"
#include "profile/jfr/jfr.h"
#include "profile/profile.h"

/* --- Labels from the LabelsSnapshot of a recording -------------------------------------------- */

struct br_jfr_label {
    uint32_t key;       /* index of the key's string in the builder */
    uint32_t attribute; /* index of the attribute in the builder */
};

struct br_jfr_context {
    const struct br_jfr_label *labels; /* labels sorted by key; each key occurs once */
    uint32_t count;
    /* The labels contain a span ID or a trace ID, because old agents send the IDs of the span as
     * labels. */
    bool has_span, has_trace;
    uint8_t span_id[8], trace_id[16];
};

struct br_jfr_string {
    const uint8_t *text; /* text of the string; NULL: the recording does not contain the string */
    uint32_t len;
    /* index of the string in the builder, if the text is used as a key; 0: the text has not been
     * used as a key yet */
    uint32_t key;
};

/* A label: a key with a value. Many contexts (sets of labels) may contain the same pair. */
struct br_jfr_pair {
    uint32_t attribute; /* index of the attribute in the builder */
    enum br_jfr_means {
        BR_JFR_NO_ID,
        BR_JFR_SPAN_LABEL,
        BR_JFR_PROFILE_LABEL,
        BR_JFR_TRACE_LABEL
    } means : 8;
    bool readable;  /* the value is a valid ID */
    uint8_t id[16]; /* the span or trace ID in the value; a span ID is in the first eight bytes */
};

struct br_jfr_labels {
    struct br_build *build;
    size_t text_max; /* maximum number of bytes of text that the attributes added later may have in
                        total */
    struct br_jfr_context *contexts;
    uint32_t n_contexts, contexts_cap;
    /* strings[0] stands for all strings that the recording does not contain */
    struct br_jfr_string *strings;
    uint32_t n_strings, strings_cap;
    struct br_jfr_pair *pairs;
    uint32_t n_pairs, pairs_cap;
    /* `context_of` maps the ID of a context in the snapshot to the index of the context, plus 1;
     * `string_of` maps the ID of a string to the index of the string */
    struct br_jfr_ids context_of, string_of;
    /* maps `key << 32 | string` to the index, plus 1, in `pairs` */
    struct br_jfr_ids pair_of;
};

/* Initialises a zeroed `labels`. The attributes of all labels may have at most `text_max` bytes
 * of text. Returns 0 or BR_ENOMEM. */
int br_jfr_labels_begin(struct br_jfr_labels *labels, struct br_build *build, size_t text_max);

/* Reads a LabelsSnapshot message. Contexts with equal content share an index. `data` is borrowed
 * until br_jfr_labels_release; the labels of contexts are allocated in `scratch`. Returns 0,
 * BR_EINVAL with a message, BR_ETOOBIG (more text than text_max), BR_ENOMEM, or the builder's
 * error. A zeroed `labels` may be released too. */
int br_jfr_labels_read(struct br_jfr_labels *labels, const uint8_t *data, size_t len,
                       struct br_arena *scratch, struct br_err *err);
void br_jfr_labels_release(struct br_jfr_labels *labels);

/* Returns the index in `labels->strings` of the string with this ID; 0 if the ID is unknown. */
uint32_t br_jfr_string_of(const struct br_jfr_labels *labels, uint64_t id);

/* Returns in `ret` the builder's attribute whose key is `key` and whose value is string number
 * `string` of `labels`; 0 if that string is empty or missing. `key` is the index of a string in
 * the builder and must not be one of the keys that name IDs, such as "span_id". Returns 0,
 * BR_ETOOBIG (more text than text_max), BR_ENOMEM, or the builder's error. */
int br_jfr_label_attribute(struct br_jfr_labels *labels, uint32_t key, uint32_t string,
                           uint32_t *ret);

/* Returns the index, plus 1, in `labels->contexts` of the context with this ID; 0 if the ID is
 * unknown. */
uint32_t br_jfr_context_of(const struct br_jfr_labels *labels, uint64_t id);

/* --- Samples ---------------------------------------------------------------------------------- */

/* Kinds of profiles, in the order in which they are written. jfr-parser knows all of these kinds
 * except BR_JFR_CPU_TIME. */
enum br_jfr_kind {
    BR_JFR_CPU,
    BR_JFR_CPU_TIME, /* CPU time from events of the type jdk.CPUTimeSample */
    BR_JFR_WALL,
    BR_JFR_IN_TLAB,
    BR_JFR_OUT_TLAB,
    BR_JFR_ALLOC,
    BR_JFR_MUTEX,
    BR_JFR_BLOCK,
    BR_JFR_LIVE,
    BR_JFR_MEMORY, /* native memory allocated, from events of the type profiler.Malloc */
    BR_JFR_N_KINDS
};

/* Properties of a sample by which samples are grouped or folded. Samples with equal properties form
 * one group, or are folded into one sample. */
struct br_jfr_key {
    uint32_t stack;  /* index of the stack in the builder */
    uint32_t tags;   /* index into br_jfr_samples.tags; 0: the sample has no tags */
    uint32_t thread; /* index into br_jfr_samples.threads; 0: the sample has no thread */
};

struct br_jfr_sample {
    struct br_jfr_key key;
    int64_t values[2];
    uint64_t time_ns; /* time of the sample, in ns since 1970; 0 for folded samples */
};

/* Block of packed samples, used if samples are not folded. The samples are packed because a
 * recording may contain an event for every dozen bytes, and each event becomes a sample. */
struct br_jfr_block {
    struct br_jfr_block *next;
    uint32_t len, size;
    uint8_t data[];
};

struct br_jfr_folded {
    uint32_t stack, tags;
    int64_t values[2];
};

/* Span and labels of a sample, as written in the recording. */
struct br_jfr_tags {
    uint64_t span_id, trace_hi, trace_lo;
    uint32_t span_name; /* index of the span's name in br_jfr_labels.strings */
    /* index, plus 1, into br_jfr_labels.contexts; 0: the sample has no context */
    uint32_t context;
};

struct br_jfr_thread {
    uint32_t attributes[2]; /* indices in the builder of the thread's attributes */
    uint32_t count;
};

struct br_jfr_table {
    uint32_t count;
    /* first and last block of packed samples; NULL if the samples are folded */
    struct br_jfr_block *first, *last;
    uint64_t time_ns; /* time of the sample added last, in ns since 1970 */
    struct br_jfr_folded *folded;
    uint32_t folded_cap;
    struct br_index index; /* hash index of `folded` */
};

/* Position in the samples of a table. The caller initialises the cursor as `{.table = ...}`. */
struct br_jfr_cursor {
    const struct br_jfr_table *table;
    uint32_t count;
    const struct br_jfr_block *block;
    uint32_t at;
    uint64_t time_ns;
};

struct br_jfr_samples {
    bool fold;
    struct br_jfr_table tables[BR_JFR_N_KINDS];
    struct br_jfr_tags *tags; /* tags[0] stands for a sample without tags */
    uint32_t n_tags, tags_cap;
    struct br_index tag_index;     /* hash index of `tags` except tags[0] */
    struct br_jfr_thread *threads; /* threads[0] stands for a sample without a thread */
    uint32_t n_threads, threads_cap;
};

/* Initialises a zeroed `samples`. Returns 0 or BR_ENOMEM. */
int br_jfr_samples_init(struct br_jfr_samples *samples, bool fold);
void br_jfr_samples_release(struct br_jfr_samples *samples);

/* Returns in `ret` the index of `tags` in `samples->tags`; 0 if all fields of `tags` are 0. Adds
 * the tags if `samples->tags` does not contain them. Returns 0 or BR_ENOMEM. */
int br_jfr_tags_add(struct br_jfr_samples *samples, const struct br_jfr_tags *tags, uint32_t *ret);

/* Adds a sample. If samples are folded, adds the sample's values to those of an equal sample.
 * Returns 0, BR_ENOMEM or BR_EFULL (the table cannot have more samples). */
int br_jfr_sample_add(struct br_jfr_samples *samples, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample);

/* Returns in `ret` the next sample of a table, in the order in which the samples were added.
 * Returns false at the end. */
bool br_jfr_sample_next(struct br_jfr_cursor *at, struct br_jfr_sample *ret);

/* Frees memory that is needed only for adding samples. After br_jfr_samples_finish, no samples may
 * be added. */
void br_jfr_samples_finish(struct br_jfr_samples *samples);

/* Returns the memory used by the samples, in bytes. */
size_t br_jfr_samples_size(const struct br_jfr_samples *samples);

/* Frees the samples of a table and empties it. */
void br_jfr_table_release(struct br_jfr_table *table);

/* --- Groups of samples ------------------------------------------------------------------------ */

/* Samples with equal stack, thread and tags. */
struct br_jfr_group {
    struct br_jfr_key key;
    /* number of samples of the group, and index of the first of these samples in `times` and
     * `values` */
    uint32_t count, first;
};

/* Samples of a table that are not folded, sorted by group. Within a group, samples keep the
 * order of the recording. */
struct br_jfr_groups {
    struct br_jfr_group *groups; /* groups in the order of the first sample of each group */
    uint32_t count, cap;
    uint64_t *times;
    int64_t *values;
    struct br_index index; /* hash index of `groups`, used during br_jfr_groups_make */
};

/* Groups the samples of a table. `which` selects the value of each sample that is copied: values[0]
 * or values[1]. Returns 0 or BR_ENOMEM. The caller must call br_jfr_groups_release even after
 * BR_ENOMEM. */
int br_jfr_groups_make(struct br_jfr_groups *groups, const struct br_jfr_table *table, int which);
void br_jfr_groups_release(struct br_jfr_groups *groups);

/* --- Stacks ----------------------------------------------------------------------------------- */

/* A string of the recording, such as a class or method name, from which the names of frames are
 * made. The text is converted to UTF-8 and merged (see br_jfr_merge_name) only once. */
struct br_jfr_symbol {
    uint32_t at, len;
    bool converted; /* `at` is an offset in br_jfr_stacks.converted instead of the chunk */
};

/* State of resolving the stacks of one recording. */
struct br_jfr_stacks {
    struct br_build *build;
    /* true: line numbers above 2^31 become 0 (unknown), because the JVM writes -1 for an unknown
     * line */
    bool lines_signed;
    /* index of the builder's mapping that all locations share; 0: the mapping has not been added
     * yet */
    uint32_t mapping;
    /* maximum number of bytes that the names of functions added later may have in total; only
     * malicious input reaches this limit */
    size_t name_bytes_max;
    struct br_str name;
    struct br_jfr_symbol *symbols; /* symbols of the current chunk; symbols[0] is the empty text */
    uint32_t n_symbols, symbols_cap;
    struct br_str converted;
    uint32_t *locations;
    uint32_t locations_cap;
};

/* Discards the symbols of the previous chunk. */
void br_jfr_stacks_begin(struct br_jfr_stacks *stacks);

/* Returns in `ret` the builder's index of the stack with the stack trace ID `id`. The result is:
 * - 1: the stack was found.
 * - 0: the chunk does not contain this stack trace.
 * - BR_EINVAL with a message, or BR_ENOMEM. */
int br_jfr_stack(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk, uint64_t id,
                 uint32_t *ret, struct br_err *err);
void br_jfr_stacks_release(struct br_jfr_stacks *stacks);

/* --- Writing ---------------------------------------------------------------------------------- */

struct br_jfr_result {
    /* tables of samples to be written; each table is freed after its samples are written */
    struct br_jfr_samples *samples;
    struct br_jfr_labels *labels;
    /* name of the event that async-profiler was configured to sample; NULL: not recorded */
    const char *event;
    /* time in ns that one sample represents, for kinds that measure time */
    int64_t period_ns[BR_JFR_N_KINDS];
    uint64_t start_ns, duration_ns;
};

/* Writes all profiles. Returns 0, BR_ENOMEM, BR_ETOOBIG (see br_jfr_label_attribute), or the
 * builder's error. */
int br_jfr_write(struct br_build *build, const struct br_profile_source *source,
                 const struct br_jfr_result *result, struct br_arena *scratch);
