/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Redacts a profiles dictionary. Several things may refer to one string, and only some of them are
 * to be redacted. Where all are, the string is replaced in its place. Otherwise those that are to
 * be redacted get a string of their own, at the end of the table.
 */
#pragma once

#include "processors/redaction/messages.h"

struct redact_dictionary {
    struct br_dictionary_view view;
    struct br_entry *entries[BR_TABLES];          /* replacements */
    struct br_entry *function_texts, *path_texts; /* by string: what becomes of it as such */
    bool *function_asked, *path_asked;
};

/* Indexes the item, redacts the attribute table and prepares the walk, before the profiles are
 * walked. Everything lives in w->arena. Returns 0 or as redact_message. */
int redact_dictionary_begin(struct redact_dictionary *dictionary, struct redact_walk *walk,
                            const struct br_item *item);

/* Ends the walk over the profiles: redacts functions and mappings, and then the strings that
 * nothing that stays refers to. */
int redact_dictionary_end(struct redact_dictionary *dictionary, struct redact_walk *walk,
                          struct br_item *item, double *functions, double *paths);
