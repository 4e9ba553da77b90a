/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matcher selects spans or samples by the Collector's `include` and `exclude`, strict or by
 * regular expressions, with equivalents for profiles.
 *
 * Every criterion that is set must match: one of its texts, or all listed attributes, resources and
 * libraries. A criterion that does not apply to the signal (a span has no functions) does not
 * match. A record passes if it is included and not excluded.
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
    /* value that the attribute must have; NULL: only the key must be present */
    const struct br_yaml *value;
};

struct br_match_library {
    const char *name, *version; /* names of the library; version NULL: any version */
};

/* The config of `include` or `exclude`, as the option tables read it. */
struct br_match_config {
    int match_type;
    struct br_strings services, span_names, span_kinds, sample_types, functions;
    struct br_structs attributes, resources; /* elements are struct br_match_attribute */
    struct br_structs libraries;             /* elements are struct br_match_library */
};

extern const struct br_option br_match_options[];         /* options for both signals */
extern const struct br_option br_match_span_options[];    /* options for spans only */
extern const struct br_option br_match_profile_options[]; /* options for profiles only */

/* Checks `include` or `exclude` (NULL: absent), whose map is `node`. Returns 0, BR_EINVAL with
 * errors added, or BR_ENOMEM. */
int br_match_check(const struct br_match_config *match_config, const struct br_yaml *node,
                   const char *path, struct br_arena *arena, struct br_errs *errs);

struct br_match; /* a compiled include or exclude */

#define BR_MATCHES 2 /* number of compiled selections in a matcher: include and exclude */

/* A compiled include and exclude, and the results for the current item. Must be zeroed at first,
 * and used by one thread. */
struct br_matcher {
    struct br_match *matches[BR_MATCHES]; /* include and exclude; NULL: absent */
    struct br_regex regex;
    struct br_attributes list;   /* attributes of the current span, sample, scope or resource */
    struct br_attributes common; /* attributes of the current profile, for all its samples */
    /* number of times that a pattern took too long and counted as not matching; the caller
     * resets it */
    unsigned n_gave_up;
    /* The current item. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;
    /* index of the part that the results in `resource` are for; UINT32_MAX: none yet */
    uint32_t part;
    /* results for the current resource and the current group */
    bool resource[BR_MATCHES], group[BR_MATCHES];
    const uint8_t *scope; /* scope that the results in `library` are for */
    bool library[BR_MATCHES];
    /* Results by index, so that a shared entry of the dictionary is matched once. `values` has
     * one block of results per criterion. `common_values` has one result per criterion for the
     * current profile. */
    uint8_t *functions[BR_MATCHES], *locations[BR_MATCHES], *stacks[BR_MATCHES];
    uint8_t *names[BR_MATCHES]; /* results for function names, by the index of the string */
    uint8_t *types[BR_MATCHES], *values[BR_MATCHES], *common_values[BR_MATCHES];
    bool common_read;
    struct br_value_memo memo;
    int rc;
};

/* Compiles `include` and `exclude` (NULL: absent) into `arena` and `matcher`. br_match_check
 * must have accepted both. Release `matcher` also on failure. Returns 0, BR_EINVAL with a
 * sentence, or BR_ENOMEM. */
int br_matcher_init(struct br_matcher *matcher, const struct br_match_config *include,
                    const struct br_match_config *exclude, struct br_arena *arena,
                    struct br_err *err);
void br_matcher_release(struct br_matcher *matcher);

/* Returns false if the matcher has neither include nor exclude, so that every record passes. */
static inline bool br_matcher_active(const struct br_matcher *matcher)
{
    return matcher->matches[0] || matcher->matches[1];
}

/* Begins an item. In profiles, attributes by reference are first written inline. Returns 0,
 * BR_EINVAL (no walk has accepted the item) or BR_ENOMEM. */
int br_matcher_begin(struct br_matcher *matcher, struct br_item *item);
void br_matcher_end(struct br_matcher *matcher);

/* Evaluates include and exclude for the span, sample or profile that br_item_rewrite visits, in
 * the order of its visits. Returns 1 if the record passes, else 0. On failure returns BR_EFULL
 * (too many attributes) or BR_ENOMEM. */
int br_matcher_passes(struct br_matcher *matcher, const struct br_visit *visit);

/* --- For match*.c only ------------------------------------------------------------------------ */

/* The types of compiled criteria. */

/* Texts of a criterion, of which one has to match. */
struct br_matcher_texts {
    const char *const *texts;
    size_t *lens;          /* STRICT: lengths of the texts in bytes */
    pcre2_code **patterns; /* REGEXP: compiled patterns; otherwise NULL */
    size_t count;          /* number of texts; 0: the criterion is not set */
};

struct br_matcher_attribute {
    const char *key;
    size_t key_len;
    bool has_value;
    struct br_value value;           /* STRICT: the value that must be equal */
    struct br_matcher_texts pattern; /* REGEXP: the pattern that the value must match */
};

/* Attributes that all have to match. */
struct br_matcher_attributes {
    struct br_matcher_attribute *attributes;
    size_t count;
};

struct br_matcher_library {
    struct br_matcher_texts name, version;
};

struct br_match {
    struct br_matcher_texts services, span_names, span_kinds, sample_types, functions;
    struct br_matcher_attributes attributes, resources;
    struct br_matcher_library *libraries;
    size_t n_libraries;
};

/* Span kinds by number, with the Collector's names. */
#define BR_SPAN_KINDS 6
extern const char *const br_span_kinds[BR_SPAN_KINDS];
