/* SPDX-License-Identifier: Apache-2.0 */
/* The types and functions that the files of the attributes processor share. */
#pragma once

#include "attribute/match.h"
#include "attribute/rules.h"
#include "pipeline/component.h"

enum attributes_target { ATTRIBUTES_BOTH, ATTRIBUTES_SAMPLES, ATTRIBUTES_PROFILES };

struct attributes_config {
    const struct br_match_config *include, *exclude;
    struct br_structs actions; /* struct br_rule_config */
    struct br_strings headers; /* that from_context names; filled by check */
    int apply_to;              /* enum attributes_target */
    uint64_t match_time;       /* ns */
};

struct attributes_state {
    struct br_arena arena; /* of the rules and the matcher */
    struct br_rules rules;
    struct br_matcher matcher;
    struct br_attributes list; /* of the span or sample at hand */
    struct br_arena scratch;   /* for what the rules make of it */
    struct br_buf *body;       /* and what becomes of it */
    struct br_regex_time time; /* of the item at hand */
    struct br_log_limit limit;
    double *gave_up;
};

/* Empties s->body and makes room for `size` bytes in it. */
bool attributes_body(struct attributes_state *state, struct br_pool *pool, size_t size);

/* Returns the code for a list that is no good. */
int attributes_problem(const struct br_attributes *list);

/* Applies the rules to the samples and profiles of an item, between br_matcher_begin and
 * br_matcher_end. Returns 0, or BR_EFULL (something has too many attributes), BR_EINVAL (no walk
 * has accepted it) or BR_ENOMEM, and then the item is not to be used. */
int attributes_profiles(struct br_node *node, struct br_item *item);
