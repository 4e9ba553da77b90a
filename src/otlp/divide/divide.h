/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a request into groups of records by a routing key, so that each group can be sent to a
 * different destination. The key of a span is its trace id. The key of a sample is the trace id of
 * its link. Spans and samples of a trace therefore have the same key.
 *
 * | record                                  | key by BR_ROUTE_TRACE              |
 * |-----------------------------------------|------------------------------------|
 * | span                                    | trace id; 16 zeros if it is absent |
 * | sample with a link to a valid trace id  | trace id of the link               |
 * | other sample                            | key of the resource                |
 *
 * The key of a resource is the value of its attribute `service.instance.id` if that is a non-empty
 * string, otherwise the encoded Resource. A sample without a link does not belong to a trace, so
 * all such samples of one process get the same key. With BR_ROUTE_SERVICE, the key of every record
 * is the value of `service.name`, or the key of the resource if `service.name` is absent.
 *
 * The caller's functions map each key to the number of a bucket. All records of a bucket form one
 * item. A caller that needs a separate item for each key returns a new bucket for each key.
 *
 * The time is proportional to the size of the request plus the sizes of the groups. `max_bytes`
 * limits the sizes of the groups, because every group can contain a copy of the same long resource
 * or stack.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/item.h"

enum br_route { BR_ROUTE_TRACE, BR_ROUTE_SERVICE };

/* value that the functions of struct br_routing return if they cannot assign a bucket */
#define BR_BUCKET_NONE UINT32_MAX

struct br_routing {
    enum br_route route;
    uint32_t max_buckets; /* number of buckets; bucket numbers are less than this */
    size_t max_bytes;     /* maximum total size of all groups in bytes; 0: no limit */
    /* Returns the bucket of a trace id. For traces, called once for each sequence of consecutive
     * spans with the same trace id. For profiles, called at most once for each link of the
     * dictionary. */
    uint32_t (*of_trace)(void *arg, const uint8_t trace_id[16]);
    /* Returns the bucket of a key that is not a trace id. Called at most once for each resource.
     * `key` is valid only during the call. */
    uint32_t (*of_key)(void *arg, const uint8_t *key, size_t len);
    void *arg; /* argument of `of_trace` and `of_key` */
};

/* Receives the group of records of one bucket, and takes ownership of it. Returns 0 to continue, or
 * an error code to stop. */
typedef int br_group_fn(struct br_item *group, uint32_t bucket, void *arg);

/* Divides `item`, which br_walk has accepted, into one group for each bucket that has records.
 * Groups are passed to `fn` in the order of their buckets. Each group of profiles has a dictionary
 * with only the entries that it uses. A group contains a copy of each message that contains its
 * records. Only one group contains original_payload and the unknown fields of the request. A
 * message without records is put into the bucket of its resource, so a group can be without
 * records.
 *
 * A group has no pending records, no metadata, and no list of spans. `item` is unchanged, and the
 * caller still owns it.
 *
 * Returns 0; BR_EFULL if the groups exceed `max_bytes` or a group is too large for a buffer;
 * BR_ENOMEM if memory is short or a key has no bucket; BR_EINVAL if the item is malformed or a
 * bucket is not below max_buckets; or the error of `fn`. After an error, the groups that `fn` has
 * already received still belong to `fn`. */
int br_item_divide(const struct br_item *item, const struct br_routing *routing, br_group_fn *fn,
                   void *arg);
