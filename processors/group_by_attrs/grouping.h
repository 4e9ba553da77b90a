/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arranges the records of an item in a new tree of messages. The nodes of the tree are the
 * ResourceX, ScopeX and Profile messages of the output. Each node is made from a message of the
 * item, its source.
 *
 * Nodes are identified by sums of keyed hashes, one hash for each field of a message. The sum does
 * not depend on the order of the fields, and the sum of a Resource with another value of an
 * attribute is computed without reading the Resource again.
 */
#pragma once

#include "attribute/attributes.h"
#include "base/map.h"
#include "config/option.h"
#include "core/item.h"

#define GROUP_NONE UINT32_MAX /* "no node" or "no record" */

enum group_level { GROUP_RESOURCE, GROUP_SCOPE, GROUP_PROFILE };

struct group_sum {
    uint64_t low, high;
};

/* Bytes of the item or of the grouping's arena. */
struct group_bytes {
    const uint8_t *data;
    size_t len;
};

/* The value of an attribute that is moved. */
struct group_value {
    struct br_value value; /* `data` is NULL if there is no attribute */
    uint32_t key;          /* index in `keys`, plus 1; 0: the attribute stays */
    struct group_sum hash; /* hash of key and value */
};

struct group_node {
    uint32_t parent; /* index of the node that contains this one; RESOURCE: GROUP_NONE */
    /* Fields of the message: its Resource, its other fields, and for the first node of a Profile
     * its original payload. `resource.data` is NULL if there is no Resource. */
    struct group_bytes resource, head, payload;
    uint8_t level; /* enum group_level */
    uint32_t n_records;
    /* Children are nodes or, at the lowest level, records. */
    uint32_t first_child, last_child, next;
    size_t size; /* length of the message in the output, in bytes */
};

struct group_record {
    const uint8_t *body; /* span or sample in the item */
    size_t len;
    size_t new_len; /* length in the output, in bytes */
    uint32_t next;  /* index of the next record of the node; GROUP_NONE: none */
    bool edited;    /* attributes have to be removed from the record */
};

struct grouping {
    struct br_item *item;
    const struct br_strings *keys; /* keys of the attributes that are moved to resources */
    const uint64_t *secret;        /* secret of the hashes, 4 numbers */
    struct br_attributes *list;    /* attributes of the current span or Resource */
    struct br_arena arena;
    struct group_node *nodes;
    struct group_record *records;
    uint32_t n_nodes, cap_nodes, n_records, cap_records;
    uint32_t first_resource, last_resource;
    uint32_t n_resources, n_scopes; /* number of RESOURCE and SCOPE nodes */
    struct br_map *known;           /* maps a node's parent, level and sum to its index + 1 */
    struct group_value *table;      /* profiles: for each attribute of the dictionary, its value */
    uint32_t n_table;
    /* The current source messages: their fields, other than children, and sums. */
    const struct br_part *part;
    struct group_bytes part_head, scope_head, profile_head, payload;
    struct group_sum part_sum, scope_sum;
    struct group_sum *replaced; /* for each key: hash of the Resource's attribute with this key */
    uint32_t n_source_parts, n_source_scopes, n_source_profiles;
    uint32_t plain;                 /* node of the part's unchanged Resource */
    uint32_t last_node, last_scope; /* RESOURCE and SCOPE node of the previous record */
    /* for each key: value of the record, and of its Profile */
    struct group_value *values, *of_profile;
    bool payload_written; /* a node of the current Profile has its payload */
    bool edits_profiles;  /* some Profile has an attribute that is moved */
    uint32_t n_grouped;   /* number of records from which attributes are moved */
};

/* Builds the tree. `grouping` is zeroed, except for the fields `item`, `keys`, `secret` and `list`.
 * Returns 0, BR_EFULL (a span or Resource has too many attributes), BR_EINVAL (the item has not
 * been checked by a walk) or BR_ENOMEM. grouping_release must be called after a failure as well. */
int group_by_attrs_build(struct grouping *grouping);
void group_by_attrs_release(struct grouping *grouping);

/* Returns true if the tree differs from the messages of the item. */
bool group_by_attrs_changes(const struct grouping *grouping);

/* Replaces the item's parts with the tree. The dictionary and unknown fields stay. Returns 0,
 * BR_EFULL if the result is too large for a buffer, or BR_ENOMEM. On failure the item is
 * unchanged. */
int group_by_attrs_write(struct grouping *grouping);

/* Marks the attributes of `grouping->list` whose keys are in `keys` as deleted. */
void group_by_attrs_delete_keys(struct grouping *grouping);

/* Reads the attribute indices in field `number` of `message`, which is a Sample or Profile, and
 * writes to `out` those whose attributes are kept. The result is the content of a packed field,
 * without tag and length. `out` NULL: nothing is written. Returns the length in bytes. */
size_t group_by_attrs_put_indices(const struct grouping *grouping, uint32_t number,
                                  struct group_bytes message, uint8_t *out);
