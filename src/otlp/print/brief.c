/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "opentelemetry/proto/profiles/v1development/profiles.pb-c.h"
#include "opentelemetry/proto/trace/v1/trace.pb-c.h"
#include "otlp/print/internal.h"
#include "otlp/print/print.h"
#include "wire/protobuf.h"

#define CHILDREN 2u /* of resources, scopes and profiles in both signals */
#define ORIGINAL_PAYLOAD 10u
#define INDEX_COST 16u /* bytes of index for a byte of dictionary, and slack of the arena */
#define SPAN(name) Opentelemetry__Proto__Trace__V1__##name
#define PROFILE(name) Opentelemetry__Proto__Profiles__V1development__##name
#define SPAN_TYPE(name) opentelemetry__proto__trace__v1__##name##__descriptor
#define PROFILE_TYPE(name) opentelemetry__proto__profiles__v1development__##name##__descriptor

/* In the largest unit that it fills, without trailing zeros: 1.5ms. */
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
        uint64_t rest = ns % units[i].ns;
        int digits = units[i].digits;
        for (; rest && rest % 10 == 0; rest /= 10)
            digits--;
        br_str_printf(out, "%" PRIu64, ns / units[i].ns);
        if (rest)
            br_str_printf(out, ".%0*" PRIu64, digits, rest);
        br_str_puts(out, units[i].name);
        return;
    }
    br_str_printf(out, "%" PRIu64 "ns", ns);
}

static void brief_add_schema(struct br_printer *printer, const char *schema_url)
{
    if (!schema_url[0])
        return;
    br_str_puts(printer->out, " [");
    br_print_text(printer->out, schema_url, strlen(schema_url));
    br_str_putc(printer->out, ']');
}

static void print_resource(struct br_printer *printer, unsigned index, const struct br_part *part,
                           const char *schema_url)
{
    const BR_PB_RESOURCE *resource = br_print_part_resource(printer, part);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s #%u",
                  printer->dictionary ? "ResourceProfiles" : "ResourceTraces", index);
    brief_add_schema(printer, schema_url);
    if (resource)
        br_print_pairs(printer, resource->attributes, resource->n_attributes);
    br_print_end(printer);
}

static void print_scope(struct br_printer *printer, unsigned index,
                        const BR_PB(InstrumentationScope) * scope, const char *schema_url)
{
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "%s #%u", printer->dictionary ? "ScopeProfiles" : "ScopeTraces",
                  index);
    if (scope && scope->name[0]) {
        br_str_putc(printer->out, ' ');
        br_print_text(printer->out, scope->name, strlen(scope->name));
    }
    if (scope && scope->version[0]) {
        br_str_puts(printer->out, scope->name[0] ? "@" : " @");
        br_print_text(printer->out, scope->version, strlen(scope->version));
    }
    brief_add_schema(printer, schema_url);
    if (scope)
        br_print_pairs(printer, scope->attributes, scope->n_attributes);
    br_print_end(printer);
}

/* --- Traces --------------------------------------------------------------------------------- */

static void brief_print_span(struct br_printer *printer, unsigned index, const uint8_t *data,
                             size_t len)
{
    const SPAN(Span) *s = br_print_unpack(printer, &SPAN_TYPE(span), data, len);
    (void)index;
    if (s && br_print_begin(printer)) {
        br_print_text(printer->out, s->name, strlen(s->name));
        br_str_putc(printer->out, ' ');
        br_str_hex(printer->out, s->trace_id.data, s->trace_id.len);
        br_str_putc(printer->out, ' ');
        br_str_hex(printer->out, s->span_id.data, s->span_id.len);
        br_str_putc(printer->out, ' ');
        brief_add_duration(printer->out, s->end_time_unix_nano > s->start_time_unix_nano
                                             ? s->end_time_unix_nano - s->start_time_unix_nano
                                             : 0);
        br_print_pairs(printer, s->attributes, s->n_attributes);
        br_print_end(printer);
    }
    br_arena_release(&printer->scratch);
}

static void brief_print_scope_spans(struct br_printer *printer, unsigned index, const uint8_t *data,
                                    size_t len)
{
    const SPAN(ScopeSpans) *head =
        br_print_unpack_head(printer, &SPAN_TYPE(scope_spans), data, len, CHILDREN, 0);
    if (head)
        print_scope(printer, index, head->scope, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, data, len, CHILDREN, brief_print_span);
}

static void print_spans_part(struct br_printer *printer, unsigned index, const struct br_part *part,
                             const uint8_t *body, size_t len)
{
    const SPAN(ResourceSpans) *head =
        br_print_unpack_head(printer, &SPAN_TYPE(resource_spans), body, len, CHILDREN, 1);
    if (head)
        print_resource(printer, index, part, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, body, len, CHILDREN, brief_print_scope_spans);
}

/* --- Profiles ------------------------------------------------------------------------------- */

static unsigned brief_count_children(const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    struct br_field field;
    unsigned n = 0;
    while (p < end && (p = br_field_next(p, end, &field)))
        n += field.number == CHILDREN && field.wire == BR_WIRE_LEN;
    return n;
}

static void brief_add_type(struct br_printer *printer, const PROFILE(ValueType) * type)
{
    struct br_entry name = br_print_string(printer, type->type_strindex);
    struct br_entry unit = br_print_string(printer, type->unit_strindex);
    if (!name.len)
        return;
    br_str_putc(printer->out, ' ');
    br_print_text(printer->out, name.data, name.len);
    br_str_puts(printer->out, " (");
    br_print_text(printer->out, unit.data, unit.len);
    br_str_putc(printer->out, ')');
}

static void brief_add_attribute(struct br_printer *printer, int32_t index)
{
    const struct br_dictionary_view *view = printer->dictionary;
    if (index <= 0 || (uint32_t)index >= view->count[BR_TABLE_ATTRIBUTE])
        return;
    const struct br_entry *entry = &view->tables[BR_TABLE_ATTRIBUTE][index];
    const PROFILE(KeyValueAndUnit) *a =
        br_print_unpack(printer, &PROFILE_TYPE(key_value_and_unit), entry->data, entry->len);
    if (!a)
        return;
    struct br_entry key = br_print_string(printer, a->key_strindex);
    br_print_pair(printer, key.data, key.len, a->value);
}

static void brief_print_profile(struct br_printer *printer, unsigned index, const uint8_t *data,
                                size_t len)
{
    const PROFILE(Profile) *head = br_print_unpack_head(printer, &PROFILE_TYPE(profile), data, len,
                                                        CHILDREN, ORIGINAL_PAYLOAD);
    (void)index;
    if (head && br_print_begin(printer)) {
        br_str_hex(printer->out, head->profile_id.data, head->profile_id.len);
        if (head->sample_type)
            brief_add_type(printer, head->sample_type);
        br_str_putc(printer->out, ' ');
        brief_add_duration(printer->out, head->duration_nano);
        br_str_printf(printer->out, " samples=%u", brief_count_children(data, len));
        for (size_t i = 0; i < head->n_attribute_indices && !printer->out->failed; i++)
            brief_add_attribute(printer, head->attribute_indices[i]);
        br_print_end(printer);
    }
    br_arena_release(&printer->scratch);
}

static void brief_print_scope_profiles(struct br_printer *printer, unsigned index,
                                       const uint8_t *data, size_t len)
{
    const PROFILE(ScopeProfiles) *head =
        br_print_unpack_head(printer, &PROFILE_TYPE(scope_profiles), data, len, CHILDREN, 0);
    if (head)
        print_scope(printer, index, head->scope, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, data, len, CHILDREN, brief_print_profile);
}

static void brief_print_profiles_part(struct br_printer *printer, unsigned index,
                                      const struct br_part *part, const uint8_t *body, size_t len)
{
    const PROFILE(ResourceProfiles) *head =
        br_print_unpack_head(printer, &PROFILE_TYPE(resource_profiles), body, len, CHILDREN, 1);
    if (head)
        print_resource(printer, index, part, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, body, len, CHILDREN, brief_print_scope_profiles);
}

int br_print_brief(const struct br_item *item, struct br_str *out)
{
    struct br_arena arena;
    struct br_dictionary_view dictionary;
    struct br_printer p = {.out = out};
    if (item->signal == BR_TRACES)
        return br_print_parts(&p, item, print_spans_part);
    br_arena_init(&arena, item->size * INDEX_COST + 4096);
    int rc = br_dictionary_index(item, &arena, &dictionary);
    p.dictionary = &dictionary;
    if (rc == 0)
        rc = br_print_parts(&p, item, brief_print_profiles_part);
    br_arena_release(&arena);
    return rc;
}
