/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the spans of traces items to the table. */
#include <string.h>

#include "attribute/value.h"
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "otlp/walk/walk.h"
#include "processors/join/infer/identity.h"
#include "processors/join/join.h"
#include "wire/protobuf.h"

#define CHUNK 256u
/* longest attribute value, in bytes; the limit exists because its length + 1 must fit into a
 * byte */
#define TEXT_MAX (JOIN_VALUE_MAX - 1)

/* --- Attributes ------------------------------------------------------------------------- */

/* The value of one configured attribute, as text. */
struct text {
    const uint8_t *data;
    uint8_t used; /* length of the text, plus 1; 0: the attribute is absent */
    char number[32];
};

static void spans_put_text(struct text *text, const void *data, size_t len)
{
    if (len > TEXT_MAX)
        len = br_utf8_valid(data, TEXT_MAX); /* truncates the text without splitting a character */
    text->data = data;
    text->used = (uint8_t)(len + 1);
}

/* Stores a scalar AnyValue as text. Lists, maps and bytes are ignored. */
static void spans_put_scalar(struct text *text, struct br_value value)
{
    struct br_any any = br_any_read(value);
    struct br_str str = {.data = text->number,
                         .cap = sizeof text->number,
                         .max = sizeof text->number - 1,
                         .fixed = true};
    if (any.type == BR_VALUE_STRING) {
        spans_put_text(text, any.data, any.len);
    } else if (any.type == BR_VALUE_BOOL || any.type == BR_VALUE_INT ||
               any.type == BR_VALUE_DOUBLE) {
        br_value_text(&str, &any, NULL);
        spans_put_text(text, str.data, str.len);
    }
}

/* Stores the value of a KeyValue if its key is configured and no value of that key was stored
 * before. */
static void spans_read_attribute(const struct join *join, const uint8_t *data, size_t len,
                                 struct text *texts)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(data, len, &kv);
    for (unsigned i = 1; i < join->n_keys && kv.key && kv.value.data; i++)
        if (join->key_lens[i] == kv.key_len && !texts[i].used &&
            memcmp(join->keys[i], kv.key, kv.key_len) == 0)
            spans_put_scalar(&texts[i], kv.value);
}

/* Returns true if none of the configured keys has the length of this key. This check excludes
 * most keys. */
static inline bool spans_is_unwanted(const struct join *join, const uint8_t *p, size_t len)
{
    if (len < 2 || p[0] != BR_TAG(BR_KEYVALUE_KEY, BR_WIRE_LEN) || p[1] >= 64)
        return false;
    return !(join->wanted_lens >> p[1] & 1) && p[1] + 2u < len &&
           p[p[1] + 2u] == BR_TAG(BR_KEYVALUE_VALUE, BR_WIRE_LEN);
}

static void spans_read_attributes(const struct join *join, const uint8_t *p, const uint8_t *end,
                                  uint32_t field_number, struct text *texts)
{
    struct br_field field;
    br_steps_add((size_t)(end - p));
    while (p < end && (p = br_scan(p, end, &field)))
        if (br_scan_tag(&field) == BR_TAG(field_number, BR_WIRE_LEN) &&
            !spans_is_unwanted(join, field.data, field.value))
            spans_read_attribute(join, field.data, (size_t)field.value, texts);
}

static void spans_add_intrinsics(const struct join *join, const struct br_span *span,
                                 struct text *texts)
{
    static const char *const kinds[] = {"unspecified", "internal", "server",
                                        "client",      "producer", "consumer"};
    static const char *const statuses[] = {"unset", "ok", "error"};
    if (join->kind_key && span->kind < BR_COUNT(kinds))
        spans_put_text(&texts[join->kind_key], kinds[span->kind], strlen(kinds[span->kind]));
    if (join->status_key && span->status < BR_COUNT(statuses))
        spans_put_text(&texts[join->status_key], statuses[span->status],
                       strlen(statuses[span->status]));
}

/* --- Services --------------------------------------------------------------------------- */

bool join_service_profiled(const struct join *join, const struct join_service *service,
                           uint64_t now_ms)
{
    return service->service &&
           (join_table_is_profiled(join->table, service->service, now_ms) ||
            (service->instance && join_table_is_profiled(join->table, service->instance, now_ms)));
}

/* --- Entering --------------------------------------------------------------------------- */

#define ORIGINS 32u

/* Spans that are collected in order to be added to the table together. The spans belong to the
 * item's parts (ResourceSpans) from `first_part` to the current part. */
struct entering {
    struct join *join;
    const struct br_item *item;
    uint64_t now_ms;
    struct join_tally tally;
    const struct br_span *spans;
    size_t count;
    uint32_t first_part;
    struct join_origin origins[ORIGINS];
    /* process in which the spans of each element of `origins` ran; used only with the option
     * `infer` */
    struct join_identity where[ORIGINS];
    /* Used only with the option sample_attributes: values of the current resource, values of the
     * current span, and the encoded attributes of up to CHUNK spans. */
    struct text of_resource[JOIN_KEYS_MAX], of_span[JOIN_KEYS_MAX];
    /* attributes of the collected spans; NULL: no attributes are configured */
    struct join_attributes *attributes;
    uint8_t *chunk, *at;
};

static void spans_add_attributes(struct entering *entering, const struct br_span *span,
                                 struct join_attributes *ret)
{
    const struct join *join = entering->join;
    for (unsigned i = 1; i < join->n_keys; i++)
        entering->of_span[i].used = 0;
    spans_add_intrinsics(join, span, entering->of_span);
    spans_read_attributes(join, span->body, span->body + span->body_len, BR_SPAN_ATTRIBUTES,
                          entering->of_span);
    ret->data = entering->at;
    for (unsigned i = 1; i < join->n_keys; i++) {
        const struct text *text =
            entering->of_span[i].used ? &entering->of_span[i] : &entering->of_resource[i];
        *entering->at++ = text->used;
        if (text->used)
            entering->at = br_put_bytes(entering->at, text->data, text->used - 1u);
    }
    ret->len = (size_t)(entering->at - ret->data);
}

/* Enters the collected spans into the table. */
static void spans_flush(struct entering *entering)
{
    const struct join_entries entries = {.spans = entering->spans,
                                         .count = entering->count,
                                         .origins = entering->origins,
                                         .first_part = entering->first_part,
                                         .attributes = entering->attributes};
    *entering->join->spans_entered += (double)join_table_enter(entering->join->table, &entries,
                                                               entering->now_ms, &entering->tally);
    entering->spans = br_mem_end(entering->spans, entering->count * sizeof *entering->spans);
    entering->count = 0;
    entering->at = entering->chunk;
}

/* Collects the next `count` spans of the item. All of them belong to the current part
 * (ResourceSpans). */
static void spans_enter(struct entering *entering, size_t count)
{
    if (!entering->attributes) {
        entering->count += count;
        return;
    }
    for (; count; count--) {
        spans_add_attributes(entering, &entering->spans[entering->count],
                             &entering->attributes[entering->count]);
        if (++entering->count == CHUNK)
            spans_flush(entering);
    }
}

static void spans_begin_part(struct entering *entering, uint32_t number,
                             const struct join_service *service)
{
    if (number - entering->first_part >= ORIGINS) {
        spans_flush(entering);
        entering->first_part = number;
    }
    uint32_t place = number - entering->first_part;
    struct join_origin *origin = &entering->origins[place];
    *origin = (struct join_origin){.service = service->name,
                                   .service_len = join_cut(service->name, service->name_len),
                                   .service_hash = service->service};
    size_t len;
    const uint8_t *resource = br_part_resource(&entering->item->parts[number], &len);
    if (entering->join->config->infer) {
        entering->where[place] = (struct join_identity){0};
        join_identity_read(entering->join->table, resource, resource + len, NULL,
                           &entering->where[place]);
        origin->where = &entering->where[place];
    }
    if (!entering->attributes)
        return;
    for (unsigned i = 1; i < entering->join->n_keys; i++)
        entering->of_resource[i].used = 0;
    spans_read_attributes(entering->join, resource, resource + len, BR_RESOURCE_ATTRIBUTES,
                          entering->of_resource);
}

/* Adds the samples that arrived before the span to the metrics of the span's name. */
static void spans_on_adopted(void *arg, const struct join_span *span,
                             const struct join_totals *totals)
{
    struct join *join = arg;
    const struct join_spent spent = join_spent_of(totals);
    join_span_metrics_add(&join->span_metrics, span, &spent);
}

/* Initializes only the fields that are read before they are written, because zeroing the whole
 * struct would take too long. */
static void spans_begin(struct entering *entering, struct join *join, const struct br_item *item,
                        struct br_arena *arena)
{
    entering->join = join;
    entering->item = item;
    entering->spans = item->spans;
    entering->now_ms = br_host_mono_ms(join->node->host);
    entering->tally = (struct join_tally){
        .on_adopted = join->span_metrics.node ? spans_on_adopted : NULL, .arg = join};
    entering->count = entering->first_part = 0;
    entering->chunk = NULL;
    entering->attributes = NULL;
    br_arena_init(arena, 0);
    if (join->n_keys > 1)
        entering->chunk =
            br_arena_alloc(arena, (size_t)CHUNK * (join->n_keys - 1) * (TEXT_MAX + 1));
    if (entering->chunk)
        entering->attributes = br_arena_alloc(arena, CHUNK * sizeof *entering->attributes);
    entering->at = entering->chunk;
}

/* Returns true if spans are held and it is too early to know whether the service is profiled. */
static bool spans_may_be_profiled(const struct entering *entering,
                                  const struct join_service *service)
{
    const struct join *join = entering->join;
    uint64_t hold_ms = join->config->hold / 1000000;
    return hold_ms && service->service &&
           join_table_is_newcomer(join->table, service->service, entering->now_ms, hold_ms);
}

struct join_entered join_enter_spans(struct join *join, struct br_item *item)
{
    const bool any = join_spans_of(item) != NULL;
    struct entering entering;
    struct join_entered ret = {0};
    struct br_arena arena;
    spans_begin(&entering, join, item, &arena);
    for (uint32_t number = 0; any && number < item->n_parts; number++) {
        const struct br_part *part = &item->parts[number];
        if (!part->n_records)
            continue;
        const struct join_service service = join_service_of(part, NULL);
        spans_begin_part(&entering, number, &service);
        bool profiled = join_service_profiled(join, &service, entering.now_ms);
        ret.profiled = ret.profiled || profiled;
        ret.waits = ret.waits || profiled || spans_may_be_profiled(&entering, &service);
        spans_enter(&entering, part->n_records);
    }
    spans_flush(&entering);
    br_arena_release(&arena);
    if (item->n_records)
        join_progress_note(&join_table_progress(join->table)->spans);
    if (ret.profiled)
        join_progress_note(&join_table_progress(join->table)->common);
    join_count_tally(join, &entering.tally);
    join_paging_start(join);
    ret.sampled = entering.tally.adopted > 0;
    return ret;
}

/* --- Finding ---------------------------------------------------------------------------- */

/* Copies the item's payload into one buffer and walks it to find the spans. */
static void spans_find(struct br_item *item)
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
        struct br_pending pending = item->pending;
        struct br_span *spans = again->spans;
        struct br_buf *spans_buf = again->spans_buf;
        again->spans_buf = NULL; /* set to NULL, because the buffer is moved to `item` below */
        br_item_clear_parts(item);
        (void)br_item_absorb(item, again); /* cannot fail, because the item is empty */
        item->pending = pending;
        item->spans = spans;
        item->spans_buf = spans_buf;
    }
    br_buf_unref(flat);
    br_rope_release(&rope);
    br_item_free(again);
}

const struct br_span *join_spans_of(struct br_item *item)
{
    if (!item->spans && item->n_records)
        spans_find(item);
    return item->spans;
}
