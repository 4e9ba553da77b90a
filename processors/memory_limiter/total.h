/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* The memory that the process may use, in bytes: the machine's (MemTotal), or what the control
 * group (v2 or v1) it is in, or one above it, allows where that is less. `root` stands before /proc
 * and /sys;
 * "" but in tests. False when none of the files can be read. */
bool memory_total(const char *root, uint64_t *ret);
