/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of attributes that can be changed. If the attributes belong to a message (a Resource, a
 * Span), the list also contains all other parts of the message. These parts are written unchanged
 * and at the same position. For a sample or a profile, the attributes are entries of the
 * dictionary.
 */
#pragma once

#include "attribute/value.h"
#include "otlp/dictionary/dictionary.h"
#include "otlp/fields.h"

#define BR_ATTRIBUTES_MAX 65536

struct br_additions;

struct br_attribute {
    /* the bytes, as received, of this attribute or of another part of the message */
    const uint8_t *raw;
    size_t raw_len;
    /* For an entry of the dictionary: its index in the attribute table (0: not an entry), and
     * the indices of the strings that are its key and its unit. */
    uint32_t entry, key_string, unit;
    const uint8_t *key;
    size_t key_len;
    struct br_value value;
    /* `attribute`: this entry is an attribute, not another part of the message; `edited`: the
     * attribute was changed or added; `deleted`: the attribute was deleted */
    bool attribute, edited, deleted;
};

/* A cache of the results of actions and conditions on long attribute values. The key is the address
 * of the value, because several lists may contain the same value. A memo is used for one item only,
 * while the item's bytes do not move. The caller zeroes the memo and then sets `arena`. */
#define BR_VALUE_MEMO_MAX (1u << 20) /* maximum number of results; further results are not kept */
struct br_value_memo {
    struct br_arena *arena;
    struct br_map *known;
};
/* Frees the results. A memo that is all zero is allowed. */
void br_value_memo_release(struct br_value_memo *memo);

struct br_attributes {
    struct br_attribute *pieces;
    uint32_t count, cap;
    uint32_t field;         /* field number of the attributes in the message */
    struct br_arena *arena; /* arena in which the results of actions are allocated */
    /* memo for values that several lists contain; NULL: results are not cached */
    struct br_value_memo *memo;
    bool no_memory, too_many;
    /* number of times that matching a pattern took too long; the caller resets this number */
    unsigned n_gave_up;
};

/* Reads a message whose attributes are in field number `field`. br_walk (otlp/walk/walk.h) must
 * have accepted the message. Replaces the content of `attributes`, which then refers to the bytes
 * of the message. Returns false and sets `no_memory` if memory runs out, or `too_many` if there are
 * too many attributes. */
bool br_attributes_read(struct br_attributes *attributes, uint32_t field, const uint8_t *data,
                        size_t len);

/* Empties the list, so that br_sample_attributes_add can fill it. */
void br_attributes_clear(struct br_attributes *attributes);

void br_attributes_release(struct br_attributes *attributes);

/* Returns the first attribute with the key, or NULL. */
struct br_attribute *br_attributes_find(const struct br_attributes *attributes, const void *key,
                                        size_t len);

/* Replaces the value of an attribute of the list. */
void br_attribute_set(struct br_attribute *attribute, struct br_value value);

/* Sets the value of a key: replaces the value of the first attribute with this key, or appends
 * an attribute. If memory runs out or there are too many attributes, sets `no_memory` or
 * `too_many`. */
void br_attributes_put(struct br_attributes *attributes, const void *key, size_t key_len,
                       struct br_value value);

/* Returns true if an attribute was changed, added or deleted since the list was read. */
bool br_attributes_changed(const struct br_attributes *attributes);

/* Returns the size, in bytes, that br_attributes_write writes: the message with its changes. */
size_t br_attributes_size(const struct br_attributes *attributes);

/* Writes the message with its changes to `p`. Returns the address after the last byte. */
uint8_t *br_attributes_write(const struct br_attributes *attributes, uint8_t *p);

/* --- Attributes of samples and profiles ------------------------------------------------------- */

/* Appends the attributes whose indices are in field `field` of a Sample or a Profile, except index
 * 0. The values are taken from the dictionary. The values contain references to the string table
 * only if the item contains such references. Returns false if memory runs out or there are too many
 * attributes. */
bool br_sample_attributes_add(struct br_attributes *attributes,
                              const struct br_dictionary_view *view, uint32_t field,
                              const uint8_t *body, size_t len);

/* Adds a dictionary entry for an attribute that was changed or added, and returns its index. The
 * unit of the attribute is kept if the value is a number. Uses `arena` for the entry. On failure,
 * returns 0 and stores the error in additions->rc. */
uint32_t br_attribute_add_entry(const struct br_attribute *attribute,
                                struct br_additions *additions, struct br_arena *arena);
