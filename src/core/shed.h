/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shedding: a worker gives up data, step by step, while there is too little CPU or memory. Profiles
 * go before traces: half of them is still the profile of a program, half of a trace is nothing.
 *
 * The first two steps drop a share of the profiles for good, after they were read and counted
 * ("shed" in the ledger): one that were asked to come again would come again, and nothing would be
 * saved. The last two refuse requests before their bodies are read, to be sent again: that costs
 * next to nothing, and loses nothing when it does not last.
 *
 * Extension `adaptive` sets the step for the CPU, for the process, and from which share of the
 * memory limit on each worker sheds by itself: memory is counted as it is allocated, so that is
 * looked at with every request, and falls back a step only some per cent below where it rose.
 */
#pragma once

#include <stdbool.h>

#include "core/item.h"

enum br_shed_step {
    BR_SHED_NONE,
    BR_SHED_HALF,     /* one of two profiles is dropped */
    BR_SHED_MOST,     /* three of four */
    BR_SHED_PROFILES, /* profiles are refused */
    BR_SHED_TRACES,   /* traces too */
};

#define BR_SHED_REASON "shed" /* in the ledger */
#define BR_SHED_BACK 5        /* per cent of the memory limit between a step up and the way back */

/* A member of the host. Zeroed: nothing is ever shed. */
struct br_shed {
    unsigned cpu_step;                     /* enum br_shed_step */
    unsigned memory_percentage;            /* of the soft limit; 0: memory does not matter */
    unsigned memory_step;                  /* where it stood when it was last looked at */
    double *dropped, *refused[BR_SIGNALS]; /* requests, once br_shed_set was called */
};

/* Sets both, in the thread of the host. */
void br_shed_set(struct br_host *host, unsigned cpu_step, unsigned memory_percentage);

/* Returns the step that the worker is at: the higher of CPU's and memory's, which never is
 * BR_SHED_TRACES; the memory limit itself is there for that. */
unsigned br_shed_step(struct br_host *host);

/* Returns what the step means, in words. */
const char *br_shed_text(unsigned step);

/* Returns true when a new request (a scrape, a file) of the signal is not to be begun now; counted.
 */
bool br_shed_refuses(struct br_host *host, enum br_signal signal);

/* Returns true when this request of the signal is one of those to be dropped; counted. By lot, so
 * that no sender whose requests keep a beat loses all of them. */
bool br_shed_drops(struct br_host *host, enum br_signal signal);

/* Ends a received item as dropped: all that it owes is dropped for BR_SHED_REASON, and whoever
 * waits for it is told that it was not kept and must not be sent again. Takes the item. */
void br_shed_item(struct br_item *item);
