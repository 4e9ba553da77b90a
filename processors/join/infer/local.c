/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer/infer.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/sum.h"
#include "otlp/fields.h"
#include "processors/join/infer/identity.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define UNKNOWN UINT16_MAX /* value of a depth that is not computed yet */

/* --- Finding ---------------------------------------------------------------------------- */

/* Returns the slot of the hash table at which the search for a span id begins. The id is multiplied
 * by a secret, so that clients cannot choose ids that have the same slot. */
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
    for (unsigned i = 0; i < local->count; i++) {
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
    if (!relative->parent_id || br_span_kind_is_entry(relative->kind))
        return 0;
    uint32_t i = local_find(local, relative->parent_id);
    return i == JOIN_NO_SPAN ? 0 : (uint16_t)(i + 1);
}

/* Computes the depth of each span by walking up to an ancestor whose depth is known, and back
 * down. A span that is its own ancestor becomes a root. */
static void local_measure_depths(struct join_local *local)
{
    uint16_t path[JOIN_FAMILY_MAX];
    bool on_path[JOIN_FAMILY_MAX] = {false};
    for (unsigned i = 0; i < local->count; i++)
        local->depths[i] = UNKNOWN;
    for (unsigned i = 0; i < local->count; i++) {
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

/* Stores the indices of the spans in order of increasing depth in `ret`. Uses the array `end` as
 * scratch memory. */
static void local_order_by_depth(struct join_local *local, uint16_t *ret)
{
    uint16_t *starts = local->end, n_before = 0;
    memset(starts, 0, local->count * sizeof *starts);
    for (unsigned i = 0; i < local->count; i++)
        starts[local->depths[i]]++;
    for (unsigned d = 0; d < local->count; d++) {
        uint16_t n_here = starts[d];
        starts[d] = n_before;
        n_before = (uint16_t)(n_before + n_here);
    }
    for (unsigned i = 0; i < local->count; i++)
        ret[starts[local->depths[i]]++] = (uint16_t)i;
}

/* Assigns places in tree order: the places of a span's descendants directly follow its own place.
 * Before a span is placed, its `first` is the size of its subtree. While the children of a span are
 * placed, its `end` is the place of the next child. Afterwards, `end` is the end of the subtree. */
static void local_place_spans(struct join_local *local)
{
    uint16_t order[JOIN_FAMILY_MAX], next_root = 0;
    local_order_by_depth(local, order);
    for (unsigned i = 0; i < local->count; i++)
        local->first[i] = 1;
    for (unsigned i = local->count; i-- > 0;) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): `order` has each index once. */
        unsigned span = order[i], parent = local->parents[span];
        if (parent)
            local->first[parent - 1] = (uint16_t)(local->first[parent - 1] + local->first[span]);
    }
    for (unsigned i = 0; i < local->count; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): `order` has each index once. */
        unsigned span = order[i], parent = local->parents[span];
        uint16_t *next = parent ? &local->end[parent - 1] : &next_root, place = *next;
        *next = (uint16_t)(place + local->first[span]);
        local->first[span] = place;
        local->end[span] = (uint16_t)(place + 1);
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

/* Returns a tree with room for `count` spans, or NULL if there is not enough memory or the arena
 * has reached its limit. */
static struct join_local *local_new(struct br_arena *arena, unsigned count)
{
    struct join_local *local = br_arena_calloc(arena, 1, sizeof *local);
    if (!local)
        return NULL;
    local->count = count;
    local->slot_bits = local_slot_bits(count);
    local->spans = br_arena_calloc(arena, count, sizeof *local->spans);
    local->parents = br_arena_calloc(arena, count, sizeof *local->parents);
    local->depths = br_arena_calloc(arena, count, sizeof *local->depths);
    local->first = br_arena_calloc(arena, count, sizeof *local->first);
    local->end = br_arena_calloc(arena, count, sizeof *local->end);
    local->slots = br_arena_calloc(arena, (size_t)1 << local->slot_bits, sizeof *local->slots);
    bool tree = local->parents && local->depths && local->first && local->end;
    return tree && local->spans && local->slots ? local : NULL;
}

static void local_read(struct join_local *local, const struct join_relative *spans)
{
    if (local->count)
        memcpy(local->spans, spans, local->count * sizeof *spans);
    local_index_spans(local);
    for (unsigned i = 0; i < local->count; i++) {
        local->parents[i] = local_parent_of(local, &local->spans[i]);
        local->totals = local->totals || local->spans[i].totals;
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
    br_free(locals->read);
    locals->read = NULL;
}

#define KEY_LEN 24

static struct join_local *locals_add(struct join_locals *locals, const uint8_t key[KEY_LEN],
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
    locals->read = br_calloc(locals->max_spans, sizeof *locals->read);
    locals_forget(locals);
}

const struct join_local *join_locals_get(struct join_locals *locals, const uint8_t *trace_id,
                                         const uint8_t *service, size_t service_len,
                                         uint64_t service_hash)
{
    uint8_t key[KEY_LEN];
    if (locals->newest && locals->newest->service_hash == service_hash &&
        memcmp(locals->newest->trace_id, trace_id, sizeof locals->newest->trace_id) == 0)
        return locals->newest;
    memcpy(key, trace_id, 16);
    memcpy(key + 16, &service_hash, sizeof service_hash);
    if (!locals->multiplier)
        locals_begin(locals);
    locals->newest = locals->known ? br_map_get(locals->known, key, sizeof key) : NULL;
    if (locals->newest || locals->steps > JOIN_STEPS_MAX || !locals->read)
        return locals->newest;
    struct join_search search;
    unsigned n = join_table_family(locals->table, trace_id, service, service_len, service_hash,
                                   locals->read, locals->max_spans, &search);
    *locals->cut += search.more;
    locals->steps += (search.steps + 1) * (uint64_t)JOIN_STEPS_PER_LOOKUP;
    br_steps_add((search.steps + 1) * (size_t)JOIN_STEPS_PER_LOOKUP);
    locals->newest = locals_add(locals, key, locals->read, n);
    if (locals->newest) {
        locals->newest->since_ns = search.since_ns;
        locals->newest->exact = join_table_is_exact(locals->table, service_hash, locals->now_ms);
    }
    return locals->newest;
}

/* --- Lookup ----------------------------------------------------------------------------- */

static bool local_is_open(const struct join_relative *relative, uint64_t time_ns, uint32_t thread,
                          uint32_t thread_name)
{
    return relative->start_ns <= time_ns && time_ns < relative->end_ns &&
           join_same_thread(relative->thread, relative->thread_name, thread, thread_name);
}

/* Returns true if the span was known to be below `root` when a sample was released: the span,
 * the root and all spans between them had arrived. */
static bool local_was_below(const struct join_local *local, uint32_t span, uint32_t root,
                            struct join_release_time release_time)
{
    while (span != root && join_is_in_time(local->spans[span].seen, release_time))
        span = local->parents[span] - 1u;
    return join_is_in_time(local->spans[span].seen, release_time);
}

/* Returns the deepest span at or below `root` that was open at `time_ns` on the thread. `thread`
 * and `thread_name` are hashes; a span or a sample without a thread matches every thread. If
 * several open spans are equally deep, returns their lowest common ancestor. The lowest common
 * ancestor is computed from the first and the last of the deepest spans in tree order.
 *
 * Returns `root` if samples of the service name exactly the spans in which they were taken. Also
 * returns `root` if spans of that time may have been evicted. If `release_time` is not NULL,
 * ignores spans that arrived too late for the sample to be linked to them. */
static uint32_t local_open(const struct join_local *local, uint32_t root, uint64_t time_ns,
                           uint32_t thread, uint32_t thread_name,
                           const struct join_release_time *release_time)
{
    uint32_t first = root, last = root;
    br_steps_add(local->count + 1);
    if (local->exact || time_ns < local->since_ns)
        return root;
    for (uint32_t i = 0; i < local->count; i++) {
        if (local->depths[i] < local->depths[first] || !join_local_below(local, i, root) ||
            !local_is_open(&local->spans[i], time_ns, thread, thread_name) ||
            (release_time && !local_was_below(local, i, root, *release_time)))
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

/* Reads the tree of the span and returns the span's index in the tree, or JOIN_NO_SPAN. */
static uint32_t join_local_credit_read_tree(struct join_credit *credit,
                                            const struct join_found *named)
{
    credit->local =
        join_locals_get(&credit->locals, named->trace, named->service, named->service_len,
                        join_service_hash(named->service, named->service_len));
    return credit->local ? join_local_find(credit->local, named->span) : JOIN_NO_SPAN;
}

enum join_tree_place join_credit_place(struct join_credit *credit, const struct join_found *named)
{
    if (!named->has_trace || !named->service_len)
        return JOIN_TREE_UNKNOWN;
    uint32_t i = join_local_credit_read_tree(credit, named);
    credit->n_cut += !credit->local;
    if (i == JOIN_NO_SPAN)
        return JOIN_TREE_UNKNOWN;
    if (credit->local->parents[i])
        return JOIN_TREE_BELOW;
    return credit->local->exact ? JOIN_TREE_EXACT_ROOT : JOIN_TREE_ROOT;
}

static bool join_local_credit_read_numbers(struct join_credit *credit,
                                           const struct join_sample_view *view)
{
    uint64_t need = view->n_times > view->n_values ? view->n_times : view->n_values;
    if (need > credit->cap) {
        uint64_t cap = join_numbers_cap(need);
        credit->times = br_arena_alloc(credit->arena, cap * sizeof *credit->times);
        credit->values = br_arena_alloc(credit->arena, cap * sizeof *credit->values);
        credit->cap = credit->times && credit->values ? cap : 0;
        if (!credit->cap)
            return false;
    }
    join_sample_view_times(view, credit->times);
    join_sample_view_values(view, credit->values);
    return true;
}

/* Returns the sum of the values; negative values count as 0. */
static uint64_t join_local_credit_sum_of(const uint64_t *values, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        if ((int64_t)values[i] > 0)
            sum = br_sum_unsigned(sum, values[i]);
    return sum;
}

bool join_credit_defer(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_identity *where,
                       const struct join_sample *sample, uint64_t waits_ms, uint64_t now_ms,
                       struct join_tally *tally)
{
    const struct join_release_time release_time = join_release_time(now_ms, waits_ms);
    bool apart = view->n_values == view->n_times;
    if ((view->n_values && !apart && view->n_times > JOIN_TIMES_MAX) ||
        !join_local_credit_read_numbers(credit, view))
        return false;
    struct join_deferred deferred = {.unit_ns = value_type->unit_ns,
                                     .period_ns = value_type->period_ns,
                                     .type = value_type->type,
                                     .measure = (uint8_t)value_type->measure,
                                     .counts = value_type->counts,
                                     .allocates = value_type->allocates,
                                     .has_value = view->n_values,
                                     .of_thread = !view->span_id,
                                     .thread = where->hashes[JOIN_THREAD_ID],
                                     .thread_name = where->hashes[JOIN_THREAD_NAME],
                                     .service = where->hashes[JOIN_SERVICE],
                                     .runtime = where->hashes[JOIN_RUNTIME],
                                     .function = sample->function,
                                     .released = release_time.at,
                                     .held = release_time.held};
    memcpy(deferred.places, &where->hashes[JOIN_HOST], sizeof deferred.places);
    for (uint64_t i = 0; i < view->n_times; i += JOIN_TIMES_MAX) {
        uint64_t n_remaining = view->n_times - i;
        deferred.n_times = n_remaining < JOIN_TIMES_MAX ? (uint32_t)n_remaining : JOIN_TIMES_MAX;
        deferred.n_values = apart ? deferred.n_times : 0;
        deferred.value =
            apart ? join_local_credit_sum_of(credit->values + i, deferred.n_times) : view->value;
        join_table_defer(credit->locals.table, sample, &deferred, credit->times + i,
                         credit->values + i, now_ms, tally);
    }
    return true;
}

/* --- Assigning timestamps --- */

/* Called for consecutive timestamps that belong to one span. `value` is the sum of the values of
 * these timestamps. */
typedef void run_of_times_fn(void *arg, uint32_t span, uint64_t value, uint64_t n_times);

/* Counts the steps that the assignment of `n_times` timestamps needs. Returns false if they exceed
 * the step limit. */
static bool locals_spend_steps(struct join_locals *locals, const struct join_local *local,
                               uint64_t n_times)
{
    uint64_t steps = n_times * (local->count + 1);
    if (locals->steps + steps > JOIN_STEPS_MAX) {
        locals->n_cut++;
        return false;
    }
    locals->steps += steps;
    return true;
}

/* Assigns each timestamp to the span at or below `root` that was open at that time, and replaces
 * the elements of `times` by the indices of these spans. Calls `fn` for each sequence of timestamps
 * of one span. If several spans share a single value, the value is assigned to the root.
 * `release_time` has the same meaning as in local_open. */
static void local_share_out(const struct join_local *local, uint32_t root,
                            const struct join_deferred *deferred,
                            const struct join_release_time *release_time, uint64_t *times,
                            const uint64_t *values, run_of_times_fn *fn, void *arg)
{
    bool one = true;
    for (uint32_t i = 0; i < deferred->n_times; i++) {
        times[i] = local_open(local, root, times[i], deferred->thread, deferred->thread_name,
                              release_time);
        one = one && times[i] == times[0];
    }
    if (one || (deferred->has_value && !deferred->n_values)) {
        fn(arg, one ? (uint32_t)times[0] : root, deferred->value, deferred->n_times);
        return;
    }
    for (uint32_t i = 0, from = 0; i < deferred->n_times; i++) {
        if (i + 1 < deferred->n_times && times[i + 1] == times[from])
            continue;
        fn(arg, (uint32_t)times[from],
           deferred->n_values ? join_local_credit_sum_of(values + from, i + 1 - from) : 0,
           i + 1 - from);
        from = i + 1;
    }
}

struct sharing {
    struct join_locals *locals;
    struct join_local *local;
    const struct join_deferred *deferred;
    uint32_t named;
};

/* Returns the totals of a span's deferred samples. Creates the totals if they do not exist. Returns
 * NULL if there is not enough memory. */
static struct join_totals *local_share_of(struct sharing *sharing, uint32_t span)
{
    struct join_totals **share = &sharing->local->shares[span];
    if (!*share)
        *share = br_arena_calloc(&sharing->locals->arena, 1,
                                 join_table_totals_size(sharing->locals->table));
    if (!*share)
        sharing->locals->n_cut++;
    return *share;
}

static void join_local_sharing_add(void *arg, uint32_t span, uint64_t value, uint64_t n_times)
{
    struct sharing *sharing = arg;
    struct join_local *local = sharing->local;
    struct join_sample sample = join_deferred_sample(sharing->deferred, value, n_times);
    struct join_totals *share = local_share_of(sharing, span);
    if (!share)
        return;
    sample.span_id = (const uint8_t *)&local->spans[span].span_id;
    /* With link_spans, samples are split by span, so each piece is linked to its own span. Only a
     * single value for timestamps of several spans stays with the root. */
    bool stays = !sharing->locals->link_spans;
    if (span != sharing->named && stays)
        sample.under = (const uint8_t *)&local->spans[sharing->named].span_id;
    join_totals_add_sample(sharing->locals->table, share, &sample, false);
}

static void local_sharing_add_linked(void *arg, uint32_t span, uint64_t value, uint64_t n_times)
{
    struct sharing *sharing = arg;
    struct join_sample sample = join_deferred_sample(sharing->deferred, value, n_times);
    struct join_totals *share = local_share_of(sharing, span);
    if (share)
        join_totals_add_linked(share, &sample);
}

/* Assigns the timestamps of the current deferred record to spans. Adds the timestamps to the
 * totals of the spans, and counts the links of exported samples to the spans. */
static void locals_share_one(struct sharing *sharing, struct join_deferred_cursor *cursor)
{
    const struct join_locals *locals = sharing->locals;
    const struct join_local *local = sharing->local;
    const struct join_deferred *deferred = &cursor->deferred;
    uint64_t times[JOIN_TIMES_MAX];
    if (local->parents[sharing->named] ||
        !locals_spend_steps(sharing->locals, local, deferred->n_times)) {
        join_local_sharing_add(sharing, sharing->named, deferred->value, deferred->n_times);
        local_sharing_add_linked(sharing, sharing->named, deferred->value, deferred->n_times);
        return;
    }
    if (locals->link_spans) {
        const struct join_release_time release_time = join_deferred_release_time(deferred);
        memcpy(times, cursor->times, deferred->n_times * sizeof *times);
        local_share_out(local, sharing->named, deferred, &release_time, times, cursor->values,
                        local_sharing_add_linked, sharing);
    }
    local_share_out(local, sharing->named, deferred, NULL, cursor->times, cursor->values,
                    join_local_sharing_add, sharing);
}

/* Advances the cursor to the next deferred record (join_table_next_deferred). Returns false at the
 * end, or if the step limit was reached. */
static bool locals_next_deferred(struct join_locals *locals, const uint8_t *trace_id,
                                 const uint8_t *span_id, struct join_deferred_cursor *cursor)
{
    if (locals->steps > JOIN_STEPS_MAX) {
        locals->n_cut++;
        return false;
    }
    bool found = join_table_next_deferred(locals->table, trace_id, span_id, cursor);
    locals->steps += cursor->steps * (uint64_t)JOIN_STEPS_PER_LOOKUP;
    br_steps_add(cursor->steps * (size_t)JOIN_STEPS_PER_LOOKUP);
    return found;
}

/* Assigns the deferred timestamps of samples that name the span with the index `named`. */
static void locals_share_named(struct join_locals *locals, struct join_local *local, uint32_t named)
{
    struct join_deferred_cursor cursor = {0};
    struct sharing sharing = {locals, local, &cursor.deferred, named};
    const uint8_t *span_id = (const uint8_t *)&local->spans[named].span_id;
    while (locals_next_deferred(locals, local->trace_id, span_id, &cursor))
        locals_share_one(&sharing, &cursor);
}

const struct join_totals *join_locals_share(struct join_locals *locals,
                                            const struct join_local *local, uint32_t span)
{
    struct join_local *own = locals->newest;
    if (local != own)
        return NULL;
    if (!own->shared && own->totals) {
        own->shares = br_arena_calloc(&locals->arena, own->count, sizeof *own->shares);
        for (uint32_t i = 0; own->shares && i < own->count; i++)
            if (own->spans[i].deferred)
                locals_share_named(locals, own, i);
    }
    own->shared = true;
    return own->shares ? own->shares[span] : NULL;
}

void join_deferred_add(struct join_locals *locals, const uint8_t *trace_id, const uint8_t *span_id,
                       struct join_totals *totals)
{
    struct join_deferred_cursor cursor = {0};
    while (locals_next_deferred(locals, trace_id, span_id, &cursor)) {
        struct join_sample sample =
            join_deferred_sample(&cursor.deferred, cursor.deferred.value, cursor.deferred.n_times);
        sample.span_id = span_id;
        /* the function is 0, because the totals of deferred samples have no function counters */
        sample.function = 0;
        join_totals_add_sample(locals->table, totals, &sample, false);
    }
}

/* --- Metrics by span name --- */

struct crediting {
    struct join_credit *credit;
    const struct join_value_type *value_type;
    const struct join_found *named;
    const struct join_sample *sample;
    bool has_value;
};

static void join_local_crediting_on_found(void *arg, const struct join_span *span)
{
    const struct crediting *crediting = arg;
    crediting->credit->on_credited(crediting->credit->arg, span, crediting->sample);
}

static void join_local_crediting_add(void *arg, uint32_t span, uint64_t value, uint64_t n_times)
{
    struct crediting crediting = *(const struct crediting *)arg;
    struct join_sample own = *crediting.sample;
    join_value_type_apply(crediting.value_type, value, crediting.has_value, n_times, &own);
    own.trace_id = crediting.named->trace;
    own.span_id = (const uint8_t *)&crediting.credit->local->spans[span].span_id;
    crediting.sample = &own;
    join_table_find(crediting.credit->locals.table, own.trace_id, own.span_id,
                    join_local_crediting_on_found, &crediting);
}

bool join_credit_spans(struct join_credit *credit, const struct join_sample_view *view,
                       const struct join_found *named, const uint64_t **ret_times,
                       uint64_t *ret_spans)
{
    if (join_credit_place(credit, named) != JOIN_TREE_ROOT ||
        !locals_spend_steps(&credit->locals, credit->local, view->n_times) ||
        !join_local_credit_read_numbers(credit, view))
        return false;
    uint32_t root = join_local_find(credit->local, named->span);
    for (uint64_t i = 0; i < view->n_times; i++)
        ret_spans[i] =
            1 + (uint64_t)local_open(credit->local, root, credit->times[i],
                                     view->where.hashes[JOIN_THREAD_ID],
                                     view->where.hashes[JOIN_THREAD_NAME], &credit->release_time);
    *ret_times = credit->times;
    return true;
}

const uint8_t *join_credit_deepest(struct join_credit *credit, const struct join_sample_view *view,
                                   const struct join_found *named)
{
    if (join_credit_place(credit, named) != JOIN_TREE_ROOT ||
        !locals_spend_steps(&credit->locals, credit->local, view->n_times) ||
        !join_local_credit_read_numbers(credit, view))
        return NULL;
    const struct join_local *local = credit->local;
    uint32_t root = join_local_find(local, named->span), all = root;
    for (uint64_t i = 0; i < view->n_times; i++) {
        uint32_t span =
            local_open(local, root, credit->times[i], view->where.hashes[JOIN_THREAD_ID],
                       view->where.hashes[JOIN_THREAD_NAME], &credit->release_time);
        if (i && span != all)
            return NULL;
        all = span;
    }
    return all == root ? NULL : (const uint8_t *)&local->spans[all].span_id;
}

void join_credit_below(struct join_credit *credit, const struct join_value_type *value_type,
                       const struct join_sample_view *view, const struct join_found *named,
                       const struct join_sample *sample)
{
    uint32_t root = join_local_credit_read_tree(credit, named);
    struct crediting crediting = {credit, value_type, named, sample, view->n_values};
    const struct join_deferred deferred = {
        .thread = view->where.hashes[JOIN_THREAD_ID],
        .thread_name = view->where.hashes[JOIN_THREAD_NAME],
        .has_value = view->n_values,
        .n_times = (uint32_t)view->n_times,
        .n_values = view->n_values == view->n_times ? (uint32_t)view->n_values : 0,
        .value = view->value};
    if (root == JOIN_NO_SPAN)
        return;
    if (!locals_spend_steps(&credit->locals, credit->local, view->n_times) ||
        !join_local_credit_read_numbers(credit, view))
        join_local_crediting_add(&crediting, root, view->value, view->n_times);
    else
        local_share_out(credit->local, root, &deferred, NULL, credit->times, credit->values,
                        join_local_crediting_add, &crediting);
}
