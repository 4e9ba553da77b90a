/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles and evaluates expressions in the Collector's language (OTTL): conditions, which select
 * spans and samples, and statements, which change them (attribute/statement.h). The grammar, the
 * comparisons and the functions are those of pkg/ottl 0.165 (LANGUAGE.md, ottlfuncs/README.md).
 * docs/operating/ottl.md lists the paths and functions that Braid supports.
 *
 * Values are compared as in the Collector. An absent value is nil. Values of different types are
 * not equal, and neither less nor greater. Whole numbers and floats are compared as floats. true is
 * greater than false.
 *
 * An expression can fail when it is evaluated, for example if an argument of a function has the
 * wrong type. The caller decides what happens then (the option error_mode).
 */
#pragma once

#include "attribute/attributes.h"
#include "attribute/regex.h"
#include "base/err.h"
#include "otlp/dictionary/additions.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/rewrite.h"
#include "otlp/groups.h"

#define BR_CONDITION_NO_EVENTS "events of spans are not dropped here; only whole spans are"

/* The message that a path belongs to if it does not begin with the name of a context. */
enum br_condition_context {
    BR_CONDITION_RESOURCE,
    BR_CONDITION_SCOPE,
    BR_CONDITION_SPAN,
    BR_CONDITION_EVENT,
    BR_CONDITION_PROFILE,
    BR_CONDITION_SAMPLE,
    /* a path that does not begin with the name of a context is an error */
    BR_CONDITION_NAMED,
};
#define BR_CONTEXTS 6 /* number of contexts, without BR_CONDITION_NAMED */

struct br_condition;  /* a compiled condition */
struct br_expression; /* a compiled value */

#define BR_CONDITION_MAX 65536u /* maximum length of one condition or statement, in bytes */

/* A message that expressions read and statements change. */
struct br_message {
    /* the message in its current form, without the changes in `list` */
    const uint8_t *body;
    size_t len;
    uint32_t field; /* number of the field that contains the attributes */
    /* the attributes are stored as indices of the attribute table of the dictionary */
    bool dictionary;
    struct br_attributes list;
    bool read;              /* `list` contains the attributes of this message */
    bool changed;           /* `body` was replaced */
    struct br_arena *arena; /* memory for the changes */
};

/* A list of conditions for one signal, and the state of their evaluation. The list is true if at
 * least one condition is true. The struct must be zeroed at first, and may be used by only one
 * thread. */
struct br_conditions {
    struct br_condition **items;
    uint32_t count, cap;
    struct br_pattern *patterns; /* all compiled regular expressions of the list */
    struct br_regex regex;
    /* number of times that matching a pattern took too long and counted as no match; the caller
     * resets this number */
    unsigned n_gave_up;
    /* Set by callers that run statements: values may change during the evaluation, and a match that
     * takes too long ends the evaluation with BR_EFULL. */
    bool edits;
    /* The current item, and data that is valid until br_conditions_end. */
    struct br_item *item;
    struct br_dictionary_view view;
    struct br_groups groups;
    struct br_arena arena;   /* memory for values of groups, scopes and resources */
    struct br_arena scratch; /* memory for values of the current record */
    struct br_value_memo memo;
    /* the messages at the current position, by context; the span and the sample are the record */
    struct br_message messages[BR_CONTEXTS];
    struct br_message *cache;       /* the map of the path `cache` */
    uint64_t event_index;           /* position of the current event in its span, from 0 */
    struct br_additions *additions; /* new entries of the dictionary */
    uint32_t part;                  /* index in the item of the part that contains the resource */
    const uint8_t *scope_at;        /* address of the scope that the values were read from */
    /* Numbers of spans, groups (otlp/groups.h), scopes and resources begun so far in all items. A
     * cached value is still valid if the number at which it was read equals the current number. */
    uint64_t n_spans, n_groups, n_scopes, n_resources;
    uint64_t work_left; /* bytes that functions may still process for the item */
    /* the evaluation of the current condition or statement has failed; the reason is in `why` */
    bool failed;
    unsigned n_failed; /* number of conditions that failed; the caller resets this number */
    char why[160];
    /* if `rc` is BR_EFULL: the limit that was reached; NULL: a list is too long */
    const char *limit;
    int rc;
};

/* Compiles a condition in `arena` and adds it to the list. Returns 0 or BR_ENOMEM. Returns
 * BR_EINVAL if the condition is invalid, and BR_EUNSUPPORTED if the Collector supports it and Braid
 * does not. The message for these errors is a sentence that starts with "at character N: ". */
int br_conditions_add(struct br_conditions *conditions, const char *text, enum br_signal signal,
                      enum br_condition_context context, struct br_arena *arena,
                      struct br_err *err);

/* Completes the list of conditions and limits the time for matching patterns. Borrows `time`
 * until br_conditions_release. Returns 0 or BR_ENOMEM. */
int br_conditions_ready(struct br_conditions *conditions, struct br_regex_time *time);
void br_conditions_release(struct br_conditions *conditions);

/* Begins the evaluation for an item. In profiles, references to strings in attributes are first
 * replaced by the strings (br_item_inline_references). Returns 0, BR_EINVAL (the item was not
 * validated by br_walk) or BR_ENOMEM. */
int br_conditions_begin(struct br_conditions *conditions, struct br_item *item);
void br_conditions_end(struct br_conditions *conditions);

/* Evaluates the conditions for the span or sample that br_item_rewrite is visiting. Must be called
 * in the order of the visits. Returns 1 if at least one condition is true, otherwise 0. A condition
 * that fails is not true: it is counted in conditions->n_failed, and conditions->why is the reason.
 * Returns BR_EFULL (too many attributes, or conditions->limit) or BR_ENOMEM on an error that ends
 * the item. */
int br_conditions_hold(struct br_conditions *conditions, const struct br_visit *visit);
