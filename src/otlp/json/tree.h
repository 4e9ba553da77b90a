/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses JSON text (RFC 8259) into a flat tree that refers to the text: 16 bytes for a value, a key
 * or a bracket pair, which is at most eight for a byte of text.
 *
 * Why not jansson (2.14): its tree takes up to 77 bytes for a byte of hostile text; it refuses
 * integers above 2^63 - 1 and rounds what is no int64 to double; and when memory runs out it may
 * lose characters of a string and report success, or report a syntax error, which makes a client
 * throw good data away.
 *
 * It is for small texts, and for those that are not read in their order; OTLP's own JSON is read
 * without it (otlp/json/json.h). Links lead backwards, from the last child to the first. The
 * children of an object are key, value, key, value.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/json/scan.h"

struct br_json_node {
    uint32_t at;   /* NUMBER: its first byte; STRING: the byte after the quote; containers: the last
                      child, 0: none */
    uint32_t len;  /* NUMBER, STRING: bytes in the text; ARRAY: elements; OBJECT: members */
    uint32_t prev; /* the child before this one, 0: none */
    uint8_t type;
    bool escaped; /* STRING: has escapes */
};

struct br_json_tree {
    const char *text;
    struct br_json_node *nodes; /* 0 is the root */
    uint32_t count, cap;
};

/* Parses `text`, which the tree borrows until its release. Returns 0; BR_EINVAL when it is not JSON
 * in UTF-8 (the sentence says at which byte); BR_ETOOBIG when brackets nest deeper than `max_depth`
 * or it is larger than 1 GiB; BR_EFULL when it has more than `max_nodes` nodes (0: as many as fit
 * into the text); or BR_ENOMEM. On failure there is nothing to release. */
int br_json_parse(struct br_json_tree *tree, const char *text, size_t len, unsigned max_depth,
                  size_t max_nodes, struct br_err *err);
void br_json_tree_release(struct br_json_tree *tree);

/* Writes a STRING without its escapes into `out` of node->len bytes, which are always enough.
 * Returns the length. */
size_t br_json_unescape(const struct br_json_tree *tree, const struct br_json_node *node,
                        char *out);

/* Returns true when a STRING is `name`. */
bool br_json_string_is(const struct br_json_tree *tree, const struct br_json_node *node,
                       const char *name);
