/* SPDX-License-Identifier: Apache-2.0 */
/* The traces side of the join: spans into the table. */
#include <string.h>

#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/scan.h"
#include "otlp/walk.h"
#include "processors/join/identity.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define SPAN_ATTRIBUTES 9 /* fields of Span and Resource */
#define RESOURCE_ATTRIBUTES 1
#define CHUNK 256u
#define TEXT_MAX (JOIN_VALUE_MAX - 1) /* of a value: its length + 1 is one byte */

/* --- Attributes ------------------------------------------------------------------------------ */

/* The text of one wanted attribute. */
struct text {
    const uint8_t *data;
    uint8_t used; /* length + 1; 0: not there */
    char number[32];
};

static void put_text(struct text *t, const void *data, size_t len)
{
    if (len > TEXT_MAX)
        len = br_utf8_valid(data, TEXT_MAX); /* what is cut stays UTF-8 */
    t->data = data;
    t->used = (uint8_t)(len + 1);
}

/* The text form of an AnyValue's scalar; nothing for lists, maps and bytes. */
static void put_scalar(struct text *t, const uint8_t *p, const uint8_t *end)
{
    struct br_field f, v = {0};
    double d;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number <= 8)
            v = f;
    struct br_str s = {
        .data = t->number, .cap = sizeof t->number, .max = sizeof t->number - 1, .fixed = true};
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

/* True when the KeyValue begins with a key of a length that none of ours has, as most do. */
static inline bool of_no_interest(const struct join *j, const uint8_t *p, size_t len)
{
    return len >= 2 && p[0] == BR_TAG(1, BR_WIRE_LEN) && p[1] < 64 &&
           !(j->wanted_lens >> p[1] & 1) && p[1] + 2u < len &&
           p[p[1] + 2u] == BR_TAG(2, BR_WIRE_LEN);
}

static void take_attributes(const struct join *j, const uint8_t *p, const uint8_t *end,
                            uint32_t field, struct text *texts)
{
    struct br_field f;
    br_steps_add((size_t)(end - p));
    while (p < end && (p = br_scan(p, end, &f)))
        if (br_scan_tag(&f) == BR_TAG(field, BR_WIRE_LEN) && !of_no_interest(j, f.data, f.value))
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

#define ORIGINS 32u

/* Those of one chunk point into what is here. */
struct entering {
    struct join *j;
    uint64_t now_ms;
    struct join_tally tally;
    unsigned n, n_origins;
    struct join_entry entries[CHUNK];
    struct join_origin origins[ORIGINS]; /* the last one is of the part at hand */
    struct join_identity where[ORIGINS]; /* with infer */
    struct join_extra *extras;           /* CHUNK of them, once one has been needed */
    struct br_arena *arena;
    /* With sample_attributes: the values of the resource at hand, of the span at hand, and what the
     * entries of this chunk point to. */
    bool attributes;
    struct text of_resource[JOIN_KEYS_MAX], of_span[JOIN_KEYS_MAX];
    uint8_t *chunk, *at;
};

static void add_attributes(struct entering *e, const struct br_span *span, struct join_extra *extra)
{
    const struct join *j = e->j;
    for (unsigned i = 1; i < j->n_keys; i++)
        e->of_span[i].used = 0;
    take_intrinsics(j, span, e->of_span);
    take_attributes(j, span->body, span->body + span->body_len, SPAN_ATTRIBUTES, e->of_span);
    extra->attributes = e->at;
    for (unsigned i = 1; i < j->n_keys; i++) {
        const struct text *t = e->of_span[i].used ? &e->of_span[i] : &e->of_resource[i];
        *e->at++ = t->used;
        if (t->used)
            e->at = br_put_bytes(e->at, t->data, t->used - 1u);
    }
    extra->attributes_len = (size_t)(e->at - extra->attributes);
}

/* What was gathered goes in. The part at hand keeps its origin. */
static void flush(struct entering *e)
{
    join_table_enter(e->j->table, e->entries, e->n, e->now_ms, &e->tally);
    *e->j->spans_entered += (double)e->n;
    e->n = 0;
    e->at = e->chunk;
}

static void add_thread(const struct join_table *t, const struct br_span *span,
                       struct join_extra *extra)
{
    struct join_identity identity = {0};
    join_identity_read(t, span->thread, span->body + span->body_len, SPAN_ATTRIBUTES, NULL,
                       &identity);
    extra->thread = identity.v[JOIN_THREAD_ID];
    extra->thread_name = identity.v[JOIN_THREAD_NAME];
}

/* Without memory the span is entered without them. */
static const struct join_extra *extra_of(struct entering *e, const struct br_span *span)
{
    if (!e->extras)
        e->extras = br_arena_alloc(e->arena, CHUNK * sizeof *e->extras);
    if (!e->extras)
        return NULL;
    struct join_extra *extra = &e->extras[e->n];
    *extra = (struct join_extra){0};
    if (span->thread)
        add_thread(e->j->table, span, extra);
    if (e->attributes)
        add_attributes(e, span, extra);
    return extra;
}

static inline void enter(struct entering *e, const struct br_span *span)
{
    bool more = span->thread || e->attributes;
    e->entries[e->n] = (struct join_entry){.span = span,
                                           .origin = &e->origins[e->n_origins - 1],
                                           .extra = more ? extra_of(e, span) : NULL};
    if (++e->n == CHUNK)
        flush(e);
}

static void begin_part(struct entering *e, const struct br_part *part,
                       const struct join_service *service)
{
    if (e->n_origins == ORIGINS) {
        flush(e);
        e->n_origins = 0;
    }
    struct join_identity *where = &e->where[e->n_origins];
    struct join_origin *origin = &e->origins[e->n_origins++];
    *origin = (struct join_origin){.service = service->name,
                                   .service_len = join_cut(service->name, service->name_len),
                                   .service_hash = service->service};
    size_t len;
    const uint8_t *resource = br_part_resource(part, &len);
    if (e->j->config->infer) {
        *where = (struct join_identity){0};
        join_identity_read(e->j->table, resource, resource + len, RESOURCE_ATTRIBUTES, NULL, where);
        origin->where = where;
    }
    if (!e->attributes)
        return;
    for (unsigned i = 1; i < e->j->n_keys; i++)
        e->of_resource[i].used = 0;
    take_attributes(e->j, resource, resource + len, RESOURCE_ATTRIBUTES, e->of_resource);
}

/* What had waited for the span counts for its name now. */
static void on_adopted(void *arg, const struct join_span *span, const struct join_figures *figures)
{
    struct join *j = arg;
    const struct join_spent spent = join_spent_of(figures);
    join_span_metrics_add(&j->span_metrics, span, &spent);
}

/* Sets up what is not written before it is read. */
static void begin(struct entering *e, struct join *j, struct br_arena *arena)
{
    e->j = j;
    e->now_ms = br_host_mono_ms(j->node->host);
    e->tally =
        (struct join_tally){.on_adopted = j->span_metrics.node ? on_adopted : NULL, .arg = j};
    e->n = e->n_origins = 0;
    e->extras = NULL;
    e->arena = arena;
    br_arena_init(arena, 0);
    e->chunk = e->at = j->n_keys > 1
                           ? br_arena_alloc(arena, (size_t)CHUNK * (j->n_keys - 1) * (TEXT_MAX + 1))
                           : NULL;
    e->attributes = e->chunk != NULL;
}

struct join_entered join_enter_spans(struct join *j, struct br_item *item)
{
    const struct br_span *spans = join_spans_of(item);
    struct entering e;
    struct join_entered ret = {0};
    struct br_arena arena;
    uint32_t part = UINT32_MAX;
    begin(&e, j, &arena);
    for (uint32_t i = 0; spans && i < item->n_items; i++) {
        if (spans[i].part != part) {
            part = spans[i].part;
            const struct join_service service = join_service_of(&item->parts[part], NULL);
            begin_part(&e, &item->parts[part], &service);
            ret.profiled = ret.profiled || join_service_profiled(j, &service, e.now_ms);
        }
        if (spans[i].head.span_id)
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
    struct br_item *again = br_item_new(item->host, item->signal);
    bool ok = again && br_item_write(item, &rope) == 0;
    struct br_buf *flat = ok ? br_rope_flat(&rope, item->host->pool, &data) : NULL;
    if (flat && br_walk(again, flat, data, rope.len, &options, &repaired, &err) == 0) {
        struct br_debt owes = item->debt;
        struct br_span *spans = again->spans;
        struct br_buf *spans_buf = again->spans_buf;
        again->spans_buf = NULL; /* it is moved */
        br_item_clear_parts(item);
        (void)br_item_absorb(item, again); /* into an empty item: cannot fail */
        item->debt = owes;
        item->spans = spans;
        item->spans_buf = spans_buf;
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
