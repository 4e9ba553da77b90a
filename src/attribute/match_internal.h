/* SPDX-License-Identifier: Apache-2.0 */
/* What match.c and match_config.c share: criteria, compiled. */
#pragma once

#include "attribute/match.h"

/* Any of some texts. */
struct match_texts {
    const char *const *texts;
    size_t *lens;          /* STRICT */
    pcre2_code **patterns; /* REGEXP, else NULL */
    size_t count;          /* 0: not asked for */
};

struct match_attribute {
    const char *key;
    size_t key_len;
    bool has_value;
    struct br_value value;      /* STRICT */
    struct match_texts pattern; /* REGEXP */
};

/* All of them. */
struct match_attributes {
    struct match_attribute *attributes;
    size_t count;
};

struct match_library {
    struct match_texts name, version;
};

struct br_match {
    struct match_texts services, span_names, span_kinds, sample_types, functions;
    struct match_attributes attributes, resources;
    struct match_library *libraries;
    size_t n_libraries;
};

/* By number, as the Collector calls them. */
#define BR_SPAN_KINDS 6
extern const char *const br_span_kinds[BR_SPAN_KINDS];
