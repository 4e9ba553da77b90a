/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shed.h"

#include <stdio.h>

#include "core/host.h"

static const struct {
    const char *text;
    double share; /* fraction of the profiles requests that is dropped, 0 to 1 */
} steps[] = {
    [BR_SHED_NONE] = {"nothing is shed", 0},
    [BR_SHED_HALF] = {"one of two profiles is dropped", 0.5},
    [BR_SHED_MOST] = {"three of four profiles are dropped", 0.75},
    [BR_SHED_PROFILES] = {"profiles are refused", 0},
    [BR_SHED_TRACES] = {"profiles and traces are refused", 0},
};

static double *shed_counter(struct br_host *host, enum br_signal signal, const char *how)
{
    struct br_str labels = {.max = 128};
    br_label(&labels, "signal", br_signal_name(signal));
    br_label(&labels, "how", how);
    double *metric =
        br_metric(host->metrics, BR_COUNTER, "braid_shed_requests", labels.data ? labels.data : "");
    br_str_release(&labels);
    return metric;
}

void br_shed_set(struct br_host *host, unsigned cpu_step, unsigned memory_percentage)
{
    struct br_shed *shed = &host->shed;
    shed->cpu_step = cpu_step;
    shed->memory_percentage = memory_percentage;
    if (shed->dropped)
        return;
    shed->dropped = shed_counter(host, BR_PROFILES, "dropped");
    for (int i = 0; i < BR_SIGNALS; i++)
        shed->refused[i] = shed_counter(host, (enum br_signal)i, "refused");
}

/* Returns the memory use at which `step` begins, in tenths of a per cent of the soft limit. The
 * first step begins at the configured percentage. The second and third steps begin at one third and
 * two thirds of the range from this percentage to 100 per cent. */
static size_t shed_mark(const struct br_shed *shed, unsigned step)
{
    return 10 * shed->memory_percentage + (step - 1) * 10 * (100 - shed->memory_percentage) / 3;
}

static unsigned shed_memory_step(struct br_host *host)
{
    struct br_shed *shed = &host->shed;
    size_t soft = host->memory ? br_memory_soft(host->memory) : SIZE_MAX;
    if (!shed->memory_percentage || soft == SIZE_MAX)
        return BR_SHED_NONE;
    size_t used = br_memory_used(host->memory);
    size_t share = used >= soft ? 1000 : used / ((soft + 999) / 1000);
    while (shed->memory_step < BR_SHED_PROFILES && share >= shed_mark(shed, shed->memory_step + 1))
        shed->memory_step++;
    while (shed->memory_step > BR_SHED_NONE &&
           share + 10 * BR_SHED_BACK < shed_mark(shed, shed->memory_step))
        shed->memory_step--;
    return shed->memory_step;
}

unsigned br_shed_step(struct br_host *host)
{
    unsigned memory = shed_memory_step(host);
    return memory > host->shed.cpu_step ? memory : host->shed.cpu_step;
}

const char *br_shed_text(unsigned step)
{
    return steps[step].text;
}

bool br_shed_refuses(struct br_host *host, enum br_signal signal)
{
    if (br_shed_step(host) < (signal == BR_PROFILES ? BR_SHED_PROFILES : BR_SHED_TRACES))
        return false;
    *host->shed.refused[signal] += 1;
    return true;
}

bool br_shed_drops(struct br_host *host, enum br_signal signal)
{
    double share = steps[br_shed_step(host)].share;
    if (signal != BR_PROFILES || share <= 0 || br_host_random(host) >= share)
        return false;
    *host->shed.dropped += 1;
    return true;
}

void br_shed_item(struct br_item *item)
{
    struct br_outcome outcome = {.verdict = BR_DONE, .n_rejected = item->n_records};
    (void)snprintf(outcome.text, sizeof outcome.text, "dropped: the server is overloaded");
    br_item_report(item, BR_RESULT_DROPPED, BR_SHED_REASON, item->n_pending);
    br_item_finish(item, &outcome);
}
