/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts spans of Zipkin's version 2 to OTLP, as the Collector's pkg/translator/zipkin/zipkinv2
 * does. README.md describes the conversion.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"

#define LINKS_MAX 128
#define NS_PER_US 1000u
#define NO_SERVICE "OTLPResourceNoServiceName"
#define SERVICE_NAME_SOURCE "otlp.service.name.source"

/* Keys of the tags that become attributes of the Resource, sorted. The Collector moves the same
 * tags. */
static const char *const resource_keys[] = {
    "aws.ecs.cluster.arn",
    "aws.ecs.container.arn",
    "aws.ecs.launchtype",
    "aws.ecs.task.arn",
    "aws.ecs.task.family",
    "aws.ecs.task.revision",
    "aws.eks.cluster.arn",
    "aws.log.group.arns",
    "aws.log.group.names",
    "aws.log.stream.arns",
    "aws.log.stream.names",
    "cloud.account.id",
    "cloud.availability_zone",
    "cloud.platform",
    "cloud.provider",
    "cloud.region",
    "cloud.resource_id",
    "container.id",
    "container.image.name",
    "container.image.tag",
    "container.name",
    "container.runtime",
    "deployment.environment",
    "device.id",
    "device.manufacturer",
    "device.model.identifier",
    "device.model.name",
    "faas.instance",
    "faas.max_memory",
    "faas.name",
    "faas.version",
    "host.arch",
    "host.id",
    "host.image.id",
    "host.image.name",
    "host.image.version",
    "host.name",
    "host.type",
    "k8s.cluster.name",
    "k8s.container.name",
    "k8s.container.restart_count",
    "k8s.cronjob.name",
    "k8s.cronjob.uid",
    "k8s.daemonset.name",
    "k8s.daemonset.uid",
    "k8s.deployment.name",
    "k8s.deployment.uid",
    "k8s.job.name",
    "k8s.job.uid",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.node.uid",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.replicaset.name",
    "k8s.replicaset.uid",
    "k8s.statefulset.name",
    "k8s.statefulset.uid",
    "opencensus.exporterversion",
    "opencensus.resourcetype",
    "opencensus.starttime",
    "os.description",
    "os.name",
    "os.type",
    "os.version",
    "process.command",
    "process.command_args",
    "process.command_line",
    "process.executable.name",
    "process.executable.path",
    "process.owner",
    "process.pid",
    "process.runtime.description",
    "process.runtime.name",
    "process.runtime.version",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.auto.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
    "webengine.description",
    "webengine.name",
    "webengine.version",
};

int zipkin_fail(struct zipkin_reading *reading, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return br_err_set(&reading->reading->err, BR_EINVAL, "span %u: %s", reading->n_spans, text);
}

void zipkin_begin_span(struct zipkin_reading *reading)
{
    reading->n_spans++;
    br_arena_release(&reading->scratch);
    br_tags_clear(&reading->tags);
    br_spans_begin(&reading->spans);
}

void *zipkin_alloc(struct zipkin_reading *reading, size_t size)
{
    void *memory = br_arena_alloc(&reading->scratch, size);
    if (!memory)
        (void)br_err_set(&reading->reading->err, BR_ENOMEM, "out of memory");
    return memory;
}

int zipkin_check_ids(struct zipkin_reading *reading, uint64_t trace_high, uint64_t trace_low,
                     uint64_t id)
{
    if (!trace_high && !trace_low)
        return zipkin_fail(reading, "the trace id is missing or zero");
    return id ? 0 : zipkin_fail(reading, "the span id is missing or zero");
}

/* --- Encoded events and links ----------------------------------------------------------------- */

/* Splits "head|{attributes}|dropped" at its first and last "|", and reads the attributes into
 * reading->more. Returns BR_EINVAL if the text does not have this form. */
static int zipkin_span_split(struct zipkin_reading *reading, struct zipkin_text text,
                             size_t *ret_head, uint64_t *ret_dropped)
{
    const char *end = text.data + text.len, *first = memchr(text.data, '|', text.len),
               *last = first ? memrchr(text.data, '|', text.len) : NULL;
    if (!first || first == last ||
        !br_decimal_parse(last + 1, (size_t)(end - last - 1), UINT32_MAX, ret_dropped))
        return BR_EINVAL;
    *ret_head = (size_t)(first - text.data);
    return zipkin_read_members(reading, first + 1, (size_t)(last - first - 1), &reading->more);
}

int zipkin_put_event(struct zipkin_reading *reading, uint64_t timestamp_us,
                     struct zipkin_text value)
{
    struct br_spans *spans = &reading->spans;
    size_t name_len = value.len;
    uint64_t dropped = 0;
    int rc = zipkin_span_split(reading, value, &name_len, &dropped);
    if (rc == BR_ENOMEM)
        return rc;
    br_spans_open(spans, BR_SPAN_EVENTS);
    br_spans_fixed64(spans, BR_EVENT_TIME, timestamp_us * NS_PER_US);
    br_spans_bytes(spans, BR_EVENT_NAME, value.data, name_len);
    if (!rc)
        br_spans_attributes(spans, BR_EVENT_ATTRIBUTES, &reading->more);
    if (!rc && dropped)
        br_spans_varint(spans, BR_EVENT_DROPPED_ATTRIBUTES, dropped);
    br_spans_close(spans);
    return 0;
}

/* Parses an id of exactly `digits` hex digits, possibly in quotes. An empty text is read as the id
 * 0. */
static bool zipkin_span_read_id(const char *text, size_t len, size_t digits, uint64_t *ret_high,
                                uint64_t *ret_low)
{
    if (len >= 2 && text[0] == '"' && text[len - 1] == '"') {
        text++;
        len -= 2;
    }
    *ret_high = *ret_low = 0;
    if (len == 0)
        return true;
    if (len != digits)
        return false;
    return (len == 16 || zipkin_parse_hex(text, len - 16, ret_high)) &&
           zipkin_parse_hex(text + len - 16, 16, ret_low);
}

/* Writes the link of a tag "trace id|span id|tracestate|{attributes}|dropped". Returns BR_EINVAL
 * and writes nothing if the value has another form. */
static int zipkin_span_put_link(struct zipkin_reading *reading, const struct br_tag *tag)
{
    struct br_spans *spans = &reading->spans;
    const char *at = (const char *)tag->data, *end = at + tag->len, *fields[3];
    uint64_t trace_high, trace_low, none, id, dropped;
    size_t lens[3], head;
    for (int i = 0; i < 3; i++) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        if (!bar)
            return BR_EINVAL;
        fields[i] = at;
        lens[i] = (size_t)(bar - at);
        at = i < 2 ? bar + 1 : bar;
    }
    if (!zipkin_span_read_id(fields[0], lens[0], 32, &trace_high, &trace_low) ||
        !zipkin_span_read_id(fields[1], lens[1], 16, &none, &id))
        return BR_EINVAL;
    int rc =
        zipkin_span_split(reading, (struct zipkin_text){at, (size_t)(end - at)}, &head, &dropped);
    if (rc)
        return rc;
    br_spans_open(spans, BR_SPAN_LINKS);
    br_spans_trace_id(spans, BR_SPAN_LINK_TRACE_ID, trace_high, trace_low);
    br_spans_span_id(spans, BR_SPAN_LINK_SPAN_ID, id);
    if (lens[2])
        br_spans_bytes(spans, BR_SPAN_LINK_TRACE_STATE, fields[2], lens[2]);
    br_spans_attributes(spans, BR_SPAN_LINK_ATTRIBUTES, &reading->more);
    if (dropped)
        br_spans_varint(spans, BR_SPAN_LINK_DROPPED_ATTRIBUTES, dropped);
    br_spans_close(spans);
    return 0;
}

/* Writes the tags otlp.link.0, otlp.link.1 and so on as links. */
static int zipkin_span_put_links(struct zipkin_reading *reading)
{
    for (int i = 0; i < LINKS_MAX; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "otlp.link.%d", i);
        struct br_tag *tag = br_tags_find(&reading->tags, key);
        if (!tag)
            break;
        int rc = zipkin_span_put_link(reading, tag);
        if (rc == BR_ENOMEM)
            return rc;
        tag->dropped = rc == 0;
    }
    return 0;
}

/* --- Resource and scope ----------------------------------------------------------------------- */

static int zipkin_span_compare_key(const void *key, const void *element)
{
    const struct br_tag *tag = key;
    const char *name = *(const char *const *)element;
    size_t len = strlen(name), shorter = tag->key_len < len ? tag->key_len : len;
    int difference = memcmp(tag->key, name, shorter);
    return difference ? difference : (tag->key_len > len) - (tag->key_len < len);
}

static bool zipkin_span_is_of_resource(const struct br_tag *tag)
{
    return tag->key_len && bsearch(tag, resource_keys, BR_COUNT(resource_keys),
                                   sizeof *resource_keys, zipkin_span_compare_key);
}

/* Moves the tags of the Resource to reading->resource, and sets `*ret` to the Resource. */
static int zipkin_span_resource(struct zipkin_reading *reading, struct zipkin_text service,
                                uint32_t *ret)
{
    struct br_tags *tags = &reading->tags, *resource = &reading->resource;
    struct br_tag *source = br_tags_find(tags, SERVICE_NAME_SOURCE);
    struct br_tag name = {.key = "service.name",
                          .key_len = sizeof "service.name" - 1,
                          .type = BR_VALUE_STRING,
                          .data = (const uint8_t *)service.data,
                          .len = (uint32_t)service.len};
    int rc = 0;
    br_tags_clear(resource);
    if (source && source->len) {
        name.key = (const char *)source->data;
        name.key_len = source->len;
    }
    if (source)
        source->dropped = true;
    if (service.len && !br_bytes_are(service.data, service.len, NO_SERVICE))
        rc = br_tags_add(resource, &name);
    for (uint32_t i = 0; i < tags->count && !rc; i++) {
        struct br_tag *tag = &tags->items[i];
        if (tag->dropped || !zipkin_span_is_of_resource(tag))
            continue;
        rc = br_tags_add(resource, tag);
        tag->dropped = true;
    }
    if (!rc)
        rc = br_tags_sort(resource);
    if (!rc)
        *ret = br_spans_resource(&reading->spans, resource);
    return rc;
}

/* Returns the value of the tag `key` or, if there is no such tag, of `older`. Drops both tags. */
static struct zipkin_text zipkin_span_take(struct br_tags *tags, const char *key, const char *older)
{
    struct br_tag *tag = br_tags_find(tags, key), *old = br_tags_find(tags, older),
                  *found = tag ? tag : old;
    if (tag)
        tag->dropped = true;
    if (old)
        old->dropped = true;
    return found ? (struct zipkin_text){(const char *)found->data, found->len}
                 : (struct zipkin_text){NULL, 0};
}

/* --- Spans ------------------------------------------------------------------------------------ */

static void zipkin_span_put_status(struct zipkin_reading *reading)
{
    static const struct {
        const char *name;
        unsigned code;
    } codes[] = {{"STATUS_CODE_OK", 1},
                 {"STATUS_CODE_ERROR", BR_SPAN_STATUS_ERROR},
                 {"Ok", 1},
                 {"Error", BR_SPAN_STATUS_ERROR}};
    struct br_tag *code = br_tags_find(&reading->tags, "otel.status_code"),
                  *error = br_tags_find(&reading->tags, "error"),
                  *text = code ? br_tags_find(&reading->tags, "otel.status_description") : NULL;
    unsigned status = 0;
    for (size_t i = 0; code && i < BR_COUNT(codes); i++)
        if (br_bytes_are_nocase(code->data, code->len, codes[i].name))
            status = codes[i].code;
    if (code)
        code->dropped = true;
    if (text)
        text->dropped = true;
    if (error) {
        status = BR_SPAN_STATUS_ERROR;
        error->dropped = br_tag_is(error, "true");
    }
    if (status || (text && text->len))
        br_spans_status(&reading->spans, status, text ? text->data : NULL, text ? text->len : 0);
}

static void zipkin_span_put_kind(struct zipkin_reading *reading, enum zipkin_kind kind)
{
    /* values of Span.SpanKind */
    static const unsigned kinds[] = {[ZIPKIN_CLIENT] = BR_SPAN_KIND_CLIENT,
                                     [ZIPKIN_SERVER] = BR_SPAN_KIND_SERVER,
                                     [ZIPKIN_PRODUCER] = 4,
                                     [ZIPKIN_CONSUMER] = BR_SPAN_KIND_CONSUMER};
    unsigned value = kinds[kind];
    struct br_tag *tag = kind ? NULL : br_tags_find(&reading->tags, "span.kind");
    if (tag) {
        tag->dropped = true;
        value = br_tag_is(tag, "internal") ? BR_SPAN_KIND_INTERNAL : 0;
    }
    if (value)
        br_spans_varint(&reading->spans, BR_SPAN_KIND, value);
}

static int zipkin_span_add_endpoint(struct br_tags *tags, const struct zipkin_endpoint *endpoint,
                                    const char *service_key, const char *address_key,
                                    const char *port_key)
{
    const char *address = endpoint->ipv6[0] ? endpoint->ipv6 : endpoint->ipv4;
    int rc = 0;
    if (service_key && endpoint->service.len)
        rc = br_tags_add_text(tags, service_key, endpoint->service.data, endpoint->service.len);
    if (!rc && address[0])
        rc = br_tags_add_text(tags, address_key, address, strlen(address));
    if (!rc && endpoint->port)
        rc = br_tags_add(tags, &(struct br_tag){.key = port_key,
                                                .key_len = (uint32_t)strlen(port_key),
                                                .type = BR_VALUE_INT,
                                                .number = endpoint->port});
    return rc;
}

/* Renames tags as the Collector does, adds the attributes that are not tags of the client, and
 * sorts the tags. */
static int zipkin_span_prepare(struct zipkin_reading *reading, const struct zipkin_span *span)
{
    static const char absent[] = "otel.zipkin.absentField.startTime";
    struct br_tags *tags = &reading->tags;
    for (uint32_t i = 0; i < tags->count; i++) {
        br_tag_rename(&tags->items[i], "http.status_code", "http.response.status_code");
        br_tag_rename(&tags->items[i], "faas.id", "cloud.resource_id");
    }
    int rc = zipkin_span_add_endpoint(tags, &span->local, NULL, "network.local.address",
                                      "net.host.port");
    if (!rc)
        rc = zipkin_span_add_endpoint(tags, &span->remote, "service.peer.name",
                                      "network.peer.address", "net.peer.port");
    if (!rc && !span->timestamp_us)
        rc = br_tags_add(tags, &(struct br_tag){.key = absent,
                                                .key_len = sizeof absent - 1,
                                                .type = BR_VALUE_BOOL,
                                                .number = true});
    return rc ? rc : br_tags_sort(tags);
}

static void zipkin_span_put_head(struct zipkin_reading *reading, const struct zipkin_span *span)
{
    struct br_spans *spans = &reading->spans;
    struct br_tag *state = br_tags_find(&reading->tags, "w3c.tracestate");
    uint64_t start_ns = span->timestamp_us * NS_PER_US;
    br_spans_trace_id(spans, BR_SPAN_TRACE_ID, span->trace_high, span->trace_low);
    br_spans_span_id(spans, BR_SPAN_SPAN_ID, span->id);
    if (state) {
        br_spans_bytes(spans, BR_SPAN_TRACE_STATE, state->data, state->len);
        state->dropped = true;
    }
    if (span->parent_id && span->parent_id != span->id)
        br_spans_span_id(spans, BR_SPAN_PARENT_SPAN_ID, span->parent_id);
    br_spans_bytes(spans, BR_SPAN_NAME, span->name.data, span->name.len);
    br_spans_fixed64(spans, BR_SPAN_START_TIME, start_ns);
    br_spans_fixed64(spans, BR_SPAN_END_TIME, start_ns + span->duration_us * NS_PER_US);
}

int zipkin_end_span(struct zipkin_reading *reading, const struct zipkin_span *span)
{
    struct br_tags *tags = &reading->tags;
    struct br_spans *spans = &reading->spans;
    uint32_t n_tags = tags->count, resource = 0;
    int rc = zipkin_check_ids(reading, span->trace_high, span->trace_low, span->id);
    if (!rc)
        rc = zipkin_span_prepare(reading, span);
    if (!rc) {
        zipkin_span_put_head(reading, span);
        zipkin_span_put_kind(reading, span->kind);
        zipkin_span_put_status(reading);
        rc = zipkin_span_put_links(reading);
    }
    if (!rc)
        rc = zipkin_span_resource(reading, span->local.service, &resource);
    if (rc)
        return rc;
    struct zipkin_text name = zipkin_span_take(tags, "otel.scope.name", "otel.library.name"),
                       version =
                           zipkin_span_take(tags, "otel.scope.version", "otel.library.version");
    for (uint32_t i = 0; i < n_tags && reading->parse_string_tags; i++)
        zipkin_parse_tag(&tags->items[i]);
    br_spans_attributes(spans, BR_SPAN_ATTRIBUTES, tags);
    br_spans_end(spans, resource, name.data, name.len, version.data, name.len ? version.len : 0);
    return spans->rc;
}
