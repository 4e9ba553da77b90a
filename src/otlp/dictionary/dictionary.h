/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads, merges and splits profiles dictionaries, and extracts parts of them. The format is that of
 * opentelemetry/proto/profiles/v1development/profiles.proto, with the field numbers that are used
 * since version 1.10 of opentelemetry-proto.
 *
 * All functions take items that br_walk has accepted: the wire format and all indices are valid.
 * Entry 0 of every table is the zero value and means "none", even if a sender stores another value
 * in entry 0.
 *
 * A merged or split dictionary is built from the samples: a sample refers to its stack, the stack
 * to its locations, and so on down to the strings. Each dictionary entry is copied to the result
 * when it is first reached, unless the result contains an equal entry. The merged or split
 * dictionary contains no unused entries.
 *
 * Profiles keep their fields and the order of their samples. Entries are decoded and written in one
 * canonical form, so that equal entries have equal bytes. Most senders repeat the same tables:
 * entries that are unchanged since the previous request are compared but not decoded (source.c).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "core/item.h"
#include "otlp/fields.h"

/* --- Reading -------------------------------------------------------------------------------- */

enum br_table {
    BR_TABLE_MAPPING, /* the tables are fields 1 to 7 of ProfilesDictionary, in this order */
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

struct br_lazy_strings;

/* An index of the dictionary of an item: for each entry of each table, the position and length of
 * its bytes. Borrows the item's bytes. */
struct br_dictionary_view {
    struct br_entry *tables[BR_TABLES];
    uint32_t count[BR_TABLES];
    /* strings indexed on demand by br_dictionary_string; NULL: strings are not indexed on demand */
    struct br_lazy_strings *lazy;
};

/* Indexes the dictionary of `item`. If the request has several ProfilesDictionary fields, they are
 * treated as one dictionary. The index is allocated in `arena`. Returns 0, BR_EFULL if the index
 * does not fit into the arena, or BR_ENOMEM. */
int br_dictionary_index(const struct br_item *item, struct br_arena *arena,
                        struct br_dictionary_view *ret);

/* Indexes only some tables: `tables` has a bit 1 << BR_TABLE_... for each table to index. The other
 * tables of `ret` are empty. Returns the same errors as br_dictionary_index. */
int br_dictionary_index_some(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret);

/* Indexes the tables in `tables`, and lets br_dictionary_string index strings on demand, for
 * callers that need few strings. Strings must be read with br_dictionary_string. Returns the
 * same errors as br_dictionary_index. */
int br_dictionary_index_lazy(const struct br_item *item, unsigned tables, struct br_arena *arena,
                             struct br_dictionary_view *ret);

/* Returns string `index`, or an empty string if the index does not exist. */
struct br_entry br_dictionary_string(const struct br_dictionary_view *view, uint32_t index);

/* --- Merging -------------------------------------------------------------------------------- */

/* A dictionary under construction, with the profiles that refer to it. */
struct br_merge;

/* Returns a merger whose tables and output use at most `max_bytes` bytes, and never more than
 * BR_BUF_MAX. The index of the request being merged may use another `max_bytes` bytes. Returns NULL
 * if memory runs out. */
struct br_merge *br_merge_new(struct br_host *host, size_t max_bytes);
void br_merge_free(struct br_merge *merge);

/* Merges an item. Every dictionary entry that the item's profiles use is interned: strings,
 * functions, mappings, attributes, links, locations and stacks. The item's ResourceProfiles are
 * appended with the new indices; original_payload and unknown fields are kept.
 *
 * Attribute references (key_strindex, string_value_strindex) in resources, scopes and attribute
 * values are replaced by the strings. Unknown fields of the request are kept; unknown fields of the
 * dictionary are dropped. The item is unchanged, and the caller still owns it. The merger may keep
 * a reference to the dictionary's buffer until br_merge_take.
 *
 * Returns 0, BR_EFULL if the limit would be exceeded, BR_ENOMEM, or BR_EINVAL if the item is
 * malformed. On failure the merger is unchanged. */
int br_merge_add(struct br_merge *merge, const struct br_item *item);

/* Returns the number of samples merged since the merger was last empty. */
uint32_t br_merge_records(const struct br_merge *merge);

/* Returns an upper bound of the bytes that br_merge_take would write. */
size_t br_merge_size(const struct br_merge *merge);

/* Returns the number of bytes allocated for the tables and indexes, not including buffers of the
 * pool. */
size_t br_merge_memory(const struct br_merge *merge);

/* Writes the merged request as parts of `into`, an empty item with no records to report to the
 * ledger. Empties the merger, which keeps its memory for the next batch. Returns 0 or BR_ENOMEM;
 * after BR_ENOMEM nothing has changed. */
int br_merge_take(struct br_merge *merge, struct br_item *into);

/* --- Splitting ------------------------------------------------------------------------------ */

typedef int br_split_fn(struct br_item *piece, void *arg);

/* Splits a profiles item into pieces of at most `max_items` samples and at most `max_bytes`
 * encoded bytes (0: no limit). A Profile is divided if necessary; a piece with a single sample
 * may exceed `max_bytes`. Each piece has a dictionary with only the entries that it uses, no
 * records to report to the ledger, and no metadata.
 *
 * Every piece of a Profile repeats the Profile's fields other than samples. Only the first piece
 * contains original_payload. Each piece is passed to `fn`, which takes ownership and returns 0
 * to continue. `item` is unchanged, and the caller still owns it.
 *
 * Returns 0, BR_ENOMEM, BR_EFULL if a piece is too large for a buffer, BR_EINVAL if the item is
 * malformed, or the error of `fn`. `fn` is responsible for the pieces that it received before an
 * error. */
int br_profiles_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                      br_split_fn *fn, void *arg);

/* Splits a traces item as br_profiles_split splits a profiles item. A piece may begin at any
 * ResourceSpans, ScopeSpans or span. The pieces have no list of spans (`spans` is NULL). */
int br_traces_split(const struct br_item *item, uint32_t max_items, size_t max_bytes,
                    br_split_fn *fn, void *arg);

/* --- References ----------------------------------------------------------------------------- */

/* Returns true if a Resource, an InstrumentationScope or a value in the attribute table of the item
 * uses key_strindex or string_value_strindex, at any depth. Returns false for traces. */
bool br_item_has_references(const struct br_item *item);

/* Replaces the references that br_item_has_references finds in the item's parts by the strings.
 * Does nothing if the item has no references. Exporters use this function for backends that may not
 * resolve references. The dictionary keeps its entries and their indices.
 *
 * Returns 0, BR_ENOMEM, BR_EFULL if a part would exceed BR_BUF_MAX, or BR_EINVAL if the item is
 * malformed. On failure the item is valid, with some of the references replaced. */
int br_item_inline_references(struct br_item *item);

/* --- References inside attributes (resolve.c) ------------------------------------------------- */

/*
 * Resolves references to the string table inside attributes: KeyValue.key_strindex and
 * AnyValue.string_value_strindex, at any depth. The fields are defined in
 * opentelemetry/proto/common/v1/common.proto, version 1.10 and later.
 */

/* Returns true if one of the attributes of a message uses a reference to the string table. The
 * attributes are the KeyValues in field `field` of the message. */
bool br_attributes_have_references(const uint8_t *body, size_t len, uint32_t field);

/* Returns true if an AnyValue uses a reference to the string table. */
bool br_value_has_references(const uint8_t *body, size_t len);

/* Replaces references to the string table by the strings. The output is appended to `*out`, up to
 * `max` bytes. `string` is called with `arg` and returns string number `i`. */
struct br_inliner {
    struct br_buf **out;
    size_t max;
    struct br_entry (*string)(const void *arg, uint64_t i);
    const void *arg;
};

/* Appends a message with references in its attributes replaced by strings, and everything else
 * unchanged. The attributes are field `field` of the message. If an attribute has both a key as
 * text and a reference to its key, the text is used unless it is empty. Returns 0, BR_EINVAL if the
 * message is malformed, BR_EFULL or BR_ENOMEM. */
int br_attributes_inline(const struct br_inliner *in, const uint8_t *body, size_t len,
                         uint32_t field);

/* Appends an AnyValue with references replaced by strings, and everything else unchanged. Returns
 * the same errors as br_attributes_inline. */
int br_value_inline(const struct br_inliner *in, const uint8_t *body, size_t len);
