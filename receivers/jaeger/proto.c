/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Jaeger's protobuf messages (jaegertracing/jaeger-idl, proto/api_v2/model.proto and
 * collector.proto). */
#include <stdio.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "receivers/jaeger/jaeger.h"
#include "wire/protobuf.h"

#define NS_PER_S 1000000000u

enum { REQUEST_BATCH = 1 };
enum { BATCH_SPANS = 1, BATCH_PROCESS = 2 };
enum { PROCESS_SERVICE = 1, PROCESS_TAGS = 2 };
enum {
    SPAN_TRACE_ID = 1,
    SPAN_ID,
    SPAN_NAME,
    SPAN_REFERENCES,
    SPAN_FLAGS,
    SPAN_START,
    SPAN_DURATION,
    SPAN_TAGS,
    SPAN_LOGS,
    SPAN_PROCESS,
};
enum { REFERENCE_TRACE_ID = 1, REFERENCE_SPAN_ID = 2, REFERENCE_TYPE = 3 };
enum { LOG_TIMESTAMP = 1, LOG_FIELDS = 2 };
enum { TAG_KEY = 1, TAG_TYPE, TAG_STRING, TAG_BOOL, TAG_INT, TAG_DOUBLE, TAG_BINARY };
enum { TIME_SECONDS = 1, TIME_NANOS = 2 };

/* A message whose fields are being read in order. */
struct message {
    struct jaeger_reading *reading;
    const uint8_t *at, *end;
    uint32_t lens; /* bit set of the numbers of fields that must be length-delimited */
};

static struct message jaeger_proto_message(struct jaeger_reading *reading,
                                           const struct br_field *field, uint32_t lens)
{
    return (struct message){reading, field->data, br_field_end(field), lens};
}

/* Reads the next field. Returns 1 at the end of the message. Returns BR_EINVAL if the field is
 * malformed or has a wrong wire type. */
static int jaeger_proto_next(struct message *message, struct br_field *ret)
{
    struct br_err *err = &message->reading->reading->err;
    if (message->at == message->end)
        return 1;
    const uint8_t *next = br_field_next(message->at, message->end, ret);
    if (!next)
        return br_err_set(err, BR_EINVAL, "the protobuf message is malformed");
    message->at = next;
    bool is_len = ret->wire == BR_WIRE_LEN;
    if (ret->number < 32 && (message->lens >> ret->number & 1) && !is_len)
        return br_err_set(err, BR_EINVAL, "field %u has a wrong wire type", ret->number);
    return 0;
}

/* --- Values ----------------------------------------------------------------------------------- */

/* Reads a span id of 8 bytes, or a trace id of 8 or 16 bytes. An absent id is valid. */
static int jaeger_proto_id(struct jaeger_reading *reading, const struct br_field *field,
                           uint64_t *ret_high, uint64_t *ret_low)
{
    bool valid = field->value == 8 || field->value == 0 || (ret_high && field->value == 16);
    if (!valid)
        return br_err_set(&reading->reading->err, BR_EINVAL,
                          ret_high ? "a trace id must have 16 or 8 bytes"
                                   : "a span id must have 8 bytes");
    if (ret_high)
        *ret_high = field->value == 16 ? __builtin_bswap64(br_load64(field->data)) : 0;
    *ret_low = field->value ? __builtin_bswap64(br_load64(field->data + field->value - 8)) : 0;
    return 0;
}

/* Reads a Timestamp or a Duration as nanoseconds. */
static int jaeger_proto_time(struct jaeger_reading *reading, const struct br_field *field,
                             uint64_t *ret)
{
    struct message message = jaeger_proto_message(reading, field, 0);
    uint64_t seconds = 0, nanos = 0;
    struct br_field part;
    int rc;
    while (!(rc = jaeger_proto_next(&message, &part))) {
        if (part.number == TIME_SECONDS)
            seconds = part.value;
        else if (part.number == TIME_NANOS)
            nanos = part.value;
    }
    *ret = seconds * NS_PER_S + nanos;
    return rc < 0 ? rc : 0;
}

static int jaeger_proto_add_tag(struct jaeger_reading *reading, struct br_tags *into,
                                struct br_tag tag, uint64_t type, const struct br_field *values)
{
    /* value types in the order of the enum ValueType, and the field that contains the value of each
     * type */
    static const enum br_value_type types[] = {BR_VALUE_STRING, BR_VALUE_BOOL, BR_VALUE_INT,
                                               BR_VALUE_DOUBLE, BR_VALUE_BYTES};
    char name[24];
    (void)snprintf(name, sizeof name, "%d", (int)type);
    if (type < BR_COUNT(types)) {
        const struct br_field *value = &values[TAG_STRING + type];
        tag.type = types[type];
        tag.data = value->data;
        tag.len = value->data ? (uint32_t)value->value : 0;
        tag.number = tag.type == BR_VALUE_BOOL ? value->value != 0 : value->value;
    }
    return jaeger_add_tag(reading, into, tag, name);
}

static int jaeger_proto_tag(struct jaeger_reading *reading, const struct br_field *field,
                            struct br_tags *into)
{
    struct message message =
        jaeger_proto_message(reading, field, 1u << TAG_KEY | 1u << TAG_STRING | 1u << TAG_BINARY);
    struct br_field part, values[TAG_BINARY + 1] = {{0}};
    struct br_tag tag = {.type = BR_VALUE_EMPTY};
    int rc;
    while (!(rc = jaeger_proto_next(&message, &part)))
        if (part.number <= TAG_BINARY)
            values[part.number] = part;
    tag.key = (const char *)values[TAG_KEY].data;
    tag.key_len = (uint32_t)values[TAG_KEY].value;
    return rc < 0 ? rc : jaeger_proto_add_tag(reading, into, tag, values[TAG_TYPE].value, values);
}

/* --- Spans ------------------------------------------------------------------------------------ */

static int jaeger_proto_log(struct jaeger_reading *reading, const struct br_field *field)
{
    struct message message =
        jaeger_proto_message(reading, field, 1u << LOG_TIMESTAMP | 1u << LOG_FIELDS);
    uint64_t time_ns = 0;
    struct br_field part;
    int rc, failed = 0;
    br_tags_clear(&reading->fields);
    while (!failed && !(rc = jaeger_proto_next(&message, &part))) {
        if (part.number == LOG_TIMESTAMP)
            failed = jaeger_proto_time(reading, &part, &time_ns);
        else if (part.number == LOG_FIELDS)
            failed = jaeger_proto_tag(reading, &part, &reading->fields);
    }
    if (failed || rc < 0)
        return failed ? failed : rc;
    return jaeger_put_event(reading, time_ns);
}

static int jaeger_proto_reference(struct jaeger_reading *reading, const struct br_field *field)
{
    struct message message =
        jaeger_proto_message(reading, field, 1u << REFERENCE_TRACE_ID | 1u << REFERENCE_SPAN_ID);
    struct jaeger_reference reference = {0};
    struct br_field part;
    int rc, failed = 0;
    while (!failed && !(rc = jaeger_proto_next(&message, &part))) {
        if (part.number == REFERENCE_TRACE_ID)
            failed = jaeger_proto_id(reading, &part, &reference.trace_high, &reference.trace_low);
        else if (part.number == REFERENCE_SPAN_ID)
            failed = jaeger_proto_id(reading, &part, NULL, &reference.span_id);
        else if (part.number == REFERENCE_TYPE)
            reference.follows = part.value != 0;
    }
    if (failed || rc < 0)
        return failed ? failed : rc;
    return jaeger_add_reference(reading, &reference);
}

/* Reads a process and sets `*ret` to its Resource. */
static int jaeger_proto_process(struct jaeger_reading *reading, const struct br_field *field,
                                uint32_t *ret)
{
    struct message message =
        jaeger_proto_message(reading, field, 1u << PROCESS_SERVICE | 1u << PROCESS_TAGS);
    struct br_field part, service = {0};
    int rc, failed = 0;
    br_tags_clear(&reading->process);
    while (!failed && !(rc = jaeger_proto_next(&message, &part))) {
        if (part.number == PROCESS_SERVICE)
            service = part;
        else if (part.number == PROCESS_TAGS)
            failed = jaeger_proto_tag(reading, &part, &reading->process);
    }
    if (failed || rc < 0)
        return failed ? failed : rc;
    return jaeger_resource(reading, service.data, (size_t)service.value, ret);
}

static int jaeger_proto_span_field(struct jaeger_reading *reading, const struct br_field *field,
                                   struct jaeger_span *span, uint32_t *resource)
{
    switch (field->number) {
    case SPAN_TRACE_ID:
        return jaeger_proto_id(reading, field, &span->trace_high, &span->trace_low);
    case SPAN_ID:
        return jaeger_proto_id(reading, field, NULL, &span->id);
    case SPAN_NAME:
        span->name = field->data;
        span->name_len = (size_t)field->value;
        return 0;
    case SPAN_REFERENCES:
        return jaeger_proto_reference(reading, field);
    case SPAN_FLAGS:
        span->sampled = field->value & 1;
        return 0;
    case SPAN_START:
        return jaeger_proto_time(reading, field, &span->start_ns);
    case SPAN_DURATION:
        return jaeger_proto_time(reading, field, &span->duration_ns);
    case SPAN_TAGS:
        return jaeger_proto_tag(reading, field, &reading->tags);
    case SPAN_LOGS:
        return jaeger_proto_log(reading, field);
    case SPAN_PROCESS:
        return jaeger_proto_process(reading, field, resource);
    default:
        return 0;
    }
}

static int jaeger_proto_span(struct jaeger_reading *reading, const struct br_field *field,
                             uint32_t resource)
{
    struct message message =
        jaeger_proto_message(reading, field,
                             1u << SPAN_TRACE_ID | 1u << SPAN_ID | 1u << SPAN_NAME |
                                 1u << SPAN_REFERENCES | 1u << SPAN_START | 1u << SPAN_DURATION |
                                 1u << SPAN_TAGS | 1u << SPAN_LOGS | 1u << SPAN_PROCESS);
    struct jaeger_span span = {0};
    struct br_field part;
    int rc, failed = 0;
    jaeger_begin_span(reading);
    while (!failed && !(rc = jaeger_proto_next(&message, &part)))
        failed = jaeger_proto_span_field(reading, &part, &span, &resource);
    if (failed || rc < 0)
        return failed ? failed : rc;
    return jaeger_end_span(reading, &span, resource);
}

/* --- Batches ---------------------------------------------------------------------------------- */

static int jaeger_proto_batch(struct jaeger_reading *reading, const struct br_field *field)
{
    const uint32_t lens = 1u << BATCH_SPANS | 1u << BATCH_PROCESS;
    struct message message = jaeger_proto_message(reading, field, lens), again = message;
    uint32_t resource = 0;
    struct br_field part;
    br_tags_clear(&reading->process);
    int rc = 0, failed = jaeger_resource(reading, NULL, 0, &resource);
    /* The process may follow the spans, so it is read first. */
    while (!failed && !(rc = jaeger_proto_next(&again, &part)))
        if (part.number == BATCH_PROCESS)
            failed = jaeger_proto_process(reading, &part, &resource);
    while (!failed && !(rc = jaeger_proto_next(&message, &part)))
        if (part.number == BATCH_SPANS)
            failed = jaeger_proto_span(reading, &part, resource);
    return failed || rc > 0 ? failed : rc;
}

int jaeger_read_proto(struct jaeger_reading *reading, const uint8_t *data, size_t len)
{
    struct message message = {reading, data, data + len, 1u << REQUEST_BATCH};
    struct br_field part;
    int rc = 0, failed = 0;
    while (!failed && !(rc = jaeger_proto_next(&message, &part)))
        if (part.number == REQUEST_BATCH)
            failed = jaeger_proto_batch(reading, &part);
    return failed || rc > 0 ? failed : rc;
}
