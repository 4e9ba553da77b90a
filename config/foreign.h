/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists the Collector's components that are not in the registry: those that Braid has under another
 * name, those that change no data and may be left out, and, of the others, what they did. Names and
 * aliases are those of the Collector 0.155 to 0.165 and of its contrib distribution.
 */
#pragma once

#include <stdbool.h>

#include "config/kind.h"

enum br_foreign_fate {
    BR_FOREIGN_LACKING, /* Braid has nothing of the kind */
    BR_FOREIGN_SAME,    /* Braid has it as `as` */
    BR_FOREIGN_IDLE,    /* it changes no data: naming it has no effect */
};

struct br_foreign {
    enum br_kind kind;
    const char *name;
    const char *alias; /* another spelling, or NULL */
    enum br_foreign_fate fate;
    const char *as;   /* SAME: a name of the registry; else NULL */
    const char *does; /* "adds k8s.* attributes to resources": continues a sentence */
    const char *left; /* what is left to do for who needs that: a sentence of its own, or NULL */
};

/* Returns what to do instead of a key that the Collector's sections have and none of Braid's, such
 * as `auth`, in the section at `path`: a sentence, or NULL for any other key. */
const char *br_foreign_key(const char *path, const char *key);

/* Returns true for a processor whose absence, or the absence of one of its settings, does not let
 * records or values pass that it would drop, hide or change: it adds attributes, gathers requests
 * or makes metrics. False for unknown ones. */
bool br_foreign_is_harmless(const char *type);

/* Returns the row of that kind with the name or alias, or NULL. */
const struct br_foreign *br_foreign_find(enum br_kind kind, const char *name);

/* Returns what `name` is most likely a misspelling of: the nearest name or alias of the rows of
 * that kind, where it is nearer than `known` (may be NULL); else `known`. */
const char *br_foreign_nearest(enum br_kind kind, const char *name, const char *known);
