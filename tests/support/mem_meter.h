/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory is taken, in bytes, by br_mem_set_hooks(&mem_meter_hooks) around the C library's
 * allocator. Whoever sets them clears the meter first. */
#pragma once

#include "base/mem.h"

struct mem_meter {
    size_t live, peak; /* now, and at the most */
    long fail_at;      /* so many allocations on, one fails; 0: none does */
};

extern struct mem_meter mem_meter;
extern const struct br_mem_hooks mem_meter_hooks;
