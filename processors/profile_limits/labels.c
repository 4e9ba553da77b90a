/* SPDX-License-Identifier: Apache-2.0 */
#include "processors/profile_limits/labels.h"

#include <string.h>

#include "otlp/keyvalue.h"
#include "wire/protobuf.h"

struct label {
    uint64_t key, unit;
    struct br_entry text;
    bool is_text;
};

static struct br_entry string_at(const struct limits_edit *e, uint64_t i)
{
    return br_dictionary_string(&e->view, i < UINT32_MAX ? (uint32_t)i : UINT32_MAX);
}

static void read_label(const struct limits_edit *e, struct br_entry entry, struct label *ret)
{
    struct br_keyvalue kv;
    (void)br_keyvalue_read_entry(entry.data, entry.len, &kv);
    struct br_any any = br_any_read(kv.value);
    *ret = (struct label){.key = kv.key_index, .unit = kv.unit};
    ret->is_text = any.type == BR_VALUE_STRING || any.reference;
    if (any.reference)
        ret->text = string_at(e, any.reference);
    else if (ret->is_text)
        ret->text = (struct br_entry){any.data, (uint32_t)any.len};
}

static bool is_unlimited(const struct limits_labels *l, struct br_entry key)
{
    for (size_t i = 0; i < l->unlimited->n; i++) {
        const char *name = l->unlimited->v[i] ? l->unlimited->v[i] : "";
        if (strlen(name) == key.len &&
            memcmp(name, key.len ? key.data : (const void *)"", key.len) == 0)
            return true;
    }
    return false;
}

static size_t put_varint_field(uint8_t *out, uint32_t field, uint64_t value)
{
    uint8_t *p = br_put_varint(out, BR_TAG(field, BR_WIRE_VARINT));
    return (size_t)(br_put_varint(p, value) - out);
}

static void set_other(struct limits_edit *e, uint32_t i, const struct label *label, uint32_t other)
{
    uint8_t value[2 * BR_VARINT_MAX], entry[8 * BR_VARINT_MAX];
    size_t len = put_varint_field(entry, BR_ATTRIBUTE_KEY, label->key);
    size_t value_len = put_varint_field(value, BR_VALUE_STRINDEX, other);
    len = (size_t)(br_put_len(entry + len, BR_ATTRIBUTE_VALUE, value, value_len) - entry);
    if (label->unit)
        len += put_varint_field(entry + len, BR_ATTRIBUTE_UNIT, label->unit);
    limits_edit_replace(e, BR_TABLE_ATTRIBUTE, i, entry, len);
}

uint32_t limits_cut_labels(struct limits_edit *e, const struct limits_labels *l, const bool *used)
{
    uint32_t other = 0, n_changed = 0;
    for (uint32_t i = 1; i < e->view.n[BR_TABLE_ATTRIBUTE] && !e->rc; i++) {
        struct label label;
        if (!used[i])
            continue;
        read_label(e, e->view.tables[BR_TABLE_ATTRIBUTE][i], &label);
        struct br_entry key = string_at(e, label.key);
        if (!label.is_text || is_unlimited(l, key) ||
            limits_values_admit(l->values, key.data, key.len, label.text.data, label.text.len,
                                l->max_values))
            continue;
        if (!other)
            other = limits_edit_add(e, BR_TABLE_STRING, LIMITS_OTHER, strlen(LIMITS_OTHER));
        set_other(e, i, &label, other);
        n_changed++;
    }
    return n_changed;
}
