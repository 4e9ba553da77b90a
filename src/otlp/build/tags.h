/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of tags, which are keys with values as Zipkin and Jaeger send them. The list finds tags by
 * their keys, and ensures that each key occurs only once in the attributes made from it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "otlp/fields.h"

struct br_tag {
    const char *key;
    const uint8_t *data; /* types STRING and BYTES: the value, borrowed like `key` */
    uint32_t key_len, len;
    uint64_t number;         /* types BOOL, INT and DOUBLE: the bits of the value */
    enum br_value_type type; /* type of the value: STRING, BYTES, BOOL, INT or DOUBLE */
    bool dropped;            /* the tag does not become an attribute */
};

struct br_tags {
    struct br_tag *items; /* tags in the order in which they were added */
    uint32_t *order;      /* indices of the tags, sorted by br_tags_sort */
    uint32_t count, cap, cap_order, n_sorted;
};

/* Frees the memory of the list. Accepts a zeroed list. */
void br_tags_release(struct br_tags *tags);

/* Removes all tags. */
void br_tags_clear(struct br_tags *tags);

/* Appends a tag, whose key and value are borrowed until the list is cleared. Returns 0 or
 * BR_ENOMEM. */
int br_tags_add(struct br_tags *tags, const struct br_tag *tag);

/* Appends a tag with a string. Returns 0 or BR_ENOMEM. */
int br_tags_add_text(struct br_tags *tags, const char *key, const char *value, size_t len);

/* If the key of the tag is `old`, replaces the key by `key`, which is borrowed until the list is
 * cleared. */
void br_tag_rename(struct br_tag *tag, const char *old, const char *key);

/* Prepares the list for br_tags_find. If several tags have the same key, all but the last of them
 * are dropped. Takes O(n log n) time for n tags. Returns 0 or BR_ENOMEM. */
int br_tags_sort(struct br_tags *tags);

/* Returns the tag with this key, or NULL if no tag has this key or the tag was dropped. Tags that
 * were added after br_tags_sort are not found. */
struct br_tag *br_tags_find(const struct br_tags *tags, const char *key);

/* Returns true if the value of the tag is the string `text`. */
bool br_tag_is(const struct br_tag *tag, const char *text);
