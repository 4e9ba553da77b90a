/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leads to the records of the join's table: slots by span id, and chains of families and
 * threads. A record is indexed when its span is entered, some records behind the head, so that the
 * lines it needs have come from memory by then.
 */
#pragma once

#include "processors/join/slots.h"
#include "processors/join/table_internal.h"

#define JOIN_INDEX_AHEAD 16u /* records, as long as a line takes to come from memory */

/* A record that is being indexed. */
struct join_coming {
    struct record *record;
    uint64_t position;
    struct bucket *bucket;
    uint32_t family; /* the index of its head */
    uint16_t tag;
    bool in_family;
};

/* Records on their way, in order: so many seen, entered into slots, chained. With a group that was
 * not seen yet they are less than three times the shard's `ahead`, for which its ring has room. */
struct join_indexing {
    struct join_coming coming[4 * JOIN_INDEX_AHEAD];
    uint64_t n_seen, n_entered, n_chained;
    uint64_t seen, seen_at; /* the record to be seen next */
};

/* Records that are about to be appended are indexed on the way: `next`, at least after each group,
 * sees a group of them, or as many as there are, and enters as many that were seen before; `finish`
 * enters what was seen. */
void join_index_begin(const struct shard *s, struct join_indexing *ix);
void join_index_next(struct join_table *t, struct shard *s, struct join_indexing *ix, uint32_t now,
                     struct join_tally *out);
void join_index_finish(struct join_table *t, struct shard *s, struct join_indexing *ix,
                       uint32_t now, struct join_tally *out);

/* Records of a group. */
static inline unsigned join_index_group(const struct shard *s)
{
    return s->ahead > 1 ? s->ahead / 2 : 1;
}
