/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What leads to the records of the join's table: slots by span id, and chains of families and
 * threads. A record is indexed when something may be looked for: at once while samples come, and
 * otherwise when the first one does. Where nobody takes profiles records come and leave without
 * ever being indexed, which is half of what a span costs in the table.
 *
 * While samples come, and for some time after the last one, the table is awake: a record is indexed
 * when its span is entered. Then it falls asleep, and who asks next wakes it: at most BACKLOG_MAX
 * bytes of records are indexed then, some 50 to 100 ns each. Where samples wait for their spans
 * records are indexed whether it is asleep or not, so that nobody waits for one that is not.
 *
 * Only one thread's table sleeps: in a shared one shards would wake one after the other, and
 * chains, which go through all of them, would not be in the order in which records leave.
 */
#pragma once

#include "processors/join/slots.h"
#include "processors/join/table_internal.h"

#define JOIN_INDEX_AHEAD 16u /* records, as long as a line takes to come from memory */

/* Spans are about to be entered at `now`, in tenths of a second: the table falls asleep if nobody
 * has asked for long enough. */
void join_index_tick(struct join_table *t, uint32_t now);

/* Whether spans that are entered now may stay unindexed. Under the shard's lock, as all that
 * follows and takes a shard. */
static inline bool join_index_sleeps(const struct join_table *t, const struct shard *s)
{
    return t->asleep && !s->n_pending;
}

/* Behind spans that stayed unindexed: there are never more than BACKLOG_MAX. */
void join_index_bound(struct join_table *t, struct shard *s, uint32_t now, struct join_tally *out);

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
void join_index_begin(struct join_table *t, struct shard *s, struct join_indexing *ix, uint32_t now,
                      struct join_tally *out);
void join_index_next(struct join_table *t, struct shard *s, struct join_indexing *ix, uint32_t now,
                     struct join_tally *out);
void join_index_finish(struct join_table *t, struct shard *s, struct join_indexing *ix,
                       uint32_t now, struct join_tally *out);

/* Records of a group. */
static inline unsigned join_index_group(const struct shard *s)
{
    return s->ahead > 1 ? s->ahead / 2 : 1;
}

/* Indexes what is left. */
void join_index_rest(struct join_table *t, struct shard *s, uint32_t now, struct join_tally *out);

/* Indexes what was left, and from now on all that comes. */
void join_index_wake(struct join_table *t);

/* Somebody is about to look something up: after this everything is indexed that was entered before.
 * Without a lock. */
static inline void join_index_ask(struct join_table *t)
{
    if (t->shard_bits)
        return;
    t->asked = true;
    if (t->asleep)
        join_index_wake(t);
}
