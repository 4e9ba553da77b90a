/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The notes between JSON and protobuf while one becomes the other. For src/otlp/json only.
 *
 * A message's length stands before it on the wire, and its fields in the order of their numbers,
 * whatever order a text has. So the pass over the text takes notes, in the text's order, and a pass
 * over the notes, from their end to their start, writes the message from its end to its start:
 * lengths are known when their turn comes, and nothing that was written is moved. Both passes are
 * linear in the text, at any depth.
 *
 * A note is read from its end, too, so it ends with what tells how long it is. A number is a varint
 * with its bytes in reverse.
 *
 *     scalar      its bits, folded so that small values are short
 *     string      up to BR_JSON_NOTE_SHORT bytes themselves, then their number x 4; or the place in
 *                 the text (4 bytes), then length x 4 + 1; with escapes: place, length without
 *                 them, length x 4 + 3
 *     bytes       themselves, then their number
 *     list        the notes of the elements, then the bytes of these notes x 2 + 1
 *     message     the notes of the members, then the bytes of these notes x 2 + (1: the members
 *                 come in the order of the schema, each once)
 *     member      the note of its value, then the field's index; or 128 + index: what the text said
 *                 before about this field does not count
 *
 * That is at most three quarters of the text, but for numbers with exponents ("9e18" has 19
 * digits).
 */
#pragma once

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"
#include "otlp/json/scan.h"

#define BR_JSON_NOTE_SHORT 4u
#define BR_JSON_NOTE_ABSENT 128u /* with the index of a field */

struct br_json_notes {
    struct br_buf *buf; /* taken by the caller, and given back */
    size_t max;         /* bytes of notes */
};

/* Append a part of a note. Return 0, BR_EFULL (over `max`) or BR_ENOMEM. */
int br_json_note_number(struct br_json_notes *notes, uint64_t value);
int br_json_note_byte(struct br_json_notes *notes, unsigned value);
int br_json_note_bytes(struct br_json_notes *notes, const void *data, size_t len);
int br_json_note_string(struct br_json_notes *notes, const char *text,
                        const struct br_json_token *string);

/* Makes room for `len` bytes, which the caller may write at the end of the buffer. */
int br_json_note_room(struct br_json_notes *notes, size_t len);

/* Return a scalar's bits (as br_put_varint or a fixed field has them) as they are noted, and back.
 */
uint64_t br_json_fold(const ProtobufCFieldDescriptor *field, uint64_t bits);
uint64_t br_json_unfold(const ProtobufCFieldDescriptor *field, uint64_t folded);

/* Writes the message of all notes, whose last one is a message's of the kind `desc`, into `out`.
 * `len` is what it takes, exactly. `text` is the one that strings are in. */
void br_json_notes_write(const struct br_json_notes *notes, const ProtobufCMessageDescriptor *desc,
                         const char *text, uint8_t *out, size_t len);
