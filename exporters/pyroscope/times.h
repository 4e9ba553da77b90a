/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives each profile of a series a time of its own. Pyroscope keeps one profile of each series and
 * time (to the nanosecond: its compaction drops the others), while a profiler of a whole host sends
 * one for each process, all of one time, and their labels are mostly the same. The second one is
 * therefore dated a microsecond later, and so on.
 *
 * The same profile that comes again (a client tries again what had arrived) gets the time that it
 * had, so that Pyroscope still keeps it once: same labels, Resource, time and content.
 *
 * The last PYROSCOPE_TIMES_MAX or more are known; what is older is forgotten.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/dictionary/dictionary.h"

#define PYROSCOPE_TIMES_MAX 24576u

struct pyroscope_times;

struct pyroscope_times *pyroscope_times_new(void);        /* NULL without memory */
void pyroscope_times_free(struct pyroscope_times *times); /* accepts NULL */

struct pyroscope_times_of {
    struct br_entry labels, resource, pprof; /* as they are encoded */
    uint64_t time_ns;                        /* unix */
};

/* Sets `*ret` to the time that the profile is to have: its own, or the first later one that no
 * other profile of its labels has. Returns false without memory. */
bool pyroscope_times_place(struct pyroscope_times *times, const struct pyroscope_times_of *of,
                           uint64_t *ret);
