/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that print what both signals have in common. Output goes line by line: a line that does
 * not fit is taken back, the cut is announced, and from then on nothing is printed; loops stop at
 * `full`. Messages are read in place, so that printing takes no memory but for its text and the
 * index of a dictionary.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"
#include "core/item.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/keyvalue.h"

struct br_printer {
    struct br_str *out;
    const struct br_dictionary_view *dictionary; /* NULL: traces */
    size_t line;                                 /* where the line at hand starts in `out` */
    size_t item_size;
    size_t n_read; /* bytes of the dictionary's entries, each as often as it was looked up */
    bool full;
};

/* --- Messages -------------------------------------------------------------------------------- */

#define BR_PRINT_FIELDS 17u /* numbers below it */

/* The last field of each number that a message has. */
struct br_print_fields {
    struct br_field last[BR_PRINT_FIELDS];
};

void br_print_read(struct br_entry message, struct br_print_fields *ret);

/* Return what a field is: text, bytes or a message, with NULL where there is none; a number, 0
 * where there is none. */
struct br_entry br_print_bytes(const struct br_print_fields *fields, uint32_t number);
uint64_t br_print_number(const struct br_print_fields *fields, uint32_t number);

/* Reads a list of numbers that is field `number` of a message, packed or not. */
struct br_print_list {
    const uint8_t *p, *end;
    uint32_t number;
    bool fixed; /* packed ones take eight bytes */
    const uint8_t *packed, *packed_end;
};

static inline struct br_print_list br_print_list_of(struct br_entry message, uint32_t number,
                                                    bool fixed)
{
    const uint8_t *end = message.len ? message.data + message.len : message.data;
    return (struct br_print_list){message.data, end, number, fixed, NULL, NULL};
}

/* Returns false at its end. */
bool br_print_list_next(struct br_print_list *list, uint64_t *ret);

/* Calls `fn` for each field `number` of a message until the output is full. Returns how often. */
typedef void br_print_fn(struct br_printer *printer, unsigned index, struct br_entry message);
unsigned br_print_each(struct br_printer *printer, struct br_entry message, uint32_t number,
                       br_print_fn *fn);

/* Returns the Resource of a part: its replacement where there is one; NULL: none. */
struct br_entry br_print_part_resource(const struct br_part *part);

/* Calls `fn` for each ResourceSpans or ResourceProfiles with its body. Returns 0, or BR_ENOMEM when
 * not even the cut could be announced. */
typedef void br_print_part_fn(struct br_printer *printer, unsigned index,
                              const struct br_part *part, struct br_entry body);
int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn);

/* --- Lines ----------------------------------------------------------------------------------- */

/* Prints a line of one piece (br_print_line), or of several: begin, appends to p->out, end. False
 * when nothing is printed any more. */
bool br_print_begin(struct br_printer *printer);
void br_print_end(struct br_printer *printer);
void br_print_line(struct br_printer *printer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a line with a list of which `shown` elements at most are printed; an empty one is taken
 * back. */
void br_print_list_end(struct br_printer *printer, size_t count, size_t shown);

/* Print `label` and a text, an id in hex, a time, on a line. */
void br_print_named_text(struct br_printer *printer, const char *label, struct br_entry text);
void br_print_named_id(struct br_printer *printer, const char *label, struct br_entry id);
void br_print_named_time(struct br_printer *printer, const char *label, uint64_t unix_ns);

/* Pieces of a line. */
void br_print_text(struct br_str *out, const void *text, size_t len);
void br_print_time(struct br_str *out, uint64_t unix_ns);

/* --- What both signals have ------------------------------------------------------------------ */

/* Returns a string of the dictionary; empty in traces. */
struct br_entry br_print_string(const struct br_printer *printer, uint64_t index);

/* Prints `indent`-> key: Str(value). */
void br_print_attribute(struct br_printer *printer, const char *indent, struct br_entry key,
                        struct br_value value, struct br_entry unit);

/* Prints ` key=value`, as a piece of a line; of each attribute that is field `number`. */
void br_print_pair(struct br_printer *printer, struct br_entry key, struct br_value value);
void br_print_pairs(struct br_printer *printer, struct br_entry message, uint32_t number);

/* Prints a heading and the attributes that are field `number` below it; nothing when there are
 * none. */
void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         struct br_entry message, uint32_t number);

void br_print_resource(struct br_printer *printer, struct br_entry resource,
                       struct br_entry schema_url);

/* Prints the scope and schema that the fields of a ScopeSpans or ScopeProfiles say. */
void br_print_scope(struct br_printer *printer, const struct br_print_fields *head);

/* --- Profiles -------------------------------------------------------------------------------- */

/* Indexes the dictionary of an item in an arena, which it prepares. Returns 0, BR_EFULL (the index
 * would take more than BR_PRINT_INDEX times the item and BR_PRINT_INDEX_FREE) or BR_ENOMEM. */
int br_print_index(const struct br_item *item, struct br_arena *arena,
                   struct br_dictionary_view *ret);

/* Returns an entry of a table, to be read once; NULL for 0 ("none"), where there is none, and when
 * long ones have been read too often: then the line at hand is cut. */
struct br_entry br_print_entry(struct br_printer *printer, enum br_table table, uint64_t index);
