/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "otlp/print/internal.h"
#include "otlp/print/print.h"

#define SPANS 2u /* field number of ResourceSpans.scope_spans and of ScopeSpans.spans */
#define TRACE(name) opentelemetry__proto__trace__v1__##name##__descriptor
#define PB(name) Opentelemetry__Proto__Trace__V1__##name

static void print_kind(struct br_printer *printer, int kind)
{
    static const char *const names[] = {"Unspecified", "Internal", "Server",
                                        "Client",      "Producer", "Consumer"};
    if (kind >= 0 && kind < 6)
        br_print_line(printer, "    Kind           : %s", names[kind]);
    else
        br_print_line(printer, "    Kind           : %d", kind);
}

static void print_status(struct br_printer *printer, const PB(Status) * status)
{
    static const char *const names[] = {"Unset", "Ok", "Error"};
    int code = status ? (int)status->code : 0;
    if (code >= 0 && code < 3)
        br_print_line(printer, "    Status code    : %s", names[code]);
    else
        br_print_line(printer, "    Status code    : %d", code);
    const char *message = status ? status->message : "";
    br_print_named_text(printer, "    Status message : ", message, strlen(message));
}

static void print_traces_dropped(struct br_printer *printer, const char *what, uint32_t count)
{
    if (count > 0)
        br_print_line(printer, "    %s: %" PRIu32, what, count);
}

static void print_events(struct br_printer *printer, const PB(Span) * span)
{
    if (span->n_events > 0)
        br_print_line(printer, "Events:");
    for (size_t i = 0; i < span->n_events && !printer->full; i++) {
        const PB(Span__Event) *e = span->events[i];
        br_print_line(printer, "SpanEvent #%zu", i);
        br_print_named_text(printer, "     -> Name: ", e->name, strlen(e->name));
        br_print_named_time(printer, "     -> Timestamp: ", e->time_unix_nano);
        br_print_line(printer, "     -> DroppedAttributesCount: %" PRIu32,
                      e->dropped_attributes_count);
        br_print_attributes(printer, "     -> Attributes:", "          ", e->attributes,
                            e->n_attributes);
    }
}

static void print_links(struct br_printer *printer, const PB(Span) * span)
{
    if (span->n_links > 0)
        br_print_line(printer, "Links:");
    for (size_t i = 0; i < span->n_links && !printer->full; i++) {
        const PB(Span__Link) *l = span->links[i];
        br_print_line(printer, "SpanLink #%zu", i);
        br_print_named_id(printer, "     -> Trace ID: ", l->trace_id);
        br_print_named_id(printer, "     -> ID: ", l->span_id);
        br_print_named_text(printer, "     -> TraceState: ", l->trace_state,
                            strlen(l->trace_state));
        br_print_line(printer, "     -> DroppedAttributesCount: %" PRIu32,
                      l->dropped_attributes_count);
        br_print_attributes(printer, "     -> Attributes:", "          ", l->attributes,
                            l->n_attributes);
    }
}

static void print_traces_head(struct br_printer *printer, const PB(Span) * span)
{
    br_print_named_id(printer, "    Trace ID       : ", span->trace_id);
    br_print_named_id(printer, "    Parent ID      : ", span->parent_span_id);
    br_print_named_id(printer, "    ID             : ", span->span_id);
    br_print_named_text(printer, "    Name           : ", span->name, strlen(span->name));
    print_kind(printer, (int)span->kind);
    if (span->trace_state[0])
        br_print_named_text(printer, "    TraceState     : ", span->trace_state,
                            strlen(span->trace_state));
    br_print_named_time(printer, "    Start time     : ", span->start_time_unix_nano);
    br_print_named_time(printer, "    End time       : ", span->end_time_unix_nano);
    print_status(printer, span->status);
    print_traces_dropped(printer, "DroppedAttributesCount", span->dropped_attributes_count);
    print_traces_dropped(printer, "DroppedEventsCount", span->dropped_events_count);
    print_traces_dropped(printer, "DroppedLinksCount", span->dropped_links_count);
}

static void print_traces_span(struct br_printer *printer, unsigned index, const uint8_t *data,
                              size_t len)
{
    br_print_line(printer, "Span #%u", index);
    const PB(Span) *span = br_print_unpack(printer, &TRACE(span), data, len);
    if (span) {
        print_traces_head(printer, span);
        br_print_attributes(printer, "Attributes:", "     ", span->attributes, span->n_attributes);
        print_events(printer, span);
        print_links(printer, span);
    }
    br_arena_release(&printer->scratch);
}

static void print_traces_scope_spans(struct br_printer *printer, unsigned index,
                                     const uint8_t *data, size_t len)
{
    br_print_line(printer, "ScopeSpans #%u", index);
    const PB(ScopeSpans) *head =
        br_print_unpack_head(printer, &TRACE(scope_spans), data, len, SPANS, 0);
    if (head)
        br_print_scope(printer, head->scope, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, data, len, SPANS, print_traces_span);
}

static void print_traces_part(struct br_printer *printer, unsigned index,
                              const struct br_part *part, const uint8_t *body, size_t len)
{
    br_print_line(printer, "ResourceSpans #%u", index);
    const BR_PB_RESOURCE *resource = br_print_part_resource(printer, part);
    const PB(ResourceSpans) *head =
        br_print_unpack_head(printer, &TRACE(resource_spans), body, len, SPANS, 1);
    if (head)
        br_print_resource(printer, resource, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, body, len, SPANS, print_traces_scope_spans);
}

int br_print_traces(const struct br_item *item, struct br_str *out)
{
    struct br_printer p = {.out = out};
    return br_print_parts(&p, item, print_traces_part);
}
