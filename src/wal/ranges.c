/* SPDX-License-Identifier: Apache-2.0 */
#include "wal/ranges.h"

#include <string.h>

#include "base/mem.h"

/* Returns the index of the first range that ends at or after `number`. */
static uint32_t ranges_find(const struct br_ranges *ranges, uint64_t number)
{
    uint32_t low = 0, high = ranges->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (ranges->items[middle].last < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int ranges_insert(struct br_ranges *ranges, uint32_t at, uint64_t first, uint64_t last)
{
    int rc = br_grow(&ranges->items, &ranges->cap, ranges->count + 1, sizeof *ranges->items,
                     BR_RANGES_MAX);
    if (rc)
        return rc;
    memmove(ranges->items + at + 1, ranges->items + at,
            (ranges->count - at) * sizeof *ranges->items);
    ranges->items[at] = (struct br_range){first, last};
    ranges->count++;
    return 0;
}

int br_ranges_add(struct br_ranges *ranges, uint64_t first, uint64_t last)
{
    /* `from` is the first range that overlaps or adjoins the new one, and `to` is the first later
     * range that does not. */
    uint32_t from = ranges_find(ranges, first ? first - 1 : 0), to = from;
    while (to < ranges->count && (last == UINT64_MAX || ranges->items[to].first <= last + 1))
        to++;
    if (from == to)
        return ranges_insert(ranges, from, first, last);
    struct br_range *into = &ranges->items[from];
    into->first = first < into->first ? first : into->first;
    into->last = last > ranges->items[to - 1].last ? last : ranges->items[to - 1].last;
    memmove(into + 1, ranges->items + to, (ranges->count - to) * sizeof *into);
    ranges->count -= to - from - 1;
    return 0;
}

bool br_ranges_cover(const struct br_ranges *ranges, uint64_t first, uint64_t last)
{
    uint32_t at = ranges_find(ranges, first);
    return at < ranges->count && ranges->items[at].first <= first && ranges->items[at].last >= last;
}

bool br_ranges_contain(const struct br_ranges *ranges, uint64_t number)
{
    return br_ranges_cover(ranges, number, number);
}

struct br_range br_ranges_shift(struct br_ranges *ranges)
{
    struct br_range first = ranges->items[0];
    ranges->count--;
    memmove(ranges->items, ranges->items + 1, ranges->count * sizeof first);
    return first;
}

void br_ranges_clear(struct br_ranges *ranges)
{
    ranges->count = 0;
}

void br_ranges_release(struct br_ranges *ranges)
{
    br_free(ranges->items);
    *ranges = (struct br_ranges){0};
}
