/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the bucket of each record of a request that is being divided. The bucket of a span is
 * looked up if its trace id differs from the previous span's. The buckets of links and resources
 * are looked up once, when a record first needs them. This header is private to src/otlp/divide.
 */
#pragma once

#include "otlp/dictionary/merger.h"
#include "otlp/divide/divide.h"

struct divide_router {
    const struct br_routing *routing;
    /* merger that has loaded the request's dictionary and whose scratch buffer is used */
    struct br_merge *merge;
    /* memory limit of the plan and of `links`; the merger's own budget cannot be used for them */
    struct br_budget budget;
    enum br_signal signal;
    const struct br_part *part; /* part of the request that contains the current record */
    /* bucket of the part's resource; BR_BUCKET_NONE: not looked up yet */
    uint32_t resource_bucket;
    uint8_t last_id[16];  /* trace id of the previous span */
    uint32_t last_bucket; /* bucket of last_id; BR_BUCKET_NONE: no previous span */
    /* for each link: its bucket + 1; 0: not looked up yet; UINT32_MAX: no valid trace id */
    uint32_t *links;
    uint32_t cap_links;
};

/* Initialises a zeroed router. For profiles, the caller has loaded the request's dictionary into
 * merge->source. Returns 0, BR_EFULL or BR_ENOMEM. The caller must call br_divide_router_release
 * even after a failure. */
int br_divide_router_init(struct divide_router *router, enum br_signal signal,
                          const struct br_routing *routing, struct br_merge *merge);
void br_divide_router_release(struct divide_router *router);

/* Begins a part of the request. Borrows `part` until the next call. */
void br_divide_router_begin(struct divide_router *router, const struct br_part *part);

/* Sets `*ret` to the bucket of the current part's resource. Returns 0, or an error of
 * br_item_divide. */
int br_divide_router_resource(struct divide_router *router, uint32_t *ret);

/* Sets `*ret` to the bucket of the span or sample in the field `leaf`. Returns 0, or an error of
 * br_item_divide. */
int br_divide_router_record(struct divide_router *router, const struct br_field *leaf,
                            uint32_t *ret);
