/* SPDX-License-Identifier: Apache-2.0 */
/* Redacts inside the messages of OTLP: it walks them by their shapes and splices what changes. */
#pragma once

#include "base/str.h"
#include "core/masked.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/splice.h"
#include "processors/redaction/rules.h"

/* What a field holds. */
enum redact_what {
    REDACT_NOTHING,
    REDACT_TEXT,
    REDACT_ATTRIBUTE, /* KeyValue */
    REDACT_MESSAGE,
    REDACT_INDICES,    /* into the attribute table */
    REDACT_VALUE_TYPE, /* refers to strings that stay */
    REDACT_CUT,
};

/* A message: its fields by their number. */
struct redact_shape {
    const char *place; /* what it is, for who asks what was masked; NULL: has nothing of its own */
    struct {
        enum redact_what what;
        enum redact_kind kind;            /* TEXT */
        const struct redact_shape *child; /* MESSAGE */
    } fields[16];
};

extern const struct redact_shape redact_resource_shape;
extern const struct redact_shape redact_traces_part, redact_profiles_part;
extern const struct redact_shape redact_mapping_shape, redact_location_shape;

struct redact_walk {
    struct redact_rules *rules;
    struct br_splice splice;
    struct br_arena *arena; /* of the item at hand */

    /* Profiles; otherwise NULL. */
    const struct br_dictionary_view *view;
    uint32_t *values_at[2]; /* by string: what becomes of it as a value, looked at and as a whole:
                               REDACT_UNKNOWN, REDACT_STAYS or the string in its place */
    uint8_t *keys_at;       /* by string: what the rules say of it as a key; 0: not asked yet */
    struct br_str more;     /* fields of the dictionary to add */
    uint32_t n_added;       /* strings in it */
    bool *kept;             /* by string: something that stays refers to it */
    bool *removed;          /* by attribute: it is not allowed; NULL: all are */
    bool url_name;          /* the span at hand has a path in its name */
    bool db_name;           /* its name may be a statement */
    struct redact_asked asked; /* by the message at hand */
    bool hides;                /* something that does not stay referred to a string */

    /* Whom it is told, and of what: the place and the key at hand. */
    struct br_masked *masked;
    struct br_node *node;
    const char *place;
    struct br_masked_text key;

    /* Counters. */
    double *values, *names, *attributes_removed;
};

/* Neither is the index of a string that was added: there are two before that. */
enum { REDACT_UNKNOWN, REDACT_STAYS };

/* Walks the body of a message of that shape, inside what the splice began with. Returns 0,
 * BR_ENOMEM, BR_EFULL, or BR_EINVAL for what no walk has accepted. */
int redact_message(struct redact_walk *walk, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end);

/* Redacts an AnyValue, the field `field`, of a key on which the verdict is `key`. */
int redact_value(struct redact_walk *walk, const struct br_field *field, const uint8_t *next,
                 enum redact_key key);

/* Adds a string to the dictionary of the item; its index. Failure is w->more.failed. */
uint32_t redact_add_string(struct redact_walk *walk, const void *text, size_t len);

/* Returns what the rules say of string `index` as a key: asks once. As redact_key. */
int redact_key_at(struct redact_walk *walk, uint64_t index);

/* Tells that the text at hand is not what it was, under a key on which the verdict is `key`: it is
 * what the rules made last, or gone. */
void redact_note(struct redact_walk *walk, enum redact_key key);

/* Notes the same of a text without a key. */
void redact_note_name(struct redact_walk *walk, const char *place);

/* Notes that something that stays refers to the string. */
static inline void redact_keep(struct redact_walk *walk, uint64_t index)
{
    if (walk->view && index < walk->view->count[BR_TABLE_STRING])
        walk->kept[index] = true;
}
