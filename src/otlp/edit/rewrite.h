/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrites what is inside a part: spans, samples and the messages above them are kept, dropped or
 * replaced, one by one. New bytes are written only for the parts that change. It rewrites a
 * dictionary, too: entries are replaced in place, so that indices stay, and further ones are added.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"

enum br_level {
    BR_LEVEL_SCOPE,   /* InstrumentationScope, field 1 of ScopeSpans and ScopeProfiles */
    BR_LEVEL_PROFILE, /* Profile without its samples: asked after all of them */
    BR_LEVEL_ITEM,    /* Span or Sample */
};

enum br_change {
    BR_KEEP,
    BR_DROP,    /* scopes cannot be dropped; what is empty after drops goes by itself */
    BR_REPLACE, /* by `out` */
    BR_SPLIT, /* items: by the `n_out` in `out`, each with its tag and length; the item owes no more
                 than it did */
};

/* One message: its body as it came, and where a replacement goes (memory of the callback's, good
 * until its next call). `index` counts the messages of that level in the item. */
struct br_visit {
    enum br_level level;
    uint32_t index;
    uint32_t part; /* of the item */
    const uint8_t *body;
    size_t len;
    struct br_addition out;
    uint32_t n_out;
};

/* Returns a verdict, or a negative error code, which ends the rewriting. */
typedef int br_visit_fn(void *arg, struct br_visit *visit);

/* Visits the messages of the levels in `levels` (bits 1 << enum br_level) in the order they lie in
 * the parts; n_items of parts and item follow, spans are forgotten where something changed. The
 * ledger debt stays: the caller settles what was dropped. The dictionary of a profiles item keeps
 * entries that nobody uses any more. Returns 0, BR_EINVAL for what no walk has accepted, BR_ENOMEM,
 * BR_EFULL (a part would pass BR_BUF_MAX), or what the callback returned; on failure the item is
 * unchanged. */
int br_item_rewrite(struct br_item *item, unsigned levels, br_visit_fn *visit, void *arg);

/* Replaces entries of the item's dictionary: entries[table][i], where its data is not NULL (an
 * empty entry has a length of 0), stands in for entry i, for the tables that are not NULL; `view`
 * is the item's index. Adds the fields of ProfilesDictionary in `more` at the end (NULL: none):
 * further entries, numbered behind those that are there. Returns 0, BR_ENOMEM or BR_EFULL as above
 * (the item is unchanged). */
int br_item_rewrite_dictionary(struct br_item *item, const struct br_dictionary_view *view,
                               const struct br_entry *const entries[BR_TABLES],
                               const struct br_addition *more);
