/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matcher says to which spans or samples something applies: by the Collector's `include` and
 * `exclude`, strict or by regular expressions, and the same for profiles.
 *
 * Every criterion that is set has to match: one of its texts, or, of attributes, resources and
 * libraries, all that are listed. A criterion that an item cannot meet (a span has no functions)
 * matches nothing. What passes is included and not excluded.
 */
#pragma once

#include "attribute/attributes.h"
#include "attribute/regex.h"
#include "base/err.h"
#include "config/option.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"

enum br_match_type { BR_MATCH_STRICT, BR_MATCH_REGEXP };

struct br_match_attribute {
    const char *key;
    const struct br_yaml *value; /* NULL: the key is enough */
};

struct br_match_library {
    const char *name, *version; /* version NULL: any */
};

/* `include` or `exclude`, as the option tables read it. */
struct br_match_config {
    int match_type;
    struct br_strings services, span_names, span_kinds, sample_types, functions;
    struct br_structs attributes, resources; /* struct br_match_attribute */
    struct br_structs libraries;             /* struct br_match_library */
};

extern const struct br_option br_match_options[];         /* for either signal */
extern const struct br_option br_match_span_options[];    /* without those of samples */
extern const struct br_option br_match_profile_options[]; /* without those of spans */

/* Checks `include` or `exclude` (NULL: not there), which stands at `node`. Returns 0, BR_EINVAL
 * with errors added, or BR_ENOMEM. */
int br_match_check(const struct br_match_config *match_config, const struct br_yaml *node,
                   const char *path, struct br_arena *arena, struct br_errs *errs);

struct br_match; /* a compiled one */

#define BR_MATCHES 2 /* include and exclude */

/* Zeroed at first. For one thread. */
struct br_matcher {
    struct br_match *matches[BR_MATCHES]; /* NULL: not there */
    struct br_regex regex;
    struct br_attributes list;   /* of whatever is looked at */
    struct br_attributes common; /* of the profile at hand, for all its samples */
    unsigned n_gave_up; /* times that a pattern took too long and counts as not matching; whoever
                           reads it resets it */
    /* The item at hand. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;
    uint32_t part; /* the one that `resource` speaks of; UINT32_MAX: none yet */
    bool resource[BR_MATCHES], group[BR_MATCHES]; /* whether they match */
    const uint8_t *scope;                         /* the one that `library` speaks of */
    bool library[BR_MATCHES];
    /* What was found so far, by index: so that what many refer to is matched once. `values` has so
     * many for each criterion; `common_values` is by criterion, of the profile at hand. */
    uint8_t *functions[BR_MATCHES], *locations[BR_MATCHES], *stacks[BR_MATCHES];
    uint8_t *names[BR_MATCHES]; /* of functions, by string */
    uint8_t *types[BR_MATCHES], *values[BR_MATCHES], *common_values[BR_MATCHES];
    bool common_read;
    struct br_value_memo memo;
    int rc;
};

/* Compiles both (NULL: not there), which br_match_check has accepted; what they need lives in
 * `arena` and in `matcher`, which is to be released also on failure. Returns 0, BR_EINVAL with a
 * sentence, or BR_ENOMEM. */
int br_matcher_init(struct br_matcher *matcher, const struct br_match_config *include,
                    const struct br_match_config *exclude, struct br_arena *arena,
                    struct br_err *err);
void br_matcher_release(struct br_matcher *matcher);

/* Returns false where there is neither include nor exclude, so that everything passes. */
static inline bool br_matcher_active(const struct br_matcher *matcher)
{
    return matcher->matches[0] || matcher->matches[1];
}

/* Begins with an item. In profiles, attributes by reference are written inline. Returns 0,
 * BR_EINVAL (no walk has accepted it) or BR_ENOMEM. */
int br_matcher_begin(struct br_matcher *matcher, struct br_item *item);
void br_matcher_end(struct br_matcher *matcher);

/* Tells whether what br_item_rewrite visits passes, in the order of its visits: a span, a sample,
 * or a profile. Returns 1, 0, BR_EFULL (it has too many attributes) or BR_ENOMEM. */
int br_matcher_passes(struct br_matcher *matcher, const struct br_visit *visit);
