/* SPDX-License-Identifier: Apache-2.0 */
/* Notes spans whose totals are incomplete because records were evicted. */
#include "processors/join/table/ring.h"

void join_losses_note_span(const struct join_table *table, _Atomic uint64_t *noted,
                           uint64_t span_id)
{
    uint64_t hash = join_table_mix(table, span_id);
    atomic_store_explicit(&noted[(hash >> 32) % JOIN_LOST_MAX], hash, memory_order_relaxed);
}

static bool losses_has_span(const struct join_table *table, const _Atomic uint64_t *noted,
                            const uint8_t *span_id)
{
    uint64_t hash = join_table_mix(table, br_load64(span_id));
    return hash &&
           atomic_load_explicit(&noted[(hash >> 32) % JOIN_LOST_MAX], memory_order_relaxed) == hash;
}

bool join_table_lost(struct join_table *table, const uint8_t *span_id)
{
    return losses_has_span(table, table->lost, span_id);
}

bool join_table_lost_below(struct join_table *table, const uint8_t *span_id)
{
    return losses_has_span(table, table->lost_below, span_id);
}

#define ANCESTORS_MAX 64u /* largest number of ancestors of an evicted record that are noted */

/* The parent of a record, whose inclusive sums become incomplete. */
struct ancestor {
    /* span id of the parent; 0: the span has no parent, or its parent belongs to another service */
    uint64_t parent_id;
    uint8_t trace_id[16];
    bool has_trace;
};

static struct ancestor losses_ancestor_of(const struct record *record)
{
    struct ancestor ancestor = {
        .parent_id = br_span_kind_is_entry(record->kind) ? 0 : record->head.parent_id,
        .has_trace = record->has_trace};
    memcpy(ancestor.trace_id, record->head.trace_id, sizeof ancestor.trace_id);
    return ancestor;
}

/* Marks the sums of `*ancestor` as incomplete and replaces `*ancestor` by its own parent.
 * `shard` is locked. The walk ends (parent_id 0) if the ancestor's record is not in the table or
 * is already marked. The walk also ends if another thread has locked the ancestor's shard,
 * because waiting for that lock could deadlock. */
static void losses_mark_parent(struct join_table *table, const struct shard *shard,
                               struct ancestor *ancestor, uint32_t now)
{
    uint64_t id = ancestor->parent_id, hash = join_table_mix(table, id);
    struct shard *other = join_table_shard(table, hash);
    ancestor->parent_id = 0;
    if (other != shard && pthread_mutex_trylock(&other->lock) != 0) {
        join_losses_note_span(table, table->lost_below, id);
        return;
    }
    struct place place = join_slots_find(other, join_slots_home(other, hash), id,
                                         ancestor->has_trace ? ancestor->trace_id : NULL);
    struct record *parent = join_slots_record(other, &place);
    bool known = parent && !parent->pending;
    if (known && !parent->ancestors_marked)
        *ancestor = losses_ancestor_of(parent);
    if (known)
        parent->ancestors_marked = true;
    /* an expired span is in no held item, so its totals are not read again and need no mark */
    if (!known || !join_record_expired(table, parent, now))
        join_losses_note_span(table, table->lost_below, id);
    if (other != shard)
        pthread_mutex_unlock(&other->lock);
}

void join_losses_mark_ancestors(struct join_table *table, const struct shard *shard,
                                struct record *record, uint32_t now)
{
    struct ancestor ancestor = losses_ancestor_of(record);
    record->ancestors_marked = true;
    for (unsigned i = 0; i < ANCESTORS_MAX && ancestor.parent_id; i++)
        losses_mark_parent(table, shard, &ancestor, now);
}

static struct evicted *losses_evicted_slot(struct join_table *table, uint64_t hash)
{
    return &table->evicted[(hash >> 32) % JOIN_EVICTED_MAX];
}

void join_losses_note_evicted(struct join_table *table, uint64_t hash, uint64_t until_ns)
{
    struct evicted *evicted = losses_evicted_slot(table, hash);
    bool same = atomic_load_explicit(&evicted->key, memory_order_relaxed) == hash;
    if (!same || atomic_load_explicit(&evicted->until_ns, memory_order_relaxed) < until_ns)
        atomic_store_explicit(&evicted->until_ns, until_ns, memory_order_relaxed);
    atomic_store_explicit(&evicted->key, hash, memory_order_relaxed);
}

bool join_table_evicted_after(struct join_table *table, const uint8_t *span_id, uint64_t start_ns)
{
    uint64_t hash = join_table_mix(table, br_load64(span_id));
    struct evicted *evicted = losses_evicted_slot(table, hash);
    return hash && atomic_load_explicit(&evicted->key, memory_order_relaxed) == hash &&
           start_ns <= atomic_load_explicit(&evicted->until_ns, memory_order_relaxed);
}
