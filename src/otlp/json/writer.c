/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <string.h>

#include "base/steps.h"
#include "otlp/json/names.h"
#include "otlp/json/notes.h"

struct writer {
    const uint8_t *note; /* the byte after the note that is next */
    const char *text;
    uint8_t *at, *start; /* the first byte written so far; where the message is to begin */
};

static void writer_message(struct writer *w, const ProtobufCMessageDescriptor *desc);

/* --- Reading the last note ------------------------------------------------------------------ */

static uint64_t writer_number(struct writer *w)
{
    uint64_t v = *--w->note;
    if (v < 0x80)
        return v;
    v &= 0x7f;
    for (unsigned shift = 7;; shift += 7) {
        uint8_t b = *--w->note;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
}

/* Passes the value of a member unwritten. */
static void writer_skip(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    uint64_t head = writer_number(w);
    br_steps_add(1);
    if (field->label == PROTOBUF_C_LABEL_REPEATED || br_json_inner(field)) {
        w->note -= head >> 1;
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if ((head & 3) == 3)
            (void)writer_number(w);
        w->note -= head & 1 ? sizeof(uint32_t) : head >> 2;
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        w->note -= head;
    }
}

/* --- Writing backwards ---------------------------------------------------------------------- */

/* The room for the next `len` bytes. */
static uint8_t *writer_room(struct writer *w, size_t len)
{
    assert(len <= (size_t)(w->at - w->start));
    return w->at -= len;
}

static void writer_varint(struct writer *w, uint64_t v)
{
    (void)br_put_varint(writer_room(w, br_varint_size(v)), v);
}

/* Length and tag in front of what was written since `end`. */
static void writer_head(struct writer *w, const ProtobufCFieldDescriptor *field, const uint8_t *end)
{
    writer_varint(w, (uint64_t)(end - w->at));
    writer_varint(w, BR_TAG(field->id, BR_WIRE_LEN));
}

static void writer_string(struct writer *w)
{
    uint64_t head = writer_number(w);
    size_t len = head >> 2, plain_len = len;
    uint32_t place;
    if (!(head & 1)) {
        w->note -= len;
        (void)br_put_bytes(writer_room(w, len), w->note, len);
        return;
    }
    if (head & 2)
        plain_len = writer_number(w);
    w->note -= sizeof place;
    memcpy(&place, w->note, sizeof place);
    uint8_t *out = writer_room(w, plain_len);
    if (head & 2)
        (void)br_json_plain(w->text + place, len, (char *)out);
    else
        memcpy(out, w->text + place, len);
}

static void writer_bytes(struct writer *w)
{
    size_t len = writer_number(w);
    w->note -= len;
    (void)br_put_bytes(writer_room(w, len), w->note, len);
}

/* One value of a field that has lengths on the wire, with length and tag. */
static void writer_long(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    const uint8_t *end = w->at;
    const ProtobufCMessageDescriptor *inner = br_json_inner(field);
    if (inner)
        writer_message(w, inner);
    else if (field->type == PROTOBUF_C_TYPE_STRING)
        writer_string(w);
    else
        writer_bytes(w);
    writer_head(w, field, end);
}

static void writer_scalar(struct writer *w, const ProtobufCFieldDescriptor *field,
                          enum br_wire wire)
{
    uint64_t bits = br_json_unfold(field, writer_number(w));
    if (wire == BR_WIRE_I64)
        memcpy(writer_room(w, 8), &bits, 8);
    else if (wire == BR_WIRE_I32)
        memcpy(writer_room(w, 4), &bits, 4);
    else
        writer_varint(w, bits);
}

static void writer_list(struct writer *w, const ProtobufCFieldDescriptor *field, enum br_wire wire)
{
    const uint8_t *end = w->at;
    size_t size = writer_number(w) >> 1;
    const uint8_t *first = w->note - size;
    if (wire == BR_WIRE_LEN) {
        while (w->note > first)
            writer_long(w, field);
        return;
    }
    while (w->note > first)
        writer_scalar(w, field, wire);
    writer_head(w, field, end);
}

static void writer_value(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    enum br_wire wire = br_json_wire(field);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        writer_list(w, field, wire);
    } else if (wire == BR_WIRE_LEN) {
        writer_long(w, field);
    } else {
        writer_scalar(w, field, wire);
        writer_varint(w, BR_TAG(field->id, wire));
    }
}

/* Members in whatever order, some more than once: first where the last of each is, then these. */
static void writer_sorted(struct writer *w, const ProtobufCMessageDescriptor *desc,
                          const uint8_t *first)
{
    const uint8_t *notes[BR_JSON_FIELDS_MAX];
    uint32_t seen = 0, there = 0;
    while (w->note > first) {
        unsigned head = *--w->note;
        unsigned i = head & (BR_JSON_NOTE_ABSENT - 1);
        bool absent = head & BR_JSON_NOTE_ABSENT;
        if (!(seen >> i & 1)) {
            seen |= 1u << i;
            there |= (absent ? 0u : 1u) << i;
            notes[i] = w->note;
        }
        if (!absent)
            writer_skip(w, &desc->fields[i]);
    }
    for (unsigned i = desc->n_fields; i-- > 0;) {
        if (!(there >> i & 1))
            continue;
        w->note = notes[i];
        writer_value(w, &desc->fields[i]);
    }
    w->note = first;
}

/* Without length and tag. */
static void writer_message(struct writer *w, const ProtobufCMessageDescriptor *desc)
{
    uint64_t head = writer_number(w);
    const uint8_t *first = w->note - (head >> 1);
    if (!(head & 1)) {
        writer_sorted(w, desc, first);
        return;
    }
    while (w->note > first) {
        unsigned i = *--w->note;
        writer_value(w, &desc->fields[i]);
    }
}

void br_json_notes_write(const struct br_json_notes *n, const ProtobufCMessageDescriptor *desc,
                         const char *text, uint8_t *out, size_t len)
{
    struct writer w = {
        .note = n->buf->data + n->buf->len, .text = text, .at = out + len, .start = out};
    br_steps_add(n->buf->len + len);
    writer_message(&w, desc);
    assert(w.at == out);
}
