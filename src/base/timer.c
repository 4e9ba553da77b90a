/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timer.h"

#include "base/err.h"
#include "base/mem.h"

#define TIMERS_MAX (1u << 22)

static void place(struct br_timers *ts, uint32_t i, struct br_timer *t)
{
    ts->heap[i] = t;
    t->slot = i + 1;
}

static void sift_up(struct br_timers *ts, uint32_t i)
{
    struct br_timer *t = ts->heap[i];
    while (i > 0 && ts->heap[(i - 1) / 2]->due_ms > t->due_ms) {
        place(ts, i, ts->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(ts, i, t);
}

static void sift_down(struct br_timers *ts, uint32_t i)
{
    struct br_timer *t = ts->heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= ts->n)
            break;
        if (child + 1 < ts->n && ts->heap[child + 1]->due_ms < ts->heap[child]->due_ms)
            child++;
        if (ts->heap[child]->due_ms >= t->due_ms)
            break;
        place(ts, i, ts->heap[child]);
        i = child;
    }
    place(ts, i, t);
}

int br_timers_arm(struct br_timers *ts, struct br_timer *t, uint64_t due_ms, br_timer_fn *fn)
{
    br_timers_disarm(ts, t);
    int rc = br_grow(&ts->heap, &ts->cap, (size_t)ts->n + 1, sizeof(struct br_timer *), TIMERS_MAX);
    if (rc)
        return BR_ENOMEM;
    t->fn = fn;
    t->due_ms = due_ms;
    place(ts, ts->n++, t);
    sift_up(ts, ts->n - 1);
    return 0;
}

void br_timers_disarm(struct br_timers *ts, struct br_timer *t)
{
    if (!t->slot)
        return;
    uint32_t i = t->slot - 1;
    t->slot = 0;
    struct br_timer *last = ts->heap[--ts->n];
    if (last == t)
        return;
    place(ts, i, last);
    sift_up(ts, i);
    sift_down(ts, last->slot - 1);
}

uint64_t br_timers_next(const struct br_timers *ts)
{
    return ts->n ? ts->heap[0]->due_ms : UINT64_MAX;
}

void br_timers_run(struct br_timers *ts, uint64_t now_ms)
{
    /* A bound, so that a timer which arms itself for now cannot keep the loop here. */
    uint32_t most = ts->n;
    while (most-- > 0 && ts->n && ts->heap[0]->due_ms <= now_ms) {
        struct br_timer *t = ts->heap[0];
        br_timers_disarm(ts, t);
        t->fn(t);
    }
}

void br_timers_release(struct br_timers *ts)
{
    for (uint32_t i = 0; i < ts->n; i++)
        ts->heap[i]->slot = 0;
    br_free(ts->heap);
    *ts = (struct br_timers){0};
}
