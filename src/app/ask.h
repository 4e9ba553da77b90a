/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `braid query`: asks a running Braid's query API (extensions/query) and prints tables and trees.
 */
#pragma once

#include "base/str.h"

/* Runs the command; `argv[0]` is the word after "query". Returns the process's exit code: 0; 1 when
 * the server cannot be asked or refuses; 2 for arguments that make no sense. */
int br_ask_main(int argc, char **argv);

/* The options of the command, for --help. */
extern const char br_ask_help[];

/* --- Printing (answer.c) --------------------------------------------------------------------- */

struct json_t;

/* Appends a duration as a person reads it: "1.24 s", "310 ms", "4.2 µs"; other units as "12.3k
 * samples". */
void br_ask_put_amount(struct br_str *out, double value, const char *unit);

/* Appends tables and trees of what the API answers, at most `width` columns wide, with at most
 * `lines` of the tree. False when the answer is not of that shape. */
bool br_ask_put_spans(struct br_str *out, const struct json_t *answer);
bool br_ask_put_trace(struct br_str *out, const struct json_t *answer);
bool br_ask_put_top(struct br_str *out, const struct json_t *answer);
bool br_ask_put_profile(struct br_str *out, const struct json_t *answer, unsigned width,
                        size_t lines);
bool br_ask_put_difference(struct br_str *out, const struct json_t *answer, unsigned width,
                           size_t lines);
