/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Injects allocation failures. A scenario runs once to count its allocations. Then it runs twice
 * for each of them: once with only that allocation failing, once with all later ones failing as
 * well. No run may leak memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Runs `scenario` as above; the test fails if a run leaks memory. The scenario does its set-up,
 * calls fault_start, runs the code under test, calls fault_stop, and checks. `what` is for
 * messages. */
void fault_each(const char *what, void (*scenario)(void *arg), void *arg);

/* As fault_each, but fails only every `step`-th allocation: for scenarios that take long. */
void fault_some(const char *what, void (*scenario)(void *arg), void *arg, unsigned step);

/* Allocations are counted, and may fail, between fault_start and fault_stop. Both may be called
 * several times. */
void fault_start(void);
void fault_stop(void);

/* Returns true if an allocation of this run has failed; the results may then be failures, too. */
bool fault_failed(void);

/* Between this call and fault_nth_stop only the `n`-th allocation, counted from 1, fails. Memory
 * released in between may be older. Returns whether the allocation was reached.
 * br_mem_set_hooks(NULL) in between ends the injection early. */
void fault_nth(unsigned long n);
bool fault_nth_stop(void);

/* Counts allocations without failing any. Call the first function before any allocation; the
 * second returns how many are alive. */
void fault_watch(void);
size_t fault_alive(void);

/* Restores the allocator. */
void fault_unwatch(void);
