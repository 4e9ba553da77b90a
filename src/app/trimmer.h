/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trimmer returns memory that a worker no longer needs: unused buffers of its pool, and other
 * freed memory that the allocator keeps (malloc_trim).
 *
 * It checks every ten seconds. It trims when the worker is idle after work: less than 1 MiB of
 * buffers was taken since the last check, and at least 8 MiB since the last trim. With very few
 * requests this happens at most once a minute; under load it never happens. After a large request
 * was rejected for lack of memory (br_memory_settle), the next check frees unused buffers.
 */
#pragma once

#include "core/host.h"

#define BR_TRIM_LOOK_MS 10000
#define BR_TRIM_REST_BYTES (1u << 20)
#define BR_TRIM_WORK_BYTES (8u << 20)

struct br_trimmer {
    struct br_host *host;
    struct br_timer look;
    uint64_t seen_bytes, work_bytes;
    unsigned seen_trims; /* number of trims (br_memory_trims) at the last check */
    double *trims;       /* the metric braid_memory_trims */
};

/* Starts the checks. The trimmer must not move until br_trimmer_stop. */
void br_trimmer_start(struct br_trimmer *trimmer, struct br_host *host);

/* Stops the checks. Accepts a zeroed trimmer. */
void br_trimmer_stop(struct br_trimmer *trimmer);
