/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON text made fit for jansson, which costs up to 77 bytes of memory for one of hostile text,
 * refuses integers above 2^63 - 1 and rounds the rest of what is no int64 to double.
 *
 * One pass over the text counts what the tree would cost and how deep it is. Numbers other than plain
 * integers of 0 to 18 digits are kept apart, as text; in their place jansson reads a negative
 * integer, -1 for the first of them. No other number it reads is negative, so there is no doubt.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct br_json_text {
    json_t *root;      /* a JSON object */
    char *numbers;     /* terminated texts */
    uint32_t *offsets; /* where each begins */
    uint32_t n_numbers;
};

/* Parses `text`, whose tree may cost about `max_cost` bytes and nest `max_brackets` deep. Returns 0;
 * BR_EINVAL when it is not a JSON object in UTF-8, BR_ETOOBIG, or BR_ENOMEM. */
int br_json_text_parse(struct br_json_text *t, const char *text, size_t len, size_t max_cost,
                       unsigned max_brackets, struct br_err *err);
void br_json_text_release(struct br_json_text *t);

/* The text of a negative integer in the tree: the number that stood there; NULL when there is no such
 * number (a caller's mistake). */
const char *br_json_text_number(const struct br_json_text *t, json_int_t reference);
