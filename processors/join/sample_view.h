/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what profiles hold: texts of the dictionary, labels, value types, samples, functions. */
#pragma once

#include "config/option.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"
#include "processors/join/infer/identity.h"
#include "processors/join/table/table.h"

/* --- Texts ------------------------------------------------------------------------------ */

/*
 * What the dictionary's texts say as ids, places and services. Any number of attributes may refer
 * to one text, which may be long: each long one is read once for an item, by its index. Short ones
 * cost no more than what is kept of them would.
 */

struct join_texts {
    const struct join_table *table;        /* whose secret hashes places */
    const struct br_dictionary_view *view; /* NULL: there is no dictionary */
    struct br_arena *arena;
    struct br_map *known; /* of what was read, by index; at most one for each text */
    bool no_memory;       /* what it says is not to be used */
};

/* Begins with an item, whose index is `view`; memory comes from `arena`, which lives longer. */
void join_texts_init(struct join_texts *texts, const struct join_table *table,
                     const struct br_dictionary_view *view, struct br_arena *arena);
void join_texts_release(struct join_texts *texts); /* accepts a zeroed one */

/* Returns text `index`, empty where there is none, also without a dictionary. */
struct br_entry join_texts_at(const struct join_texts *texts, uint64_t index);

/* Return hashes of text `index`: with the table's secret, as join_table_hash; as the name of a
 * service, as join_service_hash. 0 for an empty one. */
uint32_t join_texts_hash(struct join_texts *texts, uint64_t index);
uint64_t join_texts_service(struct join_texts *texts, uint64_t index);

/* --- Labels ----------------------------------------------------------------------------- */

/* What the entries of a dictionary's attribute table mean to the join: ids, threads and processes,
 * and what it adds itself. */

struct join_label_names {
    struct br_strings span_id, trace_id; /* the first of a list wins */
    const char *const *own;              /* the keys that joined samples get; NULL: unused */
    size_t n_own;
};

enum join_label_kind {
    JOIN_LABEL_NONE,
    JOIN_LABEL_SPAN_ID,
    JOIN_LABEL_TRACE_ID,
    JOIN_LABEL_OWN,
    JOIN_LABEL_ESTIMATED, /* BR_SAMPLE_TIME: timestamps are estimated */
};

struct join_label {
    uint8_t kind;   /* enum join_label_kind */
    uint8_t number; /* of its name in the list */
    bool several;   /* the value is a list of different ids, of which `id` is the first */
    uint8_t where;  /* enum join_where, beside its kind */
    uint8_t id[16]; /* 8 of them for a span */
    uint32_t hash;  /* of what it says there */
};

/* Reads the attribute table: one label for each entry, in `arena`. Ids are hex of any case with
 * white space around it, short ones padded with zeros on the left and long ones without the zeros
 * there; bytes of the right length; or, for spans, an integer with the id's 64 bits. Zero is no id.
 * `*ret_any` says whether any label has a kind or says where. Returns NULL when there is no memory.
 */
struct join_label *join_labels_read(struct join_texts *texts, const struct join_label_names *names,
                                    struct br_arena *arena, bool *ret_any);

/* --- Values ----------------------------------------------------------------------------- */

/* What a profile's values mean, by its type, unit and period: times, periods, or things. */

/* Reads the value type from the head of a Profile message. */
void join_value_type_read(struct join_table *table, const struct br_dictionary_view *view,
                          const uint8_t *p, const uint8_t *end, struct join_value_type *ret);

/* --- Samples ---------------------------------------------------------------------------- */

/* A view of a sample: the span that it names, what it counts, when and where it was taken. */

/* The links of an item; what long ones say is read once. Zeroed, then `view` and `arena` set. */
struct join_links {
    const struct br_dictionary_view *view;
    struct br_arena *arena;
    struct br_map *known; /* by index */
    bool no_memory;       /* what they say is not to be used */
};
void join_links_release(struct join_links *l); /* accepts a zeroed one */

struct join_sample_view {
    const uint8_t *body, *end;
    const uint8_t *trace_id, *span_id; /* NULL: none */
    uint8_t trace_number, span_number; /* of the labels that they came from */
    bool linked;                       /* by a link, not by a label */
    bool ambiguous;    /* its labels name several spans or traces: span_id and trace_id are NULL */
    bool estimated;    /* its timestamps are estimated, so that they place it in no span */
    uint32_t has_keys; /* bits: keys that the join would add, and the sample has */
    uint32_t stack;
    uint64_t value; /* the sum of its values */
    uint64_t n_values, n_times;
    struct join_identity where;
};

/* Reads a Sample message. `labels` is of join_labels_read; NULL: none of them means anything. */
void join_sample_view_of(struct join_links *links, const struct join_label *labels,
                         const uint8_t *p, const uint8_t *end, struct join_sample_view *ret);

/* Returns whether the sample has timestamps that tell which span it was taken in. */
static inline bool join_sample_view_is_timed(const struct join_sample_view *view)
{
    return view->n_times > 0 && !view->estimated;
}

/* Writes the sample in pieces, as fields of a Profile, into `arena`: one for each row of timestamps
 * that have the same number in `numbers`. Says how many; 0: it is one piece, its values are of no
 * timestamp, the pieces would repeat too much of it (which `*n_cut` counts), or there is no memory.
 */
uint32_t join_sample_view_split(const struct join_sample_view *view, const uint64_t *times,
                                const uint64_t *numbers, struct br_arena *arena,
                                struct br_addition *ret, uint64_t *n_cut);

/* Returns how many numbers to make room for where `need` are needed: few grow often, many once. */
static inline uint64_t join_numbers_cap(uint64_t need)
{
    if (need < 32)
        return 64;
    return need < 4096 ? 2 * need : need;
}

/* Copies what it counts and when: `n_values` and `n_times` of them. */
void join_sample_view_values(const struct join_sample_view *view, uint64_t *ret);
void join_sample_view_times(const struct join_sample_view *view, uint64_t *ret);

/* --- Functions -------------------------------------------------------------------------- */

/* The functions that samples were in: the innermost of their stack's first location. */

struct join_leaves {
    struct join_table *table;
    const struct br_dictionary_view *view;
    /* By index: what was found of each, once; 0: nothing yet. NULL: no memory */
    uint32_t *stacks, *locations, *functions;
};

/* Sets up for an item's dictionary; memory lies in `arena`. */
void join_leaves_init(struct join_leaves *leaves, struct join_table *table,
                      const struct br_dictionary_view *view, struct br_arena *arena);

/* Returns the table's number of a stack's function; 0 when that has no name. */
uint32_t join_leaf_of(struct join_leaves *leaves, uint32_t stack);
