/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <string.h>

#include "opentelemetry/proto/profiles/v1development/profiles.pb-c.h"
#include "otlp/print/internal.h"
#include "otlp/print/print.h"

#define CHILDREN 2u /* ResourceProfiles.scope_profiles, ScopeProfiles.profiles, Profile.samples */
#define ORIGINAL_PAYLOAD 10u
#define LIST_SHOWN 16u /* values or timestamps on a line */
#define INDEX_COST 16u /* bytes of index for a byte of dictionary, and slack of the arena */
#define PROFILES(name) opentelemetry__proto__profiles__v1development__##name##__descriptor
#define PB(name) Opentelemetry__Proto__Profiles__V1development__##name

/* --- The dictionary ------------------------------------------------------------------------- */

/* Entry `i` of a table, unpacked; NULL for 0 ("none") and where there is none. */
static const void *entry(struct br_printer *p, enum br_table table,
                         const ProtobufCMessageDescriptor *desc, int32_t i)
{
    const struct br_dictionary_view *d = p->dictionary;
    if (i <= 0 || (uint32_t)i >= d->n[table])
        return NULL;
    const struct br_entry *e = &d->tables[table][i];
    return br_print_unpack(p, desc, e->data, e->len);
}

static void add_string(const struct br_printer *p, int32_t i)
{
    struct br_entry s = br_print_string(p, i);
    br_print_text(p->out, s.data, s.len);
}

static void print_attributes(struct br_printer *p, const char *heading, const char *indent,
                             const int32_t *indices, size_t n)
{
    if (n > 0)
        br_print_line(p, "%s", heading);
    for (size_t i = 0; i < n && !p->full; i++) {
        const PB(KeyValueAndUnit) *a =
            entry(p, BR_TABLE_ATTRIBUTE, &PROFILES(key_value_and_unit), indices[i]);
        if (!a)
            continue;
        struct br_entry key = br_print_string(p, a->key_strindex);
        br_print_attribute(p, indent, key.data, key.len, a->value,
                           br_print_string(p, a->unit_strindex));
    }
}

/* --- Stacks --------------------------------------------------------------------------------- */

static void print_frame(struct br_printer *p, const PB(Line) * line)
{
    const PB(Function) *f = entry(p, BR_TABLE_FUNCTION, &PROFILES(function), line->function_index);
    if (!br_print_begin(p))
        return;
    br_str_puts(p->out, "        ");
    if (f && f->name_strindex != 0)
        add_string(p, f->name_strindex);
    else if (f && f->system_name_strindex != 0)
        add_string(p, f->system_name_strindex);
    else
        br_str_puts(p->out, "(unknown)");
    if (f && f->filename_strindex != 0) {
        br_str_putc(p->out, ' ');
        add_string(p, f->filename_strindex);
        if (line->line != 0)
            br_str_printf(p->out, ":%" PRId64, line->line);
    }
    br_print_end(p);
}

/* A location that nobody has symbolized. */
static void print_address(struct br_printer *p, const PB(Location) * location)
{
    const PB(Mapping) *m = entry(p, BR_TABLE_MAPPING, &PROFILES(mapping), location->mapping_index);
    if (!br_print_begin(p))
        return;
    br_str_printf(p->out, "        0x%" PRIx64, location->address);
    if (m && m->filename_strindex != 0) {
        br_str_puts(p->out, " in ");
        add_string(p, m->filename_strindex);
    }
    br_print_end(p);
}

static void print_location(struct br_printer *p, int32_t index)
{
    const PB(Location) *location = entry(p, BR_TABLE_LOCATION, &PROFILES(location), index);
    if (!location) {
        br_print_line(p, "        (unknown)");
        return;
    }
    for (size_t i = 0; i < location->n_lines && !p->full; i++)
        print_frame(p, location->lines[i]);
    if (location->n_lines == 0)
        print_address(p, location);
}

static void print_stack(struct br_printer *p, int32_t index)
{
    const PB(Stack) *stack = entry(p, BR_TABLE_STACK, &PROFILES(stack), index);
    if (!stack)
        return;
    br_print_line(p, "    Stack:");
    for (size_t i = 0; i < stack->n_location_indices && !p->full; i++)
        print_location(p, stack->location_indices[i]);
}

/* --- Samples -------------------------------------------------------------------------------- */

static void print_values(struct br_printer *p, const PB(Sample) * s)
{
    if (s->n_values == 0 || !br_print_begin(p))
        return;
    br_str_puts(p->out, "    Values         : ");
    for (size_t i = 0; i < s->n_values && i < LIST_SHOWN; i++)
        br_str_printf(p->out, "%s%" PRId64, i ? ", " : "", s->values[i]);
    if (s->n_values > LIST_SHOWN)
        br_str_printf(p->out, ", and %zu more", s->n_values - LIST_SHOWN);
    br_print_end(p);
}

static void print_timestamps(struct br_printer *p, const PB(Sample) * s)
{
    size_t n = s->n_timestamps_unix_nano;
    if (n == 0 || !br_print_begin(p))
        return;
    br_str_puts(p->out, "    Timestamps     : ");
    for (size_t i = 0; i < n && i < LIST_SHOWN; i++) {
        br_str_puts(p->out, i ? ", " : "");
        br_print_time(p->out, s->timestamps_unix_nano[i]);
    }
    if (n > LIST_SHOWN)
        br_str_printf(p->out, ", and %zu more", n - LIST_SHOWN);
    br_print_end(p);
}

static void print_sample(struct br_printer *p, unsigned index, const uint8_t *data, size_t len)
{
    br_print_line(p, "Sample #%u", index);
    const PB(Sample) *s = br_print_unpack(p, &PROFILES(sample), data, len);
    if (s) {
        print_values(p, s);
        print_timestamps(p, s);
        const PB(Link) *link = entry(p, BR_TABLE_LINK, &PROFILES(link), s->link_index);
        if (link) {
            br_print_named_id(p, "    Trace ID       : ", link->trace_id);
            br_print_named_id(p, "    Span ID        : ", link->span_id);
        }
        print_attributes(p, "    Attributes:", "         ", s->attribute_indices,
                         s->n_attribute_indices);
        print_stack(p, s->stack_index);
    }
    br_arena_release(&p->scratch);
}

/* --- Profiles ------------------------------------------------------------------------------- */

/* `count` of it, unless 0: cpu (nanoseconds). */
static void print_type(struct br_printer *p, const char *label, int64_t count,
                       const PB(ValueType) * type)
{
    if (!type || !br_print_begin(p))
        return;
    br_str_puts(p->out, label);
    if (count != 0)
        br_str_printf(p->out, "%" PRId64 " ", count);
    add_string(p, type->type_strindex);
    br_str_puts(p->out, " (");
    add_string(p, type->unit_strindex);
    br_str_putc(p->out, ')');
    br_print_end(p);
}

static void print_head(struct br_printer *p, const PB(Profile) * profile)
{
    br_print_named_id(p, "    Profile ID     : ", profile->profile_id);
    print_type(p, "    Type           : ", 0, profile->sample_type);
    br_print_named_time(p, "    Start time     : ", profile->time_unix_nano);
    br_print_line(p, "    Duration       : %" PRIu64 ".%09" PRIu64 "s",
                  profile->duration_nano / 1000000000, profile->duration_nano % 1000000000);
    print_type(p, "    Period         : ", profile->period, profile->period_type);
    if (profile->original_payload_format[0])
        br_print_named_text(p, "    Original format: ", profile->original_payload_format,
                            strlen(profile->original_payload_format));
    if (profile->dropped_attributes_count > 0)
        br_print_line(p, "    DroppedAttributesCount: %" PRIu32, profile->dropped_attributes_count);
    print_attributes(p, "Attributes:", "     ", profile->attribute_indices,
                     profile->n_attribute_indices);
}

static void print_profile(struct br_printer *p, unsigned index, const uint8_t *data, size_t len)
{
    br_print_line(p, "Profile #%u", index);
    const PB(Profile) *head =
        br_print_unpack_head(p, &PROFILES(profile), data, len, CHILDREN, ORIGINAL_PAYLOAD);
    if (head)
        print_head(p, head);
    br_arena_release(&p->scratch);
    br_print_each(p, data, len, CHILDREN, print_sample);
}

static void print_scope_profiles(struct br_printer *p, unsigned index, const uint8_t *data,
                                 size_t len)
{
    br_print_line(p, "ScopeProfiles #%u", index);
    const PB(ScopeProfiles) *head =
        br_print_unpack_head(p, &PROFILES(scope_profiles), data, len, CHILDREN, 0);
    if (head)
        br_print_scope(p, head->scope, head->schema_url);
    br_arena_release(&p->scratch);
    br_print_each(p, data, len, CHILDREN, print_profile);
}

static void print_part(struct br_printer *p, unsigned index, const struct br_part *part,
                       const uint8_t *body, size_t len)
{
    br_print_line(p, "ResourceProfiles #%u", index);
    const BR_PB_RESOURCE *resource = br_print_part_resource(p, part);
    const PB(ResourceProfiles) *head =
        br_print_unpack_head(p, &PROFILES(resource_profiles), body, len, CHILDREN, 1);
    if (head)
        br_print_resource(p, resource, head->schema_url);
    br_arena_release(&p->scratch);
    br_print_each(p, body, len, CHILDREN, print_scope_profiles);
}

int br_print_profiles(const struct br_item *item, struct br_str *out)
{
    struct br_arena arena;
    struct br_dictionary_view dictionary;
    br_arena_init(&arena, item->size * INDEX_COST + 4096);
    int rc = br_dictionary_index(item, &arena, &dictionary);
    if (rc == 0) {
        struct br_printer p = {.out = out, .dictionary = &dictionary};
        rc = br_print_parts(&p, item, print_part);
    }
    br_arena_release(&arena);
    return rc;
}
