/* SPDX-License-Identifier: Apache-2.0 */
/* Determines how much CPU the process may use. */
#pragma once

/* Returns the lowest CPU quota of the process's control groups (version 2, file cpu.max), in
 * CPUs; 0 if none of the groups has a quota. `root` is prepended to "/proc" and "/sys" in tests;
 * otherwise it is "". */
double adaptive_quota(const char *root);

/* Returns how many CPUs `n_workers` threads can use at most. The result is limited to one CPU
 * per thread, to the CPU affinity of the process, and to the quota (0: no quota). */
double adaptive_cpus(unsigned n_workers, double quota);
