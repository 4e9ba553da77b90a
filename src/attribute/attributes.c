/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/attributes.h"

#include "base/bytes.h"
#include "base/err.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/steps.h"
#include "otlp/dictionary/additions.h"
#include "otlp/scan.h"
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

/* Concatenates the values of a field that occurs several times. In protobuf, the concatenated bytes
 * are equivalent to the repeated field. */
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

/* --- Attributes of samples and profiles ------------------------------------------------------- */

/* maximum size in bytes of a dictionary entry that is read again at each use; a longer entry is
 * read once per item */
#define SHORT 64

static struct br_attribute attributes_read_entry(const struct br_dictionary_view *view,
                                                 uint32_t index)
{
    const struct br_entry *entry = &view->tables[BR_TABLE_ATTRIBUTE][index];
    struct br_keyvalue kv;
    br_steps_add(entry->len);
    (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
    struct br_entry key = br_dictionary_string(view, (uint32_t)kv.key_index);
    struct br_attribute attribute = {.attribute = true,
                                     .entry = index,
                                     .key_string = (uint32_t)kv.key_index,
                                     .key = key.data,
                                     .key_len = key.len,
                                     .value = kv.value,
                                     .unit = (uint32_t)kv.unit};
    return attribute;
}

/* Returns the attribute of a long entry of the dictionary. Each long entry is read once per
 * item. Returns NULL if memory runs out. */
static const struct br_attribute *attributes_read_long_entry(struct br_value_memo *memo,
                                                             const struct br_dictionary_view *view,
                                                             uint32_t index)
{
    /* differs from all other keys of the map, which begin with the address of a value and so not
     * with 0 */
    const uintptr_t key[] = {0, index, 0};
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return NULL;
    struct br_attribute *attribute = br_map_get(memo->known, key, sizeof key);
    if (attribute)
        return attribute;
    attribute = br_arena_alloc(memo->arena, sizeof *attribute);
    if (attribute) {
        *attribute = attributes_read_entry(view, index);
        attribute->value = br_value_last(attribute->value);
    }
    return attribute && br_map_put(memo->known, key, sizeof key, attribute, NULL) != BR_ENOMEM
               ? attribute
               : NULL;
}

static bool attributes_add(struct br_attributes *attributes, const struct br_attribute *attribute)
{
    struct br_attribute *piece = attributes_append(attributes);
    if (piece)
        *piece = *attribute;
    return piece != NULL;
}

static bool attributes_add_entry(struct br_attributes *attributes,
                                 const struct br_dictionary_view *view, uint64_t index)
{
    if (index == 0 || index >= view->count[BR_TABLE_ATTRIBUTE])
        return true;
    if (!attributes->memo || view->tables[BR_TABLE_ATTRIBUTE][index].len <= SHORT) {
        const struct br_attribute a = attributes_read_entry(view, (uint32_t)index);
        return attributes_add(attributes, &a);
    }
    const struct br_attribute *a =
        attributes_read_long_entry(attributes->memo, view, (uint32_t)index);
    attributes->no_memory = attributes->no_memory || !a;
    return a && attributes_add(attributes, a);
}

bool br_sample_attributes_add(struct br_attributes *attributes,
                              const struct br_dictionary_view *view, uint32_t field,
                              const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = br_mem_end(body, len);
    struct br_field found;
    while (len && p < end && (p = br_scan(p, end, &found))) {
        if (found.number != field)
            continue;
        if (found.wire == BR_WIRE_VARINT && !attributes_add_entry(attributes, view, found.value))
            return false;
        uint64_t index;
        const uint8_t *q = found.wire == BR_WIRE_LEN ? found.data : p;
        while (q && q < p && (q = br_scan_varint(q, p, &index)))
            if (!attributes_add_entry(attributes, view, index))
                return false;
    }
    return true;
}

static bool attributes_is_number(struct br_value value)
{
    enum br_value_type type = br_any_read(value).type;
    return type == BR_VALUE_INT || type == BR_VALUE_DOUBLE;
}

uint32_t br_attribute_add_entry(const struct br_attribute *attribute,
                                struct br_additions *additions, struct br_arena *arena)
{
    uint32_t key = attribute->key_string;
    if (!key)
        key = br_additions_add(additions, BR_TABLE_STRING, attribute->key, attribute->key_len);
    uint8_t *entry = br_arena_alloc(arena, attribute->value.len + 6 * BR_VARINT_MAX);
    if (!entry) {
        additions->rc = br_arena_why(arena);
        return 0;
    }
    uint8_t *p = br_put_varint(entry, BR_TAG(BR_ATTRIBUTE_KEY, BR_WIRE_VARINT));
    p = br_put_varint(p, key);
    p = br_put_len(p, BR_ATTRIBUTE_VALUE, attribute->value.data, attribute->value.len);
    if (attribute->unit && attributes_is_number(attribute->value)) {
        p = br_put_varint(p, BR_TAG(BR_ATTRIBUTE_UNIT, BR_WIRE_VARINT));
        p = br_put_varint(p, attribute->unit);
    }
    return br_additions_add(additions, BR_TABLE_ATTRIBUTE, entry, (size_t)(p - entry));
}
