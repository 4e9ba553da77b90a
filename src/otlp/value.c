/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "otlp/scan.h"
#include "otlp/walk.h"

bool br_text_is(const void *data, size_t len, const char *text)
{
    return len == strlen(text) && (len == 0 || memcmp(data, text, len) == 0);
}

static struct br_entry string(const struct br_dictionary_view *view, uint64_t i)
{
    return view && i <= UINT32_MAX ? br_dictionary_string(view, (uint32_t)i)
                                   : (struct br_entry){NULL, 0};
}

static void set_bytes(struct br_value *v, enum br_value_kind kind, const uint8_t *data, size_t len)
{
    v->kind = kind;
    v->data = data;
    v->len = len;
}

void br_value_read(const struct br_dictionary_view *view, const uint8_t *data, size_t len,
                   struct br_value *ret)
{
    static const enum br_value_kind of_message[] = {
        [1] = BR_VALUE_TEXT, [5] = BR_VALUE_LIST, [6] = BR_VALUE_MAP, [7] = BR_VALUE_BYTES};
    const uint8_t *p = data, *end = data + len;
    struct br_field f;
    struct br_value v = {.kind = BR_VALUE_NONE};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.wire == BR_WIRE_LEN && f.number <= 7 && of_message[f.number]) {
            set_bytes(&v, of_message[f.number], f.data, (size_t)f.value);
        } else if (f.number == 8 && f.wire == BR_WIRE_VARINT) {
            struct br_entry s = string(view, f.value);
            set_bytes(&v, BR_VALUE_TEXT, s.data, s.len);
        } else if (f.number == 4 && f.wire == BR_WIRE_I64) {
            v.kind = BR_VALUE_DOUBLE;
            memcpy(&v.real, &f.value, sizeof v.real);
        } else if ((f.number == 2 || f.number == 3) && f.wire == BR_WIRE_VARINT) {
            v.kind = f.number == 2 ? BR_VALUE_BOOL : BR_VALUE_INT;
            v.number = f.number == 2 ? f.value != 0 : (int64_t)f.value;
        }
    }
    *ret = v;
}

bool br_value_of_attribute(const struct br_dictionary_view *view, uint32_t i,
                           struct br_key_value *ret, uint32_t *ret_key, uint32_t *ret_unit)
{
    if (i == 0 || i >= view->n[BR_TABLE_ATTRIBUTE])
        return false;
    const struct br_entry *e = &view->tables[BR_TABLE_ATTRIBUTE][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t key = 0, unit = 0;
    ret->value = (struct br_value){.kind = BR_VALUE_NONE};
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == 1 && f.wire == BR_WIRE_VARINT)
            key = f.value;
        else if (f.number == 2 && f.wire == BR_WIRE_LEN)
            br_value_read(view, f.data, (size_t)f.value, &ret->value);
        else if (f.number == 3 && f.wire == BR_WIRE_VARINT)
            unit = f.value;
    }
    ret->key = string(view, key);
    if (ret_key)
        *ret_key = (uint32_t)key;
    if (ret_unit)
        *ret_unit = (uint32_t)unit;
    return true;
}

static void read_pair(const struct br_dictionary_view *view, const uint8_t *p, const uint8_t *end,
                      struct br_key_value *ret)
{
    struct br_field f;
    struct br_entry by_index = {NULL, 0};
    *ret = (struct br_key_value){.value.kind = BR_VALUE_NONE};
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.number == 1 && f.wire == BR_WIRE_LEN)
            ret->key = (struct br_entry){f.data, (uint32_t)f.value};
        else if (f.number == 2 && f.wire == BR_WIRE_LEN)
            br_value_read(view, f.data, (size_t)f.value, &ret->value);
        else if (f.number == 3 && f.wire == BR_WIRE_VARINT)
            by_index = string(view, f.value);
    }
    if (ret->key.len == 0)
        ret->key = by_index;
}

const uint8_t *br_key_value_next(const struct br_dictionary_view *view, const uint8_t *p,
                                 const uint8_t *end, uint32_t field, struct br_key_value *ret)
{
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != field || f.wire != BR_WIRE_LEN)
            continue;
        read_pair(view, f.data, f.data + f.value, ret);
        return p;
    }
    return NULL;
}

const uint8_t *br_value_next(const struct br_dictionary_view *view, const uint8_t *p,
                             const uint8_t *end, struct br_value *ret)
{
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        br_value_read(view, f.data, (size_t)f.value, ret);
        return p;
    }
    return NULL;
}

static void text_double(double v, struct br_str *out)
{
    char text[40];
    if (!isfinite(v)) {
        br_str_puts(out, isnan(v) ? "NaN" : v < 0 ? "-Infinity" : "Infinity");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    br_str_puts(out, text);
}

static void text(const struct br_dictionary_view *view, const struct br_value *v,
                 struct br_str *out, unsigned depth);

/* Inside a list or a map, where JSON needs quotes. */
static void text_inside(const struct br_dictionary_view *view, const struct br_value *v,
                        struct br_str *out, unsigned depth)
{
    bool odd = v->kind == BR_VALUE_DOUBLE && !isfinite(v->real);
    if (v->kind == BR_VALUE_NONE || depth > BR_WALK_DEPTH_MAX)
        br_str_puts(out, "null");
    else if (v->kind == BR_VALUE_TEXT)
        br_str_json(out, (const char *)v->data, v->len);
    else if (v->kind == BR_VALUE_BYTES || odd) {
        br_str_putc(out, '"');
        text(view, v, out, depth);
        br_str_putc(out, '"');
    } else
        text(view, v, out, depth);
}

static void text_list(const struct br_dictionary_view *view, const struct br_value *v,
                      struct br_str *out, unsigned depth)
{
    const uint8_t *p = v->data, *end = p + v->len;
    struct br_value each;
    br_str_putc(out, '[');
    for (bool first = true; (p = br_value_next(view, p, end, &each)); first = false) {
        if (!first)
            br_str_putc(out, ',');
        text_inside(view, &each, out, depth + 1);
    }
    br_str_putc(out, ']');
}

static void text_map(const struct br_dictionary_view *view, const struct br_value *v,
                     struct br_str *out, unsigned depth)
{
    const uint8_t *p = v->data, *end = p + v->len;
    struct br_key_value each;
    br_str_putc(out, '{');
    for (bool first = true; (p = br_key_value_next(view, p, end, 1, &each)); first = false) {
        if (!first)
            br_str_putc(out, ',');
        br_str_json(out, (const char *)each.key.data, each.key.len);
        br_str_putc(out, ':');
        text_inside(view, &each.value, out, depth + 1);
    }
    br_str_putc(out, '}');
}

static void text(const struct br_dictionary_view *view, const struct br_value *v,
                 struct br_str *out, unsigned depth)
{
    switch (v->kind) {
    case BR_VALUE_NONE:
        break;
    case BR_VALUE_TEXT:
        br_str_add(out, v->data, v->len);
        break;
    case BR_VALUE_BOOL:
        br_str_puts(out, v->number ? "true" : "false");
        break;
    case BR_VALUE_INT:
        br_str_printf(out, "%lld", (long long)v->number);
        break;
    case BR_VALUE_DOUBLE:
        text_double(v->real, out);
        break;
    case BR_VALUE_LIST:
        text_list(view, v, out, depth);
        break;
    case BR_VALUE_MAP:
        text_map(view, v, out, depth);
        break;
    case BR_VALUE_BYTES:
        br_str_base64(out, v->data, v->len);
        break;
    }
}

void br_value_text(const struct br_dictionary_view *view, const struct br_value *v,
                   struct br_str *out)
{
    text(view, v, out, 0);
}
