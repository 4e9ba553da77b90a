/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a recording to profiles. Internal to src/profile/jfr*.c.
 *
 * Events become samples in tables of their kind; all tables are written at the end, because a label
 * of the series (`jfr_event`) may stand anywhere in the recording, and because one event can be of
 * two profiles. Dictionary entries go to the builder at once.
 *
 * Two ways to keep a sample:
 * - What a Pyroscope client sent goes on to Pyroscope, and must be there what it would have been
 * had it gone there directly: samples of equal stack and labels are folded, threads and times
 * forgotten, samples whose stack is not in the recording too.
 * - Otherwise nothing is lost: each event is a sample with its time, and has `thread.name` and
 *   `thread.id` (Java's number, as OpenTelemetry's Java agent has it on spans) as attributes, so
 * that a join can find the span that was open then.
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
#include "otlp/build.h"
#include "profile/jfr.h"
#include "profile/profile.h"

/* --- Labels: the LabelsSnapshot that goes beside a recording
 * --------------------------------------- */

struct br_jfr_label {
    uint32_t key;       /* the builder's string */
    uint32_t attribute; /* the builder's */
};

struct br_jfr_context {
    const struct br_jfr_label *v; /* keys ascending, each once */
    uint32_t n;
    bool has_span, has_trace; /* old agents have the span's ids among the labels */
    uint8_t span_id[8], trace_id[16];
};

struct br_jfr_labels {
    struct br_jfr_context *contexts;
    const uint8_t **strings;
    uint32_t *string_lens;
    uint32_t n_contexts, n_strings;
    struct br_jfr_ids context_of, string_of; /* id to index + 1 */
};

/* Reads the message into `scratch`; contexts of equal content share an index. Returns 0, BR_EINVAL
 * with a sentence, or BR_ENOMEM. Borrows `data` until br_jfr_labels_release, which a zeroed one may
 * have too. */
int br_jfr_labels_read(struct br_jfr_labels *l, const uint8_t *data, size_t len, struct br_build *b,
                       struct br_arena *scratch, struct br_err *err);
void br_jfr_labels_release(struct br_jfr_labels *l);

/* The string with this id; NULL and length 0 when there is none. */
const void *br_jfr_label_text(const struct br_jfr_labels *l, uint64_t id, size_t *ret_len);

/* The index + 1 of the context with this id; 0: there is none. */
uint32_t br_jfr_context_of(const struct br_jfr_labels *l, uint64_t id);

/* --- Samples ---------------------------------------------------------------------------------- */

/* The profiles that jfr-parser knows, in the order in which they are written. */
enum br_jfr_kind {
    BR_JFR_CPU,
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

/* The span and the labels that were set when a sample was taken, as the recording says it. */
struct br_jfr_tags {
    uint64_t span_id, span_name, trace_hi, trace_lo;
    uint32_t context; /* index into br_jfr_labels.contexts, + 1; 0: none */
};

struct br_jfr_thread {
    uint32_t attributes[2]; /* of the builder */
    uint32_t n;
};

struct br_jfr_table {
    struct br_jfr_sample *v;
    uint32_t n, cap;
    uint32_t *slots; /* index + 1, at most half full; only when folding */
    size_t n_slots;
};

struct br_jfr_samples {
    bool fold;
    uint64_t secret;
    struct br_jfr_table tables[BR_JFR_N_KINDS];
    struct br_jfr_tags *tags; /* [0] is none */
    uint32_t n_tags, tags_cap;
    uint32_t *tag_slots;
    size_t n_tag_slots;
    struct br_jfr_thread *threads; /* [0] is none */
    uint32_t n_threads, threads_cap;
};

/* Prepares a zeroed `s`. Returns 0 or BR_ENOMEM. */
int br_jfr_samples_init(struct br_jfr_samples *s, bool fold);
void br_jfr_samples_release(struct br_jfr_samples *s);

/* The index of these tags, 0 when all is 0. Returns 0 or BR_ENOMEM. */
int br_jfr_tags_add(struct br_jfr_samples *s, const struct br_jfr_tags *tags, uint32_t *ret);

/* Adds a sample, to an equal one when folding. Returns 0 or BR_ENOMEM. */
int br_jfr_sample_add(struct br_jfr_samples *s, enum br_jfr_kind kind,
                      const struct br_jfr_sample *sample);

/* --- Stacks ----------------------------------------------------------------------------------- */

/* What resolving takes; lives for one recording. */
struct br_jfr_stacks {
    struct br_build *build;
    bool lines_signed;     /* a line past 2^31 is none: the machine writes -1 for "not known" */
    uint32_t mapping;      /* the builder's; 0: not there yet */
    size_t name_bytes_max; /* what all names together may take, or the input is hostile */
    struct br_str name;
    uint32_t *locations;
    uint32_t locations_cap;
};

/* The builder's stack for a reference of an event. Returns 1, 0 when the chunk has no such trace,
 * or BR_EINVAL with a sentence, or BR_ENOMEM. */
int br_jfr_stack(struct br_jfr_stacks *s, const struct br_jfr_chunk *c, uint64_t id, uint32_t *ret,
                 struct br_err *err);
void br_jfr_stacks_release(struct br_jfr_stacks *s);

/* --- Writing ---------------------------------------------------------------------------------- */

struct br_jfr_result {
    const struct br_jfr_samples *samples;
    const struct br_jfr_labels *labels;
    const char
        *event; /* what async-profiler was asked to sample; NULL: the recording does not say */
    int64_t period_ns; /* what a sample of CPU and wall time stands for */
    uint64_t start_ns, duration_ns;
};

/* Writes everything. Returns 0 or BR_ENOMEM; the builder's errors stick to it. */
int br_jfr_write(struct br_build *b, const struct br_profile_source *source,
                 const struct br_jfr_result *r, struct br_arena *scratch);
