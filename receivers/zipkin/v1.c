/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts spans of Zipkin's version 1 to OTLP, as the Collector's pkg/translator/zipkin/zipkinv1
 * does.
 */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "receivers/zipkin/zipkin.h"

#define NS_PER_US 1000u
#define KIND_PRODUCER 4 /* value of Span.SpanKind */
#define PORT_MAX 24     /* size of the text of a port */

static const struct {
    const char *value;
    unsigned kind;
} core_annotations[] = {
    {"cs", BR_SPAN_KIND_CLIENT}, {"cr", BR_SPAN_KIND_CLIENT}, {"ss", BR_SPAN_KIND_SERVER},
    {"sr", BR_SPAN_KIND_SERVER}, {"ms", KIND_PRODUCER},       {"mr", BR_SPAN_KIND_CONSUMER},
};

/* Returns the kind of span in which the core annotation occurs; 0 for other annotations. */
static unsigned zipkin_v1_kind_of(struct zipkin_text value)
{
    for (size_t i = 0; i < BR_COUNT(core_annotations); i++)
        if (br_bytes_are(value.data, value.len, core_annotations[i].value))
            return core_annotations[i].kind;
    return 0;
}

static uint64_t zipkin_v1_ns(int64_t timestamp_us)
{
    return timestamp_us > 0 ? (uint64_t)timestamp_us * NS_PER_US : 0;
}

void zipkin_v1_annotate(struct zipkin_reading *reading, struct zipkin_v1_span *span,
                        int64_t timestamp_us, struct zipkin_text value,
                        const struct zipkin_v1_endpoint *endpoint)
{
    struct br_spans *spans = &reading->spans;
    unsigned kind = zipkin_v1_kind_of(value);
    if (!value.len)
        return;
    if (!span->has_times || timestamp_us < span->first_us)
        span->first_us = timestamp_us;
    if (!span->has_times || timestamp_us > span->last_us)
        span->last_us = timestamp_us;
    span->has_times = true;
    if (kind && !span->kind)
        span->kind = kind;
    if (kind && !span->has_endpoint && endpoint->service.len) {
        span->has_endpoint = true;
        span->endpoint = *endpoint;
    }
    if (kind)
        return;
    br_spans_open(spans, BR_SPAN_EVENTS);
    br_spans_fixed64(spans, BR_EVENT_TIME, zipkin_v1_ns(timestamp_us));
    br_spans_bytes(spans, BR_EVENT_NAME, value.data, value.len);
    br_spans_close(spans);
}

int zipkin_v1_add_tag(struct zipkin_reading *reading, struct zipkin_v1_span *span,
                      struct br_tag tag, const struct zipkin_v1_endpoint *endpoint)
{
    if (endpoint->service.len)
        span->service = endpoint->service;
    if (br_bytes_are(tag.key, tag.key_len, "lc")) {
        tag.key = "component";
        tag.key_len = sizeof "component" - 1;
        span->component = (struct zipkin_text){(const char *)tag.data, tag.len};
    }
    br_tag_rename(&tag, "http.status_code", "http.response.status_code");
    if (reading->parse_string_tags)
        zipkin_parse_tag(&tag);
    return br_tags_add(&reading->tags, &tag);
}

/* --- Status ----------------------------------------------------------------------------------- */

/* A status code and its message, of which either may be absent. */
struct status {
    bool known;
    int32_t code;
    const uint8_t *text;
    size_t len;
};

/* The statuses that the tags of a span contain, in the order of their precedence. */
enum { CENSUS, OTEL, ERROR, HTTP, STATUSES };

/* Reads an integer of 32 bits, which may be written as a string. */
static bool zipkin_v1_code(const struct br_tag *tag, int32_t *ret)
{
    struct br_tag copy = *tag;
    zipkin_parse_tag(&copy);
    int64_t value = (int64_t)copy.number;
    if (copy.type != BR_VALUE_INT || value < INT32_MIN || value > INT32_MAX)
        return false;
    *ret = (int32_t)value;
    return true;
}

static void zipkin_v1_message(const struct br_tag *tag, struct status *status)
{
    status->text = tag->data;
    status->len = tag->type == BR_VALUE_STRING ? tag->len : 0;
}

/* Reads a tag that describes the status. Drops the tag if it contains nothing but the status. */
static void zipkin_v1_read_status(struct br_tag *tag, struct status statuses[STATUSES])
{
    int32_t code;
    bool is_code = zipkin_v1_code(tag, &code);
    tag->dropped = true;
    if (br_bytes_are(tag->key, tag->key_len, "census.status_code")) {
        if (is_code) /* OpenCensus uses the code 0 for OK */
            statuses[CENSUS] = (struct status){true, code ? BR_SPAN_STATUS_ERROR : 1,
                                               statuses[CENSUS].text, statuses[CENSUS].len};
    } else if (br_bytes_are(tag->key, tag->key_len, "census.status_description") ||
               br_bytes_are(tag->key, tag->key_len, "opencensus.status_description")) {
        zipkin_v1_message(tag, &statuses[CENSUS]);
    } else if (br_bytes_are(tag->key, tag->key_len, "otel.status_code")) {
        if (is_code)
            statuses[OTEL] = (struct status){true, code, statuses[OTEL].text, statuses[OTEL].len};
    } else if (br_bytes_are(tag->key, tag->key_len, "otel.status_description")) {
        zipkin_v1_message(tag, &statuses[OTEL]);
    } else if (br_bytes_are(tag->key, tag->key_len, "error")) {
        statuses[ERROR] = (struct status){.known = true, .code = BR_SPAN_STATUS_ERROR};
    } else {
        tag->dropped = false;
        if (br_bytes_are(tag->key, tag->key_len, "http.status_message")) {
            zipkin_v1_message(tag, &statuses[HTTP]);
        } else if (is_code && br_bytes_are(tag->key, tag->key_len, "http.response.status_code")) {
            statuses[HTTP].known = true;
            statuses[HTTP].code = code >= 100 && code < 400 ? 0 : BR_SPAN_STATUS_ERROR;
        }
    }
}

static void zipkin_v1_put_status(struct zipkin_reading *reading)
{
    struct status statuses[STATUSES] = {{0}};
    int found = 0;
    for (uint32_t i = 0; i < reading->tags.count; i++)
        zipkin_v1_read_status(&reading->tags.items[i], statuses);
    while (found < STATUSES && !statuses[found].known)
        found++;
    if (found == STATUSES)
        return;
    const struct status *message = &statuses[found];
    if (found == ERROR)
        message = statuses[CENSUS].len ? &statuses[CENSUS] : &statuses[OTEL];
    br_spans_status(&reading->spans, (unsigned)statuses[found].code, message->text, message->len);
}

/* --- Spans ------------------------------------------------------------------------------------ */

static int zipkin_v1_resource(struct zipkin_reading *reading, struct zipkin_v1_span *span,
                              uint32_t *ret)
{
    static const struct zipkin_text unknown = {"unknown-service", sizeof "unknown-service" - 1};
    const struct zipkin_v1_endpoint *endpoint = &span->endpoint;
    struct br_tags *tags = &reading->resource;
    struct zipkin_text fallback = span->service.len ? span->service : span->component,
                       service = fallback.len ? fallback : unknown;
    char port[PORT_MAX];
    int port_len = snprintf(port, sizeof port, "%lld", (long long)endpoint->port);
    if (span->has_endpoint)
        service = endpoint->service;
    br_tags_clear(tags);
    int rc = br_tags_add_text(tags, "service.name", service.data, service.len);
    if (!rc && endpoint->ipv4.len)
        rc = br_tags_add_text(tags, "ipv4", endpoint->ipv4.data, endpoint->ipv4.len);
    if (!rc && endpoint->ipv6.len)
        rc = br_tags_add_text(tags, "ipv6", endpoint->ipv6.data, endpoint->ipv6.len);
    if (!rc && endpoint->port)
        rc = br_tags_add_text(tags, "port", port, (size_t)port_len);
    if (!rc)
        rc = br_tags_sort(tags);
    if (!rc)
        *ret = br_spans_resource(&reading->spans, tags);
    return rc;
}

/* Writes the times of the span. If the span has neither a timestamp nor annotations, it gets the
 * time at which the request arrived, and an attribute that marks the time as a substitute. */
static int zipkin_v1_put_times(struct zipkin_reading *reading, const struct zipkin_v1_span *span)
{
    static const char absent[] = "otel.zipkin.absentField.startTime";
    uint64_t start_ns = span->has_times ? zipkin_v1_ns(span->first_us) : 0,
             end_ns = span->has_times ? zipkin_v1_ns(span->last_us) : 0;
    int rc = 0;
    if (span->timestamp_us) {
        start_ns = zipkin_v1_ns(span->timestamp_us);
        end_ns =
            zipkin_v1_ns((int64_t)((uint64_t)span->timestamp_us + (uint64_t)span->duration_us));
    }
    if (!start_ns) {
        start_ns = end_ns = reading->reading->now_ns;
        rc = br_tags_add(&reading->tags, &(struct br_tag){.key = absent,
                                                          .key_len = sizeof absent - 1,
                                                          .type = BR_VALUE_BOOL,
                                                          .number = true});
    }
    br_spans_fixed64(&reading->spans, BR_SPAN_START_TIME, start_ns);
    br_spans_fixed64(&reading->spans, BR_SPAN_END_TIME, end_ns);
    return rc;
}

int zipkin_v1_end_span(struct zipkin_reading *reading, struct zipkin_v1_span *span)
{
    struct br_spans *spans = &reading->spans;
    uint32_t resource = 0;
    int rc = zipkin_check_ids(reading, span->trace_high, span->trace_low, span->id);
    if (!rc)
        rc = zipkin_v1_put_times(reading, span);
    if (!rc)
        rc = zipkin_v1_resource(reading, span, &resource);
    if (rc)
        return rc;
    br_spans_trace_id(spans, BR_SPAN_TRACE_ID, span->trace_high, span->trace_low);
    br_spans_span_id(spans, BR_SPAN_SPAN_ID, span->id);
    if (span->parent_id)
        br_spans_span_id(spans, BR_SPAN_PARENT_SPAN_ID, span->parent_id);
    br_spans_bytes(spans, BR_SPAN_NAME, span->name.data, span->name.len);
    if (span->kind)
        br_spans_varint(spans, BR_SPAN_KIND, span->kind);
    zipkin_v1_put_status(reading);
    rc = br_tags_sort(&reading->tags);
    if (rc)
        return rc;
    br_spans_attributes(spans, BR_SPAN_ATTRIBUTES, &reading->tags);
    br_spans_end(spans, resource, NULL, 0, NULL, 0);
    return spans->rc;
}
