/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "tests/support/fake_sink.h"
#include "tests/support/test.h"
#include "tests/support/wire.h"
#include "wire/protobuf.h"

/* Overlong varints are legal, up to ten bytes; the tenth may only be 0 or 1. */
static void varints(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        uint64_t value;
        size_t used; /* 0: an error */
    } cases[] = {
        {"\x00", 1, 0, 1},
        {"\x7f", 1, 127, 1},
        {"\x80\x01", 2, 128, 2},
        {"\xac\x02", 2, 300, 2}, /* the encoding guide's example */
        {"\x80\x00", 2, 0, 2},
        {"\x85\x80\x80\x80\x00", 5, 5, 5},
        {"\x81\x80\x80\x80\x80\x80\x80\x80\x80\x00", 10, 1, 10},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10, UINT64_MAX, 10},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 10, 1ull << 63, 10},
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10, 0, 0},
        {"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00", 11, 0, 0},
        {"\x80", 1, 0, 0},
        {"\xff\xff\xff", 3, 0, 0},
        {"", 0, 0, 0},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const uint8_t *p = (const uint8_t *)cases[i].bytes, *end = p + cases[i].len;
        uint64_t v = 77;
        const uint8_t *after = br_varint(p, end, &v);
        assert_ptr_equal(after, cases[i].used ? p + cases[i].used : NULL);
        if (after)
            assert_true(v == cases[i].value);
        assert_ptr_equal(br_varint_slow(p, end, &v), after);
    }
}

static void varints_of_every_length_are_read_back(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits <= 64; bits++) {
        for (int d = -1; d <= 1; d++) {
            uint64_t v = (bits < 64 ? UINT64_C(1) << bits : UINT64_C(0)) + (uint64_t)d, got = 0;
            uint8_t bytes[BR_VARINT_MAX];
            uint8_t *end = br_put_varint(bytes, v);
            /* a varint has one more byte for every seven bits */
            size_t expected = 1;
            for (uint64_t rest = v >> 7; rest; rest >>= 7)
                expected++;
            assert_int_equal(end - bytes, expected);
            assert_int_equal(br_varint_size(v), expected);
            uint8_t eight[8] = {0};
            memcpy(eight, bytes, expected < 8 ? expected : 8);
            if (expected <= 8)
                assert_int_equal(br_varint_bytes(v), br_load64(eight));
            if (v < 1 << 14)
                assert_int_equal(br_varint_short((uint32_t)v), br_load64(eight));
            assert_ptr_equal(br_varint(bytes, end, &got), end);
            assert_true(got == v);
            assert_null(br_varint(bytes, end - 1, &got));
        }
    }
}

static void fields_of_every_wire_type(void **state)
{
    (void)state;
    struct wire w = {0};
    struct br_field f;
    wire_varint(&w, 1, 300);
    wire_i64(&w, 2, 0x0102030405060708u);
    wire_len(&w, 3, "abc", 3);
    wire_i32(&w, 4, 0x01020304u);
    wire_varint(&w, (1u << 29) - 1, 1);
    const uint8_t *end = w.data + w.len, *p = w.data;
    p = br_field_next(p, end, &f);
    assert_true(f.number == 1 && f.wire == BR_WIRE_VARINT && f.value == 300 && f.at == w.data);
    p = br_field_next(p, end, &f);
    assert_true(f.number == 2 && f.wire == BR_WIRE_I64 && f.value == 0x0102030405060708u);
    p = br_field_next(p, end, &f);
    assert_true(f.number == 3 && f.wire == BR_WIRE_LEN && f.value == 3);
    assert_memory_equal(f.data, "abc", 3);
    assert_ptr_equal(p, f.data + 3);
    p = br_field_next(p, end, &f);
    assert_true(f.number == 4 && f.wire == BR_WIRE_I32 && f.value == 0x01020304u);
    p = br_field_next(p, end, &f);
    assert_true(f.number == (1u << 29) - 1 && f.value == 1);
    assert_ptr_equal(p, end);
    wire_free(&w);
}

static void malformed_fields(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"", 0},
        {"\x00\x01", 2},                 /* number 0 */
        {"\x02\x00", 2},                 /* number 0, LEN */
        {"\x80\x80\x80\x80\x10\x00", 6}, /* number 2^29 */
        {"\x0b\x0c", 2},                 /* a group */
        {"\x0c", 1},                     /* the end of a group */
        {"\x0e\x00", 2},
        {"\x0f\x00", 2}, /* wire types 6 and 7 */
        {"\x08", 1},
        {"\x08\x80", 2}, /* truncated */
        {"\x09\x01\x02\x03\x04\x05\x06\x07", 8},
        {"\x0d\x01\x02\x03", 4},
        {"\x0a", 1},
        {"\x0a\x02x", 3},
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", 12}, /* a length of 2^64 - 1 */
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_field f;
        const uint8_t *p = (const uint8_t *)cases[i].bytes;
        assert_null(br_field_next(p, p + cases[i].len, &f));
    }
}

static void lengths_are_written_as_counted(void **state)
{
    (void)state;
    static uint8_t out[70000], data[65536];
    static const size_t lens[] = {0, 1, 127, 128, 16383, 16384, 65536};
    static const uint32_t fields[] = {1, 15, 16, 2047, 2048, (1u << 29) - 1};
    for (size_t i = 0; i < BR_COUNT(lens); i++) {
        for (size_t k = 0; k < BR_COUNT(fields); k++) {
            struct br_field f;
            uint8_t *end = br_put_len(out, fields[k], data, lens[i]);
            assert_int_equal(end - out, br_len_size(fields[k], lens[i]));
            assert_ptr_equal(br_field_next(out, end, &f), end);
            assert_true(f.number == fields[k] && f.value == lens[i]);
        }
    }
}

/* For any bytes, the reader stays inside their bounds and moves forward. */
static void any_bytes_are_read_within_their_bounds(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int round = 0; round < 200000; round++) {
        uint8_t bytes[24];
        size_t len = fake_random(&seed) % sizeof bytes;
        /* allocated with exactly the length, so that a sanitizer detects a read beyond the end */
        uint8_t *exact = malloc(len ? len : 1);
        for (size_t i = 0; i < len; i++)
            exact[i] = (uint8_t)(fake_random(&seed) >> (round & 1 ? 0 : 5));
        const uint8_t *p = exact, *end = exact + len;
        struct br_field f;
        while (p < end) {
            const uint8_t *next = br_field_next(p, end, &f);
            if (!next)
                break;
            assert_true(next > p && next <= end);
            p = next;
        }
        free(exact);
    }
}

SUITE(protobuf)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(varints),
        cmocka_unit_test(varints_of_every_length_are_read_back),
        cmocka_unit_test(fields_of_every_wire_type),
        cmocka_unit_test(malformed_fields),
        cmocka_unit_test(lengths_are_written_as_counted),
        cmocka_unit_test(any_bytes_are_read_within_their_bounds),
    };
    return RUN(tests, NULL, NULL);
}
