/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks, compiles and applies actions on attributes, like the Collector's resource and attributes
 * processors.
 */
#pragma once

#include "attribute/attributes.h"
#include "attribute/regex.h"
#include "base/err.h"
#include "config/option.h"

enum br_rule_action {
    BR_RULE_INSERT,
    BR_RULE_UPDATE,
    BR_RULE_UPSERT,
    BR_RULE_DELETE,
    BR_RULE_HASH,
    BR_RULE_EXTRACT,
    BR_RULE_CONVERT,
};

/* The config of one action, as the option table reads it. */
struct br_rule_config {
    const char *key;
    int action;
    const struct br_yaml *value, *default_value;
    const char *from_attribute, *from_context, *pattern, *converted_type;
};

extern const struct br_option br_rule_options[];

struct br_rule {
    enum br_rule_action action;
    const char *key;
    size_t key_len;
    struct br_value value, default_value;
    bool has_value, has_default;
    /* key of the attribute from which the value is taken; NULL: not set */
    const char *from_attribute;
    /* name, in any case, of the header from which the value is taken; NULL: not set */
    const char *from_metadata;
    enum br_value_type to; /* CONVERT: the type to which the value is converted */
    pcre2_code *pattern;   /* compiled pattern of the rule; NULL: no pattern */
    /* EXTRACT: names of the pattern's groups from group 1 on, allocated in the arena */
    const char **groups;
    uint32_t n_groups;
};

struct br_rules {
    struct br_rule *rules;
    size_t count;
    struct br_arena *arena;
    struct br_regex regex;
};

/* The reason why a rule is invalid. */
struct br_rule_problem {
    size_t rule;
    const char *key; /* the option that is invalid; NULL: the whole rule is invalid */
    bool lacks;      /* true: the Collector supports the value of the option, but Braid does not */
    char text[320];
};

/* Checks the rules that the option `key` of `node` contains. Adds an error for each invalid
 * rule, and for an empty list. Returns 0, BR_EINVAL with errors added, or BR_ENOMEM. */
int br_rules_check(const struct br_structs *rules, const char *key, const struct br_yaml *node,
                   const char *path, struct br_arena *arena, struct br_errs *errs);

/* Lists the headers that the rules read (metadata_keys in component.h). The list is allocated in
 * the arena. Returns 0 or BR_ENOMEM. */
int br_rules_headers(const struct br_structs *rules, struct br_arena *arena,
                     struct br_strings *ret);

/* Compiles `count` rules into `arena` and `ret`. The caller must release `ret` even after a
 * failure. Returns 0, BR_ENOMEM, or BR_EINVAL with a description of the invalid rule in
 * `problem`. */
int br_rules_compile(const struct br_rule_config *config, size_t count, struct br_arena *arena,
                     struct br_rules *ret, struct br_rule_problem *problem);
void br_rules_release(struct br_rules *rules);

/* Applies all rules in order. `metadata` is the item's metadata (may be NULL). If memory runs
 * out or there are too many attributes, sets `attributes->no_memory` or `attributes->too_many`
 * and returns false. */
bool br_rules_apply(const struct br_rules *rules, struct br_attributes *attributes,
                    const char *metadata);
