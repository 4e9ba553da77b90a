/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts a JFR recording to profiles. For src/profile/jfr only.
 *
 * Events become samples in tables of their kind; all tables are written at the end, because a label
 * of the series (`jfr_event`) may stand anywhere in the recording, and because one event can be of
 * two profiles. Dictionary entries go to the builder at once.
 *
 * Three ways to keep a sample:
 * - A recording of a Pyroscope client must become in Pyroscope what it would have become there
 *   directly: samples of equal stack and labels are folded; threads and times are left out, and so
 *   are samples whose stack is not in the recording.
 * - With keeps_times its samples keep both for the processor join, which leaves them out later.
 *   Samples of equal stack, labels and thread are one with a list of times and values.
 * - Otherwise nothing is lost: each event is a sample with its time, and has `thread.name` and
 *   `thread.id` (Java's number, as OpenTelemetry's Java agent has it on spans) as attributes, so
 *   that a join can find the span that was open then.
 *
 * Source: jfr-parser 0.18, pprof/. Where it differs from this code, it is wrong about the
 * recording:
 * - The number of samples of a profiler.WallClockSample counts for that event only.
 * - Ids of stack traces are known within their chunk only.
 * - Durations are in the header's ticks.
 * - A profile of times has a period, so that its values can be told as numbers of samples.
 */
#pragma once

#include "base/arena.h"
#include "base/index.h"
#include "otlp/build/build.h"
#include "profile/jfr/jfr.h"
#include "profile/profile.h"

/* --- Labels: the LabelsSnapshot that goes beside a recording ---------------------------------- */

struct br_jfr_label {
    uint32_t key;       /* the builder's string */
    uint32_t attribute; /* the builder's */
};

struct br_jfr_context {
    const struct br_jfr_label *labels; /* keys ascending, each once */
    uint32_t count;
    bool has_span, has_trace; /* old agents have the span's ids among the labels */
    uint8_t span_id[8], trace_id[16];
};

struct br_jfr_string {
    const uint8_t *text; /* NULL where there is none */
    uint32_t len;
    uint32_t key; /* the builder's string, once it was needed */
};

/* A key with a value, which many contexts may have. */
struct br_jfr_pair {
    uint32_t attribute; /* the builder's */
    enum br_jfr_means {
        BR_JFR_NO_ID,
        BR_JFR_SPAN_LABEL,
        BR_JFR_PROFILE_LABEL,
        BR_JFR_TRACE_LABEL
    } means : 8;
    bool readable;  /* the value is such an id */
    uint8_t id[16]; /* of a span: the first eight bytes */
};

struct br_jfr_labels {
    struct br_build *build;
    size_t text_max; /* bytes that the values of all pairs may still have */
    struct br_jfr_context *contexts;
    uint32_t n_contexts, contexts_cap;
    struct br_jfr_string *strings; /* [0] is the one that is not there */
    uint32_t n_strings, strings_cap;
    struct br_jfr_pair *pairs;
    uint32_t n_pairs, pairs_cap;
    struct br_jfr_ids context_of, string_of; /* id to index (of contexts: + 1) */
    struct br_jfr_ids pair_of;               /* key << 32 | string to index + 1 */
};

/* Prepares a zeroed `labels`, whose attributes take at most `text_max` bytes of texts. Returns 0 or
 * BR_ENOMEM. */
int br_jfr_labels_begin(struct br_jfr_labels *labels, struct br_build *build, size_t text_max);

/* Reads the message; contexts of equal content share an index. Returns 0, BR_EINVAL with a
 * sentence, BR_ETOOBIG (the texts are more than text_max), BR_ENOMEM, or the builder's error.
 * Borrows `data` until br_jfr_labels_release, which a zeroed one may have too; what contexts point
 * to lives in `scratch`. */
int br_jfr_labels_read(struct br_jfr_labels *labels, const uint8_t *data, size_t len,
                       struct br_arena *scratch, struct br_err *err);
void br_jfr_labels_release(struct br_jfr_labels *labels);

/* Returns the index of the string with this id; 0 is the one that is not there. */
uint32_t br_jfr_string_of(const struct br_jfr_labels *labels, uint64_t id);

/* The builder's attribute of a key (the builder's string, not "span_id" or another that is an id)
 * and the string with this index; 0 when that is empty or not there. Returns 0, BR_ETOOBIG (the
 * texts are more than text_max), BR_ENOMEM, or the builder's error. */
int br_jfr_label_attribute(struct br_jfr_labels *labels, uint32_t key, uint32_t string,
                           uint32_t *ret);

/* Returns the index + 1 of the context with this id; 0: there is none. */
uint32_t br_jfr_context_of(const struct br_jfr_labels *labels, uint64_t id);

/* --- Samples ---------------------------------------------------------------------------------- */

/* The profiles that jfr-parser knows, in the order in which they are written. */
enum br_jfr_kind {
    BR_JFR_CPU,
    BR_JFR_CPU_TIME, /* jdk.CPUTimeSample, which it does not know */
    BR_JFR_WALL,
    BR_JFR_IN_TLAB,
    BR_JFR_OUT_TLAB,
    BR_JFR_ALLOC,
    BR_JFR_MUTEX,
    BR_JFR_BLOCK,
    BR_JFR_LIVE,
    BR_JFR_MEMORY, /* malloc */
    BR_JFR_N_KINDS
};

/* What a sample is told apart by. */
struct br_jfr_key {
    uint32_t stack;  /* the builder's */
    uint32_t tags;   /* index into br_jfr_samples.tags; 0: none */
    uint32_t thread; /* index into br_jfr_samples.threads; 0: not kept */
};

struct br_jfr_sample {
    struct br_jfr_key key;
    int64_t values[2];
    uint64_t time_ns; /* 0: folded */
};

/* Samples that are not folded, packed one after the other: a recording of nothing but events has
 * one every dozen bytes, and each leaves its time. */
struct br_jfr_block {
    struct br_jfr_block *next;
    uint32_t len, size;
    uint8_t data[];
};

struct br_jfr_folded {
    uint32_t stack, tags;
    int64_t values[2];
};

/* The span and the labels that were set when a sample was taken, as the recording says it. */
struct br_jfr_tags {
    uint64_t span_id, trace_hi, trace_lo;
    uint32_t span_name; /* br_jfr_string_of */
    uint32_t context;   /* index into br_jfr_labels.contexts, + 1; 0: none */
};

struct br_jfr_thread {
    uint32_t attributes[2]; /* of the builder */
    uint32_t count;
};

struct br_jfr_table {
    uint32_t count;
    struct br_jfr_block *first, *last; /* of samples that are not folded */
    uint64_t time_ns;                  /* of the last sample */
    struct br_jfr_folded *folded;
    uint32_t folded_cap;
    struct br_index index; /* of `folded` */
};

/* Where a walk over a table's samples is; `{.table = ...}` at first. */
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
    struct br_jfr_tags *tags; /* [0] is none */
    uint32_t n_tags, tags_cap;
    struct br_index tag_index;     /* of all but the first */
    struct br_jfr_thread *threads; /* [0] is none */
    uint32_t n_threads, threads_cap;
};

/* Prepares a zeroed `samples`. Returns 0 or BR_ENOMEM. */
int br_jfr_samples_init(struct br_jfr_samples *samples, bool fold);
void br_jfr_samples_release(struct br_jfr_samples *samples);

/* The index of these tags, 0 when all is 0. Returns 0 or BR_ENOMEM. */
int br_jfr_tags_add(struct br_jfr_samples *samples, const struct br_jfr_tags *tags, uint32_t *ret);

/* Adds a sample, to an equal one when folding. Returns 0 or BR_ENOMEM. */
int br_jfr_sample_add(struct br_jfr_samples *samples, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample);

/* Gives the next sample, in the order in which they were added; false at the end. */
bool br_jfr_sample_next(struct br_jfr_cursor *at, struct br_jfr_sample *ret);

/* Gives back what only adding needs: nothing is added any more. */
void br_jfr_samples_settle(struct br_jfr_samples *samples);

/* Returns the bytes that the samples take. */
size_t br_jfr_samples_size(const struct br_jfr_samples *samples);

/* Empties a table that nobody needs any more. */
void br_jfr_table_release(struct br_jfr_table *table);

/* --- Groups of samples ------------------------------------------------------------------------ */

/* Samples with one stack, one thread and the same tags. */
struct br_jfr_group {
    struct br_jfr_key key;
    uint32_t count, first; /* of its samples in `times` and `values` */
};

/* The samples of a table that are not folded, group by group, each in the order of the recording.
 */
struct br_jfr_groups {
    struct br_jfr_group *groups; /* in the order of their first samples */
    uint32_t count, cap;
    uint64_t *times;
    int64_t *values;
    struct br_index index; /* of `groups`, while they are made */
};

/* Groups the samples, with their value `which`. Returns 0 or BR_ENOMEM; br_jfr_groups_release in
 * either case. */
int br_jfr_groups_make(struct br_jfr_groups *groups, const struct br_jfr_table *table, int which);
void br_jfr_groups_release(struct br_jfr_groups *groups);

/* --- Stacks ----------------------------------------------------------------------------------- */

/* A symbol as it is part of methods' names: converted and merged once, however many refer to it. */
struct br_jfr_symbol {
    uint32_t at, len;
    bool converted; /* `at` is in br_jfr_stacks.converted, not in the chunk */
};

/* What resolving takes; lives for one recording. */
struct br_jfr_stacks {
    struct br_build *build;
    bool lines_signed;     /* a line past 2^31 is none: the machine writes -1 for "not known" */
    uint32_t mapping;      /* the builder's; 0: not there yet */
    size_t name_bytes_max; /* what all names together may take, or the input is hostile */
    struct br_str name;
    struct br_jfr_symbol *symbols; /* of the chunk; [0] is empty */
    uint32_t n_symbols, symbols_cap;
    struct br_str converted;
    uint32_t *locations;
    uint32_t locations_cap;
};

/* Forgets what was of the chunk before. */
void br_jfr_stacks_begin(struct br_jfr_stacks *stacks);

/* The builder's stack for a reference of an event. Returns 1, 0 when the chunk has no such trace,
 * or BR_EINVAL with a sentence, or BR_ENOMEM. */
int br_jfr_stack(struct br_jfr_stacks *stacks, const struct br_jfr_chunk *chunk, uint64_t id,
                 uint32_t *ret, struct br_err *err);
void br_jfr_stacks_release(struct br_jfr_stacks *stacks);

/* --- Writing ---------------------------------------------------------------------------------- */

struct br_jfr_result {
    struct br_jfr_samples *samples; /* each table is released once it is written */
    struct br_jfr_labels *labels;
    const char
        *event; /* what async-profiler was asked to sample; NULL: the recording does not say */
    int64_t period_ns[BR_JFR_N_KINDS]; /* of kinds of time: what a sample stands for */
    uint64_t start_ns, duration_ns;
};

/* Writes everything. Returns 0, BR_ENOMEM, BR_ETOOBIG as br_jfr_label_attribute, or the builder's
 * error. */
int br_jfr_write(struct br_build *build, const struct br_profile_source *source,
                 const struct br_jfr_result *result, struct br_arena *scratch);
