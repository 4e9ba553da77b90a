/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads spans and traces for TraceQL. The attributes of a span are read in one pass over its bytes.
 * The bytes are read only if the query contains attributes that are not in the span's row.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/fields.h"
#include "otlp/keyvalue.h"
#include "otlp/scan.h"
#include "query/traceql_internal.h"

/* root name and root service of a trace without a root, as in queries of Tempo */
#define NO_ROOT ""
#define LIST_MAX                                                                                   \
    1024 /* maximum number of values in a list that is read from events, links or an array */

/* State while the attributes of a span are read: the span's row, and the values that are read. */
struct reading {
    const struct br_traceql *query;
    struct br_traceql_value *values;
    const struct br_stored_span *row;
    struct br_arena *arena;
    bool failed; /* true: an allocation failed */
};

/* --- Values ----------------------------------------------------------------------------------- */

static struct br_traceql_value traceql_read_text(const void *text, size_t len)
{
    return (struct br_traceql_value){.type = BR_TRACEQL_STRING, .text = text, .len = len};
}

static struct br_traceql_value traceql_read_integer(enum br_traceql_type type, int64_t integer)
{
    return (struct br_traceql_value){.type = type, .integer = integer};
}

static struct br_traceql_value traceql_read_id(struct reading *reading, const uint8_t *id,
                                               size_t len)
{
    struct br_str hex = {.max = 64};
    br_str_hex(&hex, id, len);
    const char *text =
        hex.failed || !len ? "" : br_arena_strndup(reading->arena, hex.data, hex.len);
    reading->failed |= !text || hex.failed;
    br_str_release(&hex);
    return traceql_read_text(text ? text : "", text ? strlen(text) : 0);
}

static struct br_traceql_value traceql_read_span_id(struct reading *reading, uint64_t id)
{
    uint8_t bytes[8];
    memcpy(bytes, &id, sizeof bytes);
    return traceql_read_id(reading, bytes, id ? sizeof bytes : 0);
}

/* Appends a value to an attribute. The first value is stored as it is; a second value turns the
 * attribute into a list. */
static void traceql_read_append(struct reading *reading, struct br_traceql_value *list,
                                struct br_traceql_value value)
{
    if (list->type == BR_TRACEQL_NIL) {
        *list = value;
        return;
    }
    bool was_list = list->type == BR_TRACEQL_LIST;
    size_t n_items = was_list ? list->n_items : 1;
    if (n_items == LIST_MAX)
        return;
    /* The list's capacity is a power of two, so a list whose length is a power of two is full. */
    struct br_traceql_value *items =
        was_list ? (struct br_traceql_value *)(uintptr_t)list->items : NULL;
    if (!was_list || (n_items & (n_items - 1)) == 0) {
        struct br_traceql_value *more = br_arena_calloc(reading->arena, 2 * n_items, sizeof *more);
        if (!more) {
            reading->failed = true;
            return;
        }
        memcpy(more, was_list ? list->items : list, n_items * sizeof *more);
        items = more;
    }
    items[n_items] = value;
    *list =
        (struct br_traceql_value){.type = BR_TRACEQL_LIST, .items = items, .n_items = n_items + 1};
}

static void traceql_read_any(struct reading *reading, struct br_value value,
                             struct br_traceql_value *ret);

static void traceql_read_list(struct reading *reading, const struct br_any *any,
                              struct br_traceql_value *ret)
{
    struct br_value element;
    const uint8_t *p = any->data, *end = any->data ? any->data + any->len : NULL;
    while ((p = br_value_next(p, end, &element))) {
        const struct br_any inner = br_any_read(element);
        if (inner.type != BR_VALUE_LIST && inner.type != BR_VALUE_MAP)
            traceql_read_any(reading, element, ret);
    }
}

/* Adds the content of an AnyValue to `ret`. Skips maps and byte strings, which TraceQL cannot
 * compare. */
static void traceql_read_any(struct reading *reading, struct br_value value,
                             struct br_traceql_value *ret)
{
    const struct br_any any = br_any_read(value);
    struct br_traceql_value one = {0};
    switch (any.type) {
    case BR_VALUE_STRING:
        one = traceql_read_text(any.data, any.len);
        break;
    case BR_VALUE_BOOL:
        one.type = BR_TRACEQL_BOOL;
        one.boolean = any.number != 0;
        break;
    case BR_VALUE_INT:
        one = traceql_read_integer(BR_TRACEQL_INT, (int64_t)any.number);
        break;
    case BR_VALUE_DOUBLE:
        one.type = BR_TRACEQL_FLOAT;
        memcpy(&one.real, &any.number, sizeof one.real);
        break;
    case BR_VALUE_LIST:
        traceql_read_list(reading, &any, ret);
        return;
    default:
        return;
    }
    traceql_read_append(reading, ret, one);
}

/* --- Bytes ------------------------------------------------------------------------------------ */

static void traceql_read_put(struct reading *reading, enum br_traceql_intrinsic intrinsic,
                             struct br_traceql_value value)
{
    for (size_t i = 0; i < reading->query->n_attributes; i++) {
        const struct br_traceql_attribute *attribute = &reading->query->attributes[i];
        if (attribute->scope == BR_TRACEQL_INTRINSIC && attribute->intrinsic == intrinsic)
            traceql_read_append(reading, &reading->values[i], value);
    }
}

static bool traceql_read_wants(const struct reading *reading, enum br_traceql_scope scope)
{
    for (size_t i = 0; i < reading->query->n_attributes; i++)
        if (reading->query->attributes[i].scope == scope)
            return true;
    return false;
}

/* Reads the attributes in field `field` of a message. The value of an unscoped attribute is that
 * of the span if it exists, and otherwise that of the resource. */
static void traceql_read_attributes(struct reading *reading, const uint8_t *data, size_t len,
                                    uint32_t field, enum br_traceql_scope scope)
{
    struct br_keyvalue pair;
    const uint8_t *p = data, *end = data ? data + len : NULL;
    /* bit i is set if attribute i has been read: if a key is repeated in a span or resource, the
     * first value counts */
    uint64_t seen = 0;
    bool many = scope == BR_TRACEQL_EVENT || scope == BR_TRACEQL_LINK;
    bool also_unscoped = scope == BR_TRACEQL_SPAN || scope == BR_TRACEQL_RESOURCE;
    while ((p = br_keyvalue_next(p, end, field, &pair))) {
        for (size_t i = 0; i < reading->query->n_attributes; i++) {
            const struct br_traceql_attribute *attribute = &reading->query->attributes[i];
            bool ours = attribute->scope == scope ||
                        (also_unscoped && attribute->scope == BR_TRACEQL_UNSCOPED);
            if (!ours || attribute->name_len != pair.key_len ||
                memcmp(attribute->name, pair.key, pair.key_len) != 0 || (seen >> i & 1))
                continue;
            if (!many) {
                seen |= (uint64_t)1 << i;
                reading->values[i] = (struct br_traceql_value){0};
            }
            traceql_read_any(reading, pair.value, &reading->values[i]);
        }
    }
}

static void traceql_read_event(struct reading *reading, const uint8_t *data, size_t len)
{
    struct br_field field;
    for (const uint8_t *p = data, *end = br_mem_end(data, len);
         p < end && (p = br_scan(p, end, &field));) {
        if (field.number == BR_EVENT_NAME && field.wire == BR_WIRE_LEN)
            traceql_read_put(reading, BR_TRACEQL_EVENT_NAME,
                             traceql_read_text(field.data, field.value));
        if (field.number == BR_EVENT_TIME && field.wire == BR_WIRE_I64)
            traceql_read_put(reading, BR_TRACEQL_EVENT_TIME,
                             traceql_read_integer(BR_TRACEQL_DURATION,
                                                  (int64_t)(field.value - reading->row->start_ns)));
    }
    traceql_read_attributes(reading, data, len, BR_EVENT_ATTRIBUTES, BR_TRACEQL_EVENT);
}

static void traceql_read_link(struct reading *reading, const uint8_t *data, size_t len)
{
    struct br_field field;
    for (const uint8_t *p = data, *end = br_mem_end(data, len);
         p < end && (p = br_scan(p, end, &field));) {
        if (field.wire != BR_WIRE_LEN || field.value > 16)
            continue;
        if (field.number == BR_SPAN_LINK_TRACE_ID)
            traceql_read_put(reading, BR_TRACEQL_LINK_TRACE_ID,
                             traceql_read_id(reading, field.data, field.value));
        if (field.number == BR_SPAN_LINK_SPAN_ID)
            traceql_read_put(reading, BR_TRACEQL_LINK_SPAN_ID,
                             traceql_read_id(reading, field.data, field.value));
    }
    traceql_read_attributes(reading, data, len, BR_SPAN_LINK_ATTRIBUTES, BR_TRACEQL_LINK);
}

static void traceql_read_status(struct reading *reading, const uint8_t *data, size_t len)
{
    struct br_field field;
    for (const uint8_t *p = data, *end = br_mem_end(data, len);
         p < end && (p = br_scan(p, end, &field));)
        if (field.number == BR_SPAN_STATUS_MESSAGE && field.wire == BR_WIRE_LEN)
            traceql_read_put(reading, BR_TRACEQL_STATUS_MESSAGE,
                             traceql_read_text(field.data, field.value));
}

static void traceql_read_scope(struct reading *reading, const uint8_t *data, size_t len)
{
    struct br_field field;
    for (const uint8_t *p = data, *end = br_mem_end(data, len);
         p < end && (p = br_scan(p, end, &field));) {
        if (field.wire != BR_WIRE_LEN)
            continue;
        if (field.number == BR_SCOPE_NAME)
            traceql_read_put(reading, BR_TRACEQL_SCOPE_NAME,
                             traceql_read_text(field.data, field.value));
        if (field.number == BR_SCOPE_VERSION)
            traceql_read_put(reading, BR_TRACEQL_SCOPE_VERSION,
                             traceql_read_text(field.data, field.value));
    }
    traceql_read_attributes(reading, data, len, BR_SCOPE_ATTRIBUTES, BR_TRACEQL_INSTRUMENTATION);
}

static void traceql_read_message(struct reading *reading, const struct br_span_bytes *bytes)
{
    struct br_field field;
    const uint8_t *end = bytes->span ? bytes->span + bytes->span_len : NULL;
    traceql_read_attributes(reading, bytes->resource, bytes->resource_len, BR_RESOURCE_ATTRIBUTES,
                            BR_TRACEQL_RESOURCE);
    traceql_read_attributes(reading, bytes->span, bytes->span_len, BR_SPAN_ATTRIBUTES,
                            BR_TRACEQL_SPAN);
    if (bytes->scope)
        traceql_read_scope(reading, bytes->scope, bytes->scope_len);
    if (!traceql_read_wants(reading, BR_TRACEQL_EVENT) &&
        !traceql_read_wants(reading, BR_TRACEQL_LINK) &&
        !traceql_read_wants(reading, BR_TRACEQL_INTRINSIC))
        return;
    for (const uint8_t *p = bytes->span; p < end && (p = br_scan(p, end, &field));) {
        if (field.wire != BR_WIRE_LEN)
            continue;
        if (field.number == BR_SPAN_EVENTS)
            traceql_read_event(reading, field.data, field.value);
        else if (field.number == BR_SPAN_LINKS)
            traceql_read_link(reading, field.data, field.value);
        else if (field.number == BR_SPAN_STATUS)
            traceql_read_status(reading, field.data, field.value);
    }
}

/* --- Rows ------------------------------------------------------------------------------------- */

static struct br_traceql_value traceql_read_row(struct reading *reading,
                                                enum br_traceql_intrinsic intrinsic)
{
    const struct br_stored_span *row = reading->row;
    switch (intrinsic) {
    case BR_TRACEQL_SPAN_DURATION:
        return traceql_read_integer(BR_TRACEQL_DURATION, (int64_t)row->duration_ns);
    case BR_TRACEQL_SPAN_NAME:
        return traceql_read_text(row->name, strlen(row->name));
    case BR_TRACEQL_SPAN_STATUS:
        return traceql_read_integer(BR_TRACEQL_STATUS, row->status);
    case BR_TRACEQL_SPAN_KIND:
        return traceql_read_integer(BR_TRACEQL_KIND, row->kind);
    case BR_TRACEQL_SPAN_ID:
        return traceql_read_span_id(reading, row->span_id);
    case BR_TRACEQL_SPAN_PARENT_ID:
        return traceql_read_span_id(reading, row->parent_id);
    case BR_TRACEQL_TRACE_ID:
        return traceql_read_id(reading, row->trace_id, sizeof row->trace_id);
    case BR_TRACEQL_NESTED_SET_PARENT:
        return traceql_read_integer(BR_TRACEQL_INT, row->parent_id ? 1 : -1);
    default:
        return (struct br_traceql_value){0};
    }
}

static int64_t traceql_read_nested_parent(const struct br_traceql_trace *trace,
                                          const struct br_traceql_span *span)
{
    if (!span->row->parent_id)
        return -1;
    return span->parent == BR_TRACEQL_NO_PARENT ? 0 : (int64_t)trace->nested[span->parent][0];
}

static struct br_traceql_value traceql_read_of_trace(const struct br_traceql_trace *trace,
                                                     const struct br_traceql_span *span,
                                                     enum br_traceql_intrinsic intrinsic)
{
    const char *text = trace->root ? trace->root->name : NO_ROOT;
    switch (intrinsic) {
    case BR_TRACEQL_CHILD_COUNT:
        return traceql_read_integer(BR_TRACEQL_INT, span->n_children);
    case BR_TRACEQL_NESTED_SET_LEFT:
        return traceql_read_integer(BR_TRACEQL_INT, trace->nested[span - trace->spans][0]);
    case BR_TRACEQL_NESTED_SET_RIGHT:
        return traceql_read_integer(BR_TRACEQL_INT, trace->nested[span - trace->spans][1]);
    case BR_TRACEQL_NESTED_SET_PARENT:
        return traceql_read_integer(BR_TRACEQL_INT, traceql_read_nested_parent(trace, span));
    case BR_TRACEQL_TRACE_DURATION:
        return traceql_read_integer(BR_TRACEQL_DURATION,
                                    (int64_t)(trace->end_ns - trace->start_ns));
    case BR_TRACEQL_ROOT_SERVICE:
        text = trace->root ? trace->root->service : NO_ROOT;
        return traceql_read_text(text, strlen(text));
    default:
        return traceql_read_text(text, strlen(text));
    }
}

static bool traceql_read_is_service(const struct br_traceql_attribute *attribute)
{
    return attribute->scope == BR_TRACEQL_RESOURCE && strcmp(attribute->name, "service.name") == 0;
}

int br_traceql_read_span(const struct br_traceql *query, struct br_store_query *store,
                         struct br_traceql_span *span, const struct br_traceql_trace *trace,
                         struct br_err *err)
{
    struct reading reading = {.query = query, .row = span->row, .arena = store->arena};
    struct br_span_bytes bytes = {0};
    if (span->values)
        return 0;
    reading.values = br_arena_calloc(store->arena, query->n_attributes + 1, sizeof *reading.values);
    if (!reading.values)
        return br_err_set(err, BR_ENOMEM, "out of memory");
    int rc = query->needs_bytes ? br_store_span_bytes(store, span->row, &bytes, err) : 0;
    if (rc)
        return rc;
    if (query->needs_bytes)
        traceql_read_message(&reading, &bytes);
    for (size_t i = 0; i < query->n_attributes; i++) {
        const struct br_traceql_attribute *attribute = &query->attributes[i];
        if (traceql_read_is_service(attribute) && span->row->service[0])
            reading.values[i] = traceql_read_text(span->row->service, strlen(span->row->service));
        if (attribute->scope != BR_TRACEQL_INTRINSIC)
            continue;
        bool nested =
            attribute->intrinsic == BR_TRACEQL_NESTED_SET_PARENT && trace && trace->nested;
        if (attribute->intrinsic < BR_TRACEQL_STATUS_MESSAGE && !nested)
            reading.values[i] = traceql_read_row(&reading, attribute->intrinsic);
        else if (nested || (attribute->intrinsic >= BR_TRACEQL_CHILD_COUNT && trace))
            reading.values[i] = traceql_read_of_trace(trace, span, attribute->intrinsic);
    }
    span->values = reading.values;
    return reading.failed ? br_err_set(err, BR_ENOMEM, "out of memory") : 0;
}

/* --- Traces ----------------------------------------------------------------------------------- */

struct gathering {
    struct br_traceql_trace *trace;
    struct br_store_query *store;
    uint32_t max_spans;
    bool failed;
};

static bool traceql_read_on_span(const struct br_stored_span *span, void *arg)
{
    struct gathering *gathering = arg;
    struct br_traceql_trace *trace = gathering->trace;
    trace->is_partial = gathering->max_spans && trace->n_spans == gathering->max_spans;
    if (trace->is_partial)
        return false;
    if (trace->n_spans == trace->cap_spans) {
        uint32_t cap = trace->cap_spans ? 2 * trace->cap_spans : 16;
        struct br_traceql_span *spans =
            br_arena_calloc(gathering->store->arena, cap, sizeof *spans);
        gathering->failed = !spans;
        if (!spans)
            return false;
        if (trace->n_spans)
            memcpy(spans, trace->spans, trace->n_spans * sizeof *spans);
        trace->spans = spans;
        trace->cap_spans = cap;
    }
    struct br_stored_span *row = br_arena_alloc(gathering->store->arena, sizeof *row);
    gathering->failed = !row;
    if (!row)
        return false;
    *row = *span;
    trace->spans[trace->n_spans++] =
        (struct br_traceql_span){.row = row, .parent = BR_TRACEQL_NO_PARENT};
    return true;
}

struct position {
    uint64_t id;
    uint32_t at;
};

static int traceql_read_compare_positions(const void *first, const void *second)
{
    const struct position *one = first, *other = second;
    if (one->id != other->id)
        return one->id < other->id ? -1 : 1;
    return one->at < other->at ? -1 : one->at > other->at;
}

/* Returns the index of the first span with the id `id`. Returns BR_TRACEQL_NO_PARENT if no span
 * has the id. */
static uint32_t traceql_read_find(const struct position *positions, uint32_t count, uint64_t id)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (positions[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && positions[low].id == id ? positions[low].at : BR_TRACEQL_NO_PARENT;
}

static int traceql_read_relate(struct br_traceql_trace *trace, struct br_arena *arena)
{
    struct position *positions = br_arena_calloc(arena, trace->n_spans + 1, sizeof *positions);
    if (!positions)
        return BR_ENOMEM;
    for (uint32_t i = 0; i < trace->n_spans; i++)
        positions[i] = (struct position){trace->spans[i].row->span_id, i};
    qsort(positions, trace->n_spans, sizeof *positions, traceql_read_compare_positions);
    for (uint32_t i = 0; i < trace->n_spans; i++) {
        struct br_traceql_span *span = &trace->spans[i];
        const struct br_stored_span *row = span->row;
        uint64_t end_ns = row->start_ns + row->duration_ns;
        if (row->parent_id && row->parent_id != row->span_id)
            span->parent = traceql_read_find(positions, trace->n_spans, row->parent_id);
        if (span->parent != BR_TRACEQL_NO_PARENT)
            trace->spans[span->parent].n_children++;
        if (!row->parent_id && !trace->root)
            trace->root = row;
        if (i == 0 || row->start_ns < trace->start_ns)
            trace->start_ns = row->start_ns;
        if (end_ns > trace->end_ns)
            trace->end_ns = end_ns;
    }
    return 0;
}

int br_traceql_trace_nest(struct br_traceql_trace *trace, struct br_arena *arena)
{
    uint32_t n_spans = trace->n_spans, number = 0;
    /* first[i] is the index of the next child of span i to be visited, plus 1; 0: no child is
     * left */
    uint32_t *first = br_arena_calloc(arena, n_spans + 1, sizeof *first);
    /* next[i] is the index of the next sibling of span i, plus 1; 0: span i is the last child */
    uint32_t *next = br_arena_calloc(arena, n_spans + 1, sizeof *next);
    trace->nested = br_arena_calloc(arena, n_spans + 1, sizeof *trace->nested);
    if (!first || !next || !trace->nested)
        return BR_ENOMEM;
    for (uint32_t i = n_spans; i-- > 0;) {
        uint32_t parent = trace->spans[i].parent;
        if (parent == BR_TRACEQL_NO_PARENT)
            continue;
        next[i] = first[parent];
        first[parent] = i + 1;
    }
    for (uint32_t root = 0; root < n_spans; root++) {
        if (trace->spans[root].row->parent_id)
            continue;
        trace->nested[root][0] = ++number;
        for (uint32_t at = root;;) {
            if (first[at]) { /* descend to the next child */
                uint32_t child = first[at] - 1;
                first[at] = next[child];
                trace->nested[child][0] = ++number;
                at = child;
                continue;
            }
            trace->nested[at][1] = ++number;
            if (at == root)
                break;
            at = trace->spans[at].parent;
        }
    }
    return 0;
}

int br_traceql_trace_read(struct br_traceql_trace *ret, struct br_store_query *store,
                          const uint8_t trace_id[16], uint32_t max_spans, struct br_err *err)
{
    struct gathering gathering = {.trace = ret, .store = store, .max_spans = max_spans};
    *ret = (struct br_traceql_trace){0};
    int rc = br_store_trace(store, trace_id, traceql_read_on_span, &gathering, err);
    if (rc)
        return rc;
    if (gathering.failed || traceql_read_relate(ret, store->arena))
        return br_err_set(err, BR_ENOMEM, "out of memory");
    return 0;
}
