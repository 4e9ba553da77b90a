/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a division lists the records of a request, sorted by bucket, and the messages that
 * contain the records. With the plan, the code that writes a group reads only the records of this
 * group. This header is private to src/otlp/divide.
 */
#pragma once

#include "otlp/divide/router.h"

/* A range of adjacent fields of a message. The fields that contain child messages or records are
 * not part of any range. */
struct divide_range {
    const uint8_t *data;
    size_t len;
};

/* A message that contains records directly or indirectly: a ResourceSpans, ResourceProfiles,
 * ScopeSpans, ScopeProfiles or Profile. */
struct divide_message {
    /* index of the message that contains this message; for a message on the resource level, its own
     * index */
    uint32_t parent;
    uint32_t part; /* index in the item of the part that contains the message */
    uint32_t first_range, n_ranges;
    uint8_t level; /* enum br_level */
    bool written;  /* a group already contains the message's fields */
};

/* A span or sample, or a placeholder for a message without records. */
struct divide_record {
    const uint8_t *at; /* tag of the record's field; NULL: placeholder */
    uint32_t message;  /* index of the message that contains the record */
    uint32_t bucket;
};

struct divide_plan {
    const struct br_item *item;
    struct divide_router router;
    unsigned n_levels; /* number of levels of messages that contain records */
    struct divide_range *ranges;
    struct divide_message *messages;
    struct divide_record *records;
    uint32_t n_ranges, cap_ranges, n_messages, cap_messages, n_records, cap_records;
    /* indices of the records, sorted by bucket; records of one bucket keep their order */
    uint32_t *order;
    uint32_t cap_order; /* number of elements allocated for `order` */
};

/* Fills in a zeroed plan. If the item contains profiles, the caller has loaded its dictionary into
 * merge->source. Returns 0, or an error of br_item_divide. The caller must call
 * br_divide_plan_release even after a failure. */
int br_divide_plan_make(struct divide_plan *plan, const struct br_item *item,
                        const struct br_routing *routing, struct br_merge *merge);
void br_divide_plan_release(struct divide_plan *plan);
