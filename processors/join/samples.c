/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the samples of profiles items with the spans in which they were taken. */
#include <string.h>

#include "base/mem.h"
#include "otlp/edit/edit.h"
#include "otlp/edit/fold.h"
#include "otlp/edit/rewrite.h"
#include "otlp/fields.h"
#include "otlp/scan.h"
#include "processors/join/annotations.h"
#include "processors/join/infer/infer.h"
#include "processors/join/join.h"
#include "processors/join/sample_view.h"
#include "profile/pair.h"
#include "profile/profile.h"
#include "wire/protobuf.h"

#define ARENA_MAX (64u << 20)
#define ADDITIONS_BLOCK 4096u

/* The dictionary of the item (its string, attribute, link and stack tables), and data computed from
 * it. */
struct run_dictionary {
    struct br_dictionary_view view;
    struct join_texts texts;
    struct join_links links;
    struct join_label *labels; /* meaning of each attribute, by attribute index */
    bool any_label;
    /* functions at the leaves of the stacks; used only with the option top_functions */
    struct join_leaves leaves;
};

/* The resource and the profile to which the current sample belongs. */
struct run_scope {
    struct join_service service;
    /* process in which the samples of the resource were taken; used only with the option `infer` */
    struct join_identity where;
    /* the most preferred measure that any profile of the resource has; used only with the option
     * span_metrics */
    enum join_measure best;
    struct join_value_type value_type; /* meaning of the values of the current profile */
    /* true if the samples come from a Pyroscope client; the join then removes their timestamps */
    bool timeless;
};

/* Per-sample decisions of the link policy: which samples lose their links or timestamps. */
struct run_folding {
    /* verdict (enum br_fold) on each sample, by sample index; NULL: no sample loses its link
     * or timestamps */
    uint8_t *verdicts;
    bool timeless; /* true if at least one sample loses its timestamps */
    struct join_undecided undecided;
    struct {
        uint64_t samples;
        double value;
    } folded[JOIN_TYPES];
};

/* Counts that are added to the metrics when the item is released. */
struct run_counts {
    uint64_t outcomes[JOIN_TYPES][JOIN_COUNTS];
    struct join_tally tally;
    uint64_t n_other;
    uint64_t n_splits_cut;
    uint32_t n_unknown;
    uint32_t n_named; /* number of samples that name a span in a link or label */
};

/* One pass over the samples of an item. */
struct run {
    struct join *join;
    struct br_item *item;
    enum join_pass pass;
    /* result of the earlier pass for the next sample, in the memo of the item; NULL with
     * JOIN_PASS_ONLY */
    uint8_t *memo;
    /* results of the earlier pass for all samples of the item after splitting, owned by the run;
     * NULL if no sample was split */
    uint8_t *memos;
    /* for each sample after splitting, true if it and the previous sample are pieces of the same
     * original sample; NULL: no sample was split */
    bool *continues;
    struct {
        bool any;
        enum join_outcome outcome;
        uint16_t type;
    } noted; /* best outcome so far of the current sample or of its pieces */
    uint64_t came_ms, now_ms;
    uint64_t exact; /* hash of the last service for which this run called join_table_note_exact */
    uint32_t index; /* index of the next sample in the item */
    struct br_arena arena;
    struct br_arena additions_arena; /* memory for additions to samples until they are written */
    uint8_t *room, *room_end;        /* free bytes in additions_arena, for the next additions */
    bool no_memory;
    struct run_dictionary dictionary;
    struct run_scope scope;
    struct join_found found; /* copy of the span of the current sample */
    /* span id to which the sample's link will be changed; NULL: the sample is linked to the span
     * that it names */
    const uint8_t *link;
    /* for each sample, true if its labels name a different span than its link; NULL: this is false
     * for all samples */
    bool *relabelled;
    struct join_credit credit;
    struct join_infer infer;
    struct join_additions additions;
    struct run_folding folding;
    struct run_counts counts;
};

/* --- Outcomes ----------------------------------------------------------------- */

static enum join_result join_run_find(struct run *run, const struct join_sample *sample, bool add)
{
    return join_table_sample(run->join->table, sample, add, run->came_ms, join_found_copy,
                             &run->found, &run->counts.tally);
}

/* Adds a sample to the metrics of its span. If several profiles of a resource measure time, only
 * the samples of the profile with the best measure are added. */
static void join_run_on_credited(void *arg, const struct join_span *span,
                                 const struct join_sample *sample)
{
    struct run *run = arg;
    bool counts = sample->measure == run->scope.best && sample->measure < JOIN_OTHER;
    const struct join_spent spent = {
        .cpu_ns = counts && sample->measure <= JOIN_CPU_COUNT ? sample->time_ns : 0,
        .allocated_bytes = sample->allocated_bytes,
        .samples = counts ? sample->count : 0};
    join_span_metrics_add(&run->join->span_metrics, span, &spent);
}

static void join_run_credit_found(struct run *run, const struct join_sample *sample)
{
    const struct join_found *found = &run->found;
    join_run_on_credited(run,
                         &(struct join_span){.name = found->name,
                                             .name_len = found->name_len,
                                             .service = found->service,
                                             .service_len = found->service_len},
                         sample);
}

static struct join_sample run_sample_of(struct run *run, const struct join_sample_view *view,
                                        bool held)
{
    struct join_sample sample = {
        .trace_id = view->trace_id, .span_id = view->span_id, .held = held};
    if (run->join->config->top_functions)
        sample.function = join_leaf_of(&run->dictionary.leaves, view->stack);
    return sample;
}

/* Adds the sample and its values to the span that it names. */
static enum join_result join_run_add(struct run *run, const struct join_sample_view *view,
                                     struct join_sample sample)
{
    join_value_type_apply(&run->scope.value_type, view->value, view->n_values, view->n_times,
                          &sample);
    enum join_result result = join_run_find(run, &sample, true);
    if (result == JOIN_FOUND && run->join->span_metrics.node)
        join_run_credit_found(run, &sample);
    return result;
}

static enum join_result join_run_add_to(struct run *run, const struct join_sample_view *view,
                                        bool held)
{
    return join_run_add(run, view, run_sample_of(run, view, held));
}

/* Returns true if the timestamps of a sample must be deferred: the span that the sample names has
 * not arrived, or appears to be the root of a local tree. If the sample names a span below a root,
 * notes that the service labels samples with the exact span in which they were taken, not with the
 * root. */
static bool join_run_is_open(struct run *run, enum join_result result,
                             const struct join_sample *sample)
{
    if (result != JOIN_FOUND)
        return result == JOIN_UNKNOWN && sample->trace_id;
    enum join_tree_place place = join_credit_place(&run->credit, &run->found);
    uint64_t service = place == JOIN_TREE_BELOW
                           ? join_service_hash(run->found.service, run->found.service_len)
                           : 0;
    if (service && service != run->exact) {
        join_table_note_exact(run->join->table, service, run->came_ms);
        run->exact = service;
    }
    return place == JOIN_TREE_ROOT;
}

/* Returns how long the item is held before it is released, in milliseconds. */
static uint64_t join_run_waits_ms(const struct run *run)
{
    return run->pass == JOIN_PASS_ONLY ? 0 : run->join->config->profile_hold / 1000000;
}

/* Defers the timestamps of the sample. Adds the sample's values to the deferred sums of the span
 * that the sample names. Returns false if the timestamps cannot be deferred. */
static bool join_run_defer(struct run *run, const struct join_sample_view *view,
                           enum join_result *result)
{
    struct join_sample sample = run_sample_of(run, view, run->pass == JOIN_PASS_FIRST);
    uint8_t trace[16];
    if (!sample.trace_id) {
        memcpy(trace, run->found.trace, sizeof trace);
        sample.trace_id = trace;
    }
    if (!join_credit_defer(&run->credit, &run->scope.value_type, view, &view->where, &sample,
                           join_run_waits_ms(run), run->came_ms, &run->counts.tally))
        return false;
    sample.deferred = true;
    join_value_type_apply(&run->scope.value_type, view->value, view->n_values, view->n_times,
                          &sample);
    *result = join_run_find(run, &sample, true);
    if (*result == JOIN_FOUND && run->join->span_metrics.node) {
        sample.deferred = false;
        join_credit_below(&run->credit, &run->scope.value_type, view, &run->found, &sample);
    }
    return true;
}

/* Looks up the span that the sample names and, except in the last pass, adds the sample to it. */
static enum join_result join_run_look_up(struct run *run, const struct join_sample_view *view)
{
    bool held = run->pass == JOIN_PASS_FIRST, add = run->pass != JOIN_PASS_LAST;
    struct join_sample sample = run_sample_of(run, view, held);
    enum join_result result = JOIN_UNKNOWN;
    if (!add || join_sample_view_is_timed(view))
        result = join_run_find(run, &sample, false);
    bool deferred = add && join_sample_view_is_timed(view) &&
                    join_run_is_open(run, result, &sample) && join_run_defer(run, view, &result);
    if (add && result != JOIN_TOO_LATE && !deferred)
        result = join_run_add_to(run, view, held);
    /* The deepest span, to which the sample will be linked, may not have arrived. */
    bool links_span = deferred && run->join->config->local_root.link == JOIN_LINK_SPAN;
    run->counts.n_unknown += result == JOIN_UNKNOWN || links_span;
    return result;
}

/* Counts the outcome that was noted for the previous sample. */
static void join_run_count_noted(struct run *run)
{
    if (run->noted.any)
        run->counts.outcomes[run->noted.type][run->noted.outcome]++;
    run->noted.any = false;
}

/* Notes the outcome of a sample or of one of its pieces. A sample that was split is counted
 * once, with the best outcome of its pieces. */
static void join_run_note_outcome(struct run *run, enum join_outcome outcome)
{
    static const uint8_t rank[JOIN_COUNTS] = {
        [JOIN_COUNT_UNLINKED] = 0, [JOIN_COUNT_AMBIGUOUS] = 1, [JOIN_COUNT_UNKNOWN] = 2,
        [JOIN_COUNT_TOO_LATE] = 3, [JOIN_COUNT_INFERRED] = 4,  [JOIN_COUNT_LATE] = 5,
        [JOIN_COUNT_JOINED] = 6};
    if (run->pass == JOIN_PASS_FIRST ||
        (run->noted.any && rank[run->noted.outcome] >= rank[outcome]))
        return;
    run->noted.any = true;
    run->noted.outcome = outcome;
    run->noted.type = run->scope.value_type.type;
}

/* Notes the outcome of a sample whose item is being released. With JOIN_PASS_ONLY, samples whose
 * span has not arrived are counted by the table instead (struct join_tally). */
static void join_run_count(struct run *run, enum join_result result, uint8_t memo)
{
    if (result == JOIN_TOO_LATE)
        join_run_note_outcome(run, JOIN_COUNT_TOO_LATE);
    else if (result == JOIN_FOUND)
        join_run_note_outcome(run, memo == JOIN_UNKNOWN ? JOIN_COUNT_LATE : JOIN_COUNT_JOINED);
    else if (run->pass == JOIN_PASS_LAST)
        join_run_note_outcome(run, JOIN_COUNT_UNKNOWN);
}

static bool join_run_allows(void *arg, unsigned key, const uint8_t *value, size_t len)
{
    const struct join *join = arg;
    return join_table_value(join->table, key, value, len, (size_t)join->config->max_values);
}

static uint32_t join_run_index_of(struct run *run, unsigned key, const uint8_t *value, size_t len)
{
    bool other;
    uint32_t index = join_additions_attribute(&run->additions, key, run->join->keys[key], value,
                                              len, join_run_allows, run->join, &other);
    run->counts.n_other += other;
    return index;
}

/* Writes the indices of the attributes to add to the sample. These attributes have the values of
 * the found span. Leaves out keys that the sample already has. Returns the number of indices. */
static uint32_t join_run_indices_of(struct run *run, uint32_t has_keys, uint32_t *out)
{
    const struct join_found *found = &run->found;
    const uint8_t *p = found->attributes, *end = p + found->attributes_len;
    uint32_t n = 0;
    if (!(has_keys & 1))
        out[n++] = join_run_index_of(run, 0, found->name, found->name_len);
    for (unsigned key = 1; key < run->join->n_keys && p < end; key++) {
        size_t len = *p++;
        if (len-- == 0)
            continue;
        if (!(has_keys >> key & 1))
            out[n++] = join_run_index_of(run, key, p, len);
        p += len;
    }
    return n;
}

/* Returns memory for an addition of `size` bytes, directly after the previous addition. Returns
 * NULL if `size` is 0 or there is not enough memory. */
static uint8_t *join_run_addition_room(struct run *run, size_t size)
{
    if (size > (size_t)(run->room_end - run->room)) {
        run->room = br_arena_alloc(&run->additions_arena, ADDITIONS_BLOCK);
        run->room_end = run->room ? run->room + ADDITIONS_BLOCK : NULL;
    }
    uint8_t *start = size ? run->room : NULL;
    if (start)
        run->room += size;
    return start;
}

/* Returns the trace id that the sample names. If the sample names no trace id, returns the trace
 * id of its span. Returns NULL if both trace ids are unknown. */
static const uint8_t *join_run_trace_of(const struct run *run, const struct join_sample_view *view,
                                        bool found)
{
    if (view->trace_id)
        return view->trace_id;
    return found && run->found.has_trace ? run->found.trace : NULL;
}

/* Returns the bytes to append to a sample: attribute indices and, if the sample does not have a
 * link, a link. The attributes include `profile.join` unless `how` is NULL. */
static struct br_addition join_run_addition_for(struct run *run,
                                                const struct join_sample_view *view, bool found,
                                                const char *how)
{
    uint32_t indices[JOIN_KEYS_MAX], link = 0;
    uint32_t n = found ? join_run_indices_of(run, view->has_keys, indices) : 0;
    const uint8_t *trace = join_run_trace_of(run, view, found);
    /* A link without a trace id is replaced, because profile stores look up a span by its trace,
     * too. */
    bool links = run->link || (view->span_id && (!view->linked || (!view->trace_id && trace)));
    if (how && !(view->has_keys >> JOIN_HOW_KEY & 1))
        indices[n++] = join_run_index_of(run, JOIN_HOW_KEY, (const uint8_t *)how, strlen(how));
    uint8_t packed[BR_VARINT_MAX * JOIN_KEYS_MAX], *q = packed;
    for (uint32_t i = 0; i < n; i++)
        q = br_put_varint(q, indices[i]);
    size_t len = (size_t)(q - packed), size = n ? br_len_size(2, len) : 0;
    if (links) {
        link = join_additions_link(&run->additions, trace, run->link ? run->link : view->span_id);
        size += 1 + br_varint_size(link);
    }
    uint8_t *start = join_run_addition_room(run, size), *p = start;
    if (!start) {
        run->no_memory = run->no_memory || size;
        return (struct br_addition){0};
    }
    if (n)
        p = br_put_len(p, BR_SAMPLE_ATTRIBUTES, packed, len);
    if (links) {
        p = br_put_varint(p, BR_TAG(BR_SAMPLE_LINK, BR_WIRE_VARINT));
        (void)br_put_varint(p, link);
    }
    return (struct br_addition){start, size};
}

static void join_run_note_profiled(struct run *run, uint64_t service)
{
    if (!join_table_profiled(run->join->table, service, run->came_ms))
        ++*run->join->services_cut;
}

/* If the resource of the sample does not name a service, notes that the span's service is
 * profiled. */
static void join_run_note_service(struct run *run)
{
    const struct join_found *found = &run->found;
    if (!run->scope.service.service && found->service_len)
        join_run_note_profiled(run, join_service_hash(found->service, found->service_len));
}

/* --- Links that are removed ------------------------------------------------------------- */

/* Returns true if the link policy in the config can remove links from samples. */
static bool join_run_decides(const struct run *run)
{
    return run->folding.verdicts && run->join->policy.keep;
}

static void join_run_note_unlinked(struct run *run)
{
    if (join_run_decides(run))
        run->folding.verdicts[run->index] = BR_FOLD_UNLINKED;
}

static void join_run_note_folded(struct run *run, uint32_t index, uint16_t type, uint64_t value)
{
    run->folding.verdicts[index] = BR_FOLD_FOLDED;
    run->folding.folded[type].samples++;
    run->folding.folded[type].value += (double)value;
}

static void join_run_decide_later(struct run *run, uint32_t index,
                                  const struct join_sample_view *view)
{
    if (join_undecided_add(&run->folding.undecided, run->item->n_records, index,
                           run->found.has_trace ? run->found.trace : NULL, view->span_id,
                           run->scope.value_type.type, (double)view->value))
        run->no_memory = true;
}

static void join_run_decide(struct run *run, const struct join_sample_view *view, bool found)
{
    const struct join_found *join_found = &run->found;
    const uint8_t *trace = join_run_trace_of(run, view, found);
    bool of_span = found && join_found->service_len;
    switch (join_policy_of(&run->join->policy, found ? join_found : NULL, trace,
                           of_span ? join_found->service : run->scope.service.name,
                           of_span ? join_found->service_len : run->scope.service.name_len,
                           run->now_ms)) {
    case JOIN_KEEPS:
        break;
    case JOIN_FOLDS:
        join_run_note_folded(run, run->index, run->scope.value_type.type, view->value);
        break;
    case JOIN_FOLDS_UNLESS_CPU:
        join_run_decide_later(run, run->index, view);
        break;
    }
}

static void join_run_decide_span(struct run *run, struct join_undecided_span *span)
{
    struct join_totals totals;
    if (join_table_totals(run->join->table, span->has_trace ? span->trace : NULL, span->span,
                          &totals, NULL) &&
        join_totals_cpu_ns(&totals) > run->join->policy.keep->cpu_threshold)
        return;
    span->folds = true;
    run->folding.folded[span->type].samples += span->samples;
    run->folding.folded[span->type].value += span->value;
}

static void join_run_decide_rest(struct run *run)
{
    struct join_undecided *undecided = &run->folding.undecided;
    for (uint32_t i = 0; i < undecided->count; i++)
        join_run_decide_span(run, &undecided->spans[i]);
    for (uint32_t i = 0; i < undecided->n_samples; i++)
        if (undecided->of[i] && undecided->spans[undecided->of[i] - 1].folds)
            run->folding.verdicts[i] =
                BR_FOLD_FOLDED | (run->folding.verdicts[i] & BR_FOLD_TIMELESS);
    join_undecided_release(undecided);
}

/* Returns the kind (enum br_fold_attribute) of each attribute of the dictionary, or NULL if there
 * is not enough memory. */
static uint8_t *join_run_fold_attributes(struct run *run, uint32_t count)
{
    uint8_t *attributes = br_arena_calloc(&run->arena, (size_t)count + 1, 1);
    for (uint32_t i = 0; attributes && run->dictionary.labels && i < count; i++) {
        const struct join_label *label = &run->dictionary.labels[i];
        if (label->kind == JOIN_LABEL_SPAN_ID || label->kind == JOIN_LABEL_TRACE_ID)
            attributes[i] |= BR_FOLD_NAMES_SPAN;
        if (label->where == JOIN_THREAD_ID || label->where == JOIN_THREAD_NAME)
            attributes[i] |= BR_FOLD_NAMES_THREAD;
    }
    return attributes;
}

static void join_run_fold(struct run *run)
{
    uint32_t merged = 0, n = 0, n_attributes = run->dictionary.view.count[BR_TABLE_ATTRIBUTE];
    join_run_decide_rest(run);
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        n += run->folding.folded[t].samples > 0;
    if ((!n && !run->folding.timeless) || run->no_memory)
        return;
    const uint8_t *attributes = join_run_fold_attributes(run, n_attributes);
    if (!attributes ||
        br_item_fold(run->item, run->folding.verdicts, attributes, n_attributes, &merged))
        return;
    br_item_report(run->item, BR_RESULT_DROPPED, "folded", merged);
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        if (run->folding.folded[t].samples)
            join_count_folded(run->join, t, (double)run->folding.folded[t].samples,
                              run->folding.folded[t].value);
}

/* --- One sample ------------------------------------------------------------------------- */

/* Applies the option `link: span` to a sample that names the root of a local tree. If the sample
 * was taken in a single span below the root, its link is replaced by a link to that span. */
static void join_run_relink(struct run *run, const struct join_sample_view *view)
{
    if (run->join->config->local_root.link != JOIN_LINK_SPAN || !join_sample_view_is_timed(view))
        return;
    const uint8_t *span = join_credit_deepest(&run->credit, view, &run->found);
    if (!span)
        return;
    if (!run->relabelled)
        run->relabelled =
            br_arena_calloc(&run->arena, run->item->n_records, sizeof *run->relabelled);
    if (!run->relabelled)
        return;
    run->relabelled[run->index] = true;
    run->link = span;
    join_table_find(run->join->table, run->found.trace, span, join_found_copy, &run->found);
}

static void run_linked_sample(struct run *run, const struct join_sample_view *view, uint8_t *memo,
                              struct br_addition *addition)
{
    enum join_result result = run->pass == JOIN_PASS_LAST && *memo == JOIN_TOO_LATE
                                  ? JOIN_TOO_LATE
                                  : join_run_look_up(run, view);
    if (result == JOIN_FOUND && run->pass != JOIN_PASS_LAST)
        join_run_note_service(run);
    if (run->pass == JOIN_PASS_FIRST)
        *memo = (uint8_t)result;
    else
        join_run_count(run, result, *memo);
    run->link = NULL;
    if (result == JOIN_FOUND && run->pass != JOIN_PASS_FIRST)
        join_run_relink(run, view);
    if (addition)
        *addition = join_run_addition_for(run, view, result == JOIN_FOUND, NULL);
    if (join_run_decides(run))
        join_run_decide(run, view, result == JOIN_FOUND);
    run->link = NULL;
}

/* Determines the process and thread in which the sample was taken. Attributes of the sample take
 * precedence over those of its resource. */
static struct join_identity join_run_where(const struct run *run,
                                           const struct join_sample_view *view)
{
    struct join_identity where = run->scope.where;
    for (unsigned i = 0; i < JOIN_WHERES; i++)
        where.hashes[i] = view->where.hashes[i] ? view->where.hashes[i] : where.hashes[i];
    return where;
}

/* Defers the timestamps of a sample that does not name a span. The table later assigns the
 * timestamps to spans of the sample's thread. */
static void join_run_defer_inferable(struct run *run, const struct join_sample_view *view,
                                     const struct join_identity *where)
{
    struct join_sample sample = run_sample_of(run, view, true);
    for (unsigned key = 0; key < JOIN_THREAD_KEYS; key++) {
        struct join_thread_ids ids;
        if (!join_thread_is_stored_by(where, (enum join_thread_key)key) ||
            !join_thread_ids_of(where, (enum join_thread_key)key, &ids))
            continue;
        sample.trace_id = ids.trace;
        sample.span_id = ids.span;
        (void)join_credit_defer(&run->credit, &run->scope.value_type, view, where, &sample,
                                join_run_waits_ms(run), run->came_ms, &run->counts.tally);
    }
}

/* Adds an inferred sample to the deferred sums of its span, because the table assigns its
 * timestamps later. */
static enum join_result join_run_note_inferred(struct run *run, const struct join_sample_view *view)
{
    struct join_sample sample = run_sample_of(run, view, true);
    sample.deferred = true;
    return join_run_add(run, view, sample);
}

/* Infers the span of a sample that does not name a span. Returns true if the outcome of the
 * sample is decided. Only the last pass decides, because a span that arrives later may also
 * match. */
static bool run_infer_sample(struct run *run, struct join_sample_view *view,
                             struct br_addition *addition)
{
    if (!run->join->config->infer)
        return false;
    struct join_identity where = join_run_where(run, view);
    if (!join_infer_may(view, &where))
        return false;
    join_progress_note(&join_table_progress(run->join->table)->inferable);
    if (run->pass != JOIN_PASS_LAST)
        join_run_defer_inferable(run, view, &where);
    if (run->pass == JOIN_PASS_FIRST) {
        run->counts.n_unknown++; /* a span that has not arrived yet may match */
        return false;
    }
    const struct join_neighbour *span = join_infer_span(&run->infer, view, &where);
    if (!span && run->infer.unknown) {
        join_run_note_outcome(run, JOIN_COUNT_UNKNOWN);
        join_run_note_unlinked(run);
        return true;
    }
    if (!span)
        return false;
    view->trace_id = span->trace_id;
    view->span_id = (const uint8_t *)&span->span_id;
    if (join_run_note_inferred(run, view) != JOIN_FOUND)
        return false; /* the span was evicted after it was found */
    join_run_note_service(run);
    join_run_note_outcome(run, JOIN_COUNT_INFERRED);
    if (addition)
        *addition = join_run_addition_for(run, view, true, "inferred");
    if (join_run_decides(run))
        join_run_decide(run, view, true);
    return true;
}

/* Handles a sample that names several spans. The sample was taken in one of these spans, but it
 * is unknown in which: a thread that serves several requests gets the labels of all of them.
 * Inference by thread would only guess. */
static void run_ambiguous_sample(struct run *run, const struct join_sample_view *view,
                                 struct br_addition *addition)
{
    join_progress_note(&join_table_progress(run->join->table)->ambiguous);
    join_run_note_outcome(run, JOIN_COUNT_AMBIGUOUS);
    if (addition)
        *addition = join_run_addition_for(run, view, false, "ambiguous");
    join_run_note_unlinked(run);
}

static void run_sample(struct run *run, const uint8_t *p, const uint8_t *end,
                       struct br_addition *addition)
{
    struct join_sample_view view;
    join_sample_view_of(&run->dictionary.links,
                        run->dictionary.any_label ? run->dictionary.labels : NULL, p, end, &view);
    uint8_t unused = JOIN_FOUND, *memo = run->memo ? run->memo++ : &unused;
    if (!run->continues || !run->continues[run->index])
        join_run_count_noted(run);
    if (view.span_id)
        run->counts.n_named++;
    if (view.span_id) {
        run_linked_sample(run, &view, memo, addition);
    } else if (view.ambiguous) {
        run_ambiguous_sample(run, &view, addition);
    } else if (!run_infer_sample(run, &view, addition)) {
        join_run_note_outcome(run, JOIN_COUNT_UNLINKED);
        join_run_note_unlinked(run);
    }
    if (run->scope.timeless && view.n_times && run->folding.verdicts) {
        run->folding.verdicts[run->index] |= BR_FOLD_TIMELESS;
        run->folding.timeless = true;
    }
    run->index++;
}

/* --- Profiles --------------------------------------------------------------------------- */

/* Stores the bytes that are appended to sample `index` of a part (a ResourceProfiles message). The
 * part's list of additions is created with the first addition, because most profiles get no
 * additions. */
static void join_run_keep_addition(struct run *run, const struct br_part *part, uint32_t index,
                                   const struct br_addition *addition, struct br_addition **list)
{
    if (!addition->len)
        return;
    if (!*list)
        *list = br_arena_calloc(&run->additions_arena, part->n_records, sizeof **list);
    if (*list)
        (*list)[index] = *addition;
    else
        run->no_memory = true;
}

/* Returns true if the samples need not be read: no sample names a span, inference is off, no
 * link policy is configured, and there are no results of an earlier pass (memo). */
static bool join_run_finds_nothing(const struct run *run)
{
    return !run->dictionary.any_label && run->dictionary.view.count[BR_TABLE_LINK] <= 1 &&
           !run->join->config->infer && !run->join->policy.keep && !run->memo;
}

static void join_run_pass(struct run *run, uint32_t n_samples)
{
    run->counts.outcomes[run->scope.value_type.type][JOIN_COUNT_UNLINKED] +=
        run->pass != JOIN_PASS_FIRST ? n_samples : 0;
    run->index += n_samples;
}

/* Returns true if the scope of a ScopeProfiles message belongs to a Pyroscope client
 * (profile/profile.h). */
static bool run_scope_is_pyroscopes(const uint8_t *p, const uint8_t *end)
{
    struct br_field field;
    struct br_pair pair;
    while (p < end && (p = br_scan(p, end, &field))) {
        const uint8_t *q = field.data, *q_end = br_field_end(&field);
        while (field.number == BR_SCOPES_SCOPE && q &&
               (q = br_pair_next(q, q_end, BR_SCOPE_ATTRIBUTES, &pair)))
            if (br_text_is(pair.key, BR_SCOPE_PYROSCOPE_NAME))
                return true;
    }
    return false;
}

/* Returns true if the first sample of a Profile has timestamps. */
static bool join_run_has_times(const uint8_t *p, const uint8_t *end)
{
    struct br_field field, inner;
    while (p < end && (p = br_scan(p, end, &field))) {
        if (field.number != BR_PROFILE_SAMPLES)
            continue;
        const uint8_t *q = field.data, *q_end = br_field_end(&field);
        while (q < q_end && (q = br_scan(q, q_end, &inner)))
            if (inner.number == BR_SAMPLE_TIMES)
                return true;
        return false;
    }
    return false;
}

/* Determines whether the samples of a scope lose their timestamps. Receivers add timestamps to
 * profiles of Pyroscope clients for the join only. Pyroscope clients send no timestamps, and its
 * store keeps none. */
static void run_scope_begin(struct run *run, const struct br_field *scopes)
{
    run->scope.timeless = run->pass != JOIN_PASS_FIRST &&
                          run_scope_is_pyroscopes(scopes->data, scopes->data + scopes->value);
    if (run->scope.timeless && !run->folding.verdicts)
        run->folding.verdicts = br_arena_calloc(&run->arena, run->item->n_records, 1);
}

/* Processes the samples of a part (a ResourceProfiles message) of the item. `additions` is the
 * part's list of additions; NULL: nothing is added to samples. */
static void join_run_part(struct run *run, const struct br_part *part,
                          struct br_addition **additions)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field, g, h;
    struct br_addition addition = {0};
    bool finds_nothing = join_run_finds_nothing(run);
    uint32_t index = 0;
    while (p < end && (p = br_field_next(p, end, &field))) {
        const uint8_t *q = field.data, *q_end = br_field_end(&field);
        if (field.number == BR_RESOURCES_SCOPES)
            run_scope_begin(run, &field);
        while (field.number == BR_RESOURCES_SCOPES && q < q_end &&
               (q = br_field_next(q, q_end, &g))) {
            const uint8_t *s = g.data, *s_end = br_field_end(&g);
            if (g.number != BR_SCOPES_RECORDS)
                continue;
            join_value_type_read(run->join->table, &run->dictionary.view, s, s_end,
                                 &run->scope.value_type);
            uint32_t n_passed = 0;
            bool nothing = finds_nothing && !(run->scope.timeless && join_run_has_times(s, s_end));
            while (s < s_end && (s = br_scan(s, s_end, &h))) {
                bool is_sample = h.number == BR_PROFILE_SAMPLES;
                n_passed += is_sample;
                if (!is_sample || nothing)
                    continue;
                addition.len = 0;
                run_sample(run, h.data, s, additions ? &addition : NULL);
                if (additions)
                    join_run_keep_addition(run, part, index, &addition, additions);
                index++;
            }
            if (nothing)
                join_run_pass(run, n_passed);
        }
    }
}

/* Returns the most preferred measure that any profile of a resource has (enum join_measure). */
static enum join_measure join_run_best_measure(struct run *run, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field, g;
    struct join_value_type value_type;
    enum join_measure best = JOIN_OTHER;
    while (p < end && (p = br_field_next(p, end, &field))) {
        const uint8_t *q = field.data, *q_end = br_field_end(&field);
        while (field.number == BR_RESOURCES_SCOPES && q < q_end &&
               (q = br_field_next(q, q_end, &g))) {
            if (g.number != BR_SCOPES_RECORDS)
                continue;
            join_value_type_read(run->join->table, &run->dictionary.view, g.data, g.data + g.value,
                                 &value_type);
            best = value_type.measure < best ? value_type.measure : best;
        }
    }
    return best;
}

static void join_run_resource(struct run *run, const struct br_part *part,
                              struct br_addition **additions)
{
    run->scope.service = join_service_of(part, &run->dictionary.texts);
    if (run->join->config->infer) {
        size_t len;
        const uint8_t *resource = br_part_resource(part, &len);
        run->scope.where = (struct join_identity){0};
        join_identity_read(run->join->table, resource, resource + len, &run->dictionary.texts,
                           &run->scope.where);
    }
    if (run->join->span_metrics.node)
        run->scope.best = join_run_best_measure(run, part);
    join_run_part(run, part, additions);
    if (part->n_records && run->scope.service.service && run->pass != JOIN_PASS_LAST)
        join_run_note_profiled(run, run->scope.service.instance ? run->scope.service.instance
                                                                : run->scope.service.service);
}

static void join_run_write_parts(struct run *run, struct br_addition **additions)
{
    uint32_t n_parts = run->item->n_parts;
    if (run->no_memory || run->dictionary.texts.no_memory || run->dictionary.links.no_memory ||
        join_additions_write(&run->additions, run->item))
        /* the samples are not changed, but their values were added to the totals in the table */
        return;
    for (uint32_t i = 0; i < n_parts; i++) {
        if (additions[i])
            (void)br_part_append(run->item, &run->item->parts[i], additions[i]);
    }
    if (run->relabelled)
        (void)join_drop_span_labels(run->item, run->relabelled, run->dictionary.labels,
                                    run->dictionary.view.count[BR_TABLE_ATTRIBUTE], &run->arena);
}

static void join_run_parts(struct run *run)
{
    bool write = run->pass != JOIN_PASS_FIRST;
    uint32_t n_parts = run->item->n_parts;
    struct br_addition **additions =
        br_arena_calloc(&run->additions_arena, n_parts, sizeof *additions);
    for (uint32_t i = 0; i < n_parts; i++)
        if (run->item->parts[i].kind == BR_PART_RESOURCE)
            join_run_resource(run, &run->item->parts[i], write && additions ? &additions[i] : NULL);
    run->no_memory = run->no_memory || (write && !additions);
    if (write && additions)
        join_run_write_parts(run, additions);
    br_arena_release(&run->additions_arena);
    if (run->folding.verdicts)
        join_run_fold(run);
}

static void join_run_note_counts(struct run *run)
{
    join_run_count_noted(run);
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        for (int c = 0; c < JOIN_COUNTS; c++)
            if (run->counts.outcomes[t][c])
                join_count(run->join, t, (enum join_outcome)c, (double)run->counts.outcomes[t][c]);
    join_progress_note(&join_table_progress(run->join->table)->samples);
    if (run->counts.n_named)
        join_progress_note(&join_table_progress(run->join->table)->named);
    *run->join->other_values += (double)run->counts.n_other;
    *run->join->splits_cut += (double)run->counts.n_splits_cut;
    *run->join->steps_cut +=
        (double)(run->credit.n_cut + run->credit.locals.n_cut + run->infer.n_cut);
    join_count_tally(run->join, &run->counts.tally);
}

/* --- Samples that were taken in several spans --- */

struct splitting {
    struct run *run;
    /* results of an earlier pass, for the samples before splitting (with JOIN_PASS_ONLY: NULL) */
    const uint8_t *memo;
    uint8_t *memos;  /* results of an earlier pass, for the samples after splitting */
    bool *continues; /* new value of run.continues, for the samples after splitting */
    uint32_t count, cap, cap_continues;
    uint32_t part; /* number of the current part (ResourceProfiles message) of the item */
    uint64_t *spans;
    uint64_t cap_spans;
};

static void join_samples_splitting_begin_part(struct splitting *splitting, uint32_t part)
{
    struct run *run = splitting->run;
    size_t len;
    const uint8_t *resource = br_part_resource(&run->item->parts[part], &len);
    run->scope.where = (struct join_identity){0};
    join_identity_read(run->join->table, resource, resource + len, &run->dictionary.texts,
                       &run->scope.where);
    splitting->part = part;
}

/* Sets the number of the span in which each timestamp of a sample was taken. Returns false if
 * the spans are unknown. */
static bool join_samples_splitting_spans(struct splitting *splitting,
                                         const struct join_sample_view *view,
                                         const uint64_t **times)
{
    struct run *run = splitting->run;
    const struct join_config *config = run->join->config;
    struct join_identity where = join_run_where(run, view);
    if (view->n_times > splitting->cap_spans) {
        splitting->cap_spans = join_numbers_cap(view->n_times);
        splitting->spans =
            br_arena_alloc(&run->arena, splitting->cap_spans * sizeof *splitting->spans);
    }
    if (!splitting->spans)
        return false;
    if (!view->span_id)
        return config->infer && !view->ambiguous && join_infer_may(view, &where) &&
               join_infer_spans(&run->infer, view, &where, times, splitting->spans);
    const struct join_sample sample = {.trace_id = view->trace_id, .span_id = view->span_id};
    return config->local_root.link == JOIN_LINK_SPAN &&
           join_run_find(run, &sample, false) == JOIN_FOUND &&
           join_credit_spans(&run->credit, view, &run->found, times, splitting->spans);
}

/* Copies the result of an earlier pass for a sample to the `count` pieces of the sample. Marks
 * all pieces except the first in `continues`. */
static bool join_samples_splitting_note(struct splitting *splitting, uint32_t index, uint32_t count)
{
    size_t need = (size_t)splitting->count + count;
    if ((splitting->memo && br_grow(&splitting->memos, &splitting->cap, need, 1, UINT32_MAX)) ||
        br_grow(&splitting->continues, &splitting->cap_continues, need, sizeof(bool), UINT32_MAX))
        return false;
    if (splitting->memo)
        memset(splitting->memos + splitting->count, splitting->memo[index], count);
    for (uint32_t i = 0; i < count; i++)
        splitting->continues[splitting->count + i] = i > 0;
    splitting->count += count;
    return true;
}

static int splitting_on_sample(void *arg, struct br_visit *visit)
{
    struct splitting *splitting = arg;
    struct run *run = splitting->run;
    struct join_sample_view view;
    const uint64_t *times;
    if (visit->part != splitting->part)
        join_samples_splitting_begin_part(splitting, visit->part);
    join_sample_view_of(&run->dictionary.links,
                        run->dictionary.any_label ? run->dictionary.labels : NULL, visit->body,
                        visit->body + visit->len, &view);
    visit->n_out = 0;
    if (view.n_times > 1 && !view.estimated &&
        join_samples_splitting_spans(splitting, &view, &times))
        visit->n_out = join_sample_view_split(&view, times, splitting->spans, &run->arena,
                                              &visit->out, &run->counts.n_splits_cut);
    if (!join_samples_splitting_note(splitting, visit->index, visit->n_out ? visit->n_out : 1))
        return BR_ENOMEM;
    return visit->n_out ? BR_SPLIT : BR_KEEP;
}

/* Splits each sample whose timestamps were taken in several spans into one sample per span. Only
 * samples that do not name a span are split and, with the option `link: span`, samples that name
 * the root of a local tree. If there is not enough memory, samples are not split. */
static void join_run_split(struct run *run)
{
    const struct join_config *config = run->join->config;
    struct splitting splitting = {.run = run, .memo = run->memo, .part = UINT32_MAX};
    if (run->pass == JOIN_PASS_FIRST ||
        (!config->infer && config->local_root.link != JOIN_LINK_SPAN))
        return;
    bool ok =
        br_item_rewrite(run->item, 1u << BR_LEVEL_RECORD, splitting_on_sample, &splitting) == 0;
    if (ok && splitting.memos)
        run->memo = run->memos = splitting.memos;
    else
        br_free(splitting.memos);
    if (ok)
        run->continues = splitting.continues;
    else
        br_free(splitting.continues);
}

/* Dictionary tables to index if top_functions is not used. The tables that describe stacks are
 * left out; they are most of a dictionary. */
#define WITHOUT_STACKS (1u << BR_TABLE_STRING | 1u << BR_TABLE_ATTRIBUTE | 1u << BR_TABLE_LINK)
#define WITH_STACKS                                                                                \
    (WITHOUT_STACKS | 1u << BR_TABLE_STACK | 1u << BR_TABLE_LOCATION | 1u << BR_TABLE_FUNCTION)

static bool join_run_prepare(struct run *run)
{
    const struct join_label_names names = {.span_id = run->join->config->labels.span_id,
                                           .trace_id = run->join->config->labels.trace_id,
                                           .own = run->join->keys,
                                           .n_own = JOIN_KEYS_MAX};
    unsigned tables = run->join->config->top_functions ? WITH_STACKS : WITHOUT_STACKS;
    if (br_dictionary_index_lazy(run->item, tables, &run->arena, &run->dictionary.view))
        return false;
    join_texts_init(&run->dictionary.texts, run->join->table, &run->dictionary.view, &run->arena);
    run->dictionary.labels =
        join_labels_read(&run->dictionary.texts, &names, &run->arena, &run->dictionary.any_label);
    run->dictionary.links =
        (struct join_links){.view = &run->dictionary.view, .arena = &run->arena};
    join_additions_init(&run->additions, &run->dictionary.view);
    if (run->join->config->top_functions)
        join_leaves_init(&run->dictionary.leaves, run->join->table, &run->dictionary.view,
                         &run->arena);
    join_infer_init(&run->infer, run->join->table, &run->arena);
    run->infer.cut = run->join->trace_spans_cut;
    run->infer.release_time = join_release_time(run->came_ms, join_run_waits_ms(run));
    run->credit = (struct join_credit){
        .arena = &run->arena,
        .release_time = run->infer.release_time,
        .locals = {.table = run->join->table,
                   .link_spans = run->join->config->local_root.link == JOIN_LINK_SPAN,
                   .max_spans = (unsigned)run->join->config->local_root.max_spans,
                   .now_ms = run->came_ms,
                   .cut = run->join->trace_spans_cut},
        .arg = run};
    if (run->join->span_metrics.node)
        run->credit.on_credited = join_run_on_credited;
    if (!run->dictionary.labels || run->dictionary.texts.no_memory)
        return false;
    join_run_split(run);
    if (run->join->policy.keep && run->pass != JOIN_PASS_FIRST) {
        run->folding.verdicts = br_arena_calloc(&run->arena, run->item->n_records, 1);
        run->no_memory = !run->folding.verdicts;
    }
    return true;
}

uint32_t join_samples(struct join *join, struct br_item *item, enum join_pass pass, uint8_t *memo,
                      uint64_t came_ms)
{
    struct run *run = br_calloc(1, sizeof *run);
    uint32_t unknown = 0;
    if (run) {
        run->join = join;
        run->item = item;
        run->pass = pass;
        run->memo = memo;
        run->came_ms = came_ms;
        run->now_ms = br_host_mono_ms(join->node->host);
        br_arena_init(&run->arena, ARENA_MAX);
        br_arena_init(&run->additions_arena, ARENA_MAX);
        run->arena.pool = run->additions_arena.pool = join->node->host->pool;
        run->arena.holder = run->additions_arena.holder = BR_HOLDER_ITEMS;
    }
    if (run && join_run_prepare(run)) {
        join_run_parts(run);
        join_run_note_counts(run);
        unknown = run->counts.n_unknown;
    } else if (pass != JOIN_PASS_FIRST && item->n_records) {
        /* no sample was looked up, so all samples count as unlinked */
        join_count(join, JOIN_TYPES - 1, JOIN_COUNT_UNLINKED, item->n_records);
    }
    if (run) {
        join_additions_release(&run->additions);
        join_infer_release(&run->infer);
        join_locals_release(&run->credit.locals);
        join_links_release(&run->dictionary.links);
        join_texts_release(&run->dictionary.texts);
        join_undecided_release(&run->folding.undecided);
        br_arena_release(&run->additions_arena);
        br_arena_release(&run->arena);
        br_free(run->memos);
        br_free(run->continues);
    }
    br_free(run);
    return unknown;
}
