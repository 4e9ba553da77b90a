/* SPDX-License-Identifier: Apache-2.0 */
#include "extensions/adaptive/cpus.h"

#include <sched.h>
#include <stdlib.h>

#include "base/cgroup.h"

/* Lowers the quota in `arg` to the quota of one control group, if that is lower. `text` contains
 * two numbers: the microseconds of CPU time per period, and the period, such as "50000 100000".
 * The first number may be "max" (unlimited). */
static void cpus_lower(const char *text, void *arg)
{
    double *quota = arg;
    char *end, *last;
    double used = strtod(text, &end), period = strtod(end, &last);
    if (end == text || last == end || !(used > 0) || !(period > 0))
        return;
    if (*quota <= 0 || used / period < *quota)
        *quota = used / period;
}

double adaptive_quota(const char *root)
{
    static const struct br_cgroup_file file = {.v2 = "cpu.max"};
    double quota = 0;
    br_cgroup_each(root, &file, cpus_lower, &quota);
    return quota;
}

double adaptive_cpus(unsigned n_workers, double quota)
{
    cpu_set_t allowed;
    double cpus = n_workers;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) < cpus)
        cpus = CPU_COUNT(&allowed);
    return quota > 0 && quota < cpus ? quota : cpus;
}
