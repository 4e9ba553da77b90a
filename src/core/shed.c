/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shed.h"

#include <stdio.h>

#include "core/host.h"

static const struct {
    const char *text;
    double share; /* of the profiles that are dropped */
} steps[] = {
    [BR_SHED_NONE] = {"nothing is shed", 0},
    [BR_SHED_HALF] = {"one of two profiles is dropped", 0.5},
    [BR_SHED_MOST] = {"three of four profiles are dropped", 0.75},
    [BR_SHED_PROFILES] = {"profiles are refused", 0},
    [BR_SHED_TRACES] = {"profiles and traces are refused", 0},
};

static double *counter(struct br_host *h, enum br_signal signal, const char *how)
{
    struct br_str labels = {.max = 128};
    br_label(&labels, "signal", br_signal_name(signal));
    br_label(&labels, "how", how);
    double *metric = br_metric(h->metrics, BR_COUNTER, "braid_shed_requests",
                               labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

void br_shed_set(struct br_host *h, unsigned cpu_step, unsigned memory_percentage)
{
    struct br_shed *s = &h->shed;
    s->cpu_step = cpu_step;
    s->memory_percentage = memory_percentage;
    if (s->dropped)
        return;
    s->dropped = counter(h, BR_PROFILES, "dropped");
    for (int i = 0; i < BR_SIGNALS; i++)
        s->refused[i] = counter(h, (enum br_signal)i, "refused");
}

/* In tenths of a per cent, where memory takes a step: at its percentage, and at each third of the way
 * from there to the limit. */
static size_t mark(const struct br_shed *s, unsigned step)
{
    return 10 * s->memory_percentage + (step - 1) * 10 * (100 - s->memory_percentage) / 3;
}

static unsigned memory_step(struct br_host *h)
{
    struct br_shed *s = &h->shed;
    size_t soft = h->memory ? br_memory_soft(h->memory) : SIZE_MAX;
    if (!s->memory_percentage || soft == SIZE_MAX)
        return BR_SHED_NONE;
    size_t used = br_memory_used(h->memory);
    size_t share = used >= soft ? 1000 : used / ((soft + 999) / 1000);
    while (s->memory_step < BR_SHED_PROFILES && share >= mark(s, s->memory_step + 1))
        s->memory_step++;
    while (s->memory_step > BR_SHED_NONE && share + 10 * BR_SHED_BACK < mark(s, s->memory_step))
        s->memory_step--;
    return s->memory_step;
}

unsigned br_shed_step(struct br_host *h)
{
    unsigned memory = memory_step(h);
    return memory > h->shed.cpu_step ? memory : h->shed.cpu_step;
}

const char *br_shed_text(unsigned step)
{
    return steps[step].text;
}

bool br_shed_refuses(struct br_host *h, enum br_signal signal)
{
    if (br_shed_step(h) < (signal == BR_PROFILES ? BR_SHED_PROFILES : BR_SHED_TRACES))
        return false;
    *h->shed.refused[signal] += 1;
    return true;
}

bool br_shed_drops(struct br_host *h, enum br_signal signal)
{
    double share = steps[br_shed_step(h)].share;
    if (signal != BR_PROFILES || share <= 0 || br_host_random(h) >= share)
        return false;
    *h->shed.dropped += 1;
    return true;
}

void br_shed_item(struct br_item *item)
{
    struct br_outcome o = {.verdict = BR_DONE, .n_rejected = item->n_items};
    (void)snprintf(o.text, sizeof o.text, "dropped: there is too much to do");
    br_item_settle(item, BR_FATE_DROPPED, BR_SHED_REASON, item->n_held);
    br_item_finish(item, &o);
}
