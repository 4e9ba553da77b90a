/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load shedding: a worker drops or refuses data, in steps, while there is too little CPU or memory.
 * Profiles are dropped before traces: half of the profiles still describe a program, but half of a
 * trace is useless.
 *
 * The first two steps drop a share of the profiles after these were read and counted (reason "shed"
 * in the ledger). If senders were asked to retry instead, the same load would only arrive again.
 * The last two steps refuse requests before their bodies are read, with a retryable status. A
 * refusal costs almost nothing, and no data is lost if the overload is short.
 *
 * The extension `adaptive` sets the step for CPU use, for the whole process. `adaptive` also sets
 * the share of the memory limit above which each worker starts to shed load. Memory is checked with
 * each request. The step decreases only when memory use is BR_SHED_BACK per cent of the soft limit
 * below the mark at which the step increased.
 */
#pragma once

#include <stdbool.h>

#include "core/item.h"

enum br_shed_step {
    BR_SHED_NONE,
    BR_SHED_HALF,     /* half of the profiles requests are dropped */
    BR_SHED_MOST,     /* three of four profiles requests are dropped */
    BR_SHED_PROFILES, /* profiles are refused */
    BR_SHED_TRACES,   /* profiles and traces are refused */
};

#define BR_SHED_REASON "shed" /* reason for dropped records in the ledger */
/* distance between the marks at which a step begins and ends, in per cent of the soft limit */
#define BR_SHED_BACK 5

/* The state of load shedding, a member of the host. If the struct is zeroed, no data is ever
 * dropped or refused. */
struct br_shed {
    unsigned cpu_step; /* step for CPU use, of enum br_shed_step */
    /* Memory use at which the first step of load shedding begins, in per cent of the soft memory
     * limit (0 to 99). It is the option memory_percentage of the extension adaptive. 0: memory use
     * does not cause load shedding. */
    unsigned memory_percentage;
    unsigned memory_step; /* step for memory use at the last check, of enum br_shed_step */
    /* counters of dropped and refused requests; set by br_shed_set */
    double *dropped, *refused[BR_SIGNALS];
};

/* Sets the step for CPU use and the percentage for memory. Called in the thread of the host. */
void br_shed_set(struct br_host *host, unsigned cpu_step, unsigned memory_percentage);

/* Returns the current step of the worker: the higher of the steps for CPU and for memory. Memory
 * use never causes BR_SHED_TRACES, because the memory limit itself has that effect. */
unsigned br_shed_step(struct br_host *host);

/* Returns a description of the step. */
const char *br_shed_text(unsigned step);

/* Returns true if a new request, scrape or file of the signal must be refused at the current step,
 * and counts it as a refused request. */
bool br_shed_refuses(struct br_host *host, enum br_signal signal);

/* Returns true if this request of the signal must be dropped, and counts the request as dropped.
 * The choice is random, so that a sender that sends at regular intervals does not lose all its
 * requests. */
bool br_shed_drops(struct br_host *host, enum br_signal signal);

/* Takes a received item, reports its records as dropped for BR_SHED_REASON, and finishes the item.
 * The response informs the sender that the records were not accepted and must not be sent again. */
void br_shed_item(struct br_item *item);
