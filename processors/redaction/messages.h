/* SPDX-License-Identifier: Apache-2.0 */
/* Redacts OTLP messages: walks them by their shapes and splices the changes. */
#pragma once

#include "base/str.h"
#include "core/masked.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/splice.h"
#include "processors/redaction/rules.h"

/* The type of a field. */
enum redact_what {
    REDACT_NOTHING,
    REDACT_TEXT,
    REDACT_ATTRIBUTE, /* KeyValue */
    REDACT_MESSAGE,
    REDACT_INDICES,    /* indices into the attribute table */
    REDACT_VALUE_TYPE, /* refers to strings that are never redacted */
    REDACT_CUT,
};

/* The fields of a message, by number. */
struct redact_shape {
    /* name of the message in reports of masked texts; NULL: it contains no texts itself */
    const char *place;
    struct {
        enum redact_what what;
        enum redact_kind kind;            /* for TEXT */
        const struct redact_shape *child; /* for MESSAGE */
    } fields[16];
};

extern const struct redact_shape redact_resource_shape;
extern const struct redact_shape redact_traces_part, redact_profiles_part;
extern const struct redact_shape redact_mapping_shape, redact_location_shape;

struct redact_walk {
    struct redact_rules *rules;
    struct br_splice splice;
    struct br_arena *arena; /* memory for the current item */

    /* Only for profiles; otherwise NULL. */
    const struct br_dictionary_view *view;
    /* for each string, its result as a value (inspected, or masked as a whole): REDACT_UNKNOWN,
     * REDACT_STAYS, or the index of its replacement */
    uint32_t *values_at[2];
    uint8_t *keys_at;            /* for each string, its verdict as a key; 0: not known yet */
    struct br_str more;          /* fields to append to the dictionary */
    uint32_t n_added;            /* strings in `more` */
    bool *kept;                  /* for each string: an entry that is not redacted refers to it */
    bool *removed;               /* for each attribute: it is not allowed. NULL: all are allowed */
    bool url_name;               /* the name of the current span contains a path */
    bool db_name;                /* the name of the current span may be a statement */
    struct redact_target target; /* the database system of the current message */
    bool hides;                  /* a redacted or removed entry referred to a string */

    /* Receives reports of masked texts, with the current place and key. */
    struct br_masked *masked;
    struct br_node *node;
    const char *place;
    struct br_masked_text key;

    /* counters */
    double *values, *names, *attributes_removed;
};

/* Neither is the index of an added string, because at least two strings precede those. */
enum { REDACT_UNKNOWN, REDACT_STAYS };

/* Redacts the body of a message of this shape, which must be in the splice's input. Returns 0,
 * BR_ENOMEM, BR_EFULL, or BR_EINVAL for data that no walk has accepted. */
int redact_message(struct redact_walk *walk, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end);

/* Redacts an AnyValue in field `field` under a key with the verdict `key`. Returns the same
 * codes as redact_message. */
int redact_value(struct redact_walk *walk, const struct br_field *field, const uint8_t *next,
                 enum redact_key key);

/* Adds a string to the item's dictionary and returns its index. After an error,
 * walk->more.failed is set. */
uint32_t redact_add_string(struct redact_walk *walk, const void *text, size_t len);

/* Returns the verdict (enum redact_key) on string `index` as a key, or BR_ENOMEM. It is computed
 * once. */
int redact_key_at(struct redact_walk *walk, uint64_t index);

/* Reports that the current text was replaced by the last result of the rules, or removed. `key`
 * is the verdict on its key. */
void redact_note(struct redact_walk *walk, enum redact_key key);

/* Reports that a text without a key was replaced. */
void redact_note_name(struct redact_walk *walk, const char *place);

/* Notes that an entry that is not redacted refers to the string. */
static inline void redact_keep(struct redact_walk *walk, uint64_t index)
{
    if (walk->view && index < walk->view->count[BR_TABLE_STRING])
        walk->kept[index] = true;
}
