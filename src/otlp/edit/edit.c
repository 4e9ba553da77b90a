/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/edit/edit.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

/* Field number of the children in every message between a part and its innermost messages. The
 * children are ScopeSpans and Span, or ScopeProfiles, Profile and Sample. */
#define INWARD 2

struct edit {
    const struct br_addition *additions;
    uint32_t n_additions;
    uint32_t leaf; /* number of innermost messages processed so far */
    int levels;    /* number of levels of messages below the part's body */
    /* new sizes, in bytes, of the messages with children, in the order of the messages in the
     * part */
    size_t *sizes;
    uint32_t n_sizes, cap_sizes;
    uint32_t at; /* while writing: index into `sizes` of the next message with children */
    bool no_memory;
};

static size_t edit_note_size(struct edit *edit)
{
    if (br_grow(&edit->sizes, &edit->cap_sizes, (size_t)edit->n_sizes + 1, sizeof *edit->sizes,
                UINT32_MAX))
        edit->no_memory = true;
    else
        edit->n_sizes++;
    return edit->n_sizes - 1;
}

/* Returns the size in bytes of a message body at `level` with its additions. Returns SIZE_MAX if
 * the bytes are malformed, there are too few additions, or memory runs out. */
static size_t edit_measure(struct edit *edit, const uint8_t *p, const uint8_t *end, int level)
{
    size_t total = 0;
    struct br_field field;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &field);
        if (!next || edit->no_memory)
            return SIZE_MAX;
        if (field.number != INWARD || field.wire != BR_WIRE_LEN) {
            total += (size_t)(next - p);
        } else if (level + 1 == edit->levels) {
            if (edit->leaf >= edit->n_additions)
                return SIZE_MAX;
            total += br_len_size(INWARD, field.value + edit->additions[edit->leaf++].len);
        } else {
            size_t slot = edit_note_size(edit);
            size_t inner =
                edit->no_memory ? SIZE_MAX : edit_measure(edit, field.data, next, level + 1);
            if (inner == SIZE_MAX)
                return SIZE_MAX;
            edit->sizes[slot] = inner;
            total += br_len_size(INWARD, inner);
        }
        p = next;
    }
    return total;
}

static uint8_t *edit_write(struct edit *edit, const uint8_t *p, const uint8_t *end, int level,
                           uint8_t *out)
{
    struct br_field field;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &field);
        if (field.number != INWARD || field.wire != BR_WIRE_LEN) {
            out = br_put_bytes(out, p, (size_t)(next - p));
        } else if (level + 1 == edit->levels) {
            const struct br_addition *addition = &edit->additions[edit->leaf++];
            *out++ = BR_TAG(INWARD, BR_WIRE_LEN);
            out = br_put_varint(out, field.value + addition->len);
            out = br_put_bytes(out, field.data, field.value);
            out = br_put_bytes(out, addition->data, addition->len);
        } else {
            *out++ = BR_TAG(INWARD, BR_WIRE_LEN);
            /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): edit_measure added a size. */
            out = br_put_varint(out, edit->sizes[edit->at++]);
            out = edit_write(edit, field.data, next, level + 1, out);
        }
        p = next;
    }
    return out;
}

static void edit_note_resource(struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field field;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &field);
        if (field.number == BR_RESOURCES_RESOURCE) {
            part->res_at = (uint32_t)(p - part->raw);
            part->res_len = (uint32_t)(next - p);
            part->res_body_at = (uint32_t)(field.data - part->raw);
            return;
        }
        p = next;
    }
}

void br_part_set_bytes(struct br_item *item, struct br_part *part, struct br_buf *buf)
{
    struct br_field field;
    item->size -= br_part_size(part);
    br_buf_unref(part->buf);
    part->buf = buf;
    part->raw = buf->data;
    part->raw_len = buf->len;
    br_field_next(part->raw, part->raw + part->raw_len, &field);
    part->body_at = part->res_at = part->res_body_at = (uint32_t)(field.data - part->raw);
    part->res_len = part->outline_at = 0;
    if (part->kind == BR_PART_RESOURCE)
        edit_note_resource(part);
    item->size += br_part_size(part);
    /* The item's list of spans points into the old bytes. A caller that iterates over the list
     * uses a separate pointer to it. */
    item->spans = NULL;
}

int br_part_append(struct br_item *item, struct br_part *part, const struct br_addition *additions)
{
    const uint8_t *body = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct edit edit = {.additions = additions,
                        .n_additions = part->n_records,
                        .levels = item->signal == BR_TRACES ? 2 : 3};
    size_t size = edit_measure(&edit, body, end, 0);
    if (edit.leaf != edit.n_additions)
        size = SIZE_MAX;
    struct br_buf *buf = size == SIZE_MAX
                             ? NULL
                             : br_buf_new(part->buf->pool, br_len_size(BR_REQUEST_RESOURCES, size));
    if (!buf) {
        br_free(edit.sizes);
        return size == SIZE_MAX && !edit.no_memory ? BR_EINVAL : BR_ENOMEM;
    }
    uint8_t *out = br_put_varint(buf->data, BR_TAG(BR_REQUEST_RESOURCES, BR_WIRE_LEN));
    out = br_put_varint(out, size);
    edit.leaf = 0;
    out = edit_write(&edit, body, end, 0, out);
    br_free(edit.sizes);
    buf->len = (uint32_t)(out - buf->data);
    br_part_set_bytes(item, part, buf);
    return 0;
}

/* Makes room for `len` more bytes at the end of an addition. Returns the position of the new
 * bytes, or NULL if memory runs out. */
static uint8_t *edit_extend(struct br_arena *arena, struct br_addition *addition, size_t len)
{
    uint8_t *p = br_arena_alloc(arena, addition->len + len);
    if (!p)
        return NULL;
    br_put_bytes(p, addition->data, addition->len);
    addition->data = p;
    return p + addition->len;
}

static int edit_add(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                    const char *key, const uint8_t *any, size_t any_len)
{
    size_t key_len = strlen(key);
    size_t inner = br_len_size(BR_KEYVALUE_KEY, key_len) + br_len_size(BR_KEYVALUE_VALUE, any_len);
    size_t total = br_len_size(field, inner);
    uint8_t *p = edit_extend(arena, addition, total);
    if (!p)
        return BR_ENOMEM;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, inner);
    p = br_put_len(p, BR_KEYVALUE_KEY, key, key_len);
    (void)br_put_len(p, BR_KEYVALUE_VALUE, any, any_len);
    addition->len += total;
    return 0;
}

int br_add_string(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                  const char *key, const void *value, size_t len)
{
    uint8_t *any = br_arena_alloc(arena, br_len_size(BR_VALUE_STRING, len));
    if (!any)
        return BR_ENOMEM;
    size_t any_len = (size_t)(br_put_len(any, BR_VALUE_STRING, value, len) - any);
    return edit_add(arena, addition, field, key, any, any_len);
}

int br_add_int(struct br_arena *arena, struct br_addition *addition, uint32_t field,
               const char *key, int64_t value)
{
    uint8_t any[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(any, BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT));
    p = br_put_varint(p, (uint64_t)value);
    return edit_add(arena, addition, field, key, any, (size_t)(p - any));
}

/* Wraps an ArrayValue in an AnyValue and appends it to the addition. The `len` bytes of the
 * ArrayValue are at `p` + 2 * BR_VARINT_MAX; the space before them is used for the AnyValue. */
static int edit_add_list(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                         const char *key, uint8_t *p, size_t len)
{
    size_t head = br_len_size(BR_VALUE_LIST, len) - len;
    uint8_t *any = p + 2 * BR_VARINT_MAX - head;
    br_put_varint(any + 1, len);
    *any = BR_TAG(BR_VALUE_LIST, BR_WIRE_LEN);
    return edit_add(arena, addition, field, key, any, head + len);
}

int br_add_ints(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                const char *key, const int64_t *values, size_t count)
{
    size_t most;
    if (!br_size_mul(count, 3 + BR_VARINT_MAX, &most) ||
        !br_size_add(most, (size_t)2 * BR_VARINT_MAX, &most))
        return BR_ENOMEM;
    uint8_t *p = br_arena_alloc(arena, most);
    if (!p)
        return BR_ENOMEM;
    uint8_t *list = p + 2 * BR_VARINT_MAX, *o = list;
    for (size_t i = 0; i < count; i++) {
        *o++ = BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN);
        *o++ = (uint8_t)(1 + br_varint_size((uint64_t)values[i]));
        *o++ = BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT);
        o = br_put_varint(o, (uint64_t)values[i]);
    }
    return edit_add_list(arena, addition, field, key, p, (size_t)(o - list));
}

int br_add_texts(struct br_arena *arena, struct br_addition *addition, uint32_t field,
                 const char *key, const struct br_addition *values, size_t count)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++)
        len += br_len_size(BR_LIST_VALUES, br_len_size(BR_VALUE_STRING, values[i].len));
    uint8_t *p = br_arena_alloc(arena, len + (size_t)2 * BR_VARINT_MAX);
    if (!p)
        return BR_ENOMEM;
    uint8_t *o = p + 2 * BR_VARINT_MAX;
    for (size_t i = 0; i < count; i++) {
        *o++ = BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN);
        o = br_put_varint(o, br_len_size(BR_VALUE_STRING, values[i].len));
        o = br_put_len(o, BR_VALUE_STRING, values[i].data, values[i].len);
    }
    return edit_add_list(arena, addition, field, key, p, len);
}
