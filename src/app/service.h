/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the process: workers with their graphs, signal handling, and an orderly shutdown. Also
 * checks whether a configuration would start.
 */
#pragma once

#include "app/config.h"

struct br_service_options {
    /* time in ms from the first SIGTERM or SIGINT until the shutdown must have ended */
    uint64_t shutdown_timeout_ms;
    /* sources from which a reload reads the configuration; NULL: reloads are not possible */
    const struct br_config_sources *sources;
    bool watch_config;           /* reload when a file of the configuration has changed */
    void (*on_ready)(void *arg); /* called when all servers listen; may be NULL */
    void *on_ready_arg;
};

/* Starts all workers, runs until SIGTERM or SIGINT, delivers queued records, and logs the totals.
 * Returns 0, or a negative code with `err` set if the service could not start.
 *
 * SIGTERM, SIGINT and SIGHUP stay blocked after the function has returned. If the caller blocks,
 * the process ends at the latest one second after the shutdown timeout. If a thread does not end in
 * time, for example because a disk does not respond, the function does not return. Instead, it logs
 * the totals and ends the process with EXIT_FAILURE. */
int br_service_run(const struct br_config *config, const struct br_service_options *options,
                   struct br_err *err);

/* --- Checks without a start (preflight.c) ----------------------------------------------------- */

/* Checks whether Braid would start with a configuration. Creates and starts all components on a
 * host that opens no sockets and writes no files. Certificates and keys are loaded, listening
 * addresses are resolved and must be local, and no two servers may use the same port. A port in use
 * by another process is not an error, because Braid may replace that process. If `elsewhere`, Braid
 * may run on another machine: a host name of a server that this machine cannot resolve then adds a
 * warning and not an error. Returns 0, or a negative code with errors in `errs`. */
int br_preflight(const struct br_config *config, bool elsewhere, struct br_errs *errs);

/* Checks which ports are in use by other processes, after a failed start. Adds an error for each
 * such port, with the --set argument that selects another port. Returns the number of such
 * ports. */
size_t br_preflight_taken(const struct br_config *config, struct br_errs *errs);
