/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks whether a configuration would start, without starting it. Creates and starts all
 * components on a host that opens no sockets and writes no files. Certificates and keys are loaded,
 * listening addresses are resolved and must be local, and no two servers may use the same port. A
 * port in use by another process is not an error: that may be the process to be restarted.
 */
#pragma once

#include "app/config.h"

/* Returns 0, or a negative code with errors in `errs`. */
int br_preflight(const struct br_config *config, struct br_errs *errs);

/* Checks which ports are in use by other processes, after a failed start. Adds an error for
 * each, with the --set argument that selects another port. Returns the number of such ports. */
size_t br_preflight_taken(const struct br_config *config, struct br_errs *errs);
