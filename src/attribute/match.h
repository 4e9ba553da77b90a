/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matcher selects spans or samples by the Collector's `include` and `exclude`, strictly or by
 * regular expressions. For profiles, there are options that correspond to those for spans.
 *
 * Every criterion that is set must match. A list of texts matches if one of the texts matches. A
 * list of attributes, resources or libraries matches if all its elements match. A criterion that
 * does not apply to the signal (a span has no functions) does not match. A record passes if it is
 * included and not excluded.
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
    /* value that the attribute must have; NULL: the attribute may have any value */
    const struct br_yaml *value;
};

struct br_match_library {
    /* name and version that the library must have; version NULL: any version */
    const char *name, *version;
};

/* The config of `include` or `exclude`, as the option tables read it. */
struct br_match_config {
    int match_type;
    struct br_strings services, span_names, span_kinds, sample_types, functions;
    struct br_structs attributes, resources; /* lists of struct br_match_attribute */
    struct br_structs libraries;             /* list of struct br_match_library */
};

/* options that apply to traces and to profiles */
extern const struct br_option br_match_options[];
extern const struct br_option br_match_span_options[];    /* options for spans only */
extern const struct br_option br_match_profile_options[]; /* options for profiles only */

/* Checks the options `include` and `exclude` of the map `node`, whose path is `path`. Either of
 * them may be NULL. Returns 0, BR_EINVAL with errors added, or BR_ENOMEM. */
int br_match_check(const struct br_match_config *include, const struct br_match_config *exclude,
                   const struct br_yaml *node, const char *path, struct br_arena *arena,
                   struct br_errs *errs);

struct br_match; /* a compiled include or exclude */

#define BR_MATCHES 2 /* length of the arrays for include (index 0) and exclude (index 1) */

/* A compiled include and exclude, and the results for the current item. The struct must be
 * zeroed at first, and may be used by only one thread. */
struct br_matcher {
    struct br_match *matches[BR_MATCHES]; /* include and exclude; NULL: absent */
    struct br_regex regex;
    struct br_attributes list; /* attributes of the current span, sample, scope or resource */
    /* attributes of the current profile, which apply to all its samples */
    struct br_attributes common;
    /* number of times that matching a pattern took too long and counted as no match; the caller
     * resets this number */
    unsigned n_gave_up;
    /* The current item, and data that is valid until br_matcher_end. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;
    /* index in the item of the ResourceSpans or ResourceProfiles whose results are in `resource`;
     * UINT32_MAX: no results yet */
    uint32_t part;
    /* results for the current resource and the current group (otlp/groups.h) */
    bool resource[BR_MATCHES], group[BR_MATCHES];
    const uint8_t *scope; /* scope whose results are in `library` */
    bool library[BR_MATCHES];
    /* Results for entries of the dictionary, by the index of the entry, so that each entry is
     * matched only once. `values` contains the results of all attribute values for the first
     * attribute of the config, then those for the second attribute, and so on. `common_values`
     * contains one result for each attribute of the config, for the current profile. */
    uint8_t *functions[BR_MATCHES], *locations[BR_MATCHES], *stacks[BR_MATCHES];
    /* results for function names, by the index of the name in the string table */
    uint8_t *names[BR_MATCHES];
    uint8_t *types[BR_MATCHES], *values[BR_MATCHES], *common_values[BR_MATCHES];
    bool common_read;
    struct br_value_memo memo;
    int rc;
};

/* Compiles `include` and `exclude` into `arena` and `matcher`; either may be NULL.
 * br_match_check must have accepted both. The caller must release `matcher` even after a
 * failure. Returns 0, BR_EINVAL with a message in `err`, or BR_ENOMEM. */
int br_matcher_init(struct br_matcher *matcher, const struct br_match_config *include,
                    const struct br_match_config *exclude, struct br_arena *arena,
                    struct br_err *err);
void br_matcher_release(struct br_matcher *matcher);

/* Returns false if the matcher has neither include nor exclude, so that every record passes. */
static inline bool br_matcher_active(const struct br_matcher *matcher)
{
    return matcher->matches[0] || matcher->matches[1];
}

/* Begins the evaluation for an item. In profiles, references to strings in attributes are first
 * replaced by the strings (br_item_inline_references). Returns 0, BR_EINVAL (the item was not
 * validated by br_walk), BR_EFULL (the item needs too much memory) or BR_ENOMEM. */
int br_matcher_begin(struct br_matcher *matcher, struct br_item *item);
void br_matcher_end(struct br_matcher *matcher);

/* Evaluates include and exclude for the span, sample or profile that br_item_rewrite is visiting.
 * Must be called in the order of the visits. Returns 1 if the record passes, otherwise 0. On
 * failure returns BR_EFULL (too many attributes) or BR_ENOMEM. */
int br_matcher_passes(struct br_matcher *matcher, const struct br_visit *visit);

/* Rewrites the item as br_item_rewrite does, but `edit` visits only messages that pass include and
 * exclude. Must be called between br_matcher_begin and br_matcher_end. `scratch` is released after
 * each visit. Returns the results of br_item_rewrite. Returns BR_EFULL instead of BR_ENOMEM if
 * `scratch` or the memory of the matcher has reached its maximum. */
int br_matcher_rewrite(struct br_matcher *matcher, unsigned levels, struct br_arena *scratch,
                       br_visit_fn *edit, void *arg);

/* --- For match*.c only ------------------------------------------------------------------------ */

/* The types below represent compiled criteria. */

/* The texts of a criterion. The criterion matches if one of the texts matches. */
struct br_matcher_texts {
    const char *const *texts;
    size_t *lens;          /* STRICT: length of each text in bytes */
    pcre2_code **patterns; /* REGEXP: the compiled texts; otherwise NULL */
    size_t count;          /* number of texts; 0: the criterion is not set */
};

struct br_matcher_attribute {
    const char *key;
    size_t key_len;
    bool has_value;
    struct br_value value;           /* STRICT: the value that the attribute must have */
    struct br_matcher_texts pattern; /* REGEXP: the pattern that the attribute's value must match */
};

/* The attributes of a criterion. The criterion matches if all of the attributes match. */
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

/* Number of span kinds. br_span_kinds contains their names in the Collector, by number. */
#define BR_SPAN_KINDS 6
extern const char *const br_span_kinds[BR_SPAN_KINDS];
