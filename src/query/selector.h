/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Label selectors: Prometheus' vector selectors without offset, as Pyroscope takes them.
 *
 *   selector = [ name ] [ "{" [ matcher { "," matcher } [ "," ] ] "}" ]
 *   matcher  = ( name | string ) ( "=" | "!=" | "=~" | "!~" ) string
 *   name     = letter or "_", then letters, digits and "_"
 *   string   = "..." or '...' with Go's escapes, or `...` without
 *
 * with blanks, newlines and comments (`#` to the end of the line) between them. A name in front is
 * a matcher of `__name__`. A name that has other characters is written as a string. Regular
 * expressions match whole values. Nothing at all, as "{}", matches everything.
 * Source: prometheus promql/parser/generated_parser.y, lex.go.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "storage/store.h"

#define BR_SELECTOR_MAX 65536 /* bytes of one */
#define BR_SELECTOR_MATCHERS_MAX 64
#define BR_SELECTOR_REGEX_MAX 4096 /* bytes of a regular expression */

struct br_selector {
    struct br_matcher *matchers;
    size_t n_matchers;
};

/* Reads a selector; what it returns lies in `arena`. Regular expressions are tried, and are given
 * as they were written. Returns 0; BR_EINVAL with the place in `err` and in its sentence
 * ("1:13: parse error: ..."); BR_ENOMEM or BR_EFULL (the arena's maximum). */
int br_selector_parse(const char *text, size_t len, struct br_arena *arena, struct br_selector *ret,
                      struct br_err *err);
