/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same consistent hash ring as in the Collector's load_balancing exporter. With the same list
 * of backends, both programs send a key to the same backend.
 *
 * The ring has 36,000 positions. The position of a key is its CRC-32 (IEEE), modulo the number of
 * positions. Each backend has up to 100 points: point i is the position of the backend's name
 * followed by the byte i. If points of two backends have the same position, the backend that is
 * earlier in the list owns the position. The owner of a key is the backend whose point is the first
 * one at or after the key's position. After the last point, the ring continues with its first
 * point. The list of backends is sorted, so their order in the config does not matter.
 *
 * Source: opentelemetry-collector-contrib, exporter/loadbalancingexporter, consistent hashing.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define LOAD_BALANCING_POSITIONS 36000u
#define LOAD_BALANCING_WEIGHT 100u /* maximum number of points of each backend */

struct load_balancing_point {
    uint32_t position;
    uint32_t backend; /* index in the list of backends */
};

struct load_balancing_ring {
    struct load_balancing_point *points; /* sorted by position */
    uint32_t n_points;
};

/* Makes a ring with up to `weight` points for each of `count` backends. `names` must be sorted and
 * contain no duplicates. Returns 0 or BR_ENOMEM. The caller releases the ring with
 * load_balancing_ring_release. */
int load_balancing_ring_make(struct load_balancing_ring *ring, const char *const *names,
                             uint32_t count, unsigned weight);
void load_balancing_ring_release(struct load_balancing_ring *ring);

/* Returns the index of the backend that owns a key. The ring must have at least one point. */
uint32_t load_balancing_ring_owner(const struct load_balancing_ring *ring, const uint8_t *key,
                                   size_t len);
