/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JFR recordings in the format that JDK 17's jdk.jfr.internal.consumer reads, for tests and
 * for the seeds of tests/corpus/jfr. Uses memory of the C library, like wire.h.
 *
 * One chunk has metadata, a checkpoint with the pools of constants, and one event of each of these
 * types:
 *
 *   - A sample of a thread in STATE_RUNNABLE at tick 350. The thread has the name "ü" and the Java
 *     thread id 7. The span is 0x1122334455667788 of trace 0x0102030405060708090a0b0c0d0e0f10. The
 *     context is 5. The stack is a/B.run:12, called by a/B$$Lambda_.main.
 *   - The same thread waits for a monitor at tick 400 for 5 ticks. The stack is a/B$$Lambda_.main.
 *
 * The chunk starts at 1,000,000,000 ns and tick 100; a tick is a microsecond.
 */
#pragma once

#include <stdbool.h>

#include "tests/support/wire.h"

struct jfr_made {
    /* true: integers are compressed; false: integers are big-endian with a fixed size */
    bool packed;
    bool utf16; /* true: strings are UTF-16; false: strings are UTF-8 */
    /* true: the pools are in two checkpoints, the later of which refers to the earlier */
    bool split;
    /* true: the chunk also has a jdk.CPUTimeSample of 20 ticks, at the time and place of the
     * monitor event */
    bool cpu_time;
};

/* Appends a chunk. */
void jfr_made(struct wire *w, const struct jfr_made *how);

/* Appends the LabelsSnapshot of the chunk: context 5 is {"user": "x"}, and string 9 is "GET /". */
void jfr_made_labels(struct wire *w);

/* Overwrites a big-endian number of `n` bytes at the offset `at`. In the header of a chunk, offset
 * 8 has the size of the chunk, offset 16 the offset of the pools, and offset 24 the offset of the
 * metadata. */
void jfr_patch(struct wire *w, size_t at, unsigned n, uint64_t v);
