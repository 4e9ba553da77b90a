/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"
#include "base/str.h"
#include "otlp/build/internal.h"
#include "otlp/fields.h"
#include "otlp/scan.h"

/* Largest number of bytes of an encoded index in a list, and of each number of a Line. */
#define INDEX_MAX 5
#define LINE_SIZE 40

bool br_build_check(struct br_build *build, enum br_table table, const uint32_t *values,
                    size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = values[i] > largest ? values[i] : largest;
    if (__builtin_expect(largest < build->merge.tables[table].count, 1))
        return true;
    br_merger_fail(&build->merge, BR_EINVAL);
    return false;
}

uint8_t *br_build_put_list(uint8_t *out, uint32_t field, const uint32_t *values, size_t count)
{
    if (count == 0)
        return out;
    *out++ = (uint8_t)BR_SCAN_LEN(field);
    uint8_t *list = ++out;
    for (size_t i = 0; i < count; i++)
        out = br_put_index(out, values[i]);
    return br_put_length_before(list, out);
}

/* Begins an entry of at most `max` bytes in addition to its scalar fields. Returns the position
 * where the caller writes the entry, or NULL after an error. */
static uint8_t *build_entry_begin(struct br_build *build, enum br_table table, size_t max)
{
    return br_build_ready(build) ? br_merger_entry(&build->merge, table, max) : NULL;
}

static uint32_t build_entry_finish(struct br_build *build, enum br_table table, const uint8_t *end)
{
    return br_merger_enter(&build->merge, table, end, build->merge.tables[table].count - 1);
}

/* --- Strings ---------------------------------------------------------------------------------- */

static uint8_t *build_entry_put_text(uint8_t *out, const struct br_addition *text, size_t size)
{
    if (size == text->len)
        return br_put_bytes(out, text->data, text->len);
    return out + br_utf8_replace(text->data, text->len, out);
}

uint32_t br_build_string(struct br_build *build, const void *data, size_t len)
{
    if (len == 0)
        return 0;
    bool valid = __builtin_expect(br_utf8_valid(data, len) == len, 1);
    uint8_t *o =
        build_entry_begin(build, BR_TABLE_STRING, valid ? len : br_utf8_replace(data, len, NULL));
    if (!o)
        return 0;
    o = valid ? br_put_bytes(o, data, len) : o + br_utf8_replace(data, len, o);
    return br_merger_enter(&build->merge, BR_TABLE_STRING, o, BR_INTERN_NONE);
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Writes the fields of a KeyValueAndUnit that precede its value. The caller then writes the
 * value, which has `len` bytes. */
static uint8_t *build_entry_begin_attribute(struct br_build *build, uint32_t key, size_t len)
{
    uint8_t *o = build_entry_begin(build, BR_TABLE_ATTRIBUTE, len);
    if (!o || !br_build_check(build, BR_TABLE_STRING, &key, 1))
        return NULL;
    o = br_merger_put_scalar(o, BR_ATTRIBUTE_KEY, key);
    *o++ = (uint8_t)BR_SCAN_LEN(BR_ATTRIBUTE_VALUE);
    return br_put_varint(o, len);
}

uint32_t br_build_attribute_text(struct br_build *build, uint32_t key, const void *data, size_t len)
{
    struct br_addition text = {data, len};
    size_t size = br_utf8_replace(data, len, NULL);
    uint8_t *o = build_entry_begin_attribute(build, key, br_len_size(BR_VALUE_STRING, size));
    if (!o)
        return 0;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_VALUE_STRING);
    o = br_put_varint(o, size);
    return build_entry_finish(build, BR_TABLE_ATTRIBUTE, build_entry_put_text(o, &text, size));
}

uint32_t br_build_attribute_texts(struct br_build *build, uint32_t key,
                                  const struct br_addition *texts, size_t count)
{
    size_t list = 0;
    for (size_t i = 0; i < count; i++)
        list += br_len_size(
            BR_LIST_VALUES,
            br_len_size(BR_VALUE_STRING, br_utf8_replace(texts[i].data, texts[i].len, NULL)));
    uint8_t *o = build_entry_begin_attribute(build, key, br_len_size(BR_VALUE_LIST, list));
    if (!o)
        return 0;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_VALUE_LIST);
    o = br_put_varint(o, list);
    for (size_t i = 0; i < count; i++) {
        size_t size = br_utf8_replace(texts[i].data, texts[i].len, NULL);
        *o++ = (uint8_t)BR_SCAN_LEN(BR_LIST_VALUES);
        o = br_put_varint(o, br_len_size(BR_VALUE_STRING, size));
        *o++ = (uint8_t)BR_SCAN_LEN(BR_VALUE_STRING);
        o = br_put_varint(o, size);
        o = build_entry_put_text(o, &texts[i], size);
    }
    return build_entry_finish(build, BR_TABLE_ATTRIBUTE, o);
}

uint32_t br_build_attribute_int(struct br_build *build, uint32_t key, int64_t value, uint32_t unit)
{
    uint8_t *o = build_entry_begin_attribute(build, key, 1 + br_varint_size((uint64_t)value));
    if (!o || !br_build_check(build, BR_TABLE_STRING, &unit, 1))
        return 0;
    *o++ = (uint8_t)BR_SCAN_VARINT(BR_VALUE_INT);
    o = br_put_varint(o, (uint64_t)value);
    return build_entry_finish(build, BR_TABLE_ATTRIBUTE,
                              br_merger_put_scalar(o, BR_ATTRIBUTE_UNIT, unit));
}

uint32_t br_build_attribute_ints(struct br_build *build, uint32_t key, const int64_t *values,
                                 size_t count, uint32_t unit)
{
    size_t list = 0;
    for (size_t i = 0; i < count; i++)
        list += 3 + br_varint_size((uint64_t)values[i]);
    uint8_t *o = build_entry_begin_attribute(build, key, br_len_size(BR_VALUE_LIST, list));
    if (!o || !br_build_check(build, BR_TABLE_STRING, &unit, 1))
        return 0;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_VALUE_LIST);
    o = br_put_varint(o, list);
    for (size_t i = 0; i < count; i++) {
        *o++ = (uint8_t)BR_SCAN_LEN(BR_LIST_VALUES);
        *o++ = (uint8_t)(1 + br_varint_size((uint64_t)values[i]));
        *o++ = (uint8_t)BR_SCAN_VARINT(BR_VALUE_INT);
        o = br_put_varint(o, (uint64_t)values[i]);
    }
    return build_entry_finish(build, BR_TABLE_ATTRIBUTE,
                              br_merger_put_scalar(o, BR_ATTRIBUTE_UNIT, unit));
}

uint32_t br_build_attribute_bool(struct br_build *build, uint32_t key, bool value)
{
    uint8_t *o = build_entry_begin_attribute(build, key, 2);
    if (!o)
        return 0;
    *o++ = (uint8_t)BR_SCAN_VARINT(BR_VALUE_BOOL);
    *o++ = value;
    return build_entry_finish(build, BR_TABLE_ATTRIBUTE, o);
}

/* --- Code ------------------------------------------------------------------------------------- */

uint32_t br_build_mapping(struct br_build *build, const struct br_build_mapping *mapping)
{
    uint8_t *o = build_entry_begin(build, BR_TABLE_MAPPING, INDEX_MAX * mapping->n_attributes);
    if (!o || !br_build_check(build, BR_TABLE_STRING, &mapping->filename, 1) ||
        !br_build_check(build, BR_TABLE_ATTRIBUTE, mapping->attributes, mapping->n_attributes))
        return 0;
    o = br_merger_put_scalar(o, BR_MAPPING_START, mapping->memory_start);
    o = br_merger_put_scalar(o, BR_MAPPING_LIMIT, mapping->memory_limit);
    o = br_merger_put_scalar(o, BR_MAPPING_FILE_OFFSET, mapping->file_offset);
    o = br_merger_put_scalar(o, BR_MAPPING_FILENAME, mapping->filename);
    o = br_build_put_list(o, BR_MAPPING_ATTRIBUTES, mapping->attributes, mapping->n_attributes);
    return build_entry_finish(build, BR_TABLE_MAPPING, o);
}

uint32_t br_build_function(struct br_build *build, uint32_t name, uint32_t system_name,
                           uint32_t filename, int64_t start_line)
{
    const uint32_t strings[] = {name, system_name, filename};
    uint8_t *o = build_entry_begin(build, BR_TABLE_FUNCTION, 0);
    if (!o || !br_build_check(build, BR_TABLE_STRING, strings, 3))
        return 0;
    for (uint32_t i = 0; i < 3; i++)
        o = br_merger_put_scalar(o, BR_FUNCTION_NAME + i, strings[i]);
    return build_entry_finish(
        build, BR_TABLE_FUNCTION,
        br_merger_put_scalar(o, BR_FUNCTION_START_LINE, (uint64_t)start_line));
}

uint32_t br_build_location(struct br_build *build, const struct br_build_location *location)
{
    uint8_t *o =
        build_entry_begin(build, BR_TABLE_LOCATION,
                          LINE_SIZE * location->n_lines + INDEX_MAX * location->n_attributes);
    if (!o || !br_build_check(build, BR_TABLE_MAPPING, &location->mapping, 1) ||
        !br_build_check(build, BR_TABLE_ATTRIBUTE, location->attributes, location->n_attributes))
        return 0;
    o = br_merger_put_scalar(o, BR_LOCATION_MAPPING, location->mapping);
    o = br_merger_put_scalar(o, BR_LOCATION_ADDRESS, location->address);
    for (size_t i = 0; i < location->n_lines; i++) {
        const struct br_build_line *line = &location->lines[i];
        if (!br_build_check(build, BR_TABLE_FUNCTION, &line->function, 1))
            return 0;
        *o++ = (uint8_t)BR_SCAN_LEN(BR_LOCATION_LINES);
        uint8_t *body = ++o;
        o = br_merger_put_scalar(o, BR_LINE_FUNCTION, line->function);
        o = br_merger_put_scalar(o, BR_LINE_LINE, (uint64_t)line->line);
        o = br_merger_put_scalar(o, BR_LINE_COLUMN, (uint64_t)line->column);
        o = br_put_length_before(body, o);
    }
    o = br_build_put_list(o, BR_LOCATION_ATTRIBUTES, location->attributes, location->n_attributes);
    return build_entry_finish(build, BR_TABLE_LOCATION, o);
}

/* Returns the largest number of bytes that the varint of a location's index needs. */
static size_t build_entry_location_size(const struct br_build *build)
{
    return br_varint_size(build->merge.tables[BR_TABLE_LOCATION].count);
}

uint32_t br_build_stack(struct br_build *build, const uint32_t *locations, size_t count)
{
    uint8_t *o = build_entry_begin(build, BR_TABLE_STACK, build_entry_location_size(build) * count);
    if (!o || !br_build_check(build, BR_TABLE_LOCATION, locations, count))
        return 0;
    return build_entry_finish(build, BR_TABLE_STACK,
                              br_build_put_list(o, BR_STACK_LOCATIONS, locations, count));
}

/* Writes the location index for each number of a packed list. Returns NULL if a number has no
 * index or is a varint of more than two bytes. The ends of the varints in eight bytes are found
 * at once, so that decoding a number does not depend on the previous number. */
static uint8_t *build_entry_put_indices(uint8_t *out, const uint8_t *p, size_t len,
                                        const uint32_t *index_of, uint32_t count)
{
    const uint64_t high = 0x8080808080808080u;
    uint64_t last = 0; /* the last byte of the previous block of eight bytes */
    for (size_t step; len > 0; p += step, len -= step) {
        uint64_t bytes = br_load64(p), mask = high;
        step = 8;
        if (len < 8) {
            step = len;
            mask >>= 64 - 8 * len;
        }
        uint64_t before = bytes << 8 | last;
        if (bytes & before & mask)
            return NULL;
        for (uint64_t ends = ~bytes & mask; ends; ends &= ends - 1) {
            unsigned shift = (unsigned)__builtin_ctzll(ends) - 7;
            uint32_t low = before >> shift & 0xff, v = bytes >> shift & 0xff;
            v = low & 0x80 ? v << 7 | (low & 0x7f) : v;
            uint32_t index = index_of[v < count ? v : 0] - 1;
            /* The index is checked before it is written: UINT32_MAX would need more bytes than
             * are allocated. */
            if (__builtin_expect(index == UINT32_MAX, 0))
                return NULL;
            out = br_put_index(out, index);
        }
        last = bytes >> (8 * step - 8) & 0xff;
    }
    return last & 0x80 ? NULL : out;
}

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef int16_t words8 __attribute__((vector_size(16)));

/* Returns the 16-bit lanes whose upper byte is the last byte of a varint with a value above
 * `most`. The lower byte of a lane is the byte that directly precedes the upper byte in the
 * list. */
static inline words8 build_entry_above(words8 lanes, words8 most)
{
    words8 ends = (words8)(lanes >= 0), two = (words8)((lanes & 0x80) != 0);
    words8 value = ((lanes >> 8 << 7 | (lanes & 0x7f)) & two) | (lanes >> 8 & ~two);
    return (words8)(value > most) & ends;
}

/* Returns true if the list consists of varints that are at least 1 and less than `count`, in
 * their shortest form and of at most two bytes. Any other list contains a zero byte, two
 * continuation bytes in a row, or a larger value.
 *
 * Each block of 16 bytes is read twice: from its start, and from one byte before its start. In one
 * of the two words, the last byte of each varint is the upper byte of a 16-bit lane. */
static bool build_entry_are_below(const uint8_t *p, size_t len, uint32_t count)
{
    const bytes16 number = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const words8 most = (words8){0} + (int16_t)(count <= 0x4000 ? count - 1 : 0x3fff);
    bytes16 wrong = {0};
    for (size_t at = 0; at < len; at += 16) {
        bytes16 now, before, inside;
        memcpy(&now, p + at, 16);
        memcpy(&before, p + at - 1, 16);
        inside = (bytes16)(number < (uint8_t)(len - at < 16 ? len - at : 16));
        wrong |= ((bytes16)(now == 0) | (now & before & 0x80)) & inside;
        /* Bytes after the end of the list are set to 0xff, a continuation byte, which does not
         * end a varint. */
        wrong |= (bytes16)build_entry_above((words8)(now | ~inside), most);
        inside = (bytes16)(number <= (uint8_t)(len - at < 16 ? len - at : 16));
        wrong |= (bytes16)build_entry_above((words8)(before | ~inside), most);
    }
    uint64_t halves[2];
    memcpy(halves, &wrong, sizeof halves);
    return (halves[0] | halves[1]) == 0 && p[len - 1] < 0x80;
}

bool br_build_stack_packed(struct br_build *build, const uint8_t *packed, size_t len,
                           const uint32_t *index_of, uint32_t n_numbers, uint32_t *ret)
{
    uint8_t *o = build_entry_begin(build, BR_TABLE_STACK,
                                   index_of ? build_entry_location_size(build) * len : len);
    *ret = 0;
    if (!o || len == 0)
        return true;
    if (!index_of && (n_numbers > build->merge.tables[BR_TABLE_LOCATION].count ||
                      !build_entry_are_below(packed, len, n_numbers)))
        return false;
    *o++ = (uint8_t)BR_SCAN_LEN(BR_STACK_LOCATIONS);
    uint8_t *list = ++o;
    o = index_of ? build_entry_put_indices(o, packed, len, index_of, n_numbers)
                 : br_put_bytes(o, packed, len);
    if (o)
        *ret = build_entry_finish(build, BR_TABLE_STACK, br_put_length_before(list, o));
    return o != NULL;
}

uint32_t br_build_link(struct br_build *build, const uint8_t *trace_id, const uint8_t *span_id)
{
    static const uint8_t none[16];
    uint8_t *o = build_entry_begin(build, BR_TABLE_LINK, 0);
    if (!o)
        return 0;
    if (!trace_id)
        trace_id = none;
    if (memcmp(trace_id, none, 16) == 0 && memcmp(span_id, none, 8) == 0)
        return 0;
    o = br_put_len(o, BR_LINK_TRACE_ID, trace_id, 16);
    return build_entry_finish(build, BR_TABLE_LINK, br_put_len(o, BR_LINK_SPAN_ID, span_id, 8));
}
