/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the process: workers with their graphs, signal handling, and an orderly shutdown. */
#pragma once

#include "app/config.h"

struct br_service_options {
    /* ms from the first SIGTERM or SIGINT until the shutdown must have ended */
    uint64_t shutdown_timeout_ms;
    void (*on_ready)(void *arg); /* called when all servers listen; may be NULL */
    void *on_ready_arg;
};

/* Starts all workers, runs until SIGTERM or SIGINT, delivers queued records, and logs the
 * totals. Returns 0, or a negative code with `err` set if it could not start.
 *
 * After the return, the signals stay blocked. The process ends within a second of the shutdown
 * timeout even if the caller blocks. If a thread does not end, for example because a disk does
 * not respond, the function does not return: it logs the totals and ends the process with
 * EXIT_FAILURE. */
int br_service_run(const struct br_config *config, const struct br_service_options *options,
                   struct br_err *err);
