/* SPDX-License-Identifier: Apache-2.0 */
/* Measures allocated memory, in bytes: br_mem_set_hooks(&mem_meter_hooks) wraps the C library's
 * allocator. The caller clears the meter before setting the hooks. */
#pragma once

#include "base/mem.h"

struct mem_meter {
    size_t live, peak; /* current and largest size */
    long fail_at;      /* the allocation that fails, counted from now; 0: none */
};

extern struct mem_meter mem_meter;
extern const struct br_mem_hooks mem_meter_hooks;
