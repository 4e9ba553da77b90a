/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "base/mem.h"
#include "otlp/json/number.h"
#include "receivers/zipkin/zipkin.h"

#define NUMBER_MAX 64 /* longest text, in bytes, that is read as a floating-point number */
#define IPV6_GROUPS 8

/* --- Tags ------------------------------------------------------------------------------------- */

static size_t zipkin_value_digits(const char *text, size_t len)
{
    size_t n = 0;
    while (n < len && text[n] >= '0' && text[n] <= '9')
        n++;
    return n;
}

/* Parses "-?[0-9]+". Returns false if the number is outside int64. */
static bool zipkin_value_integer(const char *text, size_t len, int64_t *ret)
{
    bool negative = len && text[0] == '-';
    uint64_t magnitude, max = (uint64_t)INT64_MAX + negative;
    if (!br_decimal_parse(text + negative, len - negative, max, &magnitude))
        return false;
    *ret = (int64_t)(negative ? 0 - magnitude : magnitude);
    return true;
}

/* Parses "-?[0-9]+.[0-9]+". */
static bool zipkin_value_fraction(const char *text, size_t len, double *ret)
{
    char copy[NUMBER_MAX + 1];
    size_t sign = len && text[0] == '-', whole = zipkin_value_digits(text + sign, len - sign),
           point = sign + whole;
    if (len > NUMBER_MAX || !whole || point + 1 >= len || text[point] != '.' ||
        zipkin_value_digits(text + point + 1, len - point - 1) != len - point - 1)
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    *ret = strtod(copy, NULL);
    return true;
}

void zipkin_parse_tag(struct br_tag *tag)
{
    const char *text = (const char *)tag->data;
    int64_t integer;
    double fraction;
    if (tag->type != BR_VALUE_STRING || !tag->len)
        return;
    if (zipkin_value_integer(text, tag->len, &integer)) {
        tag->type = BR_VALUE_INT;
        tag->number = (uint64_t)integer;
    } else if (zipkin_value_fraction(text, tag->len, &fraction)) {
        tag->type = BR_VALUE_DOUBLE;
        memcpy(&tag->number, &fraction, sizeof fraction);
    } else if (br_bytes_are(text, tag->len, "true") || br_bytes_are(text, tag->len, "false")) {
        tag->number = text[0] == 't';
        tag->type = BR_VALUE_BOOL;
    }
}

/* --- JSON objects ----------------------------------------------------------------------------- */

struct members {
    struct zipkin_reading *reading;
    struct br_tags *into;
    int rc;
};

void zipkin_read_number(const struct br_json_token *token, struct br_tag *tag)
{
    bool negative;
    uint64_t magnitude;
    double value;
    if (br_number_integer(token->text, token->len, &negative, &magnitude) &&
        magnitude <= (uint64_t)INT64_MAX + negative) {
        tag->type = BR_VALUE_INT;
        tag->number = negative ? 0 - magnitude : magnitude;
    } else if (br_number_double(token->text, &value)) {
        tag->type = BR_VALUE_DOUBLE;
        memcpy(&tag->number, &value, sizeof value);
    }
}

static void zipkin_value_on_member(void *arg, const struct br_json_scan *scan,
                                   const struct br_json_token *name,
                                   const struct br_json_token *value)
{
    struct members *members = arg;
    struct br_tag tag = {.type = BR_VALUE_EMPTY};
    struct zipkin_text key, text = {NULL, 0};
    (void)scan;
    if (!members->rc)
        members->rc = zipkin_json_plain(members->reading, name, &key);
    if (!members->rc && value->type == BR_JSON_STRING)
        members->rc = zipkin_json_plain(members->reading, value, &text);
    if (members->rc)
        return;
    tag.key = key.data;
    tag.key_len = (uint32_t)key.len;
    if (value->type == BR_JSON_STRING) {
        tag.type = BR_VALUE_STRING;
        tag.data = (const uint8_t *)text.data;
        tag.len = (uint32_t)text.len;
    } else if (value->type == BR_JSON_TRUE || value->type == BR_JSON_FALSE) {
        tag.type = BR_VALUE_BOOL;
        tag.number = value->type == BR_JSON_TRUE;
    } else if (value->type == BR_JSON_NUMBER) {
        zipkin_read_number(value, &tag);
    }
    if (tag.type != BR_VALUE_EMPTY)
        members->rc = br_tags_add(members->into, &tag);
}

int zipkin_read_members(struct zipkin_reading *reading, const char *text, size_t len,
                        struct br_tags *into)
{
    struct br_json_scan scan;
    struct br_json_token root;
    struct members members = {.reading = reading, .into = into};
    br_tags_clear(into);
    if (br_json_scan_init(&scan, text, len, ZIPKIN_DEPTH, NULL) ||
        br_json_scan_value(&scan, &root) || root.type != BR_JSON_OBJECT)
        return BR_EINVAL;
    if (br_json_members(&scan, zipkin_value_on_member, &members) || br_json_scan_end(&scan))
        return BR_EINVAL;
    return members.rc ? members.rc : br_tags_sort(into);
}

/* --- Addresses and ids ------------------------------------------------------------------------ */

/* Finds the longest run of at least two groups that are zero, which is written as "::". */
static void zipkin_value_zeros(const unsigned groups[IPV6_GROUPS], int *ret_from, int *ret_n)
{
    *ret_from = -1;
    *ret_n = 1;
    for (int i = 0, n = 0; i < IPV6_GROUPS; i++) {
        n = groups[i] ? 0 : n + 1;
        if (n > *ret_n) {
            *ret_n = n;
            *ret_from = i - n + 1;
        }
    }
}

static void zipkin_value_put_ipv6(const uint8_t bytes[16], char out[ZIPKIN_ADDRESS_MAX])
{
    unsigned groups[IPV6_GROUPS];
    int from, n, len = 0;
    for (int i = 0; i < IPV6_GROUPS; i++)
        groups[i] = (unsigned)bytes[2 * i] << 8 | bytes[2 * i + 1];
    zipkin_value_zeros(groups, &from, &n);
    for (int i = 0; i < IPV6_GROUPS; i++) {
        const char *colon = i == 0 || (from >= 0 && i == from + n) ? "" : ":";
        if (i == from) {
            len += snprintf(out + len, ZIPKIN_ADDRESS_MAX - (size_t)len, "::");
            i += n - 1;
        } else {
            len += snprintf(out + len, ZIPKIN_ADDRESS_MAX - (size_t)len, "%s%x", colon, groups[i]);
        }
    }
}

void zipkin_put_address(const uint8_t *bytes, size_t len, char out[ZIPKIN_ADDRESS_MAX])
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    bool is_mapped = len == 16 && memcmp(bytes, mapped, sizeof mapped) == 0;
    const uint8_t *v4 = is_mapped ? bytes + sizeof mapped : bytes;
    out[0] = '\0';
    if (len == 4 || is_mapped)
        (void)snprintf(out, ZIPKIN_ADDRESS_MAX, "%u.%u.%u.%u", v4[0], v4[1], v4[2], v4[3]);
    else if (len == 16)
        zipkin_value_put_ipv6(bytes, out);
}

bool zipkin_parse_address(struct zipkin_text text, char out[ZIPKIN_ADDRESS_MAX])
{
    char copy[ZIPKIN_ADDRESS_MAX];
    uint8_t bytes[16];
    if (text.len >= sizeof copy)
        return false;
    if (text.len)
        memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    if (inet_pton(AF_INET, copy, bytes) == 1)
        zipkin_put_address(bytes, 4, out);
    else if (inet_pton(AF_INET6, copy, bytes) == 1)
        zipkin_put_address(bytes, 16, out);
    else
        return false;
    return true;
}

bool zipkin_parse_hex(const char *text, size_t len, uint64_t *ret)
{
    uint64_t value = 0;
    if (len == 0 || len > 16)
        return false;
    for (size_t i = 0; i < len; i++) {
        int digit = br_hex_value(text[i]);
        if (digit < 0)
            return false;
        value = value << 4 | (unsigned)digit;
    }
    *ret = value;
    return true;
}
