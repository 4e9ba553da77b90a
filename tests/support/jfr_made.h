/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recordings written by hand, in the format that JDK 17's jdk.jfr.internal.consumer reads: for
 * tests, and the seeds of tests/corpus/jfr. Memory is the C library's, as wire.h's.
 *
 * One chunk has the classes below, a checkpoint with the pools and one event of each kind that
 * matters:
 *
 *   - STATE_RUNNABLE sample at tick 350, thread "ü" of Java number 7, span 0x1122334455667788 of
 *   trace 0x0102030405060708090a0b0c0d0e0f10, context 5: a/B.run:12 < a/B$$Lambda_.main
 *   - monitor entered at tick 400 for 5 ticks, by the same thread: a/B$$Lambda_.main
 *
 * The chunk starts at 1,000,000,000 ns and tick 100; a tick is a microsecond.
 */
#pragma once

#include <stdbool.h>

#include "tests/support/wire.h"

struct jfr_made {
    bool packed; /* compressed integers; else big endian */
    bool utf16;  /* strings as UTF-16, else UTF-8 */
    bool split;  /* pools in two checkpoints; the later one refers to the earlier one */
    /* also a jdk.CPUTimeSample of 20 ticks, at the time and place of the monitor event */
    bool cpu_time;
};

/* Appends a chunk. */
void jfr_made(struct wire *w, const struct jfr_made *how);

/* Returns the LabelsSnapshot for the chunk: context 5 is {"user": "x"}, string 9 is "GET /". */
void jfr_made_labels(struct wire *w);

/* Overwrites a big-endian number of `n` bytes at `at`: 8 the chunk's size, 16 the offset of the
 * pools, 24 that of the metadata. */
void jfr_patch(struct wire *w, size_t at, unsigned n, uint64_t v);
