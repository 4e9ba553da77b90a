/* SPDX-License-Identifier: Apache-2.0 */
#include "otlp/scan.h"
#include "receivers/pprof/delta.h"

/* Types of the fields of a message, as bit sets of field numbers. */
struct shape {
    uint32_t varints;
    uint32_t lists; /* field numbers of repeated varints, packed or not */
    uint32_t texts;
    const struct shape *nested[12]; /* shapes of nested messages, by field number */
};

#define BITS(first, last) ((UINT32_C(2) << (last)) - (UINT32_C(1) << (first)))

static const struct shape value_type = {.varints = BITS(1, 2)}, label = {.varints = BITS(1, 4)},
                          mapping = {.varints = BITS(1, 10)}, line = {.varints = BITS(1, 3)},
                          function = {.varints = BITS(1, 5)};
static const struct shape location = {.varints = BITS(1, 3) | BITS(5, 5), .nested = {[4] = &line}};
static const struct shape sample = {.lists = BITS(1, 2), .nested = {[3] = &label}};
static const struct shape profile = {.varints = BITS(7, 10) | BITS(12, 12) | BITS(14, 15),
                                     .lists = BITS(13, 13),
                                     .texts = BITS(6, 6),
                                     .nested = {[1] = &value_type,
                                                [2] = &sample,
                                                [3] = &mapping,
                                                [4] = &location,
                                                [5] = &function,
                                                [11] = &value_type}};

static bool delta_check_is_list(const struct br_field *field)
{
    const uint8_t *at = field->data, *end = at + field->value;
    uint64_t value;
    while (at && at < end)
        at = br_scan_varint(at, end, &value);
    return at != NULL;
}

/* Returns true if a field has the type given by the schema. Nested messages are not checked
 * here. */
static bool delta_check_is_of_kind(const struct shape *shape, const struct br_field *field)
{
    uint32_t bit = field->number < 32 ? UINT32_C(1) << field->number : 0;
    if (shape->varints & bit)
        return field->wire == BR_WIRE_VARINT;
    if (shape->lists & bit)
        return field->wire == BR_WIRE_VARINT ||
               (field->wire == BR_WIRE_LEN && delta_check_is_list(field));
    return !(shape->texts & bit) || field->wire == BR_WIRE_LEN;
}

static const struct shape *delta_check_nested_in(const struct shape *shape,
                                                 const struct br_field *field)
{
    return field->number < sizeof shape->nested / sizeof *shape->nested
               ? shape->nested[field->number]
               : NULL;
}

/* Checks the fields of a message that has no nested messages. */
static bool delta_check_is_flat(const struct shape *shape, const uint8_t *at, const uint8_t *end)
{
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at || !delta_check_is_of_kind(shape, &field))
            return false;
    }
    return true;
}

/* Checks a message whose nested messages do not contain nested messages themselves. */
static bool delta_check_is_nested(const struct shape *shape, const uint8_t *at, const uint8_t *end)
{
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at || !delta_check_is_of_kind(shape, &field))
            return false;
        const struct shape *inner = delta_check_nested_in(shape, &field);
        if (inner && (field.wire != BR_WIRE_LEN ||
                      !delta_check_is_flat(inner, field.data, field.data + field.value)))
            return false;
    }
    return true;
}

bool pprof_delta_check(const uint8_t *data, size_t len)
{
    const uint8_t *at = data, *end = br_mem_end(data, len);
    struct br_field field;
    while (at < end) {
        at = br_scan(at, end, &field);
        if (!at || !delta_check_is_of_kind(&profile, &field))
            return false;
        const struct shape *inner = delta_check_nested_in(&profile, &field);
        if (inner && (field.wire != BR_WIRE_LEN ||
                      !delta_check_is_nested(inner, field.data, field.data + field.value)))
            return false;
    }
    return true;
}
