/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "otlp/print/internal.h"
#include "otlp/print/print.h"

static void print_kind(struct br_printer *printer, int kind)
{
    static const char *const names[] = {"Unspecified", "Internal", "Server",
                                        "Client",      "Producer", "Consumer"};
    if (kind >= 0 && kind < 6)
        br_print_line(printer, "    Kind           : %s", names[kind]);
    else
        br_print_line(printer, "    Kind           : %d", kind);
}

static void print_status(struct br_printer *printer, struct br_entry status)
{
    static const char *const names[] = {"Unset", "Ok", "Error"};
    struct br_print_fields fields;
    br_print_read(status, &fields);
    int code = (int)br_print_number(&fields, BR_SPAN_STATUS_CODE);
    if (code >= 0 && code < 3)
        br_print_line(printer, "    Status code    : %s", names[code]);
    else
        br_print_line(printer, "    Status code    : %d", code);
    br_print_named_text(printer,
                        "    Status message : ", br_print_bytes(&fields, BR_SPAN_STATUS_MESSAGE));
}

static void print_traces_dropped(struct br_printer *printer, const char *what, uint64_t count)
{
    if (count > 0)
        br_print_line(printer, "    %s: %" PRIu32, what, (uint32_t)count);
}

static void print_event(struct br_printer *printer, unsigned index, struct br_entry event)
{
    struct br_print_fields fields;
    br_print_read(event, &fields);
    if (index == 0)
        br_print_line(printer, "Events:");
    br_print_line(printer, "SpanEvent #%u", index);
    br_print_named_text(printer, "     -> Name: ", br_print_bytes(&fields, BR_EVENT_NAME));
    br_print_named_time(printer, "     -> Timestamp: ", br_print_number(&fields, BR_EVENT_TIME));
    br_print_line(printer, "     -> DroppedAttributesCount: %" PRIu32,
                  (uint32_t)br_print_number(&fields, BR_EVENT_DROPPED_ATTRIBUTES));
    br_print_attributes(printer, "     -> Attributes:", "          ", event, BR_EVENT_ATTRIBUTES);
}

static void print_link(struct br_printer *printer, unsigned index, struct br_entry link)
{
    struct br_print_fields fields;
    br_print_read(link, &fields);
    if (index == 0)
        br_print_line(printer, "Links:");
    br_print_line(printer, "SpanLink #%u", index);
    br_print_named_id(printer,
                      "     -> Trace ID: ", br_print_bytes(&fields, BR_SPAN_LINK_TRACE_ID));
    br_print_named_id(printer, "     -> ID: ", br_print_bytes(&fields, BR_SPAN_LINK_SPAN_ID));
    br_print_named_text(printer,
                        "     -> TraceState: ", br_print_bytes(&fields, BR_SPAN_LINK_TRACE_STATE));
    br_print_line(printer, "     -> DroppedAttributesCount: %" PRIu32,
                  (uint32_t)br_print_number(&fields, BR_SPAN_LINK_DROPPED_ATTRIBUTES));
    br_print_attributes(printer, "     -> Attributes:", "          ", link,
                        BR_SPAN_LINK_ATTRIBUTES);
}

static void print_traces_head(struct br_printer *printer, struct br_entry span)
{
    struct br_print_fields fields;
    br_print_read(span, &fields);
    br_print_named_id(printer, "    Trace ID       : ", br_print_bytes(&fields, BR_SPAN_TRACE_ID));
    br_print_named_id(printer,
                      "    Parent ID      : ", br_print_bytes(&fields, BR_SPAN_PARENT_SPAN_ID));
    br_print_named_id(printer, "    ID             : ", br_print_bytes(&fields, BR_SPAN_SPAN_ID));
    br_print_named_text(printer, "    Name           : ", br_print_bytes(&fields, BR_SPAN_NAME));
    print_kind(printer, (int)br_print_number(&fields, BR_SPAN_KIND));
    struct br_entry trace_state = br_print_bytes(&fields, BR_SPAN_TRACE_STATE);
    if (trace_state.len)
        br_print_named_text(printer, "    TraceState     : ", trace_state);
    br_print_named_time(printer,
                        "    Start time     : ", br_print_number(&fields, BR_SPAN_START_TIME));
    br_print_named_time(printer,
                        "    End time       : ", br_print_number(&fields, BR_SPAN_END_TIME));
    print_status(printer, br_print_bytes(&fields, BR_SPAN_STATUS));
    print_traces_dropped(printer, "DroppedAttributesCount",
                         br_print_number(&fields, BR_SPAN_DROPPED_ATTRIBUTES));
    print_traces_dropped(printer, "DroppedEventsCount",
                         br_print_number(&fields, BR_SPAN_DROPPED_EVENTS));
    print_traces_dropped(printer, "DroppedLinksCount",
                         br_print_number(&fields, BR_SPAN_DROPPED_LINKS));
}

static void print_traces_span(struct br_printer *printer, unsigned index, struct br_entry span)
{
    br_print_line(printer, "Span #%u", index);
    print_traces_head(printer, span);
    br_print_attributes(printer, "Attributes:", "     ", span, BR_SPAN_ATTRIBUTES);
    (void)br_print_each(printer, span, BR_SPAN_EVENTS, print_event);
    (void)br_print_each(printer, span, BR_SPAN_LINKS, print_link);
}

static void print_traces_scope_spans(struct br_printer *printer, unsigned index,
                                     struct br_entry scope_spans)
{
    struct br_print_fields fields;
    br_print_read(scope_spans, &fields);
    br_print_line(printer, "ScopeSpans #%u", index);
    br_print_scope(printer, &fields);
    (void)br_print_each(printer, scope_spans, BR_SCOPES_RECORDS, print_traces_span);
}

static void print_traces_part(struct br_printer *printer, unsigned index,
                              const struct br_part *part, struct br_entry body)
{
    struct br_print_fields fields;
    br_print_read(body, &fields);
    br_print_line(printer, "ResourceSpans #%u", index);
    br_print_resource(printer, br_print_part_resource(part),
                      br_print_bytes(&fields, BR_RESOURCES_SCHEMA_URL));
    (void)br_print_each(printer, body, BR_RESOURCES_SCOPES, print_traces_scope_spans);
}

int br_print_traces(const struct br_item *item, struct br_str *out)
{
    struct br_printer p = {.out = out};
    return br_print_parts(&p, item, print_traces_part);
}
