/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the builder share. For src/otlp/build*.c only. */
#pragma once

#include "otlp/build/build.h"
#include "otlp/dictionary/merger.h"

#define BR_BUILD_LEVELS 3 /* ResourceProfiles, ScopeProfiles, Profile */

struct br_build {
    struct br_merge m; /* without a source */
    struct br_open open[BR_BUILD_LEVELS];
    unsigned depth; /* how many of them are open */
    struct br_merger_mark mark;
};

/* True while nothing has failed. Makes the tables where there are none. */
bool br_build_start(struct br_build *b);

static inline bool br_build_ready(struct br_build *b)
{
    if (__builtin_expect(!b->m.rc && b->m.tables[BR_TABLES - 1].n, 1))
        return true;
    return br_build_start(b);
}

/* True when all `n` indices are in table `t`; otherwise BR_EINVAL sticks. */
bool br_build_check(struct br_build *b, enum br_table t, const uint32_t *v, size_t n);

/* A packed list of indices as this field (number below 16), unless it is empty: at most
 * 5 n + 7 bytes. */
uint8_t *br_build_put_list(uint8_t *o, uint32_t field, const uint32_t *v, size_t n);
