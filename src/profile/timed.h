/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collects the samples of a text or JSON format with their times until the end of the file.
 * Profiles can be written only at the end of the file: a sample may precede the table that it
 * refers to, and samples of different events may alternate. Times are those of the file's clock;
 * only at the end is it known whether this clock shows the time of day. This header is private to
 * src/profile.
 */
#pragma once

#include <stdint.h>

#include "profile/profile.h"

#define BR_TIMED_TYPES_MAX 64u
#define BR_TIMED_ATTRIBUTES 3u

/* One type of event, whose samples become one Profile. */
struct br_timed_type {
    /* value of Pyroscope's `__name__`; NULL: the name is derived from the type */
    const char *metric;
    const char *type, *unit; /* type and unit of the values */
    const char *period_type, *period_unit;
    int64_t period;
    struct br_timed_block *first, *last; /* first and last block of packed samples */
    /* time of the sample added last, in ns of the file's clock */
    uint64_t last_ns;
};

struct br_timed_sample {
    uint32_t stack, type;
    /* the sample's attributes, as indices into the attributes of the builder; 0: no attribute */
    uint32_t attributes[BR_TIMED_ATTRIBUTES];
    int64_t value;
    uint64_t time_ns; /* time of the sample in ns of the file's clock */
};

struct br_timed {
    struct br_build *build;
    struct br_timed_type types[BR_TIMED_TYPES_MAX];
    uint32_t n_types;
    uint32_t count; /* number of samples */
    /* earliest and latest time of the samples, in ns of the file's clock */
    uint64_t first_ns, last_ns;
    /* true: clock_first_ns and clock_last_ns contain the first and last time of the whole file,
     * because the samples are written in parts */
    bool has_clock;
    uint64_t clock_first_ns, clock_last_ns;
};

/* Appends a sample; all its fields must be set. Returns 0 or BR_ENOMEM. */
int br_timed_add(struct br_timed *timed, const struct br_timed_sample *sample);

/* Writes a resource, and a scope with a Profile for each type that has samples. After
 * br_timed_emit, even if it fails, `timed` keeps its types, has no samples and need not be
 * released. Times after 2001 are treated as wall-clock times. Times before 2001 are shifted so that
 * the last sample is at `source->end_ns`, and every sample gets the attribute BR_SAMPLE_TIME.
 * Returns 0, or a code with a message in `err`. */
int br_timed_emit(struct br_timed *timed, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err);
void br_timed_release(struct br_timed *timed);
