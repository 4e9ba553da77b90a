/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds what a start would find wrong, without starting. Every component is made and started on a
 * host that listens nowhere, connects to nobody and writes nothing. Certificates and keys are
 * loaded, names of addresses to listen on are resolved, addresses have to be this machine's, and no
 * two servers may want one port. That another process has a port now is no error: it may be the one
 * that is to be restarted.
 */
#pragma once

#include "app/config.h"

/* Returns 0, or a negative code with errors in `errs`. */
int br_preflight(const struct br_config *config, struct br_errs *errs);

/* Finds the ports that other processes have, all of them, for a start that failed. Adds an error
 * for each, with the argument that moves it, and returns how many there are. */
size_t br_preflight_taken(const struct br_config *config, struct br_errs *errs);
