/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#include "base/log.h"
#include "base/mem.h"
#include "tests/support/test.h"

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

/* Returns the terminated text that was written. */
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
    BR_LOG_AT(&node, BR_LOG_TRACE, "x");
    assert_string_equal(written(), "");
    assert_true(br_log_on(BR_LOG_INFO));
    assert_false(br_log_on(BR_LOG_DEBUG));
    br_log_setup(BR_LOG_TRACE, false, fds[1]);
    BR_LOG_AT(&node, BR_LOG_TRACE, "x");
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

/* Characters that control a terminal: C0, DEL, C1 (in UTF-8 and as single bytes), and marks of
 * lines and text direction. */
static void control_characters_are_escaped(void **state)
{
    static const struct {
        const char *text, *plain, *json;
    } cases[] = {
        {"a\x1b[31mb", "a [31mb", "a\\u001b[31mb"},
        {"a\x7f\x7f"
         "b",
         "a  b", "a\\u007f\\u007fb"},
        {"a\xc2\x9b"
         "31mb",
         "a 31mb", "a\\u009b31mb"},
        {"\xc2\x80|\xc2\x9f|\xc2\xa0", " | |\xc2\xa0", "\\u0080|\\u009f|\xc2\xa0"},
        {"a\x9b"
         "31mb",
         "a\xef\xbf\xbd"
         "31mb",
         "a\xef\xbf\xbd"
         "31mb"},
        {"\xe2\x80\xae"
         "exe.txt",
         " exe.txt", "\\u202eexe.txt"},
        {"\xe2\x80\xa8|\xe2\x80\xaa|\xe2\x80\xaf", " | |\xe2\x80\xaf",
         "\\u2028|\\u202a|\xe2\x80\xaf"},
        {"\xe2\x81\xa5|\xe2\x81\xa6|\xe2\x81\xa9|\xe2\x81\xaa", "\xe2\x81\xa5| | |\xe2\x81\xaa",
         "\xe2\x81\xa5|\\u2066|\\u2069|\xe2\x81\xaa"},
        {"\xd8\x9c\xe2\x80\x8e\xe2\x80\x8f", "   ", "\\u061c\\u200e\\u200f"},
        {"na\xc3\xafve \xe2\x9c\x93 \xf0\x9f\x90\x9d", "na\xc3\xafve \xe2\x9c\x93 \xf0\x9f\x90\x9d",
         "na\xc3\xafve \xe2\x9c\x93 \xf0\x9f\x90\x9d"},
        {"\"\\", "\"\\", "\\\"\\\\"},
    };
    (void)state;
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        const struct br_log named = {cases[i].text};
        char want[256];
        br_log_setup(BR_LOG_INFO, false, fds[1]);
        br_info(&named, "%s", cases[i].text);
        (void)snprintf(want, sizeof want, "\tinfo\t%s\t%s\n", cases[i].plain, cases[i].plain);
        assert_string_equal(written() + 24, want);
        br_log_setup(BR_LOG_INFO, true, fds[1]);
        br_info(&named, "%s", cases[i].text);
        (void)snprintf(want, sizeof want, ",\"component\":\"%s\",\"msg\":\"%s\"}\n", cases[i].json,
                       cases[i].json);
        const char *line = written();
        assert_string_equal(strstr(line, ",\"component\""), want);
        json_t *parsed = json_loads(line, 0, NULL);
        assert_non_null(parsed);
        json_decref(parsed);
    }
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

/* A long message is cut. The result is a valid line, whatever the message contains. */
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

static void repeats_are_suppressed_and_counted(void **state)
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

static bool log_it(struct br_log_limit *limit, uint64_t now_ms)
{
    return br_log_limited(&node, BR_LOG_WARN, limit, now_ms, 1000, "%s is %d", "this", 7);
}

static void limited_lines_report_the_number_suppressed(void **state)
{
    (void)state;
    struct br_log_limit limit = {0};
    assert_true(log_it(&limit, 5000));
    assert_non_null(strstr(written(), "\tthis is 7\n"));
    assert_false(log_it(&limit, 5998) || log_it(&limit, 5999));
    assert_string_equal(written(), "");
    assert_true(log_it(&limit, 6000));
    assert_non_null(strstr(written(), "\tthis is 7 (2 more since the last such line)\n"));
    assert_true(log_it(&limit, 7000));
    assert_non_null(strstr(written(), "\tthis is 7\n"));
}

/* --- With a thread ---------------------------------------------------------------------------- */

#define BATCH 5000

/* Reads the log to its end. Checks that each line is the next one of its writer, and counts the
 * lines and those reported as dropped. */
struct reader {
    pthread_t thread;
    unsigned next[4], n_lines, dropped;
    bool ordered;
};

static void *read_log(void *arg)
{
    struct reader *r = arg;
    FILE *file = fdopen(fds[0], "r");
    char line[8192];
    r->ordered = file != NULL;
    while (file && fgets(line, sizeof line, file)) {
        unsigned writer, n;
        const char *text = strrchr(line, '\t');
        if (text && sscanf(text, "\tline %u of %u", &n, &writer) == 2 && writer < 4) {
            r->ordered = r->ordered && n >= r->next[writer] && line[strlen(line) - 1] == '\n';
            r->next[writer] = n + 1 > r->next[writer] ? n + 1 : r->next[writer];
            r->n_lines++;
        } else if (text && sscanf(text, "\t%u line", &n) == 1) {
            r->dropped += n;
        } else {
            r->ordered = false;
        }
    }
    if (file)
        (void)fclose(file);
    return NULL;
}

/* A blocking pipe with a capacity of one page. */
static int setup_pipe(void **state)
{
    (void)state;
    if (pipe2(fds, O_CLOEXEC) || fcntl(fds[1], F_SETPIPE_SZ, 4096) < 0)
        return -1;
    br_log_setup(BR_LOG_INFO, false, fds[1]);
    return 0;
}

static int teardown_pipe(void **state)
{
    (void)state;
    br_log_setup(BR_LOG_INFO, false, 2);
    return 0;
}

static void read_to_the_end(struct reader *r, uint64_t wait_ms)
{
    assert_int_equal(pthread_create(&r->thread, NULL, read_log, r), 0);
    assert_true(br_log_stop(wait_ms));
    close(fds[1]);
    pthread_join(r->thread, NULL);
    assert_true(r->ordered);
}

static void a_slow_reader_of_the_log_does_not_block(void **state)
{
    struct reader r = {.n_lines = 0};
    uint64_t before = br_log_dropped();
    (void)state;
    assert_true(br_log_start());
    for (unsigned i = 0; i < BATCH; i++) /* 20 times the capacity of the ring */
        br_info(&node, "line %u of 0%1000s", i, "");
    uint64_t dropped = br_log_dropped() - before;
    assert_in_range(dropped, BATCH - 300, BATCH - 200);
    read_to_the_end(&r, 60000);
    assert_int_equal(r.n_lines, BATCH - dropped);
    assert_int_equal(r.dropped, dropped);
    assert_int_equal(br_log_dropped() - before, dropped);
}

static void *write_lines(void *arg)
{
    for (unsigned i = 0; i < BATCH; i++)
        br_info(&node, "line %u of %u", i, *(unsigned *)arg);
    return NULL;
}

static void lines_of_threads_keep_their_order(void **state)
{
    struct reader r = {.n_lines = 0};
    pthread_t threads[4];
    unsigned numbers[4] = {0, 1, 2, 3};
    uint64_t before = br_log_dropped();
    (void)state;
    assert_true(br_log_start());
    assert_int_equal(pthread_create(&r.thread, NULL, read_log, &r), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_lines, &numbers[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_true(br_log_stop(60000));
    close(fds[1]);
    pthread_join(r.thread, NULL);
    assert_true(r.ordered);
    assert_int_equal(r.n_lines + r.dropped, 4 * BATCH);
    assert_int_equal(r.dropped, br_log_dropped() - before);
}

static void lines_that_cannot_be_written_are_counted(void **state)
{
    uint64_t before = br_log_dropped();
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    close(fds[0]);
    assert_true(br_log_start());
    for (int i = 0; i < 10; i++)
        br_info(&node, "x");
    assert_true(br_log_stop(60000));
    assert_int_equal(br_log_dropped() - before, 10);
    close(fds[1]);
}

/* The last lines before a crash are the most important ones. */
static void a_crash_loses_no_line(void **state)
{
    struct reader r = {.n_lines = 0};
    int status;
    (void)state;
    assert_true(fcntl(fds[1], F_SETPIPE_SZ, 1 << 20) > 0);
    pid_t child = fork();
    if (child == 0) {
        (void)br_log_start();
        for (unsigned i = 0; i < 100; i++)
            br_info(&node, "line %u of 0", i);
        abort();
    }
    assert_true(child > 0);
    close(fds[1]);
    (void)read_log(&r);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
    assert_true(r.n_lines >= 100); /* some lines may be written twice */
    assert_int_equal(r.next[0], 100);
}

/* Runs last, because the thread continues after the test. */
static void the_end_does_not_wait_forever(void **state)
{
    uint64_t before = br_log_dropped();
    (void)state;
    assert_true(br_log_start());
    for (unsigned i = 0; i < 100; i++)
        br_info(&node, "line %u of 0%1000s", i, "");
    assert_int_equal(br_log_dropped(), before);
    assert_false(br_log_stop(1));
    uint64_t n_dropped = br_log_dropped() - before;
    assert_in_range(n_dropped, 90, 100); /* the pipe may contain a few lines */
    br_info(&node, "nobody will read this");
    assert_int_equal(br_log_dropped() - before, n_dropped + 1);
}

#define PIPE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_pipe, teardown_pipe)

SUITE(log)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_of_text),
        TEST(levels_above_the_sinks_are_not_written),
        TEST(one_message_is_one_line),
        TEST(control_characters_are_escaped),
        TEST(json_lines_are_json),
        TEST(long_lines_are_cut_to_4_kib),
        TEST(levels_have_names),
        TEST(repeats_are_suppressed_and_counted),
        TEST(limited_lines_report_the_number_suppressed),
        PIPE_TEST(a_slow_reader_of_the_log_does_not_block),
        PIPE_TEST(lines_of_threads_keep_their_order),
        PIPE_TEST(lines_that_cannot_be_written_are_counted),
        PIPE_TEST(a_crash_loses_no_line),
        PIPE_TEST(the_end_does_not_wait_forever),
    };
    return RUN(tests, NULL, NULL);
}
