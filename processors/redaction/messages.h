/* SPDX-License-Identifier: Apache-2.0 */
/* Redacts OTLP messages: reads them as their shapes (struct redact_shape) describe, and copies
 * them with the changes. */
#pragma once

#include "base/str.h"
#include "core/masked.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/splice.h"
#include "processors/redaction/rules.h"

/* The content of a field, which determines how the field is redacted. */
enum redact_what {
    REDACT_NOTHING,
    REDACT_TEXT,
    REDACT_ATTRIBUTE, /* an attribute (a KeyValue) */
    REDACT_MESSAGE,
    REDACT_INDICES,    /* indices of attributes in the attribute table */
    REDACT_VALUE_TYPE, /* a message with references to strings that are never redacted */
    REDACT_CUT,
};

/* Describes the fields of a message type, by field number. */
struct redact_shape {
    /* name of the message in reports of masked texts; NULL: the message contains no texts */
    const char *place;
    struct {
        enum redact_what what;
        enum redact_kind kind;            /* kind of the text in a field with REDACT_TEXT */
        const struct redact_shape *child; /* shape of the message in a field with REDACT_MESSAGE */
    } fields[16];
};

extern const struct redact_shape redact_resource_shape;
extern const struct redact_shape redact_traces_part, redact_profiles_part;
extern const struct redact_shape redact_mapping_shape, redact_location_shape;

struct redact_walk {
    struct redact_rules *rules;
    struct br_splice splice;
    struct br_arena *arena; /* memory for the current item */

    /* The fields from `view` to `removed` are used for profiles only; otherwise `view` is NULL. */
    const struct br_dictionary_view *view;
    /* for each string index: result of redacting the string as a value, which is REDACT_UNKNOWN,
     * REDACT_STAYS or the index of its replacement. values_at[0] is for values that are
     * inspected, values_at[1] for values that are masked as a whole. */
    uint32_t *values_at[2];
    /* for each string index: verdict on the string as a key (enum redact_key); 0: not computed
     * yet */
    uint8_t *keys_at;
    struct br_str more; /* encoded fields to append to the dictionary */
    uint32_t n_added;   /* number of strings in `more` */
    /* for each string index: true if an entry that is not redacted refers to the string */
    bool *kept;
    /* for each attribute index: true if the attribute is not allowed and is removed; NULL: all
     * attributes are allowed */
    bool *removed;
    bool url_name;               /* the name of the current span contains a path */
    bool db_name;                /* the name of the current span may be a database statement */
    struct redact_target target; /* database system that the attributes of the current span name */
    bool hides;                  /* at least one redacted or removed entry referred to a string */

    /* Collects reports of masked texts. `place` and `key` describe the current text. */
    struct br_masked *masked;
    struct br_node *node;
    const char *place;
    struct br_masked_text key;

    /* counters: masked values, masked names, removed attributes */
    double *values, *names, *attributes_removed;
};

/* Results for a string that has no replacement. A replacement never has index 0 or 1, because
 * the dictionary contains at least two strings before it. */
enum { REDACT_UNKNOWN, REDACT_STAYS };

/* Redacts the body of a message with the given shape. The body must be part of the input of
 * walk->splice. Returns 0, BR_ENOMEM, BR_EFULL, or BR_EINVAL for malformed data. */
int redact_message(struct redact_walk *walk, const struct redact_shape *shape, const uint8_t *p,
                   const uint8_t *end);

/* Redacts the AnyValue in `field`, whose attribute key has the verdict `key`. Returns the same
 * codes as redact_message. */
int redact_value(struct redact_walk *walk, const struct br_field *field, const uint8_t *next,
                 enum redact_key key);

/* Adds a string to the item's dictionary and returns its index. After an error,
 * walk->more.failed is set. */
uint32_t redact_add_string(struct redact_walk *walk, const void *text, size_t len);

/* Returns the verdict (enum redact_key) on string `index` as a key, or BR_ENOMEM. The verdict on
 * a string is computed once. */
int redact_key_at(struct redact_walk *walk, uint64_t index);

/* Reports that the current text was removed, or replaced by the last result of the rules. `key`
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
 * entries may have to be redacted. If all entries that refer to a string have to be redacted, the
 * string is replaced in place. If only some of the entries have to be redacted, these refer to a
 * new string at the end of the string table.
 */

struct redact_dictionary {
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements of existing entries, by table and index */
    /* for each string index: replacement of the string as a function name, and as a path */
    struct br_entry *function_texts, *path_texts;
    bool *function_checked, *path_checked;
};

/* Indexes the item, redacts the attribute table and prepares the walk over the profiles. Memory
 * is allocated in walk->arena. Returns 0, BR_ENOMEM, BR_EFULL, or BR_EINVAL for malformed data. */
int redact_dictionary_begin(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            const struct br_item *item);

/* Finishes the dictionary after the walk over the profiles. Redacts functions and mappings, and
 * then replaces strings to which nothing refers any longer. Returns the same codes as
 * redact_dictionary_begin. */
int redact_dictionary_end(struct redact_dictionary *dictionary, struct redact_walk *walk,
                          struct br_item *item, double *functions, double *paths);
