/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/keyvalue.h"

#include "otlp/scan.h"

/* Returns true if the field is a field of AnyValue and has the right wire type. */
static bool keyvalue_type_fits(const struct br_field *field)
{
    static const uint8_t wires[] = {0,
                                    [BR_VALUE_STRING] = BR_WIRE_LEN,
                                    [BR_VALUE_BOOL] = BR_WIRE_VARINT,
                                    [BR_VALUE_INT] = BR_WIRE_VARINT,
                                    [BR_VALUE_DOUBLE] = BR_WIRE_I64,
                                    [BR_VALUE_LIST] = BR_WIRE_LEN,
                                    [BR_VALUE_MAP] = BR_WIRE_LEN,
                                    [BR_VALUE_BYTES] = BR_WIRE_LEN,
                                    [BR_VALUE_STRINDEX] = BR_WIRE_VARINT};
    return field->number < sizeof wires && wires[field->number] == field->wire;
}

struct br_any br_any_read(struct br_value value)
{
    struct br_any any = {.type = BR_VALUE_EMPTY};
    const uint8_t *p = value.data, *end = value.len ? p + value.len : p;
    struct br_field field;
    while (p < end) {
        p = br_scan(p, end, &field);
        if (!p)
            return (struct br_any){.type = BR_VALUE_EMPTY};
        if (!keyvalue_type_fits(&field))
            continue;
        any = (struct br_any){.type = BR_VALUE_EMPTY};
        if (field.number == BR_VALUE_STRINDEX) {
            any.reference = field.value;
            continue;
        }
        any.type = (enum br_value_type)field.number;
        any.number = field.value;
        any.data = field.wire == BR_WIRE_LEN ? field.data : NULL;
        any.len = field.wire == BR_WIRE_LEN ? (size_t)field.value : 0;
    }
    return any;
}

struct br_value br_value_last(struct br_value value)
{
    struct br_value last = {0};
    const uint8_t *p = value.data, *end = value.len ? p + value.len : p;
    struct br_field field;
    while (p < end) {
        const uint8_t *at = p;
        p = br_scan(p, end, &field);
        if (!p)
            return (struct br_value){0};
        if (keyvalue_type_fits(&field))
            last = (struct br_value){at, (size_t)(p - at)};
    }
    return last;
}

static inline void keyvalue_set_value(struct br_keyvalue *kv, const struct br_field *field)
{
    if (field->value == 0 && kv->value.data)
        return;
    kv->several = kv->value.len > 0;
    kv->value = (struct br_value){field->data, (size_t)field->value};
}

bool br_keyvalue_read(const uint8_t *data, size_t len, struct br_keyvalue *ret)
{
    const uint8_t *p = data, *end = len ? p + len : p;
    struct br_field field;
    if (__builtin_expect(br_keyvalue_read_short(data, len, ret), 1))
        return true;
    *ret = (struct br_keyvalue){0};
    while (p < end) {
        p = br_scan(p, end, &field);
        if (!p)
            return false;
        switch (br_scan_tag(&field)) {
        case BR_SCAN_LEN(BR_KEYVALUE_KEY):
            ret->key = field.data;
            ret->key_len = (size_t)field.value;
            break;
        case BR_SCAN_LEN(BR_KEYVALUE_VALUE):
            keyvalue_set_value(ret, &field);
            break;
        case BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX):
            ret->key_index = field.value;
            break;
        default:
            break;
        }
    }
    return true;
}

bool br_keyvalue_read_entry(const uint8_t *data, size_t len, struct br_keyvalue *ret)
{
    const uint8_t *p = data, *end = len ? p + len : p;
    struct br_field field;
    *ret = (struct br_keyvalue){0};
    while (p < end) {
        p = br_scan(p, end, &field);
        if (!p)
            return false;
        switch (br_scan_tag(&field)) {
        case BR_SCAN_VARINT(BR_ATTRIBUTE_KEY):
            ret->key_index = field.value;
            break;
        case BR_SCAN_LEN(BR_ATTRIBUTE_VALUE):
            keyvalue_set_value(ret, &field);
            break;
        case BR_SCAN_VARINT(BR_ATTRIBUTE_UNIT):
            ret->unit = field.value;
            break;
        default:
            break;
        }
    }
    return true;
}

const uint8_t *br_keyvalue_next(const uint8_t *p, const uint8_t *end, uint32_t field,
                                struct br_keyvalue *ret)
{
    struct br_field found;
    while (p && p < end && (p = br_scan(p, end, &found))) {
        if (br_scan_tag(&found) != BR_SCAN_LEN(field))
            continue;
        (void)br_keyvalue_read(found.data, (size_t)found.value, ret);
        return p;
    }
    return NULL;
}

const uint8_t *br_value_next(const uint8_t *p, const uint8_t *end, struct br_value *ret)
{
    struct br_field field;
    while (p && p < end && (p = br_scan(p, end, &field))) {
        if (br_scan_tag(&field) != BR_SCAN_LEN(BR_LIST_VALUES))
            continue;
        *ret = (struct br_value){field.data, (size_t)field.value};
        return p;
    }
    return NULL;
}
