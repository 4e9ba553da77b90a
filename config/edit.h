/* SPDX-License-Identifier: Apache-2.0 */
/* Changes parts of a YAML text and keeps the rest of the text: order, comments, quotes, blanks. */
#pragma once

#include "base/str.h"
#include "config/yaml.h"

enum br_edit_kind {
    /* removes a pair; if `text` is not NULL, the comment `text` replaces the pair */
    BR_EDIT_CUT,
    /* removes an item of a list; if the item is a map, `line` and `col` may be those of its first
     * key */
    BR_EDIT_DROP,
    BR_EDIT_SET, /* replaces the value of a pair by `text` */
    /* inserts `key: text` before the first pair of a map. `line` and `col` are those of the key
     * whose value is the map; the key may have no value yet. Several BR_EDIT_PUT edits of one map
     * insert their pairs in the order of the edits. */
    BR_EDIT_PUT,
};

struct br_edit {
    enum br_edit_kind kind;
    int line, col; /* position in the text of the pair's key or of the item; 1-based */
    const char *key, *text;
};

#define BR_EDITS_MAX 10000
struct br_edits {
    struct br_edit *items;
    size_t count;
    uint32_t cap;
};

/* Adds an edit at the position of the node `at` to the list `edits`. `key` and `text` must outlive
 * `edits`. Returns 0 or BR_ENOMEM. */
int br_edits_add(struct br_edits *edits, enum br_edit_kind kind, const struct br_yaml *at,
                 const char *key, const char *text);
void br_edits_release(struct br_edits *edits);

/* Appends the text, changed by `edits`, to `out`. `plain` is the tree that br_yaml_parse_plain
 * returns for the text. Some edits are not possible, for example inside an alias or at a key after
 * "? ". Such an edit is ignored or gives a wrong result, so the caller must parse the result and
 * compare it with the intended tree. Returns 0 or BR_ENOMEM. */
int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out);
