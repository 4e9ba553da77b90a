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
 * Ids, places and services that the texts of the dictionary contain. Any number of attributes may
 * refer to the same text, which may be long. Therefore each long text is parsed once per item and
 * the result is stored by its index. Short texts are parsed each time, which costs no more than a
 * lookup.
 */

struct join_texts {
    const struct join_table *table;        /* table whose secret is used to hash the texts */
    const struct br_dictionary_view *view; /* NULL: the item has no dictionary */
    struct br_arena *arena;
    struct br_map *known; /* results by text index, at most one per text */
    bool no_memory;       /* results are missing and must not be used */
};

/* Initializes `texts` for an item with the dictionary index `view`. Memory comes from `arena`,
 * which must outlive `texts`. */
void join_texts_init(struct join_texts *texts, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena);
void join_texts_release(struct join_texts *texts); /* accepts a zeroed struct */

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
    struct br_strings span_id, trace_id; /* names in order of precedence */
    const char *const *own;              /* keys that joined samples get; a NULL key is unused */
    size_t n_own;
};

enum join_label_kind {
    JOIN_LABEL_NONE,
    JOIN_LABEL_SPAN_ID,
    JOIN_LABEL_TRACE_ID,
    JOIN_LABEL_OWN,
    JOIN_LABEL_ESTIMATED, /* the attribute BR_SAMPLE_TIME: timestamps are estimated */
};

struct join_label {
    uint8_t kind;   /* enum join_label_kind */
    uint8_t number; /* index of the label's name in join_label_names */
    bool several;   /* the value is a list of different ids; `id` is the first */
    uint8_t where;  /* enum join_where, independent of `kind` */
    uint8_t id[16]; /* the id; for a span, only the first 8 bytes are used */
    uint32_t hash;  /* hash of the value, if `where` is set */
};

/* Reads the attribute table and returns one label for each entry, in `arena`, or NULL if there
 * is not enough memory. `*ret_any` is true if any label has a kind or a `where`.
 *
 * An id is one of the following; zero is not an id:
 * - hexadecimal digits of any case, possibly surrounded by white space. Short ones are padded with
 * zeros on the left, and leading zeros of long ones are ignored.
 * - bytes of the right length
 * - for spans, an integer whose 64 bits are the id */
struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any);

/* --- Values ----------------------------------------------------------------------------------- */

/* Reads from the head of a Profile message what its values mean, by its type, unit and period. */
void join_value_type_read(struct join_table *table, const struct br_dictionary_view *view,
                          const uint8_t *p, const uint8_t *end, struct join_value_type *ret);

/* --- Samples ---------------------------------------------------------------------------------- */

/* The links of an item. Long ones are parsed once. The caller zeroes the struct and sets `view`
 * and `arena`. */
struct join_links {
    const struct br_dictionary_view *view;
    struct br_arena *arena;
    struct br_map *known; /* results by link index */
    bool no_memory;       /* results are missing and must not be used */
};
void join_links_release(struct join_links *l); /* accepts a zeroed struct */

struct join_sample_view {
    const uint8_t *body, *end;
    const uint8_t *trace_id, *span_id; /* NULL: absent */
    uint8_t trace_number, span_number; /* index of the label name from which the id was read */
    bool linked;                       /* the span id comes from a link, not from a label */
    /* the sample's labels name several spans or traces; span_id and trace_id are then NULL */
    bool ambiguous;
    bool estimated;    /* the sample's timestamps are estimated, so they do not identify a span */
    uint32_t has_keys; /* bit set of the keys that the join would add and the sample already has */
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

/* Splits a sample: writes one piece for each run of timestamps that have the same number in
 * `numbers`, as fields of a Profile, into `arena`. Returns the number of pieces.
 *
 * Returns 0 if there would be one piece, if the values do not belong to timestamps, or if there
 * is not enough memory. Also returns 0, and increments `*n_cut`, if the pieces would repeat too
 * much of the sample. */
uint32_t join_sample_view_split(const struct join_sample_view *view, const uint64_t *times,
                                const uint64_t *numbers, struct br_arena *arena,
                                struct br_addition *ret, uint64_t *n_cut);

/* Returns how many elements to allocate for `need` numbers. Small arrays grow often, so they get
 * more spare room. */
static inline uint64_t join_numbers_cap(uint64_t need)
{
    if (need < 32)
        return 64;
    return need < 4096 ? 2 * need : need;
}

/* Copies the values of the sample, view->n_values numbers, to `ret`. */
void join_sample_view_values(const struct join_sample_view *view, uint64_t *ret);

/* Copies the timestamps of the sample, view->n_times numbers, to `ret`. */
void join_sample_view_times(const struct join_sample_view *view, uint64_t *ret);

/* --- Functions -------------------------------------------------------------------------------- */

/* The leaf function of each stack: the innermost function of its first location. */

struct join_leaves {
    struct join_table *table;
    const struct br_dictionary_view *view;
    /* Numbers of leaf functions by index in each dictionary table, each computed once; 0: not
     * computed yet. NULL: the array could not be allocated. */
    uint32_t *stacks, *locations, *functions;
};

/* Initializes the leaves for an item's dictionary. Memory comes from `arena`. */
void join_leaves_init(struct join_leaves *leaves, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena);

/* Returns the number that the join's table assigned to the leaf function of a stack, or 0 if the
 * function has no name. */
uint32_t join_leaf_of(struct join_leaves *leaves, uint32_t stack);
