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
static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct br_json_token *value, const struct place *place,
                        size_t *ret_len);

/* --- Errors --------------------------------------------------------------------------------- */

static void print_place(struct br_str *out, const struct place *p)
{
    char name[BR_JSON_NAME_MAX];
    if (!p->up)
        return;
    print_place(out, p->up);
    if (p->up->up)
        br_str_putc(out, '.');
    br_str_puts(out, br_json_name(p->field, name));
    if (p->indexed)
        br_str_printf(out, "[%zu]", p->index);
}

__attribute__((format(printf, 4, 5))) static int fail(struct reader *r, const struct place *p,
                                                      int code, const char *fmt, ...)
{
    char where[320];
    struct br_str path = {
        .data = where, .cap = sizeof where, .max = sizeof where - 1, .fixed = true};
    char text[160];
    r->misfit = code == BR_EINVAL;
    where[0] = '\0';
    print_place(&path, p);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return br_err_set(r->err, code, "%s%s%s%s", where, path.failed ? "..." : "",
                      path.len ? ": " : "", text);
}

static int too_large(struct reader *r, const struct place *p)
{
    return fail(r, p, BR_ETOOBIG, "the message is larger than %zu bytes", r->max);
}

/* Numbers that take more than their text, in such a crowd as nobody means. */
static int too_dense(struct reader *r, const struct place *p)
{
    return fail(r, p, BR_ETOOBIG, "%zu bytes of JSON would take more than %zu bytes",
                (size_t)(r->scan.end - r->scan.text), r->room);
}

/* Passes on what taking a note returned. */
static int noted(struct reader *r, const struct place *p, int rc)
{
    if (rc == BR_EFULL)
        return too_dense(r, p);
    return rc ? fail(r, p, rc, "no memory") : 0;
}

/* --- Scalars -------------------------------------------------------------------------------- */

/* The bytes of a short string or of a number. Not terminated, but followed by a byte that continues
 * no number: a quote, a bracket, a comma, white space. NULL where the value is neither, or too long
 * to be anything. */
static const char *short_text(const struct br_json_token *value, char plain[SCALAR_MAX + 1],
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

static bool is_number(const char *text, size_t len)
{
    return text && len > 0 && br_number_scan(text, len) == len;
}

/* How much of a text an error shows: whole characters. */
static int shown(const char *text, size_t len)
{
    return (int)br_utf8_valid((const uint8_t *)text, len < 40 ? len : 40);
}

static int read_integer(struct reader *r, const struct br_json_token *value, int64_t min,
                        uint64_t max, const struct place *p, uint64_t *ret)
{
    bool negative;
    uint64_t v;
    size_t len = 0;
    char plain[SCALAR_MAX + 1];
    const char *text = short_text(value, plain, &len);
    if (text && br_number_digits(text, len, &v) && v <= max) {
        *ret = v;
        return 0;
    }
    if (!is_number(text, len))
        return fail(r, p, BR_EINVAL, "must be an integer");
    if (!br_number_integer(text, len, &negative, &v))
        return fail(r, p, BR_EINVAL, "must be an integer of at most 64 bits, got %.*s",
                    shown(text, len), text);
    if (negative ? v > (uint64_t)0 - (uint64_t)min : v > max)
        return fail(r, p, BR_EINVAL, "must be from %" PRId64 " to %" PRIu64 ", got %.*s", min, max,
                    shown(text, len), text);
    *ret = negative ? (uint64_t)0 - v : v;
    return 0;
}

static bool is_text(const char *text, size_t len, const char *want)
{
    return len == strlen(want) && memcmp(text, want, len) == 0;
}

static int read_double(struct reader *r, const struct br_json_token *value, const struct place *p,
                       uint64_t *ret)
{
    char plain[SCALAR_MAX + 1];
    double d;
    size_t len = 0;
    const char *text = short_text(value, plain, &len);
    if (text && is_text(text, len, "NaN"))
        d = __builtin_nan("");
    else if (text && is_text(text, len, "Infinity"))
        d = __builtin_inf();
    else if (text && is_text(text, len, "-Infinity"))
        d = -__builtin_inf();
    else if (!is_number(text, len))
        return fail(r, p, BR_EINVAL, "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
    else if (!br_number_double(text, &d))
        return fail(r, p, BR_EINVAL, "must fit in a double, got %.*s", shown(text, len), text);
    memcpy(ret, &d, sizeof d);
    return 0;
}

/* True when a name or a string is `want`. */
static bool is_name(const struct br_json_token *name, const char *want)
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

static int read_enum(struct reader *r, const ProtobufCEnumDescriptor *desc,
                     const struct br_json_token *value, const struct place *p, uint64_t *ret)
{
    if (value->type != BR_JSON_STRING)
        return read_integer(r, value, INT32_MIN, INT32_MAX, p, ret);
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = short_text(value, plain, &len);
    for (unsigned i = 0; text && i < desc->n_values; i++) {
        if (is_text(text, len, desc->values[i].name)) {
            *ret = (uint64_t)(int64_t)desc->values[i].value;
            return 0;
        }
    }
    return fail(r, p, BR_EINVAL, "%.*s is no %s", shown(value->text, value->len), value->text,
                desc->short_name);
}

static int read_bool(struct reader *r, const struct br_json_token *value, const struct place *p,
                     uint64_t *ret)
{
    if (value->type != BR_JSON_TRUE && value->type != BR_JSON_FALSE)
        return fail(r, p, BR_EINVAL, "must be true or false");
    *ret = value->type == BR_JSON_TRUE;
    return 0;
}

static int read_scalar(struct reader *r, const ProtobufCFieldDescriptor *field,
                       const struct br_json_token *value, const struct place *p, uint64_t *ret)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(r, value, p, ret);
    case PROTOBUF_C_TYPE_INT32:
        return read_integer(r, value, INT32_MIN, INT32_MAX, p, ret);
    case PROTOBUF_C_TYPE_INT64:
        return read_integer(r, value, INT64_MIN, INT64_MAX, p, ret);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        return read_integer(r, value, 0, UINT32_MAX, p, ret);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return read_integer(r, value, 0, UINT64_MAX, p, ret);
    case PROTOBUF_C_TYPE_DOUBLE:
        return read_double(r, value, p, ret);
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(r, field->descriptor, value, p, ret);
    default:
        return fail(r, p, BR_EUNSUPPORTED, "has a type that OTLP does not use");
    }
}

/* --- Strings and bytes ---------------------------------------------------------------------- */

static int read_id(struct reader *r, size_t size, const struct br_json_token *value,
                   const struct place *p, size_t *ret_len)
{
    uint8_t id[16];
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = short_text(value, plain, &len);
    *ret_len = text && len == 0 ? 0 : size;
    if (*ret_len == 0)
        return noted(r, p, br_json_note_number(&r->notes, 0));
    if (!text || len != size * 2)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits, got %" PRIu32, size * 2, value->len);
    if (br_hex_decode(text, len, id, sizeof id) < 0)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits", size * 2);
    return noted(r, p, br_json_note_bytes(&r->notes, id, size));
}

static int read_base64(struct reader *r, const struct br_json_token *value, const struct place *p,
                       size_t *ret_len)
{
    const char *text = value->text;
    size_t len = value->plain_len;
    int rc = noted(r, p, br_json_note_room(&r->notes, value->escaped ? len : len / 4 * 3 + 3));
    if (rc != 0)
        return rc;
    uint8_t *out = r->notes.buf->data + r->notes.buf->len;
    if (value->escaped) { /* some write "\/"; decoding can work in place */
        (void)br_json_plain(text, value->len, (char *)out);
        text = (const char *)out;
    }
    long n = br_base64_decode(text, len, out);
    if (n < 0)
        return fail(r, p, BR_EINVAL, "must be base64");
    r->notes.buf->len += (uint32_t)n;
    *ret_len = (size_t)n;
    return noted(r, p, br_json_note_number(&r->notes, (uint64_t)n));
}

static int read_text(struct reader *r, const ProtobufCFieldDescriptor *field,
                     const struct br_json_token *value, const struct place *p, size_t *ret_len)
{
    if (value->type != BR_JSON_STRING)
        return fail(r, p, BR_EINVAL, "must be a string");
    size_t id_size = br_json_id_size(field);
    if (id_size)
        return read_id(r, id_size, value, p, ret_len);
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return read_base64(r, value, p, ret_len);
    *ret_len = value->plain_len;
    return noted(r, p, br_json_note_string(&r->notes, r->scan.text, value));
}

/* --- Sizes ---------------------------------------------------------------------------------- */

/* Bytes of a tag; the wire type does not change how many. */
static size_t tag_size(const ProtobufCFieldDescriptor *field)
{
    return br_varint_size(BR_TAG(field->id, 0));
}

static size_t long_size(const ProtobufCFieldDescriptor *field, size_t len)
{
    return tag_size(field) + br_varint_size(len) + len;
}

static size_t scalar_size(const ProtobufCFieldDescriptor *field, uint64_t bits)
{
    enum br_wire wire = br_json_wire(field);
    return wire == BR_WIRE_I64 ? 8 : wire == BR_WIRE_I32 ? 4 : br_varint_size(bits);
}

/* --- Well-known messages -------------------------------------------------------------------- */

/* Seconds, up to nine digits after a point, "s". */
static bool parse_duration(const char *text, size_t len, int64_t *ret_seconds, int64_t *ret_nanos)
{
    int64_t seconds = 0, nanos = 0, unit = 1000000000;
    const char *end = text + len;
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

/* Notes what field `i` of a Duration is. */
static int note_part(struct reader *r, unsigned i, int64_t v, const struct place *p, size_t *len)
{
    const ProtobufCFieldDescriptor *field = &google__protobuf__duration__descriptor.fields[i];
    if (v == 0)
        return 0;
    int rc = br_json_note_number(&r->notes, br_json_fold(field, (uint64_t)v));
    rc = rc ? rc : br_json_note_byte(&r->notes, i);
    *len += tag_size(field) + scalar_size(field, (uint64_t)v);
    return noted(r, p, rc);
}

/* google.protobuf.Duration is a string. */
static int read_duration(struct reader *r, const struct br_json_token *value, const struct place *p,
                         size_t *ret_len)
{
    int64_t seconds, nanos;
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = value->type == BR_JSON_STRING ? short_text(value, plain, &len) : NULL;
    if (!text || !parse_duration(text, len, &seconds, &nanos))
        return fail(r, p, BR_EINVAL, "must be a string like \"1.5s\"");
    *ret_len = 0;
    int rc = note_part(r, 0, seconds, p, ret_len);
    return rc != 0 ? rc : note_part(r, 1, nanos, p, ret_len);
}

/* Passes an object, whose last "@type" is found; `*ret_any` says whether it has members. */
static int find_type(struct reader *r, struct br_json_token *ret, bool *ret_any)
{
    struct br_json_token name, value;
    bool more = true;
    int rc = br_json_scan_enter(&r->scan);
    *ret_any = false;
    ret->type = BR_JSON_NULL;
    for (bool first = true; rc == 0; first = false) {
        rc = br_json_scan_more(&r->scan, '}', first, &more);
        if (rc != 0 || !more)
            break;
        *ret_any = true;
        rc = br_json_scan_name(&r->scan, &name);
        rc = rc ? rc : br_json_scan_value(&r->scan, &value);
        if (rc == 0 && is_name(&name, "@type"))
            *ret = value;
        rc = rc ? rc : br_json_scan_skip(&r->scan, &value);
    }
    return rc;
}

/* google.protobuf.Any has its message's own fields beside "@type", which may be the last. */
static int read_any(struct reader *r, const struct place *p, size_t *ret_len)
{
    const ProtobufCFieldDescriptor *fields = google__protobuf__any__descriptor.fields;
    const char *start = r->scan.at;
    struct br_json_token type;
    char plain[SCALAR_MAX + 1];
    bool any;
    size_t len = 0;
    int rc = find_type(r, &type, &any);
    *ret_len = 0;
    if (rc != 0 || !any)
        return rc;
    const char *url = type.type == BR_JSON_STRING ? short_text(&type, plain, &len) : NULL;
    if (!url)
        return fail(r, p, BR_EINVAL, "must have an \"@type\"");
    rc = br_json_note_string(&r->notes, r->scan.text, &type);
    rc = noted(r, p, rc ? rc : br_json_note_byte(&r->notes, 0));
    *ret_len = long_size(&fields[0], len);
    const ProtobufCMessageDescriptor *desc = br_json_any(url, len);
    if (rc != 0 || !desc)
        return rc;
    uint32_t mark = r->notes.buf->len;
    r->scan.at = start;
    rc = read_message(r, desc, &(struct br_json_token){.type = BR_JSON_OBJECT}, p, &len);
    if (rc == 0 && len == 0)
        r->notes.buf->len = mark;
    if (rc != 0 || len == 0)
        return rc;
    *ret_len += long_size(&fields[1], len);
    return noted(r, p, br_json_note_byte(&r->notes, 1));
}

/* --- Values --------------------------------------------------------------------------------- */

/* Whatever has its length before it on the wire. */
static int read_long(struct reader *r, const ProtobufCFieldDescriptor *field,
                     const struct br_json_token *value, const struct place *p, size_t *ret_len)
{
    return field->type == PROTOBUF_C_TYPE_MESSAGE
               ? read_message(r, field->descriptor, value, p, ret_len)
               : read_text(r, field, value, p, ret_len);
}

static int note_scalar(struct reader *r, const ProtobufCFieldDescriptor *field, uint64_t bits,
                       const struct place *p)
{
    return noted(r, p, br_json_note_number(&r->notes, br_json_fold(field, bits)));
}

/* A value that is no list, and what it takes on the wire with its tag. A zero takes nothing, unless
 * it is in a oneof, where it means something. */
static int read_value(struct reader *r, const ProtobufCFieldDescriptor *field,
                      const struct br_json_token *value, const struct place *p, size_t *ret_size)
{
    bool keep =
        field->type == PROTOBUF_C_TYPE_MESSAGE || field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    int rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        uint32_t mark = r->notes.buf->len;
        size_t len = 0;
        rc = read_long(r, field, value, p, &len);
        if (rc == 0 && len == 0 && !keep)
            r->notes.buf->len = mark;
        else
            *ret_size = long_size(field, len);
        return rc;
    }
    uint64_t bits;
    rc = read_scalar(r, field, value, p, &bits);
    if (rc != 0 || (bits == 0 && !keep))
        return rc;
    *ret_size = tag_size(field) + scalar_size(field, bits);
    return note_scalar(r, field, bits, p);
}

static int read_element(struct reader *r, const ProtobufCFieldDescriptor *field,
                        const struct place *p, size_t *ret_size)
{
    struct br_json_token value;
    uint64_t bits;
    size_t len = 0;
    int rc = br_json_scan_value(&r->scan, &value);
    if (rc != 0)
        return rc;
    if (br_json_wire(field) == BR_WIRE_LEN) {
        rc = read_long(r, field, &value, p, &len);
        *ret_size = long_size(field, len);
        return rc;
    }
    rc = read_scalar(r, field, &value, p, &bits);
    if (rc != 0)
        return rc;
    *ret_size = scalar_size(field, bits);
    return note_scalar(r, field, bits, p);
}

static int read_list(struct reader *r, const ProtobufCFieldDescriptor *field,
                     const struct br_json_token *list, struct place *p, size_t *ret_size)
{
    uint32_t mark = r->notes.buf->len;
    size_t total = 0;
    bool more = true;
    if (list->type != BR_JSON_ARRAY)
        return fail(r, p, BR_EINVAL, "must be an array");
    int rc = br_json_scan_enter(&r->scan);
    p->indexed = true;
    for (p->index = 0; rc == 0; p->index++) {
        size_t size;
        rc = br_json_scan_more(&r->scan, ']', p->index == 0, &more);
        if (rc != 0 || !more)
            break;
        rc = read_element(r, field, p, &size);
        total += rc ? 0 : size;
        rc = rc == 0 && total > r->max ? too_large(r, p) : rc;
    }
    if (rc != 0 || total == 0)
        return rc;
    *ret_size = br_json_wire(field) == BR_WIRE_LEN ? total : long_size(field, total);
    size_t taken = r->notes.buf->len - mark;
    return noted(r, p, br_json_note_number(&r->notes, (uint64_t)taken << 1 | 1));
}

/* --- Messages ------------------------------------------------------------------------------- */

/* The index of the field of this name, or the number of fields where it has none. */
static unsigned find_field(const ProtobufCMessageDescriptor *desc, const struct br_json_token *name,
                           unsigned next, bool original)
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
        if (br_json_is_name(&desc->fields[i], text, name->plain_len, original))
            return i;
    }
    return desc->n_fields;
}

/* Field `i`, whose value has taken its notes, takes `size` bytes on the wire; with 0 it is not
 * there, whatever came before. */
static int count_member(struct reader *r, struct members *m, unsigned i, size_t size,
                        const struct place *p)
{
    bool before = m->there >> i & 1;
    if (size == 0 && !before)
        return 0;
    m->ordered = m->ordered && i >= m->next && size > 0;
    m->next = i + 1;
    m->sizes[i] = size;
    m->there = size ? m->there | 1u << i : m->there & ~(1u << i);
    return noted(r, p, br_json_note_byte(&r->notes, size ? i : i | BR_JSON_NOTE_ABSENT));
}

static int read_member(struct reader *r, const ProtobufCMessageDescriptor *desc, unsigned i,
                       struct members *m, const struct place *up)
{
    const ProtobufCFieldDescriptor *field = &desc->fields[i];
    struct place p = {.up = up, .field = field, .depth = up->depth + 1};
    struct br_json_token value;
    size_t size = 0;
    int rc = br_json_scan_value(&r->scan, &value);
    if (rc == 0 && value.type != BR_JSON_NULL)
        rc = field->label == PROTOBUF_C_LABEL_REPEATED ? read_list(r, field, &value, &p, &size)
                                                       : read_value(r, field, &value, &p, &size);
    return rc != 0 ? rc : count_member(r, m, i, size, &p);
}

static int read_members(struct reader *r, const ProtobufCMessageDescriptor *desc, struct members *m,
                        const struct place *place)
{
    bool original = br_json_original_names(desc), more = true;
    int rc = br_json_scan_enter(&r->scan);
    for (bool first = true; rc == 0; first = false) {
        struct br_json_token name;
        rc = br_json_scan_more(&r->scan, '}', first, &more);
        if (rc != 0 || !more)
            break;
        rc = br_json_scan_name(&r->scan, &name);
        if (rc != 0)
            break;
        unsigned i = find_field(desc, &name, m->next, original);
        if (i < desc->n_fields) {
            rc = read_member(r, desc, i, m, place);
        } else {
            rc = br_json_scan_value(&r->scan, &name);
            rc = rc ? rc : br_json_scan_skip(&r->scan, &name);
        }
    }
    return rc;
}

/* Fails where two members of a oneof are there. */
static int check_rivals(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct members *m, const struct place *up)
{
    for (uint32_t left = m->there; left; left &= left - 1) {
        const ProtobufCFieldDescriptor *field = &desc->fields[__builtin_ctz(left)];
        if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
            continue;
        for (uint32_t rest = left & (left - 1); rest; rest &= rest - 1) {
            const ProtobufCFieldDescriptor *other = &desc->fields[__builtin_ctz(rest)];
            struct place p = {.up = up, .field = other, .depth = up->depth + 1};
            char name[BR_JSON_NAME_MAX];
            if (other->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
                other->quantifier_offset == field->quantifier_offset)
                return fail(r, &p, BR_EINVAL, "only one of this and %s may be given",
                            br_json_name(field, name));
        }
    }
    return 0;
}

static int read_object(struct reader *r, const ProtobufCMessageDescriptor *desc,
                       const struct place *place, size_t *ret_len, bool *ret_ordered)
{
    struct members m;
    m.there = m.next = 0;
    m.ordered = true;
    assert(desc->n_fields <= BR_JSON_FIELDS_MAX);
    int rc = read_members(r, desc, &m, place);
    rc = rc != 0 ? rc : check_rivals(r, desc, &m, place);
    if (rc != 0)
        return rc;
    size_t len = 0;
    for (uint32_t left = m.there; left; left &= left - 1)
        len += m.sizes[__builtin_ctz(left)];
    *ret_len = len;
    *ret_ordered = m.ordered;
    return len > r->max ? too_large(r, place) : 0;
}

static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct br_json_token *value, const struct place *place,
                        size_t *ret_len)
{
    uint32_t mark = r->notes.buf->len;
    bool ordered = true;
    int rc;
    if (place->depth >= r->max_depth)
        return fail(r, place, BR_EINVAL, "nests deeper than %u messages", r->max_depth);
    if (desc == &google__protobuf__duration__descriptor)
        rc = read_duration(r, value, place, ret_len);
    else if (value->type != BR_JSON_OBJECT)
        rc = fail(r, place, BR_EINVAL, "must be an object");
    else if (desc == &google__protobuf__any__descriptor)
        rc = read_any(r, place, ret_len);
    else
        rc = read_object(r, desc, place, ret_len, &ordered);
    size_t taken = r->notes.buf->len - mark;
    return rc ? rc
              : noted(r, place, br_json_note_number(&r->notes, (uint64_t)taken << 1 | ordered));
}

/* --- The text ------------------------------------------------------------------------------- */

static int read_all(struct reader *r, const ProtobufCMessageDescriptor *desc, size_t *ret_len)
{
    const struct place root = {0};
    struct br_json_token value;
    int rc = br_json_scan_value(&r->scan, &value);
    rc = rc ? rc : read_message(r, desc, &value, &root, ret_len);
    rc = rc ? rc : br_json_scan_end(&r->scan);
    if (rc == 0 && *ret_len + r->notes.buf->len > r->room)
        rc = too_dense(r, &root);
    return rc;
}

/* What does not fit the schema may be no JSON further on, which is the worse error. */
static int explain(struct reader *r)
{
    struct br_json_token value;
    struct br_err err = {0};
    r->scan.err = &err;
    br_json_scan_rewind(&r->scan);
    int rc = br_json_scan_value(&r->scan, &value);
    rc = rc ? rc : br_json_scan_skip(&r->scan, &value);
    rc = rc ? rc : br_json_scan_end(&r->scan);
    if (rc != 0 && r->err)
        *r->err = err;
    return BR_EINVAL;
}

int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err)
{
    struct reader r = {.max = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    struct br_buf *out = NULL;
    size_t out_len = 0;
    r.max_depth = max_depth < BR_JSON_DEPTH_MAX ? max_depth : BR_JSON_DEPTH_MAX;
    int rc = br_json_scan_init(&r.scan, text, len, r.max_depth * 2, err);
    if (rc != 0)
        return rc;
    /* The pool's sizes are up to a quarter larger: 2 * len + 640 KiB. */
    r.room = len / 5 * 8 + SPARE;
    r.notes.max = len / 10 * 9 + SPARE / 2;
    r.notes.buf = br_buf_new(pool, len / 3); /* SDKs' texts take a quarter */
    if (!r.notes.buf)
        return br_err_set(err, BR_ENOMEM, "no memory for a message");
    rc = read_all(&r, desc, &out_len);
    if (rc == BR_EINVAL && r.misfit)
        rc = explain(&r);
    if (rc == 0) {
        out = br_buf_new(pool, out_len);
        rc = out ? 0 : br_err_set(err, BR_ENOMEM, "no memory for a message");
    }
    if (rc == 0) {
        br_json_notes_write(&r.notes, desc, text, out->data, out_len);
        out->len = (uint32_t)out_len;
        *ret = out;
    }
    br_buf_unref(r.notes.buf);
    return rc;
}
