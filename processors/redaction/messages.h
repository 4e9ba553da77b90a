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
    REDACT_ATTRIBUTE, /* a KeyValue */
    REDACT_MESSAGE,
    REDACT_INDICES,    /* indices into the attribute table */
    REDACT_VALUE_TYPE, /* a message that refers to strings that are never redacted */
    REDACT_CUT,
};

/* Describes the fields of a message type, by field number. */
struct redact_shape {
    /* name of the message in reports of masked texts; NULL: it contains no texts */
    const char *place;
    struct {
        enum redact_what what;
        enum redact_kind kind;            /* kind of the text; only for REDACT_TEXT */
        const struct redact_shape *child; /* shape of the nested message; only for REDACT_MESSAGE */
    } fields[16];
};

extern const struct redact_shape redact_resource_shape;
extern const struct redact_shape redact_traces_part, redact_profiles_part;
extern const struct redact_shape redact_mapping_shape, redact_location_shape;

struct redact_walk {
    struct redact_rules *rules;
    struct br_splice splice;
    struct br_arena *arena; /* memory for the current item */

    /* The fields up to `removed` are only used for profiles; `view` is NULL otherwise. */
    const struct br_dictionary_view *view;
    /* for each string, the result of redacting it as a value (in the first list inspected, in
     * the second masked as a whole): REDACT_UNKNOWN, REDACT_STAYS, or the index of its
     * replacement */
    uint32_t *values_at[2];
    /* for each string, its verdict as a key (enum redact_key); 0: not computed yet */
    uint8_t *keys_at;
    struct br_str more; /* encoded fields to append to the dictionary */
    uint32_t n_added;   /* number of strings in `more` */
    bool *kept;         /* for each string: an entry that is not redacted refers to it */
    /* for each attribute: it is not allowed and is removed. NULL: all attributes are allowed */
    bool *removed;
    bool url_name;               /* the name of the current span contains a path */
    bool db_name;                /* the name of the current span may be a database statement */
    struct redact_target target; /* database system that the current span names */
    bool hides;                  /* at least one redacted or removed entry referred to a string */

    /* Receives reports of masked texts. `place` and `key` describe the current text. */
    struct br_masked *masked;
    struct br_node *node;
    const char *place;
    struct br_masked_text key;

    /* counters of masked values, masked names and removed attributes */
    double *values, *names, *attributes_removed;
};

/* Results for a string that has no replacement. Neither value is the index of an added string,
 * because at least two strings precede the added ones. */
enum { REDACT_UNKNOWN, REDACT_STAYS };

/* Redacts the body of a message of this shape, which must be in the splice's input. Returns 0,
 * BR_ENOMEM, BR_EFULL, or BR_EINVAL for malformed data. */
int redact_message(struct redact_walk *walk, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end);

/* Redacts an AnyValue in field `field` under a key with the verdict `key`. Returns the same
 * codes as redact_message. */
int redact_value(struct redact_walk *walk, const struct br_field *field, const uint8_t *next,
                 enum redact_key key);

/* Adds a string to the item's dictionary and returns its index. After an error,
 * walk->more.failed is set. */
uint32_t redact_add_string(struct redact_walk *walk, const void *text, size_t len);

/* Returns the verdict (enum redact_key) on string `index` as a key, or BR_ENOMEM. The verdict on
 * a string is computed once. */
int redact_key_at(struct redact_walk *walk, uint64_t index);

/* Reports that the current text was replaced by the last result of the rules, or removed. `key`
 * is the verdict on the key of the text. */
void redact_note(struct redact_walk *walk, enum redact_key key);

/* Reports that a text without a key was replaced. */
void redact_note_name(struct redact_walk *walk, const char *place);

/* Notes that an entry that is not redacted refers to string `index`. */
static inline void redact_keep(struct redact_walk *walk, uint64_t index)
{
    if (walk->view && index < walk->view->count[BR_TABLE_STRING])
        walk->kept[index] = true;
}

/* --- Dictionary ------------------------------------------------------------------------------- */

/*
 * Redacts a profiles dictionary. Several entries may refer to one string, and only some of the
 * entries may have to be redacted. If all of them have to be redacted, the string is replaced in
 * place. Otherwise the redacted entries refer to a new string at the end of the table.
 */

struct redact_dictionary {
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements of existing entries, by table and index */
    /* for each string, its replacement as a function name or a path */
    struct br_entry *function_texts, *path_texts;
    bool *function_checked, *path_checked;
};

/* Indexes the item, redacts the attribute table and prepares the walk over the profiles. Memory
 * comes from walk->arena. Returns 0, BR_ENOMEM, BR_EFULL, or BR_EINVAL for malformed data. */
int redact_dictionary_begin(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            const struct br_item *item);

/* Finishes the dictionary after the walk over the profiles: redacts functions and mappings, and
 * then strings to which nothing refers any longer. Returns the same codes as
 * redact_dictionary_begin. */
int redact_dictionary_end(struct redact_dictionary *dictionary, struct redact_walk *walk,
                          struct br_item *item, double *functions, double *paths);
