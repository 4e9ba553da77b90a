/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer/local.h"

#include <string.h>

#include "base/map.h"
#include "base/steps.h"
#include "processors/join/infer/identity.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define KIND_SERVER 2
#define KIND_CONSUMER 5
#define UNKNOWN UINT16_MAX /* a depth */

/* --- Finding ---------------------------------------------------------------------------- */

/* Multiplied by a secret, so that ids cannot be chosen to collide. */
static unsigned local_slot_of(const struct join_local *local, uint64_t span_id)
{
    return (unsigned)(span_id * local->multiplier >> (64 - local->slot_bits));
}

static uint32_t local_find(const struct join_local *local, uint64_t span_id)
{
    unsigned mask = (1u << local->slot_bits) - 1;
    for (unsigned s = local_slot_of(local, span_id); local->slots[s]; s = (s + 1) & mask)
        if (local->spans[local->slots[s] - 1].span_id == span_id)
            return local->slots[s] - 1u;
    return JOIN_NO_SPAN;
}

static void local_index_spans(struct join_local *local)
{
    unsigned mask = (1u << local->slot_bits) - 1;
    for (unsigned i = 0; i < local->n; i++) {
        unsigned s = local_slot_of(local, local->spans[i].span_id);
        while (local->slots[s])
            s = (s + 1) & mask;
        local->slots[s] = (uint16_t)(i + 1);
    }
}

uint32_t join_local_find(const struct join_local *local, const uint8_t *span_id)
{
    return local_find(local, br_load64(span_id));
}

/* --- The tree --------------------------------------------------------------------------- */

static uint16_t local_parent_of(const struct join_local *local,
                                const struct join_relative *relative)
{
    if (!relative->parent_id || relative->kind == KIND_SERVER || relative->kind == KIND_CONSUMER)
        return 0;
    uint32_t i = local_find(local, relative->parent_id);
    return i == JOIN_NO_SPAN ? 0 : (uint16_t)(i + 1);
}

/* Goes up from each span to one whose depth is known, and back. Who is his own ancestor becomes a
 * root. */
static void local_measure_depths(struct join_local *local)
{
    uint16_t path[JOIN_FAMILY_MAX];
    bool on_path[JOIN_FAMILY_MAX] = {false};
    for (unsigned i = 0; i < local->n; i++)
        local->depths[i] = UNKNOWN;
    for (unsigned i = 0; i < local->n; i++) {
        unsigned n = 0, at = i;
        while (local->depths[at] == UNKNOWN && !on_path[at]) {
            on_path[at] = true;
            path[n++] = (uint16_t)at;
            if (!local->parents[at])
                break;
            at = local->parents[at] - 1u;
        }
        if (n && local->depths[at] == UNKNOWN)
            local->parents[at] = 0;
        while (n-- > 0) {
            unsigned span = path[n];
            on_path[span] = false;
            local->depths[span] =
                local->parents[span] ? (uint16_t)(local->depths[local->parents[span] - 1u] + 1) : 0;
        }
    }
}

/* The numbers of the spans, those of less depth first. */
static void local_order_by_depth(const struct join_local *local, uint16_t *ret)
{
    uint16_t starts[JOIN_FAMILY_MAX + 1] = {0};
    for (unsigned i = 0; i < local->n; i++)
        starts[local->depths[i] + 1]++;
    for (unsigned d = 0; d < local->n; d++)
        starts[d + 1] = (uint16_t)(starts[d + 1] + starts[d]);
    for (unsigned i = 0; i < local->n; i++)
        ret[starts[local->depths[i]]++] = (uint16_t)i;
}

/* Gives each span a place, and those below it the places behind. */
static void local_place_spans(struct join_local *local)
{
    uint16_t order[JOIN_FAMILY_MAX], sizes[JOIN_FAMILY_MAX], next[JOIN_FAMILY_MAX], free = 0;
    local_order_by_depth(local, order);
    for (unsigned i = 0; i < local->n; i++)
        sizes[i] = 1;
    for (unsigned i = local->n; i-- > 0;) {
        unsigned span = order[i];
        if (local->parents[span])
            sizes[local->parents[span] - 1u] =
                (uint16_t)(sizes[local->parents[span] - 1u] + sizes[span]);
    }
    for (unsigned i = 0; i < local->n; i++) {
        unsigned span = order[i];
        uint16_t *place = local->parents[span] ? &next[local->parents[span] - 1u] : &free;
        local->first[span] = *place;
        *place = local->end[span] = (uint16_t)(*place + sizes[span]);
        next[span] = (uint16_t)(local->first[span] + 1);
    }
}

/* --- Reading ---------------------------------------------------------------------------- */

static unsigned local_slot_bits(unsigned count)
{
    unsigned bits = 1;
    while (1u << bits < 2 * count)
        bits++;
    return bits;
}

/* A tree with room for `n` spans; NULL when there is no memory, or as much is remembered as may be.
 */
static struct join_local *local_new(struct br_arena *arena, unsigned count)
{
    struct join_local *local = br_arena_calloc(arena, 1, sizeof *local);
    if (!local)
        return NULL;
    local->n = count;
    local->slot_bits = local_slot_bits(count);
    local->spans = br_arena_calloc(arena, count, sizeof *local->spans);
    local->parents = br_arena_calloc(arena, count, sizeof *local->parents);
    local->depths = br_arena_calloc(arena, count, sizeof *local->depths);
    local->first = br_arena_calloc(arena, count, sizeof *local->first);
    local->end = br_arena_calloc(arena, count, sizeof *local->end);
    local->slots = br_arena_calloc(arena, (size_t)1 << local->slot_bits, sizeof *local->slots);
    return local->spans && local->parents && local->depths && local->first && local->end &&
                   local->slots
               ? local
               : NULL;
}

static void local_read(struct join_local *local, const struct join_relative *spans)
{
    if (local->n)
        memcpy(local->spans, spans, local->n * sizeof *spans);
    local_index_spans(local);
    for (unsigned i = 0; i < local->n; i++) {
        local->parents[i] = local_parent_of(local, &local->spans[i]);
        local->figures = local->figures || local->spans[i].figures;
    }
    local_measure_depths(local);
    local_place_spans(local);
}

/* --- Trees ------------------------------------------------------------------------------ */

static void locals_forget(struct join_locals *locals)
{
    br_map_free(locals->known, NULL);
    locals->known = NULL;
    locals->newest = NULL;
    br_arena_release(&locals->arena);
    br_arena_init(&locals->arena, JOIN_LOCALS_BYTES);
}

void join_locals_release(struct join_locals *locals)
{
    locals_forget(locals);
}

#define KEY_LEN 24

static const struct join_local *locals_add(struct join_locals *locals, const uint8_t key[KEY_LEN],
                                           const struct join_relative *spans, unsigned count)
{
    struct join_local *local = local_new(&locals->arena, count);
    if (!local && locals->arena.full) {
        locals_forget(locals);
        local = local_new(&locals->arena, count);
    }
    if (!local)
        return NULL;
    memcpy(local->trace_id, key, sizeof local->trace_id);
    local->service_hash = br_load64(key + sizeof local->trace_id);
    local->multiplier = locals->multiplier;
    local_read(local, spans);
    if (!locals->known)
        locals->known = br_map_new(JOIN_LOCALS_BYTES / sizeof *local);
    if (!locals->known || br_map_put(locals->known, key, KEY_LEN, local, NULL))
        return NULL;
    return local;
}

static void locals_begin(struct join_locals *locals)
{
    uint64_t high = join_table_hash(locals->table, "high", 4);
    locals->multiplier = high << 32 | join_table_hash(locals->table, "low", 3) | 1;
    locals_forget(locals);
}

const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash)
{
    struct join_relative spans[JOIN_FAMILY_MAX];
    uint8_t key[KEY_LEN];
    if (locals->newest && locals->newest->service_hash == service_hash &&
        memcmp(locals->newest->trace_id, trace_id, sizeof locals->newest->trace_id) == 0)
        return locals->newest;
    memcpy(key, trace_id, 16);
    memcpy(key + 16, &service_hash, sizeof service_hash);
    if (!locals->multiplier)
        locals_begin(locals);
    locals->newest = locals->known ? br_map_get(locals->known, key, sizeof key) : NULL;
    if (locals->newest || locals->steps > JOIN_STEPS_MAX)
        return locals->newest;
    struct join_looked looked;
    unsigned n = join_table_family(locals->table, trace_id, service, service_len, service_hash,
                                   spans, &looked);
    *locals->cut += looked.more;
    locals->steps += (looked.steps + 1) * (uint64_t)JOIN_STEPS_PER_LOOK;
    br_steps_add((looked.steps + 1) * (size_t)JOIN_STEPS_PER_LOOK);
    locals->newest = locals_add(locals, key, spans, n);
    return locals->newest;
}

/* --- Asking ----------------------------------------------------------------------------- */

static bool local_is_open(const struct join_relative *relative, uint64_t time_ns, uint32_t thread,
                          uint32_t thread_name)
{
    return relative->start_ns <= time_ns && time_ns < relative->end_ns &&
           join_same_thread(relative->thread, relative->thread_name, thread, thread_name);
}

/* Of the deepest spans the first and the last of the tree: what both are below, all are. */
uint32_t join_local_open(const struct join_local *local, uint32_t root, uint64_t time_ns,
                         uint32_t thread, uint32_t thread_name)
{
    uint32_t first = root, last = root;
    br_steps_add(local->n + 1);
    for (uint32_t i = 0; i < local->n; i++) {
        if (local->depths[i] < local->depths[first] || !join_local_below(local, i, root) ||
            !local_is_open(&local->spans[i], time_ns, thread, thread_name))
            continue;
        if (local->depths[i] > local->depths[first])
            first = last = i;
        first = local->first[i] < local->first[first] ? i : first;
        last = local->first[i] > local->first[last] ? i : last;
    }
    while (!join_local_below(local, last, first))
        first = local->parents[first] - 1u;
    return first;
}

/* --- Samples of a local tree ------------------------------------------------------------ */

/* --- Reading ---------------------------------------------------------------------------- */

/* The number of the span in its local tree, whose root it is and in which there are others; or
 * JOIN_NO_SPAN. */
static uint32_t credit_read_tree(struct join_credit *credit, const struct join_found *named)
{
    credit->local =
        join_locals_get(&credit->locals, named->trace, named->service, named->service_len,
                        join_service_hash(named->service, named->service_len));
    credit->n_cut += !credit->local && credit->locals.steps > JOIN_STEPS_MAX;
    uint32_t i = credit->local && credit->local->n > 1 ? join_local_find(credit->local, named->span)
                                                       : JOIN_NO_SPAN;
    return i != JOIN_NO_SPAN && !credit->local->parents[i] ? i : JOIN_NO_SPAN;
}

static bool credit_read_numbers(struct join_credit *credit, const struct join_reading *reading)
{
    uint64_t need = reading->n_times > reading->n_values ? reading->n_times : reading->n_values;
    if (need > credit->cap) {
        uint64_t cap = join_numbers_cap(need);
        credit->times = br_arena_alloc(credit->arena, cap * sizeof *credit->times);
        credit->values = br_arena_alloc(credit->arena, cap * sizeof *credit->values);
        credit->cap = credit->times && credit->values ? cap : 0;
        if (!credit->cap)
            return false;
    }
    join_reading_times(reading, credit->times);
    join_reading_values(reading, credit->values);
    return true;
}

/* --- Adding ----------------------------------------------------------------------------- */

/* A run of timestamps that are one span's. */
struct share {
    uint32_t span;
    uint64_t value, n_times;
};

struct added {
    const struct join_credit *credit;
    const struct join_sample *sample;
};

static void credit_on_added(void *arg, const struct join_span *span)
{
    const struct added *added = arg;
    if (added->credit->on_credited)
        added->credit->on_credited(added->credit->arg, span, added->sample);
}

static bool credit_add(const struct join_credit *credit, const struct join_sample *sample)
{
    struct added added = {credit, sample};
    return join_table_add(credit->locals.table, sample, credit_on_added, &added);
}

static void credit_add_share(struct join_credit *credit, const struct join_meaning *meaning,
                             const struct share *share, bool has_value,
                             const struct join_found *named, const struct join_sample *sample)
{
    struct join_sample own = *sample;
    const uint64_t *id = &credit->local->spans[share->span].span_id;
    join_meaning_apply(meaning, share->value, has_value, share->n_times, &own);
    own.trace_id = named->trace;
    if (br_load64(named->span) != *id) {
        own.span_id = (const uint8_t *)id;
        own.under = named->span;
        own.passed = credit_add(credit, &own);
        own.under = NULL;
    }
    own.span_id = named->span;
    (void)(own.passed ? join_table_add(credit->locals.table, &own, NULL, NULL)
                      : credit_add(credit, &own));
}

/* The span that all timestamps are of, or JOIN_NO_SPAN. Puts each timestamp's span in its place. */
static uint32_t credit_spans_of_times(struct join_credit *credit,
                                      const struct join_reading *reading, uint32_t root)
{
    uint32_t all = JOIN_NO_SPAN;
    bool one = true;
    for (uint64_t i = 0; i < reading->n_times; i++) {
        uint32_t span = join_local_open(credit->local, root, credit->times[i],
                                        reading->where.hashes[JOIN_THREAD_ID],
                                        reading->where.hashes[JOIN_THREAD_NAME]);
        one = one && (i == 0 || span == all);
        all = span;
        credit->times[i] = span;
    }
    return one ? all : JOIN_NO_SPAN;
}

static uint64_t credit_sum(uint64_t left, uint64_t right)
{
    uint64_t sum;
    return __builtin_add_overflow(left, right, &sum) ? UINT64_MAX : sum;
}

/* Whether the steps that so many timestamps take are left. */
static bool credit_may_take(struct join_credit *credit, uint64_t n_times)
{
    uint64_t steps = n_times * (credit->local->n + 1);
    if (credit->locals.steps + steps > JOIN_STEPS_MAX) {
        credit->n_cut++;
        return false;
    }
    credit->locals.steps += steps;
    return true;
}

bool join_credit_below(struct join_credit *credit, const struct join_meaning *meaning,
                       const struct join_reading *reading, const struct join_found *named,
                       const struct join_sample *sample)
{
    if (!reading->n_times || !named->has_trace || !named->service_len)
        return false;
    uint32_t root = credit_read_tree(credit, named);
    if (root == JOIN_NO_SPAN || !credit_may_take(credit, reading->n_times) ||
        !credit_read_numbers(credit, reading))
        return false;
    uint32_t one = credit_spans_of_times(credit, reading, root);
    if (one == root ||
        (one == JOIN_NO_SPAN && reading->n_values && reading->n_values != reading->n_times))
        return false; /* values that are of no timestamp cannot be shared out */
    struct share share = {.span = one, .value = reading->value, .n_times = reading->n_times};
    if (one == JOIN_NO_SPAN) {
        share = (struct share){.span = (uint32_t)credit->times[0]};
        for (uint64_t i = 0; i < reading->n_times; i++) {
            if (credit->times[i] != share.span) {
                credit_add_share(credit, meaning, &share, reading->n_values, named, sample);
                share = (struct share){.span = (uint32_t)credit->times[i]};
            }
            share.n_times++;
            if (reading->n_values && (int64_t)credit->values[i] > 0)
                share.value = credit_sum(share.value, credit->values[i]);
        }
    }
    credit_add_share(credit, meaning, &share, reading->n_values, named, sample);
    return true;
}
