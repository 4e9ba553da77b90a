/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "otlp/print/internal.h"
#include "otlp/print/print.h"

/* Appends a duration, such as 1.5ms, in the largest unit in which it is at least 1. Trailing
 * zeros are omitted. */
static void brief_add_duration(struct br_str *out, uint64_t ns)
{
    static const struct {
        uint64_t ns;
        int digits;
        const char *name;
    } units[] = {{1000000000, 9, "s"}, {1000000, 6, "ms"}, {1000, 3, "us"}};
    for (size_t i = 0; i < 3; i++) {
        if (ns < units[i].ns)
            continue;
        uint64_t fraction = ns % units[i].ns;
        int digits = units[i].digits;
        for (; fraction && fraction % 10 == 0; fraction /= 10)
            digits--;
        br_str_printf(out, "%" PRIu64, ns / units[i].ns);
        if (fraction)
            br_str_printf(out, ".%0*" PRIu64, digits, fraction);
        br_str_puts(out, units[i].name);
        return;
    }
    br_str_printf(out, "%" PRIu64 "ns", ns);
}

static void brief_add_schema(struct br_printer *printer, struct br_entry schema_url)
{
    if (!schema_url.len)
        return;
    br_str_puts(printer->out, " [");
    br_print_text(printer->out, schema_url.data, schema_url.len);
    br_str_putc(printer->out, ']');
}

static void print_resource(struct br_printer *printer, unsigned index, const struct br_part *part,
                           struct br_entry body)
{
    struct br_print_fields fields;
    br_print_read(body, &fields);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s #%u",
                  printer->dictionary ? "ResourceProfiles" : "ResourceTraces", index);
    brief_add_schema(printer, br_print_bytes(&fields, BR_RESOURCES_SCHEMA_URL));
    br_print_pairs(printer, br_print_part_resource(part), BR_RESOURCE_ATTRIBUTES);
    br_print_end(printer);
}

static void print_scope(struct br_printer *printer, unsigned index, struct br_entry message)
{
    struct br_print_fields fields, scope_fields;
    br_print_read(message, &fields);
    struct br_entry scope = br_print_bytes(&fields, BR_SCOPES_SCOPE);
    br_print_read(scope, &scope_fields);
    struct br_entry name = br_print_bytes(&scope_fields, BR_SCOPE_NAME);
    struct br_entry version = br_print_bytes(&scope_fields, BR_SCOPE_VERSION);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s #%u", printer->dictionary ? "ScopeProfiles" : "ScopeTraces",
                  index);
    if (name.len) {
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, name.data, name.len);
    }
    if (version.len) {
        br_str_puts(printer->out, name.len ? "@" : " @");
        br_print_text(printer->out, version.data, version.len);
    }
    brief_add_schema(printer, br_print_bytes(&fields, BR_SCOPES_SCHEMA_URL));
    br_print_pairs(printer, scope, BR_SCOPE_ATTRIBUTES);
    br_print_end(printer);
}

/* --- Traces --------------------------------------------------------------------------------- */

static void brief_print_span(struct br_printer *printer, unsigned index, struct br_entry span)
{
    struct br_print_fields fields;
    (void)index;
    br_print_read(span, &fields);
    struct br_entry name = br_print_bytes(&fields, BR_SPAN_NAME);
    struct br_entry trace_id = br_print_bytes(&fields, BR_SPAN_TRACE_ID);
    struct br_entry span_id = br_print_bytes(&fields, BR_SPAN_SPAN_ID);
    uint64_t start = br_print_number(&fields, BR_SPAN_START_TIME);
    uint64_t end = br_print_number(&fields, BR_SPAN_END_TIME);
    if (!br_print_begin(printer))
        return;
    br_print_text(printer->out, name.data, name.len);
    br_str_putc(printer->out, ' ');
    br_str_hex(printer->out, trace_id.data, trace_id.len);
    br_str_putc(printer->out, ' ');
    br_str_hex(printer->out, span_id.data, span_id.len);
    br_str_putc(printer->out, ' ');
    brief_add_duration(printer->out, end > start ? end - start : 0);
    br_print_pairs(printer, span, BR_SPAN_ATTRIBUTES);
    br_print_end(printer);
}

static void brief_print_scope_spans(struct br_printer *printer, unsigned index,
                                    struct br_entry scope_spans)
{
    print_scope(printer, index, scope_spans);
    (void)br_print_each(printer, scope_spans, BR_SCOPES_RECORDS, brief_print_span);
}

static void print_spans_part(struct br_printer *printer, unsigned index, const struct br_part *part,
                             struct br_entry body)
{
    print_resource(printer, index, part, body);
    (void)br_print_each(printer, body, BR_RESOURCES_SCOPES, brief_print_scope_spans);
}

/* --- Profiles ------------------------------------------------------------------------------- */

static void brief_count_child(struct br_printer *printer, unsigned index, struct br_entry message)
{
    (void)printer;
    (void)index;
    (void)message;
}

static void brief_add_type(struct br_printer *printer, struct br_entry type)
{
    struct br_print_fields fields;
    br_print_read(type, &fields);
    struct br_entry name = br_print_string(printer, br_print_number(&fields, BR_VALUE_TYPE_TYPE));
    struct br_entry unit = br_print_string(printer, br_print_number(&fields, BR_VALUE_TYPE_UNIT));
    if (!name.len)
        return;
    br_str_putc(printer->out, ' ');
    br_print_text(printer->out, name.data, name.len);
    br_str_puts(printer->out, " (");
    br_print_text(printer->out, unit.data, unit.len);
    br_str_putc(printer->out, ')');
}

static void brief_add_attributes(struct br_printer *printer, struct br_entry profile)
{
    struct br_print_list list = br_print_list_of(profile, BR_PROFILE_ATTRIBUTES, false);
    struct br_keyvalue at;
    uint64_t index;
    while (!printer->out->failed && br_print_list_next(&list, &index)) {
        struct br_entry entry = br_print_entry(printer, BR_TABLE_ATTRIBUTE, index);
        if (entry.data && br_keyvalue_read_entry(entry.data, entry.len, &at))
            br_print_pair(printer, br_print_string(printer, at.key_index), at.value);
    }
}

static void brief_print_profile(struct br_printer *printer, unsigned index, struct br_entry profile)
{
    struct br_print_fields fields;
    (void)index;
    br_print_read(profile, &fields);
    struct br_entry id = br_print_bytes(&fields, BR_PROFILE_PROFILE_ID);
    if (!br_print_begin(printer))
        return;
    br_str_hex(printer->out, id.data, id.len);
    brief_add_type(printer, br_print_bytes(&fields, BR_PROFILE_SAMPLE_TYPE));
    br_str_putc(printer->out, ' ');
    brief_add_duration(printer->out, br_print_number(&fields, BR_PROFILE_DURATION));
    br_str_printf(printer->out, " samples=%u",
                  br_print_each(printer, profile, BR_PROFILE_SAMPLES, brief_count_child));
    brief_add_attributes(printer, profile);
    br_print_end(printer);
}

static void brief_print_scope_profiles(struct br_printer *printer, unsigned index,
                                       struct br_entry scope_profiles)
{
    print_scope(printer, index, scope_profiles);
    (void)br_print_each(printer, scope_profiles, BR_SCOPES_RECORDS, brief_print_profile);
}

static void brief_print_profiles_part(struct br_printer *printer, unsigned index,
                                      const struct br_part *part, struct br_entry body)
{
    print_resource(printer, index, part, body);
    (void)br_print_each(printer, body, BR_RESOURCES_SCOPES, brief_print_scope_profiles);
}

int br_print_brief(const struct br_item *item, struct br_str *out)
{
    struct br_arena arena;
    struct br_dictionary_view dictionary;
    struct br_printer p = {.out = out};
    if (item->signal == BR_TRACES)
        return br_print_parts(&p, item, print_spans_part);
    int rc = br_print_index(item, &arena, &dictionary);
    p.dictionary = &dictionary;
    if (rc == 0)
        rc = br_print_parts(&p, item, brief_print_profiles_part);
    br_arena_release(&arena);
    return rc;
}
