/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program: workers, their graphs, signals, and an orderly end. */
#pragma once

#include "app/config.h"

struct br_service_options {
    uint64_t shutdown_timeout_ms; /* from the first SIGTERM or SIGINT to the end */
    void (*on_ready)(void *arg);  /* everything listens; NULL: nobody asks */
    void *on_ready_arg;
};

/* Starts everything, runs until SIGTERM or SIGINT, drains, and logs what became of every item.
 * Returns 0, or a negative code with a sentence when it could not start.
 *
 * Signals stay blocked after it, and the process ends within a second of the shutdown timeout,
 * whatever the caller still does. When a thread does not end (a disk that does not answer), it does
 * not return: it logs how much was left, and the process ends with EXIT_FAILURE. */
int br_service_run(const struct br_config *config, const struct br_service_options *options,
                   struct br_err *err);
