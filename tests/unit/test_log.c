/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <jansson.h>

#include "base/log.h"
#include "base/mem.h"

static int fds[2];

static int setup(void **state)
{
    (void)state;
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK))
        return -1;
    br_log_setup(BR_LOG_INFO, false, fds[1]);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    br_log_setup(BR_LOG_INFO, false, 2);
    close(fds[0]);
    close(fds[1]);
    return 0;
}

/* What was written, terminated. */
static const char *written(void)
{
    static char text[65536];
    ssize_t n = read(fds[0], text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static unsigned lines(const char *text)
{
    unsigned n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static const struct br_log node = {"exporter/otlp/tempo"};

static void a_line_of_text(void **state)
{
    (void)state;
    br_warn(&node, "%d of %s", 3, "five");
    const char *text = written();
    /* 2026-01-01T00:00:00.000Z, level, name, message between tabs */
    assert_int_equal(text[24], '\t');
    assert_int_equal(text[10], 'T');
    assert_int_equal(text[23], 'Z');
    assert_string_equal(text + 24, "\twarn\texporter/otlp/tempo\t3 of five\n");
    br_error(NULL, "x");
    assert_string_equal(written() + 24, "\terror\tx\n");
}

static void levels_above_the_sinks_are_not_written(void **state)
{
    (void)state;
    br_debug(&node, "x");
    br_trace(&node, "x");
    assert_string_equal(written(), "");
    assert_true(br_log_on(BR_LOG_INFO));
    assert_false(br_log_on(BR_LOG_DEBUG));
    br_log_setup(BR_LOG_TRACE, false, fds[1]);
    br_trace(&node, "x");
    assert_int_equal(lines(written()), 1);
    br_log_setup(BR_LOG_ERROR, false, fds[1]);
    br_warn(&node, "x");
    assert_string_equal(written(), "");
}

static void one_message_is_one_line(void **state)
{
    (void)state;
    br_info(&node, "a\nb\r\n2026 error forged\x1b[31m");
    const char *text = written();
    assert_int_equal(lines(text), 1);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\x1b'));
}

static void json_lines_are_json(void **state)
{
    (void)state;
    br_log_setup(BR_LOG_INFO, true, fds[1]);
    br_info(&node, "a \"b\"\n\xff");
    json_error_t error;
    json_t *line = json_loads(written(), 0, &error);
    assert_non_null(line);
    assert_string_equal(json_string_value(json_object_get(line, "level")), "info");
    assert_string_equal(json_string_value(json_object_get(line, "component")),
                        "exporter/otlp/tempo");
    assert_string_equal(json_string_value(json_object_get(line, "msg")), "a \"b\"\n\xef\xbf\xbd");
    json_decref(line);
}

/* Whatever is in it, a long message is cut, and the line still is one. */
static void long_lines_are_cut_to_4_kib(void **state)
{
    (void)state;
    static const char fill[] = {'x', '\x01', '"', '\xff'};
    for (int json = 0; json < 2; json++) {
        br_log_setup(BR_LOG_INFO, json, fds[1]);
        for (size_t i = 0; i < sizeof fill; i++) {
            char text[10001];
            memset(text, fill[i], 10000);
            text[10000] = '\0';
            br_info(&node, "%s", text);
            const char *line = written();
            assert_in_range(strlen(line), 1000, 4096);
            assert_int_equal(lines(line), 1);
            assert_int_equal(line[strlen(line) - 1], '\n');
            json_t *parsed = json ? json_loads(line, 0, NULL) : NULL;
            if (json && !parsed)
                fail_msg("no JSON with byte %02x", (unsigned)(unsigned char)fill[i]);
            json_decref(parsed);
        }
    }
}

static void levels_have_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum br_log_level level;
    } cases[] = {{"error", BR_LOG_ERROR},  {"ERROR", BR_LOG_ERROR}, {"warn", BR_LOG_WARN},
                 {"warning", BR_LOG_WARN}, {"Info", BR_LOG_INFO},   {"debug", BR_LOG_DEBUG},
                 {"trace", BR_LOG_TRACE},  {"fatal", BR_LOG_ERROR}, {"panic", BR_LOG_ERROR}};
    enum br_log_level level;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        assert_true(br_log_parse_level(cases[i].name, &level));
        assert_int_equal(level, cases[i].level);
    }
    level = BR_LOG_TRACE;
    assert_false(br_log_parse_level("loud", &level));
    assert_false(br_log_parse_level("", &level));
    assert_int_equal(level, BR_LOG_TRACE);
}

static void repeats_are_held_back_and_counted(void **state)
{
    (void)state;
    struct br_log_limit limit = {0};
    uint64_t held = 99;
    assert_true(br_log_allow(&limit, 5000, 1000, &held));
    assert_int_equal(held, 0);
    for (int i = 0; i < 7; i++)
        assert_false(br_log_allow(&limit, 5999, 1000, &held));
    assert_true(br_log_allow(&limit, 6000, 1000, &held));
    assert_int_equal(held, 7);
    assert_false(br_log_allow(&limit, 6999, 1000, &held));
    assert_true(br_log_allow(&limit, 7000, 1000, &held));
    assert_int_equal(held, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_of_text),
        TEST(levels_above_the_sinks_are_not_written),
        TEST(one_message_is_one_line),
        TEST(json_lines_are_json),
        TEST(long_lines_are_cut_to_4_kib),
        TEST(levels_have_names),
        TEST(repeats_are_held_back_and_counted),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
