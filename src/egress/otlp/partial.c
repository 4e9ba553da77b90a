/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/otlp/sender.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

/* Converts a count from an int64 field; a negative count becomes 0. */
static uint32_t partial_count(uint64_t value)
{
    if (value > INT64_MAX)
        return 0;
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

void br_otlp_partial_read(const uint8_t *data, size_t len, struct br_outcome *outcome)
{
    const uint8_t *p = data, *end = br_mem_end(data, len);
    struct br_field field, g;
    while (p && p < end && (p = br_field_next(p, end, &field))) {
        if (field.number != BR_RESPONSE_PARTIAL_SUCCESS || field.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *q = field.data, *stop = br_field_end(&field);
        while (q && q < stop && (q = br_field_next(q, stop, &g))) {
            if (g.number == BR_PARTIAL_SUCCESS_REJECTED && g.wire == BR_WIRE_VARINT)
                outcome->n_rejected = partial_count(g.value);
            else if (g.number == BR_PARTIAL_SUCCESS_MESSAGE && g.wire == BR_WIRE_LEN)
                (void)snprintf(
                    outcome->text, sizeof outcome->text, "%.*s",
                    (int)(g.value < sizeof outcome->text ? g.value : sizeof outcome->text - 1),
                    (const char *)g.data);
        }
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

/* Returns the code unit of a \u escape at `text`; -1 if `text` does not begin with a valid
 * escape. */
static long partial_escape(const char *text, size_t len)
{
    uint8_t unit[2];
    if (len < 6 || text[0] != '\\' || text[1] != 'u' ||
        br_hex_decode(text + 2, 4, unit, sizeof unit) != 2)
        return -1;
    return unit[0] << 8 | unit[1];
}

/* Replaces the escape of an unpaired surrogate with U+FFFD in place. Returns the length of the
 * escape. */
static size_t partial_repair_escape(char *text, size_t len)
{
    long unit = partial_escape(text, len);
    if (unit < 0)
        return len < 2 ? len : 2;
    if (unit < 0xd800 || unit > 0xdfff)
        return 6;
    long next = partial_escape(text + 6, len - 6);
    if (unit < 0xdc00 && next >= 0xdc00 && next <= 0xdfff)
        return 12;
    memcpy(text, "\\ufffd", 6);
    return 6;
}

/* Replaces, in place, bytes that jansson does not accept in strings: invalid UTF-8, control
 * characters and unpaired surrogates. The replacement does not change the meaning of JSON
 * outside strings. A byte order mark is replaced with spaces, because JSON parsers may ignore it
 * (RFC 8259 section 8.1). */
static void partial_repair(char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t valid = br_utf8_valid((const uint8_t *)text + at, len - at);
        if (valid < len - at)
            text[at + valid] = '?';
        at += valid + (valid < len - at);
    }
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        memset(text, ' ', 3);
    for (size_t at = 0; at < len;) {
        if ((unsigned char)text[at] < 0x20)
            text[at] = ' ';
        at += text[at] == '\\' ? partial_repair_escape(text + at, len - at) : 1;
    }
}

static json_t *partial_load(const uint8_t *text, size_t len)
{
    /* read integers as reals, because an integer in the text may exceed jansson's range */
    const size_t flags = JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL;
    json_t *root = json_loadb((const char *)text, len, flags, NULL);
    char *copy = root ? NULL : br_malloc(len);
    if (!copy)
        return root;
    memcpy(copy, text, len);
    partial_repair(copy, len);
    root = json_loadb(copy, len, flags, NULL);
    br_free(copy);
    return root;
}

static const json_t *partial_get(const json_t *object, const char *name, const char *proto_name)
{
    const json_t *value = json_object_get(object, name);
    return value ? value : json_object_get(object, proto_name);
}

/* Reads an int64 from a JSON value. Returns false if the value is not an int64. */
static bool partial_read_count(const json_t *value, uint32_t *ret)
{
    double count = json_real_value(value);
    const char *text = json_string_value(value);
    if (text) {
        char *end;
        if (!*text || text[strspn(text, "0123456789+-.eE")])
            return false;
        count = strtod(text, &end);
        if (*end)
            return false;
    } else if (!json_is_real(value)) {
        return !value || json_is_null(value);
    }
    if (!(count < 0x1p63 && count >= -0x1p63) || (double)(int64_t)count != count)
        return false;
    *ret = partial_count((uint64_t)(int64_t)count);
    return true;
}

bool br_otlp_partial_read_json(const uint8_t *text, size_t len, enum br_signal signal,
                               struct br_outcome *outcome)
{
    json_t *root = partial_load(text, len);
    const json_t *partial = partial_get(root, "partialSuccess", "partial_success");
    const json_t *count = signal == BR_TRACES
                              ? partial_get(partial, "rejectedSpans", "rejected_spans")
                              : partial_get(partial, "rejectedProfiles", "rejected_profiles");
    const char *message = json_string_value(partial_get(partial, "errorMessage", "error_message"));
    bool read = json_is_object(root) &&
                (!partial || json_is_null(partial) || json_is_object(partial)) &&
                partial_read_count(count, &outcome->n_rejected);
    if (message)
        (void)snprintf(outcome->text, sizeof outcome->text, "%s", message);
    json_decref(root);
    return read;
}

/* --- Profiles -------------------------------------------------------------------------------- */

static uint32_t partial_count_profiles(const uint8_t *scopes, const uint8_t *end)
{
    uint32_t count = 0;
    struct br_field field;
    for (const uint8_t *p = scopes; p && p < end && (p = br_field_next(p, end, &field));)
        count += field.number == BR_SCOPES_RECORDS && field.wire == BR_WIRE_LEN;
    return count;
}

static uint32_t partial_count_in_part(const struct br_part *part)
{
    uint32_t count = 0;
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    while (p && p < end && (p = br_field_next(p, end, &field)))
        if (field.number == BR_RESOURCES_SCOPES && field.wire == BR_WIRE_LEN)
            count += partial_count_profiles(field.data, p);
    return count;
}

void br_otlp_partial_to_samples(const struct br_item *item, struct br_outcome *outcome)
{
    uint32_t n_profiles = 0;
    for (uint32_t i = 0; i < item->n_parts; i++)
        if (item->parts[i].kind == BR_PART_RESOURCE)
            n_profiles += partial_count_in_part(&item->parts[i]);
    outcome->n_rejected = br_signal_share(outcome->n_rejected, n_profiles, item->n_records);
}
