/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads Thrift's binary and compact protocols in place (apache/thrift doc/specs,
 * thrift-binary-protocol.md and thrift-compact-protocol.md). Both protocols are read with the same
 * functions:
 *
 *     struct br_thrift_field field = {0};
 *     while (!(rc = br_thrift_next(t, &field)) && field.type != BR_THRIFT_STOP)
 *         if (field.id == 1 && field.type == BR_THRIFT_I64)
 *             rc = br_thrift_integer(t, field.type, &value);
 *         else
 *             rc = br_thrift_skip(t, field.type);
 *
 * All functions return 0 or BR_EINVAL, with a message in the reader's `err`. The time is linear in
 * the number of bytes: the reader rejects a collection with more elements than bytes that follow.
 * Strings point into the input.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define BR_THRIFT_DEPTH 16 /* largest number of nested structs and collections that are skipped */

enum br_thrift_protocol { BR_THRIFT_BINARY, BR_THRIFT_COMPACT };

/* Types of values, with the numbers of the binary protocol. */
enum br_thrift_type {
    BR_THRIFT_STOP = 0,
    BR_THRIFT_BOOL = 2,
    BR_THRIFT_BYTE = 3,
    BR_THRIFT_DOUBLE = 4,
    BR_THRIFT_I16 = 6,
    BR_THRIFT_I32 = 8,
    BR_THRIFT_I64 = 10,
    BR_THRIFT_STRING = 11,
    BR_THRIFT_STRUCT = 12,
    BR_THRIFT_MAP = 13,
    BR_THRIFT_SET = 14,
    BR_THRIFT_LIST = 15,
};

struct br_thrift {
    enum br_thrift_protocol protocol;
    const uint8_t *begin, *at, *end;
    struct br_err *err;
};

/* A field of a struct. Zeroed before the first field; the compact protocol computes an id from that
 * of the previous field. */
struct br_thrift_field {
    int16_t id;
    uint8_t type; /* an enum br_thrift_type; STOP at the end of the struct */
    bool is_true; /* BOOL: the value, which br_thrift_next has already read */
};

/* The header of a call. */
struct br_thrift_message {
    const uint8_t *name;
    size_t name_len;
};

/* Begins to read `len` bytes at `data`, which are borrowed. */
void br_thrift_init(struct br_thrift *thrift, enum br_thrift_protocol protocol, const uint8_t *data,
                    size_t len, struct br_err *err);

/* Reads the header of a call: a message of the type CALL or ONEWAY. The arguments follow as a
 * struct. */
int br_thrift_message(struct br_thrift *thrift, struct br_thrift_message *ret);

/* Reads the header of the next field of a struct, and the value of a BOOL. */
int br_thrift_next(struct br_thrift *thrift, struct br_thrift_field *field);

/* Reads the header of a LIST or SET. `*ret_type` is the type of its `*ret_count` elements. An
 * element of type BOOL has one byte. */
int br_thrift_list(struct br_thrift *thrift, uint8_t *ret_type, uint32_t *ret_count);

/* Reads a value of the type BYTE, I16, I32 or I64. */
int br_thrift_integer(struct br_thrift *thrift, uint8_t type, int64_t *ret);

/* Reads the bits of a DOUBLE. */
int br_thrift_double(struct br_thrift *thrift, uint64_t *ret);

/* Reads a STRING, which may also be binary. */
int br_thrift_string(struct br_thrift *thrift, const uint8_t **ret, uint32_t *ret_len);

/* Skips the value of a field, or an element of a list if the type is not BOOL. */
int br_thrift_skip(struct br_thrift *thrift, uint8_t type);
