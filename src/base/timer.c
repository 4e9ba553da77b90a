/* SPDX-License-Identifier: Apache-2.0 */
#include "base/timer.h"
#include "base/heap.h"

#include "base/err.h"
#include "base/mem.h"

#define TIMERS_MAX (1u << 22)

static bool timer_is_before(const void *one, const void *other, const void *arg)
{
    struct br_timer *const *first = one, *const *second = other;
    (void)arg;
    return (*first)->due_ms < (*second)->due_ms;
}

static void timer_on_moved(void *entry, size_t place)
{
    struct br_timer *const *timer = entry;
    (*timer)->slot = (uint32_t)place + 1;
}

static const struct br_heap_kind timers_kind = {sizeof(struct br_timer *), timer_is_before,
                                                timer_on_moved};

int br_timers_arm(struct br_timers *ts, struct br_timer *timer, uint64_t due_ms, br_timer_fn *fn)
{
    br_timers_disarm(ts, timer);
    int rc =
        br_grow(&ts->heap, &ts->cap, (size_t)ts->count + 1, sizeof(struct br_timer *), TIMERS_MAX);
    if (rc)
        return BR_ENOMEM;
    timer->fn = fn;
    timer->due_ms = due_ms;
    ts->heap[ts->count++] = timer;
    br_heap_rise(timers_kind, ts->heap, ts->count - 1, NULL);
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
    ts->heap[i] = last;
    br_heap_rise(timers_kind, ts->heap, i, NULL);
    br_heap_sink(timers_kind, ts->heap, ts->count, last->slot - 1, NULL);
}

uint64_t br_timers_next(const struct br_timers *ts)
{
    return ts->count ? ts->heap[0]->due_ms : UINT64_MAX;
}

void br_timers_run(struct br_timers *ts, uint64_t now_ms)
{
    /* Calls at most as many callbacks as there are timers now. Otherwise a callback that arms its
     * timer for the present time would block the loop. */
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
