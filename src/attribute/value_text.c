/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/double.h"
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

static void value_text_json(struct br_str *out, struct br_value value, struct br_arena *arena);

struct pair {
    struct br_keyvalue entry;
    size_t index;
};

static int value_text_by_key(const void *left, const void *right)
{
    const struct pair *pair = left, *y = right;
    size_t x_len = pair->entry.key_len, y_len = y->entry.key_len, n = x_len < y_len ? x_len : y_len;
    int order = n ? memcmp(pair->entry.key, y->entry.key, n) : 0;
    if (order == 0)
        order = (x_len > y_len) - (x_len < y_len);
    return order ? order : (pair->index > y->index) - (pair->index < y->index);
}

static size_t value_text_count(const struct br_any *list)
{
    struct br_value element;
    size_t n = 0;
    for (const uint8_t *p = list->data; (p = br_value_next(p, list->data + list->len, &element));)
        n++;
    return n;
}

static bool value_text_same_key(const struct pair *left, const struct pair *right)
{
    const struct br_keyvalue *keyvalue = &left->entry, *y = &right->entry;
    return keyvalue->key_len == y->key_len &&
           (!keyvalue->key_len || memcmp(keyvalue->key, y->key, keyvalue->key_len) == 0);
}

static void value_text_json_map(struct br_str *out, const struct br_any *map,
                                struct br_arena *arena)
{
    size_t n = value_text_count(map), i = 0;
    struct pair *pairs = br_arena_calloc(arena, n, sizeof *pairs);
    if (!pairs) {
        out->failed = true;
        return;
    }
    const uint8_t *p = map->data, *end = n ? p + map->len : p;
    for (; i < n && (p = br_keyvalue_next(p, end, BR_LIST_VALUES, &pairs[i].entry)); i++)
        pairs[i].index = i;
    if (n)
        qsort(pairs, n, sizeof *pairs, value_text_by_key);
    const char *comma = "";
    br_str_putc(out, '{');
    for (i = 0; i < n && !out->failed; i++) {
        if (i + 1 < n && value_text_same_key(&pairs[i], &pairs[i + 1]))
            continue;
        br_str_puts(out, comma);
        comma = ",";
        br_str_json(out, (const char *)pairs[i].entry.key, pairs[i].entry.key_len);
        br_str_putc(out, ':');
        value_text_json(out, pairs[i].entry.value, arena);
    }
    br_str_putc(out, '}');
}

static void value_text_json_list(struct br_str *out, const struct br_any *list,
                                 struct br_arena *arena)
{
    const uint8_t *p = list->data;
    const char *comma = "";
    struct br_value element;
    br_str_putc(out, '[');
    while (!out->failed && (p = br_value_next(p, list->data + list->len, &element))) {
        br_str_puts(out, comma);
        comma = ",";
        value_text_json(out, element, arena);
    }
    br_str_putc(out, ']');
}

/* Levels are those of the message, which its walk has bounded. */
static void value_text_json(struct br_str *out, struct br_value value, struct br_arena *arena)
{
    struct br_any any = br_any_read(value);
    double d;
    memcpy(&d, &any.number, sizeof d);
    if (any.type == BR_VALUE_STRING) {
        br_str_json(out, (const char *)any.data, any.len);
    } else if (any.type == BR_VALUE_EMPTY) {
        br_str_puts(out, "null");
    } else if (any.type == BR_VALUE_BYTES || (any.type == BR_VALUE_DOUBLE && !isfinite(d))) {
        br_str_putc(out, '"');
        br_value_text(out, &any, arena);
        br_str_putc(out, '"');
    } else {
        br_value_text(out, &any, arena);
    }
}

void br_value_text(struct br_str *out, const struct br_any *any, struct br_arena *arena)
{
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
        value_text_json_list(out, any, arena);
        break;
    case BR_VALUE_MAP:
        value_text_json_map(out, any, arena);
        break;
    case BR_VALUE_BYTES:
        br_str_base64(out, any->data, any->len);
        break;
    }
}
