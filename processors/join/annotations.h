/* SPDX-License-Identifier: Apache-2.0 */
/* Changes the samples of an item: adds attributes and links. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/index.h"
#include "otlp/dictionary/additions.h"
#include "otlp/dictionary/dictionary.h"
#include "processors/join/sample_view.h"

/* --- Attributes and links --------------------------------------------------------------------- */

/* Entries to add to the item's dictionary: the keys, attributes and links of joined samples that
 * the dictionary does not contain. Each key, attribute and link is added to the dictionary once. */

/* number of attribute keys: span.name, 16 configured keys, and profile.join */
#define JOIN_KEYS_MAX 18

struct join_additions {
    struct br_additions made;
    /* for each key number: string index of the key; 0: the key has not been added yet */
    uint32_t keys[JOIN_KEYS_MAX];
    /* for each key number: index of the attribute with the value `_other`; 0: the attribute has
     * not been added yet */
    uint32_t others[JOIN_KEYS_MAX];
    struct br_map *seen; /* maps a key number and a value to the index of the attribute, plus 1 */
    /* memory was short, so the additions are incomplete and must not be used */
    bool no_memory;
};

/* Starts an empty list of additions, whose indices begin after the entries of `view`. */
void join_additions_init(struct join_additions *additions, const struct br_dictionary_view *view);
void join_additions_release(struct join_additions *additions);

/* Called for a value that is not among the additions yet. Returns true if the value may be added
 * for key number `key`. */
typedef bool join_allowed_fn(void *arg, unsigned key, const uint8_t *value, size_t len);

/* Returns the index of an attribute with key number `key`, whose name is `name`. The attribute's
 * value is a text of at most JOIN_VALUE_MAX bytes. If `allowed` returns false, the value is
 * `_other` instead, and `*ret_other` becomes true. */
uint32_t join_additions_attribute(struct join_additions *additions, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other);

/* Returns the index of a link to a span. `trace_id` may be NULL. */
uint32_t join_additions_link(struct join_additions *additions, const uint8_t *trace_id,
                             const uint8_t *span_id);

/* Removes span-id labels from each sample whose entry in `drops` is true, because the link of
 * that sample names another span. `labels` contains the labels of the first `n_labels`
 * attributes. Returns 0 or an error of br_item_rewrite; the item is then unchanged. */
int join_drop_span_labels(struct br_item *item, const bool *drops, const struct join_label *labels,
                          uint32_t n_labels, struct br_arena *arena);

/* Adds the collected entries to the item's dictionary, as a new part of the item. Returns 0 or
 * BR_ENOMEM. Does nothing if there are no entries. */
int join_additions_write(const struct join_additions *additions, struct br_item *item);

/* --- Samples whose links are not decided yet -------------------------------------------------- */

/*
 * Samples whose links are kept only if their span used much CPU time. The CPU time of a span is
 * known once all samples of the item have been added to their spans. The struct takes 4 bytes per
 * sample, and 40 bytes per span and profile type.
 */

/* The samples of one profile type that name the same span. */
struct join_undecided_span {
    uint8_t trace[16], span[8];
    uint16_t type;    /* number of the profile type */
    bool has_trace;   /* false: the trace id is unknown, and `trace` is zero */
    bool folds;       /* set by the caller: true if the samples lose their links */
    uint32_t samples; /* number of samples */
    double value;     /* sum of the samples' values, in the unit of the profile type */
};

/* The struct must be zeroed before its first use. */
struct join_undecided {
    /* for each sample: index of its span in `spans`, plus 1; 0: whether the link is kept has
     * already been decided. NULL: this has been decided for all samples */
    uint32_t *of;
    uint32_t n_samples;
    struct join_undecided_span *spans;
    /* number of elements of `spans`, and number of elements for which `spans` has room */
    uint32_t count, cap;
    struct br_index index; /* hash index of `spans` */
};

/* Adds sample `index` of an item with `n_samples` samples. `trace` is NULL if the trace id is
 * unknown. Returns 0 or BR_ENOMEM. */
int join_undecided_add(struct join_undecided *undecided, uint32_t n_samples, uint32_t index,
                       const uint8_t *trace, const uint8_t *span, uint16_t type, double value);

/* Releases the memory and zeroes the struct. Accepts a zeroed struct. */
void join_undecided_release(struct join_undecided *undecided);
