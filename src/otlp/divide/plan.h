/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a division: the records of a request in the order of their buckets, and the messages
 * above them. With the plan, writing a group reads only the records of the group. This header is
 * private to src/otlp/divide.
 */
#pragma once

#include "otlp/divide/router.h"

/* A range of fields of a message, other than its children. */
struct divide_range {
    const uint8_t *data;
    size_t len;
};

/* A ResourceX, ScopeX or Profile. */
struct divide_message {
    uint32_t parent; /* index of the message that contains this one; of a ResourceX: its own */
    uint32_t part;   /* index in the item of the part that contains the message */
    uint32_t first_range, n_ranges;
    uint8_t level; /* enum br_level */
    bool written;  /* a group contains the message's fields */
};

/* A span or sample, or the place of a message without records. */
struct divide_record {
    const uint8_t *at; /* tag of the record; NULL: the message has no records */
    uint32_t message;  /* index of the message that contains the record */
    uint32_t bucket;
};

struct divide_plan {
    const struct br_item *item;
    struct divide_router router;
    unsigned n_levels; /* number of levels of messages above the records */
    struct divide_range *ranges;
    struct divide_message *messages;
    struct divide_record *records;
    uint32_t n_ranges, cap_ranges, n_messages, cap_messages, n_records, cap_records;
    uint32_t *order;    /* indices of the records, sorted by bucket; stable */
    uint32_t cap_order; /* number of elements allocated for `order` */
};

/* Makes the plan, which is zeroed. `merge` has loaded the source if the item contains profiles;
 * the memory of the plan counts against its budget. Returns 0, or an error of br_item_divide.
 * br_divide_plan_release must be called after a failure as well. */
int br_divide_plan_make(struct divide_plan *plan, const struct br_item *item,
                        const struct br_routing *routing, struct br_merge *merge);
void br_divide_plan_release(struct divide_plan *plan);
