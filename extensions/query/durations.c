/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/query/durations.h"

#include "base/err.h"

#define WIDTH_BITS 5u
_Static_assert(1u << WIDTH_BITS == QUERY_DURATIONS_WIDTH, "WIDTH_BITS is the logarithm");
_Static_assert(QUERY_DURATIONS_GROUPS == 64 - WIDTH_BITS + 1, "the largest duration has a group");

static unsigned durations_group(uint64_t duration_ns)
{
    return duration_ns < QUERY_DURATIONS_WIDTH
               ? 0
               : 64 - WIDTH_BITS - (unsigned)__builtin_clzll(duration_ns);
}

/* Returns the number of nanoseconds that each range of a group covers, as a power of two. */
static unsigned durations_shift(unsigned group)
{
    return group ? group - 1 : 0;
}

int query_durations_add(struct query_durations *durations, struct br_arena *arena,
                        uint64_t duration_ns)
{
    unsigned group = durations_group(duration_ns);
    uint32_t *counts = durations->groups[group];
    if (!counts) {
        counts = br_arena_calloc(arena, QUERY_DURATIONS_WIDTH, sizeof *counts);
        if (!counts)
            return br_arena_why(arena);
        durations->groups[group] = counts;
    }
    counts[duration_ns >> durations_shift(group) & (QUERY_DURATIONS_WIDTH - 1)]++;
    durations->count++;
    if (duration_ns > durations->max_ns)
        durations->max_ns = duration_ns;
    return 0;
}

/* Returns the middle of a range. */
static uint64_t durations_middle(unsigned group, unsigned index)
{
    unsigned shift = durations_shift(group);
    uint64_t first = (uint64_t)(index + (group ? QUERY_DURATIONS_WIDTH : 0)) << shift;
    return first + ((UINT64_C(1) << shift) >> 1);
}

uint64_t query_durations_percentile(const struct query_durations *durations, unsigned percent)
{
    uint64_t rank =
        durations->count / 100 * percent + (durations->count % 100 * percent + 99) / 100;
    uint64_t seen = 0;
    for (unsigned group = 0; group < QUERY_DURATIONS_GROUPS; group++) {
        const uint32_t *counts = durations->groups[group];
        for (unsigned i = 0; counts && i < QUERY_DURATIONS_WIDTH; i++) {
            seen += counts[i];
            if (seen < rank || !counts[i])
                continue;
            uint64_t middle = durations_middle(group, i);
            return middle < durations->max_ns ? middle : durations->max_ns;
        }
    }
    return durations->max_ns;
}
