/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/local.h"

#include <string.h>

#include "processors/join/identity.h"
#include "wire/protobuf.h"

#define SLOTS (2 * JOIN_FAMILY_MAX)
#define KIND_SERVER 2
#define KIND_CONSUMER 5

/* --- Reading ------------------------------------------------------------------------------------
 */

static unsigned slot_of(uint64_t span_id)
{
    return (unsigned)((span_id ^ span_id >> 32) * 0x9e3779b97f4a7c15u >> 32) & (SLOTS - 1);
}

static uint32_t find(const struct join_local *l, uint64_t span_id)
{
    for (unsigned s = slot_of(span_id); l->slots[s]; s = (s + 1) & (SLOTS - 1))
        if (l->spans[l->slots[s] - 1].span_id == span_id)
            return l->slots[s] - 1u;
    return JOIN_NO_SPAN;
}

static void index_spans(struct join_local *l)
{
    memset(l->slots, 0, sizeof l->slots);
    for (unsigned i = 0; i < l->n; i++) {
        unsigned s = slot_of(l->spans[i].span_id);
        while (l->slots[s])
            s = (s + 1) & (SLOTS - 1);
        l->slots[s] = (uint16_t)(i + 1);
    }
}

static uint16_t parent_of(const struct join_local *l, const struct join_relative *r)
{
    if (!r->parent_id || r->kind == KIND_SERVER || r->kind == KIND_CONSUMER)
        return 0;
    uint32_t i = find(l, r->parent_id);
    return i == JOIN_NO_SPAN ? 0 : (uint16_t)(i + 1);
}

/* Goes up from each span. Who is his own ancestor becomes a root. */
static void measure_depths(struct join_local *l)
{
    for (unsigned i = 0; i < l->n; i++) {
        unsigned depth = 0, at = i;
        while (l->parents[at] && depth <= l->n) {
            at = l->parents[at] - 1u;
            depth++;
        }
        if (depth > l->n)
            l->parents[i] = 0;
        l->depths[i] = depth > l->n ? 0 : (uint16_t)depth;
    }
}

void join_local_read(struct join_local *l, const uint8_t *trace_id, const uint8_t *service,
                     size_t service_len, uint64_t service_hash)
{
    if (l->known && l->service_hash == service_hash && memcmp(l->trace_id, trace_id, 16) == 0)
        return;
    memcpy(l->trace_id, trace_id, sizeof l->trace_id);
    l->service_hash = service_hash;
    l->known = true;
    l->figures = false;
    bool more;
    l->n =
        join_table_family(l->table, trace_id, service, service_len, service_hash, l->spans, &more);
    *l->cut += more;
    index_spans(l);
    for (unsigned i = 0; i < l->n; i++) {
        l->parents[i] = parent_of(l, &l->spans[i]);
        l->figures = l->figures || l->spans[i].figures;
    }
    measure_depths(l);
}

/* --- Asking -------------------------------------------------------------------------------------
 */

uint32_t join_local_find(const struct join_local *l, const uint8_t *span_id)
{
    return find(l, br_load64(span_id));
}

bool join_local_below(const struct join_local *l, uint32_t span, uint32_t top)
{
    while (l->depths[span] > l->depths[top])
        span = l->parents[span] - 1u;
    return span == top;
}

static bool is_open(const struct join_relative *r, uint64_t time_ns, uint32_t thread,
                    uint32_t thread_name)
{
    return r->start_ns <= time_ns && time_ns < r->end_ns &&
           join_same_thread(r->thread, r->thread_name, thread, thread_name);
}

static uint32_t common(const struct join_local *l, uint32_t a, uint32_t b)
{
    while (a != b) {
        uint32_t *lower = l->depths[a] >= l->depths[b] ? &a : &b;
        *lower = l->parents[*lower] - 1u;
    }
    return a;
}

uint32_t join_local_open(const struct join_local *l, uint32_t root, uint64_t time_ns,
                         uint32_t thread, uint32_t thread_name)
{
    uint32_t deepest = root;
    unsigned depth = l->depths[root];
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->depths[i] < depth || i == deepest ||
            !is_open(&l->spans[i], time_ns, thread, thread_name) || !join_local_below(l, i, root))
            continue;
        deepest = l->depths[i] > depth ? i : common(l, deepest, i);
        depth = l->depths[i];
    }
    return deepest;
}
