/* SPDX-License-Identifier: Apache-2.0 */
/* The types of compiled criteria, which match.c and match_config.c share. */
#pragma once

#include "attribute/match.h"

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
