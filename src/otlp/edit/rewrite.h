/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rewrites the contents of an item's parts. Spans, samples and the messages that contain them are
 * kept, dropped or replaced one by one. New bytes are written only for the parts that change. Also
 * rewrites the dictionary of an item: entries are replaced in place, so that indices stay valid,
 * and new entries are appended.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/item.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/edit/edit.h"

enum br_level {
    /* the level of InstrumentationScope, which is field 1 of ScopeSpans and ScopeProfiles; if it
     * is absent, it is visited as an empty message after the other fields */
    BR_LEVEL_SCOPE,
    /* the level of Profile without its samples; a Profile is visited after all of its samples */
    BR_LEVEL_PROFILE,
    BR_LEVEL_RECORD, /* Span or Sample */
};

enum br_change {
    BR_KEEP,
    /* remove the message, which must not be a scope; a message whose children are all removed is
     * removed too */
    BR_DROP,
    BR_REPLACE, /* replace the message's body with `out` */
    /* Replace the message with the `n_out` messages in `out`, each with its tag and length. Only
     * spans and samples can be split. The number of records to report to the ledger does not
     * grow. */
    BR_SPLIT,
};

/* A visited message: its original body, and its replacement in `out`. The callback owns the
 * memory of the replacement and keeps it until the next call of the callback. `index` is the
 * number of messages at the same level that precede the message in the item. */
struct br_visit {
    enum br_level level;
    uint32_t index;
    uint32_t part; /* index of the part in the item */
    const uint8_t *body;
    size_t len;
    struct br_addition out;
    uint32_t n_out;
};

/* Returns an enum br_change, or a negative error code, which ends the rewriting with that error. */
typedef int br_visit_fn(void *arg, struct br_visit *visit);

/* Visits the messages of the levels in `levels` (bits 1 << enum br_level) in the order of the
 * bytes. Updates `n_records` of the parts and of the item. If anything changed, the item's list
 * of spans is discarded. The caller reports dropped records to the ledger. Dictionary entries
 * that the remaining samples do not use are kept.
 *
 * Returns 0, BR_EINVAL if a part is malformed, BR_ENOMEM, BR_EFULL if a part would exceed
 * BR_BUF_MAX, or the callback's error. On failure the item is unchanged. */
int br_item_rewrite(struct br_item *item, unsigned levels, br_visit_fn *visit, void *arg);

/* Replaces entries of the item's dictionary. Entry i of a table is replaced with
 * entries[table][i], unless the `data` of entries[table][i] is NULL. An empty replacement has a
 * length of 0, and `data` that is not NULL. If entries[table] is NULL, the table stays
 * unchanged. `view` locates the entries of the item's dictionary. `more` (NULL: none) contains
 * fields of a ProfilesDictionary, which are appended after the existing entries.
 *
 * Returns 0, BR_ENOMEM, or BR_EFULL if a part would exceed BR_BUF_MAX or the item has too many
 * parts. On failure the item is unchanged. */
int br_item_rewrite_dictionary(struct br_item *item, const struct br_dictionary_view *view,
                               const struct br_entry *const entries[BR_TABLES],
                               const struct br_addition *more);
