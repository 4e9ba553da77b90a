/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the group of each record during a br_item_rewrite. The group of a span is its ScopeSpans;
 * the group of a sample is its Profile. Groups are visited in the order of their bytes. The fields
 * of a message may be in any order, so a group is scanned completely before its first record.
 * struct br_groups describes only the current group.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/item.h"

struct br_groups {
    const struct br_item *item;
    /* The current group: a ScopeSpans or a Profile. */
    uint32_t part;        /* index in the item of the part that contains the group */
    uint32_t n_records;   /* number of spans or samples in the group */
    const uint8_t *scope; /* the group's InstrumentationScope; NULL: the group has no scope */
    const uint8_t *body;  /* body of the ScopeSpans or the Profile */
    uint32_t scope_len, body_len;
    /* Position of the iteration in the item. */
    /* number of groups up to and including the current group; number of records before the current
     * group */
    uint32_t n_groups, n_before;
    uint32_t next_part;
    /* start and end of the bytes that are still to be read of the current ResourceSpans or
     * ResourceProfiles */
    const uint8_t *p, *end;
    /* start and end of the bytes that are still to be read of the current ScopeProfiles */
    const uint8_t *inner_p, *inner_end;
};

/* Initialises an iteration that is positioned before the first group of `item`, which br_walk has
 * accepted. The item is borrowed while `groups` is used. */
void br_groups_init(struct br_groups *groups, const struct br_item *item);

/* Moves forward to the group that contains the span or sample number `index`, counted over the
 * whole item. Returns true if the group has changed. */
bool br_groups_at_item(struct br_groups *groups, uint32_t index);

/* Moves forward to the Profile number `index`, counted over the whole item. Returns true if the
 * group has changed. */
bool br_groups_at_profile(struct br_groups *groups, uint32_t index);
