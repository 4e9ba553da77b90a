/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/infer/infer.h"

#include <string.h>

#include "base/map.h"
#include "wire/protobuf.h"

#define KNOWN_MAX 65536u /* largest number of entries in each map of a struct join_infer */
/* number of steps (units of work, which are limited) that reading a slot costs, even if the slot is
 * empty */
#define STEPS_PER_SLOT 16u
/* largest number of spans that may be open at one time on one thread; if there are more, the
 * timestamp is not assigned to a span */
#define OPEN_MAX 64u

/* The spans of some threads in one time slot of one level (join_table_neighbours). */
struct slot {
    struct join_neighbour *spans;
    unsigned count;
    bool more; /* true if the slot contains more spans than were read */
};

/* A span to which timestamps or samples were assigned. */
struct found {
    const struct join_neighbour *span;
    uint64_t number;
    /* totals of the span's samples that do not name a span; NULL: there are no such samples */
    struct join_totals *share;
};

void join_infer_init(struct join_infer *infer, struct join_table *table, struct br_arena *arena)
{
    *infer = (struct join_infer){.table = table, .arena = arena};
}

void join_infer_release(struct join_infer *infer)
{
    br_map_free(infer->slots, NULL);
    br_map_free(infer->found, NULL);
    br_map_free(infer->shared, NULL);
    infer->slots = infer->found = infer->shared = NULL;
}

static bool infer_has_place(const struct join_identity *where)
{
    unsigned place = JOIN_HOST;
    while (place < JOIN_WHERES && !where->hashes[place])
        place++;
    return place < JOIN_WHERES;
}

bool join_infer_may(const struct join_sample_view *view, const struct join_identity *where)
{
    return join_sample_view_is_timed(view) && where->hashes[JOIN_PROCESS] &&
           (where->hashes[JOIN_THREAD_ID] || where->hashes[JOIN_THREAD_NAME]) &&
           infer_has_place(where);
}

/* --- Reading ---------------------------------------------------------------------------- */

static struct join_threads infer_threads(const struct join_identity *where,
                                         enum join_thread_key key)
{
    return (struct join_threads){
        key, where->hashes[key == JOIN_BY_THREAD_ID ? JOIN_THREAD_ID : JOIN_THREAD_NAME],
        where->hashes[JOIN_PROCESS]};
}

bool join_thread_is_stored_by(const struct join_identity *where, enum join_thread_key key)
{
    return key == JOIN_BY_THREAD_ID ||
           key == join_thread_name_key(where->hashes[JOIN_THREAD_ID], where->hashes[JOIN_RUNTIME]);
}

/* Returns true if the thread is looked up by `key`: by its id or, if the thread ids of span and
 * sample have different origins, by its name. */
static bool infer_is_sought_by(const struct join_identity *where, enum join_thread_key key)
{
    return infer_threads(where, key).thread &&
           (key <= JOIN_BY_NAME_ALONE || !join_thread_is_stored_by(where, key));
}

static bool infer_prepare(struct br_map **map)
{
    if (!*map)
        *map = br_map_new(KNOWN_MAX);
    return *map != NULL;
}

/* Copies a slot of the table to the arena. Returns false if there is not enough memory. */
static bool infer_read_slot(struct join_infer *infer, const struct join_threads *threads,
                            unsigned level, uint64_t number, struct slot *ret)
{
    struct join_search search;
    if (!infer->neighbours)
        infer->neighbours =
            br_arena_alloc(infer->arena, JOIN_NEIGHBOURS_MAX * sizeof *infer->neighbours);
    if (!infer->neighbours)
        return false;
    struct join_neighbour *spans = infer->neighbours;
    unsigned n = join_table_neighbours(infer->table, threads, level, number, spans, &search);
    *ret = (struct slot){.count = n, .more = search.more};
    infer->steps += STEPS_PER_SLOT + search.steps * (uint64_t)JOIN_STEPS_PER_LOOKUP;
    if (infer->cut)
        *infer->cut += search.more;
    if (n)
        ret->spans = br_arena_alloc(infer->arena, n * sizeof *spans);
    if (ret->spans)
        memcpy(ret->spans, spans, n * sizeof *spans);
    return !n || ret->spans;
}

/* Stores the spans of a slot in `*ret`. Each slot that is not empty is read from the table once
 * per item. Returns false if there is not enough memory. */
static bool infer_slot(struct join_infer *infer, const struct join_threads *threads, unsigned level,
                       uint64_t number, struct slot *ret)
{
    const uint64_t key[] = {(uint64_t)threads->thread << 32 | threads->process,
                            (uint64_t)threads->key << 8 | level, number};
    if (!infer_prepare(&infer->slots))
        return false;
    const struct slot *known = br_map_get(infer->slots, key, sizeof key);
    if (known) {
        *ret = *known;
        return true;
    }
    if (!infer_read_slot(infer, threads, level, number, ret))
        return false;
    struct slot *stored =
        ret->count || ret->more ? br_arena_alloc(infer->arena, sizeof *stored) : NULL;
    if (stored) {
        *stored = *ret;
        /* if the map is full, the slot is not stored and will be read from the table again */
        (void)br_map_put(infer->slots, key, sizeof key, stored, NULL);
    }
    return true;
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

/* Returns true if the span and the sample ran on the same thread. Several threads may have the
 * same name, so the name decides only if the ids cannot be compared. */
static bool infer_is_same_thread(const struct join_neighbour *neighbour,
                                 const struct join_identity *where)
{
    uint32_t id = where->hashes[JOIN_THREAD_ID], name = where->hashes[JOIN_THREAD_NAME];
    bool of_one_kind = neighbour->thread && id && neighbour->runtime == where->hashes[JOIN_RUNTIME];
    bool named = neighbour->thread_name && name;
    if (named && neighbour->thread_name != name)
        return false;
    return of_one_kind ? neighbour->thread == id : named;
}

/* Returns true if the span and the sample ran in the same process. Attributes that the span and the
 * sample both have must be equal, and at least one attribute that names a place, such as the host,
 * must be present in both. A service alone does not identify a process, because its replicas often
 * have the same process and thread ids. */
static bool infer_is_same_process(uint32_t service, const uint32_t places[JOIN_PLACES],
                                  const struct join_identity *where)
{
    const uint32_t *ours = &where->hashes[JOIN_HOST];
    bool same = false;
    if (service && where->hashes[JOIN_SERVICE] && service != where->hashes[JOIN_SERVICE])
        return false;
    for (unsigned k = 0; k < JOIN_PLACES; k++) {
        if (places[k] && ours[k] && places[k] != ours[k])
            return false;
        same = same || (places[k] && ours[k]);
    }
    return same;
}

static bool infer_is_from(const struct join_neighbour *neighbour, const struct join_identity *where)
{
    return infer_is_same_process(neighbour->service, neighbour->places, where) &&
           infer_is_same_thread(neighbour, where);
}

static bool infer_is_same_span(const struct join_neighbour *neighbour, const uint8_t *trace_id,
                               uint64_t span_id)
{
    return neighbour->span_id == span_id && memcmp(neighbour->trace_id, trace_id, 16) == 0;
}

/* The spans of a thread that were open at one point in time. */
struct open {
    const struct join_neighbour *spans[OPEN_MAX];
    unsigned count;
    bool unknown; /* true if evicted spans may also have been open at that time */
};

/* The two spans to which a timestamp belongs. The timestamp was taken in `span`; the exported
 * sample is linked to `linked`. The two spans differ if a span arrived after the sample was
 * released. NULL: the timestamp has no such span. */
struct owners {
    const struct join_neighbour *span, *linked;
};

/* Adds the open spans of one time slot. If spans are sought by thread name, skips spans whose
 * thread id is comparable with that of the sample: these spans are found by their thread id. */
static void infer_add_open(struct join_infer *infer, const struct join_threads *threads,
                           unsigned level, uint64_t number, const struct join_identity *where,
                           uint64_t time_ns, struct open *open)
{
    const uint32_t id = where->hashes[JOIN_THREAD_ID];
    struct slot slot;
    if (!infer_slot(infer, threads, level, number, &slot)) {
        open->unknown = true;
        return;
    }
    infer->steps += slot.count + 1;
    open->unknown = open->unknown || slot.more;
    for (unsigned i = 0; i < slot.count && !open->unknown; i++) {
        const struct join_neighbour *span = &slot.spans[i];
        bool by_id = threads->key != JOIN_BY_THREAD_ID && id && span->thread == id;
        if (by_id || time_ns < span->start_ns || time_ns >= span->end_ns ||
            !infer_is_from(span, where))
            continue;
        if (open->count == OPEN_MAX)
            open->unknown = true;
        else
            open->spans[open->count++] = span;
    }
}

static void infer_open_at(struct join_infer *infer, const struct join_identity *where,
                          uint64_t time_ns, bool sharing, struct open *ret)
{
    const uint32_t levels = join_table_levels(infer->table);
    ret->count = 0;
    ret->unknown = false;
    for (unsigned key = 0; key < JOIN_THREAD_KEYS && !ret->unknown; key++) {
        const struct join_threads threads = infer_threads(where, (enum join_thread_key)key);
        if (!infer_is_sought_by(where, threads.key))
            continue;
        ret->unknown = time_ns < join_table_known_since(infer->table, &threads,
                                                        &where->hashes[JOIN_HOST], sharing);
        for (uint32_t remaining = levels; remaining && !ret->unknown; remaining &= remaining - 1) {
            unsigned level = (unsigned)__builtin_ctz(remaining);
            uint64_t slot = time_ns >> join_level_shift(level);
            infer_add_open(infer, &threads, level, slot, where, time_ns, ret);
            if (slot)
                infer_add_open(infer, &threads, level, slot - 1, where, time_ns, ret);
        }
    }
}

/* Returns the index in `open` of the parent of span `index`. Returns open->count if the parent
 * is not in `open`. */
static unsigned infer_parent_of(const struct open *open, unsigned index)
{
    const struct join_neighbour *span = open->spans[index];
    unsigned k = 0;
    while (k < open->count &&
           (k == index || !infer_is_same_span(open->spans[k], span->trace_id, span->parent_id)))
        k++;
    return k;
}

/* Returns the span that is below all other open spans, or NULL if there is no such span. The
 * returned span is the only open span that is not the parent of another open span, and all other
 * open spans are its ancestors. */
static const struct join_neighbour *infer_deepest(const struct open *open)
{
    const unsigned count = open->count;
    unsigned parents[OPEN_MAX], at = count, n_above = 0;
    bool is_parent[OPEN_MAX] = {false};
    if (open->unknown || !count)
        return NULL;
    for (unsigned i = 0; i < count; i++) {
        parents[i] = infer_parent_of(open, i);
        if (parents[i] < count)
            is_parent[parents[i]] = true;
    }
    for (unsigned i = 0; i < count; i++)
        at = is_parent[i] ? at : i;
    const struct join_neighbour *span = at < count ? open->spans[at] : NULL;
    while (at < count && parents[at] < count && n_above < count) {
        at = parents[at];
        n_above++;
    }
    return n_above == count - 1 ? span : NULL;
}

/* Removes the spans that arrived after the sample was released, so that the sample could not be
 * linked to them. Returns true if at least one span was removed. */
static bool infer_drop_late(struct open *open, struct join_release_time release_time)
{
    unsigned n = 0, count = open->count;
    for (unsigned i = 0; i < count; i++)
        if (join_is_in_time(open->spans[i]->seen, release_time))
            open->spans[n++] = open->spans[i];
    open->count = n;
    return n < count;
}

/* Returns the spans to which a timestamp belongs. To compute totals, `deferred` is the record that
 * contains the timestamp. To link a sample, `deferred` is NULL. For totals, spans that were evicted
 * after the window do not make the result unknown, because their timestamps were assigned before
 * the eviction. */
static struct owners infer_owners_at(struct join_infer *infer, const struct join_identity *where,
                                     uint64_t time_ns, const struct join_deferred *deferred)
{
    const struct join_release_time release_time =
        deferred ? join_deferred_release_time(deferred) : infer->release_time;
    struct open open;
    infer_open_at(infer, where, time_ns, deferred != NULL, &open);
    infer->unknown = infer->unknown || open.unknown;
    infer->steps += (uint64_t)open.count * open.count;
    struct owners owners = {.span = infer_deepest(&open)};
    owners.linked = infer_drop_late(&open, release_time) ? infer_deepest(&open) : owners.span;
    return owners;
}

static bool infer_is_same(const struct join_neighbour *first, const struct join_neighbour *second)
{
    return first && second && infer_is_same_span(first, second->trace_id, second->span_id);
}

/* Returns the spans to which all of these timestamps belong. If the step limit was reached, both
 * spans are NULL. */
static struct owners infer_owners_of(struct join_infer *infer, const struct join_identity *where,
                                     const uint64_t *times, uint64_t n_times,
                                     const struct join_deferred *deferred)
{
    struct owners all = {NULL, NULL};
    for (uint64_t k = 0; k < n_times; k++) {
        if (infer->steps > JOIN_STEPS_MAX) {
            infer->n_cut++;
            return (struct owners){NULL, NULL};
        }
        struct owners one = infer_owners_at(infer, where, times[k], deferred);
        if (k == 0)
            all = one;
        if (!infer_is_same(all.span, one.span))
            all.span = NULL;
        if (!infer_is_same(all.linked, one.linked))
            all.linked = NULL;
        if (!all.span && !all.linked)
            break;
    }
    return all;
}

const struct join_neighbour *join_infer_span(struct join_infer *infer,
                                             const struct join_sample_view *view,
                                             const struct join_identity *where)
{
    infer->unknown = false;
    return infer_read_times(infer, view)
               ? infer_owners_of(infer, where, infer->times, view->n_times, NULL).linked
               : NULL;
}

#define FOUND_KEY 24

static void infer_found_key(const uint8_t *trace_id, uint64_t span_id, uint8_t ret[FOUND_KEY])
{
    memcpy(ret, trace_id, 16);
    memcpy(ret + 16, &span_id, sizeof span_id);
}

/* Returns the entry of a span, which is created if it does not exist. Returns NULL if `span` is
 * NULL or memory is short. */
static struct found *infer_find(struct join_infer *infer, const struct join_neighbour *span)
{
    uint8_t key[FOUND_KEY];
    if (!span)
        return NULL;
    infer_found_key(span->trace_id, span->span_id, key);
    struct found *found =
        infer_prepare(&infer->found) ? br_map_get(infer->found, key, sizeof key) : NULL;
    if (found || !infer->found)
        return found;
    found = br_arena_calloc(infer->arena, 1, sizeof *found);
    if (!found || br_map_put(infer->found, key, sizeof key, found, NULL))
        return NULL;
    found->span = span;
    found->number = br_map_count(infer->found);
    return found;
}

bool join_infer_spans(struct join_infer *infer, const struct join_sample_view *view,
                      const struct join_identity *where, const uint64_t **ret_times,
                      uint64_t *ret_spans)
{
    if (!infer_read_times(infer, view))
        return false;
    *ret_times = infer->times;
    for (uint64_t k = 0; k < view->n_times; k++) {
        if (infer->steps > JOIN_STEPS_MAX) {
            infer->n_cut++;
            return false;
        }
        const struct found *found =
            infer_find(infer, infer_owners_at(infer, where, infer->times[k], NULL).linked);
        ret_spans[k] = found ? found->number : 0;
    }
    return true;
}

/* --- Totals --- */

bool join_thread_ids_of(const struct join_identity *where, enum join_thread_key key,
                        struct join_thread_ids *ret)
{
    const uint32_t thread = infer_threads(where, key).thread, process = where->hashes[JOIN_PROCESS];
    const uint32_t trace[] = {thread, process, ~thread, process ^ (uint32_t)key};
    const uint32_t span[] = {thread ^ (0u - (uint32_t)key), process};
    memcpy(ret->trace, trace, sizeof ret->trace);
    memcpy(ret->span, span, sizeof ret->span);
    return thread && process;
}

/* A deferred record of a thread whose timestamps are being assigned to spans. */
struct infer_sharing {
    struct join_infer *infer;
    const struct join_identity *where; /* process and thread in which the samples were taken */
    const struct join_thread_ids *ids; /* ids of the thread under which the record is stored */
    const struct join_deferred_cursor *cursor;
};

/* Adds timestamps to the totals of the span in which they were taken. If `linked` is true, instead
 * adds only to the number of samples that are linked to the span. */
static void infer_add_share(const struct infer_sharing *sharing, const struct join_neighbour *span,
                            bool linked, uint64_t value, uint64_t n_times)
{
    struct join_infer *infer = sharing->infer;
    struct found *found = infer_find(infer, span);
    if (!span)
        return;
    if (found && !found->share)
        found->share = br_arena_calloc(infer->arena, 1, join_table_totals_size(infer->table));
    if (!found || !found->share) {
        infer->n_cut++;
        return;
    }
    struct join_sample sample = join_deferred_sample(&sharing->cursor->deferred, value, n_times);
    sample.span_id = (const uint8_t *)&found->span->span_id;
    if (linked)
        join_totals_add_linked(found->share, &sample);
    else
        join_totals_add_sample(infer->table, found->share, &sample, false);
}

/* Assigns the timestamps of a record that has a single value for all of them. A value for
 * several timestamps cannot be divided among several spans. */
static void infer_share_whole(const struct infer_sharing *sharing)
{
    const struct join_deferred *deferred = &sharing->cursor->deferred;
    const struct owners owners = infer_owners_of(
        sharing->infer, sharing->where, sharing->cursor->times, deferred->n_times, deferred);
    uint64_t spans[JOIN_TIMES_MAX];
    for (uint32_t i = 0; i < deferred->n_times; i++)
        spans[i] = owners.span != NULL;
    join_table_mark_assigned(sharing->infer->table, sharing->ids->span, sharing->cursor, spans);
    infer_add_share(sharing, owners.span, false, deferred->value, deferred->n_times);
    infer_add_share(sharing, owners.linked, true, deferred->value, deferred->n_times);
}

static void infer_share_each(const struct infer_sharing *sharing)
{
    const struct join_deferred_cursor *cursor = sharing->cursor;
    const struct join_deferred *deferred = &cursor->deferred;
    uint64_t spans[JOIN_TIMES_MAX] = {0};
    for (uint32_t i = 0; i < deferred->n_times; i++) {
        if (sharing->infer->steps > JOIN_STEPS_MAX) {
            sharing->infer->n_cut++;
            break;
        }
        const struct owners owners =
            infer_owners_at(sharing->infer, sharing->where, cursor->times[i], deferred);
        uint64_t value =
            deferred->n_values && (int64_t)cursor->values[i] > 0 ? cursor->values[i] : 0;
        spans[i] = owners.span != NULL;
        infer_add_share(sharing, owners.span, false, value, 1);
        infer_add_share(sharing, owners.linked, true, value, 1);
    }
    join_table_mark_assigned(sharing->infer->table, sharing->ids->span, cursor, spans);
}

/* Advances the cursor to the next deferred record (join_table_next_deferred). Returns false at the
 * end, or if the step limit was reached. */
static bool infer_next_deferred(struct join_infer *infer, const struct join_thread_ids *ids,
                                struct join_deferred_cursor *cursor)
{
    if (infer->steps > JOIN_STEPS_MAX) {
        infer->n_cut++;
        return false;
    }
    bool found = join_table_next_deferred(infer->table, ids->trace, ids->span, cursor);
    infer->steps += cursor->steps * (uint64_t)JOIN_STEPS_PER_LOOKUP;
    return found;
}

/* Returns true if the key occurs for the first time in the item. Returns false if memory is
 * short. */
static bool infer_is_first(struct join_infer *infer, const void *key, size_t len)
{
    static char yes;
    if (!infer_prepare(&infer->shared) || br_map_get(infer->shared, key, len))
        return false;
    bool ok = br_map_put(infer->shared, key, len, &yes, NULL) == 0;
    infer->n_cut += !ok;
    return ok;
}

static struct join_identity infer_deferred_identity(const struct join_deferred *deferred,
                                                    uint32_t process)
{
    struct join_identity where = {.hashes = {[JOIN_THREAD_ID] = deferred->thread,
                                             [JOIN_THREAD_NAME] = deferred->thread_name,
                                             [JOIN_PROCESS] = process,
                                             [JOIN_SERVICE] = deferred->service,
                                             [JOIN_RUNTIME] = deferred->runtime}};
    memcpy(&where.hashes[JOIN_HOST], deferred->places, sizeof deferred->places);
    return where;
}

/* Assigns the deferred timestamps that are stored under the value of `key` of the span's thread,
 * because they may have been taken on that thread. */
static void infer_share_threads(struct join_infer *infer, const struct join_identity *where,
                                enum join_thread_key key)
{
    uint32_t id = where->hashes[JOIN_THREAD_ID];
    struct join_deferred_cursor cursor = {0};
    struct join_thread_ids ids;
    if (!infer_is_sought_by(where, key) || !join_thread_ids_of(where, key, &ids))
        return;
    while (infer_next_deferred(infer, &ids, &cursor)) {
        const struct join_deferred *deferred = &cursor.deferred;
        const struct join_identity sample_where =
            infer_deferred_identity(deferred, where->hashes[JOIN_PROCESS]);
        const uint64_t record[] = {br_load64(ids.span), cursor.found};
        if (key != JOIN_BY_THREAD_ID && id && deferred->thread == id)
            continue; /* the record has the span's thread id, so it is found under that id */
        if (!infer_is_same_process(deferred->service, deferred->places, where) ||
            !infer_is_first(infer, record, sizeof record))
            continue;
        const struct infer_sharing sharing = {infer, &sample_where, &ids, &cursor};
        if (deferred->has_value && !deferred->n_values)
            infer_share_whole(&sharing);
        else
            infer_share_each(&sharing);
    }
}

const struct join_totals *join_infer_share(struct join_infer *infer,
                                           const struct join_identity *where,
                                           const uint8_t *trace_id, const uint8_t *span_id)
{
    uint8_t key[FOUND_KEY];
    infer->steps++;
    if (infer->steps <= JOIN_STEPS_MAX && infer_is_first(infer, where, sizeof *where))
        for (unsigned k = 0; k < JOIN_THREAD_KEYS; k++)
            infer_share_threads(infer, where, (enum join_thread_key)k);
    infer_found_key(trace_id, br_load64(span_id), key);
    const struct found *found = infer->found ? br_map_get(infer->found, key, sizeof key) : NULL;
    return found ? found->share : NULL;
}

bool join_infer_is_partial(const struct join_infer *infer, const struct join_identity *where,
                           uint64_t start_ns)
{
    for (unsigned key = 0; key < JOIN_THREAD_KEYS; key++) {
        const struct join_threads threads = infer_threads(where, (enum join_thread_key)key);
        struct join_thread_ids ids;
        if (!infer_is_sought_by(where, threads.key) ||
            !join_thread_ids_of(where, threads.key, &ids))
            continue;
        if (join_table_evicted_after(infer->table, ids.span, start_ns) ||
            start_ns <
                join_table_known_since(infer->table, &threads, &where->hashes[JOIN_HOST], true))
            return true;
    }
    return false;
}
