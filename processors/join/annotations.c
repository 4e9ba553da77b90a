/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/join/annotations.h"

#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include "otlp/edit/edit.h"
#include "otlp/edit/rewrite.h"
#include "otlp/fields.h"
#include "otlp/keyvalue.h"
#include "processors/join/infer/infer.h"
#include "processors/join/join.h"
#include "processors/join/table/table.h"
#include "wire/protobuf.h"

/* --- Onto samples ----------------------------------------------------------------------- */

#define OTHER_VALUE "_other"
/* largest number of distinct values of which the check result is stored; further values are checked
 * each time */
#define SEEN_MAX (1u << 20)

void join_additions_init(struct join_additions *additions, const struct br_dictionary_view *view)
{
    *additions = (struct join_additions){0};
    br_additions_init(&additions->made, view);
}

void join_additions_release(struct join_additions *additions)
{
    br_additions_release(&additions->made);
    br_map_free(additions->seen, NULL);
    additions->seen = NULL;
}

static uint32_t join_additions_make_attribute(struct join_additions *additions, unsigned key,
                                              const char *name, const void *value, size_t len)
{
    uint8_t any[JOIN_VALUE_MAX + BR_VARINT_MAX], entry[JOIN_VALUE_MAX + 4 * BR_VARINT_MAX];
    if (!additions->keys[key])
        additions->keys[key] =
            br_additions_add(&additions->made, BR_TABLE_STRING, name, strlen(name));
    size_t any_len = (size_t)(br_put_len(any, BR_VALUE_STRING, value, len) - any);
    uint8_t *p = br_put_varint(entry, BR_TAG(BR_ATTRIBUTE_KEY, BR_WIRE_VARINT));
    p = br_put_varint(p, additions->keys[key]);
    p = br_put_len(p, BR_ATTRIBUTE_VALUE, any, any_len);
    return br_additions_add(&additions->made, BR_TABLE_ATTRIBUTE, entry, (size_t)(p - entry));
}

static uint32_t join_additions_other(struct join_additions *additions, unsigned key,
                                     const char *name)
{
    if (!additions->others[key])
        additions->others[key] = join_additions_make_attribute(additions, key, name, OTHER_VALUE,
                                                               sizeof OTHER_VALUE - 1);
    return additions->others[key];
}

static void join_additions_note(struct join_additions *additions, const uint8_t *id, size_t len,
                                uint32_t index)
{
    void *value = (void *)((uintptr_t)index + 1);
    if (!additions->seen)
        additions->seen = br_map_new(SEEN_MAX);
    if (!additions->seen || br_map_put(additions->seen, id, len, value, NULL) == BR_ENOMEM)
        additions->no_memory = true;
}

uint32_t join_additions_attribute(struct join_additions *additions, unsigned key, const char *name,
                                  const uint8_t *value, size_t len, join_allowed_fn *allowed,
                                  void *arg, bool *ret_other)
{
    uint8_t id[1 + JOIN_VALUE_MAX];
    id[0] = (uint8_t)key;
    br_put_bytes(id + 1, value, len);
    uint32_t index =
        additions->seen ? (uint32_t)(uintptr_t)br_map_get(additions->seen, id, 1 + len) : 0;
    if (!index) {
        uint32_t made = allowed(arg, key, value, len)
                            ? join_additions_make_attribute(additions, key, name, value, len)
                            : join_additions_other(additions, key, name);
        join_additions_note(additions, id, 1 + len, made);
        index = made + 1;
    }
    *ret_other = index - 1 == additions->others[key];
    return index - 1;
}

uint32_t join_additions_link(struct join_additions *additions, const uint8_t *trace_id,
                             const uint8_t *span_id)
{
    static const uint8_t none[16];
    uint8_t entry[32];
    uint8_t *p = br_put_len(entry, BR_LINK_TRACE_ID, trace_id ? trace_id : none, 16);
    p = br_put_len(p, BR_LINK_SPAN_ID, span_id, 8);
    return br_additions_add(&additions->made, BR_TABLE_LINK, entry, (size_t)(p - entry));
}

int join_additions_write(const struct join_additions *additions, struct br_item *item)
{
    return additions->no_memory ? BR_ENOMEM : br_additions_write(&additions->made, item);
}

/* --- Labels that are removed --- */

struct dropping {
    const bool *drops;
    const struct join_label *labels;
    uint32_t n_labels;
    struct br_arena *arena;
    uint8_t *out;
    size_t cap;
};

static bool annotations_dropping_names_span(const struct dropping *dropping, uint64_t index)
{
    return index < dropping->n_labels && (dropping->labels[index].kind == JOIN_LABEL_SPAN_ID ||
                                          dropping->labels[index].kind == JOIN_LABEL_TRACE_ID);
}

/* Writes the attribute indices of the field, without those of dropped labels, each as a separate
 * field. The output is at most twice as long as the field. */
static uint8_t *annotations_dropping_put(const struct dropping *dropping, uint8_t *out,
                                         const struct br_field *field)
{
    const uint8_t *p = field->data, *end = p + field->value;
    uint64_t index = field->value;
    bool packed = field->wire == BR_WIRE_LEN;
    while (!packed || (p < end && (p = br_varint(p, end, &index)))) {
        if (!annotations_dropping_names_span(dropping, index)) {
            out = br_put_varint(out, BR_TAG(BR_SAMPLE_ATTRIBUTES, BR_WIRE_VARINT));
            out = br_put_varint(out, index);
        }
        if (!packed)
            break;
    }
    return out;
}

static int annotations_dropping_on_sample(void *arg, struct br_visit *visit)
{
    struct dropping *dropping = arg;
    const uint8_t *p = visit->body, *end = p + visit->len;
    struct br_field field;
    if (!dropping->drops[visit->index])
        return BR_KEEP;
    if (dropping->cap < 2 * visit->len) {
        dropping->cap = 4 * visit->len;
        dropping->out = br_arena_alloc(dropping->arena, dropping->cap);
    }
    if (!dropping->out)
        return BR_ENOMEM;
    uint8_t *out = dropping->out;
    for (const uint8_t *at = p; p < end && (p = br_field_next(p, end, &field)); at = p)
        out = field.number == BR_SAMPLE_ATTRIBUTES ? annotations_dropping_put(dropping, out, &field)
                                                   : br_put_bytes(out, at, (size_t)(p - at));
    visit->out = (struct br_addition){dropping->out, (size_t)(out - dropping->out)};
    return BR_REPLACE;
}

int join_drop_span_labels(struct br_item *item, const bool *drops, const struct join_label *labels,
                          uint32_t n_labels, struct br_arena *arena)
{
    struct dropping dropping = {
        .drops = drops, .labels = labels, .n_labels = n_labels, .arena = arena};
    return br_item_rewrite(item, 1u << BR_LEVEL_RECORD, annotations_dropping_on_sample, &dropping);
}

/* --- Onto spans ------------------------------------------------------------------------- */

#define ARENA_MAX (64u << 20)

enum mark {
    MARK_PYROSCOPE_ID, /* attribute that Grafana uses to navigate from a span to its profile */
    MARK_PROFILE_ID,
    MARK_TYPE,
    MARK_COUNT,
    MARK_DURATION,
    MARK_INCLUSIVE_COUNT,
    MARK_INCLUSIVE_DURATION,
    MARK_TOP,
    MARK_PARTIAL,
    MARKS,
};

static const char *const keys[MARKS] = {"pyroscope.profile.id",
                                        "profile.id",
                                        "profile.type",
                                        "profile.sample_count",
                                        "profile.duration_us",
                                        "profile.inclusive_sample_count",
                                        "profile.inclusive_duration_us",
                                        "profile.top_functions",
                                        "profile.partial"};

/* Returns a bit set of the keys in `keys` that the span already has. Values that exist already
 * are from an SDK's bridge or another join, and take precedence. */
static unsigned annotations_mark_keys_of(const struct br_span *span)
{
    const uint8_t *p = span->body, *end = p + span->body_len;
    struct br_keyvalue kv;
    unsigned has = 0;
    while ((p = br_keyvalue_next(p, end, BR_SPAN_ATTRIBUTES, &kv)))
        for (unsigned i = 0; i < MARKS; i++)
            if (br_bytes_are(kv.key, kv.key_len, keys[i]))
                has |= 1u << i;
    return has;
}

struct marking {
    struct join *join;
    struct br_arena arena;
    /* service of the spans in the current part (a ResourceSpans message) */
    struct join_service service;
    struct join_locals locals;
    struct join_infer infer; /* finds spans by thread; used only if the option `infer` is set */
    /* process that produced the spans of the current part; used only if the option `infer` is set
     */
    struct join_identity where;
    /* number of spans whose marks do not include their descendants, because the step limit was
     * reached */
    uint64_t n_cut;
    unsigned has; /* bit set of the keys that the current span already has */
    /* true if the attribute pyroscope.profile.id is removed from spans without samples */
    bool exact;
    /* true if no samples belong to the current span, so that its attribute pyroscope.profile.id
     * must be removed */
    bool dangling;
    int rc;
};

/* Counts the samples of a span that keep the span id that they originally named: the id of the span
 * itself or of its root. */
struct named {
    /* true if the span has samples of this kind, even if all of them were taken in its
     * descendants */
    bool any;
    uint32_t count[JOIN_MEASURES];
};

/* Sums of samples: `own` contains the sums of the span alone; `all` contains those of the span
 * and its descendants. */
struct sums {
    struct join_totals own, all;
    bool any_own, any;
    /* samples in `own` that are exported with a link to the span itself or to its root */
    struct named named;
    /* true if samples of these spans were lost or are linked to other spans, so that the sums are
     * incomplete */
    bool partial;
    struct join_top top[JOIN_TOP_MAX]; /* function counters of `all` */
};

static void annotations_mark_add_text(struct marking *marking, struct br_addition *addition,
                                      enum mark mark, const char *text, size_t len)
{
    if (!marking->rc && len && !(marking->has >> mark & 1))
        marking->rc =
            br_add_string(&marking->arena, addition, BR_SPAN_ATTRIBUTES, keys[mark], text, len);
}

static void annotations_mark_add_int(struct marking *marking, struct br_addition *addition,
                                     enum mark mark, uint64_t value)
{
    if (!marking->rc && !(marking->has >> mark & 1))
        marking->rc =
            br_add_int(&marking->arena, addition, BR_SPAN_ATTRIBUTES, keys[mark], (int64_t)value);
}

static void annotations_mark_add_hex(struct marking *marking, struct br_addition *addition,
                                     enum mark mark, const uint8_t *id, size_t len)
{
    char hex[33];
    struct br_str text = {.data = hex, .cap = sizeof hex, .max = sizeof hex - 1, .fixed = true};
    br_str_hex(&text, id, len);
    annotations_mark_add_text(marking, addition, mark, hex, text.len);
}

/* Adds a boolean attribute with the value true. */
static void annotations_mark_add_true(struct marking *marking, struct br_addition *addition,
                                      enum mark mark)
{
    static const uint8_t any[] = {BR_TAG(BR_VALUE_BOOL, BR_WIRE_VARINT), 1};
    uint8_t pair[64];
    if (marking->rc || marking->has >> mark & 1)
        return;
    uint8_t *p = br_put_len(pair, BR_KEYVALUE_KEY, keys[mark], strlen(keys[mark]));
    p = br_put_len(p, BR_KEYVALUE_VALUE, any, sizeof any);
    size_t len = (size_t)(p - pair), all = addition->len + br_len_size(BR_SPAN_ATTRIBUTES, len);
    uint8_t *grown = br_arena_alloc(&marking->arena, all);
    if (!grown) {
        marking->rc = BR_ENOMEM;
        return;
    }
    p = addition->len ? br_put_bytes(grown, addition->data, addition->len) : grown;
    (void)br_put_len(p, BR_SPAN_ATTRIBUTES, pair, len);
    *addition = (struct br_addition){grown, all};
}

static const uint8_t *annotations_mark_span_id_of(const struct br_span *span)
{
    return (const uint8_t *)&span->head.span_id;
}

static void annotations_mark_add_share(const struct join_totals *share, struct join_totals *into,
                                       struct join_top *into_top)
{
    join_totals_add(into, share);
    join_totals_add_top(into, into_top, JOIN_TOP_MAX, share, join_totals_top(share));
}

/* Hashes of a span's attributes thread.id and thread.name; 0: the attribute is absent. */
struct thread {
    uint32_t id, name;
};

static struct thread annotations_mark_thread_of(const struct join_relative *relative)
{
    return (struct thread){relative->thread, relative->thread_name};
}

/* Determines the process and thread in which a span of the current part (a ResourceSpans message)
 * ran. Returns false if the process or thread is unknown, or if the option `infer` is not set. */
static bool annotations_mark_where(const struct marking *marking, const struct thread *thread,
                                   struct join_identity *ret)
{
    *ret = marking->where;
    if (thread->id)
        ret->hashes[JOIN_THREAD_ID] = thread->id;
    if (thread->name)
        ret->hashes[JOIN_THREAD_NAME] = thread->name;
    return marking->infer.table && ret->hashes[JOIN_PROCESS] &&
           (ret->hashes[JOIN_THREAD_ID] || ret->hashes[JOIN_THREAD_NAME]);
}

/* Returns the totals of samples that were inferred for this span. Returns NULL if no samples were
 * inferred for it. */
static const struct join_totals *annotations_mark_inferred(struct marking *marking,
                                                           const uint8_t *trace_id,
                                                           const uint8_t *span_id,
                                                           const struct thread *thread)
{
    struct join_identity where;
    return annotations_mark_where(marking, thread, &where)
               ? join_infer_share(&marking->infer, &where, trace_id, span_id)
               : NULL;
}

/* Returns true if samples of the span were lost, or if samples of its thread were lost before the
 * span arrived. Its totals are then incomplete. */
static bool annotations_mark_lost(const struct marking *marking, const uint8_t *span_id,
                                  const struct thread *thread, uint64_t start_ns)
{
    struct join_table *table = marking->join->table;
    struct join_identity where;
    if (join_table_lost(table, span_id))
        return true;
    if (!annotations_mark_where(marking, thread, &where))
        return false;
    return join_infer_is_partial(&marking->infer, &where, start_ns);
}

/* Returns true if the totals of a span in a known tree are incomplete. One reason is that
 * samples were lost (annotations_mark_lost). Another is that timestamps of samples that name the
 * root were evicted, so the spans in which these samples were taken are unknown. */
static bool annotations_mark_is_partial(const struct marking *marking,
                                        const struct join_local *local, uint32_t root,
                                        uint32_t index)
{
    const struct join_relative *relative = &local->spans[index], *top = &local->spans[root];
    const struct thread thread = annotations_mark_thread_of(relative);
    const uint8_t *span_id = (const uint8_t *)&relative->span_id;
    bool alone = local->end[root] - local->first[root] == 1;
    if (annotations_mark_lost(marking, span_id, &thread, relative->start_ns) ||
        join_table_lost_below(marking->join->table, span_id))
        return true;
    if (!top->deferred || alone)
        return false;
    return relative->start_ns < local->since_ns ||
           join_table_evicted_after(marking->join->table, (const uint8_t *)&top->span_id,
                                    relative->start_ns);
}

/* Returns true if the samples that were exported with the span's id differ from the samples in the
 * span's totals. They differ if samples were exported before the span in which they were taken
 * arrived. */
static bool annotations_mark_is_elsewhere(const struct sums *sums)
{
    unsigned measure = 0;
    while (measure < JOIN_MEASURES &&
           sums->own.count[measure] - sums->named.count[measure] == sums->own.linked_count[measure])
        measure++;
    return measure < JOIN_MEASURES;
}

static uint32_t annotations_mark_root_of(const struct join_local *local, uint32_t index)
{
    while (local->parents[index])
        index = local->parents[index] - 1u;
    return index;
}

/* Adds the totals of one span, its deferred samples and its inferred samples to `into`. Sets
 * `*named`. Returns true if the span has any samples. */
static bool annotations_mark_add_own(struct marking *marking, const struct br_span *span,
                                     const struct join_local *local, uint32_t index,
                                     struct join_totals *into, struct join_top *into_top,
                                     struct named *named)
{
    const struct join_relative *relative = &local->spans[index];
    const struct join_totals *share = join_locals_share(&marking->locals, local, index);
    struct join_totals totals;
    struct join_top top[JOIN_TOP_MAX];
    bool any =
        relative->totals && join_table_totals(marking->join->table, span->head.trace_id,
                                              (const uint8_t *)&relative->span_id, &totals, top);
    if (any) {
        marking->locals.steps += JOIN_STEPS_PER_LOOKUP + totals.n_top * JOIN_TOP_MAX / 2;
        join_totals_add(into, &totals);
        join_totals_add_top(into, into_top, JOIN_TOP_MAX, &totals, top);
    }
    const struct thread thread = annotations_mark_thread_of(relative);
    const struct join_totals *inferred = annotations_mark_inferred(
        marking, span->head.trace_id, (const uint8_t *)&relative->span_id, &thread);
    if (share && !marking->locals.link_spans)
        annotations_mark_add_share(share, into, into_top);
    named->any = any || (share && !marking->locals.link_spans);
    memcpy(named->count, into->count, sizeof named->count);
    if (share && marking->locals.link_spans)
        annotations_mark_add_share(share, into, into_top);
    if (inferred)
        annotations_mark_add_share(inferred, into, into_top);
    if (any)
        memcpy(into->under, totals.under, sizeof into->under);
    else if (share)
        memcpy(into->under, share->under, sizeof into->under);
    else if (inferred)
        memcpy(into->under, inferred->under, sizeof into->under);
    return any || share || inferred;
}

/* Computes the sums of a span whose tree is unknown, from all samples that name the span. */
static void annotations_mark_add_alone(struct marking *marking, const struct br_span *span,
                                       struct sums *ret)
{
    const uint8_t *trace_id = br_span_has_trace(&span->head) ? span->head.trace_id : NULL;
    ret->any_own = ret->any = join_table_totals(
        marking->join->table, trace_id, annotations_mark_span_id_of(span), &ret->own, ret->top);
    if (ret->any && ret->own.deferred && trace_id)
        join_deferred_add(&marking->locals, trace_id, annotations_mark_span_id_of(span), &ret->own);
    ret->named.any = ret->any;
    memcpy(ret->named.count, ret->own.count, sizeof ret->named.count);
    struct thread thread = {0};
    if (marking->infer.table)
        thread = (struct thread){
            join_table_hash_value(marking->infer.table, span->thread_id, span->thread_id_len),
            join_table_hash_value(marking->infer.table, span->thread_name, span->thread_name_len)};
    const struct join_totals *inferred =
        trace_id ? annotations_mark_inferred(marking, trace_id, annotations_mark_span_id_of(span),
                                             &thread)
                 : NULL;
    if (inferred) {
        annotations_mark_add_share(inferred, &ret->own, ret->top);
        memcpy(ret->own.under, inferred->under, sizeof ret->own.under);
        ret->any_own = ret->any = true;
    }
    ret->partial = ret->any && annotations_mark_lost(marking, annotations_mark_span_id_of(span),
                                                     &thread, span->head.start_ns);
    ret->all = ret->own;
}

static const struct join_local *annotations_mark_tree_of(struct marking *marking,
                                                         const struct br_span *span)
{
    if (!br_span_has_trace(&span->head) || !marking->service.service)
        return NULL;
    const struct join_local *local =
        join_locals_get(&marking->locals, span->head.trace_id, marking->service.name,
                        marking->service.name_len, marking->service.service);
    if (marking->locals.steps <= JOIN_STEPS_MAX)
        return local;
    marking->n_cut++;
    return NULL;
}

static void annotations_mark_add_up(struct marking *marking, const struct br_span *span,
                                    struct sums *ret)
{
    const struct join_local *local = annotations_mark_tree_of(marking, span);
    uint32_t top = local ? join_local_find(local, annotations_mark_span_id_of(span)) : JOIN_NO_SPAN;
    memset(&ret->own, 0, sizeof ret->own);
    if (top == JOIN_NO_SPAN) {
        annotations_mark_add_alone(marking, span, ret);
        return;
    }
    if (!local->totals && !marking->infer.table)
        return;
    ret->any_own = ret->any =
        annotations_mark_add_own(marking, span, local, top, &ret->own, ret->top, &ret->named);
    uint32_t root = annotations_mark_root_of(local, top);
    ret->partial = annotations_mark_is_partial(marking, local, root, top);
    ret->all = ret->own;
    marking->locals.steps += local->count;
    for (uint32_t i = 0; i < local->count; i++) {
        if (i == top || !join_local_below(local, i, top))
            continue;
        struct named named;
        bool any = annotations_mark_add_own(marking, span, local, i, &ret->all, ret->top, &named);
        ret->any = ret->any || any;
        ret->partial =
            ret->partial || (any && annotations_mark_is_partial(marking, local, root, i)) ||
            join_table_lost_below(marking->join->table, (const uint8_t *)&local->spans[i].span_id);
    }
}

static bool annotations_mark_is_before(const struct br_addition *addition,
                                       const struct br_addition *other)
{
    int c = memcmp(addition->data, other->data,
                   addition->len < other->len ? addition->len : other->len);
    return c ? c < 0 : addition->len < other->len;
}

/* Adds the names of the functions with the largest values, in descending order of value.
 * Functions with equal values are sorted by name. */
static void annotations_mark_add_top(struct marking *marking, struct sums *sums,
                                     struct br_addition *addition)
{
    struct br_addition names[JOIN_TOP_SHOWN_MAX];
    size_t n = 0, most = (size_t)marking->join->config->top_functions;
    while (n < most && sums->all.n_top) {
        unsigned best = 0;
        struct br_addition best_name = {0};
        for (unsigned i = 0; i < sums->all.n_top; i++) {
            struct br_addition name;
            name.data = (const uint8_t *)join_table_function_name(marking->join->table,
                                                                  sums->top[i].function, &name.len);
            if (i == 0 || sums->top[i].value > sums->top[best].value ||
                (sums->top[i].value == sums->top[best].value &&
                 annotations_mark_is_before(&name, &best_name))) {
                best = i;
                best_name = name;
            }
        }
        names[n++] = best_name;
        sums->top[best] = sums->top[--sums->all.n_top];
    }
    if (n && !marking->rc && !(marking->has >> MARK_TOP & 1))
        marking->rc =
            br_add_texts(&marking->arena, addition, BR_SPAN_ATTRIBUTES, keys[MARK_TOP], names, n);
}

static void annotations_mark_add_types(struct marking *marking, const struct join_totals *totals,
                                       struct br_addition *addition)
{
    struct br_str types = {.max = 2048};
    for (unsigned i = 0; i < JOIN_SPAN_TYPES && totals->types[i].used; i++)
        br_str_printf(&types, "%s%s", i ? "," : "",
                      join_table_type_name(marking->join->table, totals->types[i].type));
    if (types.failed)
        marking->rc = BR_ENOMEM;
    annotations_mark_add_text(marking, addition, MARK_TYPE, types.data, types.len);
    br_str_release(&types);
}

static void annotations_mark_add_totals(struct marking *marking, const struct br_span *span,
                                        struct sums *sums, struct br_addition *addition)
{
    static const uint8_t none[16];
    enum join_measure measure = join_totals_measure(&sums->all);
    if (memcmp(sums->all.profile_id, none, sizeof none) != 0)
        annotations_mark_add_hex(marking, addition, MARK_PROFILE_ID, sums->all.profile_id, 16);
    else if (br_span_has_trace(&span->head))
        annotations_mark_add_hex(marking, addition, MARK_PROFILE_ID, span->head.trace_id, 16);
    annotations_mark_add_types(marking, &sums->all, addition);
    annotations_mark_add_int(marking, addition, MARK_COUNT, sums->own.count[measure]);
    if (measure != JOIN_OTHER)
        annotations_mark_add_int(marking, addition, MARK_DURATION,
                                 sums->own.time_ns[measure] / 1000);
    annotations_mark_add_int(marking, addition, MARK_INCLUSIVE_COUNT, sums->all.count[measure]);
    if (measure != JOIN_OTHER)
        annotations_mark_add_int(marking, addition, MARK_INCLUSIVE_DURATION,
                                 sums->all.time_ns[measure] / 1000);
    annotations_mark_add_top(marking, sums, addition);
    if (sums->partial)
        annotations_mark_add_true(marking, addition, MARK_PARTIAL);
}

/* Returns true if the span's flags indicate that its parent belongs to another process. */
static bool annotations_mark_parent_is_remote(const struct br_span *span)
{
    const unsigned both = BR_SPAN_FLAG_HAS_IS_REMOTE | BR_SPAN_FLAG_IS_REMOTE;
    const uint8_t *p = span->body, *end = p + span->body_len;
    struct br_field field;
    uint64_t flags = 0;
    while (p < end && (p = br_field_next(p, end, &field)))
        if (field.number == BR_SPAN_FLAGS)
            flags = field.value;
    return (flags & both) == both;
}

/* Returns true if an SDK bridge would label samples with the span. Bridges use the span that has
 * no parent in its process. The absence of the parent from the table proves nothing, because
 * spans often arrive before their parents. */
static bool annotations_mark_is_entry(const struct br_span *span)
{
    return !span->head.parent_id || br_span_kind_is_entry(span->kind) ||
           annotations_mark_parent_is_remote(span);
}

/* Returns true if samples that name the span keep their links. The CPU time of the samples must
 * be known already. */
static bool annotations_mark_is_kept(const struct marking *marking, const struct br_span *span,
                                     const uint8_t *span_id)
{
    const struct join *join = marking->join;
    const uint8_t *trace_id = br_span_has_trace(&span->head) ? span->head.trace_id : NULL;
    struct join_found found;
    struct join_totals totals;
    if (!join->policy.keep)
        return true;
    found.name_len = SIZE_MAX;
    join_table_find(join->table, trace_id, span_id, join_found_copy, &found);
    if (found.name_len == SIZE_MAX)
        return join->policy.keep->unknown;
    switch (join_policy_of(&join->policy, &found, trace_id, found.service, found.service_len,
                           br_host_mono_ms(join->node->host))) {
    case JOIN_KEEPS:
        return true;
    case JOIN_FOLDS:
        return false;
    case JOIN_FOLDS_UNLESS_CPU:
        break;
    }
    return join_table_totals(join->table, trace_id, span_id, &totals, NULL) &&
           join_totals_cpu_ns(&totals) > join->policy.keep->cpu_threshold;
}

/* Returns true if samples are exported with the span's id or, with the option `link: root`, with
 * the id of its root. Samples that name a root keep the root's id even if all of them were taken
 * in spans below the root. */
static bool annotations_mark_is_named(const struct marking *marking, const struct sums *sums)
{
    bool any = sums->named.any && !marking->locals.link_spans;
    for (unsigned measure = 0; sums->any_own && measure < JOIN_MEASURES; measure++)
        any = any || sums->named.count[measure] || sums->own.linked_count[measure];
    return any;
}

/* Returns the bytes to append to one span. The result is empty if nothing is added or memory is
 * short. */
static struct br_addition annotations_mark_span(struct marking *marking, const struct br_span *span,
                                                bool totals, bool likely)
{
    struct br_addition addition = {0};
    struct sums sums;
    sums.any = sums.any_own = sums.partial = marking->dangling = false;
    sums.named.any = false;
    if (!span->head.span_id)
        return addition;
    likely = likely && (marking->locals.link_spans || annotations_mark_is_entry(span));
    if (totals)
        annotations_mark_add_up(marking, span, &sums);
    bool leads = annotations_mark_is_named(marking, &sums) &&
                 annotations_mark_is_kept(marking, span, sums.own.under);
    sums.partial = sums.partial || (leads && annotations_mark_is_elsewhere(&sums));
    marking->dangling = marking->exact && !leads &&
                        !join_table_lost(marking->join->table, annotations_mark_span_id_of(span));
    if (!sums.any && !likely)
        return addition;
    marking->has = annotations_mark_keys_of(span);
    marking->rc = 0;
    if (sums.any)
        annotations_mark_add_totals(marking, span, &sums, &addition);
    /* the attribute must be the span id that the exported samples contain, because a profile store
     * finds samples by that id */
    if (leads || likely)
        annotations_mark_add_hex(marking, &addition, MARK_PYROSCOPE_ID,
                                 leads ? sums.own.under : annotations_mark_span_id_of(span), 8);
    return marking->rc ? (struct br_addition){0} : addition;
}

/* --- Marks of spans without samples --- */

struct cleaning {
    const struct br_span *spans; /* the item's spans, of which only the ids are set */
    const bool *dangling;
    struct br_arena arena;
};

/* Returns true if the field is a pyroscope.profile.id attribute whose value is the span's own id.
 * Other values were not written by a bridge. */
static bool cleaning_is_mark(const struct br_field *field, const char *id, size_t id_len)
{
    struct br_keyvalue kv;
    if (field->number != BR_SPAN_ATTRIBUTES || field->wire != BR_WIRE_LEN ||
        !br_keyvalue_read(field->data, (size_t)field->value, &kv))
        return false;
    struct br_any any = br_any_read(kv.value);
    return br_bytes_are(kv.key, kv.key_len, keys[MARK_PYROSCOPE_ID]) &&
           any.type == BR_VALUE_STRING && br_bytes_equal(any.data, any.len, id, id_len);
}

static int cleaning_on_span(void *arg, struct br_visit *visit)
{
    struct cleaning *cleaning = arg;
    if (!cleaning->dangling[visit->index])
        return BR_KEEP;
    char hex[17];
    struct br_str id = {.data = hex, .cap = sizeof hex, .max = sizeof hex - 1, .fixed = true};
    br_str_hex(&id, annotations_mark_span_id_of(&cleaning->spans[visit->index]), 8);
    br_arena_release(&cleaning->arena);
    uint8_t *out = br_arena_alloc(&cleaning->arena, visit->len), *at = out;
    const uint8_t *p = visit->body, *end = p + visit->len, *next;
    struct br_field field;
    if (!out)
        return visit->len ? BR_ENOMEM : BR_KEEP;
    for (; p < end && (next = br_field_next(p, end, &field)); p = next)
        if (!cleaning_is_mark(&field, hex, id.len))
            at = br_put_bytes(at, p, (size_t)(next - p));
    visit->out = (struct br_addition){out, (size_t)(at - out)};
    return visit->out.len == visit->len ? BR_KEEP : BR_REPLACE;
}

/* Removes the attribute pyroscope.profile.id from the spans for which `dangling` is true. If there
 * is not enough memory, the attributes are not removed. */
static void annotations_mark_clean(struct br_item *item, const struct br_span *spans,
                                   const bool *dangling)
{
    struct cleaning cleaning = {.spans = spans, .dangling = dangling};
    br_arena_init(&cleaning.arena, ARENA_MAX);
    (void)br_item_rewrite(item, 1u << BR_LEVEL_RECORD, cleaning_on_span, &cleaning);
    br_arena_release(&cleaning.arena);
}

static void annotations_mark_begin_part(struct marking *marking, const struct br_part *part)
{
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    marking->where = (struct join_identity){0};
    if (marking->infer.table)
        join_identity_read(marking->infer.table, resource, resource + len, NULL, &marking->where);
}

void join_mark_spans(struct join *join, struct br_item *item, bool totals, bool waited)
{
    const struct br_span *spans = join_spans_of(item);
    uint64_t now_ms = br_host_mono_ms(join->node->host);
    struct marking marking = {.join = join,
                              .exact = waited && join->config->mark == JOIN_MARK_EXACT};
    br_arena_init(&marking.arena, ARENA_MAX);
    uint32_t i = 0, n_records = item->n_records;
    marking.locals =
        (struct join_locals){.table = join->table,
                             .link_spans = join->config->local_root.link == JOIN_LINK_SPAN,
                             .max_spans = (unsigned)join->config->local_root.max_spans,
                             .now_ms = now_ms,
                             .cut = join->trace_spans_cut};
    join_infer_init(&marking.infer, totals && join->config->infer ? join->table : NULL,
                    &marking.arena);
    marking.infer.cut = join->trace_spans_cut;
    struct br_addition *additions =
        spans ? br_arena_calloc(&marking.arena, n_records, sizeof *additions) : NULL;
    bool *dangling =
        marking.exact ? br_arena_calloc(&marking.arena, n_records, sizeof *dangling) : NULL;
    bool any_dangling = false;
    for (uint32_t p = 0; additions && p < item->n_parts && i < n_records; p++) {
        struct br_part *part = &item->parts[p];
        marking.service = join_service_of(part, NULL);
        marking.service.name_len = join_cut(marking.service.name, marking.service.name_len);
        bool likely = join->config->mark == JOIN_MARK_LIKELY &&
                      join_service_profiled(join, &marking.service, now_ms);
        annotations_mark_begin_part(&marking, part);
        uint32_t first = i, n_marked = 0;
        for (; i < n_records && spans[i].part == p; i++) {
            additions[i] = annotations_mark_span(&marking, &spans[i], totals, likely);
            n_marked += additions[i].len > 0;
            any_dangling = any_dangling || marking.dangling;
            if (dangling)
                dangling[i] = marking.dangling;
        }
        if (n_marked && br_part_append(item, part, additions + first) == 0)
            *join->marked += n_marked;
    }
    if (dangling && any_dangling)
        annotations_mark_clean(item, spans, dangling);
    *join->steps_cut += (double)(marking.n_cut + marking.locals.n_cut + marking.infer.n_cut);
    join_infer_release(&marking.infer);
    join_locals_release(&marking.locals);
    br_arena_release(&marking.arena);
}
