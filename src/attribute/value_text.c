/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/protobuf.h"

#define DIGITS_MAX 17

/* The least digits that read back as `v` > 0; returns their number. The value is 0.DIGITS *
 * 10^point. */
static int shortest(double v, char digits[DIGITS_MAX + 1], int *ret_point)
{
    char text[32];
    int precision = 0;
    do {
        (void)snprintf(text, sizeof text, "%.*e", precision, v);
    } while (memcmp(&(double){strtod(text, NULL)}, &v, sizeof v) != 0 && ++precision < DIGITS_MAX);
    char *e = strchr(text, 'e');
    int n = 0;
    for (const char *p = text; p < e; p++)
        if (*p != '.')
            digits[n++] = *p;
    *ret_point = (int)strtol(e + 1, NULL, 10) + 1;
    return n;
}

/* Positive and finite. */
static void put_exponent(struct br_str *out, const char *digits, int n, int point)
{
    br_str_printf(out, "%c%s%.*s", digits[0], n > 1 ? "." : "", n - 1, digits + 1);
    br_str_printf(out, "e%+d", point - 1);
}

static void put_plain(struct br_str *out, const char *digits, int n, int point)
{
    int whole = point < 0 ? 0 : point < n ? point : n;
    br_str_printf(out, "%.*s", whole, digits);
    for (int i = n; i < point; i++)
        br_str_putc(out, '0');
    if (point <= 0)
        br_str_putc(out, '0');
    if (whole < n)
        br_str_putc(out, '.');
    for (int i = point; i < 0; i++)
        br_str_putc(out, '0');
    br_str_printf(out, "%.*s", n - whole, digits + whole);
}

static void put_double(struct br_str *out, double v, bool may_have_exponent)
{
    char digits[DIGITS_MAX + 1];
    int point;
    br_str_puts(out, signbit(v) ? "-" : "");
    v = fabs(v);
    if (fpclassify(v) == FP_ZERO) {
        br_str_putc(out, '0');
        return;
    }
    int n = shortest(v, digits, &point);
    if (may_have_exponent && (v < 1e-6 || v >= 1e21))
        put_exponent(out, digits, n, point);
    else
        put_plain(out, digits, n, point);
}

void br_value_text_double(struct br_str *out, double v)
{
    if (isnan(v))
        br_str_puts(out, "NaN");
    else if (isinf(v))
        br_str_puts(out, signbit(v) ? "-Infinity" : "Infinity");
    else
        put_double(out, v, true);
}

void br_value_text_plain(struct br_str *out, double v)
{
    if (isnan(v))
        br_str_puts(out, "NaN");
    else if (isinf(v))
        br_str_puts(out, signbit(v) ? "-Inf" : "+Inf");
    else
        put_double(out, v, false);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void json(struct br_str *out, struct br_value v, struct br_arena *arena);

struct pair {
    struct br_keyvalue entry;
    size_t index;
};

static int by_key(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    size_t x_len = x->entry.key_len, y_len = y->entry.key_len, n = x_len < y_len ? x_len : y_len;
    int order = n ? memcmp(x->entry.key, y->entry.key, n) : 0;
    if (order == 0)
        order = (x_len > y_len) - (x_len < y_len);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static size_t count(const struct br_any *list)
{
    struct br_value element;
    size_t n = 0;
    for (const uint8_t *p = list->data; (p = br_value_next(p, list->data + list->len, &element));)
        n++;
    return n;
}

static bool same_key(const struct pair *a, const struct pair *b)
{
    const struct br_keyvalue *x = &a->entry, *y = &b->entry;
    return x->key_len == y->key_len && (!x->key_len || memcmp(x->key, y->key, x->key_len) == 0);
}

static void json_map(struct br_str *out, const struct br_any *map, struct br_arena *arena)
{
    size_t n = count(map), i = 0;
    struct pair *pairs = br_arena_calloc(arena, n, sizeof *pairs);
    if (!pairs) {
        out->failed = true;
        return;
    }
    const uint8_t *p = map->data, *end = n ? p + map->len : p;
    for (; i < n && (p = br_keyvalue_next(p, end, BR_LIST_VALUES, &pairs[i].entry)); i++)
        pairs[i].index = i;
    if (n)
        qsort(pairs, n, sizeof *pairs, by_key);
    const char *comma = "";
    br_str_putc(out, '{');
    for (i = 0; i < n && !out->failed; i++) {
        if (i + 1 < n && same_key(&pairs[i], &pairs[i + 1]))
            continue;
        br_str_puts(out, comma);
        comma = ",";
        br_str_json(out, (const char *)pairs[i].entry.key, pairs[i].entry.key_len);
        br_str_putc(out, ':');
        json(out, pairs[i].entry.value, arena);
    }
    br_str_putc(out, '}');
}

static void json_list(struct br_str *out, const struct br_any *list, struct br_arena *arena)
{
    const uint8_t *p = list->data;
    const char *comma = "";
    struct br_value element;
    br_str_putc(out, '[');
    while (!out->failed && (p = br_value_next(p, list->data + list->len, &element))) {
        br_str_puts(out, comma);
        comma = ",";
        json(out, element, arena);
    }
    br_str_putc(out, ']');
}

/* Levels are those of the message, which its walk has bounded. */
static void json(struct br_str *out, struct br_value v, struct br_arena *arena)
{
    struct br_any any = br_any_read(v);
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
        json_list(out, any, arena);
        break;
    case BR_VALUE_MAP:
        json_map(out, any, arena);
        break;
    case BR_VALUE_BYTES:
        br_str_base64(out, any->data, any->len);
        break;
    }
}
