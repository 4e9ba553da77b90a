/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers in a binary heap ordered by due time. The caller supplies the time: a loop (or a test)
 * calls br_timers_next to get the time at which the next timer is due, and br_timers_run to run the
 * due timers. A timer is a member of the structure that uses it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct br_timer;
typedef void br_timer_fn(struct br_timer *timer);

struct br_timer {
    br_timer_fn *fn;
    uint64_t due_ms;
    uint32_t slot; /* index of the timer in the heap plus 1; 0: the timer is not armed */
};

struct br_timers {
    struct br_timer **heap;
    uint32_t count, cap;
};

/* Arms or re-arms `timer` to call `fn` once at `due_ms`. Returns 0, or BR_ENOMEM, in which case
 * the timer is not armed. */
int br_timers_arm(struct br_timers *ts, struct br_timer *timer, uint64_t due_ms, br_timer_fn *fn);

/* Disarms the timer. Does nothing if the timer is not armed. */
void br_timers_disarm(struct br_timers *ts, struct br_timer *timer);

/* Returns the time at which the next timer is due, or UINT64_MAX if no timer is armed. */
uint64_t br_timers_next(const struct br_timers *ts);

/* Disarms and calls every timer that is due at `now_ms`. If a callback arms a timer for
 * `now_ms`, that timer runs in the next call. */
void br_timers_run(struct br_timers *ts, uint64_t now_ms);

/* Frees the heap and forgets armed timers. */
void br_timers_release(struct br_timers *ts);
