/* SPDX-License-Identifier: Apache-2.0 */
/* Functions shared by the files of the builder. This header is private to src/otlp/build. */
#pragma once

#include "otlp/build/build.h"
#include "otlp/dictionary/merger.h"

#define BR_BUILD_LEVELS 3 /* levels of messages: ResourceProfiles, ScopeProfiles, Profile */

struct br_build {
    struct br_merge merge; /* tables and output of the request; the merger's source is not used */
    struct br_open open[BR_BUILD_LEVELS];
    unsigned depth; /* number of open messages, at most BR_BUILD_LEVELS */
    struct br_merger_mark mark;
};

/* Creates the builder's tables if necessary. Returns true if no error has occurred. */
bool br_build_start(struct br_build *build);

static inline bool br_build_ready(struct br_build *build)
{
    if (__builtin_expect(!build->merge.rc && build->merge.tables[BR_TABLES - 1].count, 1))
        return true;
    return br_build_start(build);
}

/* Returns true if all `count` indices in `values` exist in `table`. Otherwise records BR_EINVAL. */
bool br_build_check(struct br_build *build, enum br_table table, const uint32_t *values,
                    size_t count);

/* Writes a packed list of indices as field `field` (below 16), unless the list is empty. Needs
 * at most 5 * count + 7 bytes. Returns the position after the field. */
uint8_t *br_build_put_list(uint8_t *out, uint32_t field, const uint32_t *values, size_t count);
