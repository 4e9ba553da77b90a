/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/keyvalue.h"

#include "otlp/scan.h"

/* The wire type of each of them. */
static bool keyvalue_type_fits(const struct br_field *f)
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
    return f->number < sizeof wires && wires[f->number] == f->wire;
}

struct br_any br_any_read(struct br_value v)
{
    struct br_any any = {.type = BR_VALUE_EMPTY};
    const uint8_t *p = v.data, *end = v.len ? p + v.len : p;
    struct br_field f;
    while (p < end) {
        p = br_scan(p, end, &f);
        if (!p)
            return (struct br_any){.type = BR_VALUE_EMPTY};
        if (!keyvalue_type_fits(&f))
            continue;
        any = (struct br_any){.type = BR_VALUE_EMPTY};
        if (f.number == BR_VALUE_STRINDEX) {
            any.reference = f.value;
            continue;
        }
        any.type = (enum br_value_type)f.number;
        any.number = f.value;
        any.data = f.wire == BR_WIRE_LEN ? f.data : NULL;
        any.len = f.wire == BR_WIRE_LEN ? (size_t)f.value : 0;
    }
    return any;
}

static inline void keyvalue_take_value(struct br_keyvalue *kv, const struct br_field *f)
{
    if (f->value == 0 && kv->value.data)
        return;
    kv->several = kv->value.len > 0;
    kv->value = (struct br_value){f->data, (size_t)f->value};
}

bool br_keyvalue_read(const uint8_t *data, size_t len, struct br_keyvalue *ret)
{
    const uint8_t *p = data, *end = len ? p + len : p;
    struct br_field f;
    *ret = (struct br_keyvalue){0};
    while (p < end) {
        p = br_scan(p, end, &f);
        if (!p)
            return false;
        switch (br_scan_tag(&f)) {
        case BR_SCAN_LEN(BR_KEYVALUE_KEY):
            ret->key = f.data;
            ret->key_len = (size_t)f.value;
            break;
        case BR_SCAN_LEN(BR_KEYVALUE_VALUE):
            keyvalue_take_value(ret, &f);
            break;
        case BR_SCAN_VARINT(BR_KEYVALUE_KEY_STRINDEX):
            ret->key_index = f.value;
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
    struct br_field f;
    *ret = (struct br_keyvalue){0};
    while (p < end) {
        p = br_scan(p, end, &f);
        if (!p)
            return false;
        switch (br_scan_tag(&f)) {
        case BR_SCAN_VARINT(BR_ATTRIBUTE_KEY):
            ret->key_index = f.value;
            break;
        case BR_SCAN_LEN(BR_ATTRIBUTE_VALUE):
            keyvalue_take_value(ret, &f);
            break;
        case BR_SCAN_VARINT(BR_ATTRIBUTE_UNIT):
            ret->unit = f.value;
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
    struct br_field f;
    while (p && p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(field))
            continue;
        (void)br_keyvalue_read(f.data, (size_t)f.value, ret);
        return p;
    }
    return NULL;
}

const uint8_t *br_value_next(const uint8_t *p, const uint8_t *end, struct br_value *ret)
{
    struct br_field f;
    while (p && p < end && (p = br_scan(p, end, &f))) {
        if (br_scan_tag(&f) != BR_SCAN_LEN(BR_LIST_VALUES))
            continue;
        *ret = (struct br_value){f.data, (size_t)f.value};
        return p;
    }
    return NULL;
}
