/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "core/host.h"
#include "otlp/walk/internal.h"

#define LEN (BR_WIRE_LEN + 1)
#define VARINT (BR_WIRE_VARINT + 1)
#define I64 (BR_WIRE_I64 + 1)
#define I32 (BR_WIRE_I32 + 1)

/* Levels of the messages of a traces request; the request itself is 1. */
enum { DEPTH_RESOURCE_SPANS = 2, DEPTH_SCOPE_SPANS, DEPTH_SPAN, DEPTH_IN_SPAN };

#define SPANS_FIRST 8
#define SPANS_FIRST_MAX 16384
#define SPANS_MAX                                                                                  \
    ((64u << 20) / (uint32_t)sizeof(struct br_span)) /* as much as a request may have */
#define SPAN_BYTES 256                               /* fewer than most spans have */

static bool check_id(struct br_walker *w, size_t len, size_t want)
{
    if (len == want || len == 0)
        return true;
    return br_walk_fail(w, want == 16 ? "a trace id must have 16 bytes or none"
                                      : "a span id must have 8 bytes or none");
}

/* An id field of a span: the last one counts, and an empty one is none. */
static bool take_id(struct br_walker *w, const struct br_field *f, void *id, size_t want)
{
    if (!check_id(w, f->value, want))
        return false;
    if (f->value)
        memcpy(id, f->data, want);
    else
        memset(id, 0, want);
    return true;
}

static bool walk_event(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, I64, LEN, LEN, VARINT};
    if (DEPTH_IN_SPAN > w->max_depth)
        return br_walk_too_deep(w);
    struct br_field f;
    while (p < end) {
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == BR_EVENT_NAME && !br_walk_string(w, f.data, f.value))
            return false;
        if (f.number == BR_EVENT_ATTRIBUTES &&
            !br_walk_attribute(w, f.data, f.data + f.value, DEPTH_IN_SPAN + 1))
            return false;
    }
    return true;
}

static bool walk_link(struct br_walker *w, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, VARINT, I32};
    if (DEPTH_IN_SPAN > w->max_depth)
        return br_walk_too_deep(w);
    struct br_field f;
    while (p < end) {
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number <= BR_SPAN_LINK_SPAN_ID &&
            !check_id(w, f.value, f.number == BR_SPAN_LINK_TRACE_ID ? 16 : 8))
            return false;
        if (f.number == BR_SPAN_LINK_TRACE_STATE && !br_walk_string(w, f.data, f.value))
            return false;
        if (f.number == BR_SPAN_LINK_ATTRIBUTES &&
            !br_walk_attribute(w, f.data, f.data + f.value, DEPTH_IN_SPAN + 1))
            return false;
    }
    return true;
}

static bool walk_status(struct br_walker *w, const uint8_t *p, const uint8_t *end,
                        struct br_span *span)
{
    static const uint8_t wires[] = {0, 0, LEN, VARINT};
    if (DEPTH_IN_SPAN > w->max_depth)
        return br_walk_too_deep(w);
    struct br_field f;
    while (p < end) {
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p || (f.number == BR_SPAN_STATUS_MESSAGE && !br_walk_string(w, f.data, f.value)))
            return false;
        if (f.number == BR_SPAN_STATUS_CODE)
            span->status = (uint8_t)f.value;
    }
    return true;
}

/* An attribute of a span, and where the first one that says something of its thread begins. */
BR_HOT bool take_attribute(struct br_walker *w, const uint8_t *at, const uint8_t *p, size_t n,
                           struct br_span *span)
{
    enum br_walk_attribute found = br_walk_attribute(w, p, p + n, DEPTH_IN_SPAN);
    if (__builtin_expect(found == BR_WALK_GOOD, 1))
        return true;
    if (found == BR_WALK_THREAD && !span->thread)
        span->thread = at;
    return found != BR_WALK_BAD;
}

/* The fields of a span that are seldom or cold. */
static bool walk_span_field(struct br_walker *w, const struct br_field *f, struct br_span *span)
{
    switch (f->number) {
    case BR_SPAN_TRACE_ID:
        return take_id(w, f, span->head.trace_id, 16);
    case BR_SPAN_SPAN_ID:
        return take_id(w, f, &span->head.span_id, 8);
    case BR_SPAN_TRACE_STATE:
        return br_walk_string(w, f->data, f->value);
    case BR_SPAN_PARENT_SPAN_ID:
        return take_id(w, f, &span->head.parent_id, 8);
    case BR_SPAN_NAME:
        span->name = f->data;
        span->name_len = (uint32_t)f->value;
        return br_walk_string(w, f->data, f->value);
    case BR_SPAN_KIND:
        span->kind = (uint8_t)f->value;
        return true;
    case BR_SPAN_START_TIME:
        span->head.start_ns = f->value;
        return true;
    case BR_SPAN_END_TIME:
        span->head.end_ns = f->value;
        return true;
    case BR_SPAN_ATTRIBUTES:
        return take_attribute(w, f->at, f->data, f->value, span);
    case BR_SPAN_EVENTS:
        return walk_event(w, f->data, f->data + f->value);
    case BR_SPAN_LINKS:
        return walk_link(w, f->data, f->data + f->value);
    case BR_SPAN_STATUS:
        return walk_status(w, f->data, f->data + f->value, span);
    default:
        return true;
    }
}

static bool walk_span(struct br_walker *w, const uint8_t *p, const uint8_t *end,
                      struct br_span *span)
{
    static const uint8_t wires[] = {0,   LEN,    LEN, LEN,    LEN, LEN,    VARINT, I64, I64,
                                    LEN, VARINT, LEN, VARINT, LEN, VARINT, LEN,    I32};
    while (p < end) {
        size_t n;
        const uint8_t *at;
        struct br_field f;
        /* The usual fields by their whole tag byte; every other shape goes the long way below. */
        switch (*p) {
        case BR_TAG(BR_SPAN_ATTRIBUTES, BR_WIRE_LEN): /* attributes are most of a span */
            at = p;
            p = br_walk_len(p + 1, end, &n);
            if (!p)
                return br_walk_malformed(w);
            if (!take_attribute(w, at, p, n, span))
                return false;
            p += n;
            continue;
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
                return br_walk_malformed(w);
            span->name = p;
            span->name_len = (uint32_t)n;
            if (!br_walk_string(w, p, n))
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
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p || !walk_span_field(w, &f, span))
            return false;
    }
    return true;
}

/* Room for one more span in the item's list; at first for as many as `bytes` that follow may hold.
 */
static struct br_span *span_slot(struct br_walker *w, struct br_item *item, uint32_t n,
                                 size_t bytes)
{
    if (n == w->cap_spans) {
        size_t first = SPANS_FIRST + bytes / SPAN_BYTES;
        uint32_t cap = n ? n * 2 : first < SPANS_FIRST_MAX ? (uint32_t)first : SPANS_FIRST_MAX;
        cap = cap < w->most_spans ? cap : (uint32_t)w->most_spans;
        cap = cap < SPANS_MAX ? cap : SPANS_MAX;
        if (n == cap) {
            (void)br_walk_too_big(w, n == SPANS_MAX ? "more spans than one request may have"
                                                    : "too many spans, of too few bytes each");
            return NULL;
        }
        size_t room = cap * sizeof *item->spans;
        if (!item->spans_buf)
            item->spans_buf = br_buf_new(item->host->pool, room);
        else /* full, or of a walk that began anew */
            item->spans_buf->len = (uint32_t)(n * sizeof *item->spans);
        if (!item->spans_buf || br_buf_reserve(&item->spans_buf, room)) {
            w->what = "out of memory";
            w->code = BR_ENOMEM;
            return NULL;
        }
        item->spans = (struct br_span *)(void *)item->spans_buf->data;
        w->cap_spans = cap;
    }
    return &item->spans[n];
}

/* Field by field: a whole struct would be zeroed first, by what is slow to start. */
static inline void begin_span(struct br_span *span, const struct br_field *f, uint32_t part)
{
    memset(&span->head, 0, sizeof span->head);
    span->body = f->data;
    span->name = span->thread = NULL;
    span->body_len = (uint32_t)f->value;
    span->name_len = 0;
    span->part = part;
    span->kind = span->status = 0;
}

static bool walk_scope_spans(struct br_walker *w, struct br_item *item, struct br_part *part,
                             const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    if (DEPTH_SPAN > w->max_depth)
        return br_walk_too_deep(w);
    struct br_span scratch = {0}, *span = &scratch;
    struct br_field f;
    while (p < end) {
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == BR_SCOPES_ITEMS) {
            w->item++;
            if (w->options->spans) {
                span = span_slot(w, item, item->n_items + part->n_items, (size_t)(end - f.data));
                if (!span)
                    return false;
                begin_span(span, &f, (uint32_t)(part - item->parts));
            }
            if (!walk_span(w, f.data, p, span))
                return false;
            part->n_items++;
        } else if (f.number == BR_SCOPES_SCOPE
                       ? !br_walk_scope(w, f.data, p, DEPTH_SPAN)
                       : f.number == BR_SCOPES_SCHEMA_URL && !br_walk_string(w, f.data, f.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_resource_spans(struct br_walker *w, struct br_item *item, struct br_part *part)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    if (DEPTH_SCOPE_SPANS > w->max_depth)
        return br_walk_too_deep(w);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    while (p < end) {
        p = br_walk_field(w, p, end, wires, sizeof wires, &f);
        if (!p)
            return false;
        if (f.number == BR_RESOURCES_SCOPES) {
            w->scope++;
            w->item = -1;
            if (!walk_scope_spans(w, item, part, f.data, p))
                return false;
        } else if (f.number == BR_RESOURCES_RESOURCE) {
            if (!br_walk_resource(w, f.data, p, DEPTH_SCOPE_SPANS))
                return false;
            br_walk_note_resource(w, part, &f, p);
        } else if (f.number == BR_RESOURCES_SCHEMA_URL && !br_walk_string(w, f.data, f.value)) {
            return false;
        }
    }
    return true;
}
