/* SPDX-License-Identifier: Apache-2.0 */
#include "profile/pair.h"

#include <string.h>

#include "otlp/scan.h"

bool br_text_is(struct br_entry e, const char *text)
{
    return e.len == strlen(text) && (e.len == 0 || memcmp(e.data, text, e.len) == 0);
}

static struct br_any any_of(const struct br_field *f)
{
    return br_any_read((struct br_value){f->data, (size_t)f->value});
}

const uint8_t *br_pair_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                            struct br_pair *ret)
{
    struct br_field f, g;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != field || f.wire != BR_WIRE_LEN)
            continue;
        const uint8_t *q = f.data;
        *ret = (struct br_pair){.value.type = BR_VALUE_EMPTY};
        while (q < p && (q = br_field_next(q, p, &g))) {
            if (g.number == 1 && g.wire == BR_WIRE_LEN)
                ret->key = (struct br_entry){g.data, (uint32_t)g.value};
            else if (g.number == 2 && g.wire == BR_WIRE_LEN)
                ret->value = any_of(&g);
        }
        return p;
    }
    return NULL;
}

bool br_pair_of(const struct br_dictionary_view *view, uint32_t i, struct br_pair *ret,
                uint32_t *ret_key, uint32_t *ret_unit)
{
    if (i == 0 || i >= view->n[BR_TABLE_ATTRIBUTE])
        return false;
    const struct br_entry *e = &view->tables[BR_TABLE_ATTRIBUTE][i];
    const uint8_t *p = e->data, *end = p + e->len;
    struct br_field f;
    uint64_t key = 0, unit = 0;
    ret->value = (struct br_any){.type = BR_VALUE_EMPTY};
    while (p < end && (p = br_scan(p, end, &f))) {
        if (f.number == 1 && f.wire == BR_WIRE_VARINT)
            key = f.value;
        else if (f.number == 2 && f.wire == BR_WIRE_LEN)
            ret->value = any_of(&f);
        else if (f.number == 3 && f.wire == BR_WIRE_VARINT)
            unit = f.value;
    }
    ret->key = br_dictionary_string(view, (uint32_t)key);
    if (ret_key)
        *ret_key = (uint32_t)key;
    if (ret_unit)
        *ret_unit = (uint32_t)unit;
    return ret->key.len > 0;
}

const uint8_t *br_list_next(const uint8_t *p, const uint8_t *end, struct br_any *ret)
{
    struct br_field f;
    while (p && p < end && (p = br_field_next(p, end, &f))) {
        if (f.number != 1 || f.wire != BR_WIRE_LEN)
            continue;
        *ret = any_of(&f);
        return p;
    }
    return NULL;
}
