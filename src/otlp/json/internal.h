/* SPDX-License-Identifier: Apache-2.0 */
/* Types and functions shared by the files of src/otlp/json, which convert between JSON and
 * protobuf. */
#pragma once

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "otlp/json/scan.h"
#include "wire/protobuf.h"

/* --- Fields (names.c) ------------------------------------------------------------------------- */

/* Properties of a field for OTLP's JSON mapping: its name, its wire type, and whether it is an id.
 */

#define BR_JSON_NAME_MAX 64
#define BR_JSON_FIELDS_MAX 32 /* maximum number of fields of a message in the schemas in use */

/* Writes the lowerCamelCase name of a field to `out` and returns `out`. Like protoc, the
 * function removes each underscore and makes the next letter upper case. */
const char *br_json_name(const ProtobufCFieldDescriptor *field, char out[BR_JSON_NAME_MAX]);

/* Returns true if `name` is the name of the field: in lowerCamelCase, or as in the schema
 * ("raw_profile"). ProtoJSON parsers must accept both names, and the Collector does. */
bool br_json_is_name(const ProtobufCFieldDescriptor *field, const char *name, size_t len);

/* Returns the size in bytes of an id field that OTLP writes in hex: 16 for traceId and
 * profileId, 8 for spanId and parentSpanId. Returns 0 for any other field. */
size_t br_json_id_size(const ProtobufCFieldDescriptor *field);

/* Returns the descriptor of the message in a google.protobuf.Any with this type URL. Only the
 * type google.rpc.RetryInfo is known; returns NULL for other types. */
const ProtobufCMessageDescriptor *br_json_any(const char *type_url, size_t len);

/* Returns the descriptor of the message that a field contains. For the value of an Any, this is the
 * descriptor of google.rpc.RetryInfo. Returns NULL if the field does not contain a message. */
const ProtobufCMessageDescriptor *br_json_inner(const ProtobufCFieldDescriptor *field);

/* Returns the wire type of one value of the field, for the types that OTLP and pprof use. */
static inline enum br_wire br_json_wire(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        return BR_WIRE_LEN;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return BR_WIRE_I64;
    case PROTOBUF_C_TYPE_FIXED32:
        return BR_WIRE_I32;
    default:
        return BR_WIRE_VARINT;
    }
}

/* --- Notes (notes.c) -------------------------------------------------------------------------- */

/*
 * Notes: the intermediate form between JSON and protobuf.
 *
 * In protobuf the length of a message precedes it and its fields are in the order of their numbers;
 * in JSON the fields may be in any order. The first pass reads the text and writes notes in the
 * order of the text. The second pass reads the notes from end to start and writes the message from
 * end to start. Each length is thus known when it is written, and no written byte is moved. Both
 * passes take linear time at any nesting depth.
 *
 * A note ends with its length, because it is read from its end. A number in a note is a varint with
 * its bytes reversed.
 *
 *     scalar      its bits, folded so that small values are short
 *     string      up to BR_JSON_NOTE_SHORT bytes: the bytes, then their number * 4
 *                 longer, without escapes: offset in the text (4 bytes), then length * 4 + 1
 *                 longer, with escapes: offset, length without escapes, length * 4 + 3
 *     bytes       the bytes, then their number
 *     list        the notes of the elements, then the size of these notes * 2 + 1
 *     message     the notes of the members, then the size of these notes * 2 (+ 1 if each member
 *                 occurs once, in the order of the schema)
 *     member      the note of its value, then the index of the field, or 128 + index if the
 *                 member removes the field, even if an earlier member has set it
 *
 * Notes need at most three quarters of the bytes of the text, except for numbers with exponents
 * ("9e18" has 19 digits).
 */

#define BR_JSON_NOTE_SHORT 4u
/* added to the index of a field in a member's note if the member removes the field, even if an
 * earlier member has set it */
#define BR_JSON_NOTE_ABSENT 128u

struct br_json_notes {
    struct br_buf *buf; /* buffer with the notes; allocated and freed by the caller */
    size_t max;         /* maximum number of bytes of notes in `buf` */
};

/* The functions br_json_note_number to br_json_note_string append a part of a note. These functions
 * return 0, BR_EFULL (more than `max` bytes) or BR_ENOMEM. */
int br_json_note_number(struct br_json_notes *notes, uint64_t value);
int br_json_note_byte(struct br_json_notes *notes, unsigned value);
int br_json_note_bytes(struct br_json_notes *notes, const void *data, size_t len);
int br_json_note_string(struct br_json_notes *notes, const char *text,
                        const struct br_json_token *string);

/* Makes room for `len` bytes at the end of the buffer, where the caller may write them. Returns
 * 0, BR_EFULL or BR_ENOMEM. */
int br_json_note_room(struct br_json_notes *notes, size_t len);

/* br_json_fold converts the bits of a scalar (as for br_put_varint or a fixed field) to the form in
 * a note. br_json_unfold converts them back. */
uint64_t br_json_fold(const ProtobufCFieldDescriptor *field, uint64_t bits);
uint64_t br_json_unfold(const ProtobufCFieldDescriptor *field, uint64_t folded);

/* Writes the message described by the notes to `out`. The last note must be a message of type
 * `desc`. `len` is the exact size of the encoded message in bytes. `text` is the JSON text, from
 * which long strings are copied. */
void br_json_notes_write(const struct br_json_notes *notes, const ProtobufCMessageDescriptor *desc,
                         const char *text, uint8_t *out, size_t len);
