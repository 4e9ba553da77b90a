/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer.h"

#include <string.h>

#include "base/map.h"

#define THREADS_MAX 65536
#define OPEN_MAX 64u /* at a time on one thread; of more none is chosen */

/* The spans of one thread, newest first. */
struct near {
    unsigned n;
    uint64_t since_ns; /* what was open before is not all known */
    struct join_neighbour *spans;
};

void join_infer_init(struct join_infer *i, struct join_table *table, struct br_arena *arena)
{
    *i = (struct join_infer){.table = table, .arena = arena};
}

void join_infer_release(struct join_infer *i)
{
    br_map_free(i->threads, NULL);
    i->threads = NULL;
}

bool join_infer_may(const struct join_reading *s, const struct join_identity *where)
{
    return s->n_times && where->v[JOIN_THREAD_ID] && where->v[JOIN_PROCESS] &&
           (where->v[JOIN_HOST] || where->v[JOIN_CONTAINER]);
}

/* --- Reading ------------------------------------------------------------------------------------
 */

static struct near *read_near(struct join_infer *i, uint32_t thread, uint32_t process)
{
    struct join_neighbour found[JOIN_NEIGHBOURS_MAX];
    struct join_looked looked;
    unsigned n = join_table_neighbours(i->table, thread, process, found, &looked);
    i->steps += (looked.steps + 1) * (uint64_t)JOIN_STEPS_PER_LOOK;
    struct near *near = br_arena_calloc(i->arena, 1, sizeof *near);
    if (!near)
        return NULL;
    near->n = n;
    near->since_ns = looked.more && n ? found[n - 1].end_ns : looked.more ? UINT64_MAX : 0;
    near->spans = br_arena_calloc(i->arena, n, sizeof *near->spans);
    if (n && !near->spans)
        return NULL;
    if (n)
        memcpy(near->spans, found, n * sizeof *found);
    return near;
}

static const struct near *near_of(struct join_infer *i, const struct join_identity *where)
{
    const uint32_t key[] = {where->v[JOIN_THREAD_ID], where->v[JOIN_PROCESS]};
    if (!i->threads)
        i->threads = br_map_new(THREADS_MAX);
    struct near *near = i->threads ? br_map_get(i->threads, key, sizeof key) : NULL;
    if (i->threads && !near && i->steps <= JOIN_STEPS_MAX) {
        near = read_near(i, key[0], key[1]);
        if (near)
            (void)br_map_put(i->threads, key, sizeof key, near, NULL); /* full: read again */
    }
    return near;
}

static bool read_times(struct join_infer *i, const struct join_reading *s)
{
    if (s->n_times > i->cap) {
        uint64_t cap = join_numbers_cap(s->n_times);
        i->times = br_arena_alloc(i->arena, cap * sizeof *i->times);
        i->cap = i->times ? cap : 0;
    }
    if (i->cap)
        join_reading_times(s, i->times);
    return i->cap;
}

/* --- Finding ------------------------------------------------------------------------------------
 */

/* A service alone is no process: its replicas often have the same process and thread ids. */
static bool is_from(const struct join_neighbour *n, const struct join_identity *where)
{
    const uint32_t its[] = {n->host, n->container, n->service};
    const uint32_t ours[] = {where->v[JOIN_HOST], where->v[JOIN_CONTAINER], where->v[JOIN_SERVICE]};
    const unsigned n_places = 2; /* the first of them */
    unsigned n_same = 0;
    for (unsigned k = 0; k < 3; k++) {
        if (its[k] && ours[k] && its[k] != ours[k])
            return false;
        n_same += k < n_places && its[k] && its[k] == ours[k];
    }
    return n_same > 0;
}

static bool same_span(const struct join_neighbour *n, const uint8_t *trace_id, uint64_t span_id)
{
    return n->span_id == span_id && memcmp(n->trace_id, trace_id, 16) == 0;
}

/* The spans that were open: their numbers. */
static unsigned open_at(const struct near *near, const struct join_identity *where,
                        uint64_t time_ns, uint16_t *ret)
{
    unsigned n = 0;
    for (unsigned i = 0; i < near->n; i++) {
        const struct join_neighbour *s = &near->spans[i];
        if (s->start_ns <= time_ns && time_ns < s->end_ns && is_from(s, where))
            ret[n++] = (uint16_t)i;
    }
    return n;
}

/* The number in `open` of a span's parent; `n` when it is not among them. */
static unsigned parent_of(const struct near *near, const uint16_t *open, unsigned n, unsigned i)
{
    const struct join_neighbour *s = &near->spans[open[i]];
    unsigned k = 0;
    while (k < n && (k == i || !same_span(&near->spans[open[k]], s->trace_id, s->parent_id)))
        k++;
    return k;
}

/* Of the spans that were open the one that all others lie above: the only one that is nobody's
 * parent, from which a chain of parents goes through every other one. */
static const struct join_neighbour *deepest(const struct near *near, const uint16_t *open,
                                            unsigned n)
{
    unsigned parents[OPEN_MAX], at = n, n_above = 0;
    bool is_parent[OPEN_MAX] = {false};
    if (n == 0 || n > OPEN_MAX)
        return NULL;
    for (unsigned i = 0; i < n; i++) {
        parents[i] = parent_of(near, open, n, i);
        if (parents[i] < n)
            is_parent[parents[i]] = true;
    }
    for (unsigned i = 0; i < n; i++)
        at = is_parent[i] ? at : i;
    const struct join_neighbour *span = at < n ? &near->spans[open[at]] : NULL;
    while (at < n && parents[at] < n && n_above < n) {
        at = parents[at];
        n_above++;
    }
    return n_above == n - 1 ? span : NULL;
}

/* The one span that a sample of that time was taken in. */
static const struct join_neighbour *span_at(struct join_infer *i, const struct near *near,
                                            const struct join_identity *where, uint64_t time_ns)
{
    uint16_t open[JOIN_NEIGHBOURS_MAX];
    bool known = time_ns > near->since_ns || !near->since_ns;
    unsigned n = known ? open_at(near, where, time_ns, open) : 0;
    i->steps += near->n + (n <= OPEN_MAX ? (uint64_t)n * n : 0);
    return deepest(near, open, n);
}

const struct join_neighbour *join_infer_span(struct join_infer *i, const struct join_reading *s,
                                             const struct join_identity *where)
{
    const struct near *near = near_of(i, where);
    const struct join_neighbour *span = NULL;
    if (i->steps + (near ? s->n_times * near->n : 0) > JOIN_STEPS_MAX) {
        i->n_cut++;
        return NULL;
    }
    if (!near || !read_times(i, s))
        return NULL;
    for (uint64_t k = 0; k < s->n_times; k++) {
        const struct join_neighbour *one = span_at(i, near, where, i->times[k]);
        if (!one || (span && one != span))
            return NULL;
        span = one;
        if (i->steps > JOIN_STEPS_MAX) {
            i->n_cut++;
            return NULL;
        }
    }
    return span;
}
