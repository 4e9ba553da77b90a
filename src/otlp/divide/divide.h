/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Divides a request into groups of records by a routing key, so that each group can be sent to
 * another destination. A span is routed by its trace id, a sample by the trace id of its link.
 * Spans and samples of a trace therefore have the same key.
 *
 * | record                                  | key by BR_ROUTE_TRACE              |
 * |-----------------------------------------|------------------------------------|
 * | span                                    | trace id; 16 zeros if it has none  |
 * | sample with a link to a valid trace id  | trace id of the link               |
 * | other sample                            | key of the resource                |
 *
 * The key of a resource is the value of its attribute `service.instance.id` if that is a non-empty
 * string, otherwise the encoded Resource. A sample without a link belongs to a process, not to a
 * trace; samples of one process stay together. By BR_ROUTE_SERVICE, all records have the value of
 * `service.name` as their key, or else the key of the resource.
 *
 * The caller maps keys to buckets. All records of a bucket form one item. To give every key its own
 * item, the caller numbers the keys with a br_map.
 *
 * The time is linear in the sizes of the request and of the groups. `max_bytes` limits the size of
 * the groups, because a sender can make each of many groups contain the same long resource or
 * stack.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "core/item.h"

enum br_route { BR_ROUTE_TRACE, BR_ROUTE_SERVICE };

/* returned by the functions of struct br_routing if no bucket can be assigned */
#define BR_BUCKET_NONE UINT32_MAX

struct br_routing {
    enum br_route route;
    uint32_t max_buckets; /* buckets are numbers below max_buckets */
    size_t max_bytes;     /* largest total size of all groups in bytes; 0: no limit */
    /* Returns the bucket of a trace id. Called at most once for consecutive equal ids, and for
     * profiles once for each link. */
    uint32_t (*of_trace)(void *arg, const uint8_t trace_id[16]);
    /* Returns the bucket of another key. Called at most once for each resource. `key` is valid
     * during the call. */
    uint32_t (*of_key)(void *arg, const uint8_t *key, size_t len);
    void *arg; /* argument of both functions */
};

/* Receives the group of one bucket, and takes ownership of `group`. Returns 0 to continue. */
typedef int br_group_fn(struct br_item *group, uint32_t bucket, void *arg);

/* Divides `item`, which br_walk has accepted, into one group for each bucket that has records.
 * Groups are passed to `fn` in the order of their buckets. Each group of profiles has a
 * dictionary with only the entries that it uses. A group repeats the messages above its records;
 * original_payload and unknown fields of the request are in one group only. A message without
 * records is routed by the key of its resource, so a group can have no records.
 *
 * A group has no records to report to the ledger, no metadata, and no list of spans. `item` is
 * unchanged, and the caller still owns it.
 *
 * Returns 0; BR_EFULL if the groups exceed `max_bytes` or a group is too large for a buffer;
 * BR_ENOMEM if memory is short or a key has no bucket; BR_EINVAL if the item is malformed or a
 * bucket is not below max_buckets; or the error of `fn`. `fn` is responsible for the groups that
 * it received before an error. */
int br_item_divide(const struct br_item *item, const struct br_routing *routing, br_group_fn *fn,
                   void *arg);
