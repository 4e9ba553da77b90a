/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Zipkin's JSON of version 1 (zipkin.io/zipkin-api/zipkin-api.yaml). */
#include <string.h>

#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"

static int zipkin_v1_endpoint(struct zipkin_reading *reading, const struct br_json_scan *whole,
                              const struct zipkin_member *member, struct zipkin_v1_endpoint *ret)
{
    struct zipkin_member members[] = {
        {.name = "serviceName"}, {.name = "ipv4"}, {.name = "ipv6"}, {.name = "port"}, {0}};
    struct br_json_scan scan = br_json_part_scan(whole, member->part);
    *ret = (struct zipkin_v1_endpoint){0};
    if (member->value.type == BR_JSON_NULL)
        return 0;
    if (member->value.type != BR_JSON_OBJECT)
        return zipkin_fail(reading, "%s must be an object", member->name);
    int rc = zipkin_json_object(reading, &scan, member->name, members);
    if (!rc)
        rc = zipkin_json_text(reading, &members[0], &ret->service);
    if (!rc)
        rc = zipkin_json_text(reading, &members[1], &ret->ipv4);
    if (!rc)
        rc = zipkin_json_text(reading, &members[2], &ret->ipv6);
    return rc ? rc : zipkin_json_integer(reading, &members[3], INT16_MIN, UINT16_MAX, &ret->port);
}

struct annotations {
    struct zipkin_reading *reading;
    struct zipkin_v1_span *span;
};

static int zipkin_v1_on_annotation(void *arg, struct br_json_scan *scan)
{
    struct annotations *annotations = arg;
    struct zipkin_reading *reading = annotations->reading;
    struct zipkin_member members[] = {
        {.name = "timestamp"}, {.name = "value"}, {.name = "endpoint"}, {0}};
    struct zipkin_v1_endpoint endpoint;
    struct zipkin_text value;
    int64_t timestamp_us = 0;
    int rc = zipkin_json_object(reading, scan, "an annotation", members);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[0], INT64_MIN, INT64_MAX, &timestamp_us);
    if (!rc)
        rc = zipkin_json_text(reading, &members[1], &value);
    if (!rc)
        rc = zipkin_v1_endpoint(reading, scan, &members[2], &endpoint);
    if (!rc)
        zipkin_v1_annotate(reading, annotations->span, timestamp_us, value, &endpoint);
    return rc;
}

/* Reads the value of a binary annotation. Clients also send booleans and numbers. */
static int zipkin_v1_value(struct zipkin_reading *reading, const struct zipkin_member *member,
                           struct br_tag *tag)
{
    struct zipkin_text text = {"", 0};
    int rc = 0;
    if (member->value.type == BR_JSON_TRUE || member->value.type == BR_JSON_FALSE) {
        tag->type = BR_VALUE_BOOL;
        tag->number = member->value.type == BR_JSON_TRUE;
        return 0;
    }
    if (member->value.type == BR_JSON_NUMBER) {
        zipkin_read_number(&member->value, tag);
        return 0;
    }
    rc = zipkin_json_text(reading, member, &text);
    tag->type = BR_VALUE_STRING;
    tag->data = (const uint8_t *)text.data;
    tag->len = (uint32_t)text.len;
    return rc;
}

static int zipkin_v1_on_binary(void *arg, struct br_json_scan *scan)
{
    struct annotations *annotations = arg;
    struct zipkin_reading *reading = annotations->reading;
    struct zipkin_member members[] = {
        {.name = "key"}, {.name = "value"}, {.name = "endpoint"}, {0}};
    struct zipkin_v1_endpoint endpoint;
    struct zipkin_text key;
    struct br_tag tag = {.type = BR_VALUE_EMPTY};
    int rc = zipkin_json_object(reading, scan, "a binary annotation", members);
    if (!rc)
        rc = zipkin_json_text(reading, &members[0], &key);
    if (!rc)
        rc = zipkin_v1_value(reading, &members[1], &tag);
    if (!rc)
        rc = zipkin_v1_endpoint(reading, scan, &members[2], &endpoint);
    if (rc || tag.type == BR_VALUE_EMPTY)
        return rc;
    tag.key = key.data;
    tag.key_len = (uint32_t)key.len;
    return zipkin_v1_add_tag(reading, annotations->span, tag, &endpoint);
}

static int zipkin_v1_list(struct zipkin_reading *reading, const struct br_json_scan *whole,
                          const struct zipkin_member *member, br_json_element_fn *fn,
                          struct zipkin_v1_span *span)
{
    struct annotations annotations = {reading, span};
    return zipkin_json_list(reading, whole, member, fn, &annotations);
}

enum { TRACE_ID, ID, PARENT_ID, NAME, TIMESTAMP, DURATION, ANNOTATIONS, BINARY };

static int zipkin_v1_on_span(struct zipkin_reading *reading, struct br_json_scan *scan)
{
    struct zipkin_member members[] = {
        [TRACE_ID] = {.name = "traceId"},
        [ID] = {.name = "id"},
        [PARENT_ID] = {.name = "parentId"},
        [NAME] = {.name = "name"},
        [TIMESTAMP] = {.name = "timestamp"},
        [DURATION] = {.name = "duration"},
        [ANNOTATIONS] = {.name = "annotations"},
        [BINARY] = {.name = "binaryAnnotations"},
        [BINARY + 1] = {0},
    };
    struct zipkin_v1_span span = {0};
    int rc = zipkin_json_object(reading, scan, "a span", members);
    if (!rc)
        rc = zipkin_json_trace_id(reading, &members[TRACE_ID], &span.trace_high, &span.trace_low);
    if (!rc)
        rc = zipkin_json_id(reading, &members[ID], &span.id);
    if (!rc)
        rc = zipkin_json_id(reading, &members[PARENT_ID], &span.parent_id);
    if (!rc)
        rc = zipkin_json_text(reading, &members[NAME], &span.name);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[TIMESTAMP], INT64_MIN, INT64_MAX,
                                 &span.timestamp_us);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[DURATION], INT64_MIN, INT64_MAX,
                                 &span.duration_us);
    if (!rc)
        rc = zipkin_v1_list(reading, scan, &members[ANNOTATIONS], zipkin_v1_on_annotation, &span);
    if (!rc)
        rc = zipkin_v1_list(reading, scan, &members[BINARY], zipkin_v1_on_binary, &span);
    return rc ? rc : zipkin_v1_end_span(reading, &span);
}

int zipkin_read_v1_json(struct zipkin_reading *reading, const uint8_t *data, size_t len)
{
    return zipkin_json_spans(reading, data, len, zipkin_v1_on_span);
}
