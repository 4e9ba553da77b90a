/* SPDX-License-Identifier: Apache-2.0 */
/* The profiles side of the join. */
#include <string.h>

#include "base/mem.h"
#include "otlp/edit.h"
#include "processors/join/credit.h"
#include "processors/join/extension.h"
#include "processors/join/join.h"
#include "processors/join/labels.h"
#include "processors/join/meaning.h"
#include "processors/join/reading.h"
#include "wire/protobuf.h"

#define ARENA_MAX (64u << 20)

struct run {
    struct join *j;
    struct br_item *item;
    enum join_pass pass;
    uint8_t *memo; /* of the next sample; NULL with JOIN_PASS_ONLY */
    uint64_t came_ms;
    struct br_arena arena;
    struct br_dictionary_view view;
    struct join_label *labels; /* by attribute index */
    bool any_label;
    struct join_meaning meaning; /* of the profile at hand */
    bool names_service;          /* the resource at hand says whose samples these are */
    struct join_extension extension;
    struct join_found found;
    struct join_credit credit;
    struct join_tally tally;
    uint64_t counts[JOIN_TYPES][JOIN_COUNTS];
    uint64_t n_other;
    uint32_t unknown;
    bool any_linked; /* the part at hand has a sample with a span */
    bool no_memory;
};

/* --- What becomes of it ----------------------------------------------------------------------- */

static enum join_result ask(struct run *r, const struct join_sample *sample, bool add)
{
    return join_table_sample(r->j->table, sample, add, r->came_ms, join_found_copy, &r->found,
                             &r->tally);
}

static enum join_result look_up(struct run *r, const struct join_reading *s)
{
    struct join_sample sample = {
        .trace_id = s->trace_id, .span_id = s->span_id, .held = r->pass == JOIN_PASS_FIRST};
    enum join_result result;
    bool add = r->pass != JOIN_PASS_LAST, timed = add && s->n_times;
    if (timed) {
        result = ask(r, &sample, false);
        add = result == JOIN_UNKNOWN ||
              (result == JOIN_FOUND &&
               !join_credit_below(&r->credit, &r->meaning, s, &r->found, &sample));
    }
    if (add)
        join_meaning_apply(&r->meaning, s->value, s->n_values, s->n_times, &sample);
    if (add || !timed)
        result = ask(r, &sample, add);
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

/* The bytes to append to a sample: attribute indices, and the link that was a label. */
static struct br_addition addition_for(struct run *r, const struct join_reading *s, bool found)
{
    uint32_t indices[JOIN_KEYS_MAX], link = 0;
    uint32_t n = found ? indices_of(r, s->has_keys, indices) : 0;
    uint8_t packed[BR_VARINT_MAX * JOIN_KEYS_MAX], *q = packed;
    for (uint32_t i = 0; i < n; i++)
        q = br_put_varint(q, indices[i]);
    size_t len = (size_t)(q - packed), size = n ? br_len_size(2, len) : 0;
    if (!s->linked) {
        const uint8_t *trace = found && r->found.has_trace ? r->found.trace : NULL;
        link = join_extension_link(&r->extension, s->trace_id ? s->trace_id : trace, s->span_id);
        size += 1 + br_varint_size(link);
    }
    uint8_t *start = size ? br_arena_alloc(&r->arena, size) : NULL, *p = start;
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
    if (!r->names_service && f->service_len)
        join_table_profiled(r->j->table, join_service_hash(f->service, f->service_len), r->came_ms);
}

static void join_sample(struct run *r, const uint8_t *p, const uint8_t *end,
                        struct br_addition *addition)
{
    struct join_reading s;
    join_reading_of(&r->view, r->any_label ? r->labels : NULL, p, end, &s);
    uint8_t unused = JOIN_FOUND, *memo = r->memo ? r->memo++ : &unused;
    if (!s.span_id) {
        r->counts[r->meaning.type][JOIN_COUNT_UNLINKED] += r->pass != JOIN_PASS_FIRST;
        return;
    }
    r->any_linked = true;
    enum join_result result =
        r->pass == JOIN_PASS_LAST && *memo == JOIN_TOO_LATE ? JOIN_TOO_LATE : look_up(r, &s);
    if (result == JOIN_FOUND && r->pass != JOIN_PASS_LAST)
        note_service(r);
    if (r->pass == JOIN_PASS_FIRST)
        *memo = (uint8_t)result;
    else
        count(r, result, *memo);
    if (addition)
        *addition = addition_for(r, &s, result == JOIN_FOUND);
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

static void join_resource(struct run *r, const struct br_part *part, struct br_addition *additions)
{
    struct join_service service = join_service_of(part, &r->view);
    r->names_service = service.service != 0;
    r->any_linked = false;
    join_part(r, part, additions);
    if (r->any_linked && r->names_service && r->pass != JOIN_PASS_LAST)
        join_table_profiled(r->j->table, service.instance ? service.instance : service.service,
                            r->came_ms);
}

static void write_parts(struct run *r, struct br_addition **additions)
{
    uint32_t n_parts = r->item->n_parts;
    if (r->no_memory || r->extension.no_memory || join_extension_write(&r->extension, r->item))
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
    struct br_addition **additions = br_arena_calloc(&r->arena, n_parts, sizeof *additions);
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct br_part *part = &r->item->parts[i];
        if (part->kind != BR_PART_RESOURCE)
            continue;
        struct br_addition *own =
            write && additions ? br_arena_calloc(&r->arena, part->n_items, sizeof *own) : NULL;
        r->no_memory = r->no_memory || (write && !own);
        join_resource(r, part, own);
        if (own)
            additions[i] = own;
    }
    if (write && additions)
        write_parts(r, additions);
}

static void note_counts(struct run *r)
{
    for (uint16_t t = 0; t < JOIN_TYPES; t++)
        for (int c = 0; c < JOIN_COUNTS; c++)
            if (r->counts[t][c])
                join_count(r->j, t, (enum join_outcome)c, (double)r->counts[t][c]);
    *r->j->other_values += (double)r->n_other;
    join_count_tally(r->j, &r->tally);
}

static bool prepare(struct run *r)
{
    const struct join_label_names names = {.span_id = r->j->config->labels.span_id,
                                           .trace_id = r->j->config->labels.trace_id,
                                           .own = r->j->keys,
                                           .n_own = r->j->n_keys,
                                           .table = r->j->table};
    if (br_dictionary_index(r->item, &r->arena, &r->view))
        return false;
    r->labels = join_labels_read(&r->view, &names, &r->arena, &r->any_label);
    join_extension_init(&r->extension, &r->arena, &r->view);
    r->credit = (struct join_credit){.arena = &r->arena, .table = r->j->table};
    return r->labels != NULL;
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
        br_arena_init(&r->arena, ARENA_MAX);
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
        br_arena_release(&r->arena);
    }
    br_free(r);
    return unknown;
}
