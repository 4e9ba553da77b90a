/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the samples of a text or JSON format, each with its time, until it is known which profiles
 * they make: a sample may come before the list that it refers to, and several events in turn. Times
 * are those of the file's clock; whether that is the time of day is known at the end. For
 * src/profile/ only.
 */
#pragma once

#include <stdint.h>

#include "profile/profile.h"

#define BR_TIMED_TYPES_MAX 64u
#define BR_TIMED_ATTRIBUTES 3u

/* One kind of event, which becomes a Profile. */
struct br_timed_type {
    const char *metric;      /* Pyroscope's name; NULL: as the type's */
    const char *type, *unit; /* of values */
    const char *period_type, *period_unit;
    int64_t period;
    struct br_timed_block *first, *last; /* samples, packed */
    uint64_t last_ns;                    /* time of the last one */
};

struct br_timed_sample {
    uint32_t stack, type;
    uint32_t attributes[BR_TIMED_ATTRIBUTES]; /* the builder's, 0: none */
    int64_t value;
    uint64_t time_ns; /* of the file's clock */
};

struct br_timed {
    struct br_build *build;
    struct br_timed_type types[BR_TIMED_TYPES_MAX];
    uint32_t n_types;
    uint32_t count;             /* samples */
    uint64_t first_ns, last_ns; /* of all */
    /* Of the whole file, where its samples are written in parts. */
    bool has_clock;
    uint64_t clock_first_ns, clock_last_ns;
};

/* Adds a sample, of which type, stack, attributes, value and time are set. Returns 0 or BR_ENOMEM.
 */
int br_timed_add(struct br_timed *timed, const struct br_timed_sample *sample);

/* Writes a resource with a scope and a Profile for each type that has samples. Afterwards, also
 * after a failure, `timed` has its types and no samples, and need not be released. What is later
 * than 2001 is a time of day; otherwise the last sample is dated to the end of the source, and
 * every sample has the attribute BR_SAMPLE_TIME. Returns 0 or a code with its sentence. */
int br_timed_emit(struct br_timed *timed, const struct br_profile_source *source,
                  struct br_arena *scratch, struct br_err *err);
void br_timed_release(struct br_timed *timed);
