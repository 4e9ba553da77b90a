/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses JSON text (RFC 8259) into a flat tree that refers to the text. Each value, key and pair of
 * brackets needs 16 bytes, which is at most eight bytes per byte of text.
 *
 * jansson (2.14) is not used: its tree needs up to 77 bytes per byte of hostile text. jansson also
 * rejects integers of 2^63 and more, and rounds numbers that are not int64 to double. If memory
 * runs out, jansson may lose characters of a string and report success, or report a syntax error,
 * after which a client discards valid data.
 *
 * The tree is for small texts and for texts that are not read in order. OTLP's JSON is decoded
 * without a tree (otlp/json/json.h). The children of a node are linked backwards, from the last
 * child to the first. The children of an object are its keys and values, alternately.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "otlp/json/scan.h"

struct br_json_node {
    /* NUMBER: offset of the first byte in the text; STRING: offset of the byte after the opening
     * quote; ARRAY, OBJECT: index of the last child; 0: there are no children */
    uint32_t at;
    /* NUMBER, STRING: number of bytes in the text; ARRAY: number of elements; OBJECT: number of
     * members */
    uint32_t len;
    /* index of the previous child of the same parent; 0: there is no previous child */
    uint32_t prev;
    uint8_t type;
    bool escaped; /* STRING: the text contains escapes */
};

struct br_json_tree {
    const char *text;
    struct br_json_node *nodes; /* node 0 is the root */
    uint32_t count, cap;
};

/* Parses `text`, which the tree borrows until its release. Returns 0 or:
 * - BR_EINVAL: the text is not JSON in UTF-8; the error message contains the offset.
 * - BR_ETOOBIG: brackets nest deeper than `max_depth`, or the text is larger than 1 GiB.
 * - BR_EFULL: the tree would have more than `max_nodes` nodes (0: no limit).
 * - BR_ENOMEM.
 *
 * After a failure nothing needs to be released. */
int br_json_parse(struct br_json_tree *tree, const char *text, size_t len, unsigned max_depth,
                  size_t max_nodes, struct br_err *err);
void br_json_tree_release(struct br_json_tree *tree);

/* Writes a STRING to `out` with escapes replaced by their characters. `out` must have space for
 * node->len bytes, which is always enough. Returns the number of bytes written. */
size_t br_json_unescape(const struct br_json_tree *tree, const struct br_json_node *node,
                        char *out);

/* Returns true if a STRING, with its escapes replaced, equals `name`. */
bool br_json_string_is(const struct br_json_tree *tree, const struct br_json_node *node,
                       const char *name);
