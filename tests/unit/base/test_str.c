/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/steps.h"
#include "base/str.h"
#include "tests/support/test.h"

static void assert_str(struct br_str *s, const char *want)
{
    assert_false(s->failed);
    assert_non_null(s->data);
    assert_int_equal(s->len, strlen(want));
    assert_string_equal(s->data, want);
    br_str_release(s);
}

static void appending(void **state)
{
    (void)state;
    struct br_str s = {0};
    br_str_puts(&s, "");
    assert_non_null(s.data); /* terminated from the first append on */
    br_str_puts(&s, "ab");
    br_str_putc(&s, 'c');
    br_str_add(&s, "de\0f", 2);
    br_str_printf(&s, "%d-%s", -5, "x");
    assert_str(&s, "abcde-5-x");
}

static void long_printf(void **state)
{
    (void)state;
    struct br_str s = {0};
    char want[2001];
    memset(want, ' ', 2000);
    want[1999] = '7';
    want[2000] = '\0';
    br_str_printf(&s, "%2000d", 7);
    assert_str(&s, want);
}

static void exceeding_a_maximum_keeps_the_content(void **state)
{
    (void)state;
    struct br_str s = {.max = 5};
    br_str_puts(&s, "abc");
    br_str_puts(&s, "def");
    assert_true(s.failed);
    assert_string_equal(s.data, "abc");
    br_str_puts(&s, "de"); /* shorter texts still fit after a text that was too long */
    assert_string_equal(s.data, "abcde");
    br_str_clear(&s);
    assert_false(s.failed);
    assert_string_equal(s.data, "");
    br_str_puts(&s, "12345");
    assert_false(s.failed);
    br_str_release(&s);
    assert_int_equal(s.max, 5);
    assert_null(s.data);
    br_str_release(&s);
}

static void a_fixed_string_is_cut(void **state)
{
    (void)state;
    char room[8];
    struct br_str s = {.data = room, .cap = sizeof room, .max = sizeof room - 1, .fixed = true};
    br_str_puts(&s, "abcde");
    assert_false(s.failed);
    br_str_puts(&s, "fghij");
    assert_true(s.failed);
    assert_string_equal(room, "abcdefg");
    br_str_release(&s); /* frees nothing */
}

static void a_fixed_string_needs_no_maximum(void **state)
{
    (void)state;
    char room[16];
    memset(room, '#', sizeof room);
    struct br_str s = {.data = room, .cap = 8, .fixed = true};
    br_str_puts(&s, "abcdefghijkl");
    assert_true(s.failed);
    assert_string_equal(room, "abcdefg");
    assert_int_equal(room[8], '#');
    s = (struct br_str){.data = room, .cap = 8, .max = 100, .fixed = true};
    br_str_printf(&s, "%s", "abcdefghijkl");
    assert_string_equal(room, "abcdefg");
    assert_int_equal(room[8], '#');
}

static void *no_resize(void *p, size_t size)
{
    (void)p;
    (void)size;
    return NULL;
}

static const struct br_mem_hooks refuse = {malloc, no_resize, free, NULL};

static void lack_of_memory_sets_failed(void **state)
{
    (void)state;
    struct br_str s = {0};
    br_str_puts(&s, "kept");
    br_mem_set_hooks(&refuse);
    for (int i = 0; i < 100; i++)
        br_str_puts(&s, "lost, because it does not fit");
    br_mem_set_hooks(NULL);
    assert_true(s.failed);
    assert_memory_equal(s.data, "kept", 4);
    assert_int_equal(strlen(s.data), s.len);
    br_str_release(&s);
}

/* --- Encodings -------------------------------------------------------------------------------- */

static void json_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t len;
        const char *want;
    } cases[] = {
        {"", 0, "\"\""},
        {"a\"b\\c/", 6, "\"a\\\"b\\\\c/\""},
        {"\n\t\r\0\x1f\x7f", 6, "\"\\n\\u0009\\u000d\\u0000\\u001f\x7f\""},
        {"\xc3\xa4\xf0\x9f\x98\x80", 6, "\"\xc3\xa4\xf0\x9f\x98\x80\""},
        {"a\xff"
         "b",
         3,
         "\"a\xef\xbf\xbd"
         "b\""},
        {"\xc3", 1, "\"\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct br_str s = {0};
        br_str_json(&s, cases[i].text, cases[i].len);
        assert_str(&s, cases[i].want);
    }
}

static void hex(void **state)
{
    (void)state;
    struct br_str s = {0};
    uint8_t out[4];
    br_str_hex(&s, (const uint8_t *)"\x00\x1f\xa0\xff", 4);
    assert_str(&s, "001fa0ff");
    assert_int_equal(br_hex_decode("001fA0fF", 8, out, 4), 4);
    assert_memory_equal(out, "\x00\x1f\xa0\xff", 4);
    assert_int_equal(br_hex_decode("", 0, out, 4), 0);
    assert_int_equal(br_hex_decode("001", 3, out, 4), -1);
    assert_int_equal(br_hex_decode("0g", 2, out, 4), -1);
    assert_int_equal(br_hex_decode("g0", 2, out, 4), -1);
    assert_int_equal(br_hex_decode("0011223344", 10, out, 4), -1);
}

/* RFC 4648 section 10. */
static void base64_of_the_rfc(void **state)
{
    (void)state;
    static const char *const plain[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    static const char *const coded[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < BR_COUNT(plain); i++) {
        struct br_str s = {0};
        uint8_t out[16];
        br_str_puts(&s, "");
        br_str_base64(&s, (const uint8_t *)plain[i], strlen(plain[i]));
        assert_str(&s, coded[i]);
        for (size_t cut = 0; cut <= 2; cut++) { /* padding is optional */
            size_t len = strlen(coded[i]);
            while (cut && len && coded[i][len - 1] == '=')
                len--;
            assert_int_equal(br_base64_decode(coded[i], len, out), strlen(plain[i]));
            assert_memory_equal(out, plain[i], strlen(plain[i]));
        }
    }
}

static void base64_accepts_only_the_two_alphabets(void **state)
{
    (void)state;
    uint8_t out[16];
    assert_int_equal(br_base64_decode("-_-_", 4, out), 3);
    assert_memory_equal(out, "\xfb\xff\xbf", 3);
    assert_int_equal(br_base64_decode("+/+/", 4, out), 3);
    assert_memory_equal(out, "\xfb\xff\xbf", 3);
    assert_int_equal(br_base64_decode("Z", 1, out), -1);
    assert_int_equal(br_base64_decode("Zg=x", 4, out), -1);
    assert_int_equal(br_base64_decode("Zm 9", 4, out), -1);
}

static void utf8_of_rfc_3629(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len, valid;
    } cases[] = {
        {"", 0, 0},
        {"plain ascii, longer than a word", 31, 31},
        {"\x00", 1, 1},
        {"\x7f\xc2\x80\xdf\xbf", 5, 5},             /* U+007F, U+0080, U+07FF */
        {"\xe0\xa0\x80\xef\xbf\xbf", 6, 6},         /* U+0800, U+FFFF */
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", 8, 8}, /* U+10000, U+10FFFF */
        {"\xed\x9f\xbf\xee\x80\x80", 6, 6},         /* around the surrogates */
        {"\xc0\x80", 2, 0},
        {"\xc1\xbf", 2, 0}, /* overlong */
        {"\xe0\x9f\xbf", 3, 0},
        {"\xf0\x8f\xbf\xbf", 4, 0},
        {"\xed\xa0\x80", 3, 0},
        {"\xed\xbf\xbf", 3, 0}, /* surrogates */
        {"\xf4\x90\x80\x80", 4, 0},
        {"\xf5\x80\x80\x80", 4, 0},
        {"\xff", 1, 0},
        {"\x80", 1, 0},
        {"\xbf", 1, 0}, /* not a valid first byte */
        {"a\xc3", 2, 1},
        {"a\xe2\x82", 3, 1},
        {"a\xf0\x9f\x98", 4, 1}, /* cut off */
        {"a\xc3(", 3, 1},
        {"a\xe2(\xa1", 4, 1},
        {"a\xe2\x82(", 4, 1},
        {"12345678\xc3\xa4"
         "12345678\xff",
         19, 18},
        {"1234567\xc3\xa4"
         "x\xff",
         11, 10}, /* crosses a word boundary */
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++)
        assert_int_equal(br_utf8_valid((const uint8_t *)cases[i].bytes, cases[i].len),
                         cases[i].valid);
}

/* The texts have lengths near that of a machine word. The byte that is not ASCII is at every
 * offset. */
static void utf8_is_valid_up_to_the_invalid_byte(void **state)
{
    (void)state;
    uint8_t text[40];
    for (size_t len = 1; len <= sizeof text; len++)
        for (size_t odd = 0; odd < len; odd++) {
            memset(text, 'a', sizeof text);
            text[odd] = 0xff;
            assert_int_equal(br_utf8_valid(text, len), odd);
            assert_int_equal(br_utf8_valid(text, odd), odd);
        }
}

/* Computes the UTF-8 of every code point. */
static void utf8_accepts_every_code_point_except_surrogates(void **state)
{
    (void)state;
    for (uint32_t c = 0; c <= 0x110000; c++) {
        uint8_t b[4];
        size_t n = 1u + (c >= 0x80) + (c >= 0x800) + (c >= 0x10000);
        static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
        uint32_t v = c;
        for (size_t i = n; i-- > 1; v >>= 6)
            b[i] = (uint8_t)(0x80 | (v & 0x3f));
        b[0] = (uint8_t)(first[n] | v);
        bool good = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
        if ((br_utf8_valid(b, n) == n) != good)
            fail_msg("U+%04X", c);
    }
}

/* --- Names ------------------------------------------------------------------------------------ */

static void distances(void **state)
{
    (void)state;
    assert_int_equal(br_str_distance("", ""), 0);
    assert_int_equal(br_str_distance("abc", ""), 3);
    assert_int_equal(br_str_distance("Abc", "aBC"), 0);
    assert_int_equal(br_str_distance("kitten", "sitting"), 3);
    assert_int_equal(br_str_distance("endpiont", "endpoint"), 1); /* adjacent letters swapped */
    char big[66];
    memset(big, 'x', 65);
    big[65] = '\0';
    assert_int_equal(br_str_distance(big, "x"), 64);
}

static void the_nearest_name(void **state)
{
    (void)state;
    static const char *const names[] = {"endpoint", "headers", "timeout", "tls"};
    assert_string_equal(br_str_nearest("enpoint", names, 4), "endpoint");
    assert_string_equal(br_str_nearest("time_out", names, 4), "timeout");
    assert_string_equal(br_str_nearest("TLS", names, 4), "tls");
    assert_null(br_str_nearest("compression", names, 4));
    assert_null(br_str_nearest("x", names, 0));
}

static void bytes_of_texts_count_as_steps(void **state)
{
    (void)state;
    uint64_t before = br_steps();
    assert_int_equal(br_utf8_valid((const uint8_t *)"seven\xff.", 7), 5);
    assert_int_equal(br_steps() - before, 5);
    struct br_str s = {0};
    br_str_add(&s, "seven..", 7);
    assert_int_equal(br_steps() - before, 12);
    br_str_release(&s);
    assert_int_equal(br_utf8_replace((const uint8_t *)"\xff\xff", 2, NULL), 6);
    assert_int_equal(br_steps() - before, 14);
}

SUITE(str)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appending),
        cmocka_unit_test(long_printf),
        cmocka_unit_test(exceeding_a_maximum_keeps_the_content),
        cmocka_unit_test(a_fixed_string_is_cut),
        cmocka_unit_test(a_fixed_string_needs_no_maximum),
        cmocka_unit_test(lack_of_memory_sets_failed),
        cmocka_unit_test(json_strings),
        cmocka_unit_test(hex),
        cmocka_unit_test(base64_of_the_rfc),
        cmocka_unit_test(base64_accepts_only_the_two_alphabets),
        cmocka_unit_test(utf8_of_rfc_3629),
        cmocka_unit_test(utf8_is_valid_up_to_the_invalid_byte),
        cmocka_unit_test(utf8_accepts_every_code_point_except_surrogates),
        cmocka_unit_test(distances),
        cmocka_unit_test(the_nearest_name),
        cmocka_unit_test(bytes_of_texts_count_as_steps),
    };
    return RUN(tests, NULL, NULL);
}
