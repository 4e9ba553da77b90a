/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/sample.h"

#include "base/err.h"
#include "base/map.h"
#include "base/steps.h"
#include "otlp/scan.h"

#define SHORT 64 /* entries longer than this are read once per item, in bytes */

static struct br_attribute sample_attributes_read_entry(const struct br_dictionary_view *view,
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

/* Returns an attribute of a long entry, which is read once per item. Returns NULL if memory runs
 * out. */
static const struct br_attribute *
sample_attributes_read_long_entry(struct br_value_memo *memo, const struct br_dictionary_view *view,
                                  uint32_t index)
{
    const uintptr_t key[] = {0, index, 0}; /* a key that cannot be the address of a value */
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return NULL;
    struct br_attribute *attribute = br_map_get(memo->known, key, sizeof key);
    if (attribute)
        return attribute;
    attribute = br_arena_alloc(memo->arena, sizeof *attribute);
    if (attribute) {
        *attribute = sample_attributes_read_entry(view, index);
        attribute->value = br_value_last(attribute->value);
    }
    return attribute && br_map_put(memo->known, key, sizeof key, attribute, NULL) != BR_ENOMEM
               ? attribute
               : NULL;
}

static bool sample_attributes_add(struct br_attributes *attributes,
                                  const struct br_dictionary_view *view, uint64_t index)
{
    if (index == 0 || index >= view->count[BR_TABLE_ATTRIBUTE])
        return true;
    if (!attributes->memo || view->tables[BR_TABLE_ATTRIBUTE][index].len <= SHORT) {
        const struct br_attribute a = sample_attributes_read_entry(view, (uint32_t)index);
        return br_attributes_add(attributes, &a);
    }
    const struct br_attribute *a =
        sample_attributes_read_long_entry(attributes->memo, view, (uint32_t)index);
    attributes->no_memory = attributes->no_memory || !a;
    return a && br_attributes_add(attributes, a);
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
        if (found.wire == BR_WIRE_VARINT && !sample_attributes_add(attributes, view, found.value))
            return false;
        uint64_t index;
        const uint8_t *q = found.wire == BR_WIRE_LEN ? found.data : p;
        while (q && q < p && (q = br_scan_varint(q, p, &index)))
            if (!sample_attributes_add(attributes, view, index))
                return false;
    }
    return true;
}
