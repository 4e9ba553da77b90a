/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds parts of a JSON text first and reads them when their turn comes, because members come in
 * any order. For readers of src/profile/ only; the text has been checked once from its start to its
 * end.
 */
#pragma once

#include "otlp/json/number.h"
#include "otlp/json/scan.h"

/* Where an object or an array begins; `at` NULL: there is none. */
struct br_json_part {
    const char *at;
};

/* Returns true when a string, or a name, is this text (of less than 64 bytes). */
bool br_json_part_is(const struct br_json_token *token, const char *text);

/* Returns the part that comes next in `scan`, if the value is of this type. */
static inline struct br_json_part br_json_part_of(const struct br_json_scan *scan,
                                                  const struct br_json_token *value,
                                                  enum br_json_type type)
{
    return (struct br_json_part){value->type == type ? scan->at : NULL};
}

/* Returns a scan that stands before `part`. `whole` is a scan of the text, in which the part is. */
struct br_json_scan br_json_part_scan(const struct br_json_scan *whole, struct br_json_part part);

/* Hands every member of the object that comes next to `fn`, which takes note of it: the last one of
 * a name counts. Passes what is no object. Returns as br_json_scan_value. */
typedef void br_json_member_fn(void *arg, const struct br_json_scan *scan,
                               const struct br_json_token *name, const struct br_json_token *value);
int br_json_members(struct br_json_scan *scan, br_json_member_fn *fn, void *arg);

/* Hands `scan`, which stands before the inside of an array, to `fn` before each element, which has
 * to pass it. Returns what `fn` or br_json_scan_value failed with, or 0 behind the array. */
typedef int br_json_element_fn(void *arg, struct br_json_scan *scan);
int br_json_elements_here(struct br_json_scan *scan, br_json_element_fn *fn, void *arg);

/* Goes through an array that was found before; one that there is not has no elements. `whole` is a
 * scan of the text. */
int br_json_elements(const struct br_json_scan *whole, struct br_json_part array,
                     br_json_element_fn *fn, void *arg);

/* An array that is read step by step, beside others. */
struct br_json_list {
    struct br_json_scan scan;
    bool inside, first;
};
int br_json_list_open(struct br_json_list *list, const struct br_json_scan *whole,
                      struct br_json_part array);
/* Goes before the next element, which the caller has to pass with `list->scan`; `*ret_more` is
 * false at the end. */
int br_json_list_more(struct br_json_list *list, bool *ret_more);
/* Reads the next element, passing what is no scalar; `*ret_more` is false at the end. */
int br_json_list_next(struct br_json_list *list, struct br_json_token *ret, bool *ret_more);

/* Reads the number. False when it is none. */
static inline bool br_json_part_number(const struct br_json_token *token, double *ret)
{
    return token->type == BR_JSON_NUMBER && br_number_double(token->text, ret);
}
