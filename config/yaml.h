/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML document as a tree in which every node knows file, line and column (libyaml underneath).
 * Aliases are followed by copying, with a bound; cycles, duplicate keys, merge keys that are not
 * maps, more than one document, tabs, nesting over 100 levels, more than 10,000 nodes and files
 * over 1 MiB are errors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum br_yaml_type { BR_YAML_NULL, BR_YAML_SCALAR, BR_YAML_SEQ, BR_YAML_MAP };

/* Where a node stands in its file, 1-based, the end exclusive. Of maps and lists that are not
 * `flow` only the start is known; their end is that of what is in them. */
struct br_yaml_span {
    int line, col, end_line, end_col;
};

struct br_yaml {
    enum br_yaml_type type;
    bool quoted;   /* a scalar in quotes or a block: always a string */
    bool expanded; /* a scalar whose text came, wholly or partly, from ${...} */
    bool own_line; /* a pair's value that does not stand on its key's line */
    bool flow;     /* MAP, SEQ: in braces or brackets */
    bool alias;    /* it stands there as an alias: `line` and `col` are those of what it repeats */
    int line, col; /* 1-based */
    struct br_yaml_span span;  /* all zero for what no file has */
    const char *file;          /* as the user named it; lives as long as the arena */
    const char *text;          /* SCALAR, terminated; NULL otherwise */
    size_t len;                /* SCALAR: bytes of text */
    size_t count;              /* SEQ, MAP: children */
    struct br_yaml **items;    /* SEQ, MAP: values, in order */
    struct br_yaml **keys;     /* MAP: SCALAR nodes, so that errors can point at a key */
    const struct br_yaml *raw; /* of what ${...} brought: the scalar that said so; else NULL */
    const char
        *brought; /* SEQ, MAP: the text that ${...} brought, terminated; NULL: it stood
                     there.       Where text is wanted, that is meant, as in the Collector. */
    size_t brought_len;
};

/* Up to 20 errors, and 200 warnings, collected before anything starts. The code of an error is
 * BR_EINVAL, or BR_EUNSUPPORTED for what may be right, but not here. */
#define BR_ERRS_MAX 20
#define BR_WARNINGS_MAX 200
struct br_errs {
    struct br_err *errors;
    struct br_err *warnings;
    size_t n_errors, n_warnings;
    uint32_t cap_warnings;
    bool more;          /* there were more than BR_ERRS_MAX errors */
    bool more_warnings; /* there were more than BR_WARNINGS_MAX warnings */
};

/* Returns the node of `key` in a MAP, or NULL (also when `map` is NULL or not a map). */
struct br_yaml *br_yaml_get(const struct br_yaml *map, const char *key);

/* Adds an error at `node` (its file, line and column; may be NULL) with a path like
 * "receivers::otlp::protocols" and a printf-style sentence. Past BR_ERRS_MAX only `more` is set.
 * Returns BR_EINVAL. */
int br_errs_add(struct br_errs *errs, const struct br_yaml *node, const char *path, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));

/* As br_errs_add, for what is unknown here and may well have a meaning elsewhere. Returns
 * BR_EINVAL; the error's code is BR_EUNSUPPORTED. */
int br_errs_lack(struct br_errs *errs, const struct br_yaml *node, const char *path,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* As br_errs_add, at the value of `key` in the map `node`, whose path it follows; at the map where
 * the key is not there. */
int br_errs_add_key(struct br_errs *errs, const struct br_yaml *node, const char *path,
                    const char *key, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* As br_errs_add, for what does not stop the start. */
void br_errs_warn(struct br_errs *errs, const struct br_yaml *node, const char *path,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Frees both lists. */
void br_errs_release(struct br_errs *errs);

/* Parses `len` bytes as one document. `file` is only for messages. The tree lives in `arena`. An
 * empty document gives a NULL node. Returns 0, or BR_EINVAL, BR_ETOOBIG or BR_ENOMEM with one error
 * in `errs`. */
int br_yaml_parse(const char *text, size_t len, const char *file, struct br_arena *arena,
                  struct br_yaml **ret, struct br_errs *errs);

/* What a plain scalar of this text is, by the core schema as Go's yaml.v3 reads it; NUMBER also for
 * what only looks like one, so that printing errs on the side of quotes. */
enum br_yaml_look { BR_LOOK_NULL, BR_LOOK_BOOL, BR_LOOK_NUMBER, BR_LOOK_TEXT };
enum br_yaml_look br_yaml_look(const char *text);

/* As br_yaml_parse, but merge keys ("<<") stay what they are: the tree shows the text. */
int br_yaml_parse_plain(const char *text, size_t len, const char *file, struct br_arena *arena,
                        struct br_yaml **ret, struct br_errs *errs);
