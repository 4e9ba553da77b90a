/* SPDX-License-Identifier: Apache-2.0 */
/* Returns the largest size, in MiB, of the requests in tests of worst cases (requests that are as
 * expensive as possible). The default is 2 MiB. In builds with a sanitizer, it is 1 MiB, because
 * these take ten times as long. The environment variable WORST_MIB sets another size. */
#pragma once

#include <stddef.h>
#include <stdlib.h>

#include "base/sanitize.h"

static inline size_t worst_mib_max(void)
{
    const char *set = getenv("WORST_MIB");
    if (set)
        return strtoul(set, NULL, 10);
#if BR_SANITIZED
    return 1;
#else
    return 2;
#endif
}
