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

/* Entry `index` of a table, unpacked; NULL for 0 ("none") and where there is none. */
static const void *print_profiles_entry(struct br_printer *printer, enum br_table table,
                                        const ProtobufCMessageDescriptor *desc, int32_t index)
{
    const struct br_dictionary_view *view = printer->dictionary;
    if (index <= 0 || (uint32_t)index >= view->count[table])
        return NULL;
    const struct br_entry *entry = &view->tables[table][index];
    return br_print_unpack(printer, desc, entry->data, entry->len);
}

static void print_profiles_add_string(const struct br_printer *printer, int32_t index)
{
    struct br_entry entry = br_print_string(printer, index);
    br_print_text(printer->out, entry.data, entry.len);
}

static void print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                             const int32_t *indices, size_t count)
{
    if (count > 0)
        br_print_line(printer, "%s", heading);
    for (size_t i = 0; i < count && !printer->full; i++) {
        const PB(KeyValueAndUnit) *a = print_profiles_entry(
            printer, BR_TABLE_ATTRIBUTE, &PROFILES(key_value_and_unit), indices[i]);
        if (!a)
            continue;
        struct br_entry key = br_print_string(printer, a->key_strindex);
        br_print_attribute(printer, indent, key.data, key.len, a->value,
                           br_print_string(printer, a->unit_strindex));
    }
}

/* --- Stacks --------------------------------------------------------------------------------- */

static void print_frame(struct br_printer *printer, const PB(Line) * line)
{
    const PB(Function) *f =
        print_profiles_entry(printer, BR_TABLE_FUNCTION, &PROFILES(function), line->function_index);
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, "        ");
    if (f && f->name_strindex != 0)
        print_profiles_add_string(printer, f->name_strindex);
    else if (f && f->system_name_strindex != 0)
        print_profiles_add_string(printer, f->system_name_strindex);
    else
        br_str_puts(printer->out, "(unknown)");
    if (f && f->filename_strindex != 0) {
        br_str_putc(printer->out, ' ');
        print_profiles_add_string(printer, f->filename_strindex);
        if (line->line != 0)
            br_str_printf(printer->out, ":%" PRId64, line->line);
    }
    br_print_end(printer);
}

/* A location that nobody has symbolized. */
static void print_address(struct br_printer *printer, const PB(Location) * location)
{
    const PB(Mapping) *m = print_profiles_entry(printer, BR_TABLE_MAPPING, &PROFILES(mapping),
                                                location->mapping_index);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "        0x%" PRIx64, location->address);
    if (m && m->filename_strindex != 0) {
        br_str_puts(printer->out, " in ");
        print_profiles_add_string(printer, m->filename_strindex);
    }
    br_print_end(printer);
}

static void print_location(struct br_printer *printer, int32_t index)
{
    const PB(Location) *location =
        print_profiles_entry(printer, BR_TABLE_LOCATION, &PROFILES(location), index);
    if (!location) {
        br_print_line(printer, "        (unknown)");
        return;
    }
    for (size_t i = 0; i < location->n_lines && !printer->full; i++)
        print_frame(printer, location->lines[i]);
    if (location->n_lines == 0)
        print_address(printer, location);
}

static void print_stack(struct br_printer *printer, int32_t index)
{
    const PB(Stack) *stack = print_profiles_entry(printer, BR_TABLE_STACK, &PROFILES(stack), index);
    if (!stack)
        return;
    br_print_line(printer, "    Stack:");
    for (size_t i = 0; i < stack->n_location_indices && !printer->full; i++)
        print_location(printer, stack->location_indices[i]);
}

/* --- Samples -------------------------------------------------------------------------------- */

static void print_values(struct br_printer *printer, const PB(Sample) * sample)
{
    if (sample->n_values == 0 || !br_print_begin(printer))
        return;
    br_str_puts(printer->out, "    Values         : ");
    for (size_t i = 0; i < sample->n_values && i < LIST_SHOWN; i++)
        br_str_printf(printer->out, "%s%" PRId64, i ? ", " : "", sample->values[i]);
    if (sample->n_values > LIST_SHOWN)
        br_str_printf(printer->out, ", and %zu more", sample->n_values - LIST_SHOWN);
    br_print_end(printer);
}

static void print_timestamps(struct br_printer *printer, const PB(Sample) * sample)
{
    size_t n = sample->n_timestamps_unix_nano;
    if (n == 0 || !br_print_begin(printer))
        return;
    br_str_puts(printer->out, "    Timestamps     : ");
    for (size_t i = 0; i < n && i < LIST_SHOWN; i++) {
        br_str_puts(printer->out, i ? ", " : "");
        br_print_time(printer->out, sample->timestamps_unix_nano[i]);
    }
    if (n > LIST_SHOWN)
        br_str_printf(printer->out, ", and %zu more", n - LIST_SHOWN);
    br_print_end(printer);
}

static void print_sample(struct br_printer *printer, unsigned index, const uint8_t *data,
                         size_t len)
{
    br_print_line(printer, "Sample #%u", index);
    const PB(Sample) *s = br_print_unpack(printer, &PROFILES(sample), data, len);
    if (s) {
        print_values(printer, s);
        print_timestamps(printer, s);
        const PB(Link) *link =
            print_profiles_entry(printer, BR_TABLE_LINK, &PROFILES(link), s->link_index);
        if (link) {
            br_print_named_id(printer, "    Trace ID       : ", link->trace_id);
            br_print_named_id(printer, "    Span ID        : ", link->span_id);
        }
        print_attributes(printer, "    Attributes:", "         ", s->attribute_indices,
                         s->n_attribute_indices);
        print_stack(printer, s->stack_index);
    }
    br_arena_release(&printer->scratch);
}

/* --- Profiles ------------------------------------------------------------------------------- */

/* `count` of it, unless 0: cpu (nanoseconds). */
static void print_type(struct br_printer *printer, const char *label, int64_t count,
                       const PB(ValueType) * type)
{
    if (!type || !br_print_begin(printer))
        return;
    br_str_puts(printer->out, label);
    if (count != 0)
        br_str_printf(printer->out, "%" PRId64 " ", count);
    print_profiles_add_string(printer, type->type_strindex);
    br_str_puts(printer->out, " (");
    print_profiles_add_string(printer, type->unit_strindex);
    br_str_putc(printer->out, ')');
    br_print_end(printer);
}

static void print_profiles_head(struct br_printer *printer, const PB(Profile) * profile)
{
    br_print_named_id(printer, "    Profile ID     : ", profile->profile_id);
    print_type(printer, "    Type           : ", 0, profile->sample_type);
    br_print_named_time(printer, "    Start time     : ", profile->time_unix_nano);
    br_print_line(printer, "    Duration       : %" PRIu64 ".%09" PRIu64 "s",
                  profile->duration_nano / 1000000000, profile->duration_nano % 1000000000);
    print_type(printer, "    Period         : ", profile->period, profile->period_type);
    if (profile->original_payload_format[0])
        br_print_named_text(printer, "    Original format: ", profile->original_payload_format,
                            strlen(profile->original_payload_format));
    if (profile->dropped_attributes_count > 0)
        br_print_line(printer, "    DroppedAttributesCount: %" PRIu32,
                      profile->dropped_attributes_count);
    print_attributes(printer, "Attributes:", "     ", profile->attribute_indices,
                     profile->n_attribute_indices);
}

static void print_profile(struct br_printer *printer, unsigned index, const uint8_t *data,
                          size_t len)
{
    br_print_line(printer, "Profile #%u", index);
    const PB(Profile) *head =
        br_print_unpack_head(printer, &PROFILES(profile), data, len, CHILDREN, ORIGINAL_PAYLOAD);
    if (head)
        print_profiles_head(printer, head);
    br_arena_release(&printer->scratch);
    br_print_each(printer, data, len, CHILDREN, print_sample);
}

static void print_profiles_scope_profiles(struct br_printer *printer, unsigned index,
                                          const uint8_t *data, size_t len)
{
    br_print_line(printer, "ScopeProfiles #%u", index);
    const PB(ScopeProfiles) *head =
        br_print_unpack_head(printer, &PROFILES(scope_profiles), data, len, CHILDREN, 0);
    if (head)
        br_print_scope(printer, head->scope, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, data, len, CHILDREN, print_profile);
}

static void print_profiles_print_part(struct br_printer *printer, unsigned index,
                                      const struct br_part *part, const uint8_t *body, size_t len)
{
    br_print_line(printer, "ResourceProfiles #%u", index);
    const BR_PB_RESOURCE *resource = br_print_part_resource(printer, part);
    const PB(ResourceProfiles) *head =
        br_print_unpack_head(printer, &PROFILES(resource_profiles), body, len, CHILDREN, 1);
    if (head)
        br_print_resource(printer, resource, head->schema_url);
    br_arena_release(&printer->scratch);
    br_print_each(printer, body, len, CHILDREN, print_profiles_scope_profiles);
}

int br_print_profiles(const struct br_item *item, struct br_str *out)
{
    struct br_arena arena;
    struct br_dictionary_view dictionary;
    br_arena_init(&arena, item->size * INDEX_COST + 4096);
    int rc = br_dictionary_index(item, &arena, &dictionary);
    if (rc == 0) {
        struct br_printer p = {.out = out, .dictionary = &dictionary};
        rc = br_print_parts(&p, item, print_profiles_print_part);
    }
    br_arena_release(&arena);
    return rc;
}
