/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "otlp/json/json.h"
#include "otlp/json/names.h"
#include "otlp/json/notes.h"
#include "otlp/json/number.h"
#include "wire/protobuf.h"

#define SCALAR_MAX 512u       /* bytes of an escaped string that can still be a scalar or an id */
#define NAME_MAX_ESCAPED 384u /* six bytes for each of the longest name */
#define DURATION_MAX_S 315576000000 /* google/protobuf/duration.proto: 10000 years */
#define SPARE (512u << 10)          /* bytes that notes and result may have on top of their share */

/* Where we are, for the sentence of an error. */
struct place {
    const struct place *up;
    const ProtobufCFieldDescriptor *field;
    size_t index;
    bool indexed;
    unsigned depth; /* messages around it */
};

/* The pass over the text, which takes notes and adds up what they will take on the wire. */
struct reader {
    struct br_json_scan scan;
    struct br_json_notes notes;
    size_t max, room; /* bytes of the result; of notes and result together */
    unsigned max_depth;
    bool misfit; /* it failed over the schema, not over JSON */
    struct br_err *err;
};

/* What the members of one message have come to. */
struct members {
    uint32_t there;                   /* bit i: desc->fields[i] is, and takes ... */
    size_t sizes[BR_JSON_FIELDS_MAX]; /* ... so many bytes on the wire */
    unsigned next;                    /* the field that is looked for first */
    bool ordered;                     /* each came once, in the order of the schema */
};

/* Takes notes of a message, which has `*ret_len` bytes on the wire without tag and length. */
static int decode_read_message(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct br_json_token *value, const struct place *place,
                               size_t *ret_len);

/* --- Errors --------------------------------------------------------------------------------- */

static void decode_print_place(struct br_str *out, const struct place *place)
{
    char name[BR_JSON_NAME_MAX];
    if (!place->up)
        return;
    decode_print_place(out, place->up);
    if (place->up->up)
        br_str_putc(out, '.');
    br_str_puts(out, br_json_name(place->field, name));
    if (place->indexed)
        br_str_printf(out, "[%zu]", place->index);
}

__attribute__((format(printf, 4, 5))) static int
decode_fail(struct reader *reader, const struct place *place, int code, const char *fmt, ...)
{
    char where[320];
    struct br_str path = {
        .data = where, .cap = sizeof where, .max = sizeof where - 1, .fixed = true};
    char text[160];
    reader->misfit = code == BR_EINVAL;
    where[0] = '\0';
    decode_print_place(&path, place);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return br_err_set(reader->err, code, "%s%s%s%s", where, path.failed ? "..." : "",
                      path.len ? ": " : "", text);
}

static int decode_too_large(struct reader *reader, const struct place *place)
{
    return decode_fail(reader, place, BR_ETOOBIG, "the message is larger than %zu bytes",
                       reader->max);
}

/* Numbers that take more than their text, in such a crowd as nobody means. */
static int decode_too_dense(struct reader *reader, const struct place *place)
{
    return decode_fail(reader, place, BR_ETOOBIG,
                       "%zu bytes of JSON would take more than %zu bytes",
                       (size_t)(reader->scan.end - reader->scan.text), reader->room);
}

/* Passes on what taking a note returned. */
static int decode_noted(struct reader *reader, const struct place *place, int rc)
{
    if (rc == BR_EFULL)
        return decode_too_dense(reader, place);
    return rc ? decode_fail(reader, place, rc, "no memory") : 0;
}

/* --- Scalars -------------------------------------------------------------------------------- */

/* The bytes of a short string or of a number. Not terminated, but followed by a byte that continues
 * no number: a quote, a bracket, a comma, white space. NULL where the value is neither, or too long
 * to be anything. */
static const char *decode_short_text(const struct br_json_token *value, char plain[SCALAR_MAX + 1],
                                     size_t *ret_len)
{
    if (value->type != BR_JSON_STRING && value->type != BR_JSON_NUMBER)
        return NULL;
    *ret_len = value->len;
    if (!value->escaped)
        return value->text;
    if (value->len > SCALAR_MAX)
        return NULL;
    *ret_len = br_json_plain(value->text, value->len, plain);
    plain[*ret_len] = '\0';
    return plain;
}

static bool decode_is_number(const char *text, size_t len)
{
    return text && len > 0 && br_number_scan(text, len) == len;
}

/* How much of a text an error shows: whole characters. */
static int decode_shown(const char *text, size_t len)
{
    return (int)br_utf8_valid((const uint8_t *)text, len < 40 ? len : 40);
}

static int decode_read_integer(struct reader *reader, const struct br_json_token *value,
                               int64_t min, uint64_t max, const struct place *place, uint64_t *ret)
{
    bool negative;
    uint64_t v;
    size_t len = 0;
    char plain[SCALAR_MAX + 1];
    const char *text = decode_short_text(value, plain, &len);
    if (text && br_number_digits(text, len, &v) && v <= max) {
        *ret = v;
        return 0;
    }
    if (!decode_is_number(text, len))
        return decode_fail(reader, place, BR_EINVAL, "must be an integer");
    if (!br_number_integer(text, len, &negative, &v))
        return decode_fail(reader, place, BR_EINVAL,
                           "must be an integer of at most 64 bits, got %.*s",
                           decode_shown(text, len), text);
    if (negative ? v > (uint64_t)0 - (uint64_t)min : v > max)
        return decode_fail(reader, place, BR_EINVAL,
                           "must be from %" PRId64 " to %" PRIu64 ", got %.*s", min, max,
                           decode_shown(text, len), text);
    *ret = negative ? (uint64_t)0 - v : v;
    return 0;
}

static bool decode_is_text(const char *text, size_t len, const char *want)
{
    return len == strlen(want) && memcmp(text, want, len) == 0;
}

static int decode_read_double(struct reader *reader, const struct br_json_token *value,
                              const struct place *place, uint64_t *ret)
{
    char plain[SCALAR_MAX + 1];
    double d;
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    if (text && decode_is_text(text, len, "NaN"))
        d = __builtin_nan("");
    else if (text && decode_is_text(text, len, "Infinity"))
        d = __builtin_inf();
    else if (text && decode_is_text(text, len, "-Infinity"))
        d = -__builtin_inf();
    else if (!decode_is_number(text, len))
        return decode_fail(reader, place, BR_EINVAL,
                           "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
    else if (!br_number_double(text, &d))
        return decode_fail(reader, place, BR_EINVAL, "must fit in a double, got %.*s",
                           decode_shown(text, len), text);
    memcpy(ret, &d, sizeof d);
    return 0;
}

/* True when a name or a string is `want`. */
static bool decode_is_name(const struct br_json_token *name, const char *want)
{
    char plain[NAME_MAX_ESCAPED];
    const char *text = name->text;
    if (name->plain_len != strlen(want) || name->len > sizeof plain)
        return false;
    if (name->escaped) {
        (void)br_json_plain(text, name->len, plain);
        text = plain;
    }
    return memcmp(text, want, name->plain_len) == 0;
}

static int decode_read_enum(struct reader *reader, const ProtobufCEnumDescriptor *desc,
                            const struct br_json_token *value, const struct place *place,
                            uint64_t *ret)
{
    if (value->type != BR_JSON_STRING)
        return decode_read_integer(reader, value, INT32_MIN, INT32_MAX, place, ret);
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    for (unsigned i = 0; text && i < desc->n_values; i++) {
        if (decode_is_text(text, len, desc->values[i].name)) {
            *ret = (uint64_t)(int64_t)desc->values[i].value;
            return 0;
        }
    }
    return decode_fail(reader, place, BR_EINVAL, "%.*s is no %s",
                       decode_shown(value->text, value->len), value->text, desc->short_name);
}

static int decode_read_bool(struct reader *reader, const struct br_json_token *value,
                            const struct place *place, uint64_t *ret)
{
    if (value->type != BR_JSON_TRUE && value->type != BR_JSON_FALSE)
        return decode_fail(reader, place, BR_EINVAL, "must be true or false");
    *ret = value->type == BR_JSON_TRUE;
    return 0;
}

static int decode_read_scalar(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              const struct br_json_token *value, const struct place *place,
                              uint64_t *ret)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return decode_read_bool(reader, value, place, ret);
    case PROTOBUF_C_TYPE_INT32:
        return decode_read_integer(reader, value, INT32_MIN, INT32_MAX, place, ret);
    case PROTOBUF_C_TYPE_INT64:
        return decode_read_integer(reader, value, INT64_MIN, INT64_MAX, place, ret);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return decode_read_integer(reader, value, 0, UINT32_MAX, place, ret);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return decode_read_integer(reader, value, 0, UINT64_MAX, place, ret);
    case PROTOBUF_C_TYPE_DOUBLE:
        return decode_read_double(reader, value, place, ret);
    case PROTOBUF_C_TYPE_ENUM:
        return decode_read_enum(reader, field->descriptor, value, place, ret);
    default:
        return decode_fail(reader, place, BR_EUNSUPPORTED, "has a type that OTLP does not use");
    }
}

/* --- Strings and bytes ---------------------------------------------------------------------- */

static int decode_read_id(struct reader *reader, size_t size, const struct br_json_token *value,
                          const struct place *place, size_t *ret_len)
{
    uint8_t id[16];
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    *ret_len = text && len == 0 ? 0 : size;
    if (*ret_len == 0)
        return decode_noted(reader, place, br_json_note_number(&reader->notes, 0));
    if (!text || len != size * 2)
        return decode_fail(reader, place, BR_EINVAL, "must be %zu hex digits, got %" PRIu32,
                           size * 2, value->len);
    if (br_hex_decode(text, len, id, sizeof id) < 0)
        return decode_fail(reader, place, BR_EINVAL, "must be %zu hex digits", size * 2);
    return decode_noted(reader, place, br_json_note_bytes(&reader->notes, id, size));
}

static int decode_read_base64(struct reader *reader, const struct br_json_token *value,
                              const struct place *place, size_t *ret_len)
{
    const char *text = value->text;
    size_t len = value->plain_len;
    int rc = decode_noted(
        reader, place, br_json_note_room(&reader->notes, value->escaped ? len : len / 4 * 3 + 3));
    if (rc != 0)
        return rc;
    uint8_t *out = reader->notes.buf->data + reader->notes.buf->len;
    if (value->escaped) { /* some write "\/"; decoding can work in place */
        (void)br_json_plain(text, value->len, (char *)out);
        text = (const char *)out;
    }
    long n = br_base64_decode(text, len, out);
    if (n < 0)
        return decode_fail(reader, place, BR_EINVAL, "must be base64");
    reader->notes.buf->len += (uint32_t)n;
    *ret_len = (size_t)n;
    return decode_noted(reader, place, br_json_note_number(&reader->notes, (uint64_t)n));
}

static int decode_read_text(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *value, const struct place *place,
                            size_t *ret_len)
{
    if (value->type != BR_JSON_STRING)
        return decode_fail(reader, place, BR_EINVAL, "must be a string");
    size_t id_size = br_json_id_size(field);
    if (id_size)
        return decode_read_id(reader, id_size, value, place, ret_len);
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return decode_read_base64(reader, value, place, ret_len);
    *ret_len = value->plain_len;
    return decode_noted(reader, place,
                        br_json_note_string(&reader->notes, reader->scan.text, value));
}

/* --- Sizes ---------------------------------------------------------------------------------- */

/* Bytes of a tag; the wire type does not change how many. */
static size_t decode_tag_size(const ProtobufCFieldDescriptor *field)
{
    return br_varint_size(BR_TAG(field->id, 0));
}

static size_t decode_long_size(const ProtobufCFieldDescriptor *field, size_t len)
{
    return decode_tag_size(field) + br_varint_size(len) + len;
}

static size_t decode_scalar_size(const ProtobufCFieldDescriptor *field, uint64_t bits)
{
    enum br_wire wire = br_json_wire(field);
    return wire == BR_WIRE_I64 ? 8 : wire == BR_WIRE_I32 ? 4 : br_varint_size(bits);
}

/* --- Well-known messages -------------------------------------------------------------------- */

/* Seconds, up to nine digits after a point, "s". */
static bool decode_parse_duration(const char *text, size_t len, int64_t *ret_seconds,
                                  int64_t *ret_nanos)
{
    int64_t seconds = 0, nanos = 0, unit = 1000000000;
    const char *end = br_mem_end(text, len);
    const char *at = text + (len > 0 && *text == '-');
    const char *first = at;
    for (; at < end && *at >= '0' && *at <= '9' && seconds <= DURATION_MAX_S; at++)
        seconds = seconds * 10 + (*at - '0');
    if (at == first || seconds > DURATION_MAX_S)
        return false;
    if (at < end && *at == '.') {
        for (first = ++at; at < end && *at >= '0' && *at <= '9' && unit > 1; at++)
            nanos += (*at - '0') * (unit /= 10);
        if (at == first)
            return false;
    }
    int64_t sign = *text == '-' ? -1 : 1;
    *ret_seconds = sign * seconds;
    *ret_nanos = sign * nanos;
    return end - at == 1 && *at == 's';
}

/* Notes what field `index` of a Duration is. */
static int decode_note_part(struct reader *reader, unsigned index, int64_t value,
                            const struct place *place, size_t *len)
{
    const ProtobufCFieldDescriptor *field = &google__protobuf__duration__descriptor.fields[index];
    if (value == 0)
        return 0;
    int rc = br_json_note_number(&reader->notes, br_json_fold(field, (uint64_t)value));
    rc = rc ? rc : br_json_note_byte(&reader->notes, index);
    *len += decode_tag_size(field) + decode_scalar_size(field, (uint64_t)value);
    return decode_noted(reader, place, rc);
}

/* google.protobuf.Duration is a string. */
static int decode_read_duration(struct reader *reader, const struct br_json_token *value,
                                const struct place *place, size_t *ret_len)
{
    int64_t seconds, nanos;
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = value->type == BR_JSON_STRING ? decode_short_text(value, plain, &len) : NULL;
    if (!text || !decode_parse_duration(text, len, &seconds, &nanos))
        return decode_fail(reader, place, BR_EINVAL, "must be a string like \"1.5s\"");
    *ret_len = 0;
    int rc = decode_note_part(reader, 0, seconds, place, ret_len);
    return rc != 0 ? rc : decode_note_part(reader, 1, nanos, place, ret_len);
}

/* Passes an object, whose last "@type" is found; `*ret_any` says whether it has members. */
static int decode_find_type(struct reader *reader, struct br_json_token *ret, bool *ret_any)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_enter(&reader->scan);
    *ret_any = false;
    ret->type = BR_JSON_NULL;
    for (bool first = true; rc == 0; first = false) {
        rc = br_json_scan_more(&reader->scan, '}', first, &more);
        if (rc != 0 || !more)
            break;
        *ret_any = true;
        rc = br_json_scan_name(&reader->scan, &name);
        rc = rc ? rc : br_json_scan_value(&reader->scan, &value);
        if (rc == 0 && decode_is_name(&name, "@type"))
            *ret = value;
        rc = rc ? rc : br_json_scan_skip(&reader->scan, &value);
    }
    return rc;
}

/* google.protobuf.Any has its message's own fields beside "@type", which may be the last. */
static int decode_read_any(struct reader *reader, const struct place *place, size_t *ret_len)
{
    const ProtobufCFieldDescriptor *fields = google__protobuf__any__descriptor.fields;
    const char *start = reader->scan.at;
    struct br_json_token type;
    char plain[SCALAR_MAX + 1];
    bool any;
    size_t len = 0;
    int rc = decode_find_type(reader, &type, &any);
    *ret_len = 0;
    if (rc != 0 || !any)
        return rc;
    const char *url = type.type == BR_JSON_STRING ? decode_short_text(&type, plain, &len) : NULL;
    if (!url)
        return decode_fail(reader, place, BR_EINVAL, "must have an \"@type\"");
    rc = br_json_note_string(&reader->notes, reader->scan.text, &type);
    rc = decode_noted(reader, place, rc ? rc : br_json_note_byte(&reader->notes, 0));
    *ret_len = decode_long_size(&fields[0], len);
    const ProtobufCMessageDescriptor *desc = br_json_any(url, len);
    if (rc != 0 || !desc)
        return rc;
    uint32_t mark = reader->notes.buf->len;
    reader->scan.at = start;
    rc = decode_read_message(reader, desc, &(struct br_json_token){.type = BR_JSON_OBJECT}, place,
                             &len);
    if (rc == 0 && len == 0)
        reader->notes.buf->len = mark;
    if (rc != 0 || len == 0)
        return rc;
    *ret_len += decode_long_size(&fields[1], len);
    return decode_noted(reader, place, br_json_note_byte(&reader->notes, 1));
}

/* --- Values --------------------------------------------------------------------------------- */

/* Whatever has its length before it on the wire. */
static int decode_read_long(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *value, const struct place *place,
                            size_t *ret_len)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE
               ? decode_read_message(reader, field->descriptor, value, place, ret_len)
               : decode_read_text(reader, field, value, place, ret_len);
}

static int decode_note_scalar(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              uint64_t bits, const struct place *place)
{
    return decode_noted(reader, place,
                        br_json_note_number(&reader->notes, br_json_fold(field, bits)));
}

/* A value that is no list, and what it takes on the wire with its tag. A zero takes nothing, unless
 * it is in a oneof, where it means something. */
static int decode_read_value(struct reader *reader, const ProtobufCFieldDescriptor *field,
                             const struct br_json_token *value, const struct place *place,
                             size_t *ret_size)
{
    bool keep =
        field->type == PROTOBUF_C_TYPE_MESSAGE || field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    int rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        uint32_t mark = reader->notes.buf->len;
        size_t len = 0;
        rc = decode_read_long(reader, field, value, place, &len);
        if (rc == 0 && len == 0 && !keep)
            reader->notes.buf->len = mark;
        else
            *ret_size = decode_long_size(field, len);
        return rc;
    }
    uint64_t bits;
    rc = decode_read_scalar(reader, field, value, place, &bits);
    if (rc != 0 || (bits == 0 && !keep))
        return rc;
    *ret_size = decode_tag_size(field) + decode_scalar_size(field, bits);
    return decode_note_scalar(reader, field, bits, place);
}

static int decode_read_element(struct reader *reader, const ProtobufCFieldDescriptor *field,
                               const struct place *place, size_t *ret_size)
{
    struct br_json_token value;
    uint64_t bits;
    size_t len = 0;
    int rc = br_json_scan_value(&reader->scan, &value);
    if (rc != 0)
        return rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        rc = decode_read_long(reader, field, &value, place, &len);
        *ret_size = decode_long_size(field, len);
        return rc;
    }
    rc = decode_read_scalar(reader, field, &value, place, &bits);
    if (rc != 0)
        return rc;
    *ret_size = decode_scalar_size(field, bits);
    return decode_note_scalar(reader, field, bits, place);
}

static int decode_read_list(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *list, struct place *place, size_t *ret_size)
{
    uint32_t mark = reader->notes.buf->len;
    size_t total = 0;
    bool more = true;
    if (list->type != BR_JSON_ARRAY)
        return decode_fail(reader, place, BR_EINVAL, "must be an array");
    int rc = br_json_scan_enter(&reader->scan);
    place->indexed = true;
    for (place->index = 0; rc == 0; place->index++) {
        size_t size;
        rc = br_json_scan_more(&reader->scan, ']', place->index == 0, &more);
        if (rc != 0 || !more)
            break;
        rc = decode_read_element(reader, field, place, &size);
        total += rc ? 0 : size;
        rc = rc == 0 && total > reader->max ? decode_too_large(reader, place) : rc;
    }
    if (rc != 0 || total == 0)
        return rc;
    *ret_size = br_json_wire(field) == BR_WIRE_LEN ? total : decode_long_size(field, total);
    size_t taken = reader->notes.buf->len - mark;
    return decode_noted(reader, place,
                        br_json_note_number(&reader->notes, (uint64_t)taken << 1 | 1));
}

/* --- Messages ------------------------------------------------------------------------------- */

/* The index of the field of this name, or the number of fields where it has none. */
static unsigned decode_find_field(const ProtobufCMessageDescriptor *desc,
                                  const struct br_json_token *name, unsigned next)
{
    char plain[NAME_MAX_ESCAPED];
    const char *text = name->text;
    if (name->escaped) {
        if (name->len > sizeof plain)
            return desc->n_fields;
        (void)br_json_plain(text, name->len, plain);
        text = plain;
    }
    for (unsigned n = 0, i = next; n < desc->n_fields; n++, i++) {
        i = i < desc->n_fields ? i : 0;
        if (br_json_is_name(&desc->fields[i], text, name->plain_len))
            return i;
    }
    return desc->n_fields;
}

/* Field `index`, whose value has taken its notes, takes `size` bytes on the wire; with 0 it is not
 * there, whatever came before. */
static int decode_count_member(struct reader *reader, struct members *members, unsigned index,
                               size_t size, const struct place *place)
{
    bool before = members->there >> index & 1;
    if (size == 0 && !before)
        return 0;
    members->ordered = members->ordered && index >= members->next && size > 0;
    members->next = index + 1;
    members->sizes[index] = size;
    members->there = size ? members->there | 1u << index : members->there & ~(1u << index);
    return decode_noted(
        reader, place,
        br_json_note_byte(&reader->notes, size ? index : index | BR_JSON_NOTE_ABSENT));
}

static int decode_read_member(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                              unsigned index, struct members *members, const struct place *up)
{
    const ProtobufCFieldDescriptor *field = &desc->fields[index];
    struct place p = {.up = up, .field = field, .depth = up->depth + 1};
    struct br_json_token value;
    size_t size = 0;
    int rc = br_json_scan_value(&reader->scan, &value);
    if (rc == 0 && value.type != BR_JSON_NULL)
        rc = field->label == PROTOBUF_C_LABEL_REPEATED
                 ? decode_read_list(reader, field, &value, &p, &size)
                 : decode_read_value(reader, field, &value, &p, &size);
    return rc != 0 ? rc : decode_count_member(reader, members, index, size, &p);
}

static int decode_read_members(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               struct members *members, const struct place *place)
{
    bool more = true;
    int rc = br_json_scan_enter(&reader->scan);
    for (bool first = true; rc == 0; first = false) {
        struct br_json_token name;
        rc = br_json_scan_more(&reader->scan, '}', first, &more);
        if (rc != 0 || !more)
            break;
        rc = br_json_scan_name(&reader->scan, &name);
        if (rc != 0)
            break;
        unsigned i = decode_find_field(desc, &name, members->next);
        if (i < desc->n_fields) {
            rc = decode_read_member(reader, desc, i, members, place);
        } else {
            rc = br_json_scan_value(&reader->scan, &name);
            rc = rc ? rc : br_json_scan_skip(&reader->scan, &name);
        }
    }
    return rc;
}

/* Fails where two members of a oneof are there. */
static int decode_check_rivals(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct members *members, const struct place *up)
{
    for (uint32_t left = members->there; left; left &= left - 1) {
        const ProtobufCFieldDescriptor *field = &desc->fields[__builtin_ctz(left)];
        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        for (uint32_t rest = left & (left - 1); rest; rest &= rest - 1) {
            const ProtobufCFieldDescriptor *other = &desc->fields[__builtin_ctz(rest)];
            struct place p = {.up = up, .field = other, .depth = up->depth + 1};
            char name[BR_JSON_NAME_MAX];
            if (other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
                other->quantifier_offset == field->quantifier_offset)
                return decode_fail(reader, &p, BR_EINVAL, "only one of this and %s may be given",
                                   br_json_name(field, name));
        }
    }
    return 0;
}

static int decode_read_object(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                              const struct place *place, size_t *ret_len, bool *ret_ordered)
{
    struct members members;
    members.there = members.next = 0;
    members.ordered = true;
    assert(desc->n_fields <= BR_JSON_FIELDS_MAX);
    int rc = decode_read_members(reader, desc, &members, place);
    rc = rc != 0 ? rc : decode_check_rivals(reader, desc, &members, place);
    if (rc != 0)
        return rc;
    size_t len = 0;
    for (uint32_t left = members.there; left; left &= left - 1)
        len += members.sizes[__builtin_ctz(left)];
    *ret_len = len;
    *ret_ordered = members.ordered;
    return len > reader->max ? decode_too_large(reader, place) : 0;
}

static int decode_read_message(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct br_json_token *value, const struct place *place,
                               size_t *ret_len)
{
    uint32_t mark = reader->notes.buf->len;
    bool ordered = true;
    int rc;
    if (place->depth >= reader->max_depth)
        return decode_fail(reader, place, BR_EINVAL, "nests deeper than %u messages",
                           reader->max_depth);
    if (desc == &google__protobuf__duration__descriptor)
        rc = decode_read_duration(reader, value, place, ret_len);
    else if (value->type != BR_JSON_OBJECT)
        rc = decode_fail(reader, place, BR_EINVAL, "must be an object");
    else if (desc == &google__protobuf__any__descriptor)
        rc = decode_read_any(reader, place, ret_len);
    else
        rc = decode_read_object(reader, desc, place, ret_len, &ordered);
    size_t taken = reader->notes.buf->len - mark;
    return rc ? rc
              : decode_noted(reader, place,
                             br_json_note_number(&reader->notes, (uint64_t)taken << 1 | ordered));
}

/* --- The text ------------------------------------------------------------------------------- */

static int decode_read_all(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                           size_t *ret_len)
{
    const struct place root = {0};
    struct br_json_token value;
    int rc = br_json_scan_value(&reader->scan, &value);
    rc = rc ? rc : decode_read_message(reader, desc, &value, &root, ret_len);
    rc = rc ? rc : br_json_scan_end(&reader->scan);
    if (rc == 0 && *ret_len + reader->notes.buf->len > reader->room)
        rc = decode_too_dense(reader, &root);
    return rc;
}

/* Text that does not fit the schema may be no JSON further on, which is the worse error. */
static int decode_explain(struct reader *reader)
{
    struct br_json_token value;
    struct br_err err = {0};
    reader->scan.err = &err;
    br_json_scan_rewind(&reader->scan);
    int rc = br_json_scan_value(&reader->scan, &value);
    rc = rc ? rc : br_json_scan_skip(&reader->scan, &value);
    rc = rc ? rc : br_json_scan_end(&reader->scan);
    if (rc != 0 && reader->err)
        *reader->err = err;
    return BR_EINVAL;
}

int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err)
{
    struct reader reader = {.max = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    struct br_buf *out = NULL;
    size_t out_len = 0;
    reader.max_depth = max_depth < BR_JSON_DEPTH_MAX ? max_depth : BR_JSON_DEPTH_MAX;
    int rc = br_json_scan_init(&reader.scan, text, len, reader.max_depth * 2, err);
    if (rc != 0)
        return rc;
    /* The pool's sizes are up to a quarter larger: 2 * len + 640 KiB. */
    reader.room = len / 5 * 8 + SPARE;
    reader.notes.max = len / 10 * 9 + SPARE / 2;
    reader.notes.buf = br_buf_new(pool, len / 3); /* SDKs' texts take a quarter */
    if (!reader.notes.buf)
        return br_err_set(err, BR_ENOMEM, "no memory for a message");
    rc = decode_read_all(&reader, desc, &out_len);
    if (rc == BR_EINVAL && reader.misfit)
        rc = decode_explain(&reader);
    if (rc == 0) {
        out = br_buf_new(pool, out_len);
        rc = out ? 0 : br_err_set(err, BR_ENOMEM, "no memory for a message");
    }
    if (rc == 0) {
        br_json_notes_write(&reader.notes, desc, text, out->data, out_len);
        out->len = (uint32_t)out_len;
        *ret = out;
    }
    br_buf_unref(reader.notes.buf);
    return rc;
}
