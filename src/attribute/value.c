/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/value.h"

#include <errno.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/decimal.h"
#include "base/str.h"
#include "wire/protobuf.h"

/* bytes of the buffer for the text of a number; no valid number is longer */
#define NUMBER_TEXT_MAX 512

/* --- Comparing ------------------------------------------------------------------------------- */

static bool value_has_entry(const struct br_any *map, const struct br_keyvalue *entry)
{
    struct br_keyvalue other;
    const uint8_t *p = map->data;
    while ((p = br_keyvalue_next(p, map->data + map->len, BR_LIST_VALUES, &other)))
        if (br_bytes_equal(entry->key, entry->key_len, other.key, other.key_len))
            return br_value_equal(entry->value, other.value);
    return false;
}

static size_t value_n_elements(const struct br_any *any)
{
    struct br_value element;
    size_t n = 0;
    for (const uint8_t *p = any->data; (p = br_value_next(p, any->data + any->len, &element));)
        n++;
    return n;
}

/* Compares two maps. The depth of the recursion is at most that of the less deeply nested value. */
static bool value_equal_maps(const struct br_any *any, const struct br_any *other)
{
    struct br_keyvalue entry;
    if (value_n_elements(any) != value_n_elements(other))
        return false;
    for (const uint8_t *p = any->data;
         (p = br_keyvalue_next(p, any->data + any->len, BR_LIST_VALUES, &entry));)
        if (!value_has_entry(other, &entry))
            return false;
    return true;
}

static bool value_equal_lists(const struct br_any *any, const struct br_any *other)
{
    struct br_value value, y;
    const uint8_t *p = any->data, *q = other->data;
    while ((p = br_value_next(p, any->data + any->len, &value)))
        if (!(q = br_value_next(q, other->data + other->len, &y)) || !br_value_equal(value, y))
            return false;
    return !br_value_next(q, other->data + other->len, &y);
}

bool br_any_equal(const struct br_any *left, const struct br_any *right)
{
    double d, e;
    if (left->type != right->type)
        return false;
    switch (left->type) {
    case BR_VALUE_EMPTY:
        return true;
    case BR_VALUE_STRING:
    case BR_VALUE_BYTES:
        return br_bytes_equal(left->data, left->len, right->data, right->len);
    case BR_VALUE_BOOL:
        return (left->number != 0) == (right->number != 0);
    case BR_VALUE_INT:
        return left->number == right->number;
    case BR_VALUE_DOUBLE:
        memcpy(&d, &left->number, sizeof d);
        memcpy(&e, &right->number, sizeof e);
        return !(d < e) && !(d > e) && !isnan(d) && !isnan(e);
    case BR_VALUE_LIST:
        return value_equal_lists(left, right);
    case BR_VALUE_MAP:
        return value_equal_maps(left, right);
    }
    return false;
}

bool br_value_equal(struct br_value left, struct br_value right)
{
    struct br_any any = br_any_read(left), other = br_any_read(right);
    return br_any_equal(&any, &other);
}

/* --- Writing --------------------------------------------------------------------------------- */

static bool value_put_len(enum br_value_type field, const void *data, size_t len,
                          struct br_arena *arena, struct br_value *ret)
{
    uint8_t *p = br_arena_alloc(arena, br_len_size(field, len));
    if (!p)
        return false;
    *ret = (struct br_value){p, (size_t)(br_put_len(p, field, data, len) - p)};
    return true;
}

bool br_value_string(const void *text, size_t len, struct br_arena *arena, struct br_value *ret)
{
    return value_put_len(BR_VALUE_STRING, text, len, arena, ret);
}

static bool value_put_varint(enum br_value_type field, uint64_t value, struct br_arena *arena,
                             struct br_value *ret)
{
    uint8_t *p = br_arena_alloc(arena, 1 + BR_VARINT_MAX);
    if (!p)
        return false;
    uint8_t *end = br_put_varint(br_put_varint(p, BR_TAG(field, BR_WIRE_VARINT)), value);
    *ret = (struct br_value){p, (size_t)(end - p)};
    return true;
}

static bool value_put_double(double value, struct br_arena *arena, struct br_value *ret)
{
    uint8_t *p = br_arena_alloc(arena, 1 + sizeof value);
    if (!p)
        return false;
    p[0] = BR_TAG(BR_VALUE_DOUBLE, BR_WIRE_I64);
    memcpy(p + 1, &value, sizeof value);
    *ret = (struct br_value){p, 1 + sizeof value};
    return true;
}

/* --- Numbers in texts ------------------------------------------------------------------------ */

/* Parses a number in the same way as Go's strconv.ParseInt with base 0: the number may have the
 * prefix 0x, 0o or 0b, or a leading 0 for octal. */
static bool value_parse_int_prefixed(const char *text, int64_t *ret)
{
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    if (text[0] != '0' || !text[1])
        return br_parse_int(text, 10, negative, ret);
    switch (text[1] | 0x20) {
    case 'x':
        return br_parse_int(text + 2, 16, negative, ret);
    case 'o':
        return br_parse_int(text + 2, 8, negative, ret);
    case 'b':
        return br_parse_int(text + 2, 2, negative, ret);
    default:
        return br_parse_int(text + 1, 8, negative, ret);
    }
}

/* Removes the underscores of a number as Go's strconv.ParseFloat does. Returns false if an
 * underscore is not between two digits, or between the prefix 0x and a digit. */
static bool value_remove_underscores(char *text)
{
    char *out = text, last = 0;
    bool sign = *text == '-' || *text == '+';
    bool hex = text[sign] == '0' && (text[sign + 1] | 0x20) == 'x';
    for (const char *p = text; *p; p++) {
        bool digit = br_is_digit(*p) || (hex && br_hex_value(*p) >= 0);
        bool prefix = hex && p == text + sign + 1;
        if (last == '_' && !digit)
            return false;
        if (*p == '_' && last != '0')
            return false;
        last = digit || prefix ? '0' : *p;
        if (*p != '_')
            *out++ = *p;
    }
    *out = '\0';
    return last != '_';
}

/* Parses a number in the same way as Go's strconv.ParseFloat, but without underscores: a decimal
 * number, a hexadecimal number with an exponent, inf or nan. */
static bool value_parse_double(const char *text, double *ret)
{
    const char *p = text + (*text == '-' || *text == '+');
    bool hex = p[0] == '0' && (p[1] | 0x20) == 'x';
    bool digit = (*p >= '0' && *p <= '9') || *p == '.';
    if (hex && !strpbrk(p, "pP"))
        return false;
    /* accepts inf and nan, but rejects leading spaces and nan(...) */
    if (!digit && p[strspn(p, "infatyINFATY")])
        return false;
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || *end)
        return false;
    if ((isnan(v) && p != text) || (isinf(v) && digit))
        return false;
    *ret = v;
    return true;
}

/* --- From the config ------------------------------------------------------------------------- */

/* Makes a value from an unquoted scalar that looks like a number, with the type that yaml.v3
 * gives it. */
static bool value_number_from_yaml(const char *text, struct br_arena *arena, struct br_value *ret)
{
    char plain[NUMBER_TEXT_MAX];
    size_t n = 0;
    int64_t i;
    double d;
    for (const char *p = text; *p && n < sizeof plain - 1; p++)
        if (*p != '_')
            plain[n++] = *p;
    plain[n] = '\0';
    if (strlen(text) >= sizeof plain)
        return br_value_string(text, strlen(text), arena, ret);
    if (value_parse_int_prefixed(plain, &i))
        return value_put_varint(BR_VALUE_INT, (uint64_t)i, arena, ret);
    const char *p = plain + (*plain == '-' || *plain == '+');
    if (*p == '.' && p[1] > '9') { /* the scalar is .inf or .nan */
        d = (p[1] | 0x20) == 'n' ? (double)NAN : (double)INFINITY;
        return value_put_double(*plain == '-' && isinf(d) ? -d : d, arena, ret);
    }
    if (!plain[strspn(plain, "0123456789+-.eE")] && value_parse_double(plain, &d))
        return value_put_double(d, arena, ret);
    return br_value_string(text, strlen(text), arena, ret);
}

static bool value_children_from_yaml(const struct br_yaml *node, struct br_arena *arena,
                                     struct br_value *ret)
{
    bool map = node->type == BR_YAML_MAP;
    size_t size = 0;
    struct br_value *v = br_arena_calloc(arena, node->count, sizeof *v);
    if (!v)
        return false;
    for (size_t i = 0; i < node->count; i++) {
        if (!br_value_from_yaml(node->items[i], arena, &v[i]))
            return false;
        size_t body = map ? br_len_size(BR_KEYVALUE_KEY, node->keys[i]->len) +
                                br_len_size(BR_KEYVALUE_VALUE, v[i].len)
                          : v[i].len;
        size += br_len_size(BR_LIST_VALUES, body);
    }
    uint8_t *start = br_arena_alloc(arena, size), *p = start;
    if (!start)
        return false;
    for (size_t i = 0; i < node->count; i++) {
        const struct br_yaml *key = map ? node->keys[i] : NULL;
        if (key) {
            p = br_put_varint(p, BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN));
            p = br_put_varint(p, br_len_size(BR_KEYVALUE_KEY, key->len) +
                                     br_len_size(BR_KEYVALUE_VALUE, v[i].len));
            p = br_put_len(p, BR_KEYVALUE_KEY, key->text, key->len);
        }
        p = br_put_len(p, key ? BR_KEYVALUE_VALUE : BR_LIST_VALUES, v[i].data, v[i].len);
    }
    return value_put_len(map ? BR_VALUE_MAP : BR_VALUE_LIST, start, size, arena, ret);
}

bool br_value_from_yaml(const struct br_yaml *node, struct br_arena *arena, struct br_value *ret)
{
    *ret = (struct br_value){NULL, 0};
    if (!node || node->type == BR_YAML_NULL)
        return true;
    if (node->type != BR_YAML_SCALAR)
        return value_children_from_yaml(node, arena, ret);
    enum br_yaml_look look =
        node->quoted && !node->expanded ? BR_LOOK_TEXT : br_yaml_look(node->text);
    if (look == BR_LOOK_NULL)
        return true;
    if (look == BR_LOOK_BOOL)
        return value_put_varint(BR_VALUE_BOOL, (node->text[0] | 0x20) == 't', arena, ret);
    if (look == BR_LOOK_NUMBER)
        return value_number_from_yaml(node->text, arena, ret);
    return br_value_string(node->text, node->len, arena, ret);
}

/* --- Actions --------------------------------------------------------------------------------- */

bool br_value_hash(struct br_value value, struct br_arena *arena, struct br_value *ret)
{
    struct br_any any = br_any_read(value);
    uint8_t bytes[8], digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned n = 0;
    const void *data = bytes;
    size_t len = sizeof bytes;
    memcpy(bytes, &any.number, sizeof bytes);
    if (any.type == BR_VALUE_STRING) {
        data = any.data;
        len = any.len;
    } else if (any.type == BR_VALUE_BOOL) {
        bytes[0] = any.number != 0;
        len = 1;
    } else if (any.type != BR_VALUE_INT && any.type != BR_VALUE_DOUBLE) {
        return br_value_string("", 0, arena, ret);
    }
    if (!EVP_Digest(data, len, digest, &n, EVP_sha256(), NULL))
        return false;
    struct br_str text = {.data = hex, .cap = sizeof hex, .max = sizeof hex - 1, .fixed = true};
    br_str_hex(&text, digest, n);
    return br_value_string(hex, text.len, arena, ret);
}

/* Copies a string that may be the text of a number. Returns false if the string cannot be a
 * number. */
static bool value_number_text(const struct br_any *any, char out[NUMBER_TEXT_MAX])
{
    if (any->type != BR_VALUE_STRING || any->len >= NUMBER_TEXT_MAX || !any->len ||
        memchr(any->data, '\0', any->len))
        return false;
    memcpy(out, any->data, any->len);
    out[any->len] = '\0';
    return true;
}

static bool value_to_int(const struct br_any *any, int64_t *ret)
{
    char text[NUMBER_TEXT_MAX];
    double d;
    if (any->type == BR_VALUE_BOOL) {
        *ret = any->number != 0;
        return true;
    }
    if (any->type != BR_VALUE_DOUBLE)
        return value_number_text(any, text) && br_decimal_parse_signed(text, strlen(text), ret);
    memcpy(&d, &any->number, sizeof d);
    if (!(d >= -9223372036854775808.0 && d < 9223372036854775808.0))
        return false;
    *ret = (int64_t)d;
    return true;
}

static bool value_to_double(const struct br_any *any, double *ret)
{
    char text[NUMBER_TEXT_MAX];
    if (any->type == BR_VALUE_BOOL)
        *ret = any->number ? 1 : 0;
    else if (any->type == BR_VALUE_INT)
        *ret = (double)(int64_t)any->number;
    else
        return value_number_text(any, text) &&
               (!strchr(text, '_') || value_remove_underscores(text)) &&
               value_parse_double(text, ret);
    return true;
}

bool br_value_convert(struct br_value value, enum br_value_type to, struct br_arena *arena,
                      struct br_value *ret)
{
    struct br_any any = br_any_read(value);
    int64_t i;
    double d;
    *ret = value;
    if (any.type == to)
        return true;
    if (to == BR_VALUE_INT)
        return !value_to_int(&any, &i) || value_put_varint(BR_VALUE_INT, (uint64_t)i, arena, ret);
    if (to == BR_VALUE_DOUBLE)
        return !value_to_double(&any, &d) || value_put_double(d, arena, ret);
    struct br_str text = {.max = BR_BUF_MAX};
    br_value_text(&text, &any, arena);
    bool ok = !text.failed && br_value_string(text.data ? text.data : "", text.len, arena, ret);
    br_str_release(&text);
    return ok;
}
