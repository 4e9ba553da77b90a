/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/attributes.h"

#include <string.h>

#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "wire/protobuf.h"

static bool same(const void *a, size_t a_len, const void *b, size_t b_len)
{
    return a_len == b_len && (!a_len || a == b || memcmp(a, b, a_len) == 0);
}

static struct br_attribute *append(struct br_attributes *m)
{
    int rc = br_grow(&m->pieces, &m->cap, (size_t)m->n + 1, sizeof *m->pieces, BR_ATTRIBUTES_MAX);
    if (rc) {
        m->too_many = rc == BR_EFULL;
        m->no_memory = !m->too_many;
        return NULL;
    }
    m->pieces[m->n] = (struct br_attribute){0};
    return &m->pieces[m->n++];
}

/* Values that lie apart are one message, which their concatenation is. */
static bool join_values(struct br_attributes *m, struct br_value *ret, const uint8_t *p, size_t len)
{
    const uint8_t *end = p + len;
    uint8_t *joined = br_arena_alloc(m->arena, len), *out = joined;
    struct br_field f;
    m->no_memory = m->no_memory || !joined;
    if (!joined)
        return false;
    while (p < end && (p = br_field_next(p, end, &f)))
        if (f.number == BR_KEYVALUE_VALUE && f.wire == BR_WIRE_LEN)
            out = br_put_bytes(out, f.data, (size_t)f.value);
    *ret = (struct br_value){joined, (size_t)(out - joined)};
    return true;
}

static bool read_attribute(struct br_attributes *m, struct br_attribute *piece, const uint8_t *data,
                           size_t len)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(data, len, &kv);
    piece->attribute = true;
    piece->key = kv.key;
    piece->key_len = kv.key_len;
    piece->value = kv.value;
    return !kv.several || join_values(m, &piece->value, data, len);
}

void br_value_memo_release(struct br_value_memo *memo)
{
    br_map_free(memo->known, NULL);
    memo->known = NULL;
}

void br_attributes_clear(struct br_attributes *m)
{
    m->n = 0;
    m->no_memory = m->too_many = false;
}

bool br_attributes_add(struct br_attributes *m, const struct br_attribute *attribute)
{
    struct br_attribute *piece = append(m);
    if (piece)
        *piece = *attribute;
    return piece != NULL;
}

bool br_attributes_read(struct br_attributes *m, uint32_t field, const uint8_t *data, size_t len)
{
    const uint8_t *p = data, *end = data + len;
    br_attributes_clear(m);
    br_steps_add(len);
    m->field = field;
    while (len && p < end) {
        struct br_field f;
        const uint8_t *at = p;
        p = br_field_next(p, end, &f);
        if (!p)
            break;
        bool attribute = f.number == field && f.wire == BR_WIRE_LEN;
        if (!attribute && m->n && !m->pieces[m->n - 1].attribute) {
            m->pieces[m->n - 1].raw_len += (size_t)(p - at);
            continue;
        }
        struct br_attribute *piece = append(m);
        if (!piece)
            return false;
        piece->raw = at;
        piece->raw_len = (size_t)(p - at);
        if (attribute && !read_attribute(m, piece, f.data, (size_t)f.value))
            return false;
    }
    return true;
}

void br_attributes_release(struct br_attributes *m)
{
    br_free(m->pieces);
    m->pieces = NULL;
    m->n = m->cap = 0;
}

struct br_attribute *br_attributes_find(const struct br_attributes *m, const void *key, size_t len)
{
    br_steps_add(m->n);
    for (uint32_t i = 0; i < m->n; i++) {
        struct br_attribute *p = &m->pieces[i];
        if (p->attribute && !p->deleted && same(p->key, p->key_len, key, len))
            return p;
    }
    return NULL;
}

void br_attribute_set(struct br_attribute *p, struct br_value v)
{
    if (same(p->value.data, p->value.len, v.data, v.len))
        return;
    p->value = v;
    p->edited = true;
}

void br_attributes_put(struct br_attributes *m, const void *key, size_t key_len, struct br_value v)
{
    struct br_attribute *p = br_attributes_find(m, key, key_len);
    if (p) {
        br_attribute_set(p, v);
        return;
    }
    p = append(m);
    if (p)
        *p = (struct br_attribute){
            .key = key, .key_len = key_len, .value = v, .attribute = true, .edited = true};
}

bool br_attributes_changed(const struct br_attributes *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->pieces[i].edited || m->pieces[i].deleted)
            return true;
    return false;
}

static size_t body_size(const struct br_attribute *p)
{
    return br_len_size(BR_KEYVALUE_KEY, p->key_len) + br_len_size(BR_KEYVALUE_VALUE, p->value.len);
}

size_t br_attributes_size(const struct br_attributes *m)
{
    size_t size = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct br_attribute *p = &m->pieces[i];
        if (!p->deleted)
            size += p->edited ? br_len_size(m->field, body_size(p)) : p->raw_len;
    }
    return size;
}

uint8_t *br_attributes_write(const struct br_attributes *m, uint8_t *out)
{
    const uint8_t *begin = out;
    for (uint32_t i = 0; i < m->n; i++) {
        const struct br_attribute *p = &m->pieces[i];
        if (p->deleted)
            continue;
        if (!p->edited) {
            out = br_put_bytes(out, p->raw, p->raw_len);
            continue;
        }
        out = br_put_varint(out, BR_TAG(m->field, BR_WIRE_LEN));
        out = br_put_varint(out, body_size(p));
        out = br_put_len(out, BR_KEYVALUE_KEY, p->key, p->key_len);
        out = br_put_len(out, BR_KEYVALUE_VALUE, p->value.data, p->value.len);
    }
    br_steps_add((size_t)(out - begin));
    return out;
}
