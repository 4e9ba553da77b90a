/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each profile of a series a unique time. Pyroscope keeps only one profile per series and
 * time: compaction drops others of the same nanosecond. A profiler of a whole host, however, sends
 * one profile per process with the same time, mostly with the same labels. The second one is
 * therefore dated one microsecond later, the third one two, and so on.
 *
 * A profile that is sent again, because a client retries, gets the same time as before, so that
 * Pyroscope still keeps it once. It is recognised by its labels, Resource, time and content.
 *
 * At least the last PYROSCOPE_TIMES_MAX profiles are known; older ones are forgotten.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/dictionary/dictionary.h"

#define PYROSCOPE_TIMES_MAX 24576u

struct pyroscope_times;

struct pyroscope_times *pyroscope_times_new(void);        /* NULL if memory is short */
void pyroscope_times_free(struct pyroscope_times *times); /* accepts NULL */

struct pyroscope_times_of {
    struct br_entry labels, resource, pprof; /* encoded */
    uint64_t time_ns;                        /* Unix time */
};

/* Sets `*ret` to the time for the profile: its own time, or the first later one that its series
 * does not use. Returns false if memory is short. */
bool pyroscope_times_place(struct pyroscope_times *times, const struct pyroscope_times_of *of,
                           uint64_t *ret);
