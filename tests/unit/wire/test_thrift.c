/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thrift's binary and compact protocols. Expected values are from apache/thrift doc/specs,
 * thrift-binary-protocol.md and thrift-compact-protocol.md.
 */
#include <string.h>

#include "base/mem.h"
#include "tests/support/test.h"
#include "wire/thrift.h"

#define TEXT(text) (const uint8_t *)(text), sizeof(text) - 1

struct bytes {
    const uint8_t *data;
    size_t len;
};

static struct br_thrift reader(enum br_thrift_protocol protocol, struct bytes bytes,
                               struct br_err *err)
{
    struct br_thrift t;
    br_thrift_init(&t, protocol, bytes.data, bytes.len, err);
    return t;
}

/* The same struct in both protocols. Its fields, by id: 1: i16 -2; 2: bool true; 3: string "ab";
 * 300: i64 5; 301: double 1.5; 302: byte -1. */
static const struct bytes structs[] = {
    [BR_THRIFT_BINARY] = {TEXT("\x06\0\x01\xff\xfe"
                               "\x02\0\x02\x01"
                               "\x0b\0\x03\0\0\0\x02"
                               "ab"
                               "\x0a\x01\x2c\0\0\0\0\0\0\0\x05"
                               "\x04\x01\x2d\x3f\xf8\0\0\0\0\0\0"
                               "\x03\x01\x2e\xff"
                               "\0")},
    [BR_THRIFT_COMPACT] = {TEXT("\x14\x03"
                                "\x11"
                                "\x18\x02"
                                "ab"
                                "\x06\xd8\x04\x0a"
                                "\x17\0\0\0\0\0\0\xf8\x3f"
                                "\x13\xff"
                                "\0")},
};

static void test_fields(void **state)
{
    (void)state;
    for (int p = BR_THRIFT_BINARY; p <= BR_THRIFT_COMPACT; p++) {
        struct br_err err = {0};
        struct br_thrift t = reader((enum br_thrift_protocol)p, structs[p], &err);
        struct br_thrift_field f = {0};
        int64_t number;
        uint64_t bits;
        const uint8_t *text;
        uint32_t len;
        double expected = 1.5;
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 1 && f.type == BR_THRIFT_I16);
        assert_int_equal(br_thrift_integer(&t, f.type, &number), 0);
        assert_int_equal(number, -2);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 2 && f.type == BR_THRIFT_BOOL && f.is_true);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 3 && f.type == BR_THRIFT_STRING);
        assert_int_equal(br_thrift_string(&t, &text, &len), 0);
        assert_true(len == 2 && memcmp(text, "ab", 2) == 0);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 300 && f.type == BR_THRIFT_I64);
        assert_int_equal(br_thrift_integer(&t, f.type, &number), 0);
        assert_int_equal(number, 5);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 301 && f.type == BR_THRIFT_DOUBLE);
        assert_int_equal(br_thrift_double(&t, &bits), 0);
        assert_memory_equal(&bits, &expected, sizeof bits);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_true(f.id == 302 && f.type == BR_THRIFT_BYTE);
        assert_int_equal(br_thrift_integer(&t, f.type, &number), 0);
        assert_int_equal(number, -1);
        assert_int_equal(br_thrift_next(&t, &f), 0);
        assert_int_equal(f.type, BR_THRIFT_STOP);
        assert_ptr_equal(t.at, t.end);
        assert_int_equal(err.code, 0);
    }
}

/* A whole struct can be skipped. Skipping any shorter prefix of the struct fails. */
static void test_skipping(void **state)
{
    (void)state;
    for (int p = BR_THRIFT_BINARY; p <= BR_THRIFT_COMPACT; p++) {
        struct br_err err = {0};
        struct br_thrift t = reader((enum br_thrift_protocol)p, structs[p], &err);
        assert_int_equal(br_thrift_skip(&t, BR_THRIFT_STRUCT), 0);
        assert_ptr_equal(t.at, t.end);
        for (size_t len = 0; len < structs[p].len; len++) {
            const struct bytes part = {structs[p].data, len};
            t = reader((enum br_thrift_protocol)p, part, &err);
            assert_int_equal(br_thrift_skip(&t, BR_THRIFT_STRUCT), BR_EINVAL);
        }
        assert_non_null(strstr(err.text, "not Thrift: "));
    }
}

static void test_collections(void **state)
{
    static const struct {
        enum br_thrift_protocol protocol;
        uint8_t type;
        int rc;
        struct bytes bytes;
    } cases[] = {
        /* list of two i32; set of two booleans; map of a string to lists; empty map */
        {BR_THRIFT_BINARY, BR_THRIFT_LIST, 0, {TEXT("\x08\0\0\0\x02\0\0\0\x01\0\0\0\x02")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_LIST, 0, {TEXT("\x25\x02\x04")}},
        {BR_THRIFT_BINARY, BR_THRIFT_SET, 0, {TEXT("\x02\0\0\0\x02\x01\0")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_SET, 0, {TEXT("\x21\x01\x02")}},
        {BR_THRIFT_BINARY,
         BR_THRIFT_MAP,
         0,
         {TEXT("\x0b\x0f\0\0\0\x01\0\0\0\x01k\x03\0\0\0\x01\x07")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_MAP, 0, {TEXT("\x01\x89\x01k\x13\x07")}},
        {BR_THRIFT_BINARY, BR_THRIFT_MAP, 0, {TEXT("\x0b\x0b\0\0\0\0")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_MAP, 0, {TEXT("\0")}},
        /* in the compact protocol, the size of a long list is a varint after the first byte */
        {BR_THRIFT_COMPACT, BR_THRIFT_LIST, 0, {TEXT("\xf3\x0f\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1")}},
        /* more elements than bytes; a negative size; unknown types */
        {BR_THRIFT_BINARY, BR_THRIFT_LIST, BR_EINVAL, {TEXT("\x0c\x7f\xff\xff\xff\0")}},
        {BR_THRIFT_BINARY, BR_THRIFT_LIST, BR_EINVAL, {TEXT("\x0c\xff\xff\xff\xff\0")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_LIST, BR_EINVAL, {TEXT("\xfc\xff\xff\xff\xff\x0f\0")}},
        {BR_THRIFT_COMPACT, BR_THRIFT_LIST, BR_EINVAL, {TEXT("\x2d\0\0")}},
        {BR_THRIFT_BINARY, BR_THRIFT_LIST, BR_EINVAL, {TEXT("\x01\0\0\0\x01\0")}},
        {BR_THRIFT_BINARY, BR_THRIFT_STRING, BR_EINVAL, {TEXT("\xff\xff\xff\xff")}},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_err err = {0};
        struct br_thrift t = reader(cases[i].protocol, cases[i].bytes, &err);
        assert_int_equal(br_thrift_skip(&t, cases[i].type), cases[i].rc);
        if (!cases[i].rc)
            assert_ptr_equal(t.at, t.end);
    }
}

/* Lists of lists may nest BR_THRIFT_DEPTH levels. */
static void test_depth(void **state)
{
    uint8_t bytes[BR_THRIFT_DEPTH + 1];
    (void)state;
    memset(bytes, 0x19, sizeof bytes); /* a list of one list */
    for (size_t depth = 1; depth <= BR_THRIFT_DEPTH + 1; depth++) {
        struct br_err err = {0};
        const struct bytes part = {bytes + sizeof bytes - depth, depth};
        bytes[sizeof bytes - 1] = 0x03; /* an empty list of bytes */
        struct br_thrift t = reader(BR_THRIFT_COMPACT, part, &err);
        assert_int_equal(br_thrift_skip(&t, BR_THRIFT_LIST),
                         depth <= BR_THRIFT_DEPTH ? 0 : BR_EINVAL);
    }
}

static void test_messages(void **state)
{
    static const struct {
        enum br_thrift_protocol protocol;
        int rc;
        struct bytes bytes;
    } cases[] = {
        {BR_THRIFT_BINARY, 0, {TEXT("\x80\x01\0\x01\0\0\0\x02go\0\0\0\x07")}},
        {BR_THRIFT_BINARY, 0, {TEXT("\x80\x01\0\x04\0\0\0\x02go\0\0\0\x07")}},
        /* the older form of a message, without a version */
        {BR_THRIFT_BINARY, 0, {TEXT("\0\0\0\x02go\x01\0\0\0\x07")}},
        {BR_THRIFT_COMPACT, 0, {TEXT("\x82\x21\x07\x02go")}},
        {BR_THRIFT_COMPACT, 0, {TEXT("\x82\x81\xff\x01\x02go")}},
        /* a reply instead of a call, another version, and another protocol */
        {BR_THRIFT_BINARY, BR_EINVAL, {TEXT("\x80\x01\0\x02\0\0\0\x02go\0\0\0\x07")}},
        {BR_THRIFT_BINARY, BR_EINVAL, {TEXT("\x80\x02\0\x01\0\0\0\x02go\0\0\0\x07")}},
        {BR_THRIFT_COMPACT, BR_EINVAL, {TEXT("\x82\x41\x07\x02go")}},
        {BR_THRIFT_COMPACT, BR_EINVAL, {TEXT("\x82\x22\x07\x02go")}},
        {BR_THRIFT_COMPACT, BR_EINVAL, {TEXT("\x80\x01\0\x01\0\0\0\x02go\0\0\0\x07")}},
        {BR_THRIFT_COMPACT, BR_EINVAL, {TEXT("\x82\x21\x07\x03go")}},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_err err = {0};
        struct br_thrift_message message = {0};
        struct br_thrift t = reader(cases[i].protocol, cases[i].bytes, &err);
        assert_int_equal(br_thrift_message(&t, &message), cases[i].rc);
        if (cases[i].rc)
            continue;
        assert_ptr_equal(t.at, t.end);
        assert_true(message.name_len == 2 && memcmp(message.name, "go", 2) == 0);
    }
}

SUITE(thrift)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),      cmocka_unit_test(test_skipping),
        cmocka_unit_test(test_collections), cmocka_unit_test(test_depth),
        cmocka_unit_test(test_messages),
    };
    return RUN(tests, NULL, NULL);
}
