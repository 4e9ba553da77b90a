/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redacts a profiles dictionary. Several entries may refer to one string, and only some of the
 * entries may have to be redacted. If all of them have to be redacted, the string is replaced in
 * place. Otherwise the redacted entries refer to a new string at the end of the table.
 */
#pragma once

#include "processors/redaction/messages.h"

struct redact_dictionary {
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES]; /* replacements of existing entries, by table and index */
    /* for each string, its replacement as a function name or a path */
    struct br_entry *function_texts, *path_texts;
    bool *function_checked, *path_checked;
};

/* Indexes the item, redacts the attribute table and prepares the walk over the profiles. Memory
 * comes from walk->arena. Returns 0, BR_ENOMEM, BR_EFULL, or BR_EINVAL for malformed data. */
int redact_dictionary_begin(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            const struct br_item *item);

/* Finishes the dictionary after the walk over the profiles: redacts functions and mappings, and
 * then strings to which nothing refers any longer. Returns the same codes as
 * redact_dictionary_begin. */
int redact_dictionary_end(struct redact_dictionary *dictionary, struct redact_walk *walk,
                          struct br_item *item, double *functions, double *paths);
