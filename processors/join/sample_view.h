/* SPDX-License-Identifier: Apache-2.0 */
/* Reads profiles: texts of the dictionary, labels, value types, samples and functions. */
#pragma once

#include "config/option.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"
#include "processors/join/infer/identity.h"
#include "processors/join/table/table.h"

/* --- Texts ------------------------------------------------------------------------------------ */

/*
 * Stores the ids, places and services that were parsed from the texts of the dictionary. Any number
 * of attributes may refer to the same text, which may be long. Therefore each long text is parsed
 * once per item, and its result is stored by the index of the text. Short texts are parsed each
 * time, which costs no more than a lookup.
 */

struct join_texts {
    const struct join_table *table; /* the table whose secret is the key of all hashes */
    /* index of the entries of the item's dictionary; NULL: the item has no dictionary */
    const struct br_dictionary_view *view;
    struct br_arena *arena;
    struct br_map *known; /* maps the index of a text to its result */
    /* memory was short, so some results are missing and no result may be used */
    bool no_memory;
};

/* Initializes `texts` for an item with the dictionary index `view`. Memory is allocated in
 * `arena`, which must outlive `texts`. */
void join_texts_init(struct join_texts *texts, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena);
/* frees the stored results; accepts a zeroed struct */
void join_texts_release(struct join_texts *texts);

/* Returns text `index`, or an empty text if it does not exist or the item has no dictionary. */
struct br_entry join_texts_at(const struct join_texts *texts, uint64_t index);

/* Returns join_table_hash of text `index`, or 0 if the text is empty. */
uint32_t join_texts_hash(struct join_texts *texts, uint64_t index);

/* Returns join_service_hash of text `index`, or 0 if the text is empty. */
uint64_t join_texts_service(struct join_texts *texts, uint64_t index);

/* --- Labels ----------------------------------------------------------------------------------- */

/* The meaning of the attributes of a dictionary for the join: ids, threads, processes, and the
 * attributes that the join itself adds. */

struct join_label_names {
    struct br_strings span_id, trace_id; /* names of the labels with ids, in order of precedence */
    /* keys of the attributes that are added to joined samples; a NULL key is unused */
    const char *const *own;
    size_t n_own;
};

enum join_label_kind {
    JOIN_LABEL_NONE,
    JOIN_LABEL_SPAN_ID,
    JOIN_LABEL_TRACE_ID,
    JOIN_LABEL_OWN,
    /* the attribute BR_SAMPLE_TIME, which means that timestamps are estimated */
    JOIN_LABEL_ESTIMATED,
};

struct join_label {
    uint8_t kind;   /* kind of the label, an enum join_label_kind */
    uint8_t number; /* index of the label's name in join_label_names */
    bool several;   /* the value is a list of different ids, and `id` is the first of them */
    /* meaning of the label as an attribute that identifies where a sample ran (enum join_where);
     * independent of `kind` */
    uint8_t where;
    uint8_t id[16]; /* the id; for a span, only the first 8 bytes are used */
    uint32_t hash;  /* hash of the value, if `where` is set */
};

/* Reads the attribute table and returns one label for each entry, in `arena`, or NULL if there
 * is not enough memory. Sets `*ret_any` to true if any label has a kind or a `where`.
 *
 * An id is one of the following; zero is not an id:
 * - hexadecimal digits of any case, possibly surrounded by white space. Short ids are padded with
 * zeros on the left, and leading zeros of long ids are ignored.
 * - a byte string that has the length of the id
 * - for spans, an integer whose 64 bits are the id */
struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any);

/* --- Values ----------------------------------------------------------------------------------- */

/* Reads the type, the unit and the period of the values of a Profile. `p` and `end` delimit the
 * encoded Profile message. */
void join_value_type_read(struct join_table *table, const struct br_dictionary_view *view,
                          const uint8_t *p, const uint8_t *end, struct join_value_type *ret);

/* --- Samples ---------------------------------------------------------------------------------- */

/* Stores the results of reading the links of an item. Links that contain more than their ids are
 * parsed once. The caller zeroes the struct and sets `view` and `arena`. */
struct join_links {
    const struct br_dictionary_view *view;
    struct br_arena *arena;
    struct br_map *known; /* maps the index of a link to its result */
    /* memory was short, so some results are missing and no result may be used */
    bool no_memory;
};
/* frees the stored results; accepts a zeroed struct */
void join_links_release(struct join_links *l);

struct join_sample_view {
    const uint8_t *body, *end;
    /* ids that the sample names; NULL: the sample does not contain the id */
    const uint8_t *trace_id, *span_id;
    /* for each id: index, in join_label_names, of the label name from which the id was read */
    uint8_t trace_number, span_number;
    bool linked; /* true if the span id is from a link, not from a label */
    /* the sample's labels name several spans or traces; span_id and trace_id are then NULL */
    bool ambiguous;
    bool estimated;    /* the sample's timestamps are estimated, so they do not identify a span */
    uint32_t has_keys; /* bit set of the keys that the join would add but the sample already has */
    uint32_t stack;
    uint64_t value; /* sum of the sample's values */
    uint64_t n_values, n_times;
    struct join_identity where;
};

/* Reads a Sample message. `labels` is the result of join_labels_read; NULL: labels are ignored. */
void join_sample_view_of(struct join_links *links, const struct join_label *labels,
                         const uint8_t *p, const uint8_t *end, struct join_sample_view *ret);

/* Returns true if the sample has timestamps that identify its span. */
static inline bool join_sample_view_is_timed(const struct join_sample_view *view)
{
    return view->n_times > 0 && !view->estimated;
}

/* Splits a sample into pieces. A piece contains consecutive timestamps that have the same number
 * in `numbers`. Writes the pieces into `arena`, as fields of a Profile, and returns how many
 * there are.
 *
 * Returns 0 if there would be one piece, or if there is not enough memory. Also returns 0 if the
 * sample has values, but not one for each timestamp. Also returns 0, and increments `*n_cut`, if
 * the pieces would repeat too much of the sample. */
uint32_t join_sample_view_split(const struct join_sample_view *view, const uint64_t *times,
                                const uint64_t *numbers, struct br_arena *arena,
                                struct br_addition *ret, uint64_t *n_cut);

/* Returns the capacity, in elements, of a new array that must hold `need` elements. Small arrays
 * grow often, so they get more spare room. */
static inline uint64_t join_numbers_cap(uint64_t need)
{
    if (need < 32)
        return 64;
    return need < 4096 ? 2 * need : need;
}

/* Copies the view->n_values values of the sample to `ret`. */
void join_sample_view_values(const struct join_sample_view *view, uint64_t *ret);

/* Copies the view->n_times timestamps of the sample to `ret`. */
void join_sample_view_times(const struct join_sample_view *view, uint64_t *ret);

/* --- Functions -------------------------------------------------------------------------------- */

/* The leaf function of each stack: the innermost function of its first location. */

struct join_leaves {
    struct join_table *table;
    const struct br_dictionary_view *view;
    /* Numbers of leaf functions, by stack, location and function index. Each number is computed
     * once; 0: not computed yet. NULL: the array could not be allocated. */
    uint32_t *stacks, *locations, *functions;
};

/* Initializes the leaves for an item's dictionary. Memory is allocated in `arena`. */
void join_leaves_init(struct join_leaves *leaves, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena);

/* Returns the number of a stack's leaf function in the join's table (join_table_function), or 0
 * if the function has no name. */
uint32_t join_leaf_of(struct join_leaves *leaves, uint32_t stack);
