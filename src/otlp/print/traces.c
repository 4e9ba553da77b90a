/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "otlp/print/internal.h"
#include "otlp/print/print.h"

#define SPANS 2u /* field number of ResourceSpans.scope_spans and of ScopeSpans.spans */
#define TRACE(name) opentelemetry__proto__trace__v1__##name##__descriptor
#define PB(name) Opentelemetry__Proto__Trace__V1__##name

static void print_kind(struct br_printer *p, int kind)
{
    static const char *const names[] = {"Unspecified", "Internal", "Server",
                                        "Client",      "Producer", "Consumer"};
    if (kind >= 0 && kind < 6)
        br_print_line(p, "    Kind           : %s", names[kind]);
    else
        br_print_line(p, "    Kind           : %d", kind);
}

static void print_status(struct br_printer *p, const PB(Status) * status)
{
    static const char *const names[] = {"Unset", "Ok", "Error"};
    int code = status ? (int)status->code : 0;
    if (code >= 0 && code < 3)
        br_print_line(p, "    Status code    : %s", names[code]);
    else
        br_print_line(p, "    Status code    : %d", code);
    const char *message = status ? status->message : "";
    br_print_named_text(p, "    Status message : ", message, strlen(message));
}

static void print_dropped(struct br_printer *p, const char *what, uint32_t n)
{
    if (n > 0)
        br_print_line(p, "    %s: %" PRIu32, what, n);
}

static void print_events(struct br_printer *p, const PB(Span) * span)
{
    if (span->n_events > 0)
        br_print_line(p, "Events:");
    for (size_t i = 0; i < span->n_events && !p->full; i++) {
        const PB(Span__Event) *e = span->events[i];
        br_print_line(p, "SpanEvent #%zu", i);
        br_print_named_text(p, "     -> Name: ", e->name, strlen(e->name));
        br_print_named_time(p, "     -> Timestamp: ", e->time_unix_nano);
        br_print_line(p, "     -> DroppedAttributesCount: %" PRIu32, e->dropped_attributes_count);
        br_print_attributes(p, "     -> Attributes:", "          ", e->attributes, e->n_attributes);
    }
}

static void print_links(struct br_printer *p, const PB(Span) * span)
{
    if (span->n_links > 0)
        br_print_line(p, "Links:");
    for (size_t i = 0; i < span->n_links && !p->full; i++) {
        const PB(Span__Link) *l = span->links[i];
        br_print_line(p, "SpanLink #%zu", i);
        br_print_named_id(p, "     -> Trace ID: ", l->trace_id);
        br_print_named_id(p, "     -> ID: ", l->span_id);
        br_print_named_text(p, "     -> TraceState: ", l->trace_state, strlen(l->trace_state));
        br_print_line(p, "     -> DroppedAttributesCount: %" PRIu32, l->dropped_attributes_count);
        br_print_attributes(p, "     -> Attributes:", "          ", l->attributes, l->n_attributes);
    }
}

static void print_head(struct br_printer *p, const PB(Span) * span)
{
    br_print_named_id(p, "    Trace ID       : ", span->trace_id);
    br_print_named_id(p, "    Parent ID      : ", span->parent_span_id);
    br_print_named_id(p, "    ID             : ", span->span_id);
    br_print_named_text(p, "    Name           : ", span->name, strlen(span->name));
    print_kind(p, (int)span->kind);
    if (span->trace_state[0])
        br_print_named_text(p, "    TraceState     : ", span->trace_state,
                            strlen(span->trace_state));
    br_print_named_time(p, "    Start time     : ", span->start_time_unix_nano);
    br_print_named_time(p, "    End time       : ", span->end_time_unix_nano);
    print_status(p, span->status);
    print_dropped(p, "DroppedAttributesCount", span->dropped_attributes_count);
    print_dropped(p, "DroppedEventsCount", span->dropped_events_count);
    print_dropped(p, "DroppedLinksCount", span->dropped_links_count);
}

static void print_span(struct br_printer *p, unsigned index, const uint8_t *data, size_t len)
{
    br_print_line(p, "Span #%u", index);
    const PB(Span) *span = br_print_unpack(p, &TRACE(span), data, len);
    if (span) {
        print_head(p, span);
        br_print_attributes(p, "Attributes:", "     ", span->attributes, span->n_attributes);
        print_events(p, span);
        print_links(p, span);
    }
    br_arena_release(&p->scratch);
}

static void print_scope_spans(struct br_printer *p, unsigned index, const uint8_t *data, size_t len)
{
    br_print_line(p, "ScopeSpans #%u", index);
    const PB(ScopeSpans) *head = br_print_unpack_head(p, &TRACE(scope_spans), data, len, SPANS, 0);
    if (head)
        br_print_scope(p, head->scope, head->schema_url);
    br_arena_release(&p->scratch);
    br_print_each(p, data, len, SPANS, print_span);
}

static void print_part(struct br_printer *p, unsigned index, const struct br_part *part,
                       const uint8_t *body, size_t len)
{
    br_print_line(p, "ResourceSpans #%u", index);
    const BR_PB_RESOURCE *resource = br_print_part_resource(p, part);
    const PB(ResourceSpans) *head =
        br_print_unpack_head(p, &TRACE(resource_spans), body, len, SPANS, 1);
    if (head)
        br_print_resource(p, resource, head->schema_url);
    br_arena_release(&p->scratch);
    br_print_each(p, body, len, SPANS, print_scope_spans);
}

int br_print_traces(const struct br_item *item, struct br_str *out)
{
    struct br_printer p = {.out = out};
    return br_print_parts(&p, item, print_part);
}
