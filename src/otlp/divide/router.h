/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the bucket of each record of a request that is being divided. Every key is mapped to its
 * bucket once: trace ids of spans when they differ from the previous one, links and resources when
 * a record first needs them. This header is private to src/otlp/divide.
 */
#pragma once

#include "otlp/dictionary/merger.h"
#include "otlp/divide/divide.h"

struct divide_router {
    const struct br_routing *routing;
    /* merger whose source is the request's dictionary; its scratch buffer is used */
    struct br_merge *merge;
    enum br_signal signal;
    const struct br_part *part; /* part that contains the current record */
    /* bucket of the part's resource; BR_BUCKET_NONE: not looked up yet */
    uint32_t resource_bucket;
    uint8_t last_id[16];  /* trace id of the previous span */
    uint32_t last_bucket; /* bucket of last_id; BR_BUCKET_NONE: there is none */
    /* for each link: its bucket + 1; 0: not looked up yet; UINT32_MAX: no valid trace id */
    uint32_t *links;
    uint32_t cap_links;
};

/* Initialises a zeroed router. For profiles, `merge` has loaded the source. Returns 0, BR_EFULL
 * or BR_ENOMEM. br_divide_router_release must be called after a failure as well. */
int br_divide_router_init(struct divide_router *router, enum br_signal signal,
                          const struct br_routing *routing, struct br_merge *merge);
void br_divide_router_release(struct divide_router *router);

/* Begins a part. The part is borrowed until the next call. */
void br_divide_router_begin(struct divide_router *router, const struct br_part *part);

/* Stores the bucket of the part's resource. Returns 0, or an error of br_item_divide. */
int br_divide_router_resource(struct divide_router *router, uint32_t *ret);

/* Stores the bucket of a span or sample, which is `leaf`. Returns 0, or an error of
 * br_item_divide. */
int br_divide_router_record(struct divide_router *router, const struct br_field *leaf,
                            uint32_t *ret);
