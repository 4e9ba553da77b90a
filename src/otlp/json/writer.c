/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "base/steps.h"
#include "otlp/json/internal.h"

struct writer {
    const uint8_t *note; /* end of the note to read next; notes are read from end to start */
    const char *text;
    /* `at`: first byte written so far; `start`: first byte of the whole message, where writing
     * ends */
    uint8_t *at, *start;
};

static void writer_message(struct writer *writer, const ProtobufCMessageDescriptor *desc);

/* --- Reading notes from the end -------------------------------------------------------------- */

static uint64_t writer_number(struct writer *writer)
{
    uint64_t v = *--writer->note;
    if (v < 0x80)
        return v;
    v &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
        uint8_t b = *--writer->note;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
}

/* Skips the note of a member's value. */
static void writer_skip(struct writer *writer, const ProtobufCFieldDescriptor *field)
{
    uint64_t head = writer_number(writer);
    br_steps_add(1);
    if (field->label == PROTOBUF_C_LABEL_REPEATED || br_json_inner(field)) {
        writer->note -= head >> 1;
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if ((head & 3) == 3)
            (void)writer_number(writer);
        writer->note -= head & 1 ? sizeof(uint32_t) : head >> 2;
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        writer->note -= head;
    }
}

/* --- Writing backwards ---------------------------------------------------------------------- */

/* Returns the space for `len` bytes directly before the bytes that are written already. */
static uint8_t *writer_room(struct writer *writer, size_t len)
{
    assert(len <= (size_t)(writer->at - writer->start));
    return writer->at -= len;
}

static void writer_varint(struct writer *writer, uint64_t value)
{
    (void)br_put_varint(writer_room(writer, br_varint_size(value)), value);
}

/* Writes the tag and length of a length-delimited field in front of its content, which ends at
 * `end`. */
static void writer_head(struct writer *writer, const ProtobufCFieldDescriptor *field,
                        const uint8_t *end)
{
    writer_varint(writer, (uint64_t)(end - writer->at));
    writer_varint(writer, BR_TAG(field->id, BR_WIRE_LEN));
}

static void writer_string(struct writer *writer)
{
    uint64_t head = writer_number(writer);
    size_t len = head >> 2, plain_len = len;
    uint32_t offset;
    if (!(head & 1)) {
        writer->note -= len;
        (void)br_put_bytes(writer_room(writer, len), writer->note, len);
        return;
    }
    if (head & 2)
        plain_len = writer_number(writer);
    writer->note -= sizeof offset;
    memcpy(&offset, writer->note, sizeof offset);
    uint8_t *out = writer_room(writer, plain_len);
    if (head & 2)
        (void)br_json_plain(writer->text + offset, len, (char *)out);
    else
        memcpy(out, writer->text + offset, len);
}

static void writer_bytes(struct writer *writer)
{
    size_t len = writer_number(writer);
    writer->note -= len;
    (void)br_put_bytes(writer_room(writer, len), writer->note, len);
}

/* Writes one value of a length-delimited field, with length and tag. */
static void writer_long(struct writer *writer, const ProtobufCFieldDescriptor *field)
{
    const uint8_t *end = writer->at;
    const ProtobufCMessageDescriptor *inner = br_json_inner(field);
    if (inner)
        writer_message(writer, inner);
    else if (field->type == PROTOBUF_C_TYPE_STRING)
        writer_string(writer);
    else
        writer_bytes(writer);
    writer_head(writer, field, end);
}

static void writer_scalar(struct writer *writer, const ProtobufCFieldDescriptor *field,
                          enum br_wire wire)
{
    uint64_t bits = br_json_unfold(field, writer_number(writer));
    if (wire == BR_WIRE_I64)
        memcpy(writer_room(writer, 8), &bits, 8);
    else if (wire == BR_WIRE_I32)
        memcpy(writer_room(writer, 4), &bits, 4);
    else
        writer_varint(writer, bits);
}

static void writer_list(struct writer *writer, const ProtobufCFieldDescriptor *field,
                        enum br_wire wire)
{
    const uint8_t *end = writer->at;
    size_t size = writer_number(writer) >> 1;
    const uint8_t *first = writer->note - size;
    if (wire == BR_WIRE_LEN) {
        while (writer->note > first)
            writer_long(writer, field);
        return;
    }
    while (writer->note > first)
        writer_scalar(writer, field, wire);
    writer_head(writer, field, end);
}

static void writer_value(struct writer *writer, const ProtobufCFieldDescriptor *field)
{
    enum br_wire wire = br_json_wire(field);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        writer_list(writer, field, wire);
    } else if (wire == BR_WIRE_LEN) {
        writer_long(writer, field);
    } else {
        writer_scalar(writer, field, wire);
        writer_varint(writer, BR_TAG(field->id, wire));
    }
}

/* Writes a message whose members may be repeated and may be in any order. Finds the last note of
 * each field first, and then writes the fields in the order of the schema. */
static void writer_sorted(struct writer *writer, const ProtobufCMessageDescriptor *desc,
                          const uint8_t *first)
{
    const uint8_t *notes[BR_JSON_FIELDS_MAX];
    uint32_t seen = 0, present = 0;
    while (writer->note > first) {
        unsigned head = *--writer->note;
        unsigned i = head & (BR_JSON_NOTE_ABSENT - 1);
        bool absent = head & BR_JSON_NOTE_ABSENT;
        if (!(seen >> i & 1)) {
            seen |= 1u << i;
            present |= (absent ? 0u : 1u) << i;
            notes[i] = writer->note;
        }
        if (!absent)
            writer_skip(writer, &desc->fields[i]);
    }
    for (unsigned i = desc->n_fields; i-- > 0;) {
        if (!(present >> i & 1))
            continue;
        writer->note = notes[i];
        writer_value(writer, &desc->fields[i]);
    }
    writer->note = first;
}

/* Writes the body of a message, without tag and length. */
static void writer_message(struct writer *writer, const ProtobufCMessageDescriptor *desc)
{
    uint64_t head = writer_number(writer);
    const uint8_t *first = writer->note - (head >> 1);
    if (!(head & 1)) {
        writer_sorted(writer, desc, first);
        return;
    }
    while (writer->note > first) {
        unsigned i = *--writer->note;
        writer_value(writer, &desc->fields[i]);
    }
}

void br_json_notes_write(const struct br_json_notes *notes, const ProtobufCMessageDescriptor *desc,
                         const char *text, uint8_t *out, size_t len)
{
    struct writer writer = {
        .note = notes->buf->data + notes->buf->len, .text = text, .at = out + len, .start = out};
    br_steps_add(notes->buf->len + len);
    writer_message(&writer, desc);
    assert(writer.at == out);
}
