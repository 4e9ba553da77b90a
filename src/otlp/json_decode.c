/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "otlp/json.h"
#include "otlp/json_names.h"
#include "otlp/json_number.h"
#include "otlp/json_text.h"
#include "wire/protobuf.h"

#define COST_PER_BYTE 32u /* memory of the tree for a byte of `max` */
#define COST_BASE (64u << 10)
#define DURATION_MAX_S 315576000000 /* google/protobuf/duration.proto: 10000 years */

/* Where we are, for the sentence of an error. */
struct place {
    const struct place *up;
    const ProtobufCFieldDescriptor *field;
    size_t index;
    bool indexed;
    unsigned depth; /* messages around it */
};

/* The result is written from its end to its start, so that every length is known when its turn comes:
 * one pass, nothing is moved twice. What is written stands at [at, cap). */
struct reader {
    struct br_json_text text;
    struct br_buf *buf;
    size_t at, max;
    unsigned max_depth;
    struct br_err *err;
};

static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const json_t *object, const struct place *place);

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
    struct br_str path = {.data = where, .cap = sizeof where, .max = sizeof where - 1,
                          .fixed = true};
    char text[160];
    where[0] = '\0';
    print_place(&path, p);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return br_err_set(r->err, code, "%s%s%s%s", where, path.failed ? "..." : "",
                      path.len ? ": " : "", text);
}

/* --- Writing backwards ---------------------------------------------------------------------- */

static size_t written(const struct reader *r)
{
    return r->buf->cap - r->at;
}

/* Room for `len` more bytes in front. */
static int reserve(struct reader *r, size_t len, const struct place *p)
{
    if (len <= r->at)
        return 0;
    size_t need = written(r) + len;
    size_t cap = (size_t)r->buf->cap * 2;
    struct br_buf *grown = br_buf_new(r->buf->pool, cap > need && cap <= BR_BUF_MAX ? cap : need);
    if (!grown)
        return fail(r, p, BR_ENOMEM, "no memory");
    size_t at = grown->cap - written(r);
    memcpy(grown->data + at, r->buf->data + r->at, written(r));
    br_buf_unref(r->buf);
    r->buf = grown;
    r->at = at;
    return 0;
}

static int put_bytes(struct reader *r, const void *data, size_t len, const struct place *p)
{
    if (len > r->max - written(r))
        return fail(r, p, BR_ETOOBIG, "the message is larger than %zu bytes", r->max);
    int rc = reserve(r, len, p);
    if (rc != 0)
        return rc;
    r->at -= len;
    if (len > 0)
        memcpy(r->buf->data + r->at, data, len);
    return 0;
}

static int put_varint(struct reader *r, uint64_t v, const struct place *p)
{
    uint8_t bytes[BR_VARINT_MAX];
    return put_bytes(r, bytes, (size_t)(br_put_varint(bytes, v) - bytes), p);
}

/* Length and tag in front of what was written since `mark`. */
static int put_head(struct reader *r, uint32_t number, size_t mark, const struct place *p)
{
    int rc = put_varint(r, written(r) - mark, p);
    return rc != 0 ? rc : put_varint(r, BR_TAG(number, BR_WIRE_LEN), p);
}

/* --- Scalars -------------------------------------------------------------------------------- */

/* The text of a number, or of a string that should be one; NULL where it is neither. */
static const char *number_text(const struct reader *r, const json_t *value, char plain[24])
{
    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return br_json_text_number(&r->text, json_integer_value(value));
        (void)snprintf(plain, 24, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return plain;
    }
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    return text && len > 0 && br_number_scan(text, len) == len ? text : NULL;
}

static int read_integer(struct reader *r, const json_t *value, int64_t min, uint64_t max,
                        const struct place *p, uint64_t *ret)
{
    bool negative = false;
    uint64_t v;
    char plain[24];
    if (json_is_integer(value) && json_integer_value(value) >= 0) {
        v = (uint64_t)json_integer_value(value);
    } else {
        const char *text = number_text(r, value, plain);
        if (!text)
            return fail(r, p, BR_EINVAL, "must be an integer");
        if (!br_number_integer(text, strlen(text), &negative, &v))
            return fail(r, p, BR_EINVAL, "must be an integer of at most 64 bits, got %.40s", text);
    }
    if (negative ? v > (uint64_t)0 - (uint64_t)min : v > max)
        return fail(r, p, BR_EINVAL, "must be from %" PRId64 " to %" PRIu64 ", got %s%" PRIu64, min,
                    max, negative ? "-" : "", v);
    *ret = negative ? (uint64_t)0 - v : v;
    return 0;
}

static int read_double(struct reader *r, const json_t *value, const struct place *p, uint64_t *ret)
{
    char plain[24];
    double d;
    const char *text = json_string_value(value);
    if (text && !strcmp(text, "NaN")) {
        d = __builtin_nan("");
    } else if (text && (!strcmp(text, "Infinity") || !strcmp(text, "-Infinity"))) {
        d = text[0] == '-' ? -__builtin_inf() : __builtin_inf();
    } else {
        text = number_text(r, value, plain);
        if (!text)
            return fail(r, p, BR_EINVAL, "must be a number, \"NaN\", \"Infinity\" or \"-Infinity\"");
        if (!br_number_double(text, &d))
            return fail(r, p, BR_EINVAL, "must fit in a double, got %.40s", text);
    }
    memcpy(ret, &d, sizeof d);
    return 0;
}

static int read_enum(struct reader *r, const ProtobufCEnumDescriptor *desc, const json_t *value,
                     const struct place *p, uint64_t *ret)
{
    if (!json_is_string(value))
        return read_integer(r, value, INT32_MIN, INT32_MAX, p, ret);
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value_by_name(desc, json_string_value(value));
    if (!v || strlen(json_string_value(value)) != json_string_length(value))
        return fail(r, p, BR_EINVAL, "%.40s is no %s", json_string_value(value), desc->short_name);
    *ret = (uint64_t)(int64_t)v->value;
    return 0;
}

static int read_scalar(struct reader *r, const ProtobufCFieldDescriptor *field, const json_t *value,
                       const struct place *p, uint64_t *ret)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (!json_is_boolean(value))
            return fail(r, p, BR_EINVAL, "must be true or false");
        *ret = json_is_true(value);
        return 0;
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

static int put_scalar(struct reader *r, enum br_wire wire, uint64_t bits, const struct place *p)
{
    switch (wire) {
    case BR_WIRE_I64:
        return put_bytes(r, &bits, 8, p);
    case BR_WIRE_I32:
        return put_bytes(r, &bits, 4, p);
    default:
        return put_varint(r, bits, p);
    }
}

/* --- Bytes ---------------------------------------------------------------------------------- */

static int put_id(struct reader *r, size_t size, const json_t *value, const struct place *p)
{
    uint8_t id[16];
    size_t len = json_string_length(value);
    if (len == 0)
        return 0;
    if (len != size * 2)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits, got %zu", size * 2, len);
    if (br_hex_decode(json_string_value(value), len, id, sizeof id) < 0)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits", size * 2);
    return put_bytes(r, id, size, p);
}

static int put_base64(struct reader *r, const json_t *value, const struct place *p)
{
    size_t len = json_string_length(value);
    size_t room = len / 4 * 3 + 3;
    int rc = reserve(r, room, p);
    if (rc != 0)
        return rc;
    uint8_t *start = r->buf->data + r->at - room;
    long n = br_base64_decode(json_string_value(value), len, start);
    if (n < 0)
        return fail(r, p, BR_EINVAL, "must be base64");
    if ((size_t)n > r->max - written(r))
        return fail(r, p, BR_ETOOBIG, "the message is larger than %zu bytes", r->max);
    r->at -= (size_t)n;
    memmove(r->buf->data + r->at, start, (size_t)n);
    return 0;
}

static int put_text(struct reader *r, const ProtobufCFieldDescriptor *field, const json_t *value,
                    const struct place *p)
{
    if (!json_is_string(value))
        return fail(r, p, BR_EINVAL, "must be a string");
    if (field->type == PROTOBUF_C_TYPE_STRING)
        return put_bytes(r, json_string_value(value), json_string_length(value), p);
    size_t id_size = br_json_id_size(field);
    return id_size ? put_id(r, id_size, value, p) : put_base64(r, value, p);
}

/* --- Messages ------------------------------------------------------------------------------- */

/* google.protobuf.Duration is a string: seconds, up to nine digits after the point, "s". */
static int put_duration(struct reader *r, const json_t *value, const struct place *p)
{
    const char *text = json_string_value(value);
    int64_t seconds = 0, nanos = 0, unit = 1000000000;
    const char *at = text;
    if (!text)
        return fail(r, p, BR_EINVAL, "must be a string like \"1.5s\"");
    at += *at == '-';
    const char *first = at;
    for (; *at >= '0' && *at <= '9' && seconds <= DURATION_MAX_S; at++)
        seconds = seconds * 10 + (*at - '0');
    bool ok = at > first && seconds <= DURATION_MAX_S;
    if (*at == '.') {
        for (first = ++at; *at >= '0' && *at <= '9' && unit > 1; at++)
            nanos += (*at - '0') * (unit /= 10);
        ok = ok && at > first;
    }
    if (!ok || strcmp(at, "s") != 0)
        return fail(r, p, BR_EINVAL, "must be a string like \"1.5s\", got %.40s", text);
    if (*text == '-') {
        seconds = -seconds;
        nanos = -nanos;
    }
    int rc = 0;
    if (nanos != 0) {
        rc = put_varint(r, (uint64_t)nanos, p);
        rc = rc != 0 ? rc : put_varint(r, BR_TAG(2, BR_WIRE_VARINT), p);
    }
    if (rc == 0 && seconds != 0) {
        rc = put_varint(r, (uint64_t)seconds, p);
        rc = rc != 0 ? rc : put_varint(r, BR_TAG(1, BR_WIRE_VARINT), p);
    }
    return rc;
}

/* google.protobuf.Any has its message's own fields beside "@type". */
static int put_any(struct reader *r, const json_t *object, const struct place *p)
{
    const json_t *type = json_object_get(object, "@type");
    if (!json_is_string(type))
        return json_object_size(object) == 0 ? 0 : fail(r, p, BR_EINVAL, "must have an \"@type\"");
    const char *url = json_string_value(type);
    size_t len = json_string_length(type);
    const ProtobufCMessageDescriptor *desc = br_json_any(url, len);
    size_t mark = written(r);
    int rc = desc ? read_message(r, desc, object, p) : 0;
    if (rc == 0 && written(r) > mark)
        rc = put_head(r, 2, mark, p);
    mark = written(r);
    rc = rc != 0 ? rc : put_bytes(r, url, len, p);
    return rc != 0 ? rc : put_head(r, 1, mark, p);
}

/* One value with its tag. A zero is left out unless `keep_zero`: in a oneof or a list it means
 * something. */
static int put_value(struct reader *r, const ProtobufCFieldDescriptor *field, const json_t *value,
                     bool keep_zero, const struct place *p)
{
    enum br_wire wire = br_json_wire(field);
    size_t mark = written(r);
    int rc;
    if (wire == BR_WIRE_LEN) {
        bool message = field->type == PROTOBUF_C_TYPE_MESSAGE;
        rc = message ? read_message(r, field->descriptor, value, p) : put_text(r, field, value, p);
        if (rc != 0 || (written(r) == mark && !keep_zero && !message))
            return rc;
        return put_head(r, field->id, mark, p);
    }
    uint64_t bits;
    rc = read_scalar(r, field, value, p, &bits);
    if (rc != 0 || (bits == 0 && !keep_zero))
        return rc;
    rc = put_scalar(r, wire, bits, p);
    return rc != 0 ? rc : put_varint(r, BR_TAG(field->id, wire), p);
}

static int put_list(struct reader *r, const ProtobufCFieldDescriptor *field, const json_t *list,
                    struct place *p)
{
    if (!json_is_array(list))
        return fail(r, p, BR_EINVAL, "must be an array");
    enum br_wire wire = br_json_wire(field);
    size_t mark = written(r);
    int rc = 0;
    p->indexed = true;
    for (size_t i = json_array_size(list); rc == 0 && i-- > 0;) {
        const json_t *value = json_array_get(list, i);
        uint64_t bits;
        p->index = i;
        if (wire == BR_WIRE_LEN) {
            rc = put_value(r, field, value, true, p);
            continue;
        }
        rc = read_scalar(r, field, value, p, &bits);
        rc = rc != 0 ? rc : put_scalar(r, wire, bits, p);
    }
    if (rc != 0 || wire == BR_WIRE_LEN || written(r) == mark)
        return rc;
    return put_head(r, field->id, mark, p);
}

static const json_t *get(const json_t *object, const ProtobufCFieldDescriptor *field)
{
    char name[BR_JSON_NAME_MAX];
    const json_t *value = json_object_get(object, br_json_name(field, name));
    return json_is_null(value) ? NULL : value;
}

/* The other member of the field's oneof that is there too, or NULL. */
static const ProtobufCFieldDescriptor *rival(const ProtobufCMessageDescriptor *desc,
                                             const ProtobufCFieldDescriptor *field,
                                             const json_t *object)
{
    for (const ProtobufCFieldDescriptor *f = desc->fields; f < field; f++) {
        if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            f->quantifier_offset == field->quantifier_offset && get(object, f))
            return f;
    }
    return NULL;
}

static int read_field(struct reader *r, const ProtobufCMessageDescriptor *desc,
                      const ProtobufCFieldDescriptor *field, const json_t *object,
                      const struct place *up)
{
    struct place p = {.up = up, .field = field, .depth = up->depth + 1};
    const json_t *value = get(object, field);
    if (!value)
        return 0;
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return put_list(r, field, value, &p);
    bool oneof = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    const ProtobufCFieldDescriptor *other = oneof ? rival(desc, field, object) : NULL;
    if (other) {
        char name[BR_JSON_NAME_MAX];
        return fail(r, &p, BR_EINVAL, "only one of this and %s may be given",
                    br_json_name(other, name));
    }
    return put_value(r, field, value, oneof, &p);
}

static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const json_t *object, const struct place *place)
{
    if (place->depth >= r->max_depth)
        return fail(r, place, BR_ETOOBIG, "nests deeper than %u messages", r->max_depth);
    if (desc == &google__protobuf__duration__descriptor)
        return put_duration(r, object, place);
    if (!json_is_object(object))
        return fail(r, place, BR_EINVAL, "must be an object");
    if (desc == &google__protobuf__any__descriptor)
        return put_any(r, object, place);
    int rc = 0;
    for (unsigned i = desc->n_fields; rc == 0 && i-- > 0;)
        rc = read_field(r, desc, &desc->fields[i], object, place);
    return rc;
}

int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err)
{
    struct reader r = {.max = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    struct place root = {0};
    r.max_depth = max_depth < BR_JSON_DEPTH_MAX ? max_depth : BR_JSON_DEPTH_MAX;
    int rc = br_json_text_parse(&r.text, text, len, r.max * COST_PER_BYTE + COST_BASE,
                                r.max_depth * 2, err);
    if (rc != 0)
        return rc;
    r.buf = br_buf_new(pool, len < r.max ? len : r.max);
    if (r.buf) {
        r.at = r.buf->cap;
        rc = read_message(&r, desc, r.text.root, &root);
    } else {
        rc = br_err_set(err, BR_ENOMEM, "no memory for a message");
    }
    br_json_text_release(&r.text);
    if (rc != 0) {
        br_buf_unref(r.buf);
        return rc;
    }
    r.buf->len = (uint32_t)written(&r);
    memmove(r.buf->data, r.buf->data + r.at, r.buf->len);
    *ret = r.buf;
    return 0;
}
