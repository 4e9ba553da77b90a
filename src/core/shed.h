/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load shedding: a worker drops or refuses data, in steps, while there is too little CPU or memory.
 * Profiles go first: half of the profiles still describe a program, but half of a trace is useless.
 *
 * The first two steps drop a share of the profiles, after they were read and counted ("shed" in the
 * ledger). Asking for a retry would only bring the same load again. The last two steps refuse
 * requests before their bodies are read, with a retryable status. That costs almost nothing, and
 * loses nothing if the overload is short.
 *
 * The extension `adaptive` sets the step for CPU use, for the whole process. It also sets the share
 * of the memory limit above which each worker sheds by itself. Memory is checked with each request.
 * The step falls only when memory use is BR_SHED_BACK per cent below the mark where it rose.
 */
#pragma once

#include <stdbool.h>

#include "core/item.h"

enum br_shed_step {
    BR_SHED_NONE,
    BR_SHED_HALF,     /* half of the profiles are dropped */
    BR_SHED_MOST,     /* three of four profiles are dropped */
    BR_SHED_PROFILES, /* profiles are refused */
    BR_SHED_TRACES,   /* traces are refused, too */
};

#define BR_SHED_REASON "shed" /* in the ledger */
/* per cent of the memory limit between the marks for a step up and down */
#define BR_SHED_BACK 5

/* A member of the host. Zeroed: nothing is ever shed. */
struct br_shed {
    unsigned cpu_step;                     /* enum br_shed_step */
    unsigned memory_percentage;            /* of the soft limit; 0: memory is not checked */
    unsigned memory_step;                  /* the step at the last check */
    double *dropped, *refused[BR_SIGNALS]; /* requests, once br_shed_set was called */
};

/* Sets the step for the CPU and the percentage for memory. Called in the thread of the host. */
void br_shed_set(struct br_host *host, unsigned cpu_step, unsigned memory_percentage);

/* Returns the current step of the worker: the higher one of CPU and memory. Memory never causes
 * BR_SHED_TRACES, because the memory limit itself has that effect. */
unsigned br_shed_step(struct br_host *host);

/* Returns a description of the step. */
const char *br_shed_text(unsigned step);

/* Returns true if a new request (a scrape, a file) of the signal must not begin now, and counts
 * it. */
bool br_shed_refuses(struct br_host *host, enum br_signal signal);

/* Returns true if this request of the signal is dropped, and counts it. The choice is random, so
 * that a sender with regular requests does not lose all of them. */
bool br_shed_drops(struct br_host *host, enum br_signal signal);

/* Finishes a received item and drops its records with BR_SHED_REASON. The sender is informed
 * that they were not accepted and must not be sent again. Takes the item. */
void br_shed_item(struct br_item *item);
