/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Zipkin's protobuf format of version 2 (openzipkin/zipkin-api, zipkin.proto). */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"
#include "wire/protobuf.h"

enum { LIST_SPANS = 1 };
enum {
    SPAN_TRACE_ID = 1,
    SPAN_PARENT_ID = 2,
    SPAN_ID = 3,
    SPAN_KIND = 4,
    SPAN_NAME = 5,
    SPAN_TIMESTAMP = 6,
    SPAN_DURATION = 7,
    SPAN_LOCAL_ENDPOINT = 8,
    SPAN_REMOTE_ENDPOINT = 9,
    SPAN_ANNOTATIONS = 10,
    SPAN_TAGS = 11,
};
enum { ENDPOINT_SERVICE_NAME = 1, ENDPOINT_IPV4 = 2, ENDPOINT_IPV6 = 3, ENDPOINT_PORT = 4 };
enum { ANNOTATION_TIMESTAMP = 1, ANNOTATION_VALUE = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };

/* Reads the next field of a message. `lens` is the bit set of the field numbers that must be
 * length-delimited. Returns BR_EINVAL if the field is malformed or not length-delimited although it
 * must be. Returns 1 at the end of the message. */
static int zipkin_proto_next(struct zipkin_reading *reading, const uint8_t **p, const uint8_t *end,
                             uint32_t lens, struct br_field *ret)
{
    if (*p == end)
        return 1;
    const uint8_t *next = br_field_next(*p, end, ret);
    if (!next)
        return zipkin_fail(reading, "the protobuf message is malformed");
    *p = next;
    if (ret->number < 32 && (lens >> ret->number & 1) && ret->wire != BR_WIRE_LEN)
        return zipkin_fail(reading, "field %u has a wrong wire type", ret->number);
    return 0;
}

static int zipkin_proto_id(struct zipkin_reading *reading, const char *what,
                           const struct br_field *field, uint64_t *ret)
{
    if (field->value != 8 && field->value != 0)
        return zipkin_fail(reading, "%s must have 8 bytes", what);
    *ret = field->value ? __builtin_bswap64(br_load64(field->data)) : 0;
    return 0;
}

static int zipkin_proto_trace_id(struct zipkin_reading *reading, const struct br_field *field,
                                 struct zipkin_span *span)
{
    /* The schema also permits 8 bytes. The Collector rejects such an id; Braid accepts it. */
    if (field->value != 8 && field->value != 16)
        return zipkin_fail(reading, "trace_id must have 16 or 8 bytes");
    span->trace_high = field->value == 16 ? __builtin_bswap64(br_load64(field->data)) : 0;
    span->trace_low = __builtin_bswap64(br_load64(field->data + field->value - 8));
    return 0;
}

static struct zipkin_text zipkin_proto_text(const struct br_field *field)
{
    return (struct zipkin_text){(const char *)field->data, (size_t)field->value};
}

static int zipkin_proto_endpoint(struct zipkin_reading *reading, const struct br_field *message,
                                 struct zipkin_endpoint *ret)
{
    const uint8_t *p = message->data, *end = br_field_end(message);
    const uint32_t lens = 1u << ENDPOINT_SERVICE_NAME | 1u << ENDPOINT_IPV4 | 1u << ENDPOINT_IPV6;
    struct br_field field;
    int rc;
    while (!(rc = zipkin_proto_next(reading, &p, end, lens, &field))) {
        if (field.number == ENDPOINT_SERVICE_NAME)
            ret->service = zipkin_proto_text(&field);
        else if (field.number == ENDPOINT_IPV4)
            zipkin_put_address(field.data, (size_t)field.value, ret->ipv4);
        else if (field.number == ENDPOINT_IPV6)
            zipkin_put_address(field.data, (size_t)field.value, ret->ipv6);
        else if (field.number == ENDPOINT_PORT && field.wire == BR_WIRE_VARINT)
            ret->port = (uint16_t)field.value;
    }
    return rc < 0 ? rc : 0;
}

static int zipkin_proto_annotation(struct zipkin_reading *reading, const struct br_field *message)
{
    const uint8_t *p = message->data, *end = br_field_end(message);
    struct zipkin_text value = {"", 0};
    uint64_t timestamp_us = 0;
    struct br_field field;
    int rc;
    while (!(rc = zipkin_proto_next(reading, &p, end, 1u << ANNOTATION_VALUE, &field))) {
        if (field.number == ANNOTATION_TIMESTAMP)
            timestamp_us = field.value;
        else if (field.number == ANNOTATION_VALUE)
            value = zipkin_proto_text(&field);
    }
    return rc < 0 ? rc : zipkin_put_event(reading, timestamp_us, value);
}

static int zipkin_proto_tag(struct zipkin_reading *reading, const struct br_field *message)
{
    const uint8_t *p = message->data, *end = br_field_end(message);
    struct br_tag tag = {.type = BR_VALUE_STRING, .key = "", .data = (const uint8_t *)""};
    struct br_field field;
    int rc;
    while (
        !(rc = zipkin_proto_next(reading, &p, end, 1u << ENTRY_KEY | 1u << ENTRY_VALUE, &field))) {
        if (field.number == ENTRY_KEY) {
            tag.key = (const char *)field.data;
            tag.key_len = (uint32_t)field.value;
        } else if (field.number == ENTRY_VALUE) {
            tag.data = field.data;
            tag.len = (uint32_t)field.value;
        }
    }
    return rc < 0 ? rc : br_tags_add(&reading->tags, &tag);
}

static int zipkin_proto_field(struct zipkin_reading *reading, const struct br_field *field,
                              struct zipkin_span *span)
{
    switch (field->number) {
    case SPAN_TRACE_ID:
        return zipkin_proto_trace_id(reading, field, span);
    case SPAN_PARENT_ID:
        return zipkin_proto_id(reading, "parent_id", field, &span->parent_id);
    case SPAN_ID:
        return zipkin_proto_id(reading, "id", field, &span->id);
    case SPAN_KIND:
        span->kind = field->value <= ZIPKIN_CONSUMER ? (enum zipkin_kind)field->value : ZIPKIN_NONE;
        return 0;
    case SPAN_NAME:
        span->name = zipkin_proto_text(field);
        return 0;
    case SPAN_TIMESTAMP:
        span->timestamp_us = field->value;
        return 0;
    case SPAN_DURATION:
        span->duration_us = field->value;
        return 0;
    case SPAN_LOCAL_ENDPOINT:
        return zipkin_proto_endpoint(reading, field, &span->local);
    case SPAN_REMOTE_ENDPOINT:
        return zipkin_proto_endpoint(reading, field, &span->remote);
    case SPAN_ANNOTATIONS:
        return zipkin_proto_annotation(reading, field);
    case SPAN_TAGS:
        return zipkin_proto_tag(reading, field);
    default:
        return 0;
    }
}

static int zipkin_proto_span(struct zipkin_reading *reading, const struct br_field *message)
{
    const uint32_t lens = 1u << SPAN_TRACE_ID | 1u << SPAN_PARENT_ID | 1u << SPAN_ID |
                          1u << SPAN_NAME | 1u << SPAN_LOCAL_ENDPOINT | 1u << SPAN_REMOTE_ENDPOINT |
                          1u << SPAN_ANNOTATIONS | 1u << SPAN_TAGS;
    const uint8_t *p = message->data, *end = br_field_end(message);
    struct zipkin_span span = {0};
    struct br_field field;
    int rc;
    zipkin_begin_span(reading);
    while (!(rc = zipkin_proto_next(reading, &p, end, lens, &field)))
        if ((rc = zipkin_proto_field(reading, &field, &span)))
            return rc;
    return rc < 0 ? rc : zipkin_end_span(reading, &span);
}

int zipkin_read_v2_proto(struct zipkin_reading *reading, const uint8_t *data, size_t len)
{
    const uint8_t *p = data, *end = data + len;
    struct br_field field;
    int rc;
    while (!(rc = zipkin_proto_next(reading, &p, end, 1u << LIST_SPANS, &field)))
        if (field.number == LIST_SPANS && (rc = zipkin_proto_span(reading, &field)))
            return rc;
    return rc < 0 ? rc : 0;
}
