/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the transform processor share. */
#pragma once

#include "attribute/statement.h"
#include "pipeline/component.h"

/* the words of the option error_mode, in the order of enum br_error_mode, ended by NULL */
extern const char *const transform_error_modes[];

struct transform_config {
    int error_mode; /* enum br_error_mode */
    const struct br_yaml *trace_statements, *profile_statements;
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte of the item */
    uint64_t match_time;
};

struct transform_group {
    struct br_statements statements;
    /* The cache is kept for all messages of a request, and shared by all groups of the context for
     * which this is set. Otherwise each message has an empty cache. */
    bool shared_cache;
    struct transform_group *next;
};

/* The compiled statements of a signal. */
struct transform_signal {
    struct br_conditions conditions;
    struct transform_group *first, *last;
};

/* Compiles the statements of a signal, in the arena. With `errs`, reports errors with their place
 * below `path` and goes on; otherwise the statements must have been checked. Returns 0, BR_EINVAL
 * or BR_ENOMEM. */
int transform_compile(struct transform_signal *signal, const struct transform_config *config,
                      enum br_signal kind, const char *path, struct br_arena *arena,
                      struct br_errs *errs);

struct transform_state {
    struct br_arena arena; /* memory of the statements */
    struct transform_signal signals[BR_SIGNALS];
    struct br_regex_time time; /* time that regular expressions took for the current item */
    /* Data of the current item: shared caches by context, the cache of the current message, and
     * the work that is left after the groups so far. */
    struct br_message caches[BR_CONTEXTS], cache;
    struct br_arena cache_arena;
    uint64_t work_left;
    double *failed;
    struct br_log_limit limit;
};

/* Runs a group for all messages of its context. Returns 0, BR_EINVAL (a failure that is
 * propagated, or malformed data), BR_EFULL or BR_ENOMEM. After an error the item must not be
 * used. */
int transform_run(struct br_node *node, struct transform_group *group, struct br_item *item);
