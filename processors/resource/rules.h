/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of the config: what the user wrote, checked and compiled, and applied to a Resource.
 */
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/err.h"
#include "config/option.h"
#include "processors/resource/message.h"

enum resource_action {
    RESOURCE_INSERT,
    RESOURCE_UPDATE,
    RESOURCE_UPSERT,
    RESOURCE_DELETE,
    RESOURCE_HASH,
    RESOURCE_EXTRACT,
    RESOURCE_CONVERT,
};

/* One entry of `attributes`, as the option table reads it. */
struct resource_rule_config {
    const char *key;
    int action;
    const struct br_yaml *value, *default_value;
    const char *from_attribute, *from_context, *pattern, *converted_type;
};

extern const struct br_option resource_rule_options[];

struct resource_rule {
    enum resource_action action;
    const char *key;
    size_t key_len;
    struct resource_value value, default_value;
    bool has_value, has_default;
    const char *from_attribute; /* NULL: none */
    const char *from_metadata;  /* header, in any case; NULL: none */
    enum resource_type to;      /* CONVERT */
    pcre2_code *pattern;        /* NULL: none */
    const char **groups;        /* EXTRACT: the name of each group from 1 on, in the arena */
    uint32_t n_groups;
};

struct resource_rules {
    struct resource_rule *v;
    size_t n;
    struct br_arena *arena;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_match_data *match;
};

/* Where a rule is wrong. */
struct resource_problem {
    size_t rule;
    const char *key; /* the option at fault, or NULL: the rule as a whole */
    char text[320];
};

/* Compiles `n` rules; what they need lives in the arena and in `ret`, which is to be released also
 * on failure. Returns 0, BR_ENOMEM, or BR_EINVAL with a problem. */
int resource_rules_compile(const struct resource_rule_config *c, size_t n, struct br_arena *arena,
                           struct resource_rules *ret, struct resource_problem *problem);
void resource_rules_release(struct resource_rules *r);

/* The header that a from_context names ("metadata.X", or "X" alone); NULL when it is of a kind that
 * is not supported. */
const char *resource_context_header(const char *from_context);

/* Applies all rules in order. `metadata` is an item's (may be NULL). False when m->no_memory or
 * m->too_many. */
bool resource_rules_apply(const struct resource_rules *r, struct resource_message *m,
                          const char *metadata);
