/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds parts of a JSON text and reads them later, because the members of an object may be in any
 * order. A part that is read later has already been checked for valid syntax.
 */
#pragma once

#include "otlp/json/number.h"
#include "otlp/json/scan.h"

/* Position of an object or an array in a JSON text. `at` is NULL if the text does not contain
 * the part. */
struct br_json_part {
    const char *at;
};

/* Returns true if a string or a member name equals `text` (less than 64 bytes). */
bool br_json_part_is(const struct br_json_token *token, const char *text);

/* Returns the position of the next value in `scan`. The `at` of the position is NULL unless the
 * value has the type `type`. */
static inline struct br_json_part br_json_part_of(const struct br_json_scan *scan,
                                                  const struct br_json_token *value,
                                                  enum br_json_type type)
{
    return (struct br_json_part){value->type == type ? scan->at : NULL};
}

/* Returns a scan positioned before `part`. `whole` is a scan of the text that contains the part. */
struct br_json_scan br_json_part_scan(const struct br_json_scan *whole, struct br_json_part part);

/* Calls `fn` for every member of the next object. The last of several members with the same name
 * counts, so `fn` overwrites earlier values. If the next value is not an object, skips it without
 * calling `fn`. Returns the result of br_json_scan_value. */
typedef void br_json_member_fn(void *arg, const struct br_json_scan *scan,
                               const struct br_json_token *name, const struct br_json_token *value);
int br_json_members(struct br_json_scan *scan, br_json_member_fn *fn, void *arg);

/* Calls `fn` before each element of the next array in `scan`; `fn` has to move past the element.
 * Returns the first error of `fn` or of the scan, or 0 after the end of the array. */
typedef int br_json_element_fn(void *arg, struct br_json_scan *scan);
int br_json_elements_here(struct br_json_scan *scan, br_json_element_fn *fn, void *arg);

/* Calls `fn` for the elements of an array found earlier. A missing array has no elements.
 * `whole` is a scan of the text. */
int br_json_elements(const struct br_json_scan *whole, struct br_json_part array,
                     br_json_element_fn *fn, void *arg);

/* Iterates over an array, so that several arrays can be read in parallel. */
struct br_json_list {
    struct br_json_scan scan;
    bool inside, first;
};
int br_json_list_open(struct br_json_list *list, const struct br_json_scan *whole,
                      struct br_json_part array);
/* Moves before the next element, which the caller has to skip in `list->scan`. `*ret_more` is
 * false at the end of the array. Returns 0 or an error of the scan. */
int br_json_list_more(struct br_json_list *list, bool *ret_more);
/* Reads the next element. An object or array is skipped, and `ret` has only its type.
 * `*ret_more` is false at the end of the array. Returns 0 or an error of the scan. */
int br_json_list_next(struct br_json_list *list, struct br_json_token *ret, bool *ret_more);

/* Reads a number. Returns false if the token is not a number. */
static inline bool br_json_part_number(const struct br_json_token *token, double *ret)
{
    return token->type == BR_JSON_NUMBER && br_number_double(token->text, ret);
}
