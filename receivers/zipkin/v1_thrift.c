/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Zipkin's Thrift of version 1: a list of spans in the binary protocol
 * (openzipkin/zipkin-api, thrift/zipkinCore.thrift). */
#include <string.h>

#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"
#include "wire/thrift.h"

enum { ENDPOINT_IPV4 = 1, ENDPOINT_PORT = 2, ENDPOINT_SERVICE = 3, ENDPOINT_IPV6 = 4 };
enum { ANNOTATION_TIMESTAMP = 1, ANNOTATION_VALUE = 2, ANNOTATION_HOST = 3 };
enum { BINARY_KEY = 1, BINARY_VALUE = 2, BINARY_TYPE = 3, BINARY_HOST = 4 };
enum { TYPE_BOOL, TYPE_BYTES, TYPE_I16, TYPE_I32, TYPE_I64, TYPE_DOUBLE, TYPE_STRING };
enum {
    SPAN_TRACE_ID = 1,
    SPAN_NAME = 3,
    SPAN_ID = 4,
    SPAN_PARENT_ID = 5,
    SPAN_ANNOTATIONS = 6,
    SPAN_BINARY_ANNOTATIONS = 8,
    SPAN_TIMESTAMP = 10,
    SPAN_DURATION = 11,
    SPAN_TRACE_ID_HIGH = 12,
};

/* The span that is being read, and the state of reading its request. */
struct state {
    struct zipkin_reading *reading;
    struct zipkin_v1_span *span;
};

static bool zipkin_thrift_is(const struct br_thrift_field *field, int id, enum br_thrift_type type)
{
    return field->id == id && field->type == type;
}

static int zipkin_thrift_text(struct br_thrift *thrift, struct zipkin_text *ret)
{
    const uint8_t *data;
    uint32_t len;
    int rc = br_thrift_string(thrift, &data, &len);
    if (!rc)
        *ret = (struct zipkin_text){(const char *)data, len};
    return rc;
}

/* Calls `read` for each struct of a list. */
typedef int zipkin_struct_fn(struct state *state, struct br_thrift *thrift);
static int zipkin_thrift_list(struct state *state, struct br_thrift *thrift, zipkin_struct_fn *read)
{
    uint8_t type;
    uint32_t count;
    int rc = br_thrift_list(thrift, &type, &count);
    if (!rc && count && type != BR_THRIFT_STRUCT)
        return zipkin_fail(state->reading, "a list has elements of a wrong type");
    for (uint32_t i = 0; i < count && !rc; i++)
        rc = read(state, thrift);
    return rc;
}

/* --- Endpoints -------------------------------------------------------------------------------- */

static int zipkin_thrift_address(struct zipkin_reading *reading, const void *bytes, size_t len,
                                 struct zipkin_text *ret)
{
    char *text = zipkin_alloc(reading, ZIPKIN_ADDRESS_MAX);
    if (!text)
        return BR_ENOMEM;
    zipkin_put_address(bytes, len, text);
    *ret = (struct zipkin_text){text, strlen(text)};
    return 0;
}

static int zipkin_thrift_endpoint(struct zipkin_reading *reading, struct br_thrift *thrift,
                                  struct zipkin_v1_endpoint *ret)
{
    struct br_thrift_field field = {0};
    struct zipkin_text ipv6 = {NULL, 0};
    int64_t ipv4 = 0, port = 0;
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (zipkin_thrift_is(&field, ENDPOINT_IPV4, BR_THRIFT_I32))
            rc = br_thrift_integer(thrift, field.type, &ipv4);
        else if (zipkin_thrift_is(&field, ENDPOINT_PORT, BR_THRIFT_I16))
            rc = br_thrift_integer(thrift, field.type, &port);
        else if (zipkin_thrift_is(&field, ENDPOINT_SERVICE, BR_THRIFT_STRING))
            rc = zipkin_thrift_text(thrift, &ret->service);
        else if (zipkin_thrift_is(&field, ENDPOINT_IPV6, BR_THRIFT_STRING))
            rc = zipkin_thrift_text(thrift, &ipv6);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    uint32_t bytes = __builtin_bswap32((uint32_t)ipv4);
    /* Thrift has no unsigned types: the port is sent as a signed number of 16 bits */
    ret->port = (uint16_t)port;
    if (!rc && ipv4)
        rc = zipkin_thrift_address(reading, &bytes, sizeof bytes, &ret->ipv4);
    return rc || !ipv6.len ? rc : zipkin_thrift_address(reading, ipv6.data, ipv6.len, &ret->ipv6);
}

/* --- Annotations ------------------------------------------------------------------------------ */

static int zipkin_thrift_annotation(struct state *state, struct br_thrift *thrift)
{
    struct br_thrift_field field = {0};
    struct zipkin_v1_endpoint endpoint = {0};
    struct zipkin_text value = {NULL, 0};
    int64_t timestamp_us = 0;
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (zipkin_thrift_is(&field, ANNOTATION_TIMESTAMP, BR_THRIFT_I64))
            rc = br_thrift_integer(thrift, field.type, &timestamp_us);
        else if (zipkin_thrift_is(&field, ANNOTATION_VALUE, BR_THRIFT_STRING))
            rc = zipkin_thrift_text(thrift, &value);
        else if (zipkin_thrift_is(&field, ANNOTATION_HOST, BR_THRIFT_STRUCT))
            rc = zipkin_thrift_endpoint(state->reading, thrift, &endpoint);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    if (!rc)
        zipkin_v1_annotate(state->reading, state->span, timestamp_us, value, &endpoint);
    return rc;
}

/* Sets the value of a tag to a number of `size` bytes. Does nothing if the value is shorter. */
static void zipkin_thrift_number(struct zipkin_text value, size_t size, enum br_value_type type,
                                 struct br_tag *tag)
{
    uint64_t number = 0;
    unsigned unused = (unsigned)(64 - 8 * size);
    if (!size || value.len < size)
        return;
    for (size_t i = 0; i < size; i++)
        number = number << 8 | (uint8_t)value.data[i];
    tag->type = type;
    tag->number = (uint64_t)((int64_t)(number << unused) >> unused);
}

/* Converts the value of a binary annotation. Bytes become a bytes value; the Collector stores them
 * as base64 text instead. A value that is too short for its type is ignored. */
static void zipkin_thrift_value(struct zipkin_text value, int64_t type, struct br_tag *tag)
{
    if (type == TYPE_STRING || type == TYPE_BYTES) {
        tag->type = type == TYPE_STRING ? BR_VALUE_STRING : BR_VALUE_BYTES;
        tag->data = (const uint8_t *)value.data;
        tag->len = (uint32_t)value.len;
    } else if (type == TYPE_BOOL) {
        tag->type = BR_VALUE_BOOL;
        tag->number = value.len == 1 && value.data[0] == 1;
    } else if (type == TYPE_DOUBLE) {
        zipkin_thrift_number(value, 8, BR_VALUE_DOUBLE, tag);
    } else if (type >= TYPE_I16 && type <= TYPE_I64) {
        zipkin_thrift_number(value, (size_t)1 << (type - TYPE_I16 + 1), BR_VALUE_INT, tag);
    }
}

static int zipkin_thrift_binary(struct state *state, struct br_thrift *thrift)
{
    struct br_thrift_field field = {0};
    struct zipkin_v1_endpoint endpoint = {0};
    struct zipkin_text key = {NULL, 0}, value = {NULL, 0};
    struct br_tag tag = {.type = BR_VALUE_EMPTY};
    int64_t type = TYPE_STRING;
    int rc;
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP) {
        if (zipkin_thrift_is(&field, BINARY_KEY, BR_THRIFT_STRING))
            rc = zipkin_thrift_text(thrift, &key);
        else if (zipkin_thrift_is(&field, BINARY_VALUE, BR_THRIFT_STRING))
            rc = zipkin_thrift_text(thrift, &value);
        else if (zipkin_thrift_is(&field, BINARY_TYPE, BR_THRIFT_I32))
            rc = br_thrift_integer(thrift, field.type, &type);
        else if (zipkin_thrift_is(&field, BINARY_HOST, BR_THRIFT_STRUCT))
            rc = zipkin_thrift_endpoint(state->reading, thrift, &endpoint);
        else
            rc = br_thrift_skip(thrift, field.type);
        if (rc)
            return rc;
    }
    zipkin_thrift_value(value, type, &tag);
    if (rc || tag.type == BR_VALUE_EMPTY)
        return rc;
    tag.key = key.data;
    tag.key_len = (uint32_t)key.len;
    return zipkin_v1_add_tag(state->reading, state->span, tag, &endpoint);
}

/* --- Spans ------------------------------------------------------------------------------------ */

/* Reads a field of a span. The integers are stored in `values`, which is indexed by their ids. */
static int zipkin_thrift_field(struct state *state, struct br_thrift *thrift,
                               const struct br_thrift_field *field, int64_t *values)
{
    const unsigned integers = 1u << SPAN_TRACE_ID | 1u << SPAN_ID | 1u << SPAN_PARENT_ID |
                              1u << SPAN_TIMESTAMP | 1u << SPAN_DURATION | 1u << SPAN_TRACE_ID_HIGH;
    bool known = field->id > 0 && field->id <= SPAN_TRACE_ID_HIGH;
    if (known && (integers >> field->id & 1) && field->type == BR_THRIFT_I64)
        return br_thrift_integer(thrift, field->type, &values[field->id]);
    if (zipkin_thrift_is(field, SPAN_NAME, BR_THRIFT_STRING))
        return zipkin_thrift_text(thrift, &state->span->name);
    if (zipkin_thrift_is(field, SPAN_ANNOTATIONS, BR_THRIFT_LIST))
        return zipkin_thrift_list(state, thrift, zipkin_thrift_annotation);
    if (zipkin_thrift_is(field, SPAN_BINARY_ANNOTATIONS, BR_THRIFT_LIST))
        return zipkin_thrift_list(state, thrift, zipkin_thrift_binary);
    return br_thrift_skip(thrift, field->type);
}

static int zipkin_thrift_span(struct state *request, struct br_thrift *thrift)
{
    struct zipkin_reading *reading = request->reading;
    struct zipkin_v1_span span = {0};
    struct state state = {reading, &span};
    struct br_thrift_field field = {0};
    int64_t values[SPAN_TRACE_ID_HIGH + 1] = {0};
    int rc;
    zipkin_begin_span(reading);
    while (!(rc = br_thrift_next(thrift, &field)) && field.type != BR_THRIFT_STOP)
        if ((rc = zipkin_thrift_field(&state, thrift, &field, values)))
            return rc;
    span.trace_high = (uint64_t)values[SPAN_TRACE_ID_HIGH];
    span.trace_low = (uint64_t)values[SPAN_TRACE_ID];
    span.id = (uint64_t)values[SPAN_ID];
    span.parent_id = (uint64_t)values[SPAN_PARENT_ID];
    span.timestamp_us = values[SPAN_TIMESTAMP];
    span.duration_us = values[SPAN_DURATION];
    return rc ? rc : zipkin_v1_end_span(reading, &span);
}

int zipkin_read_v1_thrift(struct zipkin_reading *reading, const uint8_t *data, size_t len)
{
    struct br_thrift thrift;
    struct state state = {.reading = reading};
    br_thrift_init(&thrift, BR_THRIFT_BINARY, data, len, &reading->reading->err);
    return zipkin_thrift_list(&state, &thrift, zipkin_thrift_span);
}
