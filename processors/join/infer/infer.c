/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer/infer.h"

#include <string.h>

#include "base/map.h"
#include "wire/protobuf.h"

#define THREADS_MAX 65536
#define OPEN_MAX 64u /* at a time on one thread; of more none is chosen */

#define NEAR_MAX (JOIN_THREAD_KEYS * JOIN_NEIGHBOURS_MAX)

/* The spans of threads with one id or one name, newest first by each key. */
struct near {
    unsigned count;
    uint64_t since_ns; /* what was open before is not all known */
    struct join_neighbour *spans;
    struct join_totals **shares; /* of each, once somebody has asked */
};

void join_infer_init(struct join_infer *infer, struct join_table *table, struct br_arena *arena)
{
    *infer = (struct join_infer){.table = table, .arena = arena};
}

void join_infer_release(struct join_infer *infer)
{
    br_map_free(infer->threads, NULL);
    infer->threads = NULL;
}

bool join_infer_may(const struct join_sample_view *view, const struct join_identity *where)
{
    return join_sample_view_is_timed(view) && where->hashes[JOIN_PROCESS] &&
           (where->hashes[JOIN_THREAD_ID] || where->hashes[JOIN_THREAD_NAME]) &&
           (where->hashes[JOIN_HOST] || where->hashes[JOIN_CONTAINER]);
}

/* --- Reading ---------------------------------------------------------------------------- */

static uint32_t infer_thread(const struct join_identity *where, enum join_thread_key key)
{
    return where->hashes[key == JOIN_BY_THREAD_ID ? JOIN_THREAD_ID : JOIN_THREAD_NAME];
}

/* Adds the spans that are found by this key; false without memory. */
static bool infer_read_near(struct join_infer *infer, const struct join_identity *where,
                            enum join_thread_key key, struct near *near)
{
    struct join_neighbour found[JOIN_NEIGHBOURS_MAX], *spans;
    struct join_looked looked;
    uint32_t id = where->hashes[JOIN_THREAD_ID];
    if (!join_thread_is_sought_by(where, key))
        return true;
    unsigned n = join_table_neighbours(infer->table, key, infer_thread(where, key),
                                       where->hashes[JOIN_PROCESS], found, &looked);
    infer->steps += (looked.steps + 1) * (uint64_t)JOIN_STEPS_PER_LOOK;
    if (infer->cut)
        *infer->cut += looked.more;
    uint64_t since_ns = looked.more && n ? found[n - 1].end_ns : looked.more ? UINT64_MAX : 0;
    near->since_ns = since_ns > near->since_ns ? since_ns : near->since_ns;
    if (!n)
        return true;
    spans = br_arena_calloc(infer->arena, near->count + n, sizeof *spans);
    if (!spans)
        return false;
    if (near->count)
        memcpy(spans, near->spans, near->count * sizeof *spans);
    near->spans = spans;
    for (unsigned i = 0; i < n; i++)
        if (key == JOIN_BY_THREAD_ID || !id || found[i].thread != id)
            near->spans[near->count++] = found[i];
    return true;
}

static struct near *infer_new_near(struct join_infer *infer, const struct join_identity *where)
{
    struct near *near = br_arena_calloc(infer->arena, 1, sizeof *near);
    for (unsigned key = 0; near && key < JOIN_THREAD_KEYS; key++)
        if (!infer_read_near(infer, where, (enum join_thread_key)key, near))
            return NULL;
    return near;
}

static struct near *infer_near_of(struct join_infer *infer, const struct join_identity *where)
{
    const uint32_t key[] = {where->hashes[JOIN_THREAD_ID], where->hashes[JOIN_THREAD_NAME],
                            where->hashes[JOIN_PROCESS]};
    if (!infer->threads)
        infer->threads = br_map_new(THREADS_MAX);
    struct near *near = infer->threads ? br_map_get(infer->threads, key, sizeof key) : NULL;
    if (infer->threads && !near && infer->steps <= JOIN_STEPS_MAX) {
        near = infer_new_near(infer, where);
        if (near)
            (void)br_map_put(infer->threads, key, sizeof key, near, NULL); /* full: read again */
    }
    return near;
}

static bool infer_read_times(struct join_infer *infer, const struct join_sample_view *view)
{
    if (view->n_times > infer->cap) {
        uint64_t cap = join_numbers_cap(view->n_times);
        infer->times = br_arena_alloc(infer->arena, cap * sizeof *infer->times);
        infer->cap = infer->times ? cap : 0;
    }
    if (infer->cap)
        join_sample_view_times(view, infer->times);
    return infer->cap;
}

/* --- Finding ---------------------------------------------------------------------------- */

/* Many threads may have one name: it decides only where ids say nothing. */
static bool infer_same_thread(const struct join_neighbour *neighbour,
                              const struct join_identity *where)
{
    uint32_t id = where->hashes[JOIN_THREAD_ID], name = where->hashes[JOIN_THREAD_NAME];
    bool of_one_kind = neighbour->thread && id && neighbour->runtime == where->hashes[JOIN_RUNTIME];
    bool named = neighbour->thread_name && name;
    if (named && neighbour->thread_name != name)
        return false;
    return of_one_kind ? neighbour->thread == id : named;
}

/* A service alone is no process: its replicas often have the same process and thread ids. */
static bool infer_is_from(const struct join_neighbour *neighbour, const struct join_identity *where)
{
    const uint32_t its[] = {neighbour->host, neighbour->container, neighbour->service};
    const uint32_t ours[] = {where->hashes[JOIN_HOST], where->hashes[JOIN_CONTAINER],
                             where->hashes[JOIN_SERVICE]};
    const unsigned n_places = 2; /* the first of them */
    unsigned n_same = 0;
    for (unsigned k = 0; k < 3; k++) {
        if (its[k] && ours[k] && its[k] != ours[k])
            return false;
        n_same += k < n_places && its[k] && its[k] == ours[k];
    }
    return n_same > 0 && infer_same_thread(neighbour, where);
}

static bool infer_same_span(const struct join_neighbour *neighbour, const uint8_t *trace_id,
                            uint64_t span_id)
{
    return neighbour->span_id == span_id && memcmp(neighbour->trace_id, trace_id, 16) == 0;
}

/* The spans that were open: their numbers. */
static unsigned infer_open_at(const struct near *near, const struct join_identity *where,
                              uint64_t time_ns, uint16_t *ret)
{
    unsigned n = 0;
    for (unsigned i = 0; i < near->count; i++) {
        const struct join_neighbour *neighbour = &near->spans[i];
        if (neighbour->start_ns <= time_ns && time_ns < neighbour->end_ns &&
            infer_is_from(neighbour, where))
            ret[n++] = (uint16_t)i;
    }
    return n;
}

/* The number in `open` of a span's parent; `n` when it is not among them. */
static unsigned infer_parent_of(const struct near *near, const uint16_t *open, unsigned count,
                                unsigned index)
{
    const struct join_neighbour *neighbour = &near->spans[open[index]];
    unsigned k = 0;
    while (k < count && (k == index || !infer_same_span(&near->spans[open[k]], neighbour->trace_id,
                                                        neighbour->parent_id)))
        k++;
    return k;
}

/* The span that lies below all others that were open: the only one that is no parent of another,
 * from which a chain of parents goes through every other one. */
static const struct join_neighbour *infer_deepest(const struct near *near, const uint16_t *open,
                                                  unsigned count)
{
    unsigned parents[OPEN_MAX], at = count, n_above = 0;
    bool is_parent[OPEN_MAX] = {false};
    if (count == 0 || count > OPEN_MAX)
        return NULL;
    for (unsigned i = 0; i < count; i++) {
        parents[i] = infer_parent_of(near, open, count, i);
        if (parents[i] < count)
            is_parent[parents[i]] = true;
    }
    for (unsigned i = 0; i < count; i++)
        at = is_parent[i] ? at : i;
    const struct join_neighbour *span = at < count ? &near->spans[open[at]] : NULL;
    while (at < count && parents[at] < count && n_above < count) {
        at = parents[at];
        n_above++;
    }
    return n_above == count - 1 ? span : NULL;
}

/* The one span that a sample of that time was taken in. */
static const struct join_neighbour *infer_span_at(struct join_infer *infer, const struct near *near,
                                                  const struct join_identity *where,
                                                  uint64_t time_ns)
{
    uint16_t open[NEAR_MAX];
    bool known = time_ns > near->since_ns || !near->since_ns;
    unsigned n = known ? infer_open_at(near, where, time_ns, open) : 0;
    infer->steps += near->count + (n <= OPEN_MAX ? (uint64_t)n * n : 0);
    return infer_deepest(near, open, n);
}

/* The one span that all those timestamps are of; NULL: none, or too many steps. */
static const struct join_neighbour *infer_span_of(struct join_infer *infer, const struct near *near,
                                                  const struct join_identity *where,
                                                  const uint64_t *times, uint64_t n_times)
{
    const struct join_neighbour *span = NULL;
    if (infer->steps + n_times * near->count > JOIN_STEPS_MAX) {
        infer->n_cut++;
        return NULL;
    }
    for (uint64_t k = 0; k < n_times; k++) {
        const struct join_neighbour *one = infer_span_at(infer, near, where, times[k]);
        if (!one || (span && one != span))
            return NULL;
        span = one;
        if (infer->steps > JOIN_STEPS_MAX) {
            infer->n_cut++;
            return NULL;
        }
    }
    return span;
}

const struct join_neighbour *join_infer_span(struct join_infer *infer,
                                             const struct join_sample_view *view,
                                             const struct join_identity *where)
{
    const struct near *near = infer_near_of(infer, where);
    infer->n_cut += !near && infer->steps > JOIN_STEPS_MAX;
    if (!near || !infer_read_times(infer, view))
        return NULL;
    return infer_span_of(infer, near, where, infer->times, view->n_times);
}

/* The same for each timestamp; 0: no span, or more than one may be. */
static bool infer_spans_of(struct join_infer *infer, const struct near *near,
                           const struct join_identity *where, const uint64_t *times,
                           uint64_t n_times, uint64_t *ret)
{
    for (uint64_t k = 0; k < n_times; k++) {
        if (infer->steps > JOIN_STEPS_MAX) {
            infer->n_cut++;
            return false;
        }
        const struct join_neighbour *one = infer_span_at(infer, near, where, times[k]);
        ret[k] = one ? (uint64_t)(one - near->spans) + 1 : 0;
    }
    return true;
}

bool join_infer_spans(struct join_infer *infer, const struct join_sample_view *view,
                      const struct join_identity *where, const uint64_t **ret_times,
                      uint64_t *ret_spans)
{
    const struct near *near = infer_near_of(infer, where);
    if (!near || !infer_read_times(infer, view))
        return false;
    *ret_times = infer->times;
    return infer_spans_of(infer, near, where, infer->times, view->n_times, ret_spans);
}

/* --- Figures --- */

bool join_thread_is_kept_by(const struct join_identity *where, enum join_thread_key key)
{
    return key == JOIN_BY_THREAD_ID ||
           key == join_thread_name_key(where->hashes[JOIN_THREAD_ID], where->hashes[JOIN_RUNTIME]);
}

bool join_thread_is_sought_by(const struct join_identity *where, enum join_thread_key key)
{
    return infer_thread(where, key) &&
           (key <= JOIN_BY_NAME_ALONE || !join_thread_is_kept_by(where, key));
}

bool join_thread_ids_of(const struct join_identity *where, enum join_thread_key key,
                        struct join_thread_ids *ret)
{
    const uint32_t thread = infer_thread(where, key), process = where->hashes[JOIN_PROCESS];
    const uint32_t trace[] = {thread, process, ~thread, process ^ (uint32_t)key};
    const uint32_t span[] = {thread ^ (0u - (uint32_t)key), process};
    memcpy(ret->trace, trace, sizeof ret->trace);
    memcpy(ret->span, span, sizeof ret->span);
    return thread && process;
}

/* The timestamps of a thread that are shared out to the spans of `near`; the thread's own spans
 * are `its`. */
struct infer_sharing {
    struct join_infer *infer;
    struct near *near;
    const struct near *its;
    const struct join_identity *where; /* of the timestamps */
    const struct join_thread_ids *ids; /* under which they are kept */
    const struct join_taken_cursor *cursor;
};

/* The share of a span of `its`; NULL: it is not near, and has its share elsewhere. */
static struct join_totals **infer_share_of(const struct infer_sharing *sharing,
                                           const struct join_neighbour *span)
{
    struct near *near = sharing->near;
    if (sharing->its == near)
        return &near->shares[span - near->spans];
    sharing->infer->steps += near->count;
    for (unsigned i = 0; i < near->count; i++)
        if (infer_same_span(&near->spans[i], span->trace_id, span->span_id))
            return &near->shares[i];
    return NULL;
}

static void infer_add_share(const struct infer_sharing *sharing, const struct join_neighbour *span,
                            uint64_t value, uint64_t n_times)
{
    struct join_infer *infer = sharing->infer;
    struct join_totals **share = infer_share_of(sharing, span);
    struct join_sample sample = join_taken_sample(&sharing->cursor->taken, value, n_times);
    if (!share)
        return;
    if (!*share)
        *share = br_arena_calloc(infer->arena, 1, join_table_totals_size(infer->table));
    if (!*share) {
        infer->n_cut++;
        return;
    }
    sample.span_id = (const uint8_t *)&span->span_id;
    join_totals_add_sample(infer->table, *share, &sample, false);
}

/* One value for all timestamps cannot be shared out. */
static void infer_share_whole(const struct infer_sharing *sharing)
{
    const struct join_taken *taken = &sharing->cursor->taken;
    const struct join_neighbour *span = infer_span_of(sharing->infer, sharing->its, sharing->where,
                                                      sharing->cursor->times, taken->n_times);
    uint64_t spans[JOIN_TIMES_MAX];
    if (!span)
        return;
    for (uint32_t i = 0; i < taken->n_times; i++)
        spans[i] = 1;
    join_table_claim(sharing->infer->table, sharing->ids->span, sharing->cursor, spans);
    infer_add_share(sharing, span, taken->value, taken->n_times);
}

static void infer_share_each(const struct infer_sharing *sharing)
{
    const struct join_taken_cursor *cursor = sharing->cursor;
    const struct join_taken *taken = &cursor->taken;
    uint64_t spans[JOIN_TIMES_MAX];
    if (!infer_spans_of(sharing->infer, sharing->its, sharing->where, cursor->times, taken->n_times,
                        spans))
        return;
    join_table_claim(sharing->infer->table, sharing->ids->span, cursor, spans);
    for (uint32_t i = 0; i < taken->n_times; i++) {
        uint64_t value = taken->n_values && (int64_t)cursor->values[i] > 0 ? cursor->values[i] : 0;
        if (spans[i])
            infer_add_share(sharing, &sharing->its->spans[spans[i] - 1], value, 1);
    }
}

/* As join_table_taken; ends when the steps do, too. */
static bool infer_next_taken(struct join_infer *infer, const struct join_thread_ids *ids,
                             struct join_taken_cursor *cursor)
{
    if (infer->steps > JOIN_STEPS_MAX) {
        infer->n_cut++;
        return false;
    }
    bool found = join_table_taken(infer->table, ids->trace, ids->span, cursor);
    infer->steps += cursor->steps * (uint64_t)JOIN_STEPS_PER_LOOK;
    return found;
}

/* Shares out what was taken on threads that are found by this key. */
static void infer_share_near(struct join_infer *infer, struct near *near,
                             const struct join_identity *where, enum join_thread_key key)
{
    uint32_t id = where->hashes[JOIN_THREAD_ID];
    struct join_taken_cursor cursor = {0};
    struct join_thread_ids ids;
    if (!join_thread_is_sought_by(where, key) || !join_thread_ids_of(where, key, &ids))
        return;
    while (infer_next_taken(infer, &ids, &cursor)) {
        const struct join_taken *taken = &cursor.taken;
        const struct join_identity its = {.hashes = {[JOIN_THREAD_ID] = taken->thread,
                                                     [JOIN_THREAD_NAME] = taken->thread_name,
                                                     [JOIN_PROCESS] = where->hashes[JOIN_PROCESS],
                                                     [JOIN_RUNTIME] = taken->runtime,
                                                     [JOIN_HOST] = taken->host,
                                                     [JOIN_CONTAINER] = taken->container,
                                                     [JOIN_SERVICE] = taken->service}};
        if (key != JOIN_BY_THREAD_ID && id && taken->thread == id)
            continue; /* it came by its id */
        const struct infer_sharing sharing = {infer, near, infer_near_of(infer, &its),
                                              &its,  &ids, &cursor};
        if (!sharing.its)
            continue;
        if (taken->has_value && !taken->n_values)
            infer_share_whole(&sharing);
        else
            infer_share_each(&sharing);
    }
}

const struct join_totals *join_infer_share(struct join_infer *infer,
                                           const struct join_identity *where,
                                           const uint8_t *trace_id, const uint8_t *span_id)
{
    struct near *near = infer_near_of(infer, where);
    if (!near)
        return NULL;
    if (!near->shares) {
        near->shares = br_arena_calloc(infer->arena, near->count + 1u, sizeof *near->shares);
        for (unsigned key = 0; near->shares && key < JOIN_THREAD_KEYS; key++)
            infer_share_near(infer, near, where, (enum join_thread_key)key);
    }
    infer->steps += near->count;
    for (unsigned i = 0; near->shares && i < near->count && infer->steps <= JOIN_STEPS_MAX; i++)
        if (infer_same_span(&near->spans[i], trace_id, br_load64(span_id)))
            return near->shares[i];
    return NULL;
}
