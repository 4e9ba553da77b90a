/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the files of the builder share. For src/otlp/build only. */
#pragma once

#include "otlp/build/build.h"
#include "otlp/dictionary/merger.h"

#define BR_BUILD_LEVELS 3 /* ResourceProfiles, ScopeProfiles, Profile */

struct br_build {
    struct br_merge merge; /* without a source */
    struct br_open open[BR_BUILD_LEVELS];
    unsigned depth; /* how many of them are open */
    struct br_merger_mark mark;
};

/* Returns true while nothing has failed. Makes the tables where there are none. */
bool br_build_start(struct br_build *build);

static inline bool br_build_ready(struct br_build *build)
{
    if (__builtin_expect(!build->merge.rc && build->merge.tables[BR_TABLES - 1].count, 1))
        return true;
    return br_build_start(build);
}

/* Returns true when all `count` indices are in table `table`; otherwise BR_EINVAL sticks. */
bool br_build_check(struct br_build *build, enum br_table table, const uint32_t *values,
                    size_t count);

/* Writes a packed list of indices as this field (number below 16), unless it is empty: at most 5 n
 * + 7 bytes. */
uint8_t *br_build_put_list(uint8_t *out, uint32_t field, const uint32_t *values, size_t count);
