/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/memory_limiter/total.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

#define PATH_SIZE 1024

/* "max", and what is not a number, set no limit. */
static void lower(const char *text, void *arg)
{
    uint64_t *total = arg;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end != text && errno == 0 && v && v < *total)
        *total = v;
}

bool memory_total(const char *root, uint64_t *ret)
{
    static const struct br_cgroup_file file = {"memory.max", "memory", "memory.limit_in_bytes"};
    char text[BR_CGROUP_TEXT_MAX], path[PATH_SIZE];
    uint64_t total = UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const char *line = br_file_head(path, text) ? strstr(text, "MemTotal:") : NULL;
    if (line)
        total = strtoull(line + strlen("MemTotal:"), NULL, 10) * 1024;
    br_cgroup_each(root, &file, lower, &total);
    if (total == UINT64_MAX || total == 0)
        return false;
    *ret = total;
    return true;
}
