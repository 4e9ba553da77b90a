/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads, merges, splits and subsets the profiles dictionary; no other code knows how. Source:
 * opentelemetry/proto/profiles/v1development/profiles.proto at the numbering of 1.10 and later.
 *
 * Everything here takes items that br_walk has accepted: wire format and every index are valid.
 * Entry 0 of every table is the zero value and means "none", whatever a sender puts there.
 *
 * What is merged or split is written by the samples that use it: a sample leads to its stack, the
 * stack to its locations, and so on down to the strings, and each entry met for the first time is
 * taken over, unless an equal one is there. So nothing is in a dictionary that nobody uses.
 * Profiles keep their fields and the order of their samples; entries are decoded and written in one
 * form, which is what makes equal ones equal bytes. Senders mostly repeat themselves: what is the
 * same as in the request before is compared, not read (source.h).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "core/item.h"

/* --- Reading -------------------------------------------------------------------------------- */

enum br_table {
    BR_TABLE_MAPPING, /* field numbers in ProfilesDictionary: 1 to 7, in this order */
    BR_TABLE_LOCATION,
    BR_TABLE_FUNCTION,
    BR_TABLE_LINK,
    BR_TABLE_STRING,
    BR_TABLE_ATTRIBUTE,
    BR_TABLE_STACK,
    BR_TABLES,
};

struct br_entry {
    const uint8_t *data;
    uint32_t len;
};

struct br_late_strings;

/* The tables of an item's dictionary parts, indexed. Borrows the item's bytes. */
struct br_dictionary_view {
    struct br_entry *tables[BR_TABLES];
    uint32_t count[BR_TABLES];
    struct br_late_strings *late; /* strings that br_dictionary_string has yet to index; or NULL */
};

/* Indexes all dictionary parts of `item` (several count as one, concatenated); the arrays live in
 * `arena`. Returns 0, BR_EFULL when they do not fit into it, or BR_ENOMEM. */
int br_dictionary_index(const struct br_item *item, struct br_arena *arena,
                        struct br_dictionary_view *ret);

/* The same for some tables: `tables` has bit 1 << BR_TABLE_... of each. The others are empty in
 * `ret`. */
int br_dictionary_index_some(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret);

/* The same for whoever needs few of the strings: they are indexed as far as br_dictionary_string is
 * asked for them, and read by it alone. Strings are always among the tables. */
int br_dictionary_index_late(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret);

/* String `index`, or the empty one where there is none. */
struct br_entry br_dictionary_string(const struct br_dictionary_view *view, uint32_t index);

/* --- Merging -------------------------------------------------------------------------------- */

/* A dictionary under construction together with the profiles that refer to it. */
struct br_merge;

/* Returns a merger whose tables and output may take at most `max_bytes` (and BR_BUF_MAX); the index
 * of the request that is being read may take as much again. NULL when there is no memory. */
struct br_merge *br_merge_new(struct br_host *host, size_t max_bytes);
void br_merge_free(struct br_merge *merge);

/* Interns every dictionary entry that the item's profiles use (strings, functions, mappings,
 * attributes, links, locations, stacks; each once) and appends its ResourceProfiles with indices
 * rewritten, original_payload and unknown fields kept. Attribute references (key_strindex,
 * string_value_strindex) in resources, scopes and attribute values are written inline. Fields of
 * the request that we do not know stay, those of the dictionary itself do not. The item keeps its
 * parts and stays the caller's; the merger may hold on to the dictionary's buffer until
 * br_merge_take. Returns 0; BR_EFULL when the limit would be passed, BR_ENOMEM, or BR_EINVAL for
 * what no walk has accepted: all with the merger as it was before. */
int br_merge_add(struct br_merge *merge, const struct br_item *item);

/* Samples merged and an upper bound of the bytes that br_merge_take would write now. */
uint32_t br_merge_items(const struct br_merge *merge);
size_t br_merge_size(const struct br_merge *merge);

/* Returns the bytes that its tables hold now, but for what lies in buffers of the pool. */
size_t br_merge_memory(const struct br_merge *merge);

/* Writes what was merged as parts of `into` (an empty item without debt) and empties the merger,
 * which keeps its memory for the next batch. Returns 0 or BR_ENOMEM (nothing changed). */
int br_merge_take(struct br_merge *merge, struct br_item *into);

/* --- Splitting ------------------------------------------------------------------------------ */

typedef int br_split_fn(struct br_item *piece, void *arg);

/* Cuts a profiles item into pieces of at most `max_items` samples (0: no limit) and, where samples
 * allow, at most `max_bytes` on the wire (0: no limit), cutting inside a Profile where needed. Each
 * piece has a dictionary with only the entries that it uses, owes nothing, has no metadata, and
 * goes to `fn`, which takes it and returns 0 to go on. The parts of a Profile repeat what is not
 * samples, but original_payload, which goes with the first. `item` stays the caller's, unchanged.
 * Returns 0, BR_ENOMEM, BR_EFULL for what is too large to be cut, BR_EINVAL for what no walk has
 * accepted, or what `fn` returned; the pieces handed out so far are fn's to undo. */
int br_profiles_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                      br_split_fn *fn, void *arg);

/* The same for traces: cuts at ResourceSpans, ScopeSpans and spans. Pieces have no `spans`. */
int br_traces_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                    br_split_fn *fn, void *arg);

/* --- References ----------------------------------------------------------------------------- */

/* Returns true when a Resource, an InstrumentationScope or a value in the attribute table of the
 * item uses key_strindex or string_value_strindex (anywhere, also inside lists). Never for traces.
 */
bool br_item_has_references(const struct br_item *item);

/* Rewrites them inline, in place of the item's parts; does nothing where there are none. For
 * exporters to peers that are not known to resolve them. The dictionary keeps its entries and their
 * numbers. Returns 0, BR_ENOMEM or BR_EFULL (a part would pass BR_BUF_MAX; what was rewritten so
 * far is good), or BR_EINVAL for what no walk has accepted. */
int br_item_inline_references(struct br_item *item);
