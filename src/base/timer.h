/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers without a clock of their own, in a binary heap by due time. A loop (or a test) asks when
 * the next is due and runs what is. The timer is a member of the thing that it wakes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct br_timer;
typedef void br_timer_fn(struct br_timer *timer);

struct br_timer {
    br_timer_fn *fn;
    uint64_t due_ms;
    uint32_t slot; /* place in the heap + 1; 0: not armed */
};

struct br_timers {
    struct br_timer **heap;
    uint32_t count, cap;
};

/* Arms `timer` (again) to call `fn` once at `due_ms`. Returns 0 or BR_ENOMEM (then it is not
 * armed). */
int br_timers_arm(struct br_timers *ts, struct br_timer *timer, uint64_t due_ms, br_timer_fn *fn);

/* Disarms; harmless on a timer that is not armed. */
void br_timers_disarm(struct br_timers *ts, struct br_timer *timer);

/* Returns when the next timer is due, or UINT64_MAX. */
uint64_t br_timers_next(const struct br_timers *ts);

/* Calls every timer due at `now_ms`, disarmed first; what they arm for `now_ms` runs next time. */
void br_timers_run(struct br_timers *ts, uint64_t now_ms);

/* Frees the heap; armed timers are forgotten. */
void br_timers_release(struct br_timers *ts);
