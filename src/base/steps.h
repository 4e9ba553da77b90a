/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the work done on texts, so that a test can show on any machine that the work grows in
 * proportion to the input. A step is one byte that is hashed, compared, checked, converted or
 * copied. Functions that process texts count their bytes; a parser also counts its work for each
 * element.
 *
 * Each thread has a counter, which is always compiled in and costs one addition per text. In builds
 * with a sanitizer (BR_COUNT_FIELDS), each protobuf field that is read is a step, too. By counting
 * fields, a test can detect that a message is read again for each reference to it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

extern _Thread_local uint64_t br_steps_taken; /* used only by the functions below */

/* Adds `count` steps to this thread's counter. */
static inline void br_steps_add(size_t count)
{
    br_steps_taken += count;
}

/* Counts one protobuf field. */
static inline void br_steps_add_field(void)
{
#ifdef BR_COUNT_FIELDS
    br_steps_taken++;
#endif
}

/* Returns the number of steps that this thread has counted since it started. A test computes the
 * difference of two results. */
static inline uint64_t br_steps(void)
{
    return br_steps_taken;
}
