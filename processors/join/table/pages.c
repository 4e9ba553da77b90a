/* SPDX-License-Identifier: Apache-2.0 */
/* Makes pages of the table's memory before they are used. */
#include <sys/mman.h>
#include <unistd.h>

#include "processors/join/table/internal.h"

/* Large pages of a ring are allocated before records are written to them, in another thread,
 * because the allocation of one may take milliseconds. If that thread is late, records are written
 * to small pages, which stay small. Small pages of buckets are collapsed into large pages. Buckets
 * are accessed in random order, so with small pages nearly every access would wait for an address
 * translation. */

/* 1/AHEAD_SHARE of a ring, after the ring's head, gets its pages in advance */
#define AHEAD_SHARE 4u

#ifndef MADV_POPULATE_WRITE
/* available since Linux 5.14; with older kernels, no pages are allocated in advance */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
/* available since Linux 6.1; with older kernels, small pages are not collapsed */
#define MADV_COLLAPSE 25
#endif

/* Returns the number of bytes from the beginning of the shard's ring that should have pages. */
static uint64_t pages_wanted(const struct shard *shard)
{
    uint64_t filled = shard->head < shard->ring_size ? shard->head : shard->ring_size;
    uint64_t wanted = filled + shard->ring_size / AHEAD_SHARE;
    /* rounds up to the end of a large page */
    wanted += -((uintptr_t)shard->ring + wanted) & (LARGE_PAGE - 1);
    return wanted < shard->ring_size ? wanted : shard->ring_size;
}

/* Selects the next memory of a shard that should get pages: first its buckets, then its ring.
 * Selects nothing if the shard has no records. */
static bool pages_next_of_shard(struct shard *shard, struct join_pages *ret)
{
    uint64_t wanted = pages_wanted(shard);
    if (shard->head == shard->tail || shard->paged >= wanted)
        return false;
    if (!shard->has_bucket_pages) {
        shard->has_bucket_pages = true;
        *ret = (struct join_pages){shard->buckets, shard->n_buckets * sizeof *shard->buckets, true};
        return true;
    }
    *ret = (struct join_pages){shard->ring + shard->paged, wanted - shard->paged, false};
    shard->paged = wanted;
    return true;
}

static bool pages_next(struct join_table *table, struct join_pages *ret)
{
    bool found = false, all = true;
    if (!table->has_family_pages) {
        size_t len = (size_t)((uint8_t *)table - (uint8_t *)table->families);
        table->has_family_pages = true;
        *ret = (struct join_pages){table->families, len, false};
        return true;
    }
    for (unsigned i = 0; i < join_table_n_shards(table) && !found; i++) {
        struct shard *shard = &table->shards[i];
        join_shard_lock(table, shard);
        found = pages_next_of_shard(shard, ret);
        all = all && shard->paged == shard->ring_size;
        join_shard_unlock(table, shard);
    }
    if (!found)
        atomic_store(&table->all_paged, all);
    return found;
}

bool join_table_pages_begin(struct join_table *table, struct join_pages *ret)
{
    if (atomic_load_explicit(&table->all_paged, memory_order_relaxed) ||
        atomic_exchange(&table->is_paging, true))
        return false;
    if (pages_next(table, ret))
        return true;
    join_table_pages_end(table);
    return false;
}

void join_table_pages_make(const struct join_pages *pages)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)pages->at;
    uintptr_t begin = at & ~(page - 1), end = (at + pages->len + page - 1) & ~(page - 1);
    (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    if (pages->at_random) {
        if (end - begin >= LARGE_PAGE)
            end += -end & (LARGE_PAGE - 1); /* the memory that follows belongs to the table, too */
        (void)madvise((void *)begin, end - begin, MADV_COLLAPSE);
    }
    (void)madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
}

void join_table_pages_end(struct join_table *table)
{
    atomic_store(&table->is_paging, false);
}
