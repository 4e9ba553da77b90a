/* SPDX-License-Identifier: Apache-2.0 */
#include "attribute/sample.h"

#include "base/err.h"
#include "base/map.h"
#include "base/steps.h"
#include "otlp/scan.h"

#define SHORT 64 /* bytes of an entry that are read again each time */

static struct br_attribute read_entry(const struct br_dictionary_view *view, uint32_t index)
{
    const struct br_entry *e = &view->tables[BR_TABLE_ATTRIBUTE][index];
    struct br_keyvalue kv;
    br_steps_add(e->len);
    (void)br_keyvalue_read_entry(e->data, e->len, &kv);
    struct br_entry key = br_dictionary_string(view, (uint32_t)kv.key_index);
    struct br_attribute a = {.attribute = true,
                             .entry = index,
                             .key_string = (uint32_t)kv.key_index,
                             .key = key.data,
                             .key_len = key.len,
                             .value = kv.value,
                             .unit = (uint32_t)kv.unit};
    return a;
}

/* A long entry, read once for an item; NULL without memory. */
static const struct br_attribute *read_long_entry(struct br_value_memo *memo,
                                                  const struct br_dictionary_view *view,
                                                  uint32_t index)
{
    const uintptr_t key[] = {0, index, 0}; /* no value lies there */
    if (!memo->known && !(memo->known = br_map_new(BR_VALUE_MEMO_MAX)))
        return NULL;
    struct br_attribute *a = br_map_get(memo->known, key, sizeof key);
    if (a)
        return a;
    a = br_arena_alloc(memo->arena, sizeof *a);
    if (a)
        *a = read_entry(view, index);
    return a && br_map_put(memo->known, key, sizeof key, a, NULL) != BR_ENOMEM ? a : NULL;
}

static bool add(struct br_attributes *m, const struct br_dictionary_view *view, uint64_t index)
{
    if (index == 0 || index >= view->n[BR_TABLE_ATTRIBUTE])
        return true;
    if (!m->memo || view->tables[BR_TABLE_ATTRIBUTE][index].len <= SHORT) {
        const struct br_attribute a = read_entry(view, (uint32_t)index);
        return br_attributes_add(m, &a);
    }
    const struct br_attribute *a = read_long_entry(m->memo, view, (uint32_t)index);
    m->no_memory = m->no_memory || !a;
    return a && br_attributes_add(m, a);
}

bool br_sample_attributes_add(struct br_attributes *m, const struct br_dictionary_view *view,
                              uint32_t field, const uint8_t *body, size_t len)
{
    const uint8_t *p = body, *end = body + len;
    struct br_field f;
    while (len && p < end && (p = br_scan(p, end, &f))) {
        if (f.number != field)
            continue;
        if (f.wire == BR_WIRE_VARINT && !add(m, view, f.value))
            return false;
        uint64_t index;
        const uint8_t *q = f.wire == BR_WIRE_LEN ? f.data : p;
        while (q && q < p && (q = br_scan_varint(q, p, &index)))
            if (!add(m, view, index))
                return false;
    }
    return true;
}
