/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trimmer gives back memory that a worker needed for a while and does not need now: what its pool
 * keeps for reuse, and what the allocator keeps of everything else that was freed (malloc_trim).
 *
 * It looks each ten seconds. When less than a mebibyte of buffers was taken since the last look,
 * after eight of them or more since memory was given back last, the worker is at rest after work,
 * and it is given back, once. A trickle of requests has that happen each minute at the most; under
 * load it never does. Where something large was refused (br_memory_settle), unused buffers go at
 * the next look.
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
    unsigned seen_trims; /* br_memory_trims */
    double *trims;       /* braid_memory_trims */
};

/* Begins to look; the trimmer stays where it is until br_trimmer_stop. */
void br_trimmer_start(struct br_trimmer *trimmer, struct br_host *host);

/* Accepts a zeroed one. */
void br_trimmer_stop(struct br_trimmer *trimmer);
