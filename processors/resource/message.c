/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/resource/message.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "wire/protobuf.h"

enum { ATTRIBUTES = 1 };     /* Resource */
enum { KEY = 1, VALUE = 2 }; /* KeyValue */

static bool same(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && (!a_len || memcmp(a, b, a_len) == 0);
}

static struct resource_piece *append(struct resource_message *m)
{
    int rc = br_grow(&m->pieces, &m->cap, (size_t)m->n + 1, sizeof *m->pieces, RESOURCE_PIECES_MAX);
    if (rc) {
        m->too_many = rc == BR_EFULL;
        m->no_memory = !m->too_many;
        return NULL;
    }
    m->pieces[m->n] = (struct resource_piece){0};
    return &m->pieces[m->n++];
}

/* Values that lie apart are one message, which their concatenation is. */
static bool join_values(struct resource_message *m, struct resource_value *v,
                        const struct br_field *f)
{
    uint8_t *joined = br_arena_alloc(m->arena, v->len + (size_t)f->value);
    m->no_memory = m->no_memory || !joined;
    if (!joined)
        return false;
    br_put_bytes(br_put_bytes(joined, v->data, v->len), f->data, (size_t)f->value);
    *v = (struct resource_value){joined, v->len + (size_t)f->value};
    return true;
}

static bool read_attribute(struct resource_message *m, struct resource_piece *piece,
                           const uint8_t *p, const uint8_t *end)
{
    struct br_field f;
    piece->attribute = true;
    while (p < end && (p = br_field_next(p, end, &f))) {
        if (f.wire != BR_WIRE_LEN)
            continue;
        if (f.number == KEY) {
            piece->key = f.data;
            piece->key_len = (size_t)f.value;
        } else if (f.number == VALUE && piece->value.len == 0) {
            piece->value = (struct resource_value){f.data, (size_t)f.value};
        } else if (f.number == VALUE && !join_values(m, &piece->value, &f)) {
            return false;
        }
    }
    return true;
}

bool resource_message_read(struct resource_message *m, const uint8_t *data, size_t len)
{
    const uint8_t *p = data, *end = data + len;
    m->n = 0;
    m->no_memory = m->too_many = false;
    while (len && p < end) {
        struct br_field f;
        const uint8_t *at = p;
        p = br_field_next(p, end, &f);
        if (!p)
            break;
        bool attribute = f.number == ATTRIBUTES && f.wire == BR_WIRE_LEN;
        if (!attribute && m->n && !m->pieces[m->n - 1].attribute) {
            m->pieces[m->n - 1].raw_len += (size_t)(p - at);
            continue;
        }
        struct resource_piece *piece = append(m);
        if (!piece)
            return false;
        piece->raw = at;
        piece->raw_len = (size_t)(p - at);
        if (attribute && !read_attribute(m, piece, f.data, p))
            return false;
    }
    return true;
}

void resource_message_release(struct resource_message *m)
{
    br_free(m->pieces);
    m->pieces = NULL;
    m->n = m->cap = 0;
}

struct resource_piece *resource_message_find(const struct resource_message *m, const void *key,
                                             size_t len)
{
    for (uint32_t i = 0; i < m->n; i++) {
        struct resource_piece *p = &m->pieces[i];
        if (p->attribute && !p->deleted && same(p->key, p->key_len, key, len))
            return p;
    }
    return NULL;
}

void resource_piece_set(struct resource_piece *p, struct resource_value v)
{
    if (same(p->value.data, p->value.len, v.data, v.len))
        return;
    p->value = v;
    p->edited = true;
}

void resource_message_put(struct resource_message *m, const void *key, size_t key_len,
                          struct resource_value v)
{
    struct resource_piece *p = resource_message_find(m, key, key_len);
    if (p) {
        resource_piece_set(p, v);
        return;
    }
    p = append(m);
    if (p)
        *p = (struct resource_piece){
            .key = key, .key_len = key_len, .value = v, .attribute = true, .edited = true};
}

static size_t body_size(const struct resource_piece *p)
{
    return br_len_size(KEY, p->key_len) + br_len_size(VALUE, p->value.len);
}

size_t resource_message_size(const struct resource_message *m)
{
    size_t size = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct resource_piece *p = &m->pieces[i];
        if (!p->deleted)
            size += p->edited ? br_len_size(ATTRIBUTES, body_size(p)) : p->raw_len;
    }
    return size;
}

uint8_t *resource_message_write(const struct resource_message *m, uint8_t *out)
{
    for (uint32_t i = 0; i < m->n; i++) {
        const struct resource_piece *p = &m->pieces[i];
        if (p->deleted)
            continue;
        if (!p->edited) {
            out = br_put_bytes(out, p->raw, p->raw_len);
            continue;
        }
        out = br_put_varint(out, BR_TAG(ATTRIBUTES, BR_WIRE_LEN));
        out = br_put_varint(out, body_size(p));
        out = br_put_len(out, KEY, p->key, p->key_len);
        out = br_put_len(out, VALUE, p->value.data, p->value.len);
    }
    return out;
}
