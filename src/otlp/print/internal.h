/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions that print what traces and profiles have in common. Output is written line by line. If
 * a line does not fit, it is removed, a last line reports the truncation, and nothing more is
 * printed; loops stop at `full`. Messages are read in place: printing allocates only the text and
 * the index of a dictionary.
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
    size_t line;                                 /* start of the current line in `out` */
    size_t item_size;
    size_t n_read; /* bytes of dictionary entries read, counted once for each lookup */
    bool full;
};

/* --- Messages -------------------------------------------------------------------------------- */

#define BR_PRINT_FIELDS 17u /* field numbers below this one are read */

/* The last field with each number in a message. */
struct br_print_fields {
    struct br_field last[BR_PRINT_FIELDS];
};

void br_print_read(struct br_entry message, struct br_print_fields *ret);

/* Return the value of a field: bytes (text, bytes or message; NULL if absent) or a number (0 if
 * absent). */
struct br_entry br_print_bytes(const struct br_print_fields *fields, uint32_t number);
uint64_t br_print_number(const struct br_print_fields *fields, uint32_t number);

/* Iterates over a list of numbers, field `number` of a message, packed or not. */
struct br_print_list {
    const uint8_t *p, *end;
    uint32_t number;
    bool fixed; /* packed elements are fixed64, not varints */
    const uint8_t *packed, *packed_end;
};

static inline struct br_print_list br_print_list_of(struct br_entry message, uint32_t number,
                                                    bool fixed)
{
    const uint8_t *end = message.len ? message.data + message.len : message.data;
    return (struct br_print_list){message.data, end, number, fixed, NULL, NULL};
}

/* Reads the next number. Returns false at the end of the list. */
bool br_print_list_next(struct br_print_list *list, uint64_t *ret);

/* Calls `fn` for each field `number` of a message until the output is full. Returns the number
 * of calls. */
typedef void br_print_fn(struct br_printer *printer, unsigned index, struct br_entry message);
unsigned br_print_each(struct br_printer *printer, struct br_entry message, uint32_t number,
                       br_print_fn *fn);

/* Returns the Resource of a part, or its replacement; NULL if the part has neither. */
struct br_entry br_print_part_resource(const struct br_part *part);

/* Calls `fn` for each ResourceSpans or ResourceProfiles with its body. Returns 0, or BR_ENOMEM
 * if there was not enough memory for the line that reports the truncation. */
typedef void br_print_part_fn(struct br_printer *printer, unsigned index,
                              const struct br_part *part, struct br_entry body);
int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn);

/* --- Lines ----------------------------------------------------------------------------------- */

/* Print a line: br_print_line in one call; otherwise br_print_begin, text appended to
 * printer->out, br_print_end. br_print_begin returns false once the output is full. */
bool br_print_begin(struct br_printer *printer);
void br_print_end(struct br_printer *printer);
void br_print_line(struct br_printer *printer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a line with a list of `count` elements, of which at most `shown` are printed. Removes the
 * line if the list is empty. */
void br_print_list_end(struct br_printer *printer, size_t count, size_t shown);

/* Print a line with `label` and a text, an id in hex, or a time. */
void br_print_named_text(struct br_printer *printer, const char *label, struct br_entry text);
void br_print_named_id(struct br_printer *printer, const char *label, struct br_entry id);
void br_print_named_time(struct br_printer *printer, const char *label, uint64_t unix_ns);

/* Append part of a line. */
void br_print_text(struct br_str *out, const void *text, size_t len);
void br_print_time(struct br_str *out, uint64_t unix_ns);

/* --- Resources, scopes, attributes ----------------------------------------------------------- */

/* Returns a string of the dictionary, empty for traces. */
struct br_entry br_print_string(const struct br_printer *printer, uint64_t index);

/* Prints a line: `indent`-> key: Str(value). */
void br_print_attribute(struct br_printer *printer, const char *indent, struct br_entry key,
                        struct br_value value, struct br_entry unit);

/* Append ` key=value` to a line, for one attribute or for each attribute that is field `number`. */
void br_print_pair(struct br_printer *printer, struct br_entry key, struct br_value value);
void br_print_pairs(struct br_printer *printer, struct br_entry message, uint32_t number);

/* Prints a heading and below it the attributes that are field `number`; nothing if there are
 * none. */
void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         struct br_entry message, uint32_t number);

void br_print_resource(struct br_printer *printer, struct br_entry resource,
                       struct br_entry schema_url);

/* Prints the scope and schema URL of a ScopeSpans or ScopeProfiles. */
void br_print_scope(struct br_printer *printer, const struct br_print_fields *head);

/* --- Profiles -------------------------------------------------------------------------------- */

/* Initialises an arena and indexes the dictionary of an item in it. Returns 0, BR_ENOMEM, or
 * BR_EFULL if the index would need more than BR_PRINT_INDEX times the item's size plus
 * BR_PRINT_INDEX_FREE. */
int br_print_index(const struct br_item *item, struct br_arena *arena,
                   struct br_dictionary_view *ret);

/* Returns an entry of a table, to be read once. Returns NULL for index 0 ("none") and for an
 * index that does not exist. Also NULL if too many bytes of entries have been read; the output
 * is then truncated at the current line. */
struct br_entry br_print_entry(struct br_printer *printer, enum br_table table, uint64_t index);
