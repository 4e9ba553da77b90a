/* SPDX-License-Identifier: Apache-2.0 */
/* Tells how much CPU the process may use. */
#pragma once

/* Returns the lowest quota of the control groups (version 2, cpu.max) that the process is in, in
 * CPUs; 0: there is none. `root` goes before "/proc" and "/sys", for tests; otherwise "". */
double adaptive_quota(const char *root);

/* Returns what `n_workers` threads can use at the most: no more than one CPU each, those that the
 * process is allowed on, and the quota (0: none). */
double adaptive_cpus(unsigned n_workers, double quota);
