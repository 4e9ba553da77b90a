/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds, beside br_item_rewrite, what is said once for several spans or samples: the messages that
 * hold them, in the order in which these and their items lie in the parts. Fields come in any
 * order, so a group is looked through before its first item; nothing is kept but the group at hand.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/item.h"

struct br_groups {
    const struct br_item *item;
    /* The group at hand: a ScopeSpans or a Profile. */
    uint32_t part;        /* of the item */
    uint32_t n_items;     /* spans or samples in it */
    const uint8_t *scope; /* its InstrumentationScope; NULL: none */
    const uint8_t *body;  /* of the ScopeSpans or the Profile */
    uint32_t scope_len, body_len;
    /* The walk. */
    uint32_t n_groups, n_before; /* groups up to this one; items before it */
    uint32_t next_part;
    const uint8_t *p, *end;             /* in the part */
    const uint8_t *inner_p, *inner_end; /* in the ScopeProfiles */
};

/* Begins before the first group of an item that a walk has accepted, which is borrowed as long as
 * the groups are used. */
void br_groups_init(struct br_groups *groups, const struct br_item *item);

/* Moves on to the group of item number `index`, or to Profile number `index`, both counted over the
 * whole item; never back. True when that is another group than before. */
bool br_groups_at_item(struct br_groups *groups, uint32_t index);
bool br_groups_at_profile(struct br_groups *groups, uint32_t index);
