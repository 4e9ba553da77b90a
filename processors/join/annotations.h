/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the results of the join: attributes and links of samples, totals of spans. */
#pragma once

#include "otlp/dictionary/additions.h"
#include "processors/join/sample_view.h"

/* --- Onto samples ----------------------------------------------------------------------- */

/* Keys, attributes and links to which joined samples refer and that their dictionary lacks. Each
 * is added to the dictionary once. */

#define JOIN_KEYS_MAX 18 /* number of keys: span.name, 16 configured keys, and profile.join */

struct join_additions {
    struct br_additions made;
    /* string index of each key; 0: the key has not been added yet */
    uint32_t keys[JOIN_KEYS_MAX];
    /* index of the attribute with the value `_other`, for each key; 0: not added yet */
    uint32_t others[JOIN_KEYS_MAX];
    struct br_map *seen; /* key number and value -> attribute index + 1 */
    /* memory ran out; the additions are incomplete and must not be used */
    bool no_memory;
};

/* Starts a list of additions after the entries of `view`. */
void join_additions_init(struct join_additions *additions, const struct br_dictionary_view *view);
void join_additions_release(struct join_additions *additions);

/* Returns true if a value that is not among the additions yet may be used for key number `key`. */
typedef bool join_allowed_fn(void *arg, unsigned key, const uint8_t *value, size_t len);

/* Returns the index of an attribute with key number `key`, whose name is `name`. Its value is a
 * text of at most JOIN_VALUE_MAX bytes. If `allowed` returns false, `_other` replaces the text,
 * and `*ret_other` becomes true. */
uint32_t join_additions_attribute(struct join_additions *additions, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other);

/* Returns the index of a link; `trace_id` may be NULL. */
uint32_t join_additions_link(struct join_additions *additions, const uint8_t *trace_id,
                             const uint8_t *span_id);

/* Removes span-id labels from each sample whose entry in `drops` is true, because the link of
 * that sample names another span. `labels` are those of the first `n_labels` attributes. Returns
 * 0 or an error of br_item_rewrite; the item is then unchanged. */
int join_drop_span_labels(struct br_item *item, const bool *drops, const struct join_label *labels,
                          uint32_t n_labels, struct br_arena *arena);

/* Adds the collected entries to the item's dictionary, as a new part of the item. Returns 0
 * (also without entries) or BR_ENOMEM. */
int join_additions_write(const struct join_additions *additions, struct br_item *item);
