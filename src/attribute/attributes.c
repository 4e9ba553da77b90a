/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/attributes.h"

#include "base/bytes.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "wire/protobuf.h"

static struct br_attribute *attributes_append(struct br_attributes *attributes)
{
    int rc = br_grow(&attributes->pieces, &attributes->cap, (size_t)attributes->count + 1,
                     sizeof *attributes->pieces, BR_ATTRIBUTES_MAX);
    if (rc) {
        attributes->too_many = rc == BR_EFULL;
        attributes->no_memory = !attributes->too_many;
        return NULL;
    }
    attributes->pieces[attributes->count] = (struct br_attribute){0};
    return &attributes->pieces[attributes->count++];
}

/* Joins the parts of a value that occurs in several pieces. Concatenated, they form one message. */
static bool attributes_join_values(struct br_attributes *attributes, struct br_value *ret,
                                   const uint8_t *p, size_t len)
{
    const uint8_t *end = br_mem_end(p, len);
    uint8_t *joined = br_arena_alloc(attributes->arena, len), *out = joined;
    struct br_field field;
    attributes->no_memory = attributes->no_memory || !joined;
    if (!joined)
        return false;
    while (p < end && (p = br_field_next(p, end, &field)))
        if (field.number == BR_KEYVALUE_VALUE && field.wire == BR_WIRE_LEN)
            out = br_put_bytes(out, field.data, (size_t)field.value);
    *ret = (struct br_value){joined, (size_t)(out - joined)};
    return true;
}

static bool attributes_read_one(struct br_attributes *attributes, struct br_attribute *piece,
                                const uint8_t *data, size_t len)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read(data, len, &kv);
    piece->attribute = true;
    piece->key = kv.key;
    piece->key_len = kv.key_len;
    piece->value = kv.value;
    return !kv.several || attributes_join_values(attributes, &piece->value, data, len);
}

void br_value_memo_release(struct br_value_memo *memo)
{
    br_map_free(memo->known, NULL);
    memo->known = NULL;
}

void br_attributes_clear(struct br_attributes *attributes)
{
    attributes->count = 0;
    attributes->no_memory = attributes->too_many = false;
}

bool br_attributes_add(struct br_attributes *attributes, const struct br_attribute *attribute)
{
    struct br_attribute *piece = attributes_append(attributes);
    if (piece)
        *piece = *attribute;
    return piece != NULL;
}

bool br_attributes_read(struct br_attributes *attributes, uint32_t field, const uint8_t *data,
                        size_t len)
{
    const uint8_t *p = data, *end = br_mem_end(data, len);
    br_attributes_clear(attributes);
    br_steps_add(len);
    attributes->field = field;
    while (len && p < end) {
        struct br_field found;
        const uint8_t *at = p;
        p = br_field_next(p, end, &found);
        if (!p)
            break;
        bool attribute = found.number == field && found.wire == BR_WIRE_LEN;
        if (!attribute && attributes->count &&
            !attributes->pieces[attributes->count - 1].attribute) {
            attributes->pieces[attributes->count - 1].raw_len += (size_t)(p - at);
            continue;
        }
        struct br_attribute *piece = attributes_append(attributes);
        if (!piece)
            return false;
        piece->raw = at;
        piece->raw_len = (size_t)(p - at);
        if (attribute && !attributes_read_one(attributes, piece, found.data, (size_t)found.value))
            return false;
    }
    return true;
}

void br_attributes_release(struct br_attributes *attributes)
{
    br_free(attributes->pieces);
    attributes->pieces = NULL;
    attributes->count = attributes->cap = 0;
}

struct br_attribute *br_attributes_find(const struct br_attributes *attributes, const void *key,
                                        size_t len)
{
    br_steps_add(attributes->count);
    for (uint32_t i = 0; i < attributes->count; i++) {
        struct br_attribute *p = &attributes->pieces[i];
        if (p->attribute && !p->deleted && br_bytes_equal(p->key, p->key_len, key, len))
            return p;
    }
    return NULL;
}

void br_attribute_set(struct br_attribute *attribute, struct br_value value)
{
    if (br_bytes_equal(attribute->value.data, attribute->value.len, value.data, value.len))
        return;
    attribute->value = value;
    attribute->edited = true;
}

void br_attributes_put(struct br_attributes *attributes, const void *key, size_t key_len,
                       struct br_value value)
{
    struct br_attribute *p = br_attributes_find(attributes, key, key_len);
    if (p) {
        br_attribute_set(p, value);
        return;
    }
    p = attributes_append(attributes);
    if (p)
        *p = (struct br_attribute){
            .key = key, .key_len = key_len, .value = value, .attribute = true, .edited = true};
}

bool br_attributes_changed(const struct br_attributes *attributes)
{
    for (uint32_t i = 0; i < attributes->count; i++)
        if (attributes->pieces[i].edited || attributes->pieces[i].deleted)
            return true;
    return false;
}

static size_t attributes_body_size(const struct br_attribute *attribute)
{
    return br_len_size(BR_KEYVALUE_KEY, attribute->key_len) +
           br_len_size(BR_KEYVALUE_VALUE, attribute->value.len);
}

size_t br_attributes_size(const struct br_attributes *attributes)
{
    size_t size = 0;
    for (uint32_t i = 0; i < attributes->count; i++) {
        const struct br_attribute *p = &attributes->pieces[i];
        if (!p->deleted)
            size +=
                p->edited ? br_len_size(attributes->field, attributes_body_size(p)) : p->raw_len;
    }
    return size;
}

uint8_t *br_attributes_write(const struct br_attributes *attributes, uint8_t *out)
{
    const uint8_t *begin = out;
    for (uint32_t i = 0; i < attributes->count; i++) {
        const struct br_attribute *p = &attributes->pieces[i];
        if (p->deleted)
            continue;
        if (!p->edited) {
            out = br_put_bytes(out, p->raw, p->raw_len);
            continue;
        }
        out = br_put_varint(out, BR_TAG(attributes->field, BR_WIRE_LEN));
        out = br_put_varint(out, attributes_body_size(p));
        out = br_put_len(out, BR_KEYVALUE_KEY, p->key, p->key_len);
        out = br_put_len(out, BR_KEYVALUE_VALUE, p->value.data, p->value.len);
    }
    br_steps_add((size_t)(out - begin));
    return out;
}
