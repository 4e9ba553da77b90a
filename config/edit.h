/* SPDX-License-Identifier: Apache-2.0 */
/* Changes a YAML text and keeps everything else: order, comments, quotes, blanks. */
#pragma once

#include "base/str.h"
#include "config/yaml.h"

enum br_edit_kind {
    BR_EDIT_CUT,  /* removes the pair; `text` is a comment in its place, or NULL */
    BR_EDIT_DROP, /* removes an item of a list, whose place may be that of its first key */
    BR_EDIT_SET,  /* replaces the pair's value by `text` */
    /* inserts `key: text` before the other pairs of the pair's value, a map or nothing; several
     * such edits add their pairs in order */
    BR_EDIT_PUT,
};

struct br_edit {
    enum br_edit_kind kind;
    int line, col; /* place of the pair's key, or of the item */
    const char *key, *text;
};

#define BR_EDITS_MAX 10000
struct br_edits {
    struct br_edit *items;
    size_t count;
    uint32_t cap;
};

/* Appends an edit at the place of `at`. `key` and `text` must outlive the list. Returns 0 or
 * BR_ENOMEM. */
int br_edits_add(struct br_edits *edits, enum br_edit_kind kind, const struct br_yaml *at,
                 const char *key, const char *text);
void br_edits_release(struct br_edits *edits);

/* Appends the changed text to the output. `plain` is the tree that br_yaml_parse_plain returns
 * for the text. An edit that is impossible at its place (inside an alias, at a key after "? ")
 * has no effect or a wrong one: the caller must parse the result and compare. Returns 0 or
 * BR_ENOMEM. */
int br_yaml_edit(const char *text, size_t len, const struct br_yaml *plain,
                 const struct br_edits *edits, struct br_str *out);
