/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of traces. The traces are elements of an array. The lists and the chained hash table
 * refer to a trace by its array index, called its place. The facts of a trace (struct tail_facts)
 * are larger than all its other data. They are in a second array, and are released as soon as the
 * trace is decided.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/sum.h"
#include "otlp/fields.h"
#include "processors/tail_sampling/tail_sampling.h"
#include "wire/protobuf.h"

#define NONE UINT32_MAX /* array index that stands for "no element" */
#define SLOTS_MIN 256u  /* initial number of elements of the arrays; a power of two */
#define PLACES_MAX (1u << 30)

/* The list that contains a trace. */
enum list_number {
    LIST_WAITING, /* waiting traces, in the order in which they are due */
    LIST_ROOTED,  /* waiting traces whose root has arrived, in the order in which they are due */
    LIST_KEPT,    /* decided traces to which no item refers, least recently used first */
    LIST_REMOVED,
    LISTS,
    LIST_NONE = LISTS,
};

struct list {
    uint32_t first, last;
    uint64_t count;
};

struct trace {
    uint8_t id[16];
    /* place of the next trace in the same slot of the hash table, or of the next unused element of
     * the array */
    uint32_t next_of_hash;
    uint32_t before, after;
    uint32_t n_refs; /* number of items that refer to the trace */
    uint32_t data;   /* index of the trace's data in the second array; NONE: the trace is decided */
    /* value of tail_table.serial in the last call that added data of an item to the trace */
    uint32_t serial;
    uint8_t state; /* an enum tail_state */
    uint8_t list;  /* an enum list_number */
};

/* The data of a trace that is not decided. */
struct trace_data {
    struct tail_facts facts;
    uint64_t due_ms;
    /* Totals for the current ScopeSpans and the current ResourceSpans, if they contain spans of the
     * trace: see tail_facts. */
    uint32_t group, part;
    uint64_t group_bytes, part_bytes;
    uint32_t scope_size, part_size;
    uint32_t next_unused;
};

struct tail_table {
    pthread_mutex_t lock;
    uint64_t secret[2];
    struct trace *traces;
    /* `n_traces`: number of array elements that were ever used */
    uint32_t n_traces, cap_traces, unused_trace;
    struct trace_data *data;
    uint32_t n_data, cap_data, unused_data;
    uint32_t *slots;  /* hash table: for each slot, place of its first trace */
    uint32_t n_slots; /* a power of two */
    uint32_t n_used;  /* number of traces */
    struct list lists[LISTS];
    /* largest length of LIST_KEPT and LIST_REMOVED; the first traces of a longer list are
     * forgotten */
    uint64_t most[LISTS];
    uint32_t serial;
    struct tail_meter *meters;
    unsigned *workers; /* numbers of the workers whose nodes use this table */
    uint32_t n_workers, cap_workers;
};

/* --- Arrays ----------------------------------------------------------------------------------- */

static bool table_grow(void **array, uint32_t *cap, size_t size)
{
    uint32_t more = *cap ? *cap * 2 : SLOTS_MIN;
    void *grown = *cap < PLACES_MAX ? br_realloc(*array, more * size) : NULL;
    if (!grown)
        return false;
    *array = grown;
    *cap = more;
    return true;
}

static uint64_t table_hash(const struct tail_table *table, const uint8_t id[16])
{
    return br_hash_keyed(table->secret, id, 16);
}

static uint32_t *table_slot(const struct tail_table *table, const uint8_t id[16])
{
    return &table->slots[table_hash(table, id) >> 32 & (table->n_slots - 1)];
}

/* Doubles the number of slots of the hash table. */
static bool table_rehash(struct tail_table *table)
{
    uint32_t n = table->n_slots ? table->n_slots * 2 : SLOTS_MIN;
    uint32_t *old = table->slots, n_old = table->n_slots;
    uint32_t *slots = br_malloc(n * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xff, n * sizeof *slots);
    table->slots = slots;
    table->n_slots = n;
    for (uint32_t i = 0; i < n_old; i++) {
        for (uint32_t at = old[i], next; at != NONE; at = next) {
            uint32_t *slot = table_slot(table, table->traces[at].id);
            next = table->traces[at].next_of_hash;
            table->traces[at].next_of_hash = *slot;
            *slot = at;
        }
    }
    br_free(old);
    return true;
}

static uint32_t table_find(const struct tail_table *table, const uint8_t id[16])
{
    uint32_t at = table->n_slots ? *table_slot(table, id) : NONE;
    for (; at != NONE; at = table->traces[at].next_of_hash) {
        br_steps_add(1);
        if (memcmp(table->traces[at].id, id, 16) == 0)
            return at;
    }
    return NONE;
}

/* --- Lists ------------------------------------------------------------------------------------ */

static void table_unlist(struct tail_table *table, uint32_t at)
{
    struct trace *trace = &table->traces[at];
    if (trace->list == LIST_NONE)
        return;
    struct list *list = &table->lists[trace->list];
    if (trace->before == NONE)
        list->first = trace->after;
    else
        table->traces[trace->before].after = trace->after;
    if (trace->after == NONE)
        list->last = trace->before;
    else
        table->traces[trace->after].before = trace->before;
    list->count--;
    trace->list = LIST_NONE;
}

static void table_list(struct tail_table *table, uint32_t at, enum list_number number)
{
    struct trace *trace = &table->traces[at];
    struct list *list = &table->lists[number];
    trace->list = (uint8_t)number;
    trace->before = list->last;
    trace->after = NONE;
    if (list->last == NONE)
        list->first = at;
    else
        table->traces[list->last].after = at;
    list->last = at;
    list->count++;
}

/* --- Traces ----------------------------------------------------------------------------------- */

static void table_drop_data(struct tail_table *table, struct trace *trace)
{
    if (trace->data == NONE)
        return;
    table->data[trace->data].next_unused = table->unused_data;
    table->unused_data = trace->data;
    trace->data = NONE;
}

static void table_forget(struct tail_table *table, uint32_t at)
{
    struct trace *trace = &table->traces[at];
    uint32_t *link = table_slot(table, trace->id);
    while (*link != at)
        link = &table->traces[*link].next_of_hash;
    *link = trace->next_of_hash;
    table_unlist(table, at);
    table_drop_data(table, trace);
    trace->next_of_hash = table->unused_trace;
    table->unused_trace = at;
    table->n_used--;
}

/* Ensures that one more trace can be added without allocating memory. */
static bool table_reserve(struct tail_table *table)
{
    bool ok = true;
    if (table->unused_trace == NONE && table->n_traces == table->cap_traces)
        ok = table_grow((void **)&table->traces, &table->cap_traces, sizeof *table->traces);
    if (ok && table->unused_data == NONE && table->n_data == table->cap_data)
        ok = table_grow((void **)&table->data, &table->cap_data, sizeof *table->data);
    if (ok && table->n_used >= table->n_slots)
        ok = table_rehash(table);
    return ok;
}

/* Returns the place of the trace. Adds the trace if it is not in the table. Returns NONE if there
 * is not enough memory. */
static uint32_t table_add(struct tail_table *table, const uint8_t id[16])
{
    uint32_t at = table_find(table, id);
    if (at != NONE || !table_reserve(table))
        return at;
    at = table->unused_trace != NONE ? table->unused_trace : table->n_traces++;
    struct trace *trace = &table->traces[at];
    if (at == table->unused_trace)
        table->unused_trace = trace->next_of_hash;
    uint32_t data = table->unused_data != NONE ? table->unused_data : table->n_data++;
    if (data == table->unused_data)
        table->unused_data = table->data[data].next_unused;
    uint32_t *slot = table_slot(table, id);
    *trace = (struct trace){
        .next_of_hash = *slot, .data = data, .state = TAIL_EXPECTED, .list = LIST_NONE};
    memcpy(trace->id, id, sizeof trace->id);
    table->data[data] = (struct trace_data){.due_ms = 0};
    *slot = at;
    table->n_used++;
    return at;
}

/* --- Decisions -------------------------------------------------------------------------------- */

static void table_settle(struct tail_table *table, uint32_t at);

static void table_set(const struct tail_caller *caller, uint32_t at, enum tail_decision decision)
{
    struct tail_table *table = caller->table;
    struct trace *trace = &table->traces[at];
    table_unlist(table, at);
    table_drop_data(table, trace);
    trace->state = decision == TAIL_SAMPLED ? TAIL_KEPT : TAIL_REMOVED;
    caller->tally->decisions[decision]++;
    table_settle(table, at);
}

static void table_decide(const struct tail_caller *caller, uint32_t at)
{
    struct tail_table *table = caller->table;
    const struct trace *trace = &table->traces[at];
    int8_t each[TAIL_POLICIES_MAX];
    enum tail_decision decision =
        tail_policies_decide(caller->policies, caller->config, &table->data[trace->data].facts,
                             trace->id, table->meters, caller->now, each);
    for (size_t i = 0; i < caller->policies->count && caller->tally->policies; i++)
        if (each[i] >= 0)
            caller->tally->policies[i][each[i]]++;
    table_set(caller, at, decision);
}

/* Decides about the traces that are due. */
static void table_expire(const struct tail_caller *caller)
{
    static const enum list_number waiting[] = {LIST_WAITING, LIST_ROOTED};
    struct tail_table *table = caller->table;
    for (size_t i = 0; i < 2; i++) {
        const struct list *list = &table->lists[waiting[i]];
        while (list->first != NONE &&
               table->data[table->traces[list->first].data].due_ms <= caller->now.mono_ms)
            table_decide(caller, list->first);
    }
}

static uint64_t table_n_waiting(const struct tail_table *table)
{
    return table->lists[LIST_WAITING].count + table->lists[LIST_ROOTED].count;
}

static uint64_t table_due_of(const struct tail_table *table, enum list_number number)
{
    uint32_t at = table->lists[number].first;
    return at == NONE ? UINT64_MAX : table->data[table->traces[at].data].due_ms;
}

/* Decides about the traces that are due first, until at most num_traces traces are waiting. */
static void table_shrink(const struct tail_caller *caller)
{
    struct tail_table *table = caller->table;
    while (table_n_waiting(table) > (uint64_t)caller->config->num_traces) {
        bool rooted = table_due_of(table, LIST_ROOTED) < table_due_of(table, LIST_WAITING);
        caller->tally->early++;
        table_decide(caller, table->lists[rooted ? LIST_ROOTED : LIST_WAITING].first);
    }
}

/* Moves a trace to which no item refers to LIST_KEPT or LIST_REMOVED, or removes it from the table
 * if it is not decided. */
static void table_settle(struct tail_table *table, uint32_t at)
{
    const struct trace *trace = &table->traces[at];
    if (trace->n_refs)
        return;
    if (trace->state != TAIL_KEPT && trace->state != TAIL_REMOVED) {
        table_forget(table, at);
        return;
    }
    enum list_number number = trace->state == TAIL_KEPT ? LIST_KEPT : LIST_REMOVED;
    table_unlist(table, at);
    table_list(table, at, number);
    while (table->lists[number].count > table->most[number])
        table_forget(table, table->lists[number].first);
}

/* --- References ------------------------------------------------------------------------------- */

/* The references of an item to its traces, while the spans of the item are added. */
struct references {
    struct tail_ref *refs;
    uint32_t count, cap;
};

static int table_compare_refs(const void *one, const void *other)
{
    const struct tail_ref *left = one, *right = other;
    return memcmp(left->id, right->id, sizeof left->id);
}

const struct tail_ref *tail_ref_find(const struct tail_ref *refs, uint32_t n_refs,
                                     const uint8_t id[16])
{
    uint32_t low = 0, high = n_refs;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = memcmp(refs[middle].id, id, sizeof refs[middle].id);
        if (order == 0)
            return &refs[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void table_release(struct tail_table *table, const struct tail_ref *refs, uint32_t n_refs)
{
    for (uint32_t i = 0; i < n_refs; i++) {
        table->traces[refs[i].trace].n_refs--;
        table_settle(table, refs[i].trace);
    }
}

/* Adds a reference from the item to the trace, unless the item already has one. Returns the place
 * of the trace, or NONE if there is not enough memory. */
static uint32_t table_refer(struct tail_table *table, struct references *references,
                            const uint8_t id[16])
{
    if (br_grow(&references->refs, &references->cap, (size_t)references->count + 1,
                sizeof *references->refs, PLACES_MAX))
        return NONE;
    uint32_t at = table_add(table, id);
    if (at == NONE)
        return NONE;
    struct trace *trace = &table->traces[at];
    if (trace->serial == table->serial)
        return at;
    struct tail_ref *ref = &references->refs[references->count++];
    *ref = (struct tail_ref){.trace = at};
    memcpy(ref->id, id, sizeof ref->id);
    trace->serial = table->serial;
    if (trace->n_refs++ == 0 && trace->data == NONE)
        table_unlist(table, at);
    return at;
}

static void table_begin(struct tail_table *table)
{
    /* 0 is the serial of a new trace, so no call may use it. When the counter overflows, all
     * serials are reset. */
    if (++table->serial)
        return;
    for (uint32_t i = 0; i < table->n_traces; i++)
        table->traces[i].serial = 0;
    table->serial = 1;
}

/* --- Adding spans ----------------------------------------------------------------------------- */

static void table_close_group(struct trace_data *data)
{
    if (data->group_bytes)
        data->part_bytes += br_len_size(BR_RESOURCES_SCOPES, data->group_bytes + data->scope_size);
    data->group_bytes = 0;
}

static void table_close_part(struct trace_data *data)
{
    table_close_group(data);
    if (data->part_bytes) {
        uint64_t body = data->part_bytes + data->part_size;
        data->facts.body_bytes += body;
        data->facts.bytes += br_len_size(BR_REQUEST_RESOURCES, body);
    }
    data->part_bytes = 0;
}

static void table_count_bytes(struct trace_data *data, const struct tail_span *span)
{
    if (data->part != span->part)
        table_close_part(data);
    else if (data->group != span->group)
        table_close_group(data);
    data->part = span->part;
    data->group = span->group;
    data->part_size = span->part_size;
    data->scope_size = span->scope_size;
    data->group_bytes += span->size;
}

/* Evaluates latency policies after each span, as in the Collector: a policy with an upper threshold
 * also matches if later spans make the trace longer. */
static void table_measure(const struct tail_policies *policies, struct tail_facts *facts,
                          const struct tail_span *span)
{
    if (!facts->min_ns || span->start_ns < facts->min_ns)
        facts->min_ns = span->start_ns;
    if (!facts->max_ns || span->end_ns > facts->max_ns)
        facts->max_ns = span->end_ns;
    int64_t ms = (int64_t)(facts->max_ns - facts->min_ns) / 1000000;
    for (unsigned i = 0; i < policies->n_leaves; i++) {
        const struct tail_latency *latency = &policies->leaves[i]->config->latency;
        if (policies->leaves[i]->type == TAIL_LATENCY && ms > latency->threshold_ms &&
            (!latency->upper_threshold_ms || ms <= latency->upper_threshold_ms))
            tail_bits_set(&facts->matched, i);
    }
}

/* Changes the state of a trace from expected to waiting, because its first span arrived. */
static void table_wait(const struct tail_caller *caller, uint32_t at)
{
    struct tail_table *table = caller->table;
    struct trace *trace = &table->traces[at];
    trace->state = TAIL_WAITING;
    table->data[trace->data].due_ms = caller->now.mono_ms + caller->config->decision_wait / 1000000;
    table_list(table, at, LIST_WAITING);
    caller->tally->new_traces++;
}

/* Notes that the root of a waiting trace has arrived. */
static void table_root(const struct tail_caller *caller, uint32_t at)
{
    struct tail_table *table = caller->table;
    struct trace_data *data = &table->data[table->traces[at].data];
    uint64_t wait_ms = caller->config->decision_wait_after_root_received / 1000000;
    uint64_t due_ms = caller->now.mono_ms + wait_ms;
    if (!wait_ms || due_ms >= data->due_ms)
        return;
    data->due_ms = due_ms;
    table_unlist(table, at);
    table_list(table, at, LIST_ROOTED);
}

static void table_add_span(const struct tail_caller *caller, const struct tail_span *span,
                           uint32_t at)
{
    struct tail_table *table = caller->table;
    const struct trace *trace = &table->traces[at];
    if (trace->data == NONE) {
        caller->tally->late_spans[trace->state == TAIL_KEPT]++;
        return;
    }
    struct trace_data *data = &table->data[trace->data];
    if (trace->state == TAIL_EXPECTED)
        table_wait(caller, at);
    for (size_t i = 0; i < TAIL_LEAVES_MAX / 64; i++)
        data->facts.matched.words[i] |= span->matched.words[i];
    data->facts.n_spans++;
    table_measure(caller->policies, &data->facts, span);
    table_count_bytes(data, span);
    if (span->root)
        table_root(caller, at);
}

/* Adds up the sizes of the traces of an item, and decides not to sample traces that are larger than
 * maximum_trace_size_bytes. */
static void table_end_item(const struct tail_caller *caller, const struct references *references)
{
    struct tail_table *table = caller->table;
    uint64_t most = (uint64_t)caller->config->maximum_trace_size_bytes;
    for (uint32_t i = 0; i < references->count; i++) {
        uint32_t at = references->refs[i].trace;
        const struct trace *trace = &table->traces[at];
        if (trace->data == NONE)
            continue;
        struct trace_data *data = &table->data[trace->data];
        table_close_part(data);
        if (most && data->facts.body_bytes > most) {
            caller->tally->too_large++;
            table_set(caller, at, TAIL_NOT_SAMPLED);
        }
    }
}

/* --- Calls ------------------------------------------------------------------------------------ */

/* Updates the states in the references. Returns false if a trace is still waiting for its
 * decision. If `patient` is true, also returns false if no span of a trace has arrived yet
 * (TAIL_EXPECTED). */
static bool table_look(const struct tail_table *table, struct tail_ref *refs, uint32_t n_refs,
                       bool patient, uint64_t *ret_due_ms)
{
    bool decided = true;
    *ret_due_ms = 0;
    for (uint32_t i = 0; i < n_refs; i++) {
        const struct trace *trace = &table->traces[refs[i].trace];
        refs[i].state = trace->state;
        decided =
            decided && trace->state != TAIL_WAITING && !(patient && trace->state == TAIL_EXPECTED);
        if (trace->state == TAIL_WAITING && table->data[trace->data].due_ms > *ret_due_ms)
            *ret_due_ms = table->data[trace->data].due_ms;
    }
    return decided;
}

static void table_take_refs(const struct tail_table *table, struct references *references,
                            struct tail_ref **ret_refs, uint32_t *ret_n_refs, uint64_t *ret_due_ms)
{
    if (references->count)
        qsort(references->refs, references->count, sizeof *references->refs, table_compare_refs);
    (void)table_look(table, references->refs, references->count, false, ret_due_ms);
    *ret_refs = references->refs;
    *ret_n_refs = references->count;
}

/* Returns true if the sender has to wait, because block_on_overflow is set and the item's new
 * traces would exceed num_traces. */
static bool table_blocks(const struct tail_caller *caller, const struct references *references)
{
    const struct tail_table *table = caller->table;
    uint64_t n_waiting = table_n_waiting(table), n_new = 0;
    for (uint32_t i = 0; i < references->count; i++)
        n_new += table->traces[references->refs[i].trace].state == TAIL_EXPECTED;
    return caller->config->block_on_overflow && n_waiting && n_new &&
           n_waiting + n_new > (uint64_t)caller->config->num_traces;
}

int tail_table_add_spans(const struct tail_caller *caller, const struct tail_span *spans,
                         uint32_t count, struct tail_ref **ret_refs, uint32_t *ret_n_refs,
                         uint64_t *ret_due_ms)
{
    struct tail_table *table = caller->table;
    struct references references = {NULL, 0, 0};
    int rc = 0;
    (void)pthread_mutex_lock(&table->lock);
    table_expire(caller);
    table_begin(table);
    for (uint32_t i = 0; i < count && !rc; i++)
        if (i == 0 || memcmp(spans[i].id, spans[i - 1].id, sizeof spans[i].id) != 0)
            rc = table_refer(table, &references, spans[i].id) == NONE ? BR_ENOMEM : 0;
    if (!rc && table_blocks(caller, &references))
        rc = BR_EFULL;
    if (rc) {
        table_release(table, references.refs, references.count);
        br_free(references.refs);
    } else {
        for (uint32_t i = 0, at = NONE; i < count; i++) {
            if (i == 0 || memcmp(spans[i].id, spans[i - 1].id, sizeof spans[i].id) != 0)
                at = table_find(table, spans[i].id);
            table_add_span(caller, &spans[i], at);
        }
        table_end_item(caller, &references);
        table_shrink(caller);
        table_take_refs(table, &references, ret_refs, ret_n_refs, ret_due_ms);
    }
    (void)pthread_mutex_unlock(&table->lock);
    return rc;
}

int tail_table_add_samples(const struct tail_caller *caller, const struct tail_samples *samples,
                           uint32_t count, struct tail_ref **ret_refs, uint32_t *ret_n_refs,
                           uint64_t *ret_due_ms)
{
    struct tail_table *table = caller->table;
    struct references references = {NULL, 0, 0};
    int rc = 0;
    (void)pthread_mutex_lock(&table->lock);
    table_expire(caller);
    table_begin(table);
    for (uint32_t i = 0; i < count && !rc; i++)
        rc = table_refer(table, &references, samples[i].id) == NONE ? BR_ENOMEM : 0;
    if (rc) {
        table_release(table, references.refs, references.count);
        br_free(references.refs);
    }
    for (uint32_t i = 0; i < count && !rc; i++) {
        const struct trace *trace = &table->traces[table_find(table, samples[i].id)];
        struct tail_facts *facts = trace->data == NONE ? NULL : &table->data[trace->data].facts;
        if (!facts)
            continue;
        facts->n_samples += samples[i].n_samples;
        facts->cpu_ns = br_sum_unsigned(facts->cpu_ns, samples[i].cpu_ns);
        facts->period_ns = br_sum_unsigned(facts->period_ns, samples[i].period_ns);
    }
    if (!rc)
        table_take_refs(table, &references, ret_refs, ret_n_refs, ret_due_ms);
    (void)pthread_mutex_unlock(&table->lock);
    return rc;
}

bool tail_table_decided(const struct tail_caller *caller, struct tail_ref *refs, uint32_t n_refs,
                        bool force, bool patient, uint64_t *ret_due_ms)
{
    struct tail_table *table = caller->table;
    (void)pthread_mutex_lock(&table->lock);
    table_expire(caller);
    for (uint32_t i = 0; i < n_refs && force; i++) {
        if (table->traces[refs[i].trace].state != TAIL_WAITING)
            continue;
        caller->tally->early++;
        table_decide(caller, refs[i].trace);
    }
    bool decided = table_look(table, refs, n_refs, patient && !force, ret_due_ms);
    (void)pthread_mutex_unlock(&table->lock);
    return decided;
}

void tail_table_release(const struct tail_caller *caller, struct tail_ref *refs, uint32_t n_refs)
{
    (void)pthread_mutex_lock(&caller->table->lock);
    table_release(caller->table, refs, n_refs);
    (void)pthread_mutex_unlock(&caller->table->lock);
    br_free(refs);
}

uint64_t tail_table_waiting(struct tail_table *table)
{
    (void)pthread_mutex_lock(&table->lock);
    uint64_t n = table_n_waiting(table);
    (void)pthread_mutex_unlock(&table->lock);
    return n;
}

bool tail_table_take(struct tail_table *table, unsigned worker)
{
    for (uint32_t i = 0; i < table->n_workers; i++)
        if (table->workers[i] == worker)
            return false;
    /* if memory is short, the node uses the table although its worker is not in the list */
    if (br_grow(&table->workers, &table->cap_workers, (size_t)table->n_workers + 1,
                sizeof *table->workers, PLACES_MAX) == 0)
        table->workers[table->n_workers++] = worker;
    return true;
}

struct tail_table *tail_table_new(const struct tail_config *config, unsigned n_meters)
{
    struct tail_table *table = br_calloc(1, sizeof *table);
    if (!table || pthread_mutex_init(&table->lock, NULL)) {
        br_free(table);
        return NULL;
    }
    br_random_bytes(table->secret, sizeof table->secret);
    table->unused_trace = table->unused_data = NONE;
    for (int i = 0; i < LISTS; i++)
        table->lists[i] = (struct list){NONE, NONE, 0};
    const struct tail_decision_cache *cache = &config->decision_cache;
    table->most[LIST_KEPT] =
        (uint64_t)(cache->sampled_cache_size ? cache->sampled_cache_size : config->num_traces);
    table->most[LIST_REMOVED] =
        (uint64_t)(cache->non_sampled_cache_size ? cache->non_sampled_cache_size
                                                 : config->num_traces);
    table->meters = br_calloc((size_t)n_meters + 1, sizeof *table->meters);
    if (table->meters)
        return table;
    tail_table_free(table);
    return NULL;
}

void tail_table_free(struct tail_table *table)
{
    if (!table)
        return;
    (void)pthread_mutex_destroy(&table->lock);
    br_free(table->traces);
    br_free(table->data);
    br_free(table->slots);
    br_free(table->meters);
    br_free(table->workers);
    br_free(table);
}
