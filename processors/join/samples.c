/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles side of the join. */
#include <string.h>

#include "base/mem.h"
#include "otlp/edit.h"
#include "processors/join/credit.h"
#include "processors/join/extension.h"
#include "processors/join/fold.h"
#include "processors/join/infer.h"
#include "processors/join/join.h"
#include "processors/join/labels.h"
#include "processors/join/leaf.h"
#include "processors/join/meaning.h"
#include "processors/join/reading.h"
#include "processors/join/undecided.h"
#include "wire/protobuf.h"

#define ARENA_MAX (64u << 20)
#define ADDITIONS_BLOCK 4096u
#define RESOURCE_ATTRIBUTES 1 /* field of Resource */

struct run {
    struct join *j;
    struct br_item *item;
    enum join_pass pass;
    uint8_t *memo; /* of the next sample; NULL with JOIN_PASS_ONLY */
    uint64_t came_ms, now_ms;
    struct br_arena arena;
    struct br_arena additions_arena; /* what is added to samples, until it is written */
    uint8_t *room, *room_end;        /* of it, for the next one */
    struct br_dictionary_view view;
    struct join_texts texts;
    struct join_links links;
    struct join_label *labels; /* by attribute index */
    bool any_label;
    struct join_meaning meaning; /* of the profile at hand */
    enum join_measure best;      /* with span_metrics: of the profiles of the resource at hand */
    struct join_service service; /* of the resource at hand */
    struct join_extension extension;
    struct join_found found;
    struct join_credit credit;
    struct join_leaves leaves; /* with top_functions */
    struct join_infer infer;
    struct join_identity where; /* with infer: of the resource at hand */
    struct join_tally tally;
    uint64_t counts[JOIN_TYPES][JOIN_COUNTS];
    uint64_t n_other;
    uint32_t unknown;
    uint32_t index; /* of the next sample */
    uint8_t *folds; /* enum join_fold of each; NULL: all links survive */
    struct join_undecided undecided;
    struct {
        uint64_t samples;
        double value;
    } folded[JOIN_TYPES];
    bool any_linked; /* the part at hand has a sample with a span */
    bool no_memory;
};

/* --- What becomes of it ----------------------------------------------------------------------- */

static enum join_result ask(struct run *r, const struct join_sample *sample, bool add)
{
    return join_table_sample(r->j->table, sample, add, r->came_ms, join_found_copy, &r->found,
                             &r->tally);
}

/* Of profiles that tell the same samples' time in several ways one counts. */
static void on_credited(void *arg, const struct join_span *span, const struct join_sample *s)
{
    struct run *r = arg;
    bool counts = s->measure == r->best && s->measure < JOIN_OTHER;
    const struct join_spent spent = {.cpu_ns =
                                         counts && s->measure <= JOIN_CPU_COUNT ? s->time_ns : 0,
                                     .allocated_bytes = s->allocated_bytes,
                                     .samples = counts ? s->count : 0};
    join_span_metrics_add(&r->j->span_metrics, span, &spent);
}

static void credit_found(struct run *r, const struct join_sample *s)
{
    const struct join_found *f = &r->found;
    on_credited(r,
                &(struct join_span){.name = f->name,
                                    .name_len = f->name_len,
                                    .service = f->service,
                                    .service_len = f->service_len},
                s);
}

static struct join_sample sample_of(struct run *r, const struct join_reading *s, bool held)
{
    struct join_sample sample = {.trace_id = s->trace_id, .span_id = s->span_id, .held = held};
    if (r->j->config->top_functions)
        sample.function = join_leaf_of(&r->leaves, s->stack);
    return sample;
}

/* Adds the sample to the span that it names. */
static enum join_result add_to(struct run *r, const struct join_reading *s, bool held)
{
    struct join_sample sample = sample_of(r, s, held);
    join_meaning_apply(&r->meaning, s->value, s->n_values, s->n_times, &sample);
    enum join_result result = ask(r, &sample, true);
    if (result == JOIN_FOUND && r->j->span_metrics.node)
        credit_found(r, &sample);
    return result;
}

/* Looks the span that the sample names up; unless that was done before, adds to it, or to those
 * below it that were open. */
static enum join_result look_up(struct run *r, const struct join_reading *s)
{
    bool held = r->pass == JOIN_PASS_FIRST, add = r->pass != JOIN_PASS_LAST;
    struct join_sample sample = sample_of(r, s, held);
    enum join_result result = JOIN_UNKNOWN;
    if (!add || s->n_times)
        result = ask(r, &sample, false);
    if (add && result == JOIN_FOUND)
        add = !join_credit_below(&r->credit, &r->meaning, s, &r->found, &sample);
    if (add && result != JOIN_TOO_LATE)
        result = add_to(r, s, held);
    r->unknown += result == JOIN_UNKNOWN;
    return result;
}

/* Counts a sample whose item does not wait any more. Without a second pass the table says what
 * becomes of those whose span has not come: see join_tally. */
static void count(struct run *r, enum join_result result, uint8_t memo)
{
    uint64_t *counts = r->counts[r->meaning.type];
    if (result == JOIN_TOO_LATE)
        counts[JOIN_COUNT_TOO_LATE]++;
    else if (result == JOIN_FOUND && memo == JOIN_UNKNOWN)
        counts[JOIN_COUNT_LATE]++;
    else if (result == JOIN_FOUND)
        counts[JOIN_COUNT_JOINED]++;
    else if (r->pass == JOIN_PASS_LAST)
        counts[JOIN_COUNT_UNKNOWN]++;
}

static bool allowed(void *arg, unsigned key, const uint8_t *value, size_t len)
{
    const struct join *j = arg;
    return join_table_value(j->table, key, value, len, (size_t)j->config->max_values);
}

static uint32_t index_of(struct run *r, unsigned key, const uint8_t *value, size_t len)
{
    bool other;
    uint32_t index = join_extension_attribute(&r->extension, key, r->j->keys[key], value, len,
                                              allowed, r->j, &other);
    r->n_other += other;
    return index;
}

/* Turns what was found into indices of the attribute table, but for keys that the sample has. */
static uint32_t indices_of(struct run *r, uint32_t has_keys, uint32_t *out)
{
    const struct join_found *f = &r->found;
    const uint8_t *p = f->attributes, *end = p + f->attributes_len;
    uint32_t n = 0;
    if (!(has_keys & 1))
        out[n++] = index_of(r, 0, f->name, f->name_len);
    for (unsigned key = 1; key < r->j->n_keys && p < end; key++) {
        size_t len = *p++;
        if (len-- == 0)
            continue;
        if (!(has_keys >> key & 1))
            out[n++] = index_of(r, key, p, len);
        p += len;
    }
    return n;
}

/* The bytes to append to a sample: attribute indices, and the link that it had not. */
/* Room for `size` bytes of an addition, side by side with the others; NULL for none, or without memory. */
static uint8_t *addition_room(struct run *r, size_t size)
{
    if (size > (size_t)(r->room_end - r->room)) {
        r->room = br_arena_alloc(&r->additions_arena, ADDITIONS_BLOCK);
        r->room_end = r->room ? r->room + ADDITIONS_BLOCK : NULL;
    }
    uint8_t *start = size ? r->room : NULL;
    if (start)
        r->room += size;
    return start;
}

static struct br_addition addition_for(struct run *r, const struct join_reading *s, bool found,
                                       bool inferred)
{
    uint32_t indices[JOIN_KEYS_MAX], link = 0;
    uint32_t n = found ? indices_of(r, s->has_keys, indices) : 0;
    if (inferred)
        indices[n++] = index_of(r, JOIN_HOW_KEY, (const uint8_t *)"inferred", 8);
    uint8_t packed[BR_VARINT_MAX * JOIN_KEYS_MAX], *q = packed;
    for (uint32_t i = 0; i < n; i++)
        q = br_put_varint(q, indices[i]);
    size_t len = (size_t)(q - packed), size = n ? br_len_size(2, len) : 0;
    if (!s->linked) {
        const uint8_t *trace = found && r->found.has_trace ? r->found.trace : NULL;
        link = join_extension_link(&r->extension, s->trace_id ? s->trace_id : trace, s->span_id);
        size += 1 + br_varint_size(link);
    }
    uint8_t *start = addition_room(r, size), *p = start;
    if (!start) {
        r->no_memory = r->no_memory || size;
        return (struct br_addition){0};
    }
    if (n)
        p = br_put_len(p, 2, packed, len);
    if (!s->linked) {
        p = br_put_varint(p, BR_TAG(3, BR_WIRE_VARINT));
        (void)br_put_varint(p, link);
    }
    return (struct br_addition){start, size};
}

/* Whose samples these are is not said: then it is whose spans they were taken in. */
static void note_service(struct run *r)
{
    const struct join_found *f = &r->found;
    if (!r->service.service && f->service_len)
        join_table_profiled(r->j->table, join_service_hash(f->service, f->service_len), r->came_ms);
}

/* --- Links that do not survive ---------------------------------------------------------------- */

static void note_folded(struct run *r, uint32_t index, uint16_t type, uint64_t value)
{
    r->folds[index] = JOIN_FOLD_FOLDED;
    r->folded[type].samples++;
    r->folded[type].value += (double)value;
}

static void decide_later(struct run *r, uint32_t index, const struct join_reading *s)
{
    if (join_undecided_add(&r->undecided, r->item->n_items, index,
                           r->found.has_trace ? r->found.trace : NULL, s->span_id, r->meaning.type,
                           (double)s->value))
        r->no_memory = true;
}

static void decide(struct run *r, const struct join_reading *s, bool found)
{
    const struct join_found *f = &r->found;
    const uint8_t *trace = s->trace_id ? s->trace_id : found && f->has_trace ? f->trace : NULL;
    bool of_span = found && f->service_len;
    switch (join_policy_of(&r->j->policy, found ? f : NULL, trace,
                           of_span ? f->service : r->service.name,
                           of_span ? f->service_len : r->service.name_len, r->now_ms)) {
    case JOIN_KEEPS:
        break;
    case JOIN_FOLDS:
        note_folded(r, r->index, r->meaning.type, s->value);
        break;
    case JOIN_FOLDS_UNLESS_CPU:
        decide_later(r, r->index, s);
        break;
    }
}

static void decide_span(struct run *r, struct join_undecided_span *u)
{
    struct join_figures figures;
    if (join_table_figures(r->j->table, u->has_trace ? u->trace : NULL, u->span, &figures, NULL) &&
        join_figures_cpu_ns(&figures) > r->j->policy.keep->cpu_threshold)
        return;
    u->folds = true;
    r->folded[u->type].samples += u->samples;
    r->folded[u->type].value += u->value;
}

static void decide_rest(struct run *r)
{
    struct join_undecided *u = &r->undecided;
    for (uint32_t i = 0; i < u->n; i++)
        decide_span(r, &u->spans[i]);
    for (uint32_t i = 0; i < u->n_samples; i++)
        if (u->of[i] && u->spans[u->of[i] - 1].folds)
            r->folds[i] = JOIN_FOLD_FOLDED;
    join_undecided_release(u);
}

static void fold(struct run *r)
{
    uint32_t gone = 0, n = 0;
    decide_rest(r);
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        n += r->folded[t].samples > 0;
    if (!n || r->no_memory ||
        join_fold_samples(r->item, r->folds, r->labels, r->view.n[BR_TABLE_ATTRIBUTE], &gone))
        return;
    br_item_settle(r->item, BR_FATE_DROPPED, "folded", gone);
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        if (r->folded[t].samples)
            join_count_folded(r->j, t, (double)r->folded[t].samples, r->folded[t].value);
}

/* --- One sample ------------------------------------------------------------------------------- */

static void join_linked(struct run *r, const struct join_reading *s, uint8_t *memo,
                        struct br_addition *addition)
{
    r->any_linked = true;
    enum join_result result =
        r->pass == JOIN_PASS_LAST && *memo == JOIN_TOO_LATE ? JOIN_TOO_LATE : look_up(r, s);
    if (result == JOIN_FOUND && r->pass != JOIN_PASS_LAST)
        note_service(r);
    if (r->pass == JOIN_PASS_FIRST)
        *memo = (uint8_t)result;
    else
        count(r, result, *memo);
    if (addition)
        *addition = addition_for(r, s, result == JOIN_FOUND, false);
    if (r->folds)
        decide(r, s, result == JOIN_FOUND);
}

/* Whether the sample, which names no span, was taken in one all the same. Only the last pass adds
 * something: what fits a sample first may not be the only one when its item leaves. */
static bool join_inferred(struct run *r, struct join_reading *s, struct br_addition *addition)
{
    struct join_identity where = r->where;
    if (!r->j->config->infer)
        return false;
    for (unsigned i = 0; i < JOIN_WHERES; i++)
        where.v[i] = s->where.v[i] ? s->where.v[i] : where.v[i];
    if (!join_infer_may(s, &where))
        return false;
    const struct join_neighbour *span = join_infer_span(&r->infer, s, &where);
    if (r->pass == JOIN_PASS_FIRST) {
        r->unknown += !span;
        return false;
    }
    if (!span)
        return false;
    s->trace_id = span->trace_id;
    s->span_id = (const uint8_t *)&span->span_id;
    if (add_to(r, s, true) != JOIN_FOUND)
        return false; /* it left just now */
    r->any_linked = true;
    note_service(r);
    r->counts[r->meaning.type][JOIN_COUNT_INFERRED]++;
    if (addition)
        *addition = addition_for(r, s, true, true);
    if (r->folds)
        decide(r, s, true);
    return true;
}

static void join_sample(struct run *r, const uint8_t *p, const uint8_t *end,
                        struct br_addition *addition)
{
    struct join_reading s;
    join_reading_of(&r->links, r->any_label ? r->labels : NULL, p, end, &s);
    uint8_t unused = JOIN_FOUND, *memo = r->memo ? r->memo++ : &unused;
    if (s.span_id) {
        join_linked(r, &s, memo, addition);
    } else if (!join_inferred(r, &s, addition)) {
        r->counts[r->meaning.type][JOIN_COUNT_UNLINKED] += r->pass != JOIN_PASS_FIRST;
        if (r->folds)
            r->folds[r->index] = JOIN_FOLD_UNLINKED;
    }
    r->index++;
}

/* --- Profiles -------------------------------------------------------------------------------- */

/* Goes through the samples of a part; `additions` is NULL when nothing is to be written. */
static void join_part(struct run *r, const struct br_part *part, struct br_addition *additions)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f, g, h;
    while (p < end && (p = br_field_next(p, end, &f))) {
        const uint8_t *q = f.data, *q_end = f.data + f.value;
        while (f.number == 2 && q < q_end && (q = br_field_next(q, q_end, &g))) {
            const uint8_t *s = g.data, *s_end = g.data + g.value;
            if (g.number != 2)
                continue;
            join_meaning_read(r->j->table, &r->view, s, s_end, &r->meaning);
            while (s < s_end && (s = br_field_next(s, s_end, &h)))
                if (h.number == 2)
                    join_sample(r, h.data, s, additions ? additions++ : NULL);
        }
    }
}

/* The measure that counts among the profiles of a resource. */
static enum join_measure best_measure(struct run *r, const struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f, g;
    struct join_meaning m;
    enum join_measure best = JOIN_OTHER;
    while (p < end && (p = br_field_next(p, end, &f))) {
        const uint8_t *q = f.data, *q_end = f.data + f.value;
        while (f.number == 2 && q < q_end && (q = br_field_next(q, q_end, &g))) {
            if (g.number != 2)
                continue;
            join_meaning_read(r->j->table, &r->view, g.data, g.data + g.value, &m);
            best = m.measure < best ? m.measure : best;
        }
    }
    return best;
}

static void join_resource(struct run *r, const struct br_part *part, struct br_addition *additions)
{
    r->service = join_service_of(part, &r->texts);
    r->any_linked = false;
    if (r->j->config->infer) {
        size_t len;
        const uint8_t *resource = br_part_resource(part, &len);
        r->where = (struct join_identity){0};
        join_identity_read(r->j->table, resource, resource + len, RESOURCE_ATTRIBUTES, &r->texts,
                           &r->where);
    }
    if (r->j->span_metrics.node)
        r->best = best_measure(r, part);
    join_part(r, part, additions);
    if (r->any_linked && r->service.service && r->pass != JOIN_PASS_LAST)
        join_table_profiled(r->j->table,
                            r->service.instance ? r->service.instance : r->service.service,
                            r->came_ms);
}

static void write_parts(struct run *r, struct br_addition **additions)
{
    uint32_t n_parts = r->item->n_parts;
    if (r->no_memory || r->texts.no_memory || r->links.no_memory ||
        join_extension_write(&r->extension, r->item))
        return; /* the samples pass as they came; the figures are in the table */
    for (uint32_t i = 0; i < n_parts; i++) {
        struct br_part *part = &r->item->parts[i];
        bool any = false;
        for (uint32_t k = 0; additions[i] && k < part->n_items; k++)
            any = any || additions[i][k].len;
        if (any)
            (void)br_part_append(r->item, part, additions[i]);
    }
}

static void join_parts(struct run *r)
{
    bool write = r->pass != JOIN_PASS_FIRST;
    uint32_t n_parts = r->item->n_parts;
    struct br_addition **additions =
        br_arena_calloc(&r->additions_arena, n_parts, sizeof *additions);
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct br_part *part = &r->item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        struct br_addition *own =
            write && additions ? br_arena_calloc(&r->additions_arena, part->n_items, sizeof *own)
                               : NULL;
        r->no_memory = r->no_memory || (write && !own);
        join_resource(r, part, own);
        if (own)
            additions[i] = own;
    }
    if (write && additions)
        write_parts(r, additions);
    br_arena_release(&r->additions_arena);
    if (r->folds)
        fold(r);
}

static void note_counts(struct run *r)
{
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        for (int c = 0; c < JOIN_COUNTS; c++)
            if (r->counts[t][c])
                join_count(r->j, t, (enum join_outcome)c, (double)r->counts[t][c]);
    *r->j->other_values += (double)r->n_other;
    *r->j->steps_cut += (double)(r->credit.n_cut + r->infer.n_cut);
    join_count_tally(r->j, &r->tally);
}

static bool prepare(struct run *r)
{
    const struct join_label_names names = {.span_id = r->j->config->labels.span_id,
                                           .trace_id = r->j->config->labels.trace_id,
                                           .own = r->j->keys,
                                           .n_own = r->j->n_keys};
    if (br_dictionary_index(r->item, &r->arena, &r->view))
        return false;
    if (r->j->policy.keep && r->pass != JOIN_PASS_FIRST) {
        r->folds = br_arena_calloc(&r->arena, r->item->n_items, 1);
        r->no_memory = !r->folds;
    }
    join_texts_init(&r->texts, r->j->table, &r->view, &r->arena);
    r->labels = join_labels_read(&r->texts, &names, &r->arena, &r->any_label);
    r->links = (struct join_links){.view = &r->view, .arena = &r->arena};
    join_extension_init(&r->extension, &r->arena, &r->view);
    if (r->j->config->top_functions)
        join_leaves_init(&r->leaves, r->j->table, &r->view, &r->arena);
    join_infer_init(&r->infer, r->j->table, &r->arena);
    r->credit = (struct join_credit){
        .arena = &r->arena,
        .locals = {.table = r->j->table, .cut = r->j->families_cut},
        .arg = r};
    if (r->j->span_metrics.node)
        r->credit.on_credited = on_credited;
    return r->labels && !r->texts.no_memory;
}

uint32_t join_samples(struct join *j, struct br_item *item, enum join_pass pass, uint8_t *memo,
                      uint64_t came_ms)
{
    struct run *r = br_calloc(1, sizeof *r);
    uint32_t unknown = 0;
    if (r) {
        r->j = j;
        r->item = item;
        r->pass = pass;
        r->memo = memo;
        r->came_ms = came_ms;
        r->now_ms = br_host_mono_ms(j->node->host);
        br_arena_init(&r->arena, ARENA_MAX);
        br_arena_init(&r->additions_arena, ARENA_MAX);
    }
    if (r && prepare(r)) {
        join_parts(r);
        note_counts(r);
        unknown = r->unknown;
    } else if (pass != JOIN_PASS_FIRST && item->n_items) {
        join_count(j, JOIN_TYPES - 1, JOIN_COUNT_UNLINKED, item->n_items); /* nobody looked */
    }
    if (r) {
        join_extension_release(&r->extension);
        join_infer_release(&r->infer);
        join_locals_release(&r->credit.locals);
        join_links_release(&r->links);
        join_texts_release(&r->texts);
        join_undecided_release(&r->undecided);
        br_arena_release(&r->additions_arena);
        br_arena_release(&r->arena);
    }
    br_free(r);
    return unknown;
}
