/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/json/internal.h"

#include <string.h>

#include "base/err.h"
#include "base/steps.h"
#include "wire/protobuf.h"

int br_json_note_room(struct br_json_notes *notes, size_t len)
{
    size_t need = notes->buf->len + len;
    if (__builtin_expect(need <= notes->buf->cap, 1))
        return need <= notes->max ? 0 : BR_EFULL;
    /* The reserved buffer is at least a fifth larger than requested, so the buffer is not enlarged
     * for each note. */
    return need <= notes->max ? br_buf_reserve(&notes->buf, need) : BR_EFULL;
}

int br_json_note_number(struct br_json_notes *notes, uint64_t value)
{
    size_t size = br_varint_size(value);
    int rc = br_json_note_room(notes, size);
    if (rc)
        return rc;
    notes->buf->len += (uint32_t)size;
    uint8_t *p = notes->buf->data + notes->buf->len;
    for (; value >= 0x80; value >>= 7)
        *--p = (uint8_t)(value | 0x80);
    *--p = (uint8_t)value;
    return 0;
}

int br_json_note_byte(struct br_json_notes *notes, unsigned value)
{
    int rc = br_json_note_room(notes, 1);
    if (!rc)
        notes->buf->data[notes->buf->len++] = (uint8_t)value;
    return rc;
}

/* Appends bytes to the notes, without a length after them. */
static int notes_append(struct br_json_notes *notes, const void *data, size_t len)
{
    int rc = br_json_note_room(notes, len);
    if (rc)
        return rc;
    br_steps_add(len);
    (void)br_put_bytes(notes->buf->data + notes->buf->len, data, len);
    notes->buf->len += (uint32_t)len;
    return 0;
}

int br_json_note_bytes(struct br_json_notes *notes, const void *data, size_t len)
{
    int rc = notes_append(notes, data, len);
    return rc ? rc : br_json_note_number(notes, len);
}

int br_json_note_string(struct br_json_notes *notes, const char *text,
                        const struct br_json_token *string)
{
    uint32_t offset = (uint32_t)(string->text - text);
    if (string->plain_len <= BR_JSON_NOTE_SHORT) {
        char plain[BR_JSON_NOTE_SHORT];
        size_t len = br_json_plain(string->text, string->len, plain);
        int rc = notes_append(notes, plain, len);
        return rc ? rc : br_json_note_number(notes, (uint64_t)len << 2);
    }
    int rc = notes_append(notes, &offset, sizeof offset);
    if (!string->escaped)
        return rc ? rc : br_json_note_number(notes, (uint64_t)string->len << 2 | 1);
    rc = rc ? rc : br_json_note_number(notes, string->plain_len);
    return rc ? rc : br_json_note_number(notes, (uint64_t)string->len << 2 | 3);
}

static bool notes_signed(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_INT32 || field->type == PROTOBUF_C_TYPE_INT64 ||
           field->type == PROTOBUF_C_TYPE_ENUM;
}

/* Converts a scalar so that frequent values are short as varints. Negative integers become odd
 * numbers, as in sint64. The bytes of a double are reversed, because round values end with
 * zeros. */
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
