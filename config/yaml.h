/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Represents a YAML document as a tree in which every node has its file, line and column. libyaml
 * does the parsing. Each alias is replaced by a copy of the node that it refers to, up to a limit
 * on the number of nodes. Cycles, duplicate keys, merge keys whose value is not a map, several
 * documents in a file, and tabs in the indentation are errors. More than 100 nested levels, more
 * than 10,000 nodes, and files over 1 MiB are errors, too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

enum br_yaml_type { BR_YAML_NULL, BR_YAML_SCALAR, BR_YAML_SEQ, BR_YAML_MAP };

/* The range of a node in its file. Lines and columns are 1-based, and the end is exclusive. A map
 * or list that is not written in braces or brackets has only a start; it ends where its last child
 * ends. */
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
    bool flow; /* MAP, SEQ: the node is written in braces or brackets */
    /* the node is an alias; `line` and `col` are those of the node to which the alias refers */
    bool alias;
    int line, col; /* position of the node in its file, 1-based */
    /* range of the node in its file; all zero if the node is not from a file */
    struct br_yaml_span span;
    /* name of the file, as the user wrote it; valid as long as the arena */
    const char *file;
    const char *text;       /* SCALAR: the text, with a NUL terminator; NULL otherwise */
    size_t len;             /* SCALAR: length of the text in bytes */
    size_t count;           /* SEQ, MAP: number of children */
    struct br_yaml **items; /* SEQ, MAP: the values, in the order of the file */
    /* MAP: the keys, which are SCALAR nodes, so that errors can point at a key */
    struct br_yaml **keys;
    /* the scalar in the file whose ${...} expanded to this node; NULL: this node is not the result
     * of a ${...} */
    const struct br_yaml *raw;
    const char
        /* SEQ, MAP: the text to which ${...} expanded, before it was parsed as YAML;
         * NUL-terminated; NULL: this node is not the result of a ${...}. As in the Collector, an
         * option that expects a text gets this text as its value. */
        *brought;
    size_t brought_len;
};

/* Returns true if two trees have the same types, texts and keys. The order of keys counts. A NULL
 * pointer equals a NULL node. */
bool br_yaml_equal(const struct br_yaml *one, const struct br_yaml *other);

/* A list of up to 20 errors and 200 warnings about the config, which are collected before any
 * component starts. The code of an error is BR_EINVAL, or BR_EUNSUPPORTED if the setting may be
 * valid but Braid does not support it. */
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
 * "receivers::otlp::protocols" and a message in printf format. If there are already BR_ERRS_MAX
 * errors, only sets `more`. Returns BR_EINVAL. */
int br_errs_add(struct br_errs *errs, const struct br_yaml *node, const char *path, const char *fmt,
                ...) __attribute__((format(printf, 4, 5)));

/* Adds an error like br_errs_add, with the code BR_EUNSUPPORTED, for a setting that may be valid
 * but that Braid does not support. Returns BR_EINVAL. */
int br_errs_lack(struct br_errs *errs, const struct br_yaml *node, const char *path,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Adds an error like br_errs_add for the key `key` of the map `node`; `path` is the path of the
 * map. The error's position is that of the key's value, or that of the map if the key is absent. */
int br_errs_add_key(struct br_errs *errs, const struct br_yaml *node, const char *path,
                    const char *key, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Adds a warning, which does not prevent the start. The parameters are those of br_errs_add. */
void br_errs_warn(struct br_errs *errs, const struct br_yaml *node, const char *path,
                  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Frees the lists of errors and warnings. */
void br_errs_release(struct br_errs *errs);

/* Parses `len` bytes as one YAML document. `file` is used only in messages. The tree is
 * allocated in `arena`. An empty document gives a NULL node. Returns 0, or BR_EINVAL, BR_ETOOBIG
 * or BR_ENOMEM with one error in `errs`. */
int br_yaml_parse(const char *text, size_t len, const char *file, struct br_arena *arena,
                  struct br_yaml **ret, struct br_errs *errs);

/* The type that Go's yaml.v3 determines for a plain scalar by YAML's core schema. BR_LOOK_NUMBER
 * includes texts that only resemble a number, so that such texts are always printed in quotes. */
enum br_yaml_look { BR_LOOK_NULL, BR_LOOK_BOOL, BR_LOOK_NUMBER, BR_LOOK_TEXT };
enum br_yaml_look br_yaml_look(const char *text);

/* Parses like br_yaml_parse, but keeps merge keys ("<<"), so that the tree corresponds to the
 * text. */
int br_yaml_parse_plain(const char *text, size_t len, const char *file, struct br_arena *arena,
                        struct br_yaml **ret, struct br_errs *errs);
