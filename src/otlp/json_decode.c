/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "otlp/json.h"
#include "otlp/json_names.h"
#include "otlp/json_number.h"
#include "otlp/json_tree.h"
#include "wire/protobuf.h"

#define SCALAR_MAX 512u /* bytes of an escaped string that can still be a scalar or an id */
#define DURATION_MAX_S 315576000000 /* google/protobuf/duration.proto: 10000 years */

/* Where we are, for the sentence of an error. */
struct place {
    const struct place *up;
    const ProtobufCFieldDescriptor *field;
    size_t index;
    bool indexed;
    unsigned depth; /* messages around it */
};

/* The result is written from its end to its start, so that every length is known when its turn
 * comes: one pass, nothing is moved twice. What is written stands at [at, cap). */
struct reader {
    struct br_json_tree tree;
    struct br_buf *buf;
    size_t at, max;
    unsigned max_depth;
    struct br_err *err;
};

static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct br_json_node *value, const struct place *place);

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

/* The bytes of a short string or of a number. Not terminated, but followed by a byte that continues
 * no number: a quote, a bracket, a comma, white space. NULL where the value is neither, or too long
 * to be anything. */
static const char *short_text(const struct reader *r, const struct br_json_node *value,
                              char plain[SCALAR_MAX + 1], size_t *ret_len)
{
    if (value->type != BR_JSON_STRING && value->type != BR_JSON_NUMBER)
        return NULL;
    *ret_len = value->len;
    if (!value->escaped)
        return r->tree.text + value->at;
    if (value->len > SCALAR_MAX)
        return NULL;
    *ret_len = br_json_unescape(&r->tree, value, plain);
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

static int read_integer(struct reader *r, const struct br_json_node *value, int64_t min,
                        uint64_t max, const struct place *p, uint64_t *ret)
{
    bool negative;
    uint64_t v;
    size_t len = 0;
    char plain[SCALAR_MAX + 1];
    const char *text = short_text(r, value, plain, &len);
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

static int read_double(struct reader *r, const struct br_json_node *value, const struct place *p,
                       uint64_t *ret)
{
    char plain[SCALAR_MAX + 1];
    double d;
    size_t len = 0;
    const char *text = short_text(r, value, plain, &len);
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

static int read_enum(struct reader *r, const ProtobufCEnumDescriptor *desc,
                     const struct br_json_node *value, const struct place *p, uint64_t *ret)
{
    if (value->type != BR_JSON_STRING)
        return read_integer(r, value, INT32_MIN, INT32_MAX, p, ret);
    for (unsigned i = 0; i < desc->n_values; i++) {
        if (br_json_string_is(&r->tree, value, desc->values[i].name)) {
            *ret = (uint64_t)(int64_t)desc->values[i].value;
            return 0;
        }
    }
    const char *text = r->tree.text + value->at;
    return fail(r, p, BR_EINVAL, "%.*s is no %s", shown(text, value->len), text, desc->short_name);
}

static int read_bool(struct reader *r, const struct br_json_node *value, const struct place *p,
                     uint64_t *ret)
{
    if (value->type != BR_JSON_TRUE && value->type != BR_JSON_FALSE)
        return fail(r, p, BR_EINVAL, "must be true or false");
    *ret = value->type == BR_JSON_TRUE;
    return 0;
}

static int read_scalar(struct reader *r, const ProtobufCFieldDescriptor *field,
                       const struct br_json_node *value, const struct place *p, uint64_t *ret)
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

/* --- Strings and bytes ---------------------------------------------------------------------- */

static int put_id(struct reader *r, size_t size, const struct br_json_node *value,
                  const struct place *p)
{
    uint8_t id[16];
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = short_text(r, value, plain, &len);
    if (text && len == 0)
        return 0;
    if (!text || len != size * 2)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits, got %" PRIu32, size * 2, value->len);
    if (br_hex_decode(text, len, id, sizeof id) < 0)
        return fail(r, p, BR_EINVAL, "must be %zu hex digits", size * 2);
    return put_bytes(r, id, size, p);
}

/* Makes the `len` bytes at `start`, somewhere in the free room, the next ones written. */
static int take(struct reader *r, const uint8_t *start, size_t len, const struct place *p)
{
    if (len > r->max - written(r))
        return fail(r, p, BR_ETOOBIG, "the message is larger than %zu bytes", r->max);
    r->at -= len;
    memmove(r->buf->data + r->at, start, len);
    return 0;
}

static int put_escaped(struct reader *r, const struct br_json_node *value, const struct place *p)
{
    int rc = reserve(r, value->len, p);
    if (rc != 0)
        return rc;
    uint8_t *start = r->buf->data + r->at - value->len;
    return take(r, start, br_json_unescape(&r->tree, value, (char *)start), p);
}

static int put_base64(struct reader *r, const struct br_json_node *value, const struct place *p)
{
    size_t len = value->len;
    size_t room = len + 3;
    int rc = reserve(r, room, p);
    if (rc != 0)
        return rc;
    uint8_t *start = r->buf->data + r->at - room;
    const char *text = r->tree.text + value->at;
    if (value->escaped) { /* some write "\/"; decoding can work in place */
        len = br_json_unescape(&r->tree, value, (char *)start);
        text = (const char *)start;
    }
    long n = br_base64_decode(text, len, start);
    if (n < 0)
        return fail(r, p, BR_EINVAL, "must be base64");
    return take(r, start, (size_t)n, p);
}

static int put_text(struct reader *r, const ProtobufCFieldDescriptor *field,
                    const struct br_json_node *value, const struct place *p)
{
    if (value->type != BR_JSON_STRING)
        return fail(r, p, BR_EINVAL, "must be a string");
    size_t id_size = br_json_id_size(field);
    if (id_size)
        return put_id(r, id_size, value, p);
    if (field->type == PROTOBUF_C_TYPE_BYTES)
        return put_base64(r, value, p);
    return value->escaped ? put_escaped(r, value, p)
                          : put_bytes(r, r->tree.text + value->at, value->len, p);
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

static int put_varint_field(struct reader *r, uint32_t number, int64_t v, const struct place *p)
{
    if (v == 0)
        return 0;
    int rc = put_varint(r, (uint64_t)v, p);
    return rc != 0 ? rc : put_varint(r, BR_TAG(number, BR_WIRE_VARINT), p);
}

/* google.protobuf.Duration is a string. */
static int put_duration(struct reader *r, const struct br_json_node *value, const struct place *p)
{
    int64_t seconds, nanos;
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    const char *text = value->type == BR_JSON_STRING ? short_text(r, value, plain, &len) : NULL;
    if (!text || !parse_duration(text, len, &seconds, &nanos))
        return fail(r, p, BR_EINVAL, "must be a string like \"1.5s\"");
    int rc = put_varint_field(r, 2, nanos, p);
    return rc != 0 ? rc : put_varint_field(r, 1, seconds, p);
}

/* The last member of that name, or NULL. */
static const struct br_json_node *member(const struct reader *r, const struct br_json_node *object,
                                         const char *name)
{
    const struct br_json_node *nodes = r->tree.nodes;
    for (uint32_t value = object->at; value != 0; value = nodes[nodes[value].prev].prev) {
        if (br_json_string_is(&r->tree, &nodes[nodes[value].prev], name))
            return &nodes[value];
    }
    return NULL;
}

/* google.protobuf.Any has its message's own fields beside "@type". */
static int put_any(struct reader *r, const struct br_json_node *object, const struct place *p)
{
    const struct br_json_node *type = member(r, object, "@type");
    char plain[SCALAR_MAX + 1];
    size_t len = 0;
    if (!type && object->len == 0)
        return 0;
    const char *url =
        type && type->type == BR_JSON_STRING ? short_text(r, type, plain, &len) : NULL;
    if (!url)
        return fail(r, p, BR_EINVAL, "must have an \"@type\"");
    const ProtobufCMessageDescriptor *desc = br_json_any(url, len);
    size_t mark = written(r);
    int rc = desc ? read_message(r, desc, object, p) : 0;
    if (rc == 0 && written(r) > mark)
        rc = put_head(r, 2, mark, p);
    mark = written(r);
    rc = rc != 0 ? rc : put_bytes(r, url, len, p);
    return rc != 0 ? rc : put_head(r, 1, mark, p);
}

/* --- Messages ------------------------------------------------------------------------------- */

/* One value with its tag. A zero is left out unless `keep_zero`: in a oneof or a list it means
 * something. */
static int put_value(struct reader *r, const ProtobufCFieldDescriptor *field,
                     const struct br_json_node *value, bool keep_zero, const struct place *p)
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

static int put_list(struct reader *r, const ProtobufCFieldDescriptor *field,
                    const struct br_json_node *list, struct place *p)
{
    if (list->type != BR_JSON_ARRAY)
        return fail(r, p, BR_EINVAL, "must be an array");
    enum br_wire wire = br_json_wire(field);
    size_t mark = written(r);
    p->indexed = true;
    p->index = list->len;
    for (uint32_t i = list->at; i != 0; i = r->tree.nodes[i].prev) {
        const struct br_json_node *value = &r->tree.nodes[i];
        uint64_t bits;
        int rc;
        p->index--;
        if (wire == BR_WIRE_LEN) {
            rc = put_value(r, field, value, true, p);
        } else {
            rc = read_scalar(r, field, value, p, &bits);
            rc = rc != 0 ? rc : put_scalar(r, wire, bits, p);
        }
        if (rc != 0)
            return rc;
    }
    return wire == BR_WIRE_LEN || written(r) == mark ? 0 : put_head(r, field->id, mark, p);
}

/* Where the value of each field is, NULL: nowhere. Of a name that comes twice the last counts. */
static void find_fields(const struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct br_json_node *object,
                        const struct br_json_node *values[BR_JSON_FIELDS_MAX])
{
    const struct br_json_node *nodes = r->tree.nodes;
    char names[BR_JSON_FIELDS_MAX][BR_JSON_NAME_MAX];
    bool original = br_json_original_names(desc);
    assert(desc->n_fields <= BR_JSON_FIELDS_MAX);
    for (unsigned i = 0; i < desc->n_fields; i++) {
        values[i] = NULL;
        (void)br_json_name(&desc->fields[i], names[i]);
    }
    for (uint32_t at = object->at; at != 0; at = nodes[nodes[at].prev].prev) {
        const struct br_json_node *key = &nodes[nodes[at].prev];
        for (unsigned i = 0; i < desc->n_fields; i++) {
            if (br_json_string_is(&r->tree, key, names[i]) ||
                (original && br_json_string_is(&r->tree, key, desc->fields[i].name))) {
                values[i] = values[i] ? values[i] : &nodes[at];
                break;
            }
        }
    }
    for (unsigned i = 0; i < desc->n_fields; i++) {
        if (values[i] && values[i]->type == BR_JSON_NULL)
            values[i] = NULL;
    }
}

/* The other member of field `i`'s oneof that is there too, or NULL. */
static const ProtobufCFieldDescriptor *rival(const ProtobufCMessageDescriptor *desc, unsigned i,
                                             const struct br_json_node *const *values)
{
    const ProtobufCFieldDescriptor *fields = desc->fields;
    for (unsigned j = 0; j < i; j++) {
        if (values[j] && (fields[j].flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
            fields[j].quantifier_offset == fields[i].quantifier_offset)
            return &fields[j];
    }
    return NULL;
}

static int read_field(struct reader *r, const ProtobufCMessageDescriptor *desc, unsigned i,
                      const struct br_json_node *const *values, const struct place *up)
{
    const ProtobufCFieldDescriptor *field = &desc->fields[i];
    struct place p = {.up = up, .field = field, .depth = up->depth + 1};
    if (field->label == PROTOBUF_C_LABEL_REPEATED)
        return put_list(r, field, values[i], &p);
    bool oneof = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    const ProtobufCFieldDescriptor *other = oneof ? rival(desc, i, values) : NULL;
    if (other) {
        char name[BR_JSON_NAME_MAX];
        return fail(r, &p, BR_EINVAL, "only one of this and %s may be given",
                    br_json_name(other, name));
    }
    return put_value(r, field, values[i], oneof, &p);
}

static int read_message(struct reader *r, const ProtobufCMessageDescriptor *desc,
                        const struct br_json_node *value, const struct place *place)
{
    const struct br_json_node *values[BR_JSON_FIELDS_MAX];
    if (place->depth >= r->max_depth)
        return fail(r, place, BR_EINVAL, "nests deeper than %u messages", r->max_depth);
    if (desc == &google__protobuf__duration__descriptor)
        return put_duration(r, value, place);
    if (value->type != BR_JSON_OBJECT)
        return fail(r, place, BR_EINVAL, "must be an object");
    if (desc == &google__protobuf__any__descriptor)
        return put_any(r, value, place);
    find_fields(r, desc, value, values);
    int rc = 0;
    for (unsigned i = desc->n_fields; rc == 0 && i-- > 0;) {
        if (values[i])
            rc = read_field(r, desc, i, values, place);
    }
    return rc;
}

int br_json_decode(const ProtobufCMessageDescriptor *desc, const char *text, size_t len,
                   unsigned max_depth, size_t max, struct br_pool *pool, struct br_buf **ret,
                   struct br_err *err)
{
    struct reader r = {.max = max < BR_BUF_MAX ? max : BR_BUF_MAX, .err = err};
    struct place root = {0};
    r.max_depth = max_depth < BR_JSON_DEPTH_MAX ? max_depth : BR_JSON_DEPTH_MAX;
    int rc = br_json_parse(&r.tree, text, len, r.max_depth * 2, 0, err);
    if (rc != 0)
        return rc;
    r.buf = br_buf_new(pool, len < r.max ? len : r.max);
    if (r.buf) {
        r.at = r.buf->cap;
        rc = read_message(&r, desc, &r.tree.nodes[0], &root);
    } else {
        rc = br_err_set(err, BR_ENOMEM, "no memory for a message");
    }
    br_json_tree_release(&r.tree);
    if (rc != 0) {
        br_buf_unref(r.buf);
        return rc;
    }
    r.buf->len = (uint32_t)written(&r);
    memmove(r.buf->data, r.buf->data + r.at, r.buf->len);
    *ret = r.buf;
    return 0;
}
