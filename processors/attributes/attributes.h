/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions that the files of the attributes processor share. */
#pragma once

#include "attribute/match.h"
#include "attribute/rules.h"
#include "pipeline/component.h"

enum attributes_target { ATTRIBUTES_BOTH, ATTRIBUTES_SAMPLES, ATTRIBUTES_PROFILES };

struct attributes_config {
    const struct br_match_config *include, *exclude;
    struct br_structs actions; /* list of struct br_rule_config */
    /* names of the headers that actions read (from_context); set by the config check */
    struct br_strings headers;
    int apply_to; /* records to which the rules apply, an enum attributes_target */
    /* processor time, in nanoseconds, that regular expressions may take for an item, in addition
     * to 20 ns per byte of the item */
    uint64_t match_time;
};

struct attributes_state {
    struct br_arena arena; /* memory of the rules and the matcher */
    struct br_rules rules;
    struct br_matcher matcher;
    struct br_attributes list; /* attributes of the current span or sample */
    struct br_arena scratch;   /* memory for new attribute values */
    struct br_buf *body;       /* rewritten message of the current span, sample or profile */
    struct br_regex_time time; /* time that regular expressions took for the current item */
    struct br_log_limit limit;
    double *gave_up;
};

/* Returns the error code for an attribute list that could not be read or changed. */
int attributes_problem(const struct br_attributes *list);

/* Applies the rules to the samples and profiles of an item. Must be called between
 * br_matcher_begin and br_matcher_end. Returns 0, BR_EFULL (too many attributes), BR_EINVAL (the
 * item has not been checked by a walk) or BR_ENOMEM. After an error the item must not be used. */
int attributes_profiles(struct br_node *node, struct br_item *item);
