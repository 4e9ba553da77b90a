/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "otlp/edit/edit.h"
#include "otlp/plain.h"
#include "otlp/walk/internal.h"

#define LEN (BR_WIRE_LEN + 1)
#define VARINT (BR_WIRE_VARINT + 1)
#define I64 (BR_WIRE_I64 + 1)
/* any wire type is accepted: the walk checks the type of a field that may be packed or not */
#define ANY 0

/* Tables of ProfilesDictionary, by field number. */
enum {
    MAPPINGS = BR_DICTIONARY_MAPPINGS,
    LOCATIONS = BR_DICTIONARY_LOCATIONS,
    FUNCTIONS = BR_DICTIONARY_FUNCTIONS,
    LINKS = BR_DICTIONARY_LINKS,
    STRINGS = BR_DICTIONARY_STRINGS,
    ATTRIBUTES = BR_DICTIONARY_ATTRIBUTES,
    STACKS = BR_DICTIONARY_STACKS,
    N_TABLES
};

/* Levels of the messages; the request itself is level 1. */
enum { DEPTH_SCOPE_PROFILES = 3, DEPTH_PROFILE, DEPTH_IN_PROFILE, DEPTH_ENTRY = 3 };

static const char *const out_of_range[N_TABLES] = {
    [MAPPINGS] = "an index is outside the mapping table",
    [LOCATIONS] = "an index is outside the location table",
    [FUNCTIONS] = "an index is outside the function table",
    [LINKS] = "a link index is outside the link table",
    [STRINGS] = "an index is outside the string table",
    [ATTRIBUTES] = "an attribute index is outside the attribute table",
    [STACKS] = "a stack index is outside the stack table",
};

bool br_walk_index_outside(struct br_walker *walker, int table)
{
    return br_walk_fail(walker, out_of_range[table]);
}

bool br_walk_indices_fit(const struct br_walker *walker)
{
    for (int i = MAPPINGS; i < N_TABLES; i++)
        if (walker->largest[i] && walker->largest[i] >= walker->n_tables[i])
            return false;
    return true;
}

/* Checks one field of a repeated index, packed or not. */
BR_HOT bool walk_check_indices(struct br_walker *walker, const struct br_field *field, int table)
{
    if (field->wire == BR_WIRE_VARINT)
        return br_walk_index(walker, field->value, table);
    if (field->wire != BR_WIRE_LEN)
        return br_walk_fail(walker, "a field has the wrong wire type");
    const uint8_t *p = field->data, *end = p + field->value;
    uint64_t largest = 0;
    while (p < end) {
        uint64_t v;
        p = br_walk_value(p, end, &v);
        if (!p)
            return br_walk_malformed(walker);
        largest = v > largest ? v : largest;
    }
    return br_walk_index(walker, largest, table);
}

/* Adds the number of varints in a repeated field to `*count`. Fails if the field is malformed. */
static bool walk_profiles_count_varints(struct br_walker *walker, const struct br_field *field,
                                        uint64_t *count)
{
    if (field->wire == BR_WIRE_VARINT) {
        ++*count;
        return true;
    }
    if (field->wire != BR_WIRE_LEN)
        return br_walk_fail(walker, "a field has the wrong wire type");
    const uint8_t *p = field->data, *end = p + field->value;
    while (p < end) {
        uint64_t ignored;
        p = br_walk_value(p, end, &ignored);
        if (!p)
            return br_walk_malformed(walker);
        ++*count;
    }
    return true;
}

static bool walk_profiles_count_fixed64(struct br_walker *walker, const struct br_field *field,
                                        uint64_t *count)
{
    if (field->wire == BR_WIRE_I64) {
        walker->odd_times = walker->odd_times || field->value < BR_TIME_MIN_NS;
        ++*count;
        return true;
    }
    if (field->wire != BR_WIRE_LEN || field->value % 8)
        return br_walk_fail(walker, "timestamps_unix_nano is not a list of fixed64");
    if (field->value && br_load64(field->data) < BR_TIME_MIN_NS)
        walker->odd_times = true;
    *count += field->value / 8;
    return true;
}

static bool walk_sample(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, ANY, VARINT, ANY, ANY};
    uint64_t n_values = 0, n_times = 0;
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        bool ok = true;
        if (field.number == BR_SAMPLE_STACK)
            ok = br_walk_index(walker, field.value, STACKS);
        else if (field.number == BR_SAMPLE_ATTRIBUTES)
            ok = walk_check_indices(walker, &field, ATTRIBUTES);
        else if (field.number == BR_SAMPLE_LINK)
            ok = br_walk_index(walker, field.value, LINKS);
        else if (field.number == BR_SAMPLE_VALUES)
            ok = walk_profiles_count_varints(walker, &field, &n_values);
        else if (field.number == BR_SAMPLE_TIMES)
            ok = walk_profiles_count_fixed64(walker, &field, &n_times);
        if (!ok)
            return false;
    }
    if (n_values == 0 && n_times == 0)
        return br_walk_fail(walker, "a sample has neither values nor timestamps");
    if (n_values && n_times && n_values != n_times)
        return br_walk_fail(walker, "a sample's values and timestamps differ in number");
    return true;
}

/* Walks a message whose fields are varints. Bit n of `strings` is set if field n is an index
 * into the string table. */
static bool walk_indices(struct br_walker *walker, const uint8_t *p, const uint8_t *end,
                         const uint8_t *wires, size_t n_wires, unsigned strings)
{
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, n_wires, &field);
        if (!p || (field.number < 32 && (strings >> field.number & 1) &&
                   !br_walk_index(walker, field.value, STRINGS)))
            return false;
    }
    return true;
}

static bool walk_value_type(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT};
    return walk_indices(walker, p, end, wires, sizeof wires,
                        1u << BR_VALUE_TYPE_TYPE | 1u << BR_VALUE_TYPE_UNIT);
}

static bool walk_profile(struct br_walker *walker, struct br_part *part, const uint8_t *p,
                         const uint8_t *end)
{
    static const uint8_t wires[] = {0,      LEN, LEN,    I64, VARINT, LEN,
                                    VARINT, LEN, VARINT, LEN, LEN,    ANY};
    struct br_field field;
    const uint8_t *type = NULL, *type_end = NULL;
    uint32_t n_before = part->n_records;
    uint64_t time = 0;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        bool ok = true;
        if (field.number == BR_PROFILE_SAMPLES) {
            walker->inner++;
            ok = walk_sample(walker, field.data, p);
            part->n_records++;
        } else if (field.number == BR_PROFILE_SAMPLE_TYPE ||
                   field.number == BR_PROFILE_PERIOD_TYPE) {
            ok = walk_value_type(walker, field.data, p);
            type = field.number == BR_PROFILE_SAMPLE_TYPE ? field.data : type;
            type_end = field.number == BR_PROFILE_SAMPLE_TYPE ? p : type_end;
        } else if (field.number == BR_PROFILE_PROFILE_ID) {
            ok = field.value == 16 || field.value == 0 ||
                 br_walk_fail(walker, "a profile id must have 16 bytes or none");
        } else if (field.number == BR_PROFILE_TIME) {
            time = field.value;
        } else if (field.number == BR_PROFILE_PAYLOAD_FORMAT) {
            ok = br_walk_string(walker, field.data, field.value);
        } else if (field.number == BR_PROFILE_ATTRIBUTES) {
            ok = walk_check_indices(walker, &field, ATTRIBUTES);
        }
        if (!ok)
            return false;
    }
    walker->odd_times = walker->odd_times || time < BR_TIME_MIN_NS;
    if (walker->pairs)
        br_sample_pairs_add(walker->pairs, type, type_end, part->n_records - n_before);
    return true;
}

static bool walk_scope_profiles(struct br_walker *walker, struct br_part *part, const uint8_t *p,
                                const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_SCOPES_RECORDS) {
            walker->item++;
            walker->inner = -1;
            walker->n_profiles++;
            if (!walk_profile(walker, part, field.data, p))
                return false;
        } else if (field.number == BR_SCOPES_SCOPE) {
            if (!br_walk_scope(walker, field.data, p, DEPTH_PROFILE))
                return false;
        } else if (field.number == BR_SCOPES_SCHEMA_URL &&
                   !br_walk_string(walker, field.data, field.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_resource_profiles(struct br_walker *walker, struct br_item *item, struct br_part *part)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN};
    (void)item;
    if (DEPTH_IN_PROFILE + 1 > walker->max_depth)
        return br_walk_too_deep(walker);
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_RESOURCES_SCOPES) {
            walker->scope++;
            walker->item = -1;
            if (!walk_scope_profiles(walker, part, field.data, p))
                return false;
        } else if (field.number == BR_RESOURCES_RESOURCE) {
            if (!br_walk_resource(walker, field.data, p, DEPTH_SCOPE_PROFILES))
                return false;
            br_walk_note_resource(walker, part, &field, p);
        } else if (field.number == BR_RESOURCES_SCHEMA_URL &&
                   !br_walk_string(walker, field.data, field.value)) {
            return false;
        }
    }
    return true;
}

bool br_walk_dictionary_count(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, LEN, LEN, LEN};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number < N_TABLES)
            walker->n_tables[field.number]++;
    }
    return true;
}

static bool walk_mapping(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT, VARINT, ANY};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p ||
            (field.number == BR_MAPPING_FILENAME && !br_walk_index(walker, field.value, STRINGS)) ||
            (field.number == BR_MAPPING_ATTRIBUTES &&
             !walk_check_indices(walker, &field, ATTRIBUTES)))
            return false;
    }
    return true;
}

static bool walk_line(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p ||
            (field.number == BR_LINE_FUNCTION && !br_walk_index(walker, field.value, FUNCTIONS)))
            return false;
    }
    return true;
}

static bool walk_location(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, LEN, ANY};
    struct br_plain_location plain;
    struct br_field field;
    if (__builtin_expect(br_plain_location(p, end, &plain), 1))
        return br_walk_index(walker, plain.mapping, MAPPINGS) &&
               br_walk_index(walker, plain.line[0], FUNCTIONS);
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        bool ok = true;
        if (field.number == BR_LOCATION_MAPPING)
            ok = br_walk_index(walker, field.value, MAPPINGS);
        else if (field.number == BR_LOCATION_LINES)
            /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): br_walk_next has set it. */
            ok = walk_line(walker, field.data, p);
        else if (field.number == BR_LOCATION_ATTRIBUTES)
            ok = walk_check_indices(walker, &field, ATTRIBUTES);
        if (!ok)
            return false;
    }
    return true;
}

BR_HOT bool walk_function(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, VARINT, VARINT, VARINT};
    uint64_t largest = 0;
    struct br_plain_function plain;
    struct br_field field;
    if (__builtin_expect(br_plain_function(p, end, &plain), 1)) {
        for (int i = 0; i < BR_FUNCTION_FILENAME; i++)
            largest = plain.values[i] > largest ? plain.values[i] : largest;
        return br_walk_index(walker, largest, STRINGS);
    }
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number <= BR_FUNCTION_FILENAME && field.value > largest)
            largest = field.value;
    }
    return br_walk_index(walker, largest, STRINGS);
}

static bool walk_profiles_link(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN};
    const uint8_t trace = BR_SCAN_LEN(BR_LINK_TRACE_ID), span = BR_SCAN_LEN(BR_LINK_SPAN_ID);
    /* a link with both ids, in either order, has 28 bytes; other links are unusual */
    if (end - p == 28) {
        bool trace_first = p[0] == trace && p[1] == 16 && p[18] == span && p[19] == 8;
        bool span_first = p[0] == span && p[1] == 8 && p[10] == trace && p[11] == 16;
        if (trace_first || span_first)
            return true;
    }
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        if (field.number == BR_LINK_TRACE_ID && field.value != 16 && field.value != 0)
            return br_walk_fail(walker, "a link's trace id must have 16 bytes or none");
        if (field.number == BR_LINK_SPAN_ID && field.value != 8 && field.value != 0)
            return br_walk_fail(walker, "a link's span id must have 8 bytes or none");
    }
    return true;
}

static bool walk_attribute(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, VARINT, LEN, VARINT};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p)
            return false;
        bool ok = true;
        if (field.number == BR_ATTRIBUTE_KEY || field.number == BR_ATTRIBUTE_UNIT)
            ok = br_walk_index(walker, field.value, STRINGS);
        else if (field.number == BR_ATTRIBUTE_VALUE)
            ok = br_walk_any(walker, field.data, p, DEPTH_ENTRY + 1);
        if (!ok)
            return false;
    }
    return true;
}

static bool walk_stack(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    static const uint8_t wires[] = {0, ANY};
    struct br_field field;
    while (p < end) {
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p ||
            (field.number == BR_STACK_LOCATIONS && !walk_check_indices(walker, &field, LOCATIONS)))
            return false;
    }
    return true;
}

static bool walk_entry(struct br_walker *walker, uint32_t table, const uint8_t *p,
                       const uint8_t *end)
{
    switch (table) {
    case MAPPINGS:
        return walk_mapping(walker, p, end);
    case LOCATIONS:
        return walk_location(walker, p, end);
    case FUNCTIONS:
        return walk_function(walker, p, end);
    case LINKS:
        return walk_profiles_link(walker, p, end);
    case STRINGS:
        walker->longest = (size_t)(end - p) > walker->longest ? (size_t)(end - p) : walker->longest;
        return br_walk_string(walker, p, (size_t)(end - p));
    case ATTRIBUTES:
        return walk_attribute(walker, p, end);
    case STACKS:
        return walk_stack(walker, p, end);
    default:
        return true;
    }
}

/* Walks consecutive short strings of the string table. If all bytes, including tags and lengths,
 * are ASCII, each string is valid. Otherwise the strings are checked one by one. */
static const uint8_t *walk_strings(struct br_walker *walker, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *start = p;
    uint32_t n = 0;
    while (end - p >= 2 && p[0] == (STRINGS << 3 | BR_WIRE_LEN) && p[1] < 0x80 &&
           p[1] <= end - p - 2) {
        p += 2 + p[1];
        n++;
    }
    if (!walker->exact)
        walker->n_tables[STRINGS] += n;
    if (p - start >= 16 && br_walk_ascii_long(start, (size_t)(p - start)))
        return p;
    for (const uint8_t *q = start; q < p; q += 2 + q[1])
        if (!br_walk_string(walker, q + 2, q[1]))
            return NULL;
    return p;
}

/* Walks contiguous entries of one dictionary table. Returns the byte after the last entry, or
 * NULL after an error. */
static const uint8_t *walk_table(struct br_walker *walker, uint32_t table, const uint8_t *p,
                                 const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, LEN, LEN, LEN};
    uint8_t tag = (uint8_t)(table << 3 | BR_WIRE_LEN);
    struct br_field field;
    while (p < end && *p == tag) {
        if (table == STRINGS && end - p >= 2 && p[1] < 0x80) {
            const uint8_t *next = walk_strings(walker, p, end);
            if (next != p) {
                if (!next)
                    return NULL;
                p = next;
                continue;
            }
        }
        p = br_walk_next(walker, p, end, wires, sizeof wires, &field);
        if (!p || !walk_entry(walker, table, field.data, p))
            return NULL;
        if (!walker->exact)
            walker->n_tables[table]++;
    }
    return p;
}

void br_walk_memo_release(struct br_walk_memo *memo)
{
    for (int t = 0; t < 8; t++)
        br_buf_unref(memo->tables[t].buf);
    *memo = (struct br_walk_memo){0};
}

/* Like walk_table, walks contiguous entries of one dictionary table. Skips the leading entries
 * if they equal the table of the previous dictionary. */
static const uint8_t *walk_table_memo(struct br_walker *walker, struct br_buf *buf, uint32_t table,
                                      const uint8_t *p, const uint8_t *end)
{
    struct br_walk_memo *memo = walker->options->memo;
    uint64_t outer[N_TABLES], longest = walker->longest, references = walker->n_references;
    uint32_t before = walker->n_tables[table], bad = walker->bad_utf8;
    const uint8_t *start = p;
    size_t known = memo->tables[table].len, passed = 0;
    memcpy(outer, walker->largest, sizeof outer);
    memset(walker->largest, 0, sizeof walker->largest);
    walker->longest = 0;
    if (known && known <= (size_t)(end - p) && memcmp(p, memo->tables[table].data, known) == 0) {
        walker->n_tables[table] += memo->tables[table].count;
        walker->n_references += memo->tables[table].n_references;
        walker->longest = memo->tables[table].longest;
        memcpy(walker->largest, memo->tables[table].largest, sizeof walker->largest);
        p += known;
        passed = known;
    }
    p = walk_table(walker, table, p, end);
    if (p && buf->cap <= BR_WALK_MEMO_MAX && bad == walker->bad_utf8 &&
        (size_t)(p - start) != passed) {
        br_buf_unref(memo->tables[table].buf);
        memo->tables[table].buf = br_buf_ref(buf);
        memo->tables[table].data = start;
        memo->tables[table].len = (size_t)(p - start);
        memo->tables[table].count = walker->n_tables[table] - before;
        memcpy(memo->tables[table].largest, walker->largest, sizeof walker->largest);
        memo->tables[table].n_references = walker->n_references - references;
        memo->tables[table].longest = walker->longest;
    }
    walker->longest = longest > walker->longest ? longest : walker->longest;
    for (int t = 0; t < N_TABLES; t++)
        if (outer[t] > walker->largest[t])
            walker->largest[t] = outer[t];
    return p;
}

bool br_walk_dictionary(struct br_walker *walker, struct br_buf *buf, const uint8_t *p,
                        const uint8_t *end)
{
    static const uint8_t wires[] = {0, LEN, LEN, LEN, LEN, LEN, LEN, LEN};
    if (DEPTH_ENTRY + 1 > walker->max_depth)
        return br_walk_too_deep(walker);
    struct br_field field;
    while (p && p < end) {
        const uint8_t *at = p;
        uint32_t table = *p >> 3;
        if (table == STRINGS && !walker->strings)
            walker->strings = at;
        if (table > 0 && table < N_TABLES && (*p & 7) == BR_WIRE_LEN) {
            p = walker->options->memo && !walker->exact
                    ? walk_table_memo(walker, buf, table, p, end)
                    : walk_table(walker, table, p, end);
            continue;
        }
        p = br_walk_field(walker, p, end, wires, sizeof wires, &field);
        if (p && field.number < N_TABLES && !walk_entry(walker, field.number, field.data, p))
            return false; /* reached for an entry whose tag is an overlong varint */
        if (p && field.number == STRINGS && !walker->strings)
            walker->strings = at;
        if (p && field.number < N_TABLES && !walker->exact)
            walker->n_tables[field.number]++;
    }
    return p != NULL;
}
