/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injects allocation failures. A scenario runs once to count its allocations. Then it runs twice
 * for each allocation. In the first of these runs, only this allocation fails. In the second, all
 * later allocations fail, too. No run may leak memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Runs `scenario` as above; the test fails if a run leaks memory. The scenario does its set-up,
 * calls fault_start, runs the code under test, calls fault_stop, and checks the result. `what`
 * names the scenario in messages. */
void fault_each(const char *what, void (*scenario)(void *arg), void *arg);

/* Does the same as fault_each, but only every `step`-th allocation fails. For scenarios that take
 * long. */
void fault_some(const char *what, void (*scenario)(void *arg), void *arg, unsigned step);

/* Allocations are counted, and may fail, between fault_start and fault_stop. Both may be called
 * several times. */
void fault_start(void);
void fault_stop(void);

/* Returns true if an allocation of this run has failed; the results may then be failures, too. */
bool fault_failed(void);

/* Between fault_nth and fault_nth_stop, only the `n`-th allocation fails (the first has the
 * number 1). Memory that was allocated before may be released in between. fault_nth_stop returns
 * whether the allocation was reached. A call of br_mem_set_hooks(NULL) in between ends the
 * injection early. */
void fault_nth(unsigned long n);
bool fault_nth_stop(void);

/* fault_watch begins to count allocations, and must be called before any allocation. fault_alive
 * returns how many allocations have not been released. No allocation fails. */
void fault_watch(void);
size_t fault_alive(void);

/* Restores the allocator. */
void fault_unwatch(void);
