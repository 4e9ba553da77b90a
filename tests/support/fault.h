/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that runs out on purpose: a scenario is run once to count its allocations, then once for
 * each of them, which fails, and once more for each with all that follow failing too. Afterwards
 * nothing may be left.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Runs `scenario` as above; the test fails when a run leaves memory behind. The scenario does its
 * set-up, calls fault_start, does what is tested, calls fault_stop, and checks. `what` is for
 * messages. */
void fault_each(const char *what, void (*scenario)(void *arg), void *arg);

/* As fault_each, only every `step`-th allocation: for scenarios that take long. */
void fault_some(const char *what, void (*scenario)(void *arg), void *arg, unsigned step);

/* Allocations count, and may fail, from here to fault_stop. May be used several times. */
void fault_start(void);
void fault_stop(void);

/* True when an allocation of this run has failed: results may then be failures too. */
bool fault_failed(void);

/* From here to fault_nth_stop the `n`-th allocation, from 1, fails, and no other; what is released
 * may be older. Returns whether it came to that. br_mem_set_hooks(NULL) in between ends the failing
 * early. */
void fault_nth(unsigned long n);
bool fault_nth_stop(void);

/* Counts allocations without failing any: before anything is allocated; then how many are alive. */
void fault_watch(void);
size_t fault_alive(void);

/* Brings the allocator back. */
void fault_unwatch(void);
