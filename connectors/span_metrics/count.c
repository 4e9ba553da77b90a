/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "connectors/span_metrics/span_metrics.h"
#include "otlp/edit/rewrite.h"
#include "otlp/scan.h"
#include "otlp/trace_id.h"
#include "otlp/tracestate.h"

struct text {
    const uint8_t *data;
    size_t len;
};

/* The fields of a span that the labels and the metrics use. */
struct span {
    struct text name, trace_state, trace_id, span_id;
    uint64_t kind, status, start_ns, end_ns;
};

/* The argument of count_on_span. */
struct counting {
    struct span_metrics_reader *reader;
    const struct span_metrics_config *config;
    struct span_metrics_table *table;
    const struct br_item *item;
    /* number of the part (ResourceSpans) whose resource was read; UINT32_MAX: no resource was
     * read */
    uint32_t part;
    struct text service; /* service.name of the resource; `data` is NULL if it is absent */
    uint32_t n_uncounted;
    uint64_t now_ns; /* Unix time of the exemplars */
    /* trace state of the previous span, and the number of spans that it stands for */
    struct text last_state;
    double last_weight;
};

/* --- Fields ----------------------------------------------------------------------------------- */

static uint64_t count_read_status(const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    uint64_t code = 0;
    while (p && p < end) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (p && br_scan_tag(&field) == BR_SCAN_VARINT(BR_SPAN_STATUS_CODE))
            code = field.value;
    }
    return code;
}

static void count_read(const uint8_t *p, size_t len, struct span *ret)
{
    const uint8_t *end = p + len;
    *ret = (struct span){.kind = 0};
    while (p && p < end) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return;
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_SPAN_NAME):
            ret->name = (struct text){field.data, field.value};
            break;
        case BR_SCAN_LEN(BR_SPAN_TRACE_ID):
            ret->trace_id = (struct text){field.data, field.value};
            break;
        case BR_SCAN_LEN(BR_SPAN_SPAN_ID):
            ret->span_id = (struct text){field.data, field.value};
            break;
        case BR_SCAN_LEN(BR_SPAN_TRACE_STATE):
            ret->trace_state = (struct text){field.data, field.value};
            break;
        case BR_SCAN_VARINT(BR_SPAN_KIND):
            ret->kind = field.value;
            break;
        case BR_TAG(BR_SPAN_START_TIME, BR_WIRE_I64):
            ret->start_ns = field.value;
            break;
        case BR_TAG(BR_SPAN_END_TIME, BR_WIRE_I64):
            ret->end_ns = field.value;
            break;
        case BR_SCAN_LEN(BR_SPAN_STATUS):
            ret->status = count_read_status(field.data, field.value);
            break;
        default:
            break;
        }
    }
}

/* Returns the number of original spans that a sampled span represents: the reciprocal of the
 * sampling probability in its trace state (th). Returns 1 if the trace state contains no
 * probability. */
static double count_weight(struct counting *counting, struct text state)
{
    struct br_tracestate parsed;
    if (!state.len)
        return 1;
    if (state.len == counting->last_state.len &&
        memcmp(state.data, counting->last_state.data, state.len) == 0)
        return counting->last_weight;
    bool sampled = br_tracestate_read(&parsed, state.data, state.len) && parsed.th.len &&
                   parsed.threshold < BR_THRESHOLD_NEVER;
    counting->last_state = state;
    counting->last_weight =
        sampled ? (double)BR_THRESHOLD_NEVER / (double)(BR_THRESHOLD_NEVER - parsed.threshold) : 1;
    return counting->last_weight;
}

/* --- Labels ----------------------------------------------------------------------------------- */

static struct text count_name_of(const char *const *names, size_t count, uint64_t number)
{
    const char *name = number < count ? names[number] : "";
    return (struct text){(const uint8_t *)name, strlen(name)};
}

static struct text count_kind(uint64_t kind)
{
    static const char *const names[] = {"SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL",
                                        "SPAN_KIND_SERVER",      "SPAN_KIND_CLIENT",
                                        "SPAN_KIND_PRODUCER",    "SPAN_KIND_CONSUMER"};
    return count_name_of(names, sizeof names / sizeof *names, kind);
}

static struct text count_status(uint64_t status)
{
    static const char *const names[] = {"STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"};
    return count_name_of(names, sizeof names / sizeof *names, status);
}

/* Returns the text of an attribute of the span or its resource. `data` is NULL if it is absent. */
static struct text count_attribute(struct span_metrics_reader *reader,
                                   const struct span_metrics_label *label)
{
    size_t len = strlen(label->key);
    const struct br_attribute *found = br_attributes_find(&reader->own, label->key, len);
    if (!found)
        found = br_attributes_find(&reader->resource, label->key, len);
    if (!found)
        return (struct text){(const uint8_t *)label->fallback,
                             label->fallback ? strlen(label->fallback) : 0};
    struct br_any any = br_any_read(found->value);
    if (any.type == BR_VALUE_STRING)
        return (struct text){any.data ? any.data : (const uint8_t *)"", any.len};
    br_str_clear(&reader->text);
    br_value_text(&reader->text, &any, &reader->arena);
    return (struct text){(const uint8_t *)(reader->text.data ? reader->text.data : ""),
                         reader->text.len};
}

static struct text count_value(const struct counting *counting, const struct span *span,
                               const struct span_metrics_label *label)
{
    struct text name = span->name;
    switch (label->source) {
    case SPAN_METRICS_SERVICE:
        return counting->service;
    case SPAN_METRICS_NAME:
        name.data = name.data ? name.data : (const uint8_t *)"";
        return name;
    case SPAN_METRICS_KIND:
        return count_kind(span->kind);
    case SPAN_METRICS_STATUS:
        return count_status(span->status);
    case SPAN_METRICS_ATTRIBUTE:
        break;
    }
    return count_attribute(counting->reader, label);
}

/* Writes the key of a series: the values of all labels of a metric family. Returns the length of
 * the key. */
static size_t count_make_key(struct counting *counting, const struct span *span, int family)
{
    const struct span_metrics_labels *labels = &counting->config->labels[family];
    uint8_t *key = counting->reader->key, *p = key;
    for (size_t i = 0; i < labels->count; i++) {
        struct text value = count_value(counting, span, &labels->items[i]);
        if (value.len > SPAN_METRICS_VALUE_MAX)
            value.len = br_utf8_valid(value.data, SPAN_METRICS_VALUE_MAX);
        uint16_t len = value.data ? (uint16_t)value.len : SPAN_METRICS_ABSENT;
        memcpy(p, &len, sizeof len);
        p += sizeof len;
        p = br_put_bytes(p, value.data, value.data ? value.len : 0);
    }
    return (size_t)(p - key);
}

/* --- Counting --------------------------------------------------------------------------------- */

/* Reads the resource of a part (ResourceSpans). Returns false if memory is short. */
static bool count_enter_part(struct counting *counting, uint32_t part)
{
    size_t len = 0;
    const uint8_t *resource = br_part_resource(&counting->item->parts[part], &len);
    struct br_attributes *attributes = &counting->reader->resource;
    counting->part = part;
    counting->service = (struct text){NULL, 0};
    if (!br_attributes_read(attributes, BR_RESOURCE_ATTRIBUTES, resource, len))
        return false;
    const struct br_attribute *found = br_attributes_find(attributes, "service.name", 12);
    struct br_any any = {.type = BR_VALUE_EMPTY};
    if (found)
        any = br_any_read(found->value);
    if (found)
        counting->service.data = (const uint8_t *)"";
    if (any.type == BR_VALUE_STRING && any.len)
        counting->service = (struct text){any.data, any.len};
    return true;
}

static struct span_metrics_observation count_observe(struct counting *counting,
                                                     const struct span *span)
{
    struct span_metrics_observation ret = {
        .weight = count_weight(counting, span->trace_state),
        .exemplar.time_ns = counting->now_ns,
        .traced = span->trace_id.len == sizeof ret.exemplar.trace_id &&
                  br_trace_id_valid(span->trace_id.data),
    };
    if (span->end_ns > span->start_ns)
        ret.exemplar.value = (double)(span->end_ns - span->start_ns) / counting->config->unit_ns;
    if (ret.traced)
        memcpy(ret.exemplar.trace_id, span->trace_id.data, span->trace_id.len);
    if (span->span_id.len == sizeof ret.exemplar.span_id)
        memcpy(ret.exemplar.span_id, span->span_id.data, span->span_id.len);
    return ret;
}

static bool count_has_attributes(const struct span_metrics_config *config)
{
    return config->dimensions.count || config->calls_dimensions.count ||
           config->histogram.dimensions.count;
}

static int count_on_span(void *arg, struct br_visit *visit)
{
    struct counting *counting = arg;
    const struct span_metrics_config *config = counting->config;
    struct br_attributes *own = &counting->reader->own;
    struct span span;
    bool known = visit->part == counting->part || count_enter_part(counting, visit->part);
    if (known && count_has_attributes(config))
        known = br_attributes_read(own, BR_SPAN_ATTRIBUTES, visit->body, visit->len);
    if (!known || !counting->service.data) {
        counting->n_uncounted++;
        return BR_KEEP;
    }
    count_read(visit->body, visit->len, &span);
    struct span_metrics_observation observation = count_observe(counting, &span);
    for (int family = 0; family < SPAN_METRICS_FAMILIES; family++) {
        if (family == SPAN_METRICS_DURATION && config->histogram.disable)
            continue;
        size_t len = count_make_key(counting, &span, family);
        span_metrics_table_add(counting->table, family, counting->reader->key, len, &observation);
    }
    return BR_KEEP;
}

uint32_t span_metrics_count(struct span_metrics_reader *reader,
                            const struct span_metrics_config *config,
                            struct span_metrics_table *table, struct br_item *item)
{
    struct counting counting = {
        .reader = reader, .config = config, .table = table, .item = item, .part = UINT32_MAX};
    if (config->exemplars.enabled)
        counting.now_ns = br_host_unix_ns(table->node->host);
    br_arena_init(&reader->arena, 0);
    reader->own.arena = reader->resource.arena = &reader->arena;
    int rc = br_item_rewrite(item, 1u << BR_LEVEL_RECORD, count_on_span, &counting);
    br_arena_release(&reader->arena);
    return rc ? item->n_records : counting.n_uncounted;
}

void span_metrics_reader_release(struct span_metrics_reader *reader)
{
    br_attributes_release(&reader->own);
    br_attributes_release(&reader->resource);
    br_arena_release(&reader->arena);
    br_str_release(&reader->text);
}
