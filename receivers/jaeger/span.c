/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts Jaeger's spans to OTLP, as the Collector's pkg/translator/jaeger does. README.md
 * describes the conversion.
 */
#include <string.h>
#include <strings.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "receivers/jaeger/jaeger.h"

#define NO_SERVICE "OTLPResourceNoServiceName"
#define HTTP_STATUS "http.response.status_code"
#define KIND_PRODUCER 4 /* value of Span.SpanKind */
#define STATUS_OK 1     /* value of Status.StatusCode */
#define FLAG_SAMPLED 1u /* bit of Span.flags: W3C's trace flag */

/* --- Tags ------------------------------------------------------------------------------------- */

int jaeger_add_tag(struct jaeger_reading *reading, struct br_tags *tags, struct br_tag tag,
                   const char *type_name)
{
    if (tag.type == BR_VALUE_EMPTY) {
        const char *text =
            br_arena_printf(&reading->scratch, "<Unknown Jaeger TagType \"%s\">", type_name);
        if (!text)
            return BR_ENOMEM;
        tag.type = BR_VALUE_STRING;
        tag.data = (const uint8_t *)text;
        tag.len = (uint32_t)strlen(text);
    }
    br_tag_rename(&tag, "http.status_code", HTTP_STATUS);
    return br_tags_add(tags, &tag);
}

/* Returns the length of a tag's string; 0 if the tag has another type. */
static size_t jaeger_span_text_len(const struct br_tag *tag)
{
    return tag->type == BR_VALUE_STRING ? tag->len : 0;
}

/* Returns the tag with this key and removes it from the attributes. Returns NULL if there is no
 * such tag. */
static const struct br_tag *jaeger_span_take(struct br_tags *tags, const char *key)
{
    struct br_tag *tag = br_tags_find(tags, key);
    if (tag)
        tag->dropped = true;
    return tag;
}

/* --- Resource --------------------------------------------------------------------------------- */

/* Gives the tag `old` the key `key`, unless a tag has that key already. */
static void jaeger_span_rename(struct br_tags *tags, const char *old, const char *key)
{
    struct br_tag *tag = br_tags_find(tags, old);
    if (tag && !br_tags_find(tags, key))
        br_tag_rename(tag, old, key);
}

/* Renames the tag jaeger.version, which contains the version of the client, to
 * opencensus.exporterversion, as the Collector does. */
static int jaeger_span_rename_version(struct jaeger_reading *reading)
{
    static const char key[] = "opencensus.exporterversion";
    struct br_tag *tag = br_tags_find(&reading->process, "jaeger.version");
    if (!tag || br_tags_find(&reading->process, key))
        return 0;
    const char *text = br_arena_printf(&reading->scratch, "Jaeger-%.*s",
                                       (int)jaeger_span_text_len(tag), (const char *)tag->data);
    if (!text)
        return BR_ENOMEM;
    *tag = (struct br_tag){.key = key,
                           .key_len = sizeof key - 1,
                           .type = BR_VALUE_STRING,
                           .data = (const uint8_t *)text,
                           .len = (uint32_t)strlen(text)};
    return 0;
}

int jaeger_resource(struct jaeger_reading *reading, const uint8_t *service, size_t service_len,
                    uint32_t *ret)
{
    struct br_tags *tags = &reading->process;
    int rc = 0;
    if (br_bytes_are(service, service_len, NO_SERVICE))
        br_tags_clear(tags);
    else if (service_len)
        rc = br_tags_add_text(tags, "service.name", (const char *)service, service_len);
    /* A tag with the same key precedes the name of the service. */
    if (!rc && service_len && tags->count > 1) {
        struct br_tag name = tags->items[tags->count - 1];
        memmove(tags->items + 1, tags->items, (tags->count - 1) * sizeof *tags->items);
        tags->items[0] = name;
    }
    if (!rc)
        rc = br_tags_sort(tags);
    if (rc)
        return rc;
    jaeger_span_rename(tags, "hostname", "host.name");
    rc = jaeger_span_rename_version(reading);
    if (!rc)
        *ret = br_spans_resource(&reading->spans, tags);
    return rc;
}

/* --- Events and links ------------------------------------------------------------------------- */

int jaeger_put_event(struct jaeger_reading *reading, uint64_t time_ns)
{
    struct br_spans *spans = &reading->spans;
    int rc = br_tags_sort(&reading->fields);
    if (rc)
        return rc;
    const struct br_tag *name = jaeger_span_take(&reading->fields, "event");
    br_spans_open(spans, BR_SPAN_EVENTS);
    br_spans_fixed64(spans, BR_EVENT_TIME, time_ns);
    if (name)
        br_spans_bytes(spans, BR_EVENT_NAME, name->data, jaeger_span_text_len(name));
    br_spans_attributes(spans, BR_EVENT_ATTRIBUTES, &reading->fields);
    br_spans_close(spans);
    return 0;
}

int jaeger_add_reference(struct jaeger_reading *reading, const struct jaeger_reference *reference)
{
    if (br_grow(&reading->references, &reading->cap_references, reading->n_references + (size_t)1,
                sizeof *reading->references, UINT32_MAX))
        return BR_ENOMEM;
    reading->references[reading->n_references++] = *reference;
    return 0;
}

/* Returns the id of the parent. If the span contains no parent id, this is the id in the first
 * CHILD_OF reference to the same trace, or else in the first FOLLOWS_FROM reference to it. Returns
 * 0 if the span has no parent. */
static uint64_t jaeger_span_parent(const struct jaeger_reading *reading,
                                   const struct jaeger_span *span)
{
    const struct jaeger_reference *follows = NULL;
    if (span->parent_id)
        return span->parent_id;
    for (uint32_t i = 0; i < reading->n_references; i++) {
        const struct jaeger_reference *reference = &reading->references[i];
        if (reference->trace_high != span->trace_high || reference->trace_low != span->trace_low)
            continue;
        if (!reference->follows)
            return reference->span_id;
        if (!follows)
            follows = reference;
    }
    return follows ? follows->span_id : 0;
}

/* Writes all references as links, except the reference to the parent. */
static void jaeger_span_put_links(struct jaeger_reading *reading, uint64_t parent_id)
{
    static const char key[] = "opentracing.ref_type";
    struct br_spans *spans = &reading->spans;
    for (uint32_t i = 0; i < reading->n_references; i++) {
        const struct jaeger_reference *reference = &reading->references[i];
        const char *type = reference->follows ? "follows_from" : "child_of";
        if (!reference->follows && reference->span_id == parent_id)
            continue;
        br_spans_open(spans, BR_SPAN_LINKS);
        br_spans_trace_id(spans, BR_SPAN_LINK_TRACE_ID, reference->trace_high,
                          reference->trace_low);
        br_spans_span_id(spans, BR_SPAN_LINK_SPAN_ID, reference->span_id);
        br_spans_attribute(spans, BR_SPAN_LINK_ATTRIBUTES,
                           &(struct br_tag){.key = key,
                                            .key_len = sizeof key - 1,
                                            .type = BR_VALUE_STRING,
                                            .data = (const uint8_t *)type,
                                            .len = (uint32_t)strlen(type)});
        br_spans_close(spans);
    }
}

/* --- Status ----------------------------------------------------------------------------------- */

struct status {
    bool known;
    unsigned code;
    const struct br_tag *text; /* status message; NULL: the status has no message */
};

static bool jaeger_span_http_code(const struct br_tag *tag, int64_t *ret)
{
    const char *text = (const char *)tag->data;
    uint64_t magnitude;
    if (tag->type == BR_VALUE_INT) {
        *ret = (int64_t)tag->number;
        return true;
    }
    if (!jaeger_span_text_len(tag))
        return false;
    bool negative = text[0] == '-';
    if (!br_decimal_parse(text + negative, tag->len - negative, INT64_MAX, &magnitude))
        return false;
    *ret = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* Returns the status of a span whose HTTP status is `code`, as the semantic conventions define it.
 * As in the Collector, 399 is an error. */
static unsigned jaeger_span_http_status(int64_t code, unsigned kind)
{
    if (code >= 400 && code < 500 && kind == BR_SPAN_KIND_SERVER)
        return 0;
    return code >= 100 && code < 399 ? 0 : BR_SPAN_STATUS_ERROR;
}

/* Reads the status from the tag `error` with the value true. */
static void jaeger_span_read_error(struct br_tags *tags, struct status *status)
{
    struct br_tag *error = br_tags_find(tags, "error");
    if (!error || error->type != BR_VALUE_BOOL || !error->number)
        return;
    error->dropped = true;
    status->known = true;
    status->code = BR_SPAN_STATUS_ERROR;
    status->text = jaeger_span_take(tags, "otel.status_description");
    if (!status->text)
        status->text = br_tags_find(tags, "http.status_message");
}

/* Reads the status from the tag otel.status_code. */
static void jaeger_span_read_code(struct br_tags *tags, const struct br_tag *code,
                                  struct status *status)
{
    size_t len = jaeger_span_text_len(code);
    status->known = true;
    if (br_bytes_are_nocase(code->data, len, "OK"))
        status->code = STATUS_OK;
    else if (br_bytes_are_nocase(code->data, len, "ERROR"))
        status->code = BR_SPAN_STATUS_ERROR;
    status->text = jaeger_span_take(tags, "otel.status_description");
}

static void jaeger_span_put_status(struct jaeger_reading *reading, unsigned kind)
{
    struct br_tags *tags = &reading->tags;
    struct status status = {.text = NULL};
    int64_t http;
    jaeger_span_read_error(tags, &status);
    const struct br_tag *code = jaeger_span_take(tags, "otel.status_code"),
                        *http_tag = br_tags_find(tags, HTTP_STATUS);
    if (code && !status.known) {
        jaeger_span_read_code(tags, code, &status);
    } else if (!code && !status.known && http_tag && jaeger_span_http_code(http_tag, &http)) {
        status.code = jaeger_span_http_status(http, kind);
        status.known = status.code != 0;
        status.text = br_tags_find(tags, "http.status_message");
    }
    size_t len = status.text ? jaeger_span_text_len(status.text) : 0;
    if (status.known && (status.code || len))
        br_spans_status(&reading->spans, status.code, len ? status.text->data : NULL, len);
}

/* --- Spans ------------------------------------------------------------------------------------ */

void jaeger_begin_span(struct jaeger_reading *reading)
{
    br_tags_clear(&reading->tags);
    reading->n_references = 0;
    br_arena_release(&reading->scratch);
    br_spans_begin(&reading->spans);
    reading->n_read++;
}

/* Reads the kind from the tag span.kind. Returns 0 if it is unknown. */
static unsigned jaeger_span_kind(struct br_tags *tags)
{
    static const struct {
        const char *name;
        unsigned kind;
    } kinds[] = {{"client", BR_SPAN_KIND_CLIENT},
                 {"server", BR_SPAN_KIND_SERVER},
                 {"producer", KIND_PRODUCER},
                 {"consumer", BR_SPAN_KIND_CONSUMER},
                 {"internal", BR_SPAN_KIND_INTERNAL}};
    const struct br_tag *tag = jaeger_span_take(tags, "span.kind");
    for (size_t i = 0; tag && i < BR_COUNT(kinds); i++)
        if (br_tag_is(tag, kinds[i].name))
            return kinds[i].kind;
    return 0;
}

static void jaeger_span_put_head(struct jaeger_reading *reading, const struct jaeger_span *span,
                                 uint64_t parent_id)
{
    struct br_spans *spans = &reading->spans;
    const struct br_tag *state =
        reading->takes_scope ? jaeger_span_take(&reading->tags, "w3c.tracestate") : NULL;
    br_spans_trace_id(spans, BR_SPAN_TRACE_ID, span->trace_high, span->trace_low);
    br_spans_span_id(spans, BR_SPAN_SPAN_ID, span->id);
    if (parent_id)
        br_spans_span_id(spans, BR_SPAN_PARENT_SPAN_ID, parent_id);
    if (state && jaeger_span_text_len(state))
        br_spans_bytes(spans, BR_SPAN_TRACE_STATE, state->data, state->len);
    br_spans_bytes(spans, BR_SPAN_NAME, span->name, span->name_len);
    br_spans_fixed64(spans, BR_SPAN_START_TIME, span->start_ns);
    br_spans_fixed64(spans, BR_SPAN_END_TIME, span->start_ns + span->duration_ns);
    if (span->sampled)
        br_spans_fixed32(spans, BR_SPAN_FLAGS, FLAG_SAMPLED);
}

int jaeger_end_span(struct jaeger_reading *reading, const struct jaeger_span *span,
                    uint32_t resource)
{
    struct br_spans *spans = &reading->spans;
    struct br_tags *tags = &reading->tags;
    const struct br_tag *name = NULL, *version = NULL;
    if ((!span->trace_high && !span->trace_low) || !span->id) {
        reading->n_invalid++;
        br_spans_undo(spans);
        return spans->rc;
    }
    int rc = br_tags_sort(tags);
    if (rc)
        return rc;
    uint64_t parent_id = jaeger_span_parent(reading, span);
    if (reading->takes_scope)
        name = jaeger_span_take(tags, "otel.scope.name");
    if (name)
        version = jaeger_span_take(tags, "otel.scope.version");
    unsigned kind = jaeger_span_kind(tags);
    jaeger_span_put_head(reading, span, parent_id);
    if (kind)
        br_spans_varint(spans, BR_SPAN_KIND, kind);
    jaeger_span_put_status(reading, kind);
    br_spans_attributes(spans, BR_SPAN_ATTRIBUTES, tags);
    jaeger_span_put_links(reading, parent_id);
    br_spans_end(spans, resource, name ? name->data : NULL, name ? jaeger_span_text_len(name) : 0,
                 version ? version->data : NULL, version ? jaeger_span_text_len(version) : 0);
    return spans->rc;
}
