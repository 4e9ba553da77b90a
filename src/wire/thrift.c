/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/thrift.h"

#include <string.h>

#include "wire/protobuf.h"

#define STRICT_VERSION 0x8001u /* upper half of the first number of a binary message */
#define COMPACT_ID 0x82u
#define COMPACT_VERSION 1u
#define CALL 1
#define ONEWAY 4

static int thrift_fail(const struct br_thrift *thrift, const char *what)
{
    return br_err_set(thrift->err, BR_EINVAL, "not Thrift: %s at byte %zu", what,
                      (size_t)(thrift->at - thrift->begin));
}

void br_thrift_init(struct br_thrift *thrift, enum br_thrift_protocol protocol, const uint8_t *data,
                    size_t len, struct br_err *err)
{
    *thrift = (struct br_thrift){
        .protocol = protocol, .begin = data, .at = data, .end = data + len, .err = err};
}

/* --- Numbers ---------------------------------------------------------------------------------- */

static size_t thrift_left(const struct br_thrift *thrift)
{
    return (size_t)(thrift->end - thrift->at);
}

/* Reads a big-endian number of `size` bytes, which is sign-extended. */
static int thrift_fixed(struct br_thrift *thrift, size_t size, int64_t *ret)
{
    uint64_t value = 0;
    if (thrift_left(thrift) < size)
        return thrift_fail(thrift, "a truncated number");
    for (size_t i = 0; i < size; i++)
        value = value << 8 | *thrift->at++;
    unsigned unused = (unsigned)(64 - 8 * size);
    *ret = (int64_t)(value << unused) >> unused;
    return 0;
}

static int thrift_byte(struct br_thrift *thrift, uint8_t *ret)
{
    if (!thrift_left(thrift))
        return thrift_fail(thrift, "a truncated value");
    *ret = *thrift->at++;
    return 0;
}

static int thrift_varint(struct br_thrift *thrift, uint64_t *ret)
{
    const uint8_t *next = br_varint(thrift->at, thrift->end, ret);
    if (!next)
        return thrift_fail(thrift, "an invalid number");
    thrift->at = next;
    return 0;
}

static int thrift_zigzag(struct br_thrift *thrift, int64_t *ret)
{
    uint64_t value;
    int rc = thrift_varint(thrift, &value);
    if (!rc)
        *ret = (int64_t)(value >> 1 ^ (0 - (value & 1)));
    return rc;
}

int br_thrift_integer(struct br_thrift *thrift, uint8_t type, int64_t *ret)
{
    size_t size = 8;
    if (type == BR_THRIFT_BYTE)
        size = 1;
    else if (type == BR_THRIFT_I16)
        size = 2;
    else if (type == BR_THRIFT_I32)
        size = 4;
    return thrift->protocol == BR_THRIFT_BINARY || size == 1 ? thrift_fixed(thrift, size, ret)
                                                             : thrift_zigzag(thrift, ret);
}

int br_thrift_double(struct br_thrift *thrift, uint64_t *ret)
{
    if (thrift_left(thrift) < 8)
        return thrift_fail(thrift, "a truncated number");
    *ret = br_load64(thrift->at);
    if (thrift->protocol == BR_THRIFT_BINARY)
        *ret = __builtin_bswap64(*ret);
    thrift->at += 8;
    return 0;
}

/* Reads the number of bytes of a string or of elements of a collection. Rejects a number that
 * exceeds the remaining bytes, because each element needs at least one byte. */
static int thrift_size(struct br_thrift *thrift, uint64_t *ret)
{
    int64_t fixed = 0;
    int rc = thrift->protocol == BR_THRIFT_BINARY ? thrift_fixed(thrift, 4, &fixed)
                                                  : thrift_varint(thrift, ret);
    if (thrift->protocol == BR_THRIFT_BINARY)
        *ret = (uint64_t)fixed;
    if (!rc && *ret > thrift_left(thrift))
        rc = thrift_fail(thrift, "a size that exceeds the message");
    return rc;
}

int br_thrift_string(struct br_thrift *thrift, const uint8_t **ret, uint32_t *ret_len)
{
    uint64_t len = 0;
    int rc = thrift_size(thrift, &len);
    if (!rc && len > UINT32_MAX)
        rc = thrift_fail(thrift, "a string that is too long");
    if (rc)
        return rc;
    *ret = thrift->at;
    *ret_len = (uint32_t)len;
    thrift->at += len;
    return 0;
}

/* --- Structs and collections ------------------------------------------------------------------ */

/* Converts a type of the compact protocol. Both booleans are BOOL. Returns false if the type is
 * unknown. */
static bool thrift_type_of(unsigned compact, uint8_t *ret)
{
    static const uint8_t types[16] = {
        [1] = BR_THRIFT_BOOL,   [2] = BR_THRIFT_BOOL,   [3] = BR_THRIFT_BYTE,
        [4] = BR_THRIFT_I16,    [5] = BR_THRIFT_I32,    [6] = BR_THRIFT_I64,
        [7] = BR_THRIFT_DOUBLE, [8] = BR_THRIFT_STRING, [9] = BR_THRIFT_LIST,
        [10] = BR_THRIFT_SET,   [11] = BR_THRIFT_MAP,   [12] = BR_THRIFT_STRUCT};
    *ret = types[compact & 15];
    return *ret != BR_THRIFT_STOP;
}

static bool thrift_type_is_known(uint8_t type)
{
    const unsigned types = 1u << BR_THRIFT_BOOL | 1u << BR_THRIFT_BYTE | 1u << BR_THRIFT_DOUBLE |
                           1u << BR_THRIFT_I16 | 1u << BR_THRIFT_I32 | 1u << BR_THRIFT_I64 |
                           1u << BR_THRIFT_STRING | 1u << BR_THRIFT_STRUCT | 1u << BR_THRIFT_MAP |
                           1u << BR_THRIFT_SET | 1u << BR_THRIFT_LIST;
    return type <= BR_THRIFT_LIST && (types >> type & 1);
}

static int thrift_next_binary(struct br_thrift *thrift, struct br_thrift_field *field)
{
    int64_t id = 0;
    uint8_t value = 0;
    int rc = thrift_byte(thrift, &field->type);
    if (rc || field->type == BR_THRIFT_STOP)
        return rc;
    if (!thrift_type_is_known(field->type))
        return thrift_fail(thrift, "an unknown type of a field");
    rc = thrift_fixed(thrift, 2, &id);
    if (!rc && field->type == BR_THRIFT_BOOL)
        rc = thrift_byte(thrift, &value);
    field->id = (int16_t)id;
    field->is_true = value != 0;
    return rc;
}

static int thrift_next_compact(struct br_thrift *thrift, struct br_thrift_field *field)
{
    uint8_t head = 0;
    int64_t id = field->id;
    int rc = thrift_byte(thrift, &head);
    field->type = BR_THRIFT_STOP;
    if (rc || head == 0)
        return rc;
    if (!thrift_type_of(head, &field->type))
        return thrift_fail(thrift, "an unknown type of a field");
    if (head >> 4)
        id += head >> 4;
    else
        rc = thrift_zigzag(thrift, &id);
    field->id = (int16_t)id;
    field->is_true = (head & 15) == 1;
    return rc;
}

int br_thrift_next(struct br_thrift *thrift, struct br_thrift_field *field)
{
    return thrift->protocol == BR_THRIFT_BINARY ? thrift_next_binary(thrift, field)
                                                : thrift_next_compact(thrift, field);
}

static int thrift_list_compact(struct br_thrift *thrift, uint8_t *ret_type, uint64_t *ret_count)
{
    uint8_t head = 0;
    int rc = thrift_byte(thrift, &head);
    if (rc)
        return rc;
    if (!thrift_type_of(head, ret_type))
        return thrift_fail(thrift, "an unknown type of elements");
    *ret_count = head >> 4;
    if (*ret_count == 15)
        return thrift_size(thrift, ret_count);
    return *ret_count > thrift_left(thrift) ? thrift_fail(thrift, "a size that exceeds the message")
                                            : 0;
}

int br_thrift_list(struct br_thrift *thrift, uint8_t *ret_type, uint32_t *ret_count)
{
    uint64_t count = 0;
    int rc;
    if (thrift->protocol == BR_THRIFT_COMPACT) {
        rc = thrift_list_compact(thrift, ret_type, &count);
    } else {
        rc = thrift_byte(thrift, ret_type);
        if (!rc)
            rc = thrift_size(thrift, &count);
        if (!rc && count && !thrift_type_is_known(*ret_type))
            rc = thrift_fail(thrift, "an unknown type of elements");
    }
    if (!rc && count > UINT32_MAX)
        rc = thrift_fail(thrift, "a list that is too long");
    if (!rc)
        *ret_count = (uint32_t)count;
    return rc;
}

/* --- Skipping --------------------------------------------------------------------------------- */

/* An open struct or collection. */
struct level {
    bool is_struct;
    struct br_thrift_field field; /* for a struct: the field that was read last */
    /* for a map: the types of the keys and values; for a list: the element type, twice */
    uint8_t types[2];
    uint64_t n_left; /* number of keys and values, or of elements, that follow */
};

static int thrift_open_map(struct br_thrift *thrift, struct level *level)
{
    uint64_t count = 0;
    uint8_t types = 0;
    int rc = 0;
    if (thrift->protocol == BR_THRIFT_BINARY) {
        rc = thrift_byte(thrift, &level->types[0]);
        if (!rc)
            rc = thrift_byte(thrift, &level->types[1]);
    }
    if (!rc)
        rc = thrift_size(thrift, &count);
    if (!rc && thrift->protocol == BR_THRIFT_COMPACT && count) {
        rc = thrift_byte(thrift, &types);
        if (!rc && (!thrift_type_of(types >> 4u, &level->types[0]) ||
                    !thrift_type_of(types, &level->types[1])))
            rc = thrift_fail(thrift, "an unknown type of elements");
    }
    level->n_left = 2 * count;
    return rc;
}

static int thrift_open(struct br_thrift *thrift, uint8_t type, struct level *level)
{
    uint32_t count = 0;
    *level = (struct level){.is_struct = type == BR_THRIFT_STRUCT};
    if (type == BR_THRIFT_MAP)
        return thrift_open_map(thrift, level);
    if (type == BR_THRIFT_STRUCT)
        return 0;
    int rc = br_thrift_list(thrift, &level->types[0], &count);
    level->types[1] = level->types[0];
    level->n_left = count;
    return rc;
}

static int thrift_skip_scalar(struct br_thrift *thrift, uint8_t type)
{
    const uint8_t *text;
    uint32_t len;
    uint64_t bits;
    int64_t value;
    uint8_t byte;
    switch (type) {
    case BR_THRIFT_BOOL:
        return thrift_byte(thrift, &byte);
    case BR_THRIFT_DOUBLE:
        return br_thrift_double(thrift, &bits);
    case BR_THRIFT_STRING:
        return br_thrift_string(thrift, &text, &len);
    case BR_THRIFT_BYTE:
    case BR_THRIFT_I16:
    case BR_THRIFT_I32:
    case BR_THRIFT_I64:
        return br_thrift_integer(thrift, type, &value);
    default:
        return thrift_fail(thrift, "an unknown type");
    }
}

static bool thrift_is_nested(uint8_t type)
{
    return type >= BR_THRIFT_STRUCT && type <= BR_THRIFT_LIST;
}

/* Sets `*ret` to the type of the next value in the level, or to STOP if the level ends. Skips BOOL
 * fields of a struct, whose values br_thrift_next has already read. */
static int thrift_step(struct br_thrift *thrift, struct level *level, uint8_t *ret)
{
    *ret = BR_THRIFT_STOP;
    if (!level->is_struct) {
        if (level->n_left)
            *ret = level->types[level->n_left-- & 1];
        return 0;
    }
    int rc;
    do
        rc = br_thrift_next(thrift, &level->field);
    while (!rc && level->field.type == BR_THRIFT_BOOL);
    *ret = level->field.type;
    return rc;
}

int br_thrift_skip(struct br_thrift *thrift, uint8_t type)
{
    struct level levels[BR_THRIFT_DEPTH];
    unsigned depth = 0;
    int rc = 0;
    if (type == BR_THRIFT_BOOL || type == BR_THRIFT_STOP)
        return 0;
    do {
        if (type == BR_THRIFT_STOP)
            depth--;
        else if (thrift_is_nested(type) && depth == BR_THRIFT_DEPTH)
            rc = thrift_fail(thrift, "nested too deep");
        else if (thrift_is_nested(type))
            rc = thrift_open(thrift, type, &levels[depth++]);
        else
            rc = thrift_skip_scalar(thrift, type);
        if (!rc && depth)
            rc = thrift_step(thrift, &levels[depth - 1], &type);
    } while (!rc && depth);
    return rc;
}

/* --- Messages --------------------------------------------------------------------------------- */

static int thrift_message_compact(struct br_thrift *thrift, struct br_thrift_message *ret,
                                  uint8_t *ret_type)
{
    uint8_t id = 0, head = 0;
    uint64_t sequence;
    uint32_t len = 0;
    int rc = thrift_byte(thrift, &id);
    if (!rc)
        rc = thrift_byte(thrift, &head);
    if (!rc && (id != COMPACT_ID || (head & 31) != COMPACT_VERSION))
        rc = thrift_fail(thrift, "the header of another protocol");
    *ret_type = head >> 5;
    if (!rc)
        rc = thrift_varint(thrift, &sequence);
    if (!rc)
        rc = br_thrift_string(thrift, &ret->name, &len);
    ret->name_len = len;
    return rc;
}

/* Reads the header in either form. The newer form begins with a version, and the older form begins
 * with the name. */
static int thrift_message_binary(struct br_thrift *thrift, struct br_thrift_message *ret,
                                 uint8_t *ret_type)
{
    int64_t first = 0, sequence;
    uint32_t len = 0;
    int rc = thrift_fixed(thrift, 4, &first);
    bool strict = !rc && first < 0;
    if (strict && ((uint32_t)first >> 16) != STRICT_VERSION)
        return thrift_fail(thrift, "the header of another protocol");
    if (!rc && !strict)
        thrift->at -= 4;
    if (!rc)
        rc = br_thrift_string(thrift, &ret->name, &len);
    *ret_type = (uint8_t)first;
    if (!rc && !strict)
        rc = thrift_byte(thrift, ret_type);
    if (!rc)
        rc = thrift_fixed(thrift, 4, &sequence);
    ret->name_len = len;
    return rc;
}

int br_thrift_message(struct br_thrift *thrift, struct br_thrift_message *ret)
{
    uint8_t type = 0;
    int rc = thrift->protocol == BR_THRIFT_BINARY ? thrift_message_binary(thrift, ret, &type)
                                                  : thrift_message_compact(thrift, ret, &type);
    if (!rc && type != CALL && type != ONEWAY)
        rc = thrift_fail(thrift, "a message that is not a call");
    return rc;
}
