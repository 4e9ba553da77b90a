/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/edit/edit.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "otlp/fields.h"
#include "wire/protobuf.h"

/* At every level the messages that lead inwards are field 2: ScopeSpans and Span, ScopeProfiles,
 * Profile and Sample. */
#define INWARD 2

struct edit {
    const struct br_addition *additions;
    uint32_t n_additions;
    uint32_t leaf; /* innermost messages passed */
    int levels;    /* below the part's body */
    size_t *sizes; /* new sizes of the messages on the way, in order of their beginning */
    uint32_t n_sizes, cap_sizes;
    uint32_t at; /* of `sizes`, while writing */
    bool no_memory;
};

static size_t note_size(struct edit *e)
{
    if (br_grow(&e->sizes, &e->cap_sizes, (size_t)e->n_sizes + 1, sizeof *e->sizes, UINT32_MAX))
        e->no_memory = true;
    else
        e->n_sizes++;
    return e->n_sizes - 1;
}

/* The size of a body at `level` with its additions; SIZE_MAX when something is wrong. */
static size_t measure(struct edit *e, const uint8_t *p, const uint8_t *end, int level)
{
    size_t total = 0;
    struct br_field f;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &f);
        if (!next || e->no_memory)
            return SIZE_MAX;
        if (f.number != INWARD || f.wire != BR_WIRE_LEN) {
            total += (size_t)(next - p);
        } else if (level + 1 == e->levels) {
            if (e->leaf >= e->n_additions)
                return SIZE_MAX;
            total += br_len_size(INWARD, f.value + e->additions[e->leaf++].len);
        } else {
            size_t slot = note_size(e);
            size_t inner = e->no_memory ? SIZE_MAX : measure(e, f.data, next, level + 1);
            if (inner == SIZE_MAX)
                return SIZE_MAX;
            e->sizes[slot] = inner;
            total += br_len_size(INWARD, inner);
        }
        p = next;
    }
    return total;
}

static uint8_t *write(struct edit *e, const uint8_t *p, const uint8_t *end, int level, uint8_t *out)
{
    struct br_field f;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &f);
        if (f.number != INWARD || f.wire != BR_WIRE_LEN) {
            out = br_put_bytes(out, p, (size_t)(next - p));
        } else if (level + 1 == e->levels) {
            const struct br_addition *a = &e->additions[e->leaf++];
            *out++ = BR_TAG(INWARD, BR_WIRE_LEN);
            out = br_put_varint(out, f.value + a->len);
            out = br_put_bytes(out, f.data, f.value);
            out = br_put_bytes(out, a->data, a->len);
        } else {
            *out++ = BR_TAG(INWARD, BR_WIRE_LEN);
            out = br_put_varint(out, e->sizes[e->at++]);
            out = write(e, f.data, next, level + 1, out);
        }
        p = next;
    }
    return out;
}

static void note_resource(struct br_part *part)
{
    const uint8_t *p = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct br_field f;
    while (p < end) {
        const uint8_t *next = br_field_next(p, end, &f);
        if (f.number == BR_RESOURCES_RESOURCE) {
            part->res_at = (uint32_t)(p - part->raw);
            part->res_len = (uint32_t)(next - p);
            part->res_body_at = (uint32_t)(f.data - part->raw);
            return;
        }
        p = next;
    }
}

void br_part_set_bytes(struct br_item *item, struct br_part *part, struct br_buf *buf)
{
    struct br_field f;
    item->size -= br_part_size(part);
    br_buf_unref(part->buf);
    part->buf = buf;
    part->raw = buf->data;
    part->raw_len = buf->len;
    br_field_next(part->raw, part->raw + part->raw_len, &f);
    part->body_at = part->res_at = part->res_body_at = (uint32_t)(f.data - part->raw);
    part->res_len = 0;
    if (part->kind == BR_PART_RESOURCE)
        note_resource(part);
    item->size += br_part_size(part);
    item->spans = NULL; /* they pointed into the old bytes; who goes over the list goes on with it */
}

int br_part_append(struct br_item *item, struct br_part *part, const struct br_addition *additions)
{
    const uint8_t *body = part->raw + part->body_at, *end = part->raw + part->raw_len;
    struct edit e = {.additions = additions,
                     .n_additions = part->n_items,
                     .levels = item->signal == BR_TRACES ? 2 : 3};
    size_t size = measure(&e, body, end, 0);
    if (e.leaf != e.n_additions)
        size = SIZE_MAX;
    struct br_buf *buf = size == SIZE_MAX
                             ? NULL
                             : br_buf_new(part->buf->pool, br_len_size(BR_REQUEST_RESOURCES, size));
    if (!buf) {
        br_free(e.sizes);
        return size == SIZE_MAX && !e.no_memory ? BR_EINVAL : BR_ENOMEM;
    }
    uint8_t *out = br_put_varint(buf->data, BR_TAG(BR_REQUEST_RESOURCES, BR_WIRE_LEN));
    out = br_put_varint(out, size);
    e.leaf = 0;
    out = write(&e, body, end, 0, out);
    br_free(e.sizes);
    buf->len = (uint32_t)(out - buf->data);
    br_part_set_bytes(item, part, buf);
    return 0;
}

/* Room for `len` more bytes at the end of an addition. */
static uint8_t *extend(struct br_arena *arena, struct br_addition *a, size_t len)
{
    uint8_t *p = br_arena_alloc(arena, a->len + len);
    if (!p)
        return NULL;
    br_put_bytes(p, a->data, a->len);
    a->data = p;
    return p + a->len;
}

static int add(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
               const uint8_t *any, size_t any_len)
{
    size_t key_len = strlen(key);
    size_t inner = br_len_size(BR_KEYVALUE_KEY, key_len) + br_len_size(BR_KEYVALUE_VALUE, any_len);
    size_t total = br_len_size(field, inner);
    uint8_t *p = extend(arena, a, total);
    if (!p)
        return BR_ENOMEM;
    p = br_put_varint(p, BR_TAG(field, BR_WIRE_LEN));
    p = br_put_varint(p, inner);
    p = br_put_len(p, BR_KEYVALUE_KEY, key, key_len);
    (void)br_put_len(p, BR_KEYVALUE_VALUE, any, any_len);
    a->len += total;
    return 0;
}

int br_add_string(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
                  const void *value, size_t len)
{
    uint8_t *any = br_arena_alloc(arena, br_len_size(BR_VALUE_STRING, len));
    if (!any)
        return BR_ENOMEM;
    size_t any_len = (size_t)(br_put_len(any, BR_VALUE_STRING, value, len) - any);
    return add(arena, a, field, key, any, any_len);
}

int br_add_int(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
               int64_t value)
{
    uint8_t any[2 * BR_VARINT_MAX];
    uint8_t *p = br_put_varint(any, BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT));
    p = br_put_varint(p, (uint64_t)value);
    return add(arena, a, field, key, any, (size_t)(p - any));
}

/* Puts the `len` bytes of an ArrayValue at `p` + 2 * BR_VARINT_MAX into an AnyValue and that into
 * the addition. */
static int add_list(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
                    uint8_t *p, size_t len)
{
    size_t head = br_len_size(BR_VALUE_LIST, len) - len;
    uint8_t *any = p + 2 * BR_VARINT_MAX - head;
    br_put_varint(any + 1, len);
    *any = BR_TAG(BR_VALUE_LIST, BR_WIRE_LEN);
    return add(arena, a, field, key, any, head + len);
}

int br_add_ints(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
                const int64_t *values, size_t n)
{
    size_t most;
    if (!br_size_mul(n, 3 + BR_VARINT_MAX, &most) ||
        !br_size_add(most, (size_t)2 * BR_VARINT_MAX, &most))
        return BR_ENOMEM;
    uint8_t *p = br_arena_alloc(arena, most);
    if (!p)
        return BR_ENOMEM;
    uint8_t *list = p + 2 * BR_VARINT_MAX, *o = list;
    for (size_t i = 0; i < n; i++) {
        *o++ = BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN);
        *o++ = (uint8_t)(1 + br_varint_size((uint64_t)values[i]));
        *o++ = BR_TAG(BR_VALUE_INT, BR_WIRE_VARINT);
        o = br_put_varint(o, (uint64_t)values[i]);
    }
    return add_list(arena, a, field, key, p, (size_t)(o - list));
}

int br_add_texts(struct br_arena *arena, struct br_addition *a, uint32_t field, const char *key,
                 const struct br_addition *values, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += br_len_size(BR_LIST_VALUES, br_len_size(BR_VALUE_STRING, values[i].len));
    uint8_t *p = br_arena_alloc(arena, len + (size_t)2 * BR_VARINT_MAX);
    if (!p)
        return BR_ENOMEM;
    uint8_t *o = p + 2 * BR_VARINT_MAX;
    for (size_t i = 0; i < n; i++) {
        *o++ = BR_TAG(BR_LIST_VALUES, BR_WIRE_LEN);
        o = br_put_varint(o, br_len_size(BR_VALUE_STRING, values[i].len));
        o = br_put_len(o, BR_VALUE_STRING, values[i].data, values[i].len);
    }
    return add_list(arena, a, field, key, p, len);
}
