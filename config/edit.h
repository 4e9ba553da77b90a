/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a YAML text and leaves everything else as it is: order, comments, quotes, spaces. */
#pragma once

#include "base/str.h"
#include "config/yaml.h"

enum br_edit_kind {
    BR_EDIT_CUT,  /* takes the pair out; `text` is a comment in its place, or NULL */
    BR_EDIT_DROP, /* the same for an item of a list, which may stand where its first key does */
    BR_EDIT_SET,  /* the pair's value becomes `text` */
    BR_EDIT_PUT,  /* the pair's value, a map or nothing, gets `key: text` before its other pairs;
                     several such edits add their pairs in order */
};

struct br_edit {
    enum br_edit_kind kind;
    int line, col; /* of the pair's key, or of the item */
    const char *key, *text;
};

#define BR_EDITS_MAX 10000
struct br_edits {
    struct br_edit *items;
    size_t count;
    uint32_t cap;
};

/* Appends one at the place of `at`. `key` and `text` are borrowed for the list's life. Returns 0 or
 * BR_ENOMEM. */
int br_edits_add(struct br_edits *edits, enum br_edit_kind kind, const struct br_yaml *at,
                 const char *key, const char *text);
void br_edits_release(struct br_edits *edits);

/* Appends the changed text. `plain` is the text's tree by br_yaml_parse_plain. What cannot be done
 * at its place (inside an alias, at a key behind "? ") is done wrong or not at all: the caller
 * reads the result and compares. Returns 0 or BR_ENOMEM. */
int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out);
