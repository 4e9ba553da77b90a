/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the work that is done on texts, so that a test can show on any machine that it grows no
 * faster than the input. A step is one byte that is hashed, compared, checked, converted or copied.
 * What handles texts counts them where it touches them; a reader adds what it does by hand for each
 * element.
 *
 * The count is a thread's own and always there; it costs one addition for each text. In builds with
 * a sanitizer (BR_COUNT_FIELDS) each protobuf field that is read is a step, too, so that a message
 * that is read again for each reference to it shows.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern _Thread_local uint64_t br_steps_taken; /* for the two below only */

/* Counts `count` more steps of this thread. */
static inline void br_steps_add(size_t count)
{
    br_steps_taken += count;
}

/* Counts a field. */
static inline void br_steps_add_field(void)
{
#ifdef BR_COUNT_FIELDS
    br_steps_taken++;
#endif
}

/* Returns the steps of this thread since it started; a test takes the difference of two. */
static inline uint64_t br_steps(void)
{
    return br_steps_taken;
}
