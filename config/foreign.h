/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lists components of the Collector that are not in Braid's registry. Such a component has another
 * name in Braid, or changes no data and can be left out, or has no equivalent in Braid. Names and
 * aliases are those of versions 0.155 to 0.165 of the Collector and of its contrib distribution.
 */
#pragma once

#include <stdbool.h>

#include "config/kind.h"

enum br_foreign_support {
    BR_FOREIGN_LACKING, /* Braid has no equivalent of the component */
    BR_FOREIGN_SAME,    /* Braid has the component under the name `as` */
    BR_FOREIGN_IDLE,    /* the component changes no data; its section has no effect */
};

struct br_foreign {
    enum br_kind kind;
    const char *name;
    const char *alias; /* another spelling of the name, or NULL */
    enum br_foreign_support support;
    const char *as; /* BR_FOREIGN_SAME: the component's name in the registry; otherwise NULL */
    /* purpose of the component, worded as the end of a sentence: "adds k8s.* attributes to
     * resources" */
    const char *purpose;
    /* advice, in one sentence, for users who need the component; NULL: no advice */
    const char *advice;
};

/* Returns advice, in one sentence, for a key, such as `auth`, that the Collector supports in the
 * section at `path` and Braid does not support. Returns NULL for any other key. */
const char *br_foreign_key(const char *path, const char *key);

/* Returns true if the Collector, but not Braid, supports the value `value` for the key `key` in the
 * section at `path`. */
bool br_foreign_value(const char *path, const char *key, const char *value);

/* Returns true for a processor that only adds attributes, batches requests or produces metrics.
 * Such a processor does not drop, hide or change received data. The processor, or one of its
 * settings, can therefore be left out without a loss. Returns false for unknown processors. */
bool br_foreign_is_harmless(const char *type);

/* Returns the row for the component of this kind whose name or alias is `name`, or NULL. */
const struct br_foreign *br_foreign_find(enum br_kind kind, const char *name);

/* Returns true if the Collector's contrib distribution, or Jaeger, has a component of this kind and
 * name. Also returns true for components that Braid has, and for older spellings of names. */
bool br_foreign_is_collectors(enum br_kind kind, const char *name);

/* Returns the most likely correct spelling of `name`: the most similar text among `known` (may be
 * NULL) and the names and aliases of this kind. Returns NULL if no text is similar enough. */
const char *br_foreign_nearest(enum br_kind kind, const char *name, const char *known);
