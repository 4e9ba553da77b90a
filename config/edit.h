/* SPDX-License-Identifier: Apache-2.0 */
/* Changes parts of a YAML text and keeps the rest of the text: order, comments, quotes, blanks. */
#pragma once

#include "base/str.h"
#include "config/yaml.h"

enum br_edit_kind {
    /* removes a pair; if `text` is not NULL, it is a comment that takes the place of the removed
     * pair */
    BR_EDIT_CUT,
    /* removes an item of a list; the place of an item that is a map may be that of its first key */
    BR_EDIT_DROP,
    BR_EDIT_SET, /* replaces the value of a pair by `text` */
    /* inserts `key: text` into a map before the other pairs. The place is that of the key whose
     * value is the map; the value may be absent. Several BR_EDIT_PUT edits of one map add their
     * pairs in order. */
    BR_EDIT_PUT,
};

struct br_edit {
    enum br_edit_kind kind;
    int line, col; /* place of the pair's key, or of the item, in the text; 1-based */
    const char *key, *text;
};

#define BR_EDITS_MAX 10000
struct br_edits {
    struct br_edit *items;
    size_t count;
    uint32_t cap;
};

/* Appends to `edits` an edit of the text at the place of the node `at`. `key` and `text` must
 * outlive `edits`. Returns 0 or BR_ENOMEM. */
int br_edits_add(struct br_edits *edits, enum br_edit_kind kind, const struct br_yaml *at,
                 const char *key, const char *text);
void br_edits_release(struct br_edits *edits);

/* Appends the text, changed by `edits`, to `out`. `plain` is the tree that br_yaml_parse_plain
 * returns for the text. An edit that is impossible at its place (inside an alias, at a key after
 * "? ") has no effect or a wrong effect. The caller must therefore parse the result and compare
 * it with the intended tree. Returns 0 or BR_ENOMEM. */
int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out);
