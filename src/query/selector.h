/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses label selectors: Prometheus' vector selectors without offset, as in Pyroscope.
 *
 *   selector = [ name ] [ "{" [ matcher { "," matcher } [ "," ] ] "}" ]
 *   matcher  = ( name | string ) ( "=" | "!=" | "=~" | "!~" ) string
 *   name     = letter or "_", then letters, digits and "_"
 *   string   = "..." or '...' with Go's escapes, or `...` without escapes
 *
 * Spaces, newlines and comments (`#` to the end of the line) may be between these elements. A name
 * in front of the brackets is a matcher of `__name__`. A label name with other characters is
 * written as a string. Regular expressions match whole values. An empty selector, like "{}",
 * matches everything. Source: prometheus promql/parser/generated_parser.y, lex.go.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "storage/store.h"

#define BR_SELECTOR_MAX 65536 /* most bytes of a selector */
#define BR_SELECTOR_MATCHERS_MAX 64
#define BR_SELECTOR_REGEX_MAX 4096 /* most bytes of a regular expression */

struct br_selector {
    struct br_matcher *matchers;
    size_t n_matchers;
};

/* Parses a selector; the matchers are allocated in `arena`. Regular expressions are checked and
 * returned unchanged. Returns 0, BR_EINVAL, BR_ENOMEM or BR_EFULL (the arena's limit). For
 * BR_EINVAL, both `err` and its message contain the position: "1:13: parse error: ...". */
int br_selector_parse(const char *text, size_t len, struct br_arena *arena, struct br_selector *ret,
                      struct br_err *err);
