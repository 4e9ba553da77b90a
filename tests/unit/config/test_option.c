/* SPDX-License-Identifier: Apache-2.0 */
/* Tests option tables, durations (expectations from Go's time.ParseDuration and its
 * documentation) and endpoints (net.SplitHostPort). The texts of errors are in
 * tests/conformance/config. */
#include "base/mem.h"
#include "config/option.h"
#include "tests/support/fake_registry.h"
#include "tests/support/test.h"

struct fixture {
    struct br_arena arena;
    struct br_errs errs;
    int rc;
};

/* Reads into a struct that is not initialised, as br_options_read allows. */
static struct fixture read_into(const struct br_option *table, const char *text, void *out,
                                size_t size)
{
    struct fixture f = {0};
    struct br_yaml *root = NULL;
    memset(out, 0xa5, size);
    assert_int_equal(br_yaml_parse(text, strlen(text), "f", &f.arena, &root, &f.errs), 0);
    f.rc = br_options_read(table, root, "p", out, &f.arena, &f.errs);
    return f;
}

static void done(struct fixture *f)
{
    br_errs_release(&f->errs);
    br_arena_release(&f->arena);
}

static void expect_defaults(const struct fake_processor_config *c)
{
    assert_int_equal(c->timeout, 200000000);
    assert_int_equal(c->size, 8192);
    assert_true(c->ratio >= 1 && c->ratio <= 1);
    assert_true(c->strict);
    assert_int_equal(c->mode, 1);
    assert_int_equal(c->include.count, 0);
    assert_null(c->include.items);
    assert_int_equal(c->rules.count, 0);
    assert_int_equal(c->limits.streams, 100);
    assert_true(c->limits.ratio >= 0.5 && c->limits.ratio <= 0.5);
    assert_null(c->extra);
}

static void test_defaults(void **state)
{
    (void)state;
    struct fake_processor_config c;
    const char *const nothing[] = {
        "", "{}", "timeout:\nsize: ~\nratio:\nstrict:\nmode:\ninclude:\nrules:\nlimits:\n"};
    for (size_t i = 0; i < BR_COUNT(nothing); i++) {
        struct fixture f = read_into(fake_processor_options, nothing[i], &c, sizeof c);
        assert_int_equal(f.rc, 0);
        expect_defaults(&c);
        done(&f);
    }
    struct fixture f = {0};
    memset(&c, 0xa5, sizeof c);
    assert_int_equal(br_options_read(fake_processor_options, NULL, "p", &c, &f.arena, &f.errs), 0);
    expect_defaults(&c);
    done(&f);
}

static void test_values(void **state)
{
    (void)state;
    struct fake_processor_config c;
    struct fixture f = read_into(fake_processor_options,
                                 "timeout: \"1h5m\"\n"
                                 "send_size: -0x1F\n"
                                 "ratio: -2.5e-1\n"
                                 "strict: FALSE\n"
                                 "mode: Mark\n"
                                 "include: [a, 5, true]\n"
                                 "rules: [{match: x, drop: true}, {match: 7}]\n"
                                 "limits: {streams: 4294967295, ratio: 1}\n"
                                 "extra: [1]\n",
                                 &c, sizeof c);
    assert_int_equal(f.rc, 0);
    assert_int_equal(c.timeout, 3900000000000);
    assert_int_equal(c.size, -31);
    assert_true(c.ratio >= -0.25 && c.ratio <= -0.25);
    assert_false(c.strict);
    assert_int_equal(c.mode, 2);
    assert_int_equal(c.include.count, 3);
    assert_string_equal(c.include.items[1], "5");
    assert_string_equal(c.include.items[2], "true");
    const struct fake_rule *rules = c.rules.items;
    assert_int_equal(c.rules.count, 2);
    assert_string_equal(rules[0].match, "x");
    assert_true(rules[0].drop);
    assert_string_equal(rules[1].match, "7");
    assert_false(rules[1].drop);
    assert_int_equal(c.limits.streams, 4294967295);
    assert_int_equal(c.extra->type, BR_YAML_SEQ);
    done(&f);
    f = read_into(fake_processor_options, "include: alone\nextra:\n", &c, sizeof c);
    assert_int_equal(c.include.count, 1);
    assert_string_equal(c.include.items[0], "alone");
    assert_int_equal(c.extra->type, BR_YAML_NULL);
    done(&f);
}

static void test_present(void **state)
{
    (void)state;
    struct fake_receiver_config c;
    struct fixture f = read_into(fake_receiver_options, "protocols:\n  grpc:\n", &c, sizeof c);
    assert_int_equal(f.rc, 0);
    assert_non_null(c.protocols.grpc);
    assert_string_equal(c.protocols.grpc->endpoint, "localhost:4317");
    assert_int_equal(c.protocols.grpc->keepalive, 120000000000);
    assert_null(c.protocols.http);
    done(&f);
    f = read_into(fake_receiver_options,
                  "protocols:\n  grpc: {enabled: false, endpoint: a:1}\n"
                  "  http: {endpoint: b:1, enabled: true}\n",
                  &c, sizeof c);
    assert_int_equal(f.rc, 0);
    assert_null(c.protocols.grpc);
    assert_string_equal(c.protocols.http->endpoint, "b:1");
    done(&f);
}

static void test_secrets(void **state)
{
    (void)state;
    struct fake_exporter_config c;
    struct fixture f =
        read_into(fake_exporter_options, "endpoint: a:1\ntoken: t\nheaders: {X-A: v, b: , c: 5}\n",
                  &c, sizeof c);
    assert_int_equal(f.rc, 0);
    assert_string_equal(c.token.text, "t");
    assert_int_equal(c.headers.count, 3);
    assert_string_equal(c.headers.names[0], "X-A");
    assert_string_equal(c.headers.values[0].text, "v");
    assert_string_equal(c.headers.values[1].text, "");
    assert_string_equal(c.headers.values[2].text, "5");
    done(&f);
    f = read_into(fake_exporter_options, "endpoint: a:1\nheaders: [{name: n, value: v}]\n", &c,
                  sizeof c);
    assert_int_equal(f.rc, 0);
    assert_null(c.token.text);
    assert_int_equal(c.headers.count, 1);
    assert_string_equal(c.headers.names[0], "n");
    assert_string_equal(c.headers.values[0].text, "v");
    done(&f);
}

/* Errors never contain a secret. */
static void test_errors_contain_no_secrets(void **state)
{
    (void)state;
    struct fake_exporter_config c;
    const char *const wrong[] = {"token: [hush]",
                                 "token: {hush: hush}",
                                 "headers: hush",
                                 "headers: {a: [hush]}",
                                 "headers: [hush]",
                                 "headers: [{name: a, valu: hush}]",
                                 "headers: [{name: a, value: {b: hush}}]",
                                 "headers: {a: \"hush\\n\"}",
                                 "headers: {\"a:\": hush}",
                                 "headers: [{name: a b, value: hush}]"};
    for (size_t i = 0; i < BR_COUNT(wrong); i++) {
        struct fixture f = read_into(fake_exporter_options, wrong[i], &c, sizeof c);
        assert_int_equal(f.rc, BR_EINVAL);
        assert_true(f.errs.n_errors >= 2); /* the endpoint is missing too */
        for (size_t k = 0; k < f.errs.n_errors; k++)
            assert_null(strstr(f.errs.errors[k].text, "hush"));
        done(&f);
    }
}

/* Digits may be grouped, as in YAML 1.1 and the Collector's reader. */
static void test_grouped_digits(void **state)
{
    (void)state;
    struct fake_processor_config c;
    struct fixture f = read_into(fake_processor_options, "size: 4_000_000", &c, sizeof c);
    assert_int_equal(f.rc, 0);
    assert_int_equal(c.size, 4000000);
    done(&f);
}

static void test_headers_at_most(void **state)
{
    (void)state;
    struct fake_exporter_config c;
    for (int n = BR_HEADERS_MAX; n <= BR_HEADERS_MAX + 1; n++) {
        struct br_str text = {.max = 1 << 16};
        br_str_puts(&text, "endpoint: a:1\nheaders:\n");
        for (int i = 0; i < n; i++)
            br_str_printf(&text, "  x-%d: v\n", i);
        struct fixture f = read_into(fake_exporter_options, text.data, &c, sizeof c);
        assert_int_equal(f.rc, n == BR_HEADERS_MAX ? 0 : BR_EINVAL);
        if (!f.rc)
            assert_int_equal(c.headers.count, BR_HEADERS_MAX);
        done(&f);
        br_str_release(&text);
    }
}

static bool takes(const char *row)
{
    struct fake_processor_config c;
    struct fixture f = read_into(fake_processor_options, row, &c, sizeof c);
    bool taken = f.rc == 0;
    assert_int_equal(f.errs.n_errors, !taken);
    done(&f);
    return taken;
}

static void test_numbers(void **state)
{
    (void)state;
    static const char *const good[] = {"size: 0",
                                       "size: -1",
                                       "size: +7",
                                       "size: 0xff",
                                       "size: 1_000_000",
                                       "size: 0XFF",
                                       "size: 9223372036854775807",
                                       "size: -9223372036854775808",
                                       "ratio: 1",
                                       "ratio: .5",
                                       "ratio: 1e3",
                                       "ratio: -1.5E-3",
                                       "limits: {streams: 0}",
                                       "limits: {streams: 4294967295}",
                                       "limits: {ratio: 0}",
                                       "limits: {ratio: 1.0}"};
    static const char *const bad[] = {"size: 010",
                                      "size: 1.0",
                                      "size: 1e3",
                                      "size: 0x",
                                      "size: 0xg",
                                      "size: _1",
                                      "size: +",
                                      "size: 9223372036854775808",
                                      "size: -9223372036854775809",
                                      "size: 18446744073709551616",
                                      "size: '5'",
                                      "size: !!str 5",
                                      "size: true",
                                      "size: []",
                                      "ratio: .inf",
                                      "ratio: nan",
                                      "ratio: inf",
                                      "ratio: 0x10",
                                      "ratio: 1e999",
                                      "ratio: 1.2.3",
                                      "ratio: e",
                                      "strict: 1",
                                      "strict: on",
                                      "strict: 'true'",
                                      "limits: {streams: -1}",
                                      "limits: {streams: 4294967296}",
                                      "limits: {ratio: -0.1}",
                                      "limits: {ratio: 1.1}"};
    for (size_t i = 0; i < BR_COUNT(good); i++)
        if (!takes(good[i]))
            fail_msg("%s", good[i]);
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        if (takes(bad[i]))
            fail_msg("%s", bad[i]);
}

static void test_duration(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ns;
    } good[] = {
        {"0", 0},
        {"0s", 0},
        {"-0", 0},
        {"-0s", 0},
        {"+5s", 5000000000},
        {"300ms", 300000000},
        {"1.5s", 1500000000},
        {"1h5m", 3900000000000},
        {"1h30m10s", 5410000000000},
        {"1m1s1ms1us1ns", 61001001001},
        {"5.s", 5000000000},
        {".5s", 500000000},
        {"1ns", 1},
        {"12\xc2\xb5s", 12000},
        {"12\xce\xbcs", 12000},
        {"0.1ns", 0},
        {"1.9ns", 1},
        {"0.3333333333333333333h", 1200000000000 - 1},
        {"1h1h", 7200000000000},
        {"0.100000000000000000000h", 360000000000},
        {"52763797000ns", 52763797000},
        {"9223372036854775807ns", 9223372036854775807},
        {"9223372036.854775807s", 9223372036854775807},
        {"0.000000001s", 1},
        {"0.9s", 900000000},
        {"2562047h47m16.854775807s", 9223372036854775807},
    };
    static const char *const bad[] = {"",
                                      "5",
                                      "-",
                                      "+",
                                      "s",
                                      ".",
                                      "-.",
                                      ".s",
                                      "+.s",
                                      "1d",
                                      "1 s",
                                      " 1s",
                                      "1s ",
                                      "5S",
                                      "1e3s",
                                      "-1s",
                                      "-1ns",
                                      "1s-1s",
                                      "0x1s",
                                      "1..5s",
                                      "9223372036854775808ns",
                                      "3000000h",
                                      "9223372036854775807ns1ns",
                                      "18446744073709551616ns",
                                      "00",
                                      "1h5",
                                      "ns"};
    uint64_t ns = 77;
    for (size_t i = 0; i < BR_COUNT(good); i++) {
        if (!br_duration_parse(good[i].text, &ns) || ns != good[i].ns)
            fail_msg("%s: %llu", good[i].text, (unsigned long long)ns);
    }
    ns = 77;
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        if (br_duration_parse(bad[i], &ns))
            fail_msg("%s: %llu", bad[i], (unsigned long long)ns);
    assert_int_equal(ns, 77);
}

static void test_endpoint(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        unsigned port;
    } good[] = {
        {"localhost:4317", "localhost", 4317},
        {"[::1]:80", "::1", 80},
        {":0", "", 0},
        {"0.0.0.0:65535", "0.0.0.0", 65535},
        {"a-b.c_d:1", "a-b.c_d", 1},
        {"[fe80::1%eth0]:5", "fe80::1%eth0", 5},
    };
    static const char *const bad[] = {"",       "localhost",   "localhost:", "a:65536",  "a:-1",
                                      "a:+1",   "a:1x",        "a: 1",       "a:000001", "::1",
                                      "::1:80", "[::1]",       "[::1]80",    "[::1:80",  "::1]:80",
                                      "[]:80",  "http://a:80", "a b:1",      "[a[b]:1",  "]:1"};
    char host[256] = "untouched";
    unsigned port = 9;
    for (size_t i = 0; i < BR_COUNT(bad); i++)
        if (br_endpoint_parse(bad[i], host, &port))
            fail_msg("%s", bad[i]);
    assert_string_equal(host, "untouched");
    assert_int_equal(port, 9);
    for (size_t i = 0; i < BR_COUNT(good); i++) {
        assert_true(br_endpoint_parse(good[i].text, host, &port));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    char longest[300];
    memset(longest, 'a', sizeof longest);
    (void)snprintf(longest + 255, 10, ":1");
    assert_true(br_endpoint_parse(longest, host, &port));
    assert_int_equal(strlen(host), 255);
    memset(longest, 'a', sizeof longest);
    (void)snprintf(longest + 256, 10, ":1");
    assert_false(br_endpoint_parse(longest, host, &port));
}

/* Older spellings set the field of the current key, with a warning. */
static void test_older_spellings(void **state)
{
    (void)state;
    struct kept {
        bool enabled;
        uint64_t idle;
    };
    struct settings {
        struct kept keep;
    };
    static const struct br_option kept_options[] = {BR_BOOL(struct kept, enabled, true, ""),
                                                    BR_DURATION(struct kept, idle, "1m", ""),
                                                    BR_OPT_END};
    static const struct br_option options[] = {
        BR_STRUCT(struct settings, keep, kept_options, ""),
        BR_OLDER(BR_OPT_DURATION, struct settings, keep.idle, uint64_t, "idle_time", "keep::idle"),
        BR_OLDER_NEGATED(struct settings, keep.enabled, "disable_keep", "keep::enabled"),
        BR_OPT_END};
    static const struct {
        const char *text;
        bool enabled;
        uint64_t seconds;
        const char *warning, *error;
    } cases[] = {
        {"{}", true, 60, NULL, NULL},
        {"keep: {idle: 2s}", true, 2, NULL, NULL},
        {"idle_time: 3s", true, 3, "f:1:1: p::idle_time: is an older spelling; write keep::idle",
         NULL},
        {"disable_keep: true", false, 60,
         "f:1:1: p::disable_keep: is an older spelling; write keep::enabled with the opposite "
         "value",
         NULL},
        {"disable_keep: false", true, 60,
         "f:1:1: p::disable_keep: is an older spelling; write keep::enabled with the opposite "
         "value",
         NULL},
        {"{keep: {idle: 2s}, disable_keep: true}", false, 2,
         "f:1:20: p::disable_keep: is an older spelling; write keep::enabled with the opposite "
         "value",
         NULL},
        {"{idle_time: 3s, keep: {idle: 2s}}", true, 2, NULL,
         "f:1:2: p: \"idle_time\" and \"keep::idle\" are two spellings of one key; keep the "
         "second"},
        {"idle_time: soon", true, 60, "f:1:1: p::idle_time: is an older spelling; write keep::idle",
         "f:1:12: p::idle_time: must be a duration with its unit, such as \"200ms\", \"5s\" or "
         "\"1h30m\", got \"soon\""},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct settings settings;
        char line[512];
        struct fixture f = read_into(options, cases[i].text, &settings, sizeof settings);
        assert_int_equal(f.errs.n_warnings, cases[i].warning != NULL);
        if (cases[i].warning)
            assert_string_equal(br_err_format(&f.errs.warnings[0], line, sizeof line),
                                cases[i].warning);
        assert_int_equal(f.errs.n_errors, cases[i].error != NULL);
        if (cases[i].error)
            assert_string_equal(br_err_format(&f.errs.errors[0], line, sizeof line),
                                cases[i].error);
        assert_int_equal(settings.keep.enabled, cases[i].enabled);
        assert_int_equal(settings.keep.idle, cases[i].seconds * 1000000000);
        done(&f);
    }
}

/* The written texts are exact. They are the shortest texts that Go's ParseDuration reads as the
 * same duration. */
static void test_duration_format(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {0, "0s"},
        {1, "1ns"},
        {1500, "1500ns"},
        {2000, "2us"},
        {200000000, "200ms"},
        {999999999, "999999999ns"},
        {1000000000, "1s"},
        {1500000000, "1.5s"},
        {1000000001, "1.000000001s"},
        {60000000000, "1m"},
        {90000000000, "1m30s"},
        {5400000000000, "1h30m"},
        {86400000000000, "24h"},
        {3600000000001, "1h1ns"},
        {(1ull << 63) - 1, "2562047h47m16.854775807s"},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        char text[BR_DURATION_SIZE];
        uint64_t ns = 0;
        assert_string_equal(br_duration_format(cases[i].ns, text), cases[i].text);
        assert_true(br_duration_parse(text, &ns));
        assert_true(ns == cases[i].ns);
    }
}

SUITE(option)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_present),
        cmocka_unit_test(test_secrets),
        cmocka_unit_test(test_errors_contain_no_secrets),
        cmocka_unit_test(test_grouped_digits),
        cmocka_unit_test(test_headers_at_most),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_older_spellings),
        cmocka_unit_test(test_duration),
        cmocka_unit_test(test_duration_format),
        cmocka_unit_test(test_endpoint),
    };
    return RUN(tests, NULL, NULL);
}
