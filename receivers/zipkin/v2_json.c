/* SPDX-License-Identifier: Apache-2.0 */
/* Reads Zipkin's JSON of version 2 (zipkin.io/zipkin-api/zipkin2-api.yaml). */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"

#define TIME_MAX INT64_MAX

static int zipkin_v2_address(struct zipkin_reading *reading, const struct zipkin_member *member,
                             char out[ZIPKIN_ADDRESS_MAX])
{
    struct zipkin_text text;
    int rc = zipkin_json_text(reading, member, &text);
    if (rc || !text.len)
        return rc;
    return zipkin_parse_address(text, out)
               ? 0
               : zipkin_fail(reading, "%s must be an IP address", member->name);
}

static int zipkin_v2_endpoint(struct zipkin_reading *reading, const struct br_json_scan *whole,
                              const struct zipkin_member *member, struct zipkin_endpoint *ret)
{
    struct zipkin_member members[] = {
        {.name = "serviceName"}, {.name = "ipv4"}, {.name = "ipv6"}, {.name = "port"}, {0}};
    struct br_json_scan scan = br_json_part_scan(whole, member->part);
    int64_t port = 0;
    if (member->value.type == BR_JSON_NULL)
        return 0;
    if (member->value.type != BR_JSON_OBJECT)
        return zipkin_fail(reading, "%s must be an object", member->name);
    int rc = zipkin_json_object(reading, &scan, member->name, members);
    if (!rc)
        rc = zipkin_json_text(reading, &members[0], &ret->service);
    if (!rc)
        rc = zipkin_v2_address(reading, &members[1], ret->ipv4);
    if (!rc)
        rc = zipkin_v2_address(reading, &members[2], ret->ipv6);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[3], 0, UINT16_MAX, &port);
    ret->port = (uint32_t)port;
    return rc;
}

static int zipkin_v2_on_annotation(void *arg, struct br_json_scan *scan)
{
    struct zipkin_reading *reading = arg;
    struct zipkin_member members[] = {{.name = "timestamp"}, {.name = "value"}, {0}};
    struct zipkin_text value;
    int64_t timestamp_us = 0;
    int rc = zipkin_json_object(reading, scan, "an annotation", members);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[0], 0, TIME_MAX, &timestamp_us);
    if (!rc)
        rc = zipkin_json_text(reading, &members[1], &value);
    return rc ? rc : zipkin_put_event(reading, (uint64_t)timestamp_us, value);
}

struct tags {
    struct zipkin_reading *reading;
    int rc;
};

static void zipkin_v2_on_tag(void *arg, const struct br_json_scan *scan,
                             const struct br_json_token *name, const struct br_json_token *value)
{
    struct tags *tags = arg;
    struct zipkin_text key, text = {"", 0};
    (void)scan;
    if (!tags->rc && value->type != BR_JSON_STRING && value->type != BR_JSON_NULL)
        tags->rc = zipkin_fail(tags->reading, "the tag %.*s must be a string",
                               (int)(name->len < 100 ? name->len : 100), name->text);
    if (!tags->rc)
        tags->rc = zipkin_json_plain(tags->reading, name, &key);
    if (!tags->rc && value->type == BR_JSON_STRING)
        tags->rc = zipkin_json_plain(tags->reading, value, &text);
    if (!tags->rc)
        tags->rc =
            br_tags_add(&tags->reading->tags, &(struct br_tag){.key = key.data,
                                                               .key_len = (uint32_t)key.len,
                                                               .type = BR_VALUE_STRING,
                                                               .data = (const uint8_t *)text.data,
                                                               .len = (uint32_t)text.len});
}

static int zipkin_v2_tags(struct zipkin_reading *reading, const struct br_json_scan *whole,
                          const struct zipkin_member *member)
{
    struct tags tags = {.reading = reading};
    struct br_json_scan scan = br_json_part_scan(whole, member->part);
    if (member->value.type == BR_JSON_NULL)
        return 0;
    if (member->value.type != BR_JSON_OBJECT)
        return zipkin_fail(reading, "%s must be an object", member->name);
    int rc = br_json_members(&scan, zipkin_v2_on_tag, &tags);
    return rc ? rc : tags.rc;
}

static int zipkin_v2_kind(struct zipkin_reading *reading, const struct zipkin_member *member,
                          enum zipkin_kind *ret)
{
    static const char *const names[] = {[ZIPKIN_NONE] = "",
                                        [ZIPKIN_CLIENT] = "CLIENT",
                                        [ZIPKIN_SERVER] = "SERVER",
                                        [ZIPKIN_PRODUCER] = "PRODUCER",
                                        [ZIPKIN_CONSUMER] = "CONSUMER"};
    struct zipkin_text text;
    int rc = zipkin_json_text(reading, member, &text);
    for (size_t i = 0; !rc && i < BR_COUNT(names); i++)
        if (br_bytes_are(text.data, text.len, names[i]))
            *ret = (enum zipkin_kind)i;
    return rc;
}

enum { TRACE_ID, ID, PARENT_ID, NAME, KIND, TIMESTAMP, DURATION, LOCAL, REMOTE, ANNOTATIONS, TAGS };

static int zipkin_v2_head(struct zipkin_reading *reading, const struct zipkin_member *members,
                          struct zipkin_span *span)
{
    int64_t timestamp_us = 0, duration_us = 0;
    int rc = zipkin_json_trace_id(reading, &members[TRACE_ID], &span->trace_high, &span->trace_low);
    if (!rc)
        rc = zipkin_json_id(reading, &members[ID], &span->id);
    if (!rc)
        rc = zipkin_json_id(reading, &members[PARENT_ID], &span->parent_id);
    if (!rc)
        rc = zipkin_json_text(reading, &members[NAME], &span->name);
    if (!rc)
        rc = zipkin_v2_kind(reading, &members[KIND], &span->kind);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[TIMESTAMP], 0, TIME_MAX, &timestamp_us);
    if (!rc)
        rc = zipkin_json_integer(reading, &members[DURATION], 0, TIME_MAX, &duration_us);
    span->timestamp_us = (uint64_t)timestamp_us;
    span->duration_us = (uint64_t)duration_us;
    return rc;
}

static int zipkin_v2_on_span(struct zipkin_reading *reading, struct br_json_scan *scan)
{
    struct zipkin_member members[] = {
        [TRACE_ID] = {.name = "traceId"},
        [ID] = {.name = "id"},
        [PARENT_ID] = {.name = "parentId"},
        [NAME] = {.name = "name"},
        [KIND] = {.name = "kind"},
        [TIMESTAMP] = {.name = "timestamp"},
        [DURATION] = {.name = "duration"},
        [LOCAL] = {.name = "localEndpoint"},
        [REMOTE] = {.name = "remoteEndpoint"},
        [ANNOTATIONS] = {.name = "annotations"},
        [TAGS] = {.name = "tags"},
        [TAGS + 1] = {0},
    };
    struct zipkin_span span = {0};
    int rc = zipkin_json_object(reading, scan, "a span", members);
    if (!rc)
        rc = zipkin_v2_head(reading, members, &span);
    if (!rc)
        rc = zipkin_v2_endpoint(reading, scan, &members[LOCAL], &span.local);
    if (!rc)
        rc = zipkin_v2_endpoint(reading, scan, &members[REMOTE], &span.remote);
    if (!rc)
        rc = zipkin_json_list(reading, scan, &members[ANNOTATIONS], zipkin_v2_on_annotation,
                              reading);
    if (!rc)
        rc = zipkin_v2_tags(reading, scan, &members[TAGS]);
    return rc ? rc : zipkin_end_span(reading, &span);
}

int zipkin_read_v2_json(struct zipkin_reading *reading, const uint8_t *data, size_t len)
{
    return zipkin_json_spans(reading, data, len, zipkin_v2_on_span);
}
