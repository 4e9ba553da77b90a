/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions shared by the code that prints traces and the code that prints profiles. Output is
 * written line by line. If a line does not fit, it is removed, a last line reports the truncation,
 * and nothing more is printed; loops stop when `full` is set. Messages are read in place: printing
 * allocates only the text and, for profiles, the positions of the dictionary's entries.
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
    /* positions of the entries of the item's dictionary; NULL: the item contains traces */
    const struct br_dictionary_view *dictionary;
    /* offset in `out` of the start of the current line */
    size_t line;
    size_t item_size;
    /* number of bytes of the dictionary entries that were read so far, counted at each lookup */
    size_t n_read;
    bool full;
};

/* --- Messages -------------------------------------------------------------------------------- */

/* limit for field numbers: fields with this number or a higher number are not read */
#define BR_PRINT_FIELDS 17u

/* For each field number below BR_PRINT_FIELDS, the last field with that number in a message. */
struct br_print_fields {
    struct br_field last[BR_PRINT_FIELDS];
};

void br_print_read(struct br_entry message, struct br_print_fields *ret);

/* Returns the content of field `number`, which is a string, bytes or a message. `data` is NULL
 * if the field is absent. */
struct br_entry br_print_bytes(const struct br_print_fields *fields, uint32_t number);

/* Returns the value of field `number`, which is a number, or 0 if the field is absent. */
uint64_t br_print_number(const struct br_print_fields *fields, uint32_t number);

/* Iterator over a list of numbers, which is field `number` of a message, packed or not. */
struct br_print_list {
    const uint8_t *p, *end;
    uint32_t number;
    bool fixed; /* true: the elements of a packed list are fixed64; false: they are varints */
    const uint8_t *packed, *packed_end;
};

static inline struct br_print_list br_print_list_of(struct br_entry message, uint32_t number,
                                                    bool fixed)
{
    const uint8_t *end = message.len ? message.data + message.len : message.data;
    return (struct br_print_list){message.data, end, number, fixed, NULL, NULL};
}

/* Reads the next number of the list. Returns false at the end of the list. */
bool br_print_list_next(struct br_print_list *list, uint64_t *ret);

/* Calls `fn` for each field of a message that has the number `number`, until the output is full.
 * Returns the number of calls. */
typedef void br_print_fn(struct br_printer *printer, unsigned index, struct br_entry message);
unsigned br_print_each(struct br_printer *printer, struct br_entry message, uint32_t number,
                       br_print_fn *fn);

/* Returns the Resource of a part, or its replacement; NULL if the part has neither. */
struct br_entry br_print_part_resource(const struct br_part *part);

/* Calls `fn` for each ResourceSpans or ResourceProfiles of the item, with its body. Returns 0,
 * or BR_ENOMEM if there was not enough memory for the line that reports the truncation. */
typedef void br_print_part_fn(struct br_printer *printer, unsigned index,
                              const struct br_part *part, struct br_entry body);
int br_print_parts(struct br_printer *printer, const struct br_item *item, br_print_part_fn *fn);

/* --- Lines ----------------------------------------------------------------------------------- */

/* Functions that print a line. br_print_line prints a whole line. Alternatively, the caller calls
 * br_print_begin, appends text to printer->out, and calls br_print_end. br_print_begin returns
 * false once the output is full. */
bool br_print_begin(struct br_printer *printer);
void br_print_end(struct br_printer *printer);
void br_print_line(struct br_printer *printer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a line with a list of `count` elements, of which at most `shown` are printed. Removes the
 * line if the list is empty. */
void br_print_list_end(struct br_printer *printer, size_t count, size_t shown);

/* Prints a line with `label` and a text. */
void br_print_named_text(struct br_printer *printer, const char *label, struct br_entry text);

/* Prints a line with `label` and an id in hex. */
void br_print_named_id(struct br_printer *printer, const char *label, struct br_entry id);

/* Prints a line with `label` and a time. */
void br_print_named_time(struct br_printer *printer, const char *label, uint64_t unix_ns);

/* Appends a text to the current line, with control characters escaped. */
void br_print_text(struct br_str *out, const void *text, size_t len);

/* Appends a time to the current line. */
void br_print_time(struct br_str *out, uint64_t unix_ns);

/* --- Resources, scopes, attributes ----------------------------------------------------------- */

/* Returns string `index` of the dictionary. The string is empty if the item contains traces. */
struct br_entry br_print_string(const struct br_printer *printer, uint64_t index);

/* Prints an attribute as a line such as `indent`-> key: Str(value). */
void br_print_attribute(struct br_printer *printer, const char *indent, struct br_entry key,
                        struct br_value value, struct br_entry unit);

/* Appends one attribute to a line, as ` key=value`. */
void br_print_pair(struct br_printer *printer, struct br_entry key, struct br_value value);

/* Appends each attribute that is field `number` of a message to a line, as ` key=value`. */
void br_print_pairs(struct br_printer *printer, struct br_entry message, uint32_t number);

/* Prints a heading and below it the attributes that are field `number` of a message. Prints nothing
 * if the message has no attributes. */
void br_print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                         struct br_entry message, uint32_t number);

void br_print_resource(struct br_printer *printer, struct br_entry resource,
                       struct br_entry schema_url);

/* Prints the scope and schema URL of a ScopeSpans or ScopeProfiles. */
void br_print_scope(struct br_printer *printer, const struct br_print_fields *head);

/* --- Profiles -------------------------------------------------------------------------------- */

/* Initialises `arena` and finds the entries of the item's dictionary, whose positions are stored
 * in the arena. Returns 0, BR_ENOMEM, or BR_EFULL if the positions would need more than
 * BR_PRINT_INDEX times the item's size plus BR_PRINT_INDEX_FREE. */
int br_print_index(const struct br_item *item, struct br_arena *arena,
                   struct br_dictionary_view *ret);

/* Returns an entry of a dictionary table. Each call counts as one reading of the entry's bytes.
 * `data` is NULL for index 0 ("none") and for an index that does not exist. `data` is also NULL
 * if too many bytes of entries have been read; the output is then truncated at the current line. */
struct br_entry br_print_entry(struct br_printer *printer, enum br_table table, uint64_t index);
