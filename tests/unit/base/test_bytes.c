/* SPDX-License-Identifier: Apache-2.0 */
#include "base/bytes.h"
#include "tests/support/test.h"

static void bytes_are_compared_with_bytes_and_texts(void **state)
{
    (void)state;
    assert_true(br_bytes_equal("ab", 2, "abc", 2) && br_bytes_equal(NULL, 0, "", 0));
    assert_false(br_bytes_equal("ab", 2, "ac", 2) || br_bytes_equal("ab", 2, "abc", 3));
    assert_true(br_bytes_are("abc", 2, "ab") && br_bytes_are(NULL, 0, ""));
    assert_false(br_bytes_are("abc", 3, "ab") || br_bytes_are("ab", 2, "abc"));
    assert_false(br_bytes_are("aB", 2, "ab") || br_bytes_are("ab\0", 3, "ab"));
    assert_true(br_bytes_are_nocase("GZip", 4, "gzip") && br_bytes_are_nocase(NULL, 0, ""));
    assert_false(br_bytes_are_nocase("gzi", 3, "gzip") || br_bytes_are_nocase("g@ip", 4, "g`ip"));
}

static void prefixes_and_suffixes_are_compared(void **state)
{
    (void)state;
    assert_true(br_bytes_start("env:A", 5, "env:") && br_bytes_start(NULL, 0, ""));
    assert_false(br_bytes_start("env:A", 3, "env:") || br_bytes_start("Env:A", 5, "env:"));
    assert_true(br_text_starts("tcp4", "tcp") && br_text_starts("tcp", "tcp"));
    assert_true(br_text_starts("", ""));
    assert_false(br_text_starts("tc", "tcp") || br_text_starts("TCP", "tcp"));
    assert_true(br_text_ends("a.tmp", ".tmp") && br_text_ends(".tmp", ".tmp"));
    assert_true(br_text_ends("", ""));
    assert_false(br_text_ends("tmp", ".tmp") || br_text_ends("a.tmp~", ".tmp"));
}

static void hex_digits_have_the_values_of_rfc_4648(void **state)
{
    (void)state;
    static const char upper[] = "0123456789ABCDEF", lower[] = "0123456789abcdef";
    unsigned digits = 0;
    for (int i = 0; i < 16; i++)
        assert_true(br_hex_value(upper[i]) == i && br_hex_value(lower[i]) == i);
    for (int c = 0; c < 256; c++)
        digits += br_hex_value((char)c) >= 0;
    assert_int_equal(digits, 22);

    char out[9] = "........";
    void *end = br_hex_encode((const uint8_t *)"\x00\x7f\xf0", 3, out);
    assert_string_equal(out, "007ff0..");
    assert_ptr_equal(end, out + 6);
}

static void check_percent(const char *text, bool plus, const char *plain, long len)
{
    char out[64];
    snprintf(out, sizeof out, "%s", text);
    assert_int_equal(br_percent_decode(out, strlen(out), plus, out), len);
    if (len >= 0)
        assert_memory_equal(out, plain, (size_t)len);
}

static void percent_encoding_is_decoded_as_in_rfc_3986(void **state)
{
    (void)state;
    check_percent("a%20b+%c3%A9", false, "a b+\xc3\xa9", 6);
    check_percent("a%20b+%2B", true, "a b +", 5);
    check_percent("%00%25", false, "\0%", 2);
    check_percent("", false, "", 0);
    check_percent("100%", false, NULL, -1);
    check_percent("%4", false, NULL, -1);
    check_percent("%4g", false, NULL, -1);
    check_percent("%g4", false, NULL, -1);
    check_percent("%+1", true, NULL, -1);
    assert_int_equal(br_percent_decode("%41", 2, false, (char[2]){0}), -1);
}

/* The first and last code point of each length (RFC 3629 section 3), and its example of section 7.
 */
static void code_points_are_encoded_as_in_rfc_3629(void **state)
{
    (void)state;
    static const struct {
        uint32_t code_point;
        const char *bytes;
        size_t len;
    } known[] = {
        {0, "\0", 1},
        {0x7f, "\x7f", 1},
        {0x80, "\xc2\x80", 2},
        {0x7ff, "\xdf\xbf", 2},
        {0x800, "\xe0\xa0\x80", 3},
        {0xffff, "\xef\xbf\xbf", 3},
        {0x10000, "\xf0\x90\x80\x80", 4},
        {0x233b4, "\xf0\xa3\x8e\xb4", 4},
        {0x10ffff, "\xf4\x8f\xbf\xbf", 4},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        char out[BR_UTF8_MAX];
        assert_int_equal(br_utf8_size(known[i].code_point), known[i].len);
        assert_int_equal(br_utf8_encode(known[i].code_point, out), known[i].len);
        assert_memory_equal(out, known[i].bytes, known[i].len);
    }
}

SUITE(bytes)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_compared_with_bytes_and_texts),
        cmocka_unit_test(prefixes_and_suffixes_are_compared),
        cmocka_unit_test(hex_digits_have_the_values_of_rfc_4648),
        cmocka_unit_test(percent_encoding_is_decoded_as_in_rfc_3986),
        cmocka_unit_test(code_points_are_encoded_as_in_rfc_3629),
    };
    return RUN(tests, NULL, NULL);
}
