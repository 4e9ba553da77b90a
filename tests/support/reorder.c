/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reorder.h"

#include "opentelemetry/proto/collector/trace/v1/trace_service.pb-c.h"
#include "tests/support/fake_sink.h"
#include "tests/support/profiles_pb.h"
#include "tests/support/test.h"
#include "wire/protobuf.h"

/* One field of a message. The fields are sorted by `rank`. */
struct piece {
    struct br_field field;
    size_t len;
    uint64_t rank;
    unsigned index;
    /* type of the field's message; NULL: the field is not a message */
    const ProtobufCMessageDescriptor *inner;
};

const char *reorder_name(enum reorder order)
{
    static const char *const names[] = {"fields as written", "fields rising", "fields falling",
                                        "fields shuffled"};
    return order < REORDERS ? names[order] : NULL;
}

static int piece_compare(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* All fields of a oneof have the rank of the first field of the oneof. */
static uint64_t piece_group(const ProtobufCMessageDescriptor *type,
                            const ProtobufCFieldDescriptor *field, uint32_t number)
{
    if (!field || !(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
        return number;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
            type->fields[i].quantifier_offset == field->quantifier_offset)
            return type->fields[i].id;
    return number;
}

static uint64_t piece_rank(uint64_t group, enum reorder order, uint64_t salt)
{
    uint64_t random = salt ^ group * 0x9e3779b97f4a7c15u;
    if (order == REORDER_RISING)
        return group;
    return order == REORDER_FALLING ? ~group : fake_random(&random);
}

static unsigned read_pieces(const struct wire *w, const ProtobufCMessageDescriptor *type,
                            enum reorder order, uint64_t salt, struct piece *ret)
{
    unsigned n = 0;
    for (const uint8_t *p = w->data, *end = p + w->len; w->len && p < end; n++) {
        struct piece *piece = &ret[n];
        const uint8_t *next = br_field_next(p, end, &piece->field);
        assert_non_null(next);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(type, piece->field.number);
        bool message = field && field->type == PROTOBUF_C_TYPE_MESSAGE;
        piece->len = (size_t)(next - p);
        piece->index = n;
        piece->rank = piece_rank(piece_group(type, field, piece->field.number), order, salt);
        piece->inner = message && piece->field.wire == BR_WIRE_LEN ? field->descriptor : NULL;
        p = next;
    }
    return n;
}

static void put_piece(struct wire *out, const struct piece *piece, enum reorder order,
                      uint64_t *random)
{
    if (!piece->inner) {
        wire_raw(out, piece->field.at, piece->len);
        return;
    }
    struct wire body = {0};
    wire_raw(&body, piece->field.data, (size_t)piece->field.value);
    reorder_message(&body, piece->inner, order, random);
    wire_len(out, piece->field.number, body.data, body.len);
    wire_free(&body);
}

void reorder_message(struct wire *w, const ProtobufCMessageDescriptor *type, enum reorder order,
                     uint64_t *random)
{
    if (order == REORDER_NOT || !w->len)
        return;
    struct piece *pieces = calloc(w->len, sizeof *pieces);
    assert_non_null(pieces);
    unsigned n = read_pieces(w, type, order, fake_random(random), pieces);
    qsort(pieces, n, sizeof *pieces, piece_compare);
    struct wire out = {0};
    for (unsigned i = 0; i < n; i++)
        put_piece(&out, &pieces[i], order, random);
    free(pieces);
    wire_free(w);
    *w = out;
}

void reorder_request(struct wire *w, enum br_signal signal, enum reorder order, uint64_t *random)
{
    const ProtobufCMessageDescriptor *type = &PROFILES_REQUEST(descriptor);
    if (signal == BR_TRACES)
        type =
            &opentelemetry__proto__collector__trace__v1__export_trace_service_request__descriptor;
    reorder_message(w, type, order, random);
}
