/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Receiver pyroscope: push.v1. Expected responses are from Pyroscope's source (pkg/distributor),
 * connectrpc.com/docs/protocol and grpc/doc/PROTOCOL-WEB.md.
 */
#include "base/mem.h"
#include "tests/support/pyroscope_rig.h"
#include "tests/support/scrape.h"
#include "tests/support/test.h"

static void expect_pushed(struct fixture *f)
{
    assert_int_equal(f->n, 1);
    pyroscope_expect_attribute(f, "service.name", "shop");
    pyroscope_expect_attribute(f, "k8s.pod", "p-1");
    pyroscope_expect_attribute(f, "service.name", "unknown_service");
    pyroscope_expect_attribute(f, "pyroscope.name", "process_cpu");
    pyroscope_expect_attribute(f, "pyroscope.name", "memory");
    pyroscope_expect_no_key(f, "__name__");
    pyroscope_expect_no_key(f, "service_name");
    pyroscope_expect_out(f, "\"profileId\":\"00112233445566778899aabbccddeeff\"");
    size_t n = 0;
    for (const char *p = f->json.data; (p = strstr(p, "\"values\":[\"10000000\"]")); p++)
        n++;
    assert_int_equal(n, 3);
    f->n = 0;
    br_str_clear(&f->json);
}

static void test_push_connect(void **state)
{
    struct fixture *f = *state;
    pyroscope_put_push(f, &f->body);
    struct ask a = {.path = PUSH,
                    .type = "application/proto",
                    .header = "connect-protocol-version",
                    .value = "1"};
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    assert_int_equal(pyroscope_last.body_len, 0);
    assert_string_equal(pyroscope_last.type, "application/proto");
    expect_pushed(f);
    pyroscope_gzip(f, &f->body);
    a.encoding = "gzip";
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    expect_pushed(f);
    a.encoding = "br";
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 501);
    assert_non_null(strstr(pyroscope_last.body, "\"unimplemented\""));
    a.encoding = NULL;
    a.value = "2";
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 400);
}

/* Pushes profiles as JSON. Names of fields may be those of ProtoJSON or of the schema, and unknown
 * fields are skipped. */
static void test_push_json(void **state)
{
    struct fixture *f = *state;
    static const char *const keys[] = {"rawProfile", "raw_profile"};
    struct br_str json = {0};
    struct wire pprof = {0};
    pyroscope_put_pprof(&pprof, "cpu", "nanoseconds");
    for (size_t i = 0; i < BR_COUNT(keys); i++) {
        br_str_clear(&json);
        br_str_printf(&json,
                      "{\"series\":[{\"labels\":[{\"name\":\"__name__\",\"value\":"
                      "\"process_cpu\"},{\"name\":\"service_name\",\"value\":\"s\"}],"
                      "\"samples\":[{\"%s\":\"",
                      keys[i]);
        br_str_base64(&json, pprof.data, pprof.len);
        br_str_puts(&json, "\",\"ID\":\"" ID "\",\"later\":1}],\"annotations\":[{}]}]}");
        struct ask a = {.path = PUSH, .type = "application/json; charset=utf-8"};
        assert_int_equal(pyroscope_ask(f, a, json.data, json.len), 200);
        assert_string_equal(pyroscope_last.body, "{}");
        assert_string_equal(pyroscope_last.type, "application/json");
        pyroscope_expect_attribute(f, "pyroscope.name", "process_cpu");
        pyroscope_expect_attribute(f, "service.name", "s");
        pyroscope_expect_out(f, "\"profileId\":\"00112233445566778899aabbccddeeff\"");
        br_str_clear(&f->json);
    }
    assert_int_equal(pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/json"},
                                        "{\"series\":1}"),
                     400);
    assert_non_null(strstr(pyroscope_last.body, "{\"code\":\"invalid_argument\""));
    wire_free(&pprof);
    br_str_release(&json);
}

static void test_push_grpc(void **state)
{
    struct fixture *f = *state;
    pyroscope_put_push(f, &f->body);
    (void)pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc+proto"},
                             &f->body);
    assert_true(pyroscope_last.grpc);
    assert_int_equal(pyroscope_last.grpc_status, 0);
    expect_pushed(f);
    assert_float_equal(
        scrape_sum(&f->h->host, "otelcol_receiver_accepted_profile_samples", ",transport=\"grpc\""),
        3, 0);
    (void)pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc"}, "\xff");
    assert_int_equal(pyroscope_last.grpc_status, 3);
    (void)pyroscope_ask_text(
        f,
        (struct ask){
            .path = PUSH, .type = "application/grpc", .header = "grpc-encoding", .value = "br"},
        "");
    assert_int_equal(pyroscope_last.grpc_status, 12);
    (void)pyroscope_ask_text(
        f, (struct ask){.path = "/other.Service/Method", .type = "application/grpc"}, "");
    assert_int_equal(pyroscope_last.grpc_status, 12);
}

static void put_frame(struct wire *w, unsigned flags, const struct wire *message)
{
    wire_byte(w, flags);
    for (int shift = 24; shift >= 0; shift -= 8)
        wire_byte(w, (unsigned)(message->len >> shift) & 0xff);
    wire_raw(w, message->data, message->len);
}

/* gRPC-Web: the response consists of a frame of length 0 and a frame with flag 0x80, which contains
 * the trailers. */
static void test_push_web(void **state)
{
    struct fixture *f = *state;
    static const char ok[] = "\0\0\0\0\0\x80\0\0\0\x10grpc-status: 0\r\n";
    struct wire message = {0};
    pyroscope_put_push(f, &message);
    put_frame(&f->body, 0, &message);
    struct ask a = {.path = PUSH, .type = "application/grpc-web+proto"};
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    assert_string_equal(pyroscope_last.type, "application/grpc-web+proto");
    assert_int_equal(pyroscope_last.body_len, sizeof ok - 1);
    assert_memory_equal(pyroscope_last.body, ok, sizeof ok - 1);
    expect_pushed(f);
    pyroscope_gzip(f, &message);
    wire_clear(&f->body);
    put_frame(&f->body, 1, &message);
    a.header = "grpc-encoding";
    a.value = "gzip";
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    expect_pushed(f);
    a.value = "br";
    assert_int_equal(pyroscope_ask_wire(f, a, &f->body), 200);
    assert_memory_equal(pyroscope_last.body, "\x80\0\0\0", 4);
    assert_non_null(strstr(pyroscope_last.body + 5, "grpc-status: 12\r\n"));
    wire_free(&message);
}

static void test_push_web_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *body;
        size_t len;
    } cases[] = {
        {"", 0},           {"\0\0\0\0", 4},     {"\0\0\0\0\1", 5},     {"\0\0\0\0\0x", 6},
        {"\1\0\0\0\0", 5}, {"\x80\0\0\0\0", 5}, {"\0\0\0\0\1\xff", 6},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        struct ask a = {.path = PUSH, .type = "application/grpc-web"};
        assert_int_equal(pyroscope_ask(f, a, cases[i].body, cases[i].len), 200);
        assert_int_equal((uint8_t)pyroscope_last.body[0], 0x80);
        assert_non_null(strstr(pyroscope_last.body + 5, "grpc-status: 3\r\ngrpc-message: "));
    }
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/grpc-web-text"}, ""),
        415);
    assert_int_equal(f->n, 0);
}

static void test_push_refused(void **state)
{
    struct fixture *f = *state;
    struct wire sample = {0}, bad = {0};
    pyroscope_put_sample(f, &sample, false, ID);
    pyroscope_put_bad_sample(&bad);
    static const struct {
        const char *names[3], *why;
        bool bad, none;
    } cases[] = {
        {{NULL}, "at least one label", false, false},
        {{"service_name"}, "invalid metric name", false, false},
        {{"__name__", "a", "a"}, "duplicate label name: a", false, false},
        {{"__name__", ""}, "a label has no name", false, false},
        {{"__name__"}, "no profiles received", false, true},
        {{"__name__"}, "series[0].samples[0]: ", true, false},
    };
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        wire_clear(&f->body);
        size_t series = wire_open(&f->body, 1);
        for (int k = 0; k < 3 && cases[i].names[k]; k++)
            pyroscope_put_label(&f->body, cases[i].names[k], "v");
        if (!cases[i].none)
            wire_raw(&f->body, cases[i].bad ? bad.data : sample.data,
                     cases[i].bad ? bad.len : sample.len);
        wire_close(&f->body, series);
        assert_int_equal(pyroscope_ask_wire(
                             f, (struct ask){.path = PUSH, .type = "application/proto"}, &f->body),
                         400);
        assert_non_null(strstr(pyroscope_last.body, cases[i].why));
        assert_non_null(strstr(pyroscope_last.body, "{\"code\":\"invalid_argument\""));
        assert_string_equal(pyroscope_last.type, "application/json");
    }
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, ""), 400);
    assert_int_equal(
        pyroscope_ask_text(f, (struct ask){.path = PUSH, .type = "application/proto"}, "\xff"),
        400);
    assert_int_equal(f->n, 0);
    wire_free(&sample);
    wire_free(&bad);
}

static double metric(struct fixture *f, const char *what)
{
    char name[96];
    (void)snprintf(name, sizeof name, "otelcol_receiver_%s_profile_samples", what);
    return scrape_sum(&f->h->host, name, "receiver=\"pyroscope\"");
}

/* As in Pyroscope, valid profiles are sent to the pipeline, and the response reports the invalid
 * profiles. If the pipeline rejects the valid profiles or asks for a retry, the response reports
 * this result instead. */
static void test_push_partial_success(void **state)
{
    struct fixture *f = *state;
    static const struct {
        enum br_verdict verdict;
        enum br_status status;
        unsigned want;
        const char *expected;
    } cases[] = {
        {BR_DONE, BR_STATUS_OK, 400,
         "{\"code\":\"invalid_argument\",\"message\":\"4 of the profiles were rejected, the "
         "others accepted: series[0].samples[1]: "},
        {BR_RETRY, BR_STATUS_UNAVAILABLE, 503, "\"unavailable\""},
        {BR_REJECT, BR_STATUS_PERMISSION_DENIED, 400, "\"failed_precondition\""},
    };
    size_t series = wire_open(&f->body, 1);
    pyroscope_put_label(&f->body, "__name__", "process_cpu");
    pyroscope_put_label(&f->body, "service_name", "shop");
    pyroscope_put_sample(f, &f->body, true, ID);
    pyroscope_put_bad_sample(&f->body);
    pyroscope_put_sample(f, &f->body, false, "");
    pyroscope_put_bad_sample(&f->body);
    wire_close(&f->body, series);
    series = wire_open(&f->body, 1);
    pyroscope_put_label(&f->body, "service_name", "without a name");
    pyroscope_put_sample(f, &f->body, false, "");
    pyroscope_put_sample(f, &f->body, false, "");
    wire_close(&f->body, series);
    series = wire_open(&f->body, 1);
    wire_close(&f->body, series); /* a series without samples */
    series = wire_open(&f->body, 1);
    pyroscope_put_label(&f->body, "__name__", "memory");
    pyroscope_put_label(&f->body, "k8s.pod", "p-1");
    pyroscope_put_sample(f, &f->body, false, "");
    wire_close(&f->body, series);
    for (size_t i = 0; i < BR_COUNT(cases); i++) {
        f->outcome = (struct br_outcome){.verdict = cases[i].verdict, .status = cases[i].status};
        struct ask a = {.path = PUSH, .type = "application/proto"};
        assert_int_equal(pyroscope_ask_wire(f, a, &f->body), cases[i].want);
        assert_non_null(strstr(pyroscope_last.body, cases[i].expected));
        assert_null(strstr(f->json.data, "without a name"));
        expect_pushed(f);
    }
    assert_float_equal(metric(f, "accepted"), 3, 0);
    assert_float_equal(metric(f, "refused"), 3, 0);
    assert_float_equal(metric(f, "failed"), 4 * 3 + 3, 0);
    f->outcome = BR_OUTCOME_DONE;
    (void)pyroscope_ask_wire(f, (struct ask){.path = PUSH, .type = "application/grpc"}, &f->body);
    assert_int_equal(pyroscope_last.grpc_status, 3);
    expect_pushed(f);
}

/* Asserts a permanent error. The status may be 413 or 400. It depends on the limit that is exceeded
 * first: the builder counts requested bytes, and the memory scope counts the bytes that the C
 * library allocates. */
static void assert_permanent(unsigned status)
{
    assert_true(status == 413 || status == 400);
}

/* If a body takes more memory than four times its size plus 1 MiB, it is rejected permanently,
 * because a retry cannot succeed. */
static void test_push_bounded(void **state)
{
    struct fixture *f = *state;
    static char name[LIMIT / 2];
    memset(name, 'n', sizeof name - 1);
    const struct ask a = {.path = PUSH, .type = "application/proto"};
    while (f->body.len < LIMIT - 2) /* empty series */
        wire_raw(&f->body, "\x0a\x00", 2);
    assert_permanent(pyroscope_ask_wire(f, a, &f->body));
    assert_non_null(strstr(pyroscope_last.body, "bytes of memory"));
    /* Each profile repeats the name of its series. */
    wire_clear(&f->body);
    size_t series = wire_open(&f->body, 1);
    pyroscope_put_label(&f->body, "__name__", name);
    for (unsigned i = 0; i < 100; i++)
        pyroscope_put_sample(f, &f->body, false, ID);
    wire_close(&f->body, series);
    assert_true(f->body.len < LIMIT);
    assert_permanent(pyroscope_ask_wire(f, a, &f->body));
    assert_int_equal(f->n, 0);
}

SUITE(pyroscope_push)
{
    const struct CMUnitTest tests[] = {
        PYROSCOPE_TEST(test_push_connect),
        PYROSCOPE_TEST(test_push_json),
        PYROSCOPE_TEST(test_push_grpc),
        PYROSCOPE_TEST(test_push_web),
        PYROSCOPE_TEST(test_push_web_refused),
        PYROSCOPE_TEST(test_push_refused),
        PYROSCOPE_TEST(test_push_partial_success),
        PYROSCOPE_TEST(test_push_bounded),
    };
    int rc = RUN(tests, NULL, NULL);
    free(pyroscope_last.body);
    return rc;
}
