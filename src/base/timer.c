/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timer.h"

#include "base/err.h"
#include "base/mem.h"

#define TIMERS_MAX (1u << 22)

static void timer_place(struct br_timers *ts, uint32_t index, struct br_timer *timer)
{
    ts->heap[index] = timer;
    timer->slot = index + 1;
}

static void timer_sift_up(struct br_timers *ts, uint32_t index)
{
    struct br_timer *timer = ts->heap[index];
    while (index > 0 && ts->heap[(index - 1) / 2]->due_ms > timer->due_ms) {
        timer_place(ts, index, ts->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    timer_place(ts, index, timer);
}

static void timer_sift_down(struct br_timers *ts, uint32_t index)
{
    struct br_timer *timer = ts->heap[index];
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= ts->count)
            break;
        if (child + 1 < ts->count && ts->heap[child + 1]->due_ms < ts->heap[child]->due_ms)
            child++;
        if (ts->heap[child]->due_ms >= timer->due_ms)
            break;
        timer_place(ts, index, ts->heap[child]);
        index = child;
    }
    timer_place(ts, index, timer);
}

int br_timers_arm(struct br_timers *ts, struct br_timer *timer, uint64_t due_ms, br_timer_fn *fn)
{
    br_timers_disarm(ts, timer);
    int rc =
        br_grow(&ts->heap, &ts->cap, (size_t)ts->count + 1, sizeof(struct br_timer *), TIMERS_MAX);
    if (rc)
        return BR_ENOMEM;
    timer->fn = fn;
    timer->due_ms = due_ms;
    timer_place(ts, ts->count++, timer);
    timer_sift_up(ts, ts->count - 1);
    return 0;
}

void br_timers_disarm(struct br_timers *ts, struct br_timer *timer)
{
    if (!timer->slot)
        return;
    uint32_t i = timer->slot - 1;
    timer->slot = 0;
    struct br_timer *last = ts->heap[--ts->count];
    if (last == timer)
        return;
    timer_place(ts, i, last);
    timer_sift_up(ts, i);
    timer_sift_down(ts, last->slot - 1);
}

uint64_t br_timers_next(const struct br_timers *ts)
{
    return ts->count ? ts->heap[0]->due_ms : UINT64_MAX;
}

void br_timers_run(struct br_timers *ts, uint64_t now_ms)
{
    /* A bound, so that a timer which arms itself for now cannot keep the loop here. */
    uint32_t most = ts->count;
    while (most-- > 0 && ts->count && ts->heap[0]->due_ms <= now_ms) {
        struct br_timer *timer = ts->heap[0];
        br_timers_disarm(ts, timer);
        timer->fn(timer);
    }
}

void br_timers_release(struct br_timers *ts)
{
    for (uint32_t i = 0; i < ts->count; i++)
        ts->heap[i]->slot = 0;
    br_free(ts->heap);
    *ts = (struct br_timers){0};
}
