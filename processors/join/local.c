/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/local.h"

#include <string.h>

#include "base/map.h"
#include "base/steps.h"
#include "processors/join/identity.h"
#include "wire/protobuf.h"

#define KIND_SERVER 2
#define KIND_CONSUMER 5
#define UNKNOWN UINT16_MAX /* a depth */

/* --- Finding ------------------------------------------------------------------------------------
 */

/* Multiplied by a secret, so that ids cannot be chosen to collide. */
static unsigned slot_of(const struct join_local *l, uint64_t span_id)
{
    return (unsigned)(span_id * l->multiplier >> (64 - l->slot_bits));
}

static uint32_t find(const struct join_local *l, uint64_t span_id)
{
    unsigned mask = (1u << l->slot_bits) - 1;
    for (unsigned s = slot_of(l, span_id); l->slots[s]; s = (s + 1) & mask)
        if (l->spans[l->slots[s] - 1].span_id == span_id)
            return l->slots[s] - 1u;
    return JOIN_NO_SPAN;
}

static void index_spans(struct join_local *l)
{
    unsigned mask = (1u << l->slot_bits) - 1;
    for (unsigned i = 0; i < l->n; i++) {
        unsigned s = slot_of(l, l->spans[i].span_id);
        while (l->slots[s])
            s = (s + 1) & mask;
        l->slots[s] = (uint16_t)(i + 1);
    }
}

uint32_t join_local_find(const struct join_local *l, const uint8_t *span_id)
{
    return find(l, br_load64(span_id));
}

/* --- The tree -----------------------------------------------------------------------------------
 */

static uint16_t parent_of(const struct join_local *l, const struct join_relative *r)
{
    if (!r->parent_id || r->kind == KIND_SERVER || r->kind == KIND_CONSUMER)
        return 0;
    uint32_t i = find(l, r->parent_id);
    return i == JOIN_NO_SPAN ? 0 : (uint16_t)(i + 1);
}

/* Goes up from each span to one whose depth is known, and back. Who is his own ancestor becomes a
 * root. */
static void measure_depths(struct join_local *l)
{
    uint16_t path[JOIN_FAMILY_MAX];
    bool on_path[JOIN_FAMILY_MAX] = {false};
    for (unsigned i = 0; i < l->n; i++)
        l->depths[i] = UNKNOWN;
    for (unsigned i = 0; i < l->n; i++) {
        unsigned n = 0, at = i;
        while (l->depths[at] == UNKNOWN && !on_path[at]) {
            on_path[at] = true;
            path[n++] = (uint16_t)at;
            if (!l->parents[at])
                break;
            at = l->parents[at] - 1u;
        }
        if (n && l->depths[at] == UNKNOWN)
            l->parents[at] = 0;
        while (n-- > 0) {
            unsigned span = path[n];
            on_path[span] = false;
            l->depths[span] =
                l->parents[span] ? (uint16_t)(l->depths[l->parents[span] - 1u] + 1) : 0;
        }
    }
}

/* The numbers of the spans, those of less depth first. */
static void order_by_depth(const struct join_local *l, uint16_t *ret)
{
    uint16_t starts[JOIN_FAMILY_MAX + 1] = {0};
    for (unsigned i = 0; i < l->n; i++)
        starts[l->depths[i] + 1]++;
    for (unsigned d = 0; d < l->n; d++)
        starts[d + 1] = (uint16_t)(starts[d + 1] + starts[d]);
    for (unsigned i = 0; i < l->n; i++)
        ret[starts[l->depths[i]]++] = (uint16_t)i;
}

/* Gives each span a place, and those below it the places behind. */
static void place_spans(struct join_local *l)
{
    uint16_t order[JOIN_FAMILY_MAX], sizes[JOIN_FAMILY_MAX], next[JOIN_FAMILY_MAX], free = 0;
    order_by_depth(l, order);
    for (unsigned i = 0; i < l->n; i++)
        sizes[i] = 1;
    for (unsigned i = l->n; i-- > 0;) {
        unsigned span = order[i];
        if (l->parents[span])
            sizes[l->parents[span] - 1u] = (uint16_t)(sizes[l->parents[span] - 1u] + sizes[span]);
    }
    for (unsigned i = 0; i < l->n; i++) {
        unsigned span = order[i];
        uint16_t *place = l->parents[span] ? &next[l->parents[span] - 1u] : &free;
        l->first[span] = *place;
        *place = l->end[span] = (uint16_t)(*place + sizes[span]);
        next[span] = (uint16_t)(l->first[span] + 1);
    }
}

/* --- Reading ------------------------------------------------------------------------------------
 */

static unsigned slot_bits(unsigned n)
{
    unsigned bits = 1;
    while (1u << bits < 2 * n)
        bits++;
    return bits;
}

/* A tree with room for `n` spans; NULL when there is no memory, or as much is remembered as may be.
 */
static struct join_local *local_new(struct br_arena *arena, unsigned n)
{
    struct join_local *l = br_arena_calloc(arena, 1, sizeof *l);
    if (!l)
        return NULL;
    l->n = n;
    l->slot_bits = slot_bits(n);
    l->spans = br_arena_calloc(arena, n, sizeof *l->spans);
    l->parents = br_arena_calloc(arena, n, sizeof *l->parents);
    l->depths = br_arena_calloc(arena, n, sizeof *l->depths);
    l->first = br_arena_calloc(arena, n, sizeof *l->first);
    l->end = br_arena_calloc(arena, n, sizeof *l->end);
    l->slots = br_arena_calloc(arena, (size_t)1 << l->slot_bits, sizeof *l->slots);
    return l->spans && l->parents && l->depths && l->first && l->end && l->slots ? l : NULL;
}

static void local_read(struct join_local *l, const struct join_relative *spans)
{
    if (l->n)
        memcpy(l->spans, spans, l->n * sizeof *spans);
    index_spans(l);
    for (unsigned i = 0; i < l->n; i++) {
        l->parents[i] = parent_of(l, &l->spans[i]);
        l->figures = l->figures || l->spans[i].figures;
    }
    measure_depths(l);
    place_spans(l);
}

/* --- Trees --------------------------------------------------------------------------------------
 */

static void locals_forget(struct join_locals *ls)
{
    br_map_free(ls->known, NULL);
    ls->known = NULL;
    ls->newest = NULL;
    br_arena_release(&ls->arena);
    br_arena_init(&ls->arena, JOIN_LOCALS_BYTES);
}

void join_locals_release(struct join_locals *ls)
{
    locals_forget(ls);
}

#define KEY_LEN 24

static const struct join_local *locals_add(struct join_locals *ls, const uint8_t key[KEY_LEN],
                                           const struct join_relative *spans, unsigned n)
{
    struct join_local *l = local_new(&ls->arena, n);
    if (!l && ls->arena.full) {
        locals_forget(ls);
        l = local_new(&ls->arena, n);
    }
    if (!l)
        return NULL;
    memcpy(l->trace_id, key, sizeof l->trace_id);
    l->service_hash = br_load64(key + sizeof l->trace_id);
    l->multiplier = ls->multiplier;
    local_read(l, spans);
    if (!ls->known)
        ls->known = br_map_new(JOIN_LOCALS_BYTES / sizeof *l);
    if (!ls->known || br_map_put(ls->known, key, KEY_LEN, l, NULL))
        return NULL;
    return l;
}

static void locals_begin(struct join_locals *ls)
{
    uint64_t high = join_table_hash(ls->table, "high", 4);
    ls->multiplier = high << 32 | join_table_hash(ls->table, "low", 3) | 1;
    locals_forget(ls);
}

const struct join_local *join_locals_get(struct join_locals *ls, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash)
{
    struct join_relative spans[JOIN_FAMILY_MAX];
    uint8_t key[KEY_LEN];
    if (ls->newest && ls->newest->service_hash == service_hash &&
        memcmp(ls->newest->trace_id, trace_id, sizeof ls->newest->trace_id) == 0)
        return ls->newest;
    memcpy(key, trace_id, 16);
    memcpy(key + 16, &service_hash, sizeof service_hash);
    if (!ls->multiplier)
        locals_begin(ls);
    ls->newest = ls->known ? br_map_get(ls->known, key, sizeof key) : NULL;
    if (ls->newest || ls->steps > JOIN_STEPS_MAX)
        return ls->newest;
    struct join_looked looked;
    unsigned n = join_table_family(ls->table, trace_id, service, service_len, service_hash, spans,
                                   &looked);
    *ls->cut += looked.more;
    ls->steps += (looked.steps + 1) * (uint64_t)JOIN_STEPS_PER_LOOK;
    br_steps_add((looked.steps + 1) * (size_t)JOIN_STEPS_PER_LOOK);
    ls->newest = locals_add(ls, key, spans, n);
    return ls->newest;
}

/* --- Asking -------------------------------------------------------------------------------------
 */

static bool is_open(const struct join_relative *r, uint64_t time_ns, uint32_t thread,
                    uint32_t thread_name)
{
    return r->start_ns <= time_ns && time_ns < r->end_ns &&
           join_same_thread(r->thread, r->thread_name, thread, thread_name);
}

/* Of the deepest spans the first and the last of the tree: what both are below, all are. */
uint32_t join_local_open(const struct join_local *l, uint32_t root, uint64_t time_ns,
                         uint32_t thread, uint32_t thread_name)
{
    uint32_t first = root, last = root;
    br_steps_add(l->n + 1);
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->depths[i] < l->depths[first] || !join_local_below(l, i, root) ||
            !is_open(&l->spans[i], time_ns, thread, thread_name))
            continue;
        if (l->depths[i] > l->depths[first])
            first = last = i;
        first = l->first[i] < l->first[first] ? i : first;
        last = l->first[i] > l->first[last] ? i : last;
    }
    while (!join_local_below(l, last, first))
        first = l->parents[first] - 1u;
    return first;
}
