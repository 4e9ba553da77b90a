/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "base/mem.h"
#include "core/host.h"
#include "otlp/keyvalue.h"
#include "otlp/walk/internal.h"

#define LEN (BR_WIRE_LEN + 1)
#define VARINT (BR_WIRE_VARINT + 1)
#define I64 (BR_WIRE_I64 + 1)
#define I32 (BR_WIRE_I32 + 1)

/* Levels of the messages of a traces request; the request itself is level 1. */
enum { DEPTH_RESOURCE_SPANS = 2, DEPTH_SCOPE_SPANS, DEPTH_SPAN, DEPTH_IN_SPAN };

#define SPANS_FIRST 8
#define SPANS_FIRST_MAX 16384
/* maximum number of spans of a request, limited by the memory for their list */
#define SPANS_MAX ((64u << 20) / (uint32_t)sizeof(struct br_span))
/* assumed size of an encoded span in bytes; most spans are larger */
#define SPAN_BYTES 256

static bool walk_traces_check_id(struct br_walker *walker, size_t len, size_t want)
{
    if (len == want || len == 0)
        return true;
    return br_walk_fail(walker, want == 16 ? "a trace id must have 16 bytes or none"
                                           : "a span id must have 8 bytes or none");
}

/* Reads an id field of a span. If the field is repeated, the last one counts. An empty field
 * means that the span does not have the id. */
static bool walk_traces_read_id(struct br_walker *walker, const struct br_field *field, void *id,
                                size_t want)
{
    if (!walk_traces_check_id(walker, field->value, want))
        return false;
    if (field->value)
        memcpy(id, field->data, want);
    else
        memset(id, 0, want);
    return true;
}

static bool walk_event(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, I64, LEN, LEN, VARINT};
    if (DEPTH_IN_SPAN > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_EVENT_NAME && !br_walk_string(walker, field.data, field.value))
            return false;
        if (field.number == BR_EVENT_ATTRIBUTES &&
            !br_walk_attribute(walker, field.data, field.data + field.value, DEPTH_IN_SPAN + 1))
            return false;
    }
    return true;
}

static bool walk_traces_link(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, VARINT, I32};
    if (DEPTH_IN_SPAN > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number <= BR_SPAN_LINK_SPAN_ID &&
            !walk_traces_check_id(walker, field.value,
                                  field.number == BR_SPAN_LINK_TRACE_ID ? 16 : 8))
            return false;
        if (field.number == BR_SPAN_LINK_TRACE_STATE &&
            !br_walk_string(walker, field.data, field.value))
            return false;
        if (field.number == BR_SPAN_LINK_ATTRIBUTES &&
            !br_walk_attribute(walker, field.data, field.data + field.value, DEPTH_IN_SPAN + 1))
            return false;
    }
    return true;
}

static bool walk_status(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                        struct br_span *span)
{
    static const uint8_t wires[] = {0, 0, LEN, VARINT};
    if (DEPTH_IN_SPAN > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p || (field.number == BR_SPAN_STATUS_MESSAGE &&
                   !br_walk_string(walker, field.data, field.value)))
            return false;
        if (field.number == BR_SPAN_STATUS_CODE)
            span->status = (uint8_t)field.value;
    }
    return true;
}

/* Stores the attribute's value in the span if the key is "thread.id" or "thread.name". */
static inline void walk_traces_note_thread(const uint8_t *key, size_t key_len, const uint8_t *value,
                                           size_t len, struct br_span *span)
{
    if (br_bytes_are(key, key_len, "thread.id")) {
        span->thread_id = value;
        span->thread_id_len = (uint32_t)len;
    } else if (br_bytes_are(key, key_len, "thread.name")) {
        span->thread_name = value;
        span->thread_name_len = (uint32_t)len;
    }
}

__attribute__((noinline)) static bool walk_traces_other_attribute(struct br_walker *walker,
                                                                  const uint8_t *p, size_t len,
                                                                  struct br_span *span)
{
    enum br_walk_attribute found = br_walk_attribute(walker, p, p + len, DEPTH_IN_SPAN);
    struct br_keyvalue kv;
    if (found == BR_WALK_THREAD && walker->options->spans) {
        (void)br_keyvalue_read(p, len, &kv);
        walk_traces_note_thread(kv.key, kv.key_len, kv.value.data, kv.value.len, span);
    }
    return found != BR_WALK_BAD;
}

/* Checks an attribute of a span. Stores the value of the attribute if it is the thread id or
 * thread name of the span. */
BR_HOT bool walk_traces_read_attribute(struct br_walker *walker, const uint8_t *p, size_t len,
                                       struct br_span *span)
{
    const uint8_t *key, *value;
    enum br_walk_attribute found = br_walk_attribute_plain(p, len, &key, &value);
    if (__builtin_expect(found == BR_WALK_BAD, 0))
        return walk_traces_other_attribute(walker, p, len, span);
    if (__builtin_expect(found == BR_WALK_THREAD, 0) && walker->options->spans)
        walk_traces_note_thread(key, key[-1], value, value[-1], span);
    return true;
}

/* Reads a field of a span that is rare or has an unusual encoding. */
static bool walk_span_field(struct br_walker *walker, const struct br_field *field,
                            struct br_span *span)
{
    switch (field->number) {
    case BR_SPAN_TRACE_ID:
        return walk_traces_read_id(walker, field, span->head.trace_id, 16);
    case BR_SPAN_SPAN_ID:
        return walk_traces_read_id(walker, field, &span->head.span_id, 8);
    case BR_SPAN_TRACE_STATE:
        return br_walk_string(walker, field->data, field->value);
    case BR_SPAN_PARENT_SPAN_ID:
        return walk_traces_read_id(walker, field, &span->head.parent_id, 8);
    case BR_SPAN_NAME:
        span->name = field->data;
        span->name_len = (uint32_t)field->value;
        return br_walk_string(walker, field->data, field->value);
    case BR_SPAN_KIND:
        span->kind = (uint8_t)field->value;
        return true;
    case BR_SPAN_START_TIME:
        span->head.start_ns = field->value;
        return true;
    case BR_SPAN_END_TIME:
        span->head.end_ns = field->value;
        return true;
    case BR_SPAN_ATTRIBUTES:
        return walk_traces_read_attribute(walker, field->data, field->value, span);
    case BR_SPAN_EVENTS:
        return walk_event(walker, field->data, field->data + field->value);
    case BR_SPAN_LINKS:
        return walk_traces_link(walker, field->data, field->data + field->value);
    case BR_SPAN_STATUS:
        return walk_status(walker, field->data, field->data + field->value, span);
    default:
        return true;
    }
}

static bool walk_span(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                      struct br_span *span)
{
    static const uint8_t wires[] = {0,   LEN,    LEN, LEN,    LEN, LEN,    VARINT, I64, I64,
                                    LEN, VARINT, LEN, VARINT, LEN, VARINT, LEN,    I32};
    while (p < end) {
        size_t n;
        struct br_field field;
        /* attributes are handled first, because most of a span consists of them */
        if (*p == BR_TAG(BR_SPAN_ATTRIBUTES, BR_WIRE_LEN)) {
            p = br_walk_len(p + 1, end, &n);
            if (!p)
                return br_walk_malformed(walker);
            if (!walk_traces_read_attribute(walker, p, n, span))
                return false;
            p += n;
            continue;
        }
        /* The cases are fields in their usual encoding, by tag. Fields in any other encoding are
         * read by br_walk_field below. */
        switch (*p) {
        case BR_TAG(BR_SPAN_TRACE_ID, BR_WIRE_LEN):
            if (end - p < 18 || p[1] != 16)
                break;
            memcpy(span->head.trace_id, p + 2, 16);
            p += 18;
            continue;
        case BR_TAG(BR_SPAN_SPAN_ID, BR_WIRE_LEN):
            if (end - p < 10 || p[1] != 8)
                break;
            span->head.span_id = br_load64(p + 2);
            p += 10;
            continue;
        case BR_TAG(BR_SPAN_PARENT_SPAN_ID, BR_WIRE_LEN):
            if (end - p < 10 || p[1] != 8)
                break;
            span->head.parent_id = br_load64(p + 2);
            p += 10;
            continue;
        case BR_TAG(BR_SPAN_NAME, BR_WIRE_LEN):
            p = br_walk_len(p + 1, end, &n);
            if (!p)
                return br_walk_malformed(walker);
            span->name = p;
            span->name_len = (uint32_t)n;
            if (!br_walk_string(walker, p, n))
                return false;
            p += n;
            continue;
        case BR_TAG(BR_SPAN_KIND, BR_WIRE_VARINT):
            if (end - p < 2 || p[1] >= 0x80)
                break;
            span->kind = p[1];
            p += 2;
            continue;
        case BR_TAG(BR_SPAN_START_TIME, BR_WIRE_I64):
            if (end - p < 9)
                break;
            span->head.start_ns = br_load64(p + 1);
            p += 9;
            continue;
        case BR_TAG(BR_SPAN_END_TIME, BR_WIRE_I64):
            if (end - p < 9)
                break;
            span->head.end_ns = br_load64(p + 1);
            p += 9;
            continue;
        default:
            break;
        }
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p || !walk_span_field(walker, &field, span))
            return false;
    }
    return true;
}

/* Enlarges the item's list of spans, which is full and has `count` entries. A new list has space
 * for the number of spans given in the options. If the number is unknown, it is estimated from
 * `bytes`, the size of the data that follows. */
static bool walk_traces_more_spans(struct br_walker *walker, struct br_item *item, uint32_t count,
                                   size_t bytes)
{
    size_t first = SPANS_FIRST + bytes / SPAN_BYTES;
    uint32_t cap = first < SPANS_FIRST_MAX ? (uint32_t)first : SPANS_FIRST_MAX;
    if (count)
        cap = count * 2;
    else if (walker->options->n_spans)
        cap = walker->options->n_spans;
    cap = cap < walker->most_spans ? cap : (uint32_t)walker->most_spans;
    cap = cap < SPANS_MAX ? cap : SPANS_MAX;
    if (count == cap)
        return br_walk_too_big(walker, count == SPANS_MAX
                                           ? "the request has too many spans"
                                           : "too many spans for the size of the request");
    size_t size = cap * sizeof *item->spans;
    if (!item->spans_buf)
        item->spans_buf = br_buf_new(item->host->pool, size);
    else /* the list is full, or an earlier walk over the same request began it */
        item->spans_buf->len = (uint32_t)(count * sizeof *item->spans);
    if (!item->spans_buf || br_buf_reserve(&item->spans_buf, size)) {
        walker->what = "out of memory";
        walker->code = BR_ENOMEM;
        return false;
    }
    item->spans = (struct br_span *)(void *)item->spans_buf->data;
    walker->next_span = item->spans + count;
    walker->end_span = item->spans + cap;
    return true;
}

/* Sets the fields one by one. A compound literal would first zero the whole struct, with slow
 * string instructions. */
static inline void walk_traces_begin_span(struct br_span *span, const struct br_field *field,
                                          uint32_t part)
{
    memset(&span->head, 0, sizeof span->head);
    span->body = field->data;
    span->name = span->thread_id = span->thread_name = NULL;
    span->body_len = (uint32_t)field->value;
    span->name_len = 0;
    span->part = part;
    span->kind = span->status = 0;
}

static bool walk_scope_spans(struct br_walker *walker, struct br_item *item, struct br_part *part,
                             const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    if (DEPTH_SPAN > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_span scratch = {0}, *span = &scratch;
    const uint32_t number = (uint32_t)(part - item->parts);
    struct br_field field;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_SCOPES_RECORDS) {
            walker->item++;
            if (walker->options->spans) {
                if (__builtin_expect(walker->next_span == walker->end_span, 0) &&
                    !walk_traces_more_spans(walker, item, item->n_records + part->n_records,
                                            (size_t)(end - field.data)))
                    return false;
                span = walker->next_span++;
                walk_traces_begin_span(span, &field, number);
            }
            if (!walk_span(walker, field.data, p, span))
                return false;
            part->n_records++;
        } else if (field.number == BR_SCOPES_SCOPE) {
            if (!br_walk_scope(walker, field.data, p, DEPTH_SPAN))
                return false;
        } else if (field.number == BR_SCOPES_SCHEMA_URL &&
                   !br_walk_string(walker, field.data, field.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_resource_spans(struct br_walker *walker, struct br_item *item, struct br_part *part)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    if (DEPTH_SCOPE_SPANS > walker->max_depth)
        return br_walk_too_deep(walker);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    /* restart at the part's first span: the part is walked again if its Resources were merged */
    if (item->spans)
        walker->next_span = item->spans + item->n_records;
    while (p < end) {
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_RESOURCES_SCOPES) {
            walker->scope++;
            walker->item = -1;
            if (!walk_scope_spans(walker, item, part, field.data, p))
                return false;
        } else if (field.number == BR_RESOURCES_RESOURCE) {
            if (!br_walk_resource(walker, field.data, p, DEPTH_SCOPE_SPANS))
                return false;
            br_walk_note_resource(walker, part, &field, p);
        } else if (field.number == BR_RESOURCES_SCHEMA_URL &&
                   !br_walk_string(walker, field.data, field.value)) {
            return false;
        }
    }
    return true;
}
