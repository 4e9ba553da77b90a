/* SPDX-License-Identifier: Apache-2.0 */
/* The traces side of the join: spans into the table. */
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/walk.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define SPAN_ATTRIBUTES 9 /* fields of Span and Resource */
#define RESOURCE_ATTRIBUTES 1
#define CHUNK 64u
#define TEXT_MAX (JOIN_VALUE_MAX - 1) /* of a value: its length + 1 is one byte */

/* --- Attributes ------------------------------------------------------------------------------ */

struct text {
    uint8_t used; /* length + 1; 0: not there */
    uint8_t data[TEXT_MAX];
};

static void put_text(struct text *t, const void *data, size_t len)
{
    if (len > TEXT_MAX)
        len = br_utf8_valid(data, TEXT_MAX); /* what is cut stays UTF-8 */
    br_put_bytes(t->data, data, len);
    t->used = (uint8_t)(len + 1);
}

/* The text form of an AnyValue's scalar; nothing for lists, maps and bytes. */
static void put_scalar(struct text *t, const uint8_t *p, const uint8_t *end)
{
    struct br_field f, v = {0};
    char number[32];
    double d;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number <= 8)
            v = f;
    struct br_str s = {
        .data = number, .cap = sizeof number, .max = sizeof number - 1, .fixed = true};
    switch (v.number) {
    case 1:
        put_text(t, v.data, v.value);
        return;
    case 2:
        br_str_puts(&s, v.value ? "true" : "false");
        break;
    case 3:
        br_str_printf(&s, "%lld", (long long)v.value);
        break;
    case 4:
        memcpy(&d, &v.value, sizeof d);
        br_str_printf(&s, "%.15g", d);
        break;
    default:
        return;
    }
    put_text(t, s.data, s.len);
}

/* One KeyValue: kept where its key is wanted and has no value so far. */
static void take_attribute(const struct join *j, const uint8_t *p, const uint8_t *end,
                           struct text *texts)
{
    struct br_field f, value = {0};
    const uint8_t *key = NULL;
    size_t key_len = 0;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1) {
            key = f.data;
            key_len = f.value;
        } else if (f.number == 2) {
            value = f;
        }
    }
    for (unsigned i = 1; i < j->n_keys && key && value.data; i++)
        if (j->key_lens[i] == key_len && !texts[i].used && memcmp(j->keys[i], key, key_len) == 0)
            put_scalar(&texts[i], value.data, value.data + value.value);
}

static void take_attributes(const struct join *j, const uint8_t *p, const uint8_t *end,
                            uint32_t field, struct text *texts)
{
    struct br_field f;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == field && f.wire == BR_WIRE_LEN)
            take_attribute(j, f.data, f.data + f.value, texts);
}

static void take_intrinsics(const struct join *j, const struct br_span *span, struct text *texts)
{
    static const char *const kinds[] = {"unspecified", "internal", "server",
                                        "client",      "producer", "consumer"};
    static const char *const statuses[] = {"unset", "ok", "error"};
    if (j->kind_key && span->kind < BR_COUNT(kinds))
        put_text(&texts[j->kind_key], kinds[span->kind], strlen(kinds[span->kind]));
    if (j->status_key && span->status < BR_COUNT(statuses))
        put_text(&texts[j->status_key], statuses[span->status], strlen(statuses[span->status]));
}

/* --- Entering -------------------------------------------------------------------------------- */

struct entering {
    struct join *j;
    uint64_t now_ms;
    struct join_service service; /* of the part at hand */
    struct join_tally tally;
    unsigned n;
    struct join_span spans[CHUNK];
    /* With sample_attributes: the values of the resource at hand, of the span at hand, and what the
     * entries of this chunk point to. */
    struct text *of_resource, *of_span;
    uint8_t *chunk, *at;
};

static bool make_texts(struct entering *e, struct br_arena *arena)
{
    size_t n = e->j->n_keys;
    e->of_resource = br_arena_calloc(arena, 2 * n, sizeof *e->of_resource);
    e->of_span = e->of_resource ? e->of_resource + n : NULL;
    e->chunk = e->at = br_arena_alloc(arena, CHUNK * n * sizeof(struct text));
    return e->of_resource && e->chunk;
}

static void add_attributes(struct entering *e, const struct br_span *span, struct join_span *entry)
{
    const struct join *j = e->j;
    for (unsigned i = 1; i < j->n_keys; i++)
        e->of_span[i].used = 0;
    take_intrinsics(j, span, e->of_span);
    take_attributes(j, span->body, span->body + span->body_len, SPAN_ATTRIBUTES, e->of_span);
    entry->attributes = e->at;
    for (unsigned i = 1; i < j->n_keys; i++) {
        const struct text *t = e->of_span[i].used ? &e->of_span[i] : &e->of_resource[i];
        e->at = br_put_bytes(e->at, t, t->used ? t->used : 1u);
    }
    entry->attributes_len = (size_t)(e->at - entry->attributes);
}

static size_t cut(const uint8_t *text, size_t len)
{
    return len <= JOIN_VALUE_MAX ? len : br_utf8_valid(text, JOIN_VALUE_MAX);
}

static void flush(struct entering *e)
{
    join_table_enter(e->j->table, e->spans, e->n, e->now_ms, &e->tally);
    *e->j->spans_entered += (double)e->n;
    e->n = 0;
    e->at = e->chunk;
}

static void enter(struct entering *e, const struct br_span *span)
{
    struct join_span *entry = &e->spans[e->n];
    *entry = (struct join_span){.trace_id = span->trace_id,
                                .span_id = span->span_id,
                                .parent_id = span->parent_id,
                                .start_ns = span->start_ns,
                                .end_ns = span->end_ns,
                                .kind = span->kind,
                                .status = span->status,
                                .name = span->name,
                                .name_len = cut(span->name, span->name_len),
                                .service = e->service.name,
                                .service_len = e->service.name_len};
    if (e->of_resource)
        add_attributes(e, span, entry);
    if (++e->n == CHUNK)
        flush(e);
}

static void begin_part(struct entering *e, const struct br_part *part)
{
    e->service = join_service_of(part, NULL);
    e->service.name_len = cut(e->service.name, e->service.name_len);
    if (!e->of_resource)
        return;
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    for (unsigned i = 1; i < e->j->n_keys; i++)
        e->of_resource[i].used = 0;
    take_attributes(e->j, resource, resource + len, RESOURCE_ATTRIBUTES, e->of_resource);
}

struct join_entered join_enter_spans(struct join *j, struct br_item *item)
{
    const struct br_span *spans = join_spans_of(item);
    struct entering e = {.j = j, .now_ms = br_host_mono_ms(j->node->host)};
    struct join_entered ret = {0};
    struct br_arena arena;
    uint32_t part = UINT32_MAX;
    br_arena_init(&arena, 0);
    if (j->n_keys > 1 && !make_texts(&e, &arena))
        e.of_resource = NULL;
    for (uint32_t i = 0; spans && i < item->n_items; i++) {
        if (spans[i].part != part) {
            part = spans[i].part;
            begin_part(&e, &item->parts[part]);
            ret.profiled = ret.profiled || join_service_profiled(j, &e.service, e.now_ms);
        }
        if (spans[i].span_id)
            enter(&e, &spans[i]);
    }
    flush(&e);
    br_arena_release(&arena);
    join_count_tally(j, &e.tally);
    ret.sampled = e.tally.adopted > 0;
    return ret;
}

/* --- Finding --------------------------------------------------------------------------------- */

/* Puts the item's payload into one piece and walks it, for the spans in it. */
static void find_spans(struct br_item *item)
{
    const struct br_walk_options options = {
        .max_depth = BR_WALK_DEPTH_MAX, .utf8 = BR_UTF8_PASS, .spans = true};
    struct br_rope rope = {0};
    struct br_err err;
    const uint8_t *data;
    uint32_t repaired;
    size_t bytes = item->n_items * sizeof *item->spans;
    struct br_span *spans = br_arena_alloc(&item->arena, bytes);
    struct br_item *again = br_item_new(item->host, item->signal);
    bool ok = spans && again && br_item_write(item, &rope) == 0;
    struct br_buf *flat = ok ? br_rope_flat(&rope, item->host->pool, &data) : NULL;
    if (flat && br_walk(again, flat, data, rope.len, &options, &repaired, &err) == 0) {
        uint32_t owes = item->n_held;
        memcpy(spans, again->spans, bytes);
        br_item_clear_parts(item);
        (void)br_item_absorb(item, again); /* into an empty item: cannot fail */
        item->n_held = owes;
        item->spans = spans;
    }
    br_buf_unref(flat);
    br_rope_release(&rope);
    br_item_free(again);
}

const struct br_span *join_spans_of(struct br_item *item)
{
    if (!item->spans && item->n_items)
        find_spans(item);
    return item->spans;
}
