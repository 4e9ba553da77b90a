/* SPDX-License-Identifier: Apache-2.0 */
/* Writes what the join found: attributes and links onto samples, totals onto spans. */
#pragma once

#include "otlp/dictionary/additions.h"
#include "processors/join/sample_view.h"

/* --- Onto samples ----------------------------------------------------------------------- */

/* What joined samples refer to and their dictionary has not: keys, attributes and links, each once.
 */

#define JOIN_KEYS_MAX 18 /* span.name, 16 more, and profile.join */

struct join_additions {
    struct br_additions made;
    uint32_t keys[JOIN_KEYS_MAX];   /* string index of each key; 0: not there yet */
    uint32_t others[JOIN_KEYS_MAX]; /* attribute index of each key's `_other` */
    struct br_map *seen;            /* attribute indices + 1 by key number and value */
    bool no_memory;                 /* what it says is not to be used */
};

/* Begins behind the entries of `view`; memory comes from `arena`, which lives longer. */
void join_additions_init(struct join_additions *additions, const struct br_dictionary_view *view);
void join_additions_release(struct join_additions *additions);

/* Says whether a value that is new to the additions may be used for key number `key`. */
typedef bool join_allowed_fn(void *arg, unsigned key, const uint8_t *value, size_t len);

/* Returns the index of an attribute with a text (at most JOIN_VALUE_MAX bytes) and key number
 * `key`, called `name`; where `allowed` says no it is `_other`, and `*ret_other` true. */
uint32_t join_additions_attribute(struct join_additions *additions, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other);

/* Returns the index of a link; `trace_id` may be NULL. */
uint32_t join_additions_link(struct join_additions *additions, const uint8_t *trace_id,
                             const uint8_t *span_id);

/* Takes the labels that name a span off the samples for which `drops` says so: their links name
 * another one. `labels` are of the first `n_labels` attributes. Returns 0, or an error of
 * br_item_rewrite, and the item is as it was. */
int join_drop_span_labels(struct br_item *item, const bool *drops, const struct join_label *labels,
                          uint32_t n_labels, struct br_arena *arena);

/* Adds the entries to the item as a part. Returns 0 (also where there is nothing) or BR_ENOMEM. */
int join_additions_write(const struct join_additions *additions, struct br_item *item);
