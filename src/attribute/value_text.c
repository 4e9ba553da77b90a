/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/double.h"
#include "base/steps.h"
#include "wire/protobuf.h"

void br_value_text_double(struct br_str *out, double value)
{
    if (isnan(value))
        br_str_puts(out, "NaN");
    else if (isinf(value))
        br_str_puts(out, signbit(value) ? "-Infinity" : "Infinity");
    else
        br_double_print(out, value);
}

void br_value_text_plain(struct br_str *out, double value)
{
    if (isnan(value))
        br_str_puts(out, "NaN");
    else if (isinf(value))
        br_str_puts(out, signbit(value) ? "-Inf" : "+Inf");
    else
        br_double_print_plain(out, value);
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* The way in which a value is written as JSON. */
struct style {
    struct br_arena *arena;
    bool go; /* as Go's json.Marshal */
};

static void value_text_json(struct br_str *out, struct br_value value, const struct style *style);

/* State for sorting the entries of a map by key. Entries are represented by their offsets, which
 * limits the memory for a map of many small entries to a small multiple of its bytes. Keys are
 * read again for each comparison. An entry without a key may have only two bytes, so only the
 * last of these entries is kept, separately. An entry with a key has at least five bytes. */
struct sorting {
    const uint8_t *data, *end;
    uint32_t *half; /* space for the offsets of half of the entries */
};

static struct br_keyvalue value_text_entry(const struct sorting *map, uint32_t at)
{
    struct br_keyvalue entry = {0};
    (void)br_keyvalue_next(map->data + at, map->end, BR_LIST_VALUES, &entry);
    return entry;
}

static int value_text_compare(const struct br_keyvalue *left, const struct br_keyvalue *right)
{
    size_t len = left->key_len < right->key_len ? left->key_len : right->key_len;
    br_steps_add(len + 1);
    int order = len ? memcmp(left->key, right->key, len) : 0;
    return order ? order : (left->key_len > right->key_len) - (left->key_len < right->key_len);
}

/* Merges the first half of the entries, which is copied to `half`, with the second half. If
 * entries have equal keys, only the last one is kept. Returns the number of remaining entries. */
static size_t value_text_merge(const struct sorting *map, uint32_t *entries, size_t n_first,
                               const uint32_t *rest, size_t n_rest)
{
    const uint32_t *first = map->half, *first_end = first + n_first, *rest_end = rest + n_rest;
    uint32_t *out = entries;
    memcpy(map->half, entries, n_first * sizeof *entries);
    struct br_keyvalue left = value_text_entry(map, *first), right = value_text_entry(map, *rest);
    for (;;) {
        int order = value_text_compare(&left, &right);
        if (order > 0)
            *out++ = *rest++;
        else if (order < 0)
            *out++ = *first;
        first += order <= 0;
        if (first == first_end || rest == rest_end)
            break;
        if (order > 0)
            right = value_text_entry(map, *rest);
        else
            left = value_text_entry(map, *first);
    }
    while (first < first_end)
        *out++ = *first++;
    while (rest < rest_end)
        *out++ = *rest++;
    return (size_t)(out - entries);
}

/* Sorts entries by key. The depth of the recursion is the number of bits of `count`. */
static size_t value_text_sort(const struct sorting *map, uint32_t *entries, size_t count)
{
    if (count < 2)
        return count;
    size_t n_half = count / 2;
    size_t n_first = value_text_sort(map, entries, n_half);
    size_t n_rest = value_text_sort(map, entries + n_half, count - n_half);
    return value_text_merge(map, entries, n_first, entries + n_half, n_rest);
}

static size_t value_text_count_keys(const struct br_any *map)
{
    struct br_keyvalue entry;
    size_t n = 0;
    const uint8_t *p = map->data, *end = map->len ? p + map->len : p;
    while ((p = br_keyvalue_next(p, end, BR_LIST_VALUES, &entry)))
        n += entry.key_len > 0;
    return n;
}

/* Stores in `*ret` the offsets of the entries to write, in the order in which they are written.
 * Returns false if memory is short. */
static bool value_text_list(struct sorting *map, size_t count, struct br_arena *arena,
                            uint32_t **ret, size_t *ret_len)
{
    uint32_t *entries = br_arena_alloc(arena, (count + 1 + count / 2) * sizeof *entries);
    struct br_keyvalue entry;
    size_t n = 1;
    bool without_key = false;
    if (!entries)
        return false;
    const uint8_t *p = map->data, *at = p;
    for (; (p = br_keyvalue_next(p, map->end, BR_LIST_VALUES, &entry)); at = p) {
        entries[entry.key_len ? n++ : 0] = (uint32_t)(at - map->data);
        without_key = without_key || !entry.key_len;
    }
    map->half = entries + count + 1;
    n = value_text_sort(map, entries + 1, n - 1);
    *ret = entries + !without_key;
    *ret_len = n + without_key;
    return true;
}

/* Appends a string as Go's json.Marshal does: characters that are special in HTML are escaped. */
static void value_text_go_string(struct br_str *out, const uint8_t *text, size_t len)
{
    static const char names[] = "\"\\\n\r\t", escapes[] = "\"\\nrt";
    size_t valid = 0; /* offset up to which the text is valid UTF-8 */
    br_str_putc(out, '"');
    for (size_t i = 0; i < len; i++) {
        const uint8_t c = text[i];
        valid = i < valid ? valid : i + br_utf8_valid(text + i, len - i);
        /* U+2028 or U+2029 */
        bool separator =
            c == 0xe2 && i + 2 < len && text[i + 1] == 0x80 && text[i + 2] >> 1 == 0x54;
        const char *name = c ? strchr(names, c) : NULL;
        if (name)
            br_str_printf(out, "\\%c", escapes[name - names]);
        else if (c < 0x20 || c == '<' || c == '>' || c == '&')
            br_str_printf(out, "\\u%04x", c);
        else if (separator)
            br_str_printf(out, "\\u202%c", '8' + (text[i + 2] & 1));
        else if (i >= valid)
            br_str_puts(out, "\xef\xbf\xbd");
        else
            br_str_putc(out, (char)c);
        i += separator ? 2 : 0;
    }
    br_str_putc(out, '"');
}

void br_value_text_go_double(struct br_str *out, double value)
{
    char text[64];
    struct br_str number = {
        .data = text, .cap = sizeof text, .max = sizeof text - 1, .fixed = true};
    br_double_print(&number, value);
    const char *exponent = strstr(text, "e-");
    if (exponent && exponent + 3 == text + number.len)
        br_str_printf(out, "%.*s-0%c", (int)(exponent + 1 - text), text, exponent[2]);
    else
        br_str_add(out, text, number.len);
}

static void value_text_json_map(struct br_str *out, const struct br_any *map,
                                const struct style *style)
{
    struct sorting sorting = {map->data, map->len ? map->data + map->len : map->data, NULL};
    uint32_t *entries;
    size_t n;
    if (map->len > UINT32_MAX ||
        !value_text_list(&sorting, value_text_count_keys(map), style->arena, &entries, &n)) {
        out->failed = true;
        return;
    }
    br_str_putc(out, '{');
    for (size_t i = 0; i < n && !out->failed; i++) {
        struct br_keyvalue entry = value_text_entry(&sorting, entries[i]);
        br_str_puts(out, i ? "," : "");
        if (style->go)
            value_text_go_string(out, entry.key, entry.key_len);
        else
            br_str_json(out, (const char *)entry.key, entry.key_len);
        br_str_putc(out, ':');
        value_text_json(out, entry.value, style);
    }
    br_str_putc(out, '}');
}

static void value_text_json_list(struct br_str *out, const struct br_any *list,
                                 const struct style *style)
{
    const uint8_t *p = list->data;
    const char *comma = "";
    struct br_value element;
    br_str_putc(out, '[');
    while (!out->failed && (p = br_value_next(p, list->data + list->len, &element))) {
        br_str_puts(out, comma);
        comma = ",";
        value_text_json(out, element, style);
    }
    br_str_putc(out, ']');
}

/* Appends a value as JSON. The depth of the recursion is the depth of the message, which is limited
 * when the request is validated. */
static void value_text_json(struct br_str *out, struct br_value value, const struct style *style)
{
    struct br_any any = br_any_read(value);
    double d;
    memcpy(&d, &any.number, sizeof d);
    if (any.type == BR_VALUE_STRING && style->go) {
        value_text_go_string(out, any.data, any.len);
    } else if (any.type == BR_VALUE_STRING) {
        br_str_json(out, (const char *)any.data, any.len);
    } else if (any.type == BR_VALUE_DOUBLE && style->go && isfinite(d)) {
        br_value_text_go_double(out, d);
    } else if (any.type == BR_VALUE_LIST) {
        value_text_json_list(out, &any, style);
    } else if (any.type == BR_VALUE_MAP) {
        value_text_json_map(out, &any, style);
    } else if (any.type == BR_VALUE_EMPTY) {
        br_str_puts(out, "null");
    } else if (any.type == BR_VALUE_BYTES || (any.type == BR_VALUE_DOUBLE && !isfinite(d))) {
        br_str_putc(out, '"');
        br_value_text(out, &any, style->arena);
        br_str_putc(out, '"');
    } else {
        br_value_text(out, &any, style->arena);
    }
}

void br_value_text_go(struct br_str *out, const struct br_any *any, struct br_arena *arena)
{
    const struct style style = {arena, true};
    if (any->type == BR_VALUE_LIST)
        value_text_json_list(out, any, &style);
    else if (any->type == BR_VALUE_MAP)
        value_text_json_map(out, any, &style);
    else
        br_value_text(out, any, arena);
}

void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena)
{
    const struct style style = {arena, false};
    double d;
    switch (any->type) {
    case BR_VALUE_EMPTY:
        break;
    case BR_VALUE_STRING:
        br_str_add(out, any->data, any->len);
        break;
    case BR_VALUE_BOOL:
        br_str_puts(out, any->number ? "true" : "false");
        break;
    case BR_VALUE_INT:
        br_str_printf(out, "%" PRId64, (int64_t)any->number);
        break;
    case BR_VALUE_DOUBLE:
        memcpy(&d, &any->number, sizeof d);
        br_value_text_double(out, d);
        break;
    case BR_VALUE_LIST:
        value_text_json_list(out, any, &style);
        break;
    case BR_VALUE_MAP:
        value_text_json_map(out, any, &style);
        break;
    case BR_VALUE_BYTES:
        br_str_base64(out, any->data, any->len);
        break;
    }
}
