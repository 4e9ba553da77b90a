/* SPDX-License-Identifier: Apache-2.0 */
/* Measures allocated memory. br_mem_set_hooks(&mem_meter_hooks) wraps the allocator of the C
 * library. The caller must clear the meter before it sets the hooks. */
#pragma once

#include "base/mem.h"

struct mem_meter {
    size_t live, peak; /* current and largest size of all allocated memory, in bytes */
    /* 1: the next allocation fails, 2: the one after it, and so on; 0: no allocation fails */
    long fail_at;
};

extern struct mem_meter mem_meter;
extern const struct br_mem_hooks mem_meter_hooks;
