/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML document as a tree in which every node has its file, line and column. libyaml does the
 * parsing. Aliases are copied, up to a limit. Cycles, duplicate keys, merge keys that are not maps,
 * several documents, tabs, more than 100 nested levels, more than 10,000 nodes and files over 1 MiB
 * are errors.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum br_yaml_type { BR_YAML_NULL, BR_YAML_SCALAR, BR_YAML_SEQ, BR_YAML_MAP };

/* The range of a node in its file, 1-based; the end is exclusive. Maps and lists that are not
 * `flow` have only a start; such a map or list ends with its last child. */
struct br_yaml_span {
    int line, col, end_line, end_col;
};

struct br_yaml {
    enum br_yaml_type type;
    /* the node is a scalar in quotes or a block scalar, so it is always a string */
    bool quoted;
    bool expanded; /* the node is a scalar whose text contains the result of ${...} */
    /* the node is the value of a pair and starts on a later line than its key */
    bool own_line;
    bool flow; /* MAP, SEQ: written in braces or brackets */
    /* the node is an alias; `line` and `col` are those of its anchor's node */
    bool alias;
    int line, col; /* position of the node in its file, 1-based */
    /* range of the node in its file; all zero if the node is not from a file */
    struct br_yaml_span span;
    /* name of the file, as the user wrote it; valid as long as the arena */
    const char *file;
    const char *text;       /* SCALAR: the text, with a terminator; NULL otherwise */
    size_t len;             /* SCALAR: length of the text in bytes */
    size_t count;           /* SEQ, MAP: number of children */
    struct br_yaml **items; /* SEQ, MAP: the values, in the order of the file */
    /* MAP: the keys, which are SCALAR nodes, so that errors can point at a key */
    struct br_yaml **keys;
    /* scalar as written, whose ${...} expanded to this node; NULL: the file has no ${...} here */
    const struct br_yaml *raw;
    const char
        /* SEQ, MAP: the text that ${...} expanded to before it was parsed, terminated; NULL: the
         * file has no ${...} here. As in the Collector, it is the value of a text option. */
        *brought;
    size_t brought_len;
};

/* Returns true if two trees have the same types, texts and keys. The order of keys counts. A NULL
 * pointer equals a NULL node. */
bool br_yaml_equal(const struct br_yaml *one, const struct br_yaml *other);

/* Up to 20 errors and 200 warnings, which are collected before anything starts. The code of an
 * error is BR_EINVAL, or BR_EUNSUPPORTED if the setting may be valid but Braid does not support
 * it. */
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

/* Returns the value of `key` in a MAP. Returns NULL if the key is absent or `map` is NULL or not
 * a map. */
struct br_yaml *br_yaml_get(const struct br_yaml *map, const char *key);

/* Adds an error at the position of `node` (may be NULL) with a path like
 * "receivers::otlp::protocols" and a printf-style sentence. If there are BR_ERRS_MAX errors,
 * only sets `more`. Returns BR_EINVAL. */
int br_errs_add(struct br_errs *errs, const struct br_yaml *node, const char *path, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));

/* Adds an error like br_errs_add, with the code BR_EUNSUPPORTED, for a setting that may be valid
 * but that Braid does not support. Returns BR_EINVAL. */
int br_errs_lack(struct br_errs *errs, const struct br_yaml *node, const char *path,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Adds an error like br_errs_add for `key` of the map `node`, whose path is `path`. The error's
 * position is that of the key's value, or that of the map if the key is absent. */
int br_errs_add_key(struct br_errs *errs, const struct br_yaml *node, const char *path,
                    const char *key, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Adds a warning, which does not prevent the start. The parameters are those of br_errs_add. */
void br_errs_warn(struct br_errs *errs, const struct br_yaml *node, const char *path,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Frees the lists of errors and warnings. */
void br_errs_release(struct br_errs *errs);

/* Parses `len` bytes as one document. `file` is used only in messages. The tree is allocated in
 * `arena`. An empty document gives a NULL node. Returns 0, or BR_EINVAL, BR_ETOOBIG or BR_ENOMEM
 * with one error in `errs`. */
int br_yaml_parse(const char *text, size_t len, const char *file, struct br_arena *arena,
                  struct br_yaml **ret, struct br_errs *errs);

/* The type of a plain scalar by the core schema, as Go's yaml.v3 reads it. NUMBER includes texts
 * that only look like a number, so that printing adds quotes in case of doubt. */
enum br_yaml_look { BR_LOOK_NULL, BR_LOOK_BOOL, BR_LOOK_NUMBER, BR_LOOK_TEXT };
enum br_yaml_look br_yaml_look(const char *text);

/* Parses like br_yaml_parse, but keeps merge keys ("<<"), so that the tree corresponds to the
 * text. */
int br_yaml_parse_plain(const char *text, size_t len, const char *file, struct br_arena *arena,
                        struct br_yaml **ret, struct br_errs *errs);
