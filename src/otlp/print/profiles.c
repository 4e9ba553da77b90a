/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>

#include "otlp/print/internal.h"
#include "otlp/print/print.h"

#define LIST_SHOWN 16u /* maximum number of values or timestamps that are printed on a line */

/* --- The dictionary ------------------------------------------------------------------------- */

int br_print_index(const struct br_item *item, struct br_arena *arena,
                   struct br_dictionary_view *ret)
{
    br_arena_init(arena, item->size * BR_PRINT_INDEX + BR_PRINT_INDEX_FREE);
    return br_dictionary_index(item, arena, ret);
}

static void print_profiles_add_string(const struct br_printer *printer, uint64_t index)
{
    struct br_entry entry = br_print_string(printer, index);
    br_print_text(printer->out, entry.data, entry.len);
}

/* Prints the attributes whose indices are in field `number` of a message, which is a list. */
static void print_attributes(struct br_printer *printer, const char *heading, const char *indent,
                             struct br_entry message, uint32_t number)
{
    struct br_print_list list = br_print_list_of(message, number, false);
    uint64_t index;
    for (bool first = true; !printer->full && br_print_list_next(&list, &index); first = false) {
        struct br_entry entry = br_print_entry(printer, BR_TABLE_ATTRIBUTE, index);
        struct br_keyvalue at;
        if (first)
            br_print_line(printer, "%s", heading);
        if (entry.data && br_keyvalue_read_entry(entry.data, entry.len, &at))
            br_print_attribute(printer, indent, br_print_string(printer, at.key_index), at.value,
                               br_print_string(printer, at.unit));
    }
}

/* --- Stacks --------------------------------------------------------------------------------- */

static void print_frame(struct br_printer *printer, unsigned index, struct br_entry line)
{
    struct br_print_fields at, function;
    (void)index;
    br_print_read(line, &at);
    br_print_read(
        br_print_entry(printer, BR_TABLE_FUNCTION, br_print_number(&at, BR_LINE_FUNCTION)),
        &function);
    uint64_t name = br_print_number(&function, BR_FUNCTION_NAME);
    uint64_t system_name = br_print_number(&function, BR_FUNCTION_SYSTEM_NAME);
    uint64_t file = br_print_number(&function, BR_FUNCTION_FILENAME);
    int64_t number = (int64_t)br_print_number(&at, BR_LINE_LINE);
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, "        ");
    if (name || system_name)
        print_profiles_add_string(printer, name ? name : system_name);
    else
        br_str_puts(printer->out, "(unknown)");
    if (file) {
        br_str_putc(printer->out, ' ');
        print_profiles_add_string(printer, file);
        if (number)
            br_str_printf(printer->out, ":%" PRId64, number);
    }
    br_print_end(printer);
}

/* Prints the address of a location without symbols. */
static void print_address(struct br_printer *printer, struct br_entry location)
{
    struct br_print_fields at, mapping;
    br_print_read(location, &at);
    br_print_read(
        br_print_entry(printer, BR_TABLE_MAPPING, br_print_number(&at, BR_LOCATION_MAPPING)),
        &mapping);
    uint64_t file = br_print_number(&mapping, BR_MAPPING_FILENAME);
    if (!br_print_begin(printer))
        return;
    br_str_printf(printer->out, "        0x%" PRIx64, br_print_number(&at, BR_LOCATION_ADDRESS));
    if (file) {
        br_str_puts(printer->out, " in ");
        print_profiles_add_string(printer, file);
    }
    br_print_end(printer);
}

static void print_location(struct br_printer *printer, uint64_t index)
{
    struct br_entry location = br_print_entry(printer, BR_TABLE_LOCATION, index);
    if (!location.data)
        br_print_line(printer, "        (unknown)");
    else if (br_print_each(printer, location, BR_LOCATION_LINES, print_frame) == 0)
        print_address(printer, location);
}

static void print_stack(struct br_printer *printer, uint64_t index)
{
    struct br_entry stack = br_print_entry(printer, BR_TABLE_STACK, index);
    struct br_print_list locations = br_print_list_of(stack, BR_STACK_LOCATIONS, false);
    uint64_t location;
    if (!stack.data)
        return;
    br_print_line(printer, "    Stack:");
    while (!printer->full && br_print_list_next(&locations, &location))
        print_location(printer, location);
}

/* --- Samples -------------------------------------------------------------------------------- */

static void print_values(struct br_printer *printer, struct br_entry sample)
{
    struct br_print_list list = br_print_list_of(sample, BR_SAMPLE_VALUES, false);
    size_t count = 0;
    uint64_t value;
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, "    Values         : ");
    for (; br_print_list_next(&list, &value); count++)
        if (count < LIST_SHOWN)
            br_str_printf(printer->out, "%s%" PRId64, count ? ", " : "", (int64_t)value);
    br_print_list_end(printer, count, LIST_SHOWN);
}

static void print_timestamps(struct br_printer *printer, struct br_entry sample)
{
    struct br_print_list list = br_print_list_of(sample, BR_SAMPLE_TIMES, true);
    size_t count = 0;
    uint64_t unix_ns;
    if (!br_print_begin(printer))
        return;
    br_str_puts(printer->out, "    Timestamps     : ");
    for (; br_print_list_next(&list, &unix_ns); count++) {
        if (count >= LIST_SHOWN)
            continue;
        br_str_puts(printer->out, count ? ", " : "");
        br_print_time(printer->out, unix_ns);
    }
    br_print_list_end(printer, count, LIST_SHOWN);
}

static void print_sample(struct br_printer *printer, unsigned index, struct br_entry sample)
{
    struct br_print_fields fields, link_fields;
    br_print_read(sample, &fields);
    br_print_line(printer, "Sample #%u", index);
    print_values(printer, sample);
    print_timestamps(printer, sample);
    struct br_entry link =
        br_print_entry(printer, BR_TABLE_LINK, br_print_number(&fields, BR_SAMPLE_LINK));
    if (link.data) {
        br_print_read(link, &link_fields);
        br_print_named_id(printer,
                          "    Trace ID       : ", br_print_bytes(&link_fields, BR_LINK_TRACE_ID));
        br_print_named_id(printer,
                          "    Span ID        : ", br_print_bytes(&link_fields, BR_LINK_SPAN_ID));
    }
    print_attributes(printer, "    Attributes:", "         ", sample, BR_SAMPLE_ATTRIBUTES);
    print_stack(printer, br_print_number(&fields, BR_SAMPLE_STACK));
}

/* --- Profiles ------------------------------------------------------------------------------- */

/* Prints a sample or period type such as "cpu (nanoseconds)", preceded by `count` unless it is
 * 0. */
static void print_type(struct br_printer *printer, const char *label, int64_t count,
                       struct br_entry type)
{
    struct br_print_fields fields;
    if (!type.data || !br_print_begin(printer))
        return;
    br_print_read(type, &fields);
    br_str_puts(printer->out, label);
    if (count != 0)
        br_str_printf(printer->out, "%" PRId64 " ", count);
    print_profiles_add_string(printer, br_print_number(&fields, BR_VALUE_TYPE_TYPE));
    br_str_puts(printer->out, " (");
    print_profiles_add_string(printer, br_print_number(&fields, BR_VALUE_TYPE_UNIT));
    br_str_putc(printer->out, ')');
    br_print_end(printer);
}

static void print_profiles_head(struct br_printer *printer, struct br_entry profile)
{
    struct br_print_fields fields;
    br_print_read(profile, &fields);
    uint64_t duration = br_print_number(&fields, BR_PROFILE_DURATION);
    struct br_entry format = br_print_bytes(&fields, BR_PROFILE_PAYLOAD_FORMAT);
    uint32_t dropped = (uint32_t)br_print_number(&fields, BR_PROFILE_DROPPED_ATTRIBUTES);
    br_print_named_id(printer,
                      "    Profile ID     : ", br_print_bytes(&fields, BR_PROFILE_PROFILE_ID));
    print_type(printer, "    Type           : ", 0,
               br_print_bytes(&fields, BR_PROFILE_SAMPLE_TYPE));
    br_print_named_time(printer,
                        "    Start time     : ", br_print_number(&fields, BR_PROFILE_TIME));
    br_print_line(printer, "    Duration       : %" PRIu64 ".%09" PRIu64 "s", duration / 1000000000,
                  duration % 1000000000);
    print_type(printer,
               "    Period         : ", (int64_t)br_print_number(&fields, BR_PROFILE_PERIOD),
               br_print_bytes(&fields, BR_PROFILE_PERIOD_TYPE));
    if (format.len)
        br_print_named_text(printer, "    Original format: ", format);
    if (dropped > 0)
        br_print_line(printer, "    DroppedAttributesCount: %" PRIu32, dropped);
    print_attributes(printer, "Attributes:", "     ", profile, BR_PROFILE_ATTRIBUTES);
}

static void print_profile(struct br_printer *printer, unsigned index, struct br_entry profile)
{
    br_print_line(printer, "Profile #%u", index);
    print_profiles_head(printer, profile);
    (void)br_print_each(printer, profile, BR_PROFILE_SAMPLES, print_sample);
}

static void print_profiles_scope_profiles(struct br_printer *printer, unsigned index,
                                          struct br_entry scope_profiles)
{
    struct br_print_fields fields;
    br_print_read(scope_profiles, &fields);
    br_print_line(printer, "ScopeProfiles #%u", index);
    br_print_scope(printer, &fields);
    (void)br_print_each(printer, scope_profiles, BR_SCOPES_RECORDS, print_profile);
}

static void print_profiles_print_part(struct br_printer *printer, unsigned index,
                                      const struct br_part *part, struct br_entry body)
{
    struct br_print_fields fields;
    br_print_read(body, &fields);
    br_print_line(printer, "ResourceProfiles #%u", index);
    br_print_resource(printer, br_print_part_resource(part),
                      br_print_bytes(&fields, BR_RESOURCES_SCHEMA_URL));
    (void)br_print_each(printer, body, BR_RESOURCES_SCOPES, print_profiles_scope_profiles);
}

int br_print_profiles(const struct br_item *item, struct br_str *out)
{
    struct br_arena arena;
    struct br_dictionary_view dictionary;
    int rc = br_print_index(item, &arena, &dictionary);
    if (rc == 0) {
        struct br_printer p = {.out = out, .dictionary = &dictionary};
        rc = br_print_parts(&p, item, print_profiles_print_part);
    }
    br_arena_release(&arena);
    return rc;
}
