/* SPDX-License-Identifier: Apache-2.0 */
#include "exporters/load_balancing/ring.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/err.h"
#include "base/mem.h"

static int ring_compare(const void *left, const void *right)
{
    const struct load_balancing_point *a = left, *b = right;
    return (a->position > b->position) - (a->position < b->position);
}

int load_balancing_ring_make(struct load_balancing_ring *ring, const char *const *names,
                             uint32_t count, unsigned weight)
{
    *ring = (struct load_balancing_ring){0};
    uint8_t *used = br_calloc(LOAD_BALANCING_POSITIONS, 1);
    size_t most = (size_t)count * weight;
    if (most > LOAD_BALANCING_POSITIONS)
        most = LOAD_BALANCING_POSITIONS;
    ring->points = br_calloc(most, sizeof *ring->points);
    if (!used || !ring->points) {
        br_free(used);
        load_balancing_ring_release(ring);
        return BR_ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++) {
        uLong name = crc32_z(0, (const Bytef *)names[i], strlen(names[i]));
        for (unsigned point = 0; point < weight; point++) {
            uint8_t byte = (uint8_t)point;
            uint32_t position = (uint32_t)crc32_z(name, &byte, 1) % LOAD_BALANCING_POSITIONS;
            if (!used[position])
                ring->points[ring->n_points++] = (struct load_balancing_point){position, i};
            used[position] = 1;
        }
    }
    br_free(used);
    qsort(ring->points, ring->n_points, sizeof *ring->points, ring_compare);
    return 0;
}

void load_balancing_ring_release(struct load_balancing_ring *ring)
{
    br_free(ring->points);
    *ring = (struct load_balancing_ring){0};
}

uint32_t load_balancing_ring_owner(const struct load_balancing_ring *ring, const uint8_t *key,
                                   size_t len)
{
    uint32_t position = (uint32_t)crc32_z(0, key, len) % LOAD_BALANCING_POSITIONS;
    uint32_t low = 0, high = ring->n_points;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (ring->points[mid].position < position)
            low = mid + 1;
        else
            high = mid;
    }
    return ring->points[low < ring->n_points ? low : 0].backend;
}
