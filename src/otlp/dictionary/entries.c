/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies single entries of a source dictionary into the merged dictionary. An entry is decoded, its
 * references are followed, and the entry is written in one canonical form: non-zero scalars, packed
 * lists, unknown fields last. Equal entries therefore have equal bytes, regardless of the sender's
 * encoder.
 *
 * References between tables have no cycles (stack, location, function or mapping, attribute,
 * string). The absence of cycles bounds the recursion and means that each table has at most one
 * unfinished entry.
 */
#include "otlp/dictionary/merger.h"
#include "otlp/fields.h"

#include "core/host.h"
#include "otlp/scan.h"

/* An index can become this many times longer, in bytes, when it is rewritten for the merged
 * dictionary. */
#define GROWTH 5

/* These macros return the bit of a field's tag in a set; see br_scan_in. */
#define VARINT(number) (UINT64_C(1) << BR_SCAN_VARINT(number))
#define LEN(number) (UINT64_C(1) << BR_SCAN_LEN(number))

uint8_t *br_merger_put_packed(struct br_merge *merge, enum br_table kind, const uint8_t *p,
                              const uint8_t *end, uint8_t *out)
{
    const struct br_source_table *table = &merge->source.tables[kind];
    const uint32_t *map = table->map, n = table->count;
    while (p < end) {
        uint64_t i;
        p = br_scan_index(p, end, &i);
        if (__builtin_expect(!p, 0)) {
            br_merger_fail(merge, BR_EINVAL);
            return out;
        }
        uint32_t mapped = i < n ? map[i] : 1;
        out = br_put_index(out, mapped ? mapped - 1 : br_merger_intern(merge, kind, (uint32_t)i));
    }
    return out;
}

/* Writes all occurrences of a repeated index as one packed field. */
static uint8_t *merge_entry_put_list(struct br_merge *merge, enum br_table table, uint32_t field,
                                     const uint8_t *p, const uint8_t *end, uint8_t *out)
{
    uint8_t *start = out;
    *out++ = (uint8_t)BR_SCAN_LEN(field);
    uint8_t *list = ++out;
    while (p < end) {
        struct br_field found;
        p = br_scan(p, end, &found);
        if (!p) {
            br_merger_fail(merge, BR_EINVAL);
            break;
        }
        if (found.number != field)
            continue;
        if (found.wire == BR_WIRE_LEN)
            out = br_merger_put_packed(merge, table, found.data, p, out);
        else if (found.wire == BR_WIRE_VARINT)
            out = br_put_index(out, br_merger_index(merge, table, found.value));
    }
    return out == list ? start : br_put_length_before(list, out);
}

/* Copies the fields of a message whose tags are not in the set `known`. */
static uint8_t *merge_entry_put_unknown(uint64_t known, const uint8_t *p, const uint8_t *end,
                                        uint8_t *out)
{
    while (p < end) {
        struct br_field field;
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            break;
        if (!br_scan_in(known, br_scan_tag(&field)))
            out = br_put_bytes(out, at, (size_t)(p - at));
    }
    return out;
}

/* Reads fields 1 to `count` of a message of scalars into `values`. Sets `*others` if the message
 * has other fields. Returns false if the message is malformed. */
static bool merge_entry_read_scalars(const uint8_t *p, const uint8_t *end, uint64_t *values,
                                     uint32_t count, bool *others)
{
    while (p < end) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return false;
        if (field.wire == BR_WIRE_VARINT && field.number <= count)
            values[field.number - 1] = field.value;
        else
            *others = true;
    }
    return true;
}

/* Interns a string. The string is looked up before it is copied, because most strings exist
 * already. */
static uint32_t merge_entry_intern_string(struct br_merge *merge, const uint8_t *body, uint32_t len,
                                          uint32_t guess)
{
    struct br_intern *table = &merge->tables[BR_TABLE_STRING];
    uint32_t hash, i = br_intern_find(table, body, len, guess, &hash);
    if (i != BR_INTERN_NONE)
        return i;
    int rc = br_intern_reserve(table, &merge->budget, len);
    if (rc) {
        br_merger_fail(merge, rc);
        return 0;
    }
    br_put_bytes(br_intern_body(table), body, len);
    return br_intern_append(table, len, hash);
}

/* Records in entry `used` that entry `merged` of another table refers to it (see br_interned).
 * The user of a name is the function that has the name. The user of a function is the location
 * whose last line is in that function. */
static void merge_entry_note_user(struct br_merge *merge, enum br_table kind, uint32_t used,
                                  uint32_t merged)
{
    if (merged != BR_INTERN_NONE)
        merge->tables[kind].entries[used].user = merged;
}

static uint32_t merge_entry_intern_function(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                            uint32_t guess)
{
    const uint64_t known = VARINT(BR_FUNCTION_NAME) | VARINT(BR_FUNCTION_SYSTEM_NAME) |
                           VARINT(BR_FUNCTION_FILENAME) | VARINT(BR_FUNCTION_START_LINE);
    uint64_t v[4] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(merge, BR_TABLE_FUNCTION, GROWTH * (size_t)len);
    if (!o || !merge_entry_read_scalars(p, p + len, v, 4, &others)) {
        br_merger_fail(merge, BR_EINVAL);
        return 0;
    }
    for (uint32_t k = 0; k < 3; k++)
        v[k] = br_merger_index(merge, BR_TABLE_STRING, v[k]);
    for (uint32_t k = 0; k < 4; k++)
        o = br_merger_put_scalar(o, BR_FUNCTION_NAME + k, v[k]);
    if (others)
        o = merge_entry_put_unknown(known, p, p + len, o);
    uint32_t merged = br_merger_enter(merge, BR_TABLE_FUNCTION, o, guess);
    merge_entry_note_user(merge, BR_TABLE_STRING, (uint32_t)v[0], merged);
    return merged;
}

static uint32_t merge_entry_intern_mapping(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                           uint32_t guess)
{
    const uint64_t known = VARINT(BR_MAPPING_START) | VARINT(BR_MAPPING_LIMIT) |
                           VARINT(BR_MAPPING_FILE_OFFSET) | VARINT(BR_MAPPING_FILENAME) |
                           VARINT(BR_MAPPING_ATTRIBUTES) | LEN(BR_MAPPING_ATTRIBUTES);
    uint64_t v[4] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(merge, BR_TABLE_MAPPING, GROWTH * (size_t)len);
    if (!o || !merge_entry_read_scalars(p, p + len, v, 4, &others)) {
        br_merger_fail(merge, BR_EINVAL);
        return 0;
    }
    for (uint32_t k = 0; k < 3; k++)
        o = br_merger_put_scalar(o, BR_MAPPING_START + k, v[k]);
    o = br_merger_put_scalar(o, BR_MAPPING_FILENAME, br_merger_index(merge, BR_TABLE_STRING, v[3]));
    if (others) {
        o = merge_entry_put_list(merge, BR_TABLE_ATTRIBUTE, BR_MAPPING_ATTRIBUTES, p, p + len, o);
        o = merge_entry_put_unknown(known, p, p + len, o);
    }
    return br_merger_enter(merge, BR_TABLE_MAPPING, o, guess);
}

static uint8_t *merge_entry_put_line(struct br_merge *merge, const uint8_t *p, const uint8_t *end,
                                     uint8_t *out, uint32_t *ret_function)
{
    const uint64_t known = VARINT(BR_LINE_FUNCTION) | VARINT(BR_LINE_LINE) | VARINT(BR_LINE_COLUMN);
    uint64_t v[3] = {0};
    bool others = false;
    if (!merge_entry_read_scalars(p, end, v, 3, &others))
        br_merger_fail(merge, BR_EINVAL);
    *out++ = (uint8_t)BR_SCAN_LEN(BR_LOCATION_LINES);
    uint8_t *line = ++out;
    *ret_function = br_merger_index(merge, BR_TABLE_FUNCTION, v[0]);
    out = br_merger_put_scalar(out, BR_LINE_FUNCTION, *ret_function);
    out = br_merger_put_scalar(out, BR_LINE_LINE, v[1]);
    out = br_merger_put_scalar(out, BR_LINE_COLUMN, v[2]);
    if (others)
        out = merge_entry_put_unknown(known, p, end, out);
    return br_put_length_before(line, out);
}

static uint32_t merge_entry_intern_location(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                            uint32_t guess)
{
    const uint64_t known = VARINT(BR_LOCATION_MAPPING) | VARINT(BR_LOCATION_ADDRESS) |
                           LEN(BR_LOCATION_LINES) | VARINT(BR_LOCATION_ATTRIBUTES) |
                           LEN(BR_LOCATION_ATTRIBUTES);
    const uint8_t *start = p, *end = p + len;
    uint64_t mapping = 0, address = 0;
    uint32_t function = 0;
    bool others = false;
    uint8_t *o = br_merger_entry(merge, BR_TABLE_LOCATION, GROWTH * (size_t)len);
    while (o && p < end) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p) {
            br_merger_fail(merge, BR_EINVAL);
            break;
        }
        switch (br_scan_tag(&field)) {
        case BR_SCAN_VARINT(BR_LOCATION_MAPPING):
            mapping = field.value;
            break;
        case BR_SCAN_VARINT(BR_LOCATION_ADDRESS):
            address = field.value;
            break;
        case BR_SCAN_LEN(BR_LOCATION_LINES):
            o = merge_entry_put_line(merge, field.data, p, o, &function);
            break;
        default:
            others = true;
        }
    }
    if (merge->rc)
        return 0;
    o = br_merger_put_scalar(o, BR_LOCATION_MAPPING,
                             br_merger_index(merge, BR_TABLE_MAPPING, mapping));
    o = br_merger_put_scalar(o, BR_LOCATION_ADDRESS, address);
    if (others) {
        o = merge_entry_put_list(merge, BR_TABLE_ATTRIBUTE, BR_LOCATION_ATTRIBUTES, start, end, o);
        o = merge_entry_put_unknown(known, start, end, o);
    }
    uint32_t merged = br_merger_enter(merge, BR_TABLE_LOCATION, o, guess);
    merge_entry_note_user(merge, BR_TABLE_FUNCTION, function, merged);
    return merged;
}

static uint32_t merge_entry_intern_link(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                        uint32_t guess)
{
    const uint64_t known = LEN(BR_LINK_TRACE_ID) | LEN(BR_LINK_SPAN_ID);
    struct br_field field, ids[2] = {0};
    bool others = false;
    uint8_t *o = br_merger_entry(merge, BR_TABLE_LINK, len);
    if (!o)
        return 0;
    for (const uint8_t *q = p; q < p + len;) {
        q = br_scan(q, p + len, &field);
        if (!q) {
            br_merger_fail(merge, BR_EINVAL);
            return 0;
        }
        if (field.wire == BR_WIRE_LEN && field.number <= BR_LINK_SPAN_ID)
            ids[field.number - BR_LINK_TRACE_ID] = field;
        else
            others = true;
    }
    for (uint32_t k = 0; k < 2; k++) {
        if (ids[k].value)
            o = br_put_len(o, BR_LINK_TRACE_ID + k, ids[k].data, ids[k].value);
    }
    if (others)
        o = merge_entry_put_unknown(known, p, p + len, o);
    return br_merger_enter(merge, BR_TABLE_LINK, o, guess);
}

static struct br_entry merge_entry_source_string(const void *arg, uint64_t index)
{
    const struct br_merge *merge = arg;
    struct br_entry entry = {NULL, 0};
    if (index != 0 && index < merge->source.tables[BR_TABLE_STRING].count)
        entry.data = br_source_body(&merge->source, BR_TABLE_STRING, (uint32_t)index, &entry.len);
    return entry;
}

int br_merger_inliner(struct br_merge *merge, struct br_inliner *ret)
{
    if (!merge->scratch) {
        merge->scratch = br_buf_new(merge->host->pool, 0);
        if (!merge->scratch)
            return BR_ENOMEM;
    }
    merge->scratch->len = 0;
    *ret = (struct br_inliner){&merge->scratch, merge->max_bytes, merge_entry_source_string, merge};
    return 0;
}

/* Writes the value of an attribute to the scratch buffer, with references replaced by strings. */
static int merge_entry_resolve_values(struct br_merge *merge, const uint8_t *p, const uint8_t *end)
{
    struct br_inliner in;
    int rc = br_merger_inliner(merge, &in);
    while (p < end && !rc) {
        struct br_field field;
        p = br_scan(p, end, &field);
        if (!p)
            return BR_EINVAL;
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE))
            rc = br_value_inline(&in, field.data, field.value);
    }
    return rc;
}

static uint32_t merge_entry_intern_attribute(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                             uint32_t guess)
{
    const uint64_t known =
        VARINT(BR_ATTRIBUTE_KEY) | LEN(BR_ATTRIBUTE_VALUE) | VARINT(BR_ATTRIBUTE_UNIT);
    uint64_t v[3] = {0};
    bool others = false, refers = false;
    const uint8_t *value = NULL, *end = p + len;
    size_t value_len = 0, n_values = 0;
    for (const uint8_t *q = p; q < end;) {
        struct br_field field;
        q = br_scan(q, end, &field);
        if (!q) {
            br_merger_fail(merge, BR_EINVAL);
            return 0;
        }
        if (br_scan_tag(&field) == BR_SCAN_LEN(BR_ATTRIBUTE_VALUE)) {
            value = field.data;
            value_len = field.value;
            n_values++;
            refers = refers || br_value_has_references(field.data, field.value);
        } else if (field.wire == BR_WIRE_VARINT && field.number <= BR_ATTRIBUTE_UNIT) {
            v[field.number - 1] = field.value;
        } else {
            others = true;
        }
    }
    if (merge->recalling && (refers || n_values > 1))
        /* do not look the entry up now: replacing its references may need much memory, and the
         * entry may be unused */
        return BR_INTERN_NONE;
    if (refers || n_values > 1) {
        br_merger_fail(merge, merge_entry_resolve_values(merge, p, end));
        value = merge->scratch->data;
        value_len = merge->scratch->len;
    }
    uint8_t *o =
        merge->rc ? NULL : br_merger_entry(merge, BR_TABLE_ATTRIBUTE, (size_t)len + value_len);
    if (!o)
        return 0;
    o = br_merger_put_scalar(o, BR_ATTRIBUTE_KEY, br_merger_index(merge, BR_TABLE_STRING, v[0]));
    if (n_values)
        o = br_put_len(o, BR_ATTRIBUTE_VALUE, value, value_len);
    o = br_merger_put_scalar(o, BR_ATTRIBUTE_UNIT, br_merger_index(merge, BR_TABLE_STRING, v[2]));
    if (others)
        o = merge_entry_put_unknown(known, p, end, o);
    return br_merger_enter(merge, BR_TABLE_ATTRIBUTE, o, guess);
}

static uint32_t merge_entry_intern_stack(struct br_merge *merge, const uint8_t *p, uint32_t len,
                                         uint32_t guess)
{
    const uint64_t known = VARINT(BR_STACK_LOCATIONS) | LEN(BR_STACK_LOCATIONS);
    struct br_field field = {0};
    const uint8_t *end = p + len;
    uint8_t *o = br_merger_entry(merge, BR_TABLE_STACK, GROWTH * (size_t)len);
    if (!o)
        return 0;
    const uint8_t *next = len ? br_scan(p, end, &field) : NULL;
    if (next == end && br_scan_tag(&field) == BR_SCAN_LEN(BR_STACK_LOCATIONS)) {
        if (field.value) {
            *o++ = (uint8_t)BR_SCAN_LEN(BR_STACK_LOCATIONS);
            uint8_t *list = ++o;
            o = br_put_length_before(
                list, br_merger_put_packed(merge, BR_TABLE_LOCATION, field.data, end, o));
        }
    } else {
        o = merge_entry_put_list(merge, BR_TABLE_LOCATION, BR_STACK_LOCATIONS, p, end, o);
        o = merge_entry_put_unknown(known, p, end, o);
    }
    return br_merger_enter(merge, BR_TABLE_STACK, o, guess);
}

typedef uint32_t merge_entry_fn(struct br_merge *merge, const uint8_t *body, uint32_t len,
                                uint32_t guess);

static uint32_t merge_entry_intern(struct br_merge *merge, enum br_table table, uint32_t index)
{
    static merge_entry_fn *const interns[BR_TABLES] = {
        [BR_TABLE_MAPPING] = merge_entry_intern_mapping,
        [BR_TABLE_LOCATION] = merge_entry_intern_location,
        [BR_TABLE_FUNCTION] = merge_entry_intern_function,
        [BR_TABLE_LINK] = merge_entry_intern_link,
        [BR_TABLE_STRING] = merge_entry_intern_string,
        [BR_TABLE_ATTRIBUTE] = merge_entry_intern_attribute,
        [BR_TABLE_STACK] = merge_entry_intern_stack};
    const uint32_t *map = merge->source.tables[table].map;
    uint32_t len;
    const uint8_t *body = br_source_body(&merge->source, table, index, &len);
    /* Neighbours in the source are mostly neighbours in the merged dictionary. `index` is at
     * least 1, because entry 0 is always mapped. */
    uint32_t guess = map[index - 1] ? map[index - 1] : BR_INTERN_NONE;
    return interns[table](merge, body, len, guess);
}

uint32_t br_merger_intern(struct br_merge *merge, enum br_table table, uint32_t index)
{
    if (merge->recalling)
        merge->unknown = true;
    if (merge->rc || merge->recalling)
        return 0;
    uint32_t merged = merge_entry_intern(merge, table, index);
    if (merge->rc)
        return 0;
    merge->source.tables[table].map[index] = merged + 1;
    if (merge->source.lists_used)
        br_merger_fail(merge, br_source_note_used(&merge->source, table, index));
    return merged;
}

uint32_t br_merger_recall_entry(struct br_merge *merge, enum br_table table, uint32_t index)
{
    merge->unknown = false;
    uint32_t merged = merge_entry_intern(merge, table, index);
    return merge->unknown || merge->rc ? BR_INTERN_NONE : merged;
}
