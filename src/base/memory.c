/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/mem.h"

#define PATH_SIZE 1024
/* divisor: 1/INTAKE_SHARE of the hard limit is reserved for sending data that was already
 * received */
#define INTAKE_SHARE 8u

/* Lowers the total memory to the limit in a control group's file. "max" and other texts that are
 * not a number set no limit. */
static void memory_lower_total(const char *text, void *arg)
{
    uint64_t *total = arg;
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (end != text && errno == 0 && v && v < *total)
        *total = v;
}

bool br_memory_total(const char *root, uint64_t *ret)
{
    static const struct br_cgroup_file file = {"memory.max", "memory", "memory.limit_in_bytes"};
    char text[BR_CGROUP_TEXT_MAX], path[PATH_SIZE];
    uint64_t total = UINT64_MAX;
    (void)snprintf(path, sizeof path, "%s/proc/meminfo", root);
    const char *line = br_file_head(path, text) ? strstr(text, "MemTotal:") : NULL;
    if (line)
        total = strtoull(line + strlen("MemTotal:"), NULL, 10) * 1024;
    br_cgroup_each(root, &file, memory_lower_total, &total);
    if (total == UINT64_MAX || total == 0)
        return false;
    *ret = total;
    return true;
}

size_t br_memory_resident(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    char *pages;
    /* skips the total size; the resident set is the second number */
    (void)strtoull(text, &pages, 10);
    return (size_t)strtoull(pages, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t memory_load(const _Atomic size_t *figure)
{
    return atomic_load_explicit(figure, memory_order_relaxed);
}

static void memory_store(_Atomic size_t *figure, size_t value)
{
    atomic_store_explicit(figure, value, memory_order_relaxed);
}

static void memory_lower(_Atomic size_t *mark, size_t value)
{
    if (value && (!memory_load(mark) || value < memory_load(mark)))
        memory_store(mark, value);
}

void br_memory_limit(struct br_memory *memory, size_t soft, size_t hard)
{
    memory_lower(&memory->soft, soft);
    memory_lower(&memory->hard, hard);
    br_memory_look(memory);
    memory_store(&memory->floor, br_mem_live() + memory_load(&memory->overhead));
}

size_t br_memory_soft(const struct br_memory *memory)
{
    size_t soft = memory_load(&memory->soft);
    return soft ? soft : SIZE_MAX;
}

size_t br_memory_hard(const struct br_memory *memory)
{
    size_t hard = memory_load(&memory->hard);
    return hard ? hard : SIZE_MAX;
}

size_t br_memory_intake(const struct br_memory *memory)
{
    size_t hard = memory_load(&memory->hard);
    return hard ? hard - hard / INTAKE_SHARE : SIZE_MAX;
}

void br_memory_look(struct br_memory *memory)
{
    size_t live = br_mem_live(), resident = memory->resident ? memory->resident() : 0;
    memory_store(&memory->looked_at, live);
    memory_store(&memory->overhead, resident > live ? resident - live : 0);
}

size_t br_memory_overhead(const struct br_memory *memory)
{
    return memory_load(&memory->overhead);
}

static bool memory_due(const struct br_memory *memory, size_t live)
{
    size_t before = memory_load(&memory->looked_at),
           step = memory_load(&memory->hard) / BR_MEMORY_LOOK;
    return step && (live > before ? live - before : before - live) > step;
}

size_t br_memory_used(struct br_memory *memory)
{
    size_t live = br_mem_live();
    if (memory->resident && memory_due(memory, live))
        br_memory_look(memory);
    return live + memory_load(&memory->overhead);
}

static bool memory_fits_below(struct br_memory *memory, size_t mark, size_t more)
{
    if (mark == SIZE_MAX)
        return true;
    size_t used = br_memory_used(memory);
    return used <= mark && more <= mark - used;
}

bool br_memory_fits(struct br_memory *memory, size_t more)
{
    return memory_fits_below(memory, br_memory_intake(memory), more);
}

bool br_memory_sends(struct br_memory *memory, size_t more)
{
    return memory_fits_below(memory, br_memory_hard(memory), more);
}

bool br_memory_is_over(struct br_memory *memory)
{
    size_t hard = br_memory_hard(memory);
    return hard != SIZE_MAX && br_memory_used(memory) > hard;
}

size_t br_memory_largest(const struct br_memory *memory)
{
    size_t intake = br_memory_intake(memory);
    if (intake == SIZE_MAX)
        return SIZE_MAX;
    size_t floor = memory_load(&memory->floor);
    return intake > floor ? intake - floor : 0;
}

/* Returns the number of bytes held for clients, which are freed once their data is sent. */
static size_t memory_payload(void)
{
    static const enum br_holder holders[] = {BR_HOLDER_REQUESTS, BR_HOLDER_BATCHES,
                                             BR_HOLDER_QUEUES,   BR_HOLDER_HOLDS,
                                             BR_HOLDER_ITEMS,    BR_HOLDER_ANSWERS};
    size_t sum = 0;
    for (size_t i = 0; i < BR_COUNT(holders); i++)
        sum += br_mem_held(holders[i]);
    return sum;
}

void br_memory_settle(struct br_memory *memory, size_t own)
{
    if (!memory_load(&memory->hard))
        return;
    atomic_fetch_add_explicit(&memory->trims, 1, memory_order_relaxed);
    br_mem_trim();
    br_memory_look(memory);
    size_t held = memory_payload(), used = br_mem_live() + memory_load(&memory->overhead);
    size_t gone = held + br_mem_held(BR_HOLDER_POOL);
    if (held <= own + memory_load(&memory->hard) / BR_MEMORY_LOOK)
        memory_store(&memory->floor, used > gone ? used - gone : 0);
}

unsigned br_memory_trims(const struct br_memory *memory)
{
    return atomic_load_explicit(&memory->trims, memory_order_relaxed);
}
