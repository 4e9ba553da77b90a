/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json_notes.h"

#include <assert.h>
#include <string.h>

#include "base/err.h"
#include "base/steps.h"
#include "otlp/json_names.h"

struct writer {
    const uint8_t *note; /* the byte after the note that is next */
    const char *text;
    uint8_t *at, *start; /* the first byte written so far; where the message is to begin */
};

static void write_message(struct writer *w, const ProtobufCMessageDescriptor *desc);

/* --- Notes ---------------------------------------------------------------------------------- */

int br_json_note_room(struct br_json_notes *n, size_t len)
{
    size_t need = n->buf->len + len;
    if (__builtin_expect(need <= n->buf->cap, 1))
        return need <= n->max ? 0 : BR_EFULL;
    /* The pool's next size is a fifth larger or more, and no larger than it has to be. */
    return need <= n->max ? br_buf_reserve(&n->buf, need) : BR_EFULL;
}

int br_json_note_number(struct br_json_notes *n, uint64_t value)
{
    size_t size = br_varint_size(value);
    int rc = br_json_note_room(n, size);
    if (rc)
        return rc;
    n->buf->len += (uint32_t)size;
    uint8_t *p = n->buf->data + n->buf->len;
    for (; value >= 0x80; value >>= 7)
        *--p = (uint8_t)(value | 0x80);
    *--p = (uint8_t)value;
    return 0;
}

int br_json_note_byte(struct br_json_notes *n, unsigned value)
{
    int rc = br_json_note_room(n, 1);
    if (!rc)
        n->buf->data[n->buf->len++] = (uint8_t)value;
    return rc;
}

/* Appends bytes that no number tells of yet. */
static int notes_append(struct br_json_notes *n, const void *data, size_t len)
{
    int rc = br_json_note_room(n, len);
    if (rc)
        return rc;
    br_steps_add(len);
    (void)br_put_bytes(n->buf->data + n->buf->len, data, len);
    n->buf->len += (uint32_t)len;
    return 0;
}

int br_json_note_bytes(struct br_json_notes *n, const void *data, size_t len)
{
    int rc = notes_append(n, data, len);
    return rc ? rc : br_json_note_number(n, len);
}

int br_json_note_string(struct br_json_notes *n, const char *text,
                        const struct br_json_token *string)
{
    uint32_t place = (uint32_t)(string->text - text);
    if (string->plain_len <= BR_JSON_NOTE_SHORT) {
        char plain[BR_JSON_NOTE_SHORT];
        size_t len = br_json_plain(string->text, string->len, plain);
        int rc = notes_append(n, plain, len);
        return rc ? rc : br_json_note_number(n, (uint64_t)len << 2);
    }
    int rc = notes_append(n, &place, sizeof place);
    if (!string->escaped)
        return rc ? rc : br_json_note_number(n, (uint64_t)string->len << 2 | 1);
    rc = rc ? rc : br_json_note_number(n, string->plain_len);
    return rc ? rc : br_json_note_number(n, (uint64_t)string->len << 2 | 3);
}

static bool notes_signed(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_INT32 || field->type == PROTOBUF_C_TYPE_INT64 ||
           field->type == PROTOBUF_C_TYPE_ENUM;
}

/* Negative numbers get odd, as in sint64; doubles get their exponent last, as round ones have
 * nothing but zeros at their end. */
uint64_t br_json_fold(const ProtobufCFieldDescriptor *field, uint64_t bits)
{
    if (notes_signed(field))
        return bits << 1 ^ (bits >> 63 ? UINT64_MAX : 0);
    return field->type == PROTOBUF_C_TYPE_DOUBLE ? __builtin_bswap64(bits) : bits;
}

uint64_t br_json_unfold(const ProtobufCFieldDescriptor *field, uint64_t folded)
{
    if (notes_signed(field))
        return folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0);
    return field->type == PROTOBUF_C_TYPE_DOUBLE ? __builtin_bswap64(folded) : folded;
}

/* --- Taking the last note ------------------------------------------------------------------- */

static uint64_t take_number(struct writer *w)
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

/* Passes the value of a member. */
static void take_value(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    uint64_t head = take_number(w);
    br_steps_add(1);
    if (field->label == PROTOBUF_C_LABEL_REPEATED || br_json_inner(field)) {
        w->note -= head >> 1;
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if ((head & 3) == 3)
            (void)take_number(w);
        w->note -= head & 1 ? sizeof(uint32_t) : head >> 2;
    } else if (field->type == PROTOBUF_C_TYPE_BYTES) {
        w->note -= head;
    }
}

/* --- Writing backwards ---------------------------------------------------------------------- */

/* The room for the next `len` bytes. */
static uint8_t *write_room(struct writer *w, size_t len)
{
    assert(len <= (size_t)(w->at - w->start));
    return w->at -= len;
}

static void write_varint(struct writer *w, uint64_t v)
{
    (void)br_put_varint(write_room(w, br_varint_size(v)), v);
}

/* Length and tag in front of what was written since `end`. */
static void write_head(struct writer *w, const ProtobufCFieldDescriptor *field, const uint8_t *end)
{
    write_varint(w, (uint64_t)(end - w->at));
    write_varint(w, BR_TAG(field->id, BR_WIRE_LEN));
}

static void write_string(struct writer *w)
{
    uint64_t head = take_number(w);
    size_t len = head >> 2, plain_len = len;
    uint32_t place;
    if (!(head & 1)) {
        w->note -= len;
        (void)br_put_bytes(write_room(w, len), w->note, len);
        return;
    }
    if (head & 2)
        plain_len = take_number(w);
    w->note -= sizeof place;
    memcpy(&place, w->note, sizeof place);
    uint8_t *out = write_room(w, plain_len);
    if (head & 2)
        (void)br_json_plain(w->text + place, len, (char *)out);
    else
        memcpy(out, w->text + place, len);
}

static void write_bytes(struct writer *w)
{
    size_t len = take_number(w);
    w->note -= len;
    (void)br_put_bytes(write_room(w, len), w->note, len);
}

/* One value of a field that has lengths on the wire, with length and tag. */
static void write_long(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    const uint8_t *end = w->at;
    const ProtobufCMessageDescriptor *inner = br_json_inner(field);
    if (inner)
        write_message(w, inner);
    else if (field->type == PROTOBUF_C_TYPE_STRING)
        write_string(w);
    else
        write_bytes(w);
    write_head(w, field, end);
}

static void write_scalar(struct writer *w, const ProtobufCFieldDescriptor *field, enum br_wire wire)
{
    uint64_t bits = br_json_unfold(field, take_number(w));
    if (wire == BR_WIRE_I64)
        memcpy(write_room(w, 8), &bits, 8);
    else if (wire == BR_WIRE_I32)
        memcpy(write_room(w, 4), &bits, 4);
    else
        write_varint(w, bits);
}

static void write_list(struct writer *w, const ProtobufCFieldDescriptor *field, enum br_wire wire)
{
    const uint8_t *end = w->at;
    size_t size = take_number(w) >> 1;
    const uint8_t *first = w->note - size;
    if (wire == BR_WIRE_LEN) {
        while (w->note > first)
            write_long(w, field);
        return;
    }
    while (w->note > first)
        write_scalar(w, field, wire);
    write_head(w, field, end);
}

static void write_value(struct writer *w, const ProtobufCFieldDescriptor *field)
{
    enum br_wire wire = br_json_wire(field);
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        write_list(w, field, wire);
    } else if (wire == BR_WIRE_LEN) {
        write_long(w, field);
    } else {
        write_scalar(w, field, wire);
        write_varint(w, BR_TAG(field->id, wire));
    }
}

/* Members in whatever order, some more than once: first where the last of each is, then these. */
static void write_sorted(struct writer *w, const ProtobufCMessageDescriptor *desc,
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
            take_value(w, &desc->fields[i]);
    }
    for (unsigned i = desc->n_fields; i-- > 0;) {
        if (!(there >> i & 1))
            continue;
        w->note = notes[i];
        write_value(w, &desc->fields[i]);
    }
    w->note = first;
}

/* Without length and tag. */
static void write_message(struct writer *w, const ProtobufCMessageDescriptor *desc)
{
    uint64_t head = take_number(w);
    const uint8_t *first = w->note - (head >> 1);
    if (!(head & 1)) {
        write_sorted(w, desc, first);
        return;
    }
    while (w->note > first) {
        unsigned i = *--w->note;
        write_value(w, &desc->fields[i]);
    }
}

void br_json_notes_write(const struct br_json_notes *n, const ProtobufCMessageDescriptor *desc,
                         const char *text, uint8_t *out, size_t len)
{
    struct writer w = {
        .note = n->buf->data + n->buf->len, .text = text, .at = out + len, .start = out};
    br_steps_add(n->buf->len + len);
    write_message(&w, desc);
    assert(w.at == out);
}
