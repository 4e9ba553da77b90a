/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/fault.h"

#include "base/mem.h"
#include "tests/support/test.h"

static struct {
    bool counting, failed, from_there_on;
    /* n: number of allocations so far; at: number of the allocation that fails, or 0 if none
     * fails */
    unsigned long n, at;
    size_t alive;
} fault;

static bool fails(void)
{
    if (!fault.counting)
        return false;
    fault.n++;
    if (!fault.at || fault.n < fault.at || (fault.n > fault.at && !fault.from_there_on))
        return false;
    fault.failed = true;
    return true;
}

static void *take(size_t size)
{
    void *p = fails() ? NULL : malloc(size);
    fault.alive += p != NULL;
    return p;
}

static void *resize(void *old, size_t size)
{
    void *p = fails() ? NULL : realloc(old, size);
    fault.alive += p && !old;
    return p;
}

static void release(void *p)
{
    fault.alive--;
    free(p);
}

static const struct br_mem_hooks hooks = {take, resize, release, NULL};

void fault_watch(void)
{
    fault.counting = fault.failed = false;
    fault.at = fault.n = 0;
    fault.alive = 0;
    br_mem_set_hooks(&hooks);
}

void fault_unwatch(void)
{
    br_mem_set_hooks(NULL);
}

size_t fault_alive(void)
{
    return fault.alive;
}

void fault_start(void)
{
    fault.counting = true;
}

void fault_stop(void)
{
    fault.counting = false;
}

bool fault_failed(void)
{
    return fault.failed;
}

void fault_nth(unsigned long n)
{
    fault_watch();
    fault.at = n;
    fault.from_there_on = false;
    fault_start();
}

bool fault_nth_stop(void)
{
    fault_stop();
    fault_unwatch();
    return fault.failed;
}

/* Runs the scenario once. Returns the number of allocations that it made. */
static unsigned long run(const char *what, void (*scenario)(void *arg), void *arg, unsigned long at,
                         bool from_there_on)
{
    fault_watch();
    fault.at = at;
    fault.from_there_on = from_there_on;
    scenario(arg);
    fault_stop();
    fault_unwatch();
    if (fault.alive)
        fail_msg("%s: %zu allocations left when number %lu%s failed", what, fault.alive, at,
                 from_there_on ? " and all after it" : "");
    return fault.n;
}

void fault_some(const char *what, void (*scenario)(void *arg), void *arg, unsigned step)
{
    unsigned long n = run(what, scenario, arg, 0, false);
    assert_true(n > 0);
    for (int all = 0; all < 2; all++) {
        for (unsigned long at = 1; at <= n; at += step) {
            if (getenv("BR_FAULT"))
                (void)fprintf(stderr, "%s: %lu of %lu\n", what, at, n);
            (void)run(what, scenario, arg, at, all);
        }
    }
}

void fault_each(const char *what, void (*scenario)(void *arg), void *arg)
{
    fault_some(what, scenario, arg, 1);
}
