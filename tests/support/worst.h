/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the largest size of the worst shapes in MiB. Steps are counted up to 2 MiB; a
 * sanitizer's build takes ten times as long for each. WORST_MIB in the environment sets another
 * size. */
#pragma once

#include <stddef.h>
#include <stdlib.h>

static inline size_t worst_mib_max(void)
{
    const char *set = getenv("WORST_MIB");
    if (set)
        return strtoul(set, NULL, 10);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 1;
#else
    return 2;
#endif
}
