/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a time range into equal steps, and finds the step of a time. */
#pragma once

#include <stdint.h>

struct query_steps {
    uint64_t from_ns; /* start of the range, in Unix nanoseconds */
    uint64_t step_ns; /* length of a step, in nanoseconds; at least 1 */
    uint64_t count;   /* number of steps; at least 1 */
    /* step of the last time that was looked up, and its bounds */
    uint64_t index, step_from_ns, step_until_ns;
};

/* Divides the range [from, until), in Unix nanoseconds, into at most `points` steps. `points` must
 * not be 0. */
static inline void query_steps_init(struct query_steps *steps, uint64_t from_ns, uint64_t until_ns,
                                    uint64_t points)
{
    uint64_t range_ns = until_ns - from_ns;
    *steps = (struct query_steps){.from_ns = from_ns};
    steps->step_ns = range_ns / points + (range_ns % points != 0);
    steps->step_ns = steps->step_ns ? steps->step_ns : 1;
    steps->count = range_ns / steps->step_ns + (range_ns % steps->step_ns != 0);
    steps->count = steps->count ? steps->count : 1;
}

/* Returns the number of the step that contains a time, which must not be before the range. A time
 * behind the range is in the last step. Consecutive times are usually in the same step, which is
 * found without a division. */
static inline uint64_t query_steps_find(struct query_steps *steps, uint64_t time_ns)
{
    if (time_ns < steps->step_from_ns || time_ns >= steps->step_until_ns) {
        uint64_t index = (time_ns - steps->from_ns) / steps->step_ns;
        steps->index = index < steps->count ? index : steps->count - 1;
        steps->step_from_ns = steps->from_ns + index * steps->step_ns;
        steps->step_until_ns = steps->step_from_ns + steps->step_ns;
    }
    return steps->index;
}
