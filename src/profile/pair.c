/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pair.h"

#include "base/bytes.h"

bool br_text_is(struct br_entry entry, const char *text)
{
    return br_bytes_are(entry.data, entry.len, text);
}

const uint8_t *br_pair_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                            struct br_pair *ret)
{
    struct br_keyvalue kv;
    p = br_keyvalue_next(p, end, field, &kv);
    if (p)
        *ret = (struct br_pair){{kv.key, (uint32_t)kv.key_len}, br_any_read(kv.value)};
    return p;
}

bool br_pair_of(const struct br_dictionary_view *view, uint32_t index, struct br_pair *ret,
                uint32_t *ret_key, uint32_t *ret_unit)
{
    if (index == 0 || index >= view->count[BR_TABLE_ATTRIBUTE])
        return false;
    const struct br_entry *entry = &view->tables[BR_TABLE_ATTRIBUTE][index];
    struct br_keyvalue kv;
    (void)br_keyvalue_read_entry(entry->data, entry->len, &kv);
    ret->value = br_any_read(kv.value);
    ret->key = br_dictionary_string(view, (uint32_t)kv.key_index);
    if (ret_key)
        *ret_key = (uint32_t)kv.key_index;
    if (ret_unit)
        *ret_unit = (uint32_t)kv.unit;
    return ret->key.len > 0;
}

const uint8_t *br_list_next(const uint8_t *p, const uint8_t *end, struct br_any *ret)
{
    struct br_value element;
    p = br_value_next(p, end, &element);
    if (p)
        *ret = br_any_read(element);
    return p;
}
