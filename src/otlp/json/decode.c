/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/decimal.h"
#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "otlp/json/internal.h"
#include "otlp/json/json.h"
#include "otlp/json/number.h"
#include "wire/protobuf.h"

/* maximum number of bytes of a string, with its escapes, that is parsed as a scalar or an id */
#define SCALAR_MAX 512u
/* maximum number of bytes of a field name: 64 characters, each as an escape of six bytes */
#define NAME_MAX_ESCAPED 384u
/* 10000 years in seconds, the limit in google/protobuf/duration.proto */
#define DURATION_MAX_S 315576000000
/* bytes that notes (the output of the first pass) and result may use together, in addition to 8/5
 * of the text's size */
#define SPARE (512u << 10)

/* An element of the path of a value in the text, for error messages. Each element links to the
 * element of the enclosing value. */
struct path {
    const struct path *outer;
    const ProtobufCFieldDescriptor *field;
    size_t index;
    bool indexed;
    unsigned depth; /* number of messages that enclose the value */
};

/* State of the first pass, which reads the text, writes notes and calculates the size of the
 * result. The second pass writes the result from the notes. */
struct reader {
    struct br_json_scan scan;
    struct br_json_notes notes;
    /* maximum size of the result, and of notes and result together, in bytes */
    size_t max, max_total;
    unsigned max_depth;
    /* true: the error is a mismatch with the schema; false: the text is not JSON */
    bool bad_schema;
    struct br_err *err;
};

/* The members of one message that have been read so far. */
struct members {
    uint32_t present;                 /* bit i is set if desc->fields[i] is present */
    size_t sizes[BR_JSON_FIELDS_MAX]; /* number of encoded bytes of each present field */
    /* index of the field that the next member's name is compared with first */
    unsigned next;
    bool ordered; /* each member occurred once, in the order of the schema */
};

/* Reads a message and writes its notes. Stores in `*ret_len` the size of the encoded message in
 * bytes, without tag and length. */
static int decode_read_message(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct br_json_token *value, const struct path *path,
                               size_t *ret_len);

/* --- Errors --------------------------------------------------------------------------------- */

static void decode_print_path(struct br_str *out, const struct path *path)
{
    char name[BR_JSON_NAME_MAX];
    if (!path->outer)
        return;
    decode_print_path(out, path->outer);
    if (path->outer->outer)
        br_str_putc(out, '.');
    br_str_puts(out, br_json_name(path->field, name));
    if (path->indexed)
        br_str_printf(out, "[%zu]", path->index);
}

__attribute__((format(printf, 4, 5))) static int
decode_fail(struct reader *reader, const struct path *path, int code, const char *fmt, ...)
{
    char where[320];
    struct br_str where_str = {
        .data = where, .cap = sizeof where, .max = sizeof where - 1, .fixed = true};
    char text[160];
    reader->bad_schema = code == BR_EINVAL;
    where[0] = '\0';
    decode_print_path(&where_str, path);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return br_err_set(reader->err, code, "%s%s%s%s", where, where_str.failed ? "..." : "",
                      where_str.len ? ": " : "", text);
}

static int decode_too_large(struct reader *reader, const struct path *path)
{
    return decode_fail(reader, path, BR_ETOOBIG, "the message is larger than %zu bytes",
                       reader->max);
}

/* Reports that the text exceeds the memory limit, because its numbers need more bytes as notes
 * than as text. */
static int decode_too_dense(struct reader *reader, const struct path *path)
{
    return decode_fail(reader, path, BR_ETOOBIG,
                       "%zu bytes of JSON need more than %zu bytes of memory",
                       (size_t)(reader->scan.end - reader->scan.text), reader->max_total);
}

/* Reports the error `rc` of writing a note; does nothing if `rc` is 0. */
static int decode_noted(struct reader *reader, const struct path *path, int rc)
{
    if (rc == BR_EFULL)
        return decode_too_dense(reader, path);
    return rc ? decode_fail(reader, path, rc, "no memory") : 0;
}

/* --- Scalars -------------------------------------------------------------------------------- */

/* Returns the bytes of a number, or of a string with its escapes replaced. Returns NULL if the
 * value is not a number or string, or if it is too long to be valid. The bytes are not
 * terminated by a NUL. The byte after the returned bytes is readable and not part of a number: a
 * quote, a bracket, a comma, white space or NUL. */
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

/* Returns the number of bytes of `text` to show in an error message: at most 40, without a
 * partial character at the end. */
static int decode_shown(const char *text, size_t len)
{
    return (int)br_utf8_valid((const uint8_t *)text, len < 40 ? len : 40);
}

static int decode_read_integer(struct reader *reader, const struct br_json_token *value,
                               int64_t min, uint64_t max, const struct path *path, uint64_t *ret)
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
        return decode_fail(reader, path, BR_EINVAL, "must be an integer");
    if (!br_number_integer(text, len, &negative, &v))
        return decode_fail(reader, path, BR_EINVAL,
                           "must be an integer of at most 64 bits, got %.*s",
                           decode_shown(text, len), text);
    if (negative ? v > (uint64_t)0 - (uint64_t)min : v > max)
        return decode_fail(reader, path, BR_EINVAL,
                           "must be from %" PRId64 " to %" PRIu64 ", got %.*s", min, max,
                           decode_shown(text, len), text);
    *ret = negative ? (uint64_t)0 - v : v;
    return 0;
}

static int decode_read_double(struct reader *reader, const struct br_json_token *value,
                              const struct path *path, uint64_t *ret)
{
    char plain[SCALAR_MAX + 1];
    double d;
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    if (text && br_bytes_are(text, len, "NaN"))
        d = __builtin_nan("");
    else if (text && br_bytes_are(text, len, "Infinity"))
        d = __builtin_inf();
    else if (text && br_bytes_are(text, len, "-Infinity"))
        d = -__builtin_inf();
    else if (!decode_is_number(text, len))
        return decode_fail(reader, path, BR_EINVAL,
                           "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
    else if (!br_number_double(text, &d))
        return decode_fail(reader, path, BR_EINVAL, "must fit in a double, got %.*s",
                           decode_shown(text, len), text);
    memcpy(ret, &d, sizeof d);
    return 0;
}

/* Returns true if a name or a string equals `want`. */
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
                            const struct br_json_token *value, const struct path *path,
                            uint64_t *ret)
{
    if (value->type != BR_JSON_STRING)
        return decode_read_integer(reader, value, INT32_MIN, INT32_MAX, path, ret);
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    for (unsigned i = 0; text && i < desc->n_values; i++) {
        if (br_bytes_are(text, len, desc->values[i].name)) {
            *ret = (uint64_t)(int64_t)desc->values[i].value;
            return 0;
        }
    }
    return decode_fail(reader, path, BR_EINVAL, "%.*s is not a %s",
                       decode_shown(value->text, value->len), value->text, desc->short_name);
}

static int decode_read_bool(struct reader *reader, const struct br_json_token *value,
                            const struct path *path, uint64_t *ret)
{
    if (value->type != BR_JSON_TRUE && value->type != BR_JSON_FALSE)
        return decode_fail(reader, path, BR_EINVAL, "must be true or false");
    *ret = value->type == BR_JSON_TRUE;
    return 0;
}

static int decode_read_scalar(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              const struct br_json_token *value, const struct path *path,
                              uint64_t *ret)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return decode_read_bool(reader, value, path, ret);
    case PROTOBUF_C_TYPE_INT32:
        return decode_read_integer(reader, value, INT32_MIN, INT32_MAX, path, ret);
    case PROTOBUF_C_TYPE_INT64:
        return decode_read_integer(reader, value, INT64_MIN, INT64_MAX, path, ret);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return decode_read_integer(reader, value, 0, UINT32_MAX, path, ret);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return decode_read_integer(reader, value, 0, UINT64_MAX, path, ret);
    case PROTOBUF_C_TYPE_DOUBLE:
        return decode_read_double(reader, value, path, ret);
    case PROTOBUF_C_TYPE_ENUM:
        return decode_read_enum(reader, field->descriptor, value, path, ret);
    default:
        return decode_fail(reader, path, BR_EUNSUPPORTED, "has a type that OTLP does not use");
    }
}

/* --- Strings and bytes ---------------------------------------------------------------------- */

static int decode_read_id(struct reader *reader, size_t size, const struct br_json_token *value,
                          const struct path *path, size_t *ret_len)
{
    uint8_t id[16];
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = decode_short_text(value, plain, &len);
    *ret_len = text && len == 0 ? 0 : size;
    if (*ret_len == 0)
        return decode_noted(reader, path, br_json_note_number(&reader->notes, 0));
    if (!text || len != size * 2)
        return decode_fail(reader, path, BR_EINVAL, "must be %zu hex digits, got %" PRIu32,
                           size * 2, value->len);
    if (br_hex_decode(text, len, id, sizeof id) < 0)
        return decode_fail(reader, path, BR_EINVAL, "must be %zu hex digits", size * 2);
    return decode_noted(reader, path, br_json_note_bytes(&reader->notes, id, size));
}

static int decode_read_base64(struct reader *reader, const struct br_json_token *value,
                              const struct path *path, size_t *ret_len)
{
    const char *text = value->text;
    size_t len = value->plain_len;
    int rc = decode_noted(
        reader, path, br_json_note_room(&reader->notes, value->escaped ? len : len / 4 * 3 + 3));
    if (rc != 0)
        return rc;
    uint8_t *out = reader->notes.buf->data + reader->notes.buf->len;
    /* replace escapes first: some encoders escape "/"; the base64 is then decoded in place */
    if (value->escaped) {
        (void)br_json_plain(text, value->len, (char *)out);
        text = (const char *)out;
    }
    long n = br_base64_decode(text, len, out);
    if (n < 0)
        return decode_fail(reader, path, BR_EINVAL, "must be base64");
    reader->notes.buf->len += (uint32_t)n;
    *ret_len = (size_t)n;
    return decode_noted(reader, path, br_json_note_number(&reader->notes, (uint64_t)n));
}

static int decode_read_text(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *value, const struct path *path,
                            size_t *ret_len)
{
    if (value->type != BR_JSON_STRING)
        return decode_fail(reader, path, BR_EINVAL, "must be a string");
    size_t id_size = br_json_id_size(field);
    if (id_size)
        return decode_read_id(reader, id_size, value, path, ret_len);
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return decode_read_base64(reader, value, path, ret_len);
    *ret_len = value->plain_len;
    return decode_noted(reader, path,
                        br_json_note_string(&reader->notes, reader->scan.text, value));
}

/* --- Sizes ---------------------------------------------------------------------------------- */

/* Returns the number of bytes of a field's tag. The wire type does not affect the number of
 * bytes. */
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
    switch (br_json_wire(field)) {
    case BR_WIRE_I64:
        return 8;
    case BR_WIRE_I32:
        return 4;
    default:
        return br_varint_size(bits);
    }
}

/* --- Well-known messages -------------------------------------------------------------------- */

/* Parses a duration: an optional "-", seconds, an optional point with one to nine digits, and
 * "s". */
static bool decode_parse_duration(const char *text, size_t len, int64_t *ret_seconds,
                                  int64_t *ret_nanos)
{
    uint64_t seconds, nanos = 0;
    const char *end = br_mem_end(text, len);
    const char *at = text + (len > 0 && *text == '-');
    if (!br_decimal_read(&at, end, DURATION_MAX_S, &seconds))
        return false;
    if (at < end && *at == '.') {
        const char *first = ++at;
        nanos = br_decimal_fraction(&at, end, 1000000000);
        if (at == first || at - first > 9)
            return false;
    }
    int64_t sign = *text == '-' ? -1 : 1;
    *ret_seconds = sign * (int64_t)seconds;
    *ret_nanos = sign * (int64_t)nanos;
    return end - at == 1 && *at == 's';
}

/* Writes the note of the field `index` of a google.protobuf.Duration, unless the value is 0. */
static int decode_note_part(struct reader *reader, unsigned index, int64_t value,
                            const struct path *path, size_t *len)
{
    const ProtobufCFieldDescriptor *field = &google__protobuf__duration__descriptor.fields[index];
    if (value == 0)
        return 0;
    int rc = br_json_note_number(&reader->notes, br_json_fold(field, (uint64_t)value));
    rc = rc ? rc : br_json_note_byte(&reader->notes, index);
    *len += decode_tag_size(field) + decode_scalar_size(field, (uint64_t)value);
    return decode_noted(reader, path, rc);
}

/* Reads a google.protobuf.Duration, which is a string in JSON. */
static int decode_read_duration(struct reader *reader, const struct br_json_token *value,
                                const struct path *path, size_t *ret_len)
{
    int64_t seconds, nanos;
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = value->type == BR_JSON_STRING ? decode_short_text(value, plain, &len) : NULL;
    if (!text || !decode_parse_duration(text, len, &seconds, &nanos))
        return decode_fail(reader, path, BR_EINVAL, "must be a string like \"1.5s\"");
    *ret_len = 0;
    int rc = decode_note_part(reader, 0, seconds, path, ret_len);
    return rc != 0 ? rc : decode_note_part(reader, 1, nanos, path, ret_len);
}

/* Skips an object and stores the value of its last "@type" in `*ret`. Sets `*ret_any` if the
 * object has members. */
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

/* Reads a google.protobuf.Any. The JSON object of an Any contains "@type" and the fields of the
 * inner message. "@type" may be the last member, so the object is first scanned for it. */
static int decode_read_any(struct reader *reader, const struct path *path, size_t *ret_len)
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
        return decode_fail(reader, path, BR_EINVAL, "must have an \"@type\"");
    rc = br_json_note_string(&reader->notes, reader->scan.text, &type);
    rc = decode_noted(reader, path, rc ? rc : br_json_note_byte(&reader->notes, 0));
    *ret_len = decode_long_size(&fields[0], len);
    const ProtobufCMessageDescriptor *desc = br_json_any(url, len);
    if (rc != 0 || !desc)
        return rc;
    uint32_t mark = reader->notes.buf->len;
    reader->scan.at = start;
    rc = decode_read_message(reader, desc, &(struct br_json_token){.type = BR_JSON_OBJECT}, path,
                             &len);
    if (rc == 0 && len == 0)
        reader->notes.buf->len = mark;
    if (rc != 0 || len == 0)
        return rc;
    *ret_len += decode_long_size(&fields[1], len);
    return decode_noted(reader, path, br_json_note_byte(&reader->notes, 1));
}

/* --- Values --------------------------------------------------------------------------------- */

/* Reads a value that is length-delimited on the wire. */
static int decode_read_long(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *value, const struct path *path,
                            size_t *ret_len)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE
               ? decode_read_message(reader, field->descriptor, value, path, ret_len)
               : decode_read_text(reader, field, value, path, ret_len);
}

static int decode_note_scalar(struct reader *reader, const ProtobufCFieldDescriptor *field,
                              uint64_t bits, const struct path *path)
{
    return decode_noted(reader, path,
                        br_json_note_number(&reader->notes, br_json_fold(field, bits)));
}

/* Reads a value that is not a list. Stores in `*ret_size` the size of the encoded field in
 * bytes, including its tag. A zero is omitted, except in a oneof, where a zero is significant. */
static int decode_read_value(struct reader *reader, const ProtobufCFieldDescriptor *field,
                             const struct br_json_token *value, const struct path *path,
                             size_t *ret_size)
{
    bool keep =
        field->type == PROTOBUF_C_TYPE_MESSAGE || field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    int rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        uint32_t mark = reader->notes.buf->len;
        size_t len = 0;
        rc = decode_read_long(reader, field, value, path, &len);
        if (rc == 0 && len == 0 && !keep)
            reader->notes.buf->len = mark;
        else
            *ret_size = decode_long_size(field, len);
        return rc;
    }
    uint64_t bits = 0;
    rc = decode_read_scalar(reader, field, value, path, &bits);
    if (rc != 0 || (bits == 0 && !keep))
        return rc;
    *ret_size = decode_tag_size(field) + decode_scalar_size(field, bits);
    return decode_note_scalar(reader, field, bits, path);
}

static int decode_read_element(struct reader *reader, const ProtobufCFieldDescriptor *field,
                               const struct path *path, size_t *ret_size)
{
    struct br_json_token value;
    uint64_t bits = 0;
    size_t len = 0;
    int rc = br_json_scan_value(&reader->scan, &value);
    if (rc != 0)
        return rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        rc = decode_read_long(reader, field, &value, path, &len);
        *ret_size = decode_long_size(field, len);
        return rc;
    }
    rc = decode_read_scalar(reader, field, &value, path, &bits);
    if (rc != 0)
        return rc;
    *ret_size = decode_scalar_size(field, bits);
    return decode_note_scalar(reader, field, bits, path);
}

static int decode_read_list(struct reader *reader, const ProtobufCFieldDescriptor *field,
                            const struct br_json_token *list, struct path *path, size_t *ret_size)
{
    uint32_t mark = reader->notes.buf->len;
    size_t total = 0;
    bool more = true;
    if (list->type != BR_JSON_ARRAY)
        return decode_fail(reader, path, BR_EINVAL, "must be an array");
    int rc = br_json_scan_enter(&reader->scan);
    path->indexed = true;
    for (path->index = 0; rc == 0; path->index++) {
        size_t size;
        rc = br_json_scan_more(&reader->scan, ']', path->index == 0, &more);
        if (rc != 0 || !more)
            break;
        rc = decode_read_element(reader, field, path, &size);
        total += rc ? 0 : size;
        rc = rc == 0 && total > reader->max ? decode_too_large(reader, path) : rc;
    }
    if (rc != 0 || total == 0)
        return rc;
    *ret_size = br_json_wire(field) == BR_WIRE_LEN ? total : decode_long_size(field, total);
    size_t notes_len = reader->notes.buf->len - mark;
    return decode_noted(reader, path,
                        br_json_note_number(&reader->notes, (uint64_t)notes_len << 1 | 1));
}

/* --- Messages ------------------------------------------------------------------------------- */

/* Returns the index of the field with this name, or the number of fields if the name is unknown. */
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

/* Records that field `index` has `size` encoded bytes; the note of its value has been written. A
 * size of 0 removes the field, even if an earlier member had set it. */
static int decode_count_member(struct reader *reader, struct members *members, unsigned index,
                               size_t size, const struct path *path)
{
    bool was_present = members->present >> index & 1;
    if (size == 0 && !was_present)
        return 0;
    members->ordered = members->ordered && index >= members->next && size > 0;
    members->next = index + 1;
    members->sizes[index] = size;
    members->present = size ? members->present | 1u << index : members->present & ~(1u << index);
    return decode_noted(
        reader, path,
        br_json_note_byte(&reader->notes, size ? index : index | BR_JSON_NOTE_ABSENT));
}

static int decode_read_member(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                              unsigned index, struct members *members, const struct path *outer)
{
    const ProtobufCFieldDescriptor *field = &desc->fields[index];
    struct path p = {.outer = outer, .field = field, .depth = outer->depth + 1};
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
                               struct members *members, const struct path *path)
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
            rc = decode_read_member(reader, desc, i, members, path);
        } else {
            rc = br_json_scan_value(&reader->scan, &name);
            rc = rc ? rc : br_json_scan_skip(&reader->scan, &name);
        }
    }
    return rc;
}

/* Fails if two members of one oneof are present. */
static int decode_check_oneofs(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct members *members, const struct path *outer)
{
    for (uint32_t fields = members->present; fields; fields &= fields - 1) {
        const ProtobufCFieldDescriptor *field = &desc->fields[__builtin_ctz(fields)];
        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        for (uint32_t others = fields & (fields - 1); others; others &= others - 1) {
            const ProtobufCFieldDescriptor *other = &desc->fields[__builtin_ctz(others)];
            struct path p = {.outer = outer, .field = other, .depth = outer->depth + 1};
            char name[BR_JSON_NAME_MAX];
            if (other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
                other->quantifier_offset == field->quantifier_offset)
                return decode_fail(reader, &p, BR_EINVAL,
                                   "cannot be combined with %s; set only one of them",
                                   br_json_name(field, name));
        }
    }
    return 0;
}

static int decode_read_object(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                              const struct path *path, size_t *ret_len, bool *ret_ordered)
{
    struct members members;
    members.present = members.next = 0;
    members.ordered = true;
    assert(desc->n_fields <= BR_JSON_FIELDS_MAX);
    int rc = decode_read_members(reader, desc, &members, path);
    rc = rc != 0 ? rc : decode_check_oneofs(reader, desc, &members, path);
    if (rc != 0)
        return rc;
    size_t len = 0;
    for (uint32_t fields = members.present; fields; fields &= fields - 1)
        len += members.sizes[__builtin_ctz(fields)];
    *ret_len = len;
    *ret_ordered = members.ordered;
    return len > reader->max ? decode_too_large(reader, path) : 0;
}

static int decode_read_message(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                               const struct br_json_token *value, const struct path *path,
                               size_t *ret_len)
{
    uint32_t mark = reader->notes.buf->len;
    bool ordered = true;
    int rc;
    if (path->depth >= reader->max_depth)
        return decode_fail(reader, path, BR_EINVAL, "nests deeper than %u messages",
                           reader->max_depth);
    if (desc == &google__protobuf__duration__descriptor)
        rc = decode_read_duration(reader, value, path, ret_len);
    else if (value->type != BR_JSON_OBJECT)
        rc = decode_fail(reader, path, BR_EINVAL, "must be an object");
    else if (desc == &google__protobuf__any__descriptor)
        rc = decode_read_any(reader, path, ret_len);
    else
        rc = decode_read_object(reader, desc, path, ret_len, &ordered);
    size_t notes_len = reader->notes.buf->len - mark;
    return rc ? rc
              : decode_noted(
                    reader, path,
                    br_json_note_number(&reader->notes, (uint64_t)notes_len << 1 | ordered));
}

/* --- The text ------------------------------------------------------------------------------- */

static int decode_read_all(struct reader *reader, const ProtobufCMessageDescriptor *desc,
                           size_t *ret_len)
{
    const struct path root = {0};
    struct br_json_token value;
    int rc = br_json_scan_value(&reader->scan, &value);
    rc = rc ? rc : decode_read_message(reader, desc, &value, &root, ret_len);
    rc = rc ? rc : br_json_scan_end(&reader->scan);
    if (rc == 0 && *ret_len + reader->notes.buf->len > reader->max_total)
        rc = decode_too_dense(reader, &root);
    return rc;
}

/* If the text contains a syntax error, reports that error instead of the schema error. */
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
    /* Buffers of the pool may be a quarter larger than requested, so notes and result need at
     * most 2 * len + 640 KiB. */
    reader.max_total = len / 5 * 8 + SPARE;
    reader.notes.max = len / 10 * 9 + SPARE / 2;
    /* the buffer is large enough for most SDKs, whose notes need a quarter of the text's size */
    reader.notes.buf = br_buf_new(pool, len / 3);
    if (!reader.notes.buf)
        return br_err_set(err, BR_ENOMEM, "no memory for a message");
    rc = decode_read_all(&reader, desc, &out_len);
    if (rc == BR_EINVAL && reader.bad_schema)
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
