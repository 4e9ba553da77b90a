/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "google/protobuf/any.pb-c.h"
#include "google/protobuf/duration.pb-c.h"
#include "otlp/json/json.h"
#include "otlp/json/internal.h"
#include "otlp/json/number.h"
#include "wire/protobuf.h"

struct piece {
    const uint8_t *data;
    size_t len;
};

/* The bytes of an encoded message. Usually the bytes are one piece. If a field that is not
 * repeated occurs several times, the message consists of the pieces of all occurrences, which
 * protobuf merges. */
struct body {
    const struct piece *pieces;
    uint32_t count;
    bool standard; /* true: standard ProtoJSON is written, without the exceptions of OTLP */
};

struct cursor {
    const struct body *body;
    const uint8_t *p, *end;
    uint32_t next;
    uint32_t n_seen; /* number of fields of the body read so far */
};

struct found {
    uint32_t mask; /* bit i is set if desc->fields[i] is present */
    /* for members of a oneof: number (from 1) of the body's first field that counts for the
     * member */
    uint32_t since[BR_JSON_FIELDS_MAX];
};

static int encode_print_message(const ProtobufCMessageDescriptor *desc, const struct body *body,
                                unsigned depth, struct br_str *out);

/* --- Reading -------------------------------------------------------------------------------- */

/* Reads the next field of the body into `*ret`. Returns 1 if a field was read, 0 at the end of
 * the body, or BR_EINVAL if the bytes are malformed. */
static int encode_next_field(struct cursor *cursor, struct br_field *ret)
{
    while (cursor->p == cursor->end) {
        if (cursor->next == cursor->body->count)
            return 0;
        const struct piece *piece = &cursor->body->pieces[cursor->next++];
        cursor->p = piece->data;
        cursor->end = piece->data + piece->len;
    }
    cursor->p = br_field_next(cursor->p, cursor->end, ret);
    cursor->n_seen++;
    return cursor->p ? 1 : BR_EINVAL;
}

/* Returns true if `element` is an occurrence of `field`: it has the field's number and wire
 * type, or is a packed list of a repeated field. An element with another wire type is an unknown
 * field. */
static bool encode_fits(const ProtobufCFieldDescriptor *field, const struct br_field *element)
{
    return element->number == field->id &&
           (element->wire == br_json_wire(field) ||
            (element->wire == BR_WIRE_LEN && field->label == PROTOBUF_C_LABEL_REPEATED));
}

/* Records that a field is present. If the field belongs to a oneof, discards the oneof's other
 * members. Earlier occurrences of the field do not count if another member followed them. */
static void encode_note(const ProtobufCMessageDescriptor *desc, unsigned index, uint32_t n_seen,
                        struct found *found)
{
    const ProtobufCFieldDescriptor *field = &desc->fields[index];
    if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
        for (unsigned j = 0; j < desc->n_fields; j++) {
            if (j != index && (desc->fields[j].flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
                desc->fields[j].quantifier_offset == field->quantifier_offset)
                found->mask &= ~((uint32_t)1 << j);
        }
        if (!(found->mask >> index & 1))
            found->since[index] = n_seen;
    }
    found->mask |= (uint32_t)1 << index;
}

static int encode_find(const ProtobufCMessageDescriptor *desc, const struct body *body,
                       struct found *found)
{
    struct cursor cursor = {.body = body};
    struct br_field element;
    int rc;
    *found = (struct found){0};
    assert(desc->n_fields <= BR_JSON_FIELDS_MAX);
    while ((rc = encode_next_field(&cursor, &element)) > 0) {
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(desc, element.number);
        if (field && encode_fits(field, &element))
            encode_note(desc, (unsigned)(field - desc->fields), cursor.n_seen, found);
    }
    return rc;
}

/* --- Scalars -------------------------------------------------------------------------------- */

/* Prints the name of an enum value. Returns false if the value has no name. */
static bool encode_print_enum(const ProtobufCFieldDescriptor *field, uint64_t bits,
                              struct br_str *out)
{
    if (field->type != PROTOBUF_C_TYPE_ENUM)
        return false;
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(field->descriptor, (int)(uint32_t)bits);
    if (value)
        br_str_printf(out, "\"%s\"", value->name);
    return value != NULL;
}

static void encode_print_scalar(const ProtobufCFieldDescriptor *field, uint64_t bits, bool standard,
                                struct br_str *out)
{
    double d;
    if (standard && encode_print_enum(field, bits, out))
        return;
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        br_str_puts(out, bits ? "true" : "false");
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        br_str_printf(out, "%" PRId32, (int32_t)(uint32_t)bits);
        break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:
        br_str_printf(out, "%" PRIu32, (uint32_t)bits);
        break;
    case PROTOBUF_C_TYPE_INT64:
        br_str_printf(out, "\"%" PRId64 "\"", (int64_t)bits);
        break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(&d, &bits, sizeof d);
        br_number_print(out, d);
        break;
    default:
        br_str_printf(out, "\"%" PRIu64 "\"", bits);
        break;
    }
}

/* Truncates the value of a varint to the bits that the field's type keeps. */
static uint64_t encode_narrow(const ProtobufCFieldDescriptor *field, uint64_t bits)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        return bits != 0;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_UINT32:
        return (uint32_t)bits;
    default:
        return bits;
    }
}

static void encode_print_text(const ProtobufCFieldDescriptor *field, const struct br_field *element,
                              bool standard, struct br_str *out)
{
    size_t len = (size_t)element->value;
    if (field->type == PROTOBUF_C_TYPE_STRING) {
        br_str_json(out, (const char *)element->data, len);
        return;
    }
    br_str_putc(out, '"');
    if (!standard && br_json_id_size(field))
        br_str_hex(out, element->data, len);
    else
        br_str_base64(out, element->data, len);
    br_str_putc(out, '"');
}

static void encode_print_name(const ProtobufCFieldDescriptor *field, bool *first,
                              struct br_str *out)
{
    char name[BR_JSON_NAME_MAX];
    br_str_printf(out, "%s\"%s\":", *first ? "" : ",", br_json_name(field, name));
    *first = false;
}

/* --- Lists ---------------------------------------------------------------------------------- */

struct list {
    const ProtobufCFieldDescriptor *field;
    struct br_str *out;
    bool *first_field;
    bool open, standard;
};

/* Separates the elements of a list by commas. Opens the list before its first element, because a
 * packed field without elements is omitted. */
static void encode_next_element(struct list *list)
{
    if (list->open) {
        br_str_putc(list->out, ',');
        return;
    }
    encode_print_name(list->field, list->first_field, list->out);
    br_str_putc(list->out, '[');
    list->open = true;
}

static int encode_print_packed(struct list *list, const uint8_t *p, size_t len)
{
    const uint8_t *end = br_mem_end(p, len);
    enum br_wire wire = br_json_wire(list->field);
    size_t size = wire == BR_WIRE_I64 ? 8 : 4;
    while (p < end) {
        uint64_t bits = 0;
        if (wire == BR_WIRE_VARINT) {
            p = br_varint(p, end, &bits);
            if (!p)
                return BR_EINVAL;
        } else {
            if ((size_t)(end - p) < size)
                return BR_EINVAL;
            memcpy(&bits, p, size);
            p += size;
        }
        encode_next_element(list);
        encode_print_scalar(list->field, bits, list->standard, list->out);
    }
    return 0;
}

static int encode_print_element(struct list *list, const struct br_field *field, unsigned depth)
{
    if (br_json_wire(list->field) != BR_WIRE_LEN) {
        if (field->wire == BR_WIRE_LEN)
            return encode_print_packed(list, field->data, (size_t)field->value);
        encode_next_element(list);
        encode_print_scalar(list->field, field->value, list->standard, list->out);
        return 0;
    }
    encode_next_element(list);
    if (list->field->type != PROTOBUF_C_TYPE_MESSAGE) {
        encode_print_text(list->field, field, list->standard, list->out);
        return 0;
    }
    struct piece piece = {field->data, (size_t)field->value};
    struct body body = {&piece, 1, list->standard};
    return encode_print_message(list->field->descriptor, &body, depth + 1, list->out);
}

static int encode_print_list(const ProtobufCFieldDescriptor *field, const struct body *body,
                             unsigned depth, bool *first, struct br_str *out)
{
    struct list list = {field, out, first, false, body->standard};
    struct cursor cursor = {.body = body};
    struct br_field element;
    int rc;
    while ((rc = encode_next_field(&cursor, &element)) > 0) {
        if (encode_fits(field, &element) &&
            (rc = encode_print_element(&list, &element, depth)) != 0)
            break;
    }
    if (list.open)
        br_str_putc(out, ']');
    return rc;
}

/* --- Single fields -------------------------------------------------------------------------- */

/* Counts the occurrences of a field in a body, without the fields of the body before number `since`
 * (from 1). Stores the last occurrence in `*ret_last`, and all of them in `pieces` unless `pieces`
 * is NULL. */
static uint32_t encode_gather(const ProtobufCFieldDescriptor *field, const struct body *body,
                              uint32_t since, struct piece *pieces, struct br_field *ret_last)
{
    struct cursor cursor = {.body = body};
    struct br_field element;
    uint32_t n = 0;
    while (encode_next_field(&cursor, &element) > 0) {
        if (cursor.n_seen < since || !encode_fits(field, &element))
            continue;
        if (pieces)
            pieces[n] = (struct piece){element.data, (size_t)element.value};
        *ret_last = element;
        n++;
    }
    return n;
}

static int encode_print_single_message(const ProtobufCFieldDescriptor *field,
                                       const struct body *body, uint32_t since, unsigned depth,
                                       struct br_str *out)
{
    struct br_field last = {0};
    uint32_t n = encode_gather(field, body, since, NULL, &last);
    struct piece one = {last.data, (size_t)last.value};
    if (n == 1) {
        struct body inner = {&one, 1, body->standard};
        return encode_print_message(field->descriptor, &inner, depth + 1, out);
    }
    struct piece *pieces = br_calloc(n, sizeof *pieces);
    if (!pieces)
        return BR_ENOMEM;
    struct body inner = {pieces, encode_gather(field, body, since, pieces, &last), body->standard};
    int rc = encode_print_message(field->descriptor, &inner, depth + 1, out);
    br_free(pieces);
    return rc;
}

static int encode_print_single(const ProtobufCFieldDescriptor *field, const struct body *body,
                               uint32_t since, unsigned depth, bool *first, struct br_str *out)
{
    bool keep_zero = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        encode_print_name(field, first, out);
        return encode_print_single_message(field, body, since, depth, out);
    }
    struct br_field last = {0};
    (void)encode_gather(field, body, since, NULL, &last);
    if (br_json_wire(field) == BR_WIRE_LEN) {
        if (last.value > 0 || keep_zero) {
            encode_print_name(field, first, out);
            encode_print_text(field, &last, body->standard, out);
        }
    } else if (encode_narrow(field, last.value) != 0 || keep_zero) {
        encode_print_name(field, first, out);
        encode_print_scalar(field, last.value, body->standard, out);
    }
    return 0;
}

/* --- Messages ------------------------------------------------------------------------------- */

/* Prints a google.protobuf.Duration. */
static void encode_print_duration(const struct body *body, struct br_str *out)
{
    enum { SECONDS = 1, NANOS = 2 };
    struct cursor cursor = {.body = body};
    struct br_field field;
    int64_t seconds = 0;
    int32_t nanos = 0;
    while (encode_next_field(&cursor, &field) > 0) {
        if (field.wire == BR_WIRE_VARINT && field.number == SECONDS)
            seconds = (int64_t)field.value;
        else if (field.wire == BR_WIRE_VARINT && field.number == NANOS)
            nanos = (int32_t)(uint32_t)field.value;
    }
    uint64_t whole = seconds < 0 ? (uint64_t)0 - (uint64_t)seconds : (uint64_t)seconds;
    uint32_t part = nanos < 0 ? (uint32_t)0 - (uint32_t)nanos : (uint32_t)nanos;
    br_str_printf(out, "\"%s%" PRIu64, seconds < 0 || nanos < 0 ? "-" : "", whole);
    if (part % 1000000 == 0 && part != 0)
        br_str_printf(out, ".%03" PRIu32, part / 1000000);
    else if (part != 0)
        br_str_printf(out, ".%09" PRIu32, part);
    br_str_puts(out, "s\"");
}

static int encode_print_fields(const ProtobufCMessageDescriptor *desc, const struct body *body,
                               unsigned depth, bool *first, struct br_str *out)
{
    struct found found;
    if (depth > BR_JSON_DEPTH_MAX)
        return BR_ETOOBIG;
    int rc = encode_find(desc, body, &found);
    for (unsigned i = 0; rc == 0 && i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &desc->fields[i];
        if (!(found.mask >> i & 1))
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            rc = encode_print_list(field, body, depth, first, out);
        else
            rc = encode_print_single(field, body, found.since[i], depth, first, out);
    }
    return rc;
}

/* Prints a google.protobuf.Any. If the type of the inner message is unknown, only "@type" is
 * printed. */
static int encode_print_any(const struct body *body, unsigned depth, bool *first,
                            struct br_str *out)
{
    const ProtobufCFieldDescriptor *fields = google__protobuf__any__descriptor.fields;
    struct br_field url = {0}, value = {0};
    (void)encode_gather(&fields[1], body, 0, NULL, &value);
    if (encode_gather(&fields[0], body, 0, NULL, &url) == 0)
        return 0;
    br_str_puts(out, "\"@type\":");
    br_str_json(out, (const char *)url.data, (size_t)url.value);
    *first = false;
    const ProtobufCMessageDescriptor *desc = br_json_any((const char *)url.data, (size_t)url.value);
    if (!desc)
        return 0;
    struct piece piece = {value.data, (size_t)value.value};
    struct body inner = {&piece, value.data ? 1 : 0, body->standard};
    return encode_print_fields(desc, &inner, depth + 1, first, out);
}

static int encode_print_message(const ProtobufCMessageDescriptor *desc, const struct body *body,
                                unsigned depth, struct br_str *out)
{
    bool first = true;
    int rc;
    if (desc == &google__protobuf__duration__descriptor) {
        encode_print_duration(body, out);
        return 0;
    }
    br_str_putc(out, '{');
    if (desc == &google__protobuf__any__descriptor)
        rc = encode_print_any(body, depth, &first, out);
    else
        rc = encode_print_fields(desc, body, depth, &first, out);
    br_str_putc(out, '}');
    return rc;
}

static int encode_print_all(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                            bool standard, struct br_str *out)
{
    struct piece piece = {data, len};
    struct body body = {&piece, 1, standard};
    int rc = encode_print_message(desc, &body, 1, out);
    return rc == 0 && out->failed ? BR_ENOMEM : rc;
}

int br_json_encode(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                   struct br_str *out)
{
    return encode_print_all(desc, data, len, false, out);
}

int br_json_encode_standard(const ProtobufCMessageDescriptor *desc, const uint8_t *data, size_t len,
                            struct br_str *out)
{
    return encode_print_all(desc, data, len, true, out);
}
