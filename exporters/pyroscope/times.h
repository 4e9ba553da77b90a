/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each profile of a series a unique time. Pyroscope keeps only one profile per series and
 * time: compaction drops other profiles of the same nanosecond. A profiler of a whole host,
 * however, sends one profile per process with the same time, mostly with the same labels. The
 * second of these profiles is therefore dated one microsecond later, the third two microseconds
 * later, and so on.
 *
 * A profile that is sent again, because a client retries, gets the same time as before, so that
 * Pyroscope still keeps it once. The repeated profile is recognised by its labels, Resource, time
 * and content.
 *
 * At least the last PYROSCOPE_TIMES_MAX profiles are known; older profiles are forgotten.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/dictionary/dictionary.h"

#define PYROSCOPE_TIMES_MAX 24576u

struct pyroscope_times;

/* Creates an empty list of times. Returns NULL if memory is short. */
struct pyroscope_times *pyroscope_times_new(void);
void pyroscope_times_free(struct pyroscope_times *times); /* Frees the list. Accepts NULL. */

struct pyroscope_times_of {
    struct br_entry labels, resource, pprof; /* encoded labels, Resource and pprof of the profile */
    uint64_t time_ns;                        /* Unix time of the profile */
};

/* Sets `*ret` to the time for a profile: the profile's own time, or the first later time that
 * its series does not use. Returns false if memory is short. */
bool pyroscope_times_place(struct pyroscope_times *times, const struct pyroscope_times_of *of,
                           uint64_t *ret);
