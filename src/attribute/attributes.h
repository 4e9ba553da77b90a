/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of attributes that can be changed. Either they are inside a message (a Resource, a Span):
 * then everything else of it is a piece of the list too, and is written byte for byte as it came,
 * in its place. Or they are those that a sample or a profile has in the dictionary.
 */
#pragma once

#include "attribute/value.h"

#define BR_ATTRIBUTES_MAX 65536

struct br_attribute {
    const uint8_t *raw; /* as it came, in a message */
    size_t raw_len;
    /* In the dictionary: the entry in its attribute table (0: none), and two strings of it. */
    uint32_t entry, key_string, unit;
    const uint8_t *key;
    size_t key_len;
    struct br_value value;
    bool attribute, edited, deleted; /* what is new is edited too */
};

/* What actions made of long values, of which several lists may have the same: by where they lie. Of
 * one item, whose bytes stay where they are; zeroed, then `arena` set. */
#define BR_VALUE_MEMO_MAX (1u << 20) /* further ones are worked on each time */
struct br_value_memo {
    struct br_arena *arena;
    struct br_map *known;
};
void br_value_memo_release(struct br_value_memo *memo); /* accepts a zeroed one */

struct br_attributes {
    struct br_attribute *pieces;
    uint32_t count, cap;
    uint32_t field;             /* the number of `attributes` in the message */
    struct br_arena *arena;     /* for whatever the actions make */
    struct br_value_memo *memo; /* NULL: every value is of one list */
    bool no_memory, too_many;
    unsigned n_gave_up; /* times that a pattern took too long; only its reader resets it */
};

/* Reads a message that a walk has accepted, whose attributes are field `field`, dropping what
 * `attributes` held. It points into the bytes. False when there is no memory or there are too many
 * attributes (then `attributes` says which). */
bool br_attributes_read(struct br_attributes *attributes, uint32_t field, const uint8_t *data,
                        size_t len);

/* Drops what `attributes` held, for a list of its own. */
void br_attributes_clear(struct br_attributes *attributes);

/* Appends an attribute of the dictionary. False as br_attributes_read. */
bool br_attributes_add(struct br_attributes *attributes, const struct br_attribute *attribute);

void br_attributes_release(struct br_attributes *attributes);

/* Returns the first attribute of the key, or NULL. */
struct br_attribute *br_attributes_find(const struct br_attributes *attributes, const void *key,
                                        size_t len);

/* Changes an attribute, or appends one. */
void br_attribute_set(struct br_attribute *attribute, struct br_value value);
void br_attributes_put(struct br_attributes *attributes, const void *key, size_t key_len,
                       struct br_value value);

/* Returns whether anything was changed, added or deleted since it was read. */
bool br_attributes_changed(const struct br_attributes *attributes);

/* Returns the bytes that the message takes now, and writing them. */
size_t br_attributes_size(const struct br_attributes *attributes);
uint8_t *br_attributes_write(const struct br_attributes *attributes, uint8_t *p);
