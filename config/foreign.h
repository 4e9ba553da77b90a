/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists components of the Collector that are not in the registry: those that Braid has under
 * another name, those that change no data and can be left out, and what the others do. Names and
 * aliases are those of the Collector 0.155 to 0.165 and of its contrib distribution.
 */
#pragma once

#include <stdbool.h>

#include "config/kind.h"

enum br_foreign_fate {
    BR_FOREIGN_LACKING, /* Braid has no equivalent */
    BR_FOREIGN_SAME,    /* Braid has it under the name `as` */
    BR_FOREIGN_IDLE,    /* it changes no data; its section has no effect */
};

struct br_foreign {
    enum br_kind kind;
    const char *name;
    const char *alias; /* another spelling, or NULL */
    enum br_foreign_fate fate;
    const char *as;   /* SAME: a name in the registry; else NULL */
    const char *does; /* continues a sentence, as in "adds k8s.* attributes to resources" */
    const char *left; /* advice to users who need it, a sentence; or NULL */
};

/* Returns advice for a key, such as `auth`, that sections of the Collector have and Braid's do
 * not, in the section at `path`. Returns a sentence, or NULL for any other key. */
const char *br_foreign_key(const char *path, const char *key);

/* Returns true for a processor that only adds attributes, batches requests or makes metrics.
 * Leaving it out, or one of its settings, then does not let through data that it would drop,
 * hide or change. Returns false for unknown processors. */
bool br_foreign_is_harmless(const char *type);

/* Returns the row of this kind with the name or alias, or NULL. */
const struct br_foreign *br_foreign_find(enum br_kind kind, const char *name);

/* Returns the most likely correct spelling of `name`: the nearest name or alias among the rows
 * of this kind if it is nearer than `known` (may be NULL), else `known`. */
const char *br_foreign_nearest(enum br_kind kind, const char *name, const char *known);
